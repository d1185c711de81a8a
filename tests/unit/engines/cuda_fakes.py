"""CUDA's runtime as far as engines use it, on the host's memory.

Work put into a stream is done when the stream is waited for, so that results which nothing waited for are
missing. Everything that is taken counts until it is given back.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

OUT_OF_MEMORY, INVALID, NO_DRIVER = 2, 1, 35
TEXTS = {
    OUT_OF_MEMORY: b"out of memory", INVALID: b"invalid argument",
    NO_DRIVER: b"CUDA driver version is insufficient for CUDA runtime version", 901: b"operation failed",
}  # fmt: skip


class Stream:
    """Work that waits, or that is being recorded."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.queue: list[Callable[[], None]] = []
        self.recorded: list[Callable[[], None]] | None = None

    def __int__(self) -> int:
        return self.number

    def put(self, work: Callable[[], None]) -> None:
        (self.queue if self.recorded is None else self.recorded).append(work)


class FakeCuda:
    """The module ``cuda.bindings.runtime``.

    ``fails[function]`` is the status of that function from its n-th call on: ``(n, status)``.
    """

    cudaStreamNonBlocking = 1
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice="to", cudaMemcpyDeviceToHost="from")
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)

    def __init__(self, gpus: int = 1, capability: tuple[int, int] = (8, 9)) -> None:
        self.gpus, self.capability = gpus, capability
        self.fails: dict[str, tuple[int, int]] = {}
        self.calls: Counter[str] = Counter()
        self.memory: dict[int, Any] = {}
        self.host: set[int] = set()
        self.streams: dict[int, Stream] = {}
        self.graphs: list[Any] = []
        self.engines = 0
        self.current: list[int] = []

    def held(self) -> dict[str, int]:
        """What has not been given back."""
        kinds = {
            "memory": len(self.memory), "streams": len(self.streams), "graphs": len(self.graphs),
            "engines": self.engines,
        }  # fmt: skip
        return {kind: count for kind, count in kinds.items() if count}

    def _status(self, function: str) -> int:
        self.calls[function] += 1
        first, status = self.fails.get(function, (1 << 60, 0))
        return status if self.calls[function] >= first else 0

    def cudaGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, TEXTS[int(status)]

    def cudaGetLastError(self) -> tuple[int]:
        return (0,)

    def cudaGetDeviceCount(self) -> tuple[int, int | None]:
        status = self._status("cudaGetDeviceCount")
        return status, None if status else self.gpus

    def cudaGetDeviceProperties(self, index: int) -> tuple[int, Any]:
        major, minor = self.capability
        uuid = SimpleNamespace(bytes=bytes(range(index, index + 16)))
        return 0, SimpleNamespace(name=b"Imagined GPU\0\0", major=major, minor=minor, uuid=uuid)

    def cudaDriverGetVersion(self) -> tuple[int, int]:
        return 0, 13020

    def cudaSetDevice(self, index: int) -> tuple[int]:
        self.current.append(index)
        return (0,)

    def cudaMemGetInfo(self) -> tuple[int, int, int]:
        taken = sum(len(self.memory[place]) for place in self.memory.keys() - self.host)
        return 0, (1 << 30) - taken - 1000 * self.engines, 1 << 30

    def cudaMalloc(self, size: int) -> tuple[int, int | None]:
        return self._taken("cudaMalloc", size)

    def cudaMallocHost(self, size: int) -> tuple[int, int | None]:
        status, place = self._taken("cudaMallocHost", size)
        if place is not None:
            self.host.add(place)
        return status, place

    def _taken(self, function: str, size: int) -> tuple[int, int | None]:
        status = self._status(function)
        if status:
            return status, None
        block = (ctypes.c_uint8 * size)()
        ctypes.memset(block, 0xA5, size)
        self.memory[ctypes.addressof(block)] = block
        return 0, ctypes.addressof(block)

    def cudaFree(self, place: int) -> tuple[int]:
        del self.memory[place]
        return (0,)

    def cudaFreeHost(self, place: int) -> tuple[int]:
        self.host.remove(place)
        return self.cudaFree(place)

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[int, Stream | None]:
        status = self._status("cudaStreamCreateWithFlags")
        if status:
            return status, None
        stream = Stream(1 + max(self.streams, default=0))
        self.streams[stream.number] = stream
        return 0, stream

    def cudaStreamDestroy(self, stream: Stream) -> tuple[int]:
        del self.streams[stream.number]
        return (0,)

    def cudaStreamSynchronize(self, stream: Stream) -> tuple[int]:
        assert stream.recorded is None, "waited for a stream while it is recorded"
        while stream.queue:
            stream.queue.pop(0)()
        return (self._status("cudaStreamSynchronize"),)

    def cudaMemcpyAsync(self, target: int, source: int, size: int, kind: str, stream: Stream) -> tuple[int]:
        device, host = (target, source) if kind == "to" else (source, target)
        assert host in self.host
        assert device in self.memory.keys() - self.host
        assert size <= len(self.memory[target])
        assert size <= len(self.memory[source])
        stream.put(lambda: ctypes.memmove(target, source, size))
        return (self._status("cudaMemcpyAsync"),)

    def cudaStreamBeginCapture(self, stream: Stream, mode: int) -> tuple[int]:
        status = self._status("cudaStreamBeginCapture")
        stream.recorded = None if status else []
        return (status,)

    def cudaStreamEndCapture(self, stream: Stream) -> tuple[int, Any]:
        status, recorded = self._status("cudaStreamEndCapture"), stream.recorded
        stream.recorded = None
        if status:
            return status, None
        self.graphs.append(recorded)
        return 0, recorded

    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[int, Any]:
        status = self._status("cudaGraphInstantiate")
        if status:
            return status, None
        self.graphs.append([*graph, None])
        return 0, self.graphs[-1]

    def cudaGraphDestroy(self, graph: Any) -> tuple[int]:
        self.graphs = [one for one in self.graphs if one is not graph]
        return (0,)

    cudaGraphExecDestroy = cudaGraphDestroy

    def cudaGraphLaunch(self, graph: Any, stream: Stream) -> tuple[int]:
        status = self._status("cudaGraphLaunch")
        for work in graph[:-1] if not status else ():
            stream.put(work)
        return (status,)

"""One request in flight on a GPU: its execution context, stream, buffers and recorded graph.

The vendor's module and CUDA's runtime are handed in. What a call does, its transfers included, is recorded
once in a CUDA graph where that works, and launched as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.contracts import Feeds, TensorInfo
from inferometer.engines.tensorrt.build import VENDOR_ERRORS
from inferometer.engines.tensorrt.cuda import Cuda, pinned
from inferometer.engines.tensorrt.log import Log, failure
from inferometer.engines.tensorrt.model import Readied
from inferometer.errors import EngineError, InferometerError

__all__ = ["Loaded", "Slot", "new_context"]


@dataclass(frozen=True)
class Loaded:
    """What a session needs besides the engine.

    Attributes:
        vendor: TensorRT's module.
        name: The engine's name, for errors.
        label: The model's.
        cuda: The runtime, whose errors speak of the model.
        log: The logger of all the vendor's objects here.
        device: CUDA's number of the GPU.
        file: The model as read.
        tf32: Whether products of float32 may be computed in TF32.
    """

    vendor: Any
    name: str
    label: str
    cuda: Cuda
    log: Log
    device: int
    file: Readied
    tf32: bool

    def failed(self, doing: str) -> InferometerError:
        """The error that the log tells of."""
        return failure(self.label, self.name, doing, self.log.take())


class Slot:
    """One request: its context, stream, buffers on both sides, and its recorded graph."""

    def __init__(
        self, loaded: Loaded, engine: Any, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo],
        stack: ExitStack, copies: bool,
    ) -> None:  # fmt: skip
        """Take everything; ``stack`` gives it back."""
        self._loaded, self._cuda, self._copies = loaded, loaded.cuda, copies
        self._inputs, self._outputs, self._stack = inputs, outputs, stack
        self._graph: Any = None
        cuda = loaded.cuda
        cuda.call("cudaSetDevice", loaded.device)
        self._stream = cuda.call("cudaStreamCreateWithFlags", cuda.runtime.cudaStreamNonBlocking)
        stack.callback(_quietly, cuda, "cudaStreamDestroy", self._stream)
        self._place: dict[str, int] = {}
        self._host: dict[str, npt.NDArray[Any]] = {}
        self._address: dict[str, int] = {}
        for tensor in (*inputs, *outputs):
            self._allocate(tensor)
        self._context = new_context(loaded, engine)
        stack.callback(self._let_go)
        self.bind(self._context)

    def _allocate(self, tensor: TensorInfo) -> None:
        shape = tuple(side or 0 for side in tensor.shape)
        size = max(1, int(np.prod(shape, dtype=np.int64)) * np.dtype(tensor.dtype).itemsize)
        self._place[tensor.name] = self._cuda.call("cudaMalloc", size)
        self._stack.callback(_quietly, self._cuda, "cudaFree", self._place[tensor.name])
        self._address[tensor.name] = self._cuda.call("cudaMallocHost", size)
        self._stack.callback(_quietly, self._cuda, "cudaFreeHost", self._address[tensor.name])
        self._host[tensor.name] = pinned(self._address[tensor.name], shape, tensor.dtype)
        self._host[tensor.name][...] = 0

    def _let_go(self) -> None:
        _quietly(self._cuda, "cudaStreamSynchronize", self._stream)
        self.forget_graph()
        self._context = None

    def bind(self, context: Any) -> None:
        """Tell a context where the slot's tensors are."""
        for name, place in self._place.items():
            if not context.set_tensor_address(name, place):
                raise self._loaded.failed(f"take the buffer of {name!r}")

    def feed(self, feeds: Feeds) -> None:
        """Place the feeds in the host's memory, and on the GPU where calls do not transfer them."""
        for name, values in feeds.items():
            self._host[name][...] = values
        if not self._copies:
            self.send()

    def send(self) -> None:
        """Transfer the inputs now."""
        self._cuda.call("cudaSetDevice", self._loaded.device)
        self._transfer(self._inputs, "HostToDevice")
        self.finish()

    def fetched(self) -> dict[str, npt.NDArray[Any]]:
        """The outputs in the host's memory."""
        if not self._copies:
            self._cuda.call("cudaSetDevice", self._loaded.device)
            self._transfer(self._outputs, "DeviceToHost")
            self.finish()
        return {tensor.name: self._host[tensor.name] for tensor in self._outputs}

    def start(self) -> None:
        """One call, in the thread that asks: the current device is each thread's own."""
        cuda = self._cuda
        cuda.call("cudaSetDevice", self._loaded.device)
        if self._graph is not None:
            cuda.call("cudaGraphLaunch", self._graph, self._stream)
        else:
            self._whole()

    def finish(self) -> None:
        """Wait for all that is in the stream."""
        self._cuda.call("cudaStreamSynchronize", self._stream)

    def enqueue(self, context: Any) -> None:
        """Put the inference alone into the stream."""
        if not context.execute_async_v3(int(self._stream)):
            raise self._loaded.failed("run it")

    def record(self, wanted: bool) -> str | None:
        """Run one call on zeros, then record one as a graph; why there is none, or None.

        TensorRT does in its first call what must not be recorded.
        """
        self.send()
        self._whole()
        self.finish()
        if not wanted:
            return "the option cuda_graph is off"
        capturable: Callable[[int], bool] | None = getattr(self._context, "is_stream_capturable", None)
        if capturable is not None and not capturable(int(self._stream)):
            return "TensorRT says that this engine cannot be recorded"
        try:
            recorded = self._recorded()
            try:
                self._graph = self._cuda.call("cudaGraphInstantiate", recorded, 0)
            finally:
                _quietly(self._cuda, "cudaGraphDestroy", recorded)
            self.start()
            self.finish()
        except EngineError as error:
            self.forget_graph()
            self._loaded.log.take()
            return str(error).removeprefix(f"{self._loaded.label}: ")
        return None

    def _recorded(self) -> Any:
        """What a call does, as a graph.

        Raises:
            EngineError: Something in it cannot be recorded; the stream is usable again.
        """
        runtime = self._cuda.runtime
        # Only what this thread does must not disturb: others may use the GPU meanwhile.
        mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._cuda.call("cudaStreamBeginCapture", self._stream, mode)
        try:
            self._whole()
        except EngineError:
            _, part = runtime.cudaStreamEndCapture(self._stream)
            if part is not None:
                _quietly(self._cuda, "cudaGraphDestroy", part)
            raise
        return self._cuda.call("cudaStreamEndCapture", self._stream)

    def forget_graph(self) -> None:
        """Free the graph; calls go on without."""
        if self._graph is not None:
            _quietly(self._cuda, "cudaGraphExecDestroy", self._graph)
        self._graph = None

    def _whole(self) -> None:
        """All that a call does, put into the stream."""
        if self._copies:
            self._transfer(self._inputs, "HostToDevice")
        self.enqueue(self._context)
        if self._copies:
            self._transfer(self._outputs, "DeviceToHost")

    def _transfer(self, tensors: Sequence[TensorInfo], direction: str) -> None:
        for tensor in tensors:
            size = self._host[tensor.name].nbytes
            host, place = self._address[tensor.name], self._place[tensor.name]
            ends = (place, host) if direction == "HostToDevice" else (host, place)
            if size:
                self._cuda.copy(*ends, size, direction, self._stream)


def new_context(loaded: Loaded, engine: Any) -> Any:
    """An execution context of an engine; TensorRT-RTX finishes the kernels for this GPU here.

    Raises:
        OutOfMemory: Memory ran out.
        Unsupported: The GPU cannot run it.
        EngineError: Anything else.
    """
    loaded.log.take()
    try:
        context = engine.create_execution_context()
    except VENDOR_ERRORS as error:
        raise loaded.failed(f"make a context ({type(error).__name__})") from error
    if context is None:
        raise loaded.failed("make a context")
    return context


def _quietly(cuda: Cuda, function: str, handle: Any) -> None:
    """Give something back, whatever CUDA says: after an error of the device it refuses everything."""
    getattr(cuda.runtime, function)(handle)

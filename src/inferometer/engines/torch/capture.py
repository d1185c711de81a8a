"""Calls of a network captured into CUDA graphs, and what a slot of a session consists of."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from inferometer.contracts import TensorInfo
from inferometer.engines.torch.network import torch_dtype

__all__ = ["Call", "Slot", "buffers", "capture", "event_seconds", "in_parts", "warm"]

cuda: Any = torch.cuda  # typed in part alone

Call = Callable[..., tuple[torch.Tensor, ...]]

_WARM_CALLS = 3  # cuDNN tries its kernels in the first, and libraries allocate their workspaces
_TRIES = 5


@dataclass
class Slot:
    """One request: where its feeds lie on the device, the graph that reads them, and what it writes.

    With copies included ``host_inputs`` and ``host_outputs`` are page-locked memory, and the events order
    the transfers and the computing, which run on streams of their own.
    """

    inputs: list[torch.Tensor]
    host_inputs: list[torch.Tensor] = field(default_factory=list)
    host_outputs: list[torch.Tensor] = field(default_factory=list)
    outputs: tuple[torch.Tensor, ...] = ()
    graph: torch.cuda.CUDAGraph | None = None
    arrived: torch.cuda.Event = field(default_factory=torch.cuda.Event)
    computed: torch.cuda.Event = field(default_factory=torch.cuda.Event)
    done: torch.cuda.Event = field(default_factory=torch.cuda.Event)


def buffers(tensors: Sequence[TensorInfo], device: torch.device | None) -> list[torch.Tensor]:
    """Zeros of the tensors' shapes on ``device``; page-locked on the host where that is None."""
    return [
        torch.zeros([side or 0 for side in tensor.shape], dtype=torch_dtype(tensor.dtype), device=device)
        if device is not None
        else torch.zeros([side or 0 for side in tensor.shape], dtype=torch_dtype(tensor.dtype)).pin_memory()
        for tensor in tensors
    ]


def in_parts(call: Call, parts: int, split: Sequence[bool]) -> Call:
    """A call that goes over the batch in equal parts, one after another.

    Args:
        call: Of one part.
        parts: How many.
        split: Which inputs have the batch in front; the others go to each part whole.
    """
    if parts == 1:
        return call

    def whole(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = []
        for part in range(parts):
            rows = [tensor.shape[0] // parts for tensor in inputs]
            found.append(
                call(
                    *(
                        tensor.narrow(0, part * count, count) if cut else tensor
                        for tensor, count, cut in zip(inputs, rows, split, strict=True)
                    )
                )
            )
        return tuple(torch.cat(tensors, 0) for tensors in zip(*found, strict=True))

    return whole


def warm(call: Call, inputs: Sequence[torch.Tensor], stream: torch.cuda.Stream) -> None:
    """Call a few times outside a graph, on the stream that will capture it."""
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        for _ in range(_WARM_CALLS):
            call(*inputs)
    stream.synchronize()


def capture(call: Call, slot: Slot, stream: torch.cuda.Stream, pool: Any) -> None:
    """Record a call into the slot's graph.

    All graphs of a session take memory from one pool and run on one stream, one after another: what one has
    in between may lie where another's does, while the outputs, which are held, may not.

    Source: documentation of PyTorch, "CUDA semantics", section on sharing memory across captures.
    """
    slot.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(slot.graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        slot.outputs = call(*slot.inputs)


def event_seconds(
    run: Callable[[], object], stream: torch.cuda.Stream, calls: int = 1, tries: int = _TRIES
) -> float:
    """Seconds of one of ``calls`` runs back to back on the stream, warmed up by one: the median of tries."""
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    taken: list[float] = []
    with torch.cuda.stream(stream):
        run()
        for _ in range(tries):
            begin.record(stream)
            for _ in range(calls):
                run()
            end.record(stream)
            end.synchronize()
            taken.append(begin.elapsed_time(end) * 1e-3 / calls)
    return statistics.median(taken)

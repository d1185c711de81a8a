"""A session of PyTorch on an NVIDIA GPU: one network in CUDA graphs, a few slots, one compute stream."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inferometer.contracts import ExecutedLayer, Feeds, LayerTime, Session
from inferometer.engines.torch.capture import Call, Slot, buffers, capture, event_seconds, in_parts, warm
from inferometer.engines.torch.cpu import COMPUTE
from inferometer.engines.torch.fusion import fused, keeping_the_faster
from inferometer.engines.torch.graph import Program, build_program, infos, read, with_batch
from inferometer.engines.torch.layers import executed_layers, kernel_times, rounding_steps, timed_passes
from inferometer.engines.torch.network import Network
from inferometer.engines.torch.parts import in_equal_parts
from inferometer.engines.torch.settings import (
    TORCH_ERRORS,
    arithmetic,
    compiled,
    compiling,
    forget_compiled,
    kernels_tried,
    mapped,
    torch_errors,
)
from inferometer.errors import InferometerError
from inferometer.records import Precision

__all__ = ["CudaSession"]

cuda: Any = torch.cuda  # typed in part alone
cudnn: Any = torch.backends.cudnn

_SLOTS = {True: 3, False: 2}  # a transfer in, a computation and a transfer out at once; or two computations
# Kernels that cuDNN tries for each convolution. Those of true float32 are slow, and the later ones slower
# yet: VGG-16 at batch 128 on one NVIDIA H200 took 1.6 s with 3 tries and 24.5 s with 10, and ran as fast.
# ResNet-50 in halves ran 4 % slower with 3.
_TRIES: dict[Precision, int] = {"fp32": 3}
_TRIES_ELSE = 10  # Source: PyTorch's default.
_TIMED_S, _ROUNDS = 0.1, 3  # of replays, in each of the rounds in which modes are compared
_CYCLES = 50_000_000  # of the GPU's clock: time enough to queue a pass, so that its steps follow closely


class CudaSession(Session):
    """One network, captured once for each slot; replays run back to back on one stream.

    With copies included each call also moves its feeds from page-locked memory to the GPU and its outputs
    back, on streams of their own, so that transfers of one slot run beside computations of another.
    """

    ordered = True

    def __init__(
        self, model: Path, device: str, precision: Precision, batch: int, mode: str, copied: bool,
        in_flight: int | None,
    ) -> None:  # fmt: skip
        """Load ``model``; ``mode`` is ``auto``, ``eager`` or ``compile``."""
        self._model, self._precision, self._copied = model, precision, copied
        self._device = torch.device(device)
        self._tries = _TRIES.get(precision, _TRIES_ELSE)
        self._slots: list[Slot] = []
        self._network: Network | None = None
        self._compiled = False
        content = with_batch(read(model), batch, model)
        self.inputs, self.outputs = infos(content, model)
        whole = build_program(content, COMPUTE[precision], model)
        self._parts = in_equal_parts(content, whole, batch, COMPUTE[precision], model)
        self.in_flight = min(in_flight or _SLOTS[copied], _SLOTS[copied])
        try:
            with torch_errors(model), torch.cuda.device(self._device):
                self._load(mode)
        except InferometerError as error:
            self.close()
            raise error from error.__cause__

    def _load(self, mode: str) -> None:
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        self._base_bytes = torch.cuda.memory_allocated(self._device)
        self._stream, self._inward, self._outward = (cuda.Stream(self._device) for _ in range(3))
        self._pool = torch.cuda.graph_pool_handle()
        begin = time.monotonic()
        # All on one stream, so that nothing is read before it is written, or after it was given back.
        with torch.cuda.stream(self._stream):
            self._slots = [self._slot() for _ in range(self.in_flight)]
            with torch.inference_mode(), self._settings():
                call, taken, facts = self._chosen(mode)
                for slot in self._slots:
                    if slot.graph is None:
                        capture(call, slot, self._stream, self._pool)
        for slot in self._slots:
            slot.host_outputs = [
                torch.empty(tensor.shape, dtype=tensor.dtype).pin_memory() for tensor in slot.outputs
            ]
        torch.cuda.synchronize(self._device)
        self.compile_s = time.monotonic() - begin
        self._compiled = taken == "compile"
        self.settled = {
            "mode": taken,
            **facts,
            "cuda_graph": True,
            "slots": self.in_flight,
            "parts": self._parts.count,
            "channels_last": True,
            "compute_dtype": str(COMPUTE[self._precision]).removeprefix("torch."),
            "float32_products": "tf32" if self._precision == "tf32" else "ieee",
            "cudnn_kernels_tried": self._tries,
            "cuda": torch.version.cuda,
            "cudnn": cudnn.version(),
        }

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        with arithmetic(self._precision == "tf32", gpu=True), kernels_tried(self._tries):
            yield

    def _slot(self) -> Slot:
        pinned = buffers(self.inputs, None) if self._copied else []
        return Slot(buffers(self.inputs, self._device), pinned)

    def _chosen(self, mode: str) -> tuple[Call, str, dict[str, Any]]:
        """The call that is captured, the mode it is of, and what led there.

        Under ``auto`` both are captured and replayed by turns; one that cannot be made loses.
        """
        if mode == "eager":
            call, facts = self._eager()
            return call, mode, facts
        if mode == "compile":
            return self._compile(), mode, {}
        eager, facts = self._eager()
        first = self._slots[0]
        capture(eager, first, self._stream, self._pool)
        other = Slot(first.inputs)
        network = self._network
        try:
            with torch_errors(self._model):
                call = self._compile()
                capture(call, other, self._stream, self._pool)
        except InferometerError as error:
            forget_compiled()
            self._network = network
            # A capture that broke off may leave its pool unusable.
            self._pool = torch.cuda.graph_pool_handle()
            first.graph, first.outputs = None, ()
            return eager, "eager", {**facts, "compile_failed": str(error)}
        eager_s, compile_s = self._replayed(first, other)
        facts |= {"eager_s_per_call": eager_s, "compile_s_per_call": compile_s}
        if compile_s < eager_s:
            first.graph, first.outputs = other.graph, other.outputs
            return call, "compile", facts
        forget_compiled()
        self._network = network
        return eager, "eager", facts

    def _replayed(self, *slots: Slot) -> tuple[float, ...]:
        """Seconds of one replay of each slot's graph, measured by turns: the best of three rounds."""
        best = [float("inf")] * len(slots)
        calls = [1] * len(slots)
        for turn in range(_ROUNDS + 1):  # the first finds out how many replays fill `_TIMED_S`
            for place, slot in enumerate(slots):
                assert slot.graph is not None
                seconds = event_seconds(slot.graph.replay, self._stream, calls[place], tries=1)
                if turn == 0:
                    calls[place] = max(1, min(100, int(_TIMED_S / max(seconds, 1e-6))))
                else:
                    best[place] = min(best[place], seconds)
        return tuple(best)

    def _eager(self) -> tuple[Call, dict[str, Any]]:
        """PyTorch's own kernels, with cuDNN's that also add and clip where they are faster."""
        program = self._parts.program
        merged = fused(program) if self._precision != "fp32" else program
        network = self._placed(merged)
        if merged is not program:
            inputs = self._parts.first(self._slots[0].inputs)
            program = keeping_the_faster(network, inputs, lambda run: event_seconds(run, self._stream, 2))
            network = self._placed(program)
        self._network = network
        call = in_parts(network, self._parts.count, self._parts.split)
        warm(call, self._slots[0].inputs, self._stream)
        return call, {"merged_convolutions": sum(bool(step.fallback) for step in program.steps)}

    def _compile(self) -> Call:
        self._network = self._placed(self._parts.program)
        call = in_parts(compiled(self._network), self._parts.count, self._parts.split)
        with compiling(freeze=False):
            warm(call, self._slots[0].inputs, self._stream)
        return call

    def _placed(self, program: Program) -> Network:
        with torch.inference_mode(False):  # the compiler wants tensors of the usual kind
            return Network(program, COMPUTE[self._precision], self._device).eval()

    def _prepare(self, slot: int, feeds: Feeds) -> None:
        held = self._slots[slot]
        with torch_errors(self._model):
            for place, tensor in enumerate(self.inputs):
                if self._copied:
                    np.copyto(held.host_inputs[place].numpy(), feeds[tensor.name])
                else:
                    array = np.require(feeds[tensor.name], requirements=("C", "W"))
                    held.inputs[place].copy_(torch.from_numpy(array))
            if not self._copied:  # into host memory nothing is queued, and other slots may be at work
                torch.cuda.synchronize(self._device)

    def submit(self, slot: int) -> None:
        """Queue the slot's transfers, if they are included, and its graph."""
        held = self._slots[slot]
        try:
            if self._copied:
                self._submit_with_copies(held)
                return
            with torch.cuda.stream(self._stream):
                held.graph.replay()  # type: ignore[union-attr]
            held.done.record(self._stream)
        except TORCH_ERRORS as error:
            raise mapped(error, self._model) from error

    def _submit_with_copies(self, held: Slot) -> None:
        with torch.cuda.stream(self._inward):
            for inside, host in zip(held.inputs, held.host_inputs, strict=True):
                inside.copy_(host, non_blocking=True)
        held.arrived.record(self._inward)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(held.arrived)
            held.graph.replay()  # type: ignore[union-attr]
        held.computed.record(self._stream)
        with torch.cuda.stream(self._outward):
            self._outward.wait_event(held.computed)
            for host, inside in zip(held.host_outputs, held.outputs, strict=True):
                host.copy_(inside, non_blocking=True)
        held.done.record(self._outward)

    def wait(self, slot: int) -> None:
        """Return when the slot's graph, and its transfers if they are included, are done."""
        try:
            self._slots[slot].done.synchronize()
        except TORCH_ERRORS as error:
            raise mapped(error, self._model) from error

    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """The slot's outputs; with copies excluded they are fetched from the GPU here."""
        return {name: values.copy() for name, values in self.view(slot).items()}

    def view(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """The slot's outputs in page-locked memory, where its next call or view writes again."""
        held = self._slots[slot]
        with torch_errors(self._model):
            if not self._copied:
                for host, inside in zip(held.host_outputs, held.outputs, strict=True):
                    host.copy_(inside)
                torch.cuda.synchronize(self._device)
            return {
                info.name: host.numpy() for info, host in zip(self.outputs, held.host_outputs, strict=True)
            }

    def executed(self) -> tuple[ExecutedLayer, ...]:
        """The network's steps, of ``compile`` before they are merged.

        Whether float32 products were rounded to tf32 is found out by running each step on factors that differ
        only in what tf32 leaves out.
        """
        assert self._network is not None
        rounding: frozenset[str] = frozenset()
        if COMPUTE[self._precision] is torch.float32:
            with torch_errors(self._model), torch.cuda.device(self._device), torch.inference_mode():
                with self._settings(), torch.cuda.stream(self._stream):
                    rounding = rounding_steps(self._network, self._parts.first(self._slots[0].inputs))
                torch.cuda.synchronize(self._device)
        return executed_layers(self._network.program, self._parts.count, rounding)

    def profile(self) -> tuple[LayerTime, ...]:
        """Seconds per step, each queued by itself; under ``compile`` per kernel of the captured graph."""
        assert self._network is not None
        with torch_errors(self._model), torch.cuda.device(self._device), torch.inference_mode():
            if self._compiled:
                graph = self._slots[0].graph
                assert graph is not None
                with torch.cuda.stream(self._stream):
                    return kernel_times(graph.replay)
            with self._settings(), torch.cuda.stream(self._stream):
                inputs = self._parts.first(self._slots[0].inputs)
                times = timed_passes(self._network, inputs, self._clocked)
        return tuple(replace(one, seconds=one.seconds * self._parts.count) for one in times)

    def _clocked(self, prepare: Callable[[], None], actions: Sequence[Callable[[], None]]) -> list[float]:
        prepare()
        events = [cuda.Event(enable_timing=True) for _ in range(len(actions) + 1)]
        cuda._sleep(_CYCLES)
        events[0].record(self._stream)
        for action, event in zip(actions, events[1:], strict=True):
            action()
            event.record(self._stream)
        events[-1].synchronize()
        return [before.elapsed_time(after) * 1e-3 for before, after in itertools.pairwise(events)]

    def device_peak_bytes(self) -> int | None:
        """Largest memory that PyTorch handed out since loading began, trials of modes included."""
        return int(torch.cuda.max_memory_allocated(self._device) - self._base_bytes)

    def close(self) -> None:
        """Free the graphs, the network and all memory that PyTorch keeps for reuse."""
        try:
            torch.cuda.synchronize(self._device)
        except TORCH_ERRORS:
            return  # the context is lost; a process that computes on has no use for its memory
        for slot in self._slots:
            slot.graph = None
        self._slots, self._network = [], None
        if self._compiled:
            forget_compiled()
        gc.collect()
        torch.cuda.empty_cache()

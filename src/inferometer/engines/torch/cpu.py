"""A session of PyTorch on the CPU."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from inferometer.contracts import ExecutedLayer, Feeds, LayerTime, Session
from inferometer.engines.torch.graph import build_program, infos, read, with_batch
from inferometer.engines.torch.layers import executed_layers, timed_passes
from inferometer.engines.torch.network import Network, torch_dtype
from inferometer.engines.torch.settings import arithmetic, compiled, compiling, forget_compiled, torch_errors
from inferometer.records import Precision

__all__ = ["COMPUTE", "CpuSession"]

mkldnn: Any = torch.backends.mkldnn  # typed in part alone

COMPUTE: dict[Precision, torch.dtype] = {
    "fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
}  # fmt: skip
"""The type that tensors have at each precision."""


class CpuSession(Session):
    """One network; calls are synchronous, in the thread that submits them, one at a time.

    The number of threads is a setting of the whole process, which each call of a session sets for itself.
    """

    def __init__(self, model: Path, precision: Precision, batch: int, threads: int, mode: str) -> None:
        """Load ``model``; ``mode`` is ``eager`` or ``compile``."""
        self._model, self._threads, self._mode = model, threads, mode
        content = with_batch(read(model), batch, model)
        self.inputs, self.outputs = infos(content, model)
        with torch_errors(model):
            torch.set_num_threads(threads)
            program = build_program(content, COMPUTE[precision], model)
            self._network = Network(program, COMPUTE[precision], torch.device("cpu")).eval()
        self._feeds: list[torch.Tensor] = []
        self._results: tuple[torch.Tensor, ...] = ()
        self._call: Callable[..., tuple[torch.Tensor, ...]] = self._network
        begin = time.monotonic()
        if mode == "compile":
            self._call = self._compiled()
        self.compile_s = time.monotonic() - begin if mode == "compile" else 0.0
        self.settled = {
            "mode": mode,
            "threads": threads,
            "channels_last": True,
            "mkldnn": bool(mkldnn.is_available()),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "compute_dtype": str(COMPUTE[precision]).removeprefix("torch."),
            "float32_products": "ieee",
        }

    @property
    def raw(self) -> torch.nn.Module:
        """The module, for measuring it without Inferometer; it takes and gives what the file says."""
        return self._network

    def _compiled(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The compiled network, compiled by a call on zeros."""
        zeros = [
            torch.zeros([side or 0 for side in tensor.shape], dtype=torch_dtype(tensor.dtype))
            for tensor in self.inputs
        ]
        made = compiled(self._network)
        with torch_errors(self._model), torch.inference_mode(), arithmetic(), compiling(freeze=True):
            made(*zeros)
        return made

    def _prepare(self, slot: int, feeds: Feeds) -> None:
        self._feeds = [
            torch.from_numpy(np.require(feeds[tensor.name], requirements=("C", "W")))
            for tensor in self.inputs
        ]

    def submit(self, slot: int) -> None:
        """Run the call; it is done on return."""
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        with torch_errors(self._model), torch.inference_mode(), arithmetic():
            self._results = self._call(*self._feeds)

    def wait(self, slot: int) -> None:
        """Nothing is left to wait for after ``submit``."""

    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """Copies of the outputs of the last call."""
        return {name: values.copy() for name, values in self.view(slot).items()}

    def view(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """The outputs of the last call where PyTorch wrote them."""
        return {info.name: tensor.numpy() for info, tensor in zip(self.outputs, self._results, strict=True)}

    def executed(self) -> tuple[ExecutedLayer, ...]:
        """The network's steps; see `executed_layers`."""
        return executed_layers(self._network.program, 1, frozenset())

    def profile(self) -> tuple[LayerTime, ...]:
        """Seconds per step, run one by one; empty under ``compile``, where steps are merged."""
        if self._mode == "compile":
            return ()
        with torch_errors(self._model), torch.inference_mode(), arithmetic():
            return timed_passes(self._network, self._feeds, _clocked)

    def close(self) -> None:
        """Free the network."""
        if self._mode == "compile":
            forget_compiled()
        self._feeds, self._results = [], ()
        del self._call, self._network


def _clocked(prepare: Callable[[], None], actions: Sequence[Callable[[], None]]) -> list[float]:
    prepare()
    stamps = [time.perf_counter()]
    for action in actions:
        action()
        stamps.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(stamps)]

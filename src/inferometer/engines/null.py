"""The engine that does nothing: it measures the harness.

Its sessions have the model's inputs and outputs, and every call returns at once, so what a trial
with it reports is the cost of Inferometer's own loop. Outputs are zeros. Results of ``null`` say
nothing of any model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from inferometer import __version__
from inferometer.contracts import (
    Device,
    ExecutedLayer,
    Feeds,
    LayerTime,
    QdqScheme,
    Session,
    TensorInfo,
    Variant,
)
from inferometer.engines.options import copied, only, whole
from inferometer.errors import ModelError, Unsupported, nearest
from inferometer.models.inspection import describe
from inferometer.models.shapes import batch_position
from inferometer.records import Precision

__all__ = ["NullEngine"]


class NullEngine:
    """Accepts any model at any precision and computes nothing."""

    name = "null"
    version = __version__
    computes = False

    def devices(self) -> list[Device]:
        """One pretended CPU."""
        return [Device("cpu", "nothing at all")]

    def variants(self) -> list[Variant]:
        """One."""
        return [Variant({})]

    def precisions(self, device: str, options: Mapping[str, Any]) -> dict[Precision, str | None]:
        """All of them: nothing is computed."""
        return dict.fromkeys(get_args(Precision))

    def check(self, device: str, options: Mapping[str, Any]) -> None:
        """Only the options of all engines are known."""
        only("null", options, ("threads", "in_flight", "copies"))
        for key in ("threads", "in_flight"):
            whole("null", options, key)
        copied("null", options)

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme | None:
        """None: it takes the float model as it is."""
        return None

    def load(
        self, model: Path, device: str, precision: Precision, batch: int, options: Mapping[str, Any]
    ) -> Session:
        """Read the model's inputs and outputs; the options of all engines are accepted and ignored."""
        self.check(device, options)
        if device != "cpu":
            raise Unsupported(f"null: there is no device {device!r}{nearest(device, ['cpu'])}")
        return NullSession(model, batch)


class NullSession(Session):
    """Inputs and outputs of a model, and calls that return at once."""

    def __init__(self, model: Path, batch: int) -> None:
        """Read the shapes of ``model``; a symbolic first dimension becomes ``batch``."""
        summary = describe(model)

        position = batch_position([tensor.shape for tensor in summary.inputs])
        shape = None if position is None else summary.inputs[position].shape
        if shape and isinstance(shape[0], int) and shape[0] != batch:
            raise ModelError(f"{model}: its batch is fixed at {shape[0]}, asked for {batch}")
        for tensor in summary.inputs:
            if tensor.shape is None or tensor.dtype in (None, "object"):
                raise ModelError(f"{model}: input {tensor.name!r} is no array of numbers of known rank")
        leading = {tensor.shape[0] for tensor in summary.inputs if tensor.shape}

        def info(tensor: Any) -> TensorInfo:
            sides = [size if isinstance(size, int) else None for size in tensor.shape or ()]
            if sides and sides[0] is None and tensor.shape[0] in leading:
                sides[0] = batch
            return TensorInfo(tensor.name, tuple(sides), tensor.dtype)

        self.inputs = tuple(info(tensor) for tensor in summary.inputs)
        self.outputs = tuple(info(one) for one in summary.outputs if one.dtype not in (None, "object"))

    def _prepare(self, slot: int, feeds: Feeds) -> None:
        """Nothing to place."""

    def submit(self, slot: int) -> None:
        """Nothing to start."""

    def wait(self, slot: int) -> None:
        """Nothing to wait for."""

    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """Zeros; unknown dimensions count as 1."""
        return {
            tensor.name: np.zeros([size or 1 for size in tensor.shape], np.dtype(tensor.dtype))
            for tensor in self.outputs
        }

    def executed(self) -> tuple[ExecutedLayer, ...]:
        """Nothing ran."""
        return ()

    def profile(self) -> tuple[LayerTime, ...]:
        """Nothing ran."""
        return ()

    def close(self) -> None:
        """Nothing to free."""

"""From ranges to scales and zero points of activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inferometer.contracts import QdqScheme
from inferometer.errors import CalibrationError
from inferometer.quantize.histogram import VANISHING
from inferometer.quantize.layout import Layout
from inferometer.quantize.table import TensorRange

__all__ = ["UNIT", "QParams", "activation_params", "activation_range", "ranges_of_tensors"]


UNIT = TensorRange(lo=0.0, hi=1.0, threshold=1.0)
"""The range of what a Sigmoid or HardSigmoid gives, whatever the images."""


@dataclass(frozen=True)
class QParams:
    """Real value = scale (q - zero_point), q of ``dtype`` (``uint8`` or ``int8``); the scale is a float32."""

    scale: float
    zero_point: int
    dtype: str


def ranges_of_tensors(
    layout: Layout, table: Mapping[str, TensorRange], *, mixed_signs: bool
) -> dict[str, TensorRange]:
    """The range of every quantized tensor: what passes a scale through has its input's.

    The inputs of a Concat share one range, the widest; so do tensors that meet in several of them.

    Args:
        layout: What is quantized.
        table: The observed ranges.
        mixed_signs: Whether a Concat also joins a non-negative with a signed tensor. Under an asymmetric
            scheme it must not: the zero point of the first would leave 0 and its Relu could no longer
            be absorbed. The Concat's own output then takes the widest range, its inputs keep theirs.

    Raises:
        CalibrationError: The table lacks a tensor.
    """
    missing = [name for name in layout.observed if name not in table]
    if missing:
        raise CalibrationError(
            f"the calibration table has no range for tensor {missing[0]!r} (and {len(missing) - 1} more): "
            f"it was made from another model or by another version; calibrate this model"
        )
    unit = dict.fromkeys(layout.unit, UNIT)
    groups = _Groups({**unit, **{name: table[name] for name in layout.observed}})
    for passage in layout.passages:
        groups.follow(passage.output, passage.inputs, mixed_signs)
    return {name: groups.range_of(name) for name in layout.tensors}


def activation_range(found: TensorRange) -> tuple[float, float]:
    """The range that is represented: [max(lo, -T), min(hi, T)], widened to hold 0 exactly."""
    return min(max(found.lo, -found.threshold), 0.0), max(min(found.hi, found.threshold), 0.0)


def activation_params(found: TensorRange, scheme: QdqScheme) -> QParams:
    """Scale and zero point of one tensor, such that no value inside its range is clipped.

    A tensor that was zero throughout (max |x| < ``VANISHING``) gets scale 1 and represents 0 exactly.

    Args:
        found: Its range.
        scheme: Symmetric: scale T / 127, zero point 0 (128 in uint8). Else the range of
            `activation_range` over all 256 steps; the zero point is whole, so the scale is the smallest
            with which both ends fit.

    Source: ONNX operator QuantizeLinear: y = saturate(round(x / scale) + zero_point).
    """
    dtype = scheme.activation_dtype
    offset = 0 if dtype == "uint8" else -128
    if scheme.activation_symmetric:
        scale = found.threshold / 127 if found.threshold >= VANISHING else 1.0
        return QParams(float(np.float32(scale)), 128 + offset, dtype)
    lo, hi = activation_range(found)
    if max(-lo, hi) < VANISHING:
        return QParams(1.0, offset, dtype)
    exact = 255 * -lo / (hi - lo)
    lowest, highest = (1 if lo < 0 else 0), (254 if hi > 0 else 255)
    steps = {min(max(int(step), lowest), highest) for step in (np.floor(exact), np.ceil(exact))}
    scale, below = min((_fitting(lo, hi, step), step) for step in steps)
    return QParams(float(np.float32(scale)), below + offset, dtype)


def _fitting(lo: float, hi: float, below: int) -> float:
    """The smallest scale that reaches ``lo`` with ``below`` steps under zero and ``hi`` with the rest."""
    return max(-lo / below if below else 0.0, hi / (255 - below) if below < 255 else 0.0)


class _Groups:
    """Tensors that share a range, grown node by node in graph order."""

    def __init__(self, ranges: Mapping[str, TensorRange]) -> None:
        self._parent = {name: name for name in ranges}
        self._ranges = dict(ranges)

    def range_of(self, name: str) -> TensorRange:
        return self._ranges[self._root(name)]

    def follow(self, output: str, inputs: tuple[str, ...], mixed_signs: bool) -> None:
        """Let ``output`` take the range of ``inputs``, which from now on share it too."""
        whole = _union([self.range_of(name) for name in inputs])
        signs = {self.range_of(name).lo < 0 for name in inputs}
        roots = {self._root(name) for name in inputs} if mixed_signs or len(signs) == 1 else set()
        self._parent[output] = output
        self._ranges[output] = whole
        for root in roots:
            self._parent[root] = output

    def _root(self, name: str) -> str:
        while self._parent[name] != name:
            name = self._parent[name]
        return name


def _union(ranges: list[TensorRange]) -> TensorRange:
    return TensorRange(
        lo=min(one.lo for one in ranges),
        hi=max(one.hi for one in ranges),
        threshold=max(one.threshold for one in ranges),
    )

"""Streaming statistics of activations: the range of each tensor, then a histogram of its magnitudes.

Two passes over the same images: the histogram's width is the tensor's true maximum, so nothing is ever
resampled, and since counts are whole numbers and extremes do not round, the outcome is the same
whatever the order of the images, the batch or the number of workers. Memory does not grow with the images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.errors import CalibrationError

__all__ = [
    "BINS",
    "VANISHING",
    "HistogramCollector",
    "Range",
    "RangeCollector",
    "count_magnitudes",
    "first_bad_row",
]

BINS = 2048
"""Bins over [0, max |x|]. Source: S. Migacz, 8-bit Inference with TensorRT, GTC 2017."""

VANISHING = 2.0**-100
"""A tensor whose max |x| is below this is taken as all zero: ``BINS / max`` must be finite in float32."""

# Values per piece: what is computed of one piece stays in the cache (measured here: 3.5 ns a value, whole
# arrays 5.3 to 6).
_PIECE = 65536


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value that a tensor took."""

    lo: float
    hi: float

    @property
    def max_abs(self) -> float:
        """The largest magnitude, max |x|."""
        return max(abs(self.lo), abs(self.hi))


class RangeCollector:
    """The first pass: smallest and largest value of each tensor, all values finite."""

    def __init__(self) -> None:
        """Start with no tensor seen."""
        self._ranges: dict[str, Range] = {}

    def add(self, name: str, values: npt.NDArray[np.float32]) -> bool:
        """Widen the range of ``name`` by ``values`` (any shape, float32).

        Returns:
            False, with nothing widened, when a value is NaN or infinite.
        """
        if values.size == 0:
            return True
        # min and max hand on a NaN, so two numbers tell of all values.
        lo, hi = float(values.min()), float(values.max())
        if not (np.isfinite(lo) and np.isfinite(hi)):
            return False
        seen = self._ranges.get(name)
        # + 0.0 turns a negative zero into zero, so that -0.0 and 0.0 give the same table.
        self._ranges[name] = Range(
            min(lo, seen.lo if seen else lo) + 0.0, max(hi, seen.hi if seen else hi) + 0.0
        )
        return True

    def ranges(self) -> dict[str, Range]:
        """The range of every tensor seen."""
        return dict(self._ranges)


class HistogramCollector:
    """The second pass: counts of |x| per tensor in equal bins over [0, max |x|].

    Exact zeros are not counted. Every scale represents them exactly, so they say nothing on where to
    saturate; yet behind a Relu they are most of all values, and spreading their spike over the bins of
    the lowest level would drive the KL threshold to the lowest candidate.
    """

    def __init__(self, ranges: Mapping[str, Range], bins: int = BINS) -> None:
        """Make room for one histogram per tensor.

        Args:
            ranges: What the first pass found.
            bins: Number of bins.
        """
        self.bins = bins
        self._ranges = dict(ranges)
        self._counts = {name: np.zeros(bins, np.int64) for name in ranges}

    def add(self, name: str, values: npt.NDArray[np.float32]) -> None:
        """Count ``values`` (any shape, float32) of ``name``.

        Raises:
            CalibrationError: A value lies outside the range of the first pass.
        """
        known = self._ranges[name]
        if values.size == 0 or known.max_abs < VANISHING:
            return
        flat = np.ascontiguousarray(values).reshape(-1)
        counts = count_magnitudes(flat, known.max_abs, self.bins)
        if counts[-1]:
            raise CalibrationError(
                f"tensor {name!r}: the second pass met a value outside [{known.lo:g}, {known.hi:g}], the "
                f"range of the first: both must give the same images, and the session the same results"
            )
        self._counts[name] += counts[:-1]

    def counts(self, name: str) -> npt.NDArray[np.int64]:
        """The histogram of ``name``: ``[bins] int64``, exact zeros left out."""
        return self._counts[name].copy()


def count_magnitudes(values: npt.NDArray[np.float32], max_abs: float, bins: int) -> npt.NDArray[np.int64]:
    """Histogram of |x| over [0, ``max_abs``], exact zeros left out.

    The bin of x is ``min(trunc(|x| * s), bins - 1)`` with ``s = float32(bins / max_abs)`` and the product
    rounded to float32: defined value by value, so pieces can be counted in any order. More than one bin
    width above ``max_abs`` a value counts as beyond.

    Args:
        values: ``[n] float32``, finite.
        max_abs: Upper end of the last bin, at least ``VANISHING``.
        bins: Number of bins.

    Returns:
        ``[bins + 1] int64``; the last entry counts the values beyond.
    """
    scale = np.float32(bins / max_abs)
    magnitudes = np.empty(min(values.size, _PIECE), np.float32)
    indices = np.empty(magnitudes.shape, np.int32)
    total: npt.NDArray[np.int64] = np.zeros(bins + 2, np.int64)
    for start in range(0, values.size, _PIECE):
        piece = values[start : start + _PIECE]
        magnitude, index = magnitudes[: piece.size], indices[: piece.size]
        np.abs(piece, out=magnitude)
        total[0] -= np.count_nonzero(magnitude == 0)
        np.multiply(magnitude, scale, out=magnitude)
        np.minimum(magnitude, np.float32(bins + 1), out=magnitude)
        np.copyto(index, magnitude, casting="unsafe")
        total += np.bincount(index, minlength=bins + 2)
    # The product of max |x| itself is bins, or its neighbour in float32.
    total[bins - 1] += total[bins]
    total[bins] = total[bins + 1]
    return total[: bins + 1]


def first_bad_row(values: npt.NDArray[Any]) -> int:
    """Index along the first axis of the first entry with a NaN or an infinity."""
    rows = np.isfinite(values).reshape(values.shape[0], -1).all(axis=1)
    return int(np.argmin(rows))

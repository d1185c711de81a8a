"""Streaming statistics of activations: the range of each tensor, then a histogram of its magnitudes.

Two passes over the same images: the histogram's width is the tensor's true maximum, so nothing is ever
resampled, and since counts are whole numbers and extremes do not round, the outcome is the same
whatever the order of the images, the batch or the number of workers. Memory does not grow with the images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer import compiling
from inferometer.errors import CalibrationError

__all__ = [
    "BINS",
    "VANISHING",
    "HistogramCollector",
    "Range",
    "RangeCollector",
    "count_magnitudes",
    "count_plainly",
    "first_bad_row",
    "is_compiled",
]

BINS = 2048
"""Bins over [0, max |x|]. Source: S. Migacz, 8-bit Inference with TensorRT, GTC 2017."""

VANISHING = 2.0**-100
"""A tensor whose max |x| is below this is taken as all zero: ``BINS / max`` must be finite in float32."""

# Values per piece of the plain form: what is computed of one piece stays in the cache.
_PIECE = 65536

# Values per call of the compiled form: its counts are 32 bits wide.
_LANE_LIMIT = 2**31

_LOADING = Lock()


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

    def merge(self, other: RangeCollector) -> None:
        """Take in what another collector saw: of which of the two each value came changes nothing."""
        for name, found in other._ranges.items():
            seen = self._ranges.get(name, found)
            self._ranges[name] = Range(min(seen.lo, found.lo), max(seen.hi, found.hi))

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
        self._counters = {
            name: _counter(found.max_abs, bins)
            for name, found in ranges.items()
            if found.max_abs >= VANISHING
        }

    def add(self, name: str, values: npt.NDArray[np.float32]) -> None:
        """Count ``values`` (any shape, float32) of ``name``.

        Raises:
            CalibrationError: A value lies outside the range of the first pass.
        """
        counter = self._counters.get(name)
        if values.size == 0 or counter is None:
            return
        counter.add(np.ascontiguousarray(values).reshape(-1))
        if counter.beyond:
            known = self._ranges[name]
            raise CalibrationError(
                f"tensor {name!r}: the second pass met a value outside [{known.lo:g}, {known.hi:g}], the "
                f"range of the first: both must give the same images, and the session the same results"
            )

    def merge(self, other: HistogramCollector) -> None:
        """Take in the counts of another collector that was made for the same ranges."""
        for name, counter in other._counters.items():
            self._counters[name].take(counter)

    def counts(self, name: str) -> npt.NDArray[np.int64]:
        """The histogram of ``name``: ``[bins] int64``, exact zeros left out."""
        counter = self._counters.get(name)
        return np.zeros(self.bins, np.int64) if counter is None else counter.counts()[:-1]


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
    counter = _counter(max_abs, bins)
    counter.add(values)
    return counter.counts()


def count_plainly(values: npt.NDArray[np.float32], max_abs: float, bins: int) -> npt.NDArray[np.int64]:
    """``count_magnitudes`` in plain NumPy."""
    counter = _PlainCounter(max_abs, bins)
    counter.add(values)
    return counter.counts()


def is_compiled() -> bool:
    """Whether magnitudes are counted by compiled code; the first call compiles it, or loads it."""
    return _compiled() is not None


class _Counter:
    """Counts the magnitudes of one tensor, in 32 bits that are emptied into 64 before they could overflow.

    The cells are: the zeros, the bins, what max |x| itself may fall into (the product rounds to ``bins`` or
    its neighbour in float32), and what lies beyond, NaN too.
    """

    def __init__(self, max_abs: float, bins: int, lanes: int) -> None:
        self._scale, self._bins = np.float32(bins / max_abs), bins
        self._total = np.zeros(bins + 3, np.int64)
        self._lanes = np.zeros((lanes, bins + 3), np.uint32)
        self._pending = 0

    @property
    def beyond(self) -> int:
        """How many values were more than a bin width above ``max_abs``."""
        return int(self._total[-1]) + int(self._lanes[:, -1].sum())

    def add(self, values: npt.NDArray[np.float32]) -> None:
        """Count ``[n] float32``."""
        for start in range(0, values.size, _LANE_LIMIT):
            piece = values[start : start + _LANE_LIMIT]
            if self._pending + piece.size > _LANE_LIMIT:
                self._empty()
            self._pending += piece.size
            self._count(piece)

    def take(self, other: _Counter) -> None:
        """Add what another counted of the same tensor."""
        other._empty()
        self._total += other._total

    def counts(self) -> npt.NDArray[np.int64]:
        """``[bins + 1] int64``: the bins, and what lies beyond."""
        self._empty()
        bins = self._bins
        found = self._total[1 : bins + 2].copy()
        found[bins - 1] += found[bins]
        found[bins] = self._total[bins + 2]
        return found

    def _empty(self) -> None:
        self._total += self._lanes.sum(axis=0, dtype=np.int64)
        self._lanes[:] = 0
        self._pending = 0

    def _count(self, values: npt.NDArray[np.float32]) -> None:
        raise NotImplementedError


class _PlainCounter(_Counter):
    """In NumPy."""

    def __init__(self, max_abs: float, bins: int) -> None:
        super().__init__(max_abs, bins, lanes=1)

    def _count(self, values: npt.NDArray[np.float32]) -> None:
        magnitudes = np.empty(min(values.size, _PIECE), np.float32)
        indices = np.empty(magnitudes.shape, np.int32)
        for start in range(0, values.size, _PIECE):
            piece = values[start : start + _PIECE]
            magnitude, index = magnitudes[: piece.size], indices[: piece.size]
            np.abs(piece, out=magnitude)
            zeros = np.count_nonzero(magnitude == 0)
            np.multiply(magnitude, self._scale, out=magnitude)
            np.fmin(magnitude, np.float32(self._bins + 1), out=magnitude)  # NaN becomes the bound
            np.copyto(index, magnitude, casting="unsafe")
            self._lanes[0, 1:] += np.bincount(index, minlength=self._bins + 2).astype(np.uint32)
            self._lanes[0, 0] += np.uint32(zeros)
            self._lanes[0, 1] -= np.uint32(zeros)


class _CompiledCounter(_Counter):
    """By compiled code."""

    def __init__(self, max_abs: float, bins: int, code: ModuleType) -> None:
        super().__init__(max_abs, bins, code.LANES)
        self._code, self._indices = code, np.empty(code.PIECE, np.uint32)

    def _count(self, values: npt.NDArray[np.float32]) -> None:
        self._code.count(values, self._scale, self._bins, self._lanes, self._indices)


def _counter(max_abs: float, bins: int) -> _Counter:
    code = _compiled()
    return _PlainCounter(max_abs, bins) if code is None else _CompiledCounter(max_abs, bins, code)


def _compiled() -> ModuleType | None:
    """The compiled code, ready to run; None without numba."""
    with _LOADING:  # whoever comes second waits, and does not load it again
        return _loaded()


@cache
def _loaded() -> ModuleType | None:
    return compiling.load(
        "inferometer.quantize.compiled",
        lambda code: _CompiledCounter(1.0, BINS, code).add(np.ones(1, np.float32)),
        "histograms are counted without, which is slower",
    )


def first_bad_row(values: npt.NDArray[Any]) -> int:
    """Index along the first axis of the first entry with a NaN or an infinity."""
    rows = np.isfinite(values).reshape(values.shape[0], -1).all(axis=1)
    return int(np.argmin(rows))

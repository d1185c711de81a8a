"""Where to saturate |x| so that 8 bits make the smallest expected squared error.

A small threshold saturates more, a large one rounds more coarsely. Both errors come out of one integral,
exactly for a histogram whose values lie evenly within each bin; the step^2 / 12 of a uniform error would be
wrong where it matters, since below half a step every value is rounded to zero. (pytorch-quantization's
``_compute_amax_mse`` takes each bin at its centre instead.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["SIGNED_STEPS", "UNSIGNED_STEPS", "expected_errors", "levels_of", "mse_threshold"]

SIGNED_STEPS = 127
"""Steps from 0 to the threshold where both signs occur: int8, symmetric (uint8: half of 255)."""

UNSIGNED_STEPS = 255
"""Steps from 0 to the threshold of a tensor without negative values: uint8."""

# Thresholds within this share of the smallest error are as good: the sums round, and a tensor whose values
# all lie in the last bin has two that are.
_TIE = 1e-9

# Candidates at a time: what is computed of them stays in the cache.
_AT_ONCE = 32

Floats = npt.NDArray[np.float64]


def levels_of(lo: float) -> int:
    """Steps of a magnitude, by the smallest value ``lo`` that the tensor took.

    One threshold serves all engines. Of a tensor without negative values uint8 gives the magnitude 255
    steps, symmetric int8 127, and the best thresholds differ. Choosing for 255 is the cheaper mistake: it
    costs the other engine 0.3 dB of the tensor's error for a half-normal tensor and 0.5 dB for an
    exponential one; choosing for 127 costs 0.7 and 0.8 dB.
    """
    return UNSIGNED_STEPS if lo >= 0 else SIGNED_STEPS


def mse_threshold(counts: npt.NDArray[np.int64], max_abs: float, levels: int) -> float:
    """Choose the threshold of one tensor.

    Args:
        counts: Histogram of |x| over [0, max_abs]: ``[bins] int64``. Exact zeros make no error, so
            nothing is lost by leaving them out.
        max_abs: Upper end of the last bin, > 0.
        levels: Steps from 0 to the threshold.

    Returns:
        The bin edge of the smallest expected squared error, the largest such edge on a tie; the maximum
        for an empty histogram.
    """
    if not counts.any():
        return max_abs
    errors = expected_errors(counts, levels)
    edge = int(np.flatnonzero(errors <= errors.min() * (1 + _TIE))[-1]) + 1
    return max_abs if edge == len(counts) else edge * (max_abs / len(counts))


def expected_errors(counts: npt.NDArray[np.int64], levels: int) -> Floats:
    """Mean squared error of every candidate threshold, in squared bin widths.

    With the threshold at edge i and the step s = i / levels, a value u = x / s below it is rounded to the
    nearest whole n. The integral of (u - n)^2 from 0 to u is F(u) = n / 12 + (u - n)^3 / 3; a bin's error is
    the difference of F at its edges, so their sum is one over edges, of F times the difference of the
    counts on either side. A value above the threshold, in the m-th bin from there, makes m^2 + m + 1/3.

    Args:
        counts: ``[bins] int64``, not all zero.
        levels: Steps from 0 to the threshold.

    Returns:
        ``[bins] float64`` for a threshold at edge 1 .. bins.

    Source: ONNX operator QuantizeLinear: y = saturate(round(x / scale)); the integrals are ours.
    """
    bins = len(counts)
    edges = np.arange(1, bins + 1, dtype=np.float64)  # F(0) = 0
    rounding = np.empty(bins)
    for start in range(0, bins, _AT_ONCE):
        end = min(start + _AT_ONCE, bins)
        # F stays at its last value beyond the threshold, so counts end where the widest candidate does.
        change = -np.diff(counts[:end], append=0).astype(np.float64)
        steps = edges[start:end] / levels
        offset = np.minimum(edges[:end] / steps[:, None], levels)
        nearest = np.rint(offset)
        offset -= nearest
        nearest += 4 * offset**2 * offset
        nearest *= change
        rounding[start:end] = steps**3 / 12 * nearest.sum(axis=1)
    return (rounding + _saturation(counts)) / float(counts.sum())


def _saturation(counts: npt.NDArray[np.int64]) -> Floats:
    """Squared error of the values beyond edge 1 .. bins."""
    values = _from_the_end(np.append(counts[1:], 0).astype(np.float64))  # sum of c
    once = _from_the_end(values)  # of c (m + 1)
    twice = _from_the_end(once)  # of c (m + 1) (m + 2) / 2
    return 2 * (twice - once) + values / 3


def _from_the_end(values: Floats) -> Floats:
    """Sums of each value with all that follow it."""
    return np.cumsum(values[::-1])[::-1]

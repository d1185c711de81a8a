"""The entropy threshold of 2017: where to saturate |x| so that 8 bits lose the least information.

For each candidate, the first i of the histogram's bins: the reference P is those bins with every count
beyond them added to the last; Q is the same bins *without* those outliers, merged into the quantized
levels and spread back evenly over the bins of each level that are non-empty in P. The candidate with
the smallest KL(P || Q), both normalised, wins, and the threshold is (i + 0.5) bin widths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferometer.errors import CalibrationError

__all__ = ["LEVELS", "KlResult", "kl_divergences", "kl_threshold", "spread_levels"]

LEVELS = 128
"""Quantized levels of a magnitude. Source: S. Migacz, 8-bit Inference with TensorRT, GTC 2017."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KlResult:
    """The chosen saturation point.

    Attributes:
        threshold: Of |x|, in the tensor's unit.
        bins: Bins of the winning candidate; all bins when no candidate is finite.
        divergence: KL(P || Q) of the winner in nats; None when no candidate is finite, so that the
            threshold is the maximum.
    """

    threshold: float
    bins: int
    divergence: float | None


def kl_threshold(counts: npt.NDArray[np.int64], max_abs: float, levels: int = LEVELS) -> KlResult:
    """Choose the threshold of one tensor.

    Args:
        counts: Histogram of |x| over [0, max_abs]: ``[bins] int64``.
        max_abs: Upper end of the last bin, > 0.
        levels: Quantized levels of a magnitude.

    Returns:
        The candidate of the smallest divergence, the smallest such threshold on a tie; the maximum when
        every candidate is infinite (an empty histogram too).

    Raises:
        CalibrationError: The histogram has fewer bins than there are levels, or a count is negative.
    """
    bins = len(counts)
    if bins <= levels:
        raise CalibrationError(f"the KL search needs more than {levels} bins, not {bins}: use 2048")
    if bins and counts.min() < 0:
        raise CalibrationError("the KL search was given a negative count")
    divergences = kl_divergences(counts, levels)
    best = int(np.argmin(divergences))
    if not np.isfinite(divergences[best]):
        return KlResult(max_abs, bins, None)
    chosen = levels + best
    return KlResult((chosen + 0.5) * (max_abs / bins), chosen, float(divergences[best]))


def kl_divergences(counts: npt.NDArray[np.int64], levels: int = LEVELS) -> Floats:
    """KL(P || Q) of every candidate, in nats.

    With bins j of the i, c the counts, S their total, l the level of j and n_l its bins non-empty in P:
    q_j = c_l / (n_l C_i), where c_l is the level's count and C_i that of the i bins. So both sums of
    KL = sum p ln p - sum p ln q collapse to running sums over bins and one term per level.

    Args:
        counts: ``[bins] int64``.
        levels: Quantized levels.

    Returns:
        ``[bins - levels] float64`` for i = levels .. bins - 1; infinite where Q = 0 and P > 0.

    Source: S. Migacz, 8-bit Inference with TensorRT, GTC 2017; level of bin j = floor(levels j / i).
    """
    candidates = np.arange(levels, len(counts))
    total = float(counts.sum())
    if total == 0:
        return np.full(len(candidates), np.inf)
    inside = _running(counts.astype(np.float64))[candidates]
    outliers = total - inside
    last = counts[candidates - 1].astype(np.float64)
    level_counts, level_bins = _levels_of(counts, candidates, levels)
    level_bins[:, -1] += (last == 0) & (outliers > 0)

    reference = level_counts.copy()
    reference[:, -1] += outliers
    with np.errstate(divide="ignore", invalid="ignore"):
        log_q = np.log(level_counts) - np.log(level_bins) - np.log(inside)[:, None]
        cross = np.where(reference > 0, reference * log_q, 0.0).sum(axis=1)
    own = _running(_x_log_x(counts.astype(np.float64)))[candidates - 1] + _x_log_x(last + outliers)
    divergences: Floats = (own - cross) / total - np.log(total)
    # An exact 0 may come out as -1e-16: the running sums round.
    return np.where(np.isfinite(divergences), np.maximum(divergences, 0.0), np.inf)


def spread_levels(reference: npt.NDArray[np.float64], inside: npt.NDArray[np.float64], levels: int) -> Floats:
    """Candidate Q, bin by bin, not normalised: the plain form of what ``kl_divergences`` sums.

    Args:
        reference: P, ``[i] float64``: tells which bins are non-empty.
        inside: The same bins without the outliers, ``[i] float64``.
        levels: Quantized levels.

    Returns:
        ``[i] float64``: each level's count spread evenly over its bins that are non-empty in P.

    Example:
        >>> p = np.array([1.0, 0, 2, 3, 5, 3, 1, 7])
        >>> spread_levels(p, p, 2).tolist()
        [2.0, 0.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0]
    """
    level = np.arange(len(reference)) * levels // len(reference)
    filled = (reference > 0).astype(np.float64)
    counts = np.bincount(level, inside, levels)
    bins = np.bincount(level, filled, levels)
    share = np.divide(counts, bins, out=np.zeros(levels), where=bins > 0)
    return np.asarray(share[level] * filled, np.float64)


def _levels_of(
    counts: npt.NDArray[np.int64], candidates: npt.NDArray[np.int64], levels: int
) -> tuple[Floats, Floats]:
    """Count and number of non-empty bins of each level: two ``[candidates, levels] float64``."""
    # floor(levels j / i) = l exactly from bin ceil(l i / levels) on.
    starts = -(-np.arange(levels + 1)[None, :] * candidates[:, None] // levels)
    per_level = np.diff(_running(counts.astype(np.float64))[starts], axis=1)
    filled = np.diff(_running((counts > 0).astype(np.float64))[starts], axis=1)
    return per_level, filled


def _running(values: Floats) -> Floats:
    """Sums of the first 0, 1, ... n values."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _x_log_x(values: Floats) -> Floats:
    return np.asarray(values * np.log(np.where(values > 0, values, 1.0)), np.float64)

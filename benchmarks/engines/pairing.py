"""Ratios of interleaved pairs, and how sure their median is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def turns(pair: int) -> tuple[int, int]:
    """Who goes first in a pair: A B, B A, A B, ..., so that a steady drift favours neither."""
    return (0, 1) if pair % 2 == 0 else (1, 0)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a median by the sign test: order statistics; None with fewer than 6 values.

    Source: Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2: the widest pair of ranks
    (k, n + 1 - k) with P(X <= k - 1) <= 2.5 %, X binomial with n throws of a fair coin.
    """
    n, below, rank = len(values), 0, 0
    while (below := below + math.comb(n, rank)) <= 0.025 * 2**n:
        rank += 1
    ordered = sorted(values)
    return (ordered[rank - 1], ordered[n - rank]) if rank else None


def said(ratios: Sequence[float]) -> str:
    """``1.003 (95 % 0.991 to 1.012; 10 pairs)``."""
    interval = median_interval(ratios)
    sure = f"95 % {interval[0]:.3f} to {interval[1]:.3f}" if interval else "too few for an interval"
    return f"{statistics.median(ratios):.3f} ({sure}; {len(ratios)} pairs)"

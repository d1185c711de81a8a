"""Ratios of interleaved pairs, and how sure their median is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from inferometer.stats import median_interval


def turns(pair: int) -> tuple[int, int]:
    """Who goes first in a pair: A B, B A, A B, ..., so that a steady drift favours neither."""
    return (0, 1) if pair % 2 == 0 else (1, 0)


def said(ratios: Sequence[float]) -> str:
    """``1.003 (95 % 0.991 to 1.012; 10 pairs)``."""
    interval = median_interval(ratios)
    sure = f"95 % {interval[0]:.3f} to {interval[1]:.3f}" if interval else "too few for an interval"
    return f"{statistics.median(ratios):.3f} ({sure}; {len(ratios)} pairs)"

"""The widest range: nothing saturates."""

from __future__ import annotations

__all__ = ["minmax_threshold"]


def minmax_threshold(max_abs: float) -> float:
    """The threshold of |x| is its maximum, in the tensor's unit."""
    return max_abs

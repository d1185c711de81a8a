"""The histogram's inner loop as machine code: the same counts as ``histogram``'s own, about ten times faster.

Only ``histogram`` imports this, and does without where numba is not installed (the extra ``fast``). The loop
runs on one core and without Python's lock, so that the caller decides how many cores count and the engine's
own threads are left alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inferometer.compiling import compiled

__all__ = ["LANES", "PIECE", "count"]

LANES = 4
"""Histograms that are filled in turn: neighbours often share a bin, whose count would have to wait."""

PIECE = 1024
"""Values whose bins are worked out (with vector instructions) before they are counted: stays in the cache."""


@compiled()
def count(values: Any, scale: Any, bins: int, lanes: Any, indices: Any) -> None:
    """Count magnitudes; see ``histogram.count_magnitudes``.

    Args:
        values: ``[n] float32``.
        scale: float32, bins per unit.
        bins: Number of bins.
        lanes: ``[LANES, bins + 3] uint32``, counted up: first the zeros, then the bins, the last two being
            the one that max |x| itself may fall into, and what lies beyond (NaN too).
        indices: ``[PIECE] uint32``, scratch.
    """
    top = np.float32(bins + 1)
    zero = np.float32(0)
    one = np.uint32(1)
    for start in range(0, values.size, indices.size):
        # Indices that cannot be negative, by slices and unsigned types: else the loop is not vectorized.
        piece = values[start : start + indices.size]
        for i in range(piece.size):
            magnitude = abs(piece[i])
            product = magnitude * scale
            place = np.uint32(np.int32(product if product < top else top))
            indices[i] = np.uint32(0) if magnitude == zero else place + one
        whole = piece.size - piece.size % 4
        for i in range(0, whole, 4):
            lanes[0, indices[i]] += 1
            lanes[1, indices[i + 1]] += 1
            lanes[2, indices[i + 2]] += 1
            lanes[3, indices[i + 3]] += 1
        for i in range(whole, piece.size):
            lanes[0, indices[i]] += 1

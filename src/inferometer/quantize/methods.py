"""The range algorithms by name. A new one is a function and a line in ``METHODS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from inferometer.errors import CalibrationError, nearest
from inferometer.quantize.kl import LEVELS, kl_threshold
from inferometer.quantize.minmax import minmax_threshold

__all__ = ["METHODS", "Method", "method_named"]

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Method:
    """How a threshold of |x| is chosen.

    Attributes:
        name: As users write it.
        needs_histogram: Whether a second pass over the images is made.
        threshold: From the histogram of |x| over [0, max |x|] (``[bins] int64``, exact zeros left out; empty
            when none is needed) and max |x| > 0.
    """

    name: str
    needs_histogram: bool
    threshold: Callable[[Counts, float], float]


def _kl(counts: Counts, max_abs: float) -> float:
    """The published search, for what it was made for: distributions, not a handful of values.

    With no more non-empty bins than levels, every value can have a level of its own and nothing needs to
    saturate. The search itself would go wrong: of grey levels 0, 1/16, ... 1 it keeps 1/16 alone, since a
    single non-empty bin matches itself with a divergence of 0, however much lies beyond.
    """
    if np.count_nonzero(counts) <= LEVELS:
        return max_abs
    return kl_threshold(counts, max_abs).threshold


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "kl": Method("kl", True, _kl),
        "minmax": Method("minmax", False, lambda counts, max_abs: minmax_threshold(max_abs)),
    }
)


def method_named(name: str) -> Method:
    """Look a method up.

    Raises:
        CalibrationError: There is none of that name; the message offers the nearest.
    """
    if name not in METHODS:
        raise CalibrationError(f"unknown calibration method {name!r}{nearest(name, METHODS)}")
    return METHODS[name]

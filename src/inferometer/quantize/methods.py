"""The range algorithms by name. A new one is a function and a line in ``METHODS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from inferometer.errors import CalibrationError, nearest
from inferometer.quantize.histogram import Range
from inferometer.quantize.kl import LEVELS, kl_threshold
from inferometer.quantize.minmax import minmax_threshold
from inferometer.quantize.mse import levels_of, mse_threshold
from inferometer.quantize.percentile import PERCENTILE, check_percentile, percentile_threshold

__all__ = ["METHODS", "Method", "method_named"]

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Method:
    """How a threshold of |x| is chosen.

    Attributes:
        name: As users write it.
        needs_histogram: Whether a second pass over the images is made.
        threshold: From the histogram of |x| over [0, max |x|] (``[bins] int64``, exact zeros left out; empty
            when none is needed) and the tensor's range, whose max |x| is > 0. The same counts and range give
            the same threshold.
        percentile: Per cent of the values that do not saturate; None for the other methods.
    """

    name: str
    needs_histogram: bool
    threshold: Callable[[Counts, Range], float]
    percentile: float | None = None


def _kl(counts: Counts, found: Range) -> float:
    """The published search, for what it was made for: distributions, not a handful of values.

    With no more non-empty bins than levels, every value can have a level of its own and nothing needs to
    saturate. The search itself would go wrong: of grey levels 0, 1/16, ... 1 it keeps 1/16 alone, since a
    single non-empty bin matches itself with a divergence of 0, however much lies beyond.
    """
    if np.count_nonzero(counts) <= LEVELS:
        return found.max_abs
    return kl_threshold(counts, found.max_abs).threshold


def _mse(counts: Counts, found: Range) -> float:
    return mse_threshold(counts, found.max_abs, levels_of(found.lo))


def _minmax(counts: Counts, found: Range) -> float:
    return minmax_threshold(found.max_abs)


def _of_percentile(percentile: float) -> Method:
    check_percentile(percentile)

    def threshold(counts: Counts, found: Range) -> float:
        return percentile_threshold(counts, found.max_abs, percentile)

    return Method("percentile", True, threshold, percentile)


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "kl": Method("kl", True, _kl),
        "minmax": Method("minmax", False, _minmax),
        "percentile": _of_percentile(PERCENTILE),
        "mse": Method("mse", True, _mse),
    }
)


def method_named(name: str, percentile: float | None = None) -> Method:
    """Look a method up.

    Args:
        name: Key of ``METHODS``.
        percentile: Of the method ``percentile`` alone; None for its default.

    Raises:
        CalibrationError: There is none of that name (the message offers the nearest), or a percentile that
            does not fit.
    """
    if name not in METHODS:
        raise CalibrationError(f"unknown calibration method {name!r}{nearest(name, METHODS)}")
    if percentile is None:
        return METHODS[name]
    if name != "percentile":
        raise CalibrationError(f"the calibration method {name!r} takes no percentile: leave it out")
    return _of_percentile(percentile)

"""The |x| below which a share of a tensor's values lies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inferometer.errors import CalibrationError

__all__ = ["LOWEST", "PERCENTILE", "check_percentile", "percentile_threshold"]

PERCENTILE = 99.99
"""Per cent of the values that do not saturate, unless a study says otherwise.

Source: the default of pytorch-quantization's HistogramCalibrator.compute_amax; onnxruntime's percentile
calibrater has 99.999.
"""

LOWEST = 50.0
"""Lower percentiles are refused: what is meant by 0.9999 is 99.99."""


def percentile_threshold(
    counts: npt.NDArray[np.int64], max_abs: float, percentile: float = PERCENTILE
) -> float:
    """Choose the threshold of one tensor.

    The values are those in the histogram: exact zeros do not count. Every scale represents them exactly,
    and how many there are says more of a network's Relus than of its outliers. Peers do count them: with
    a share z of zeros, their percentile p is 100 - (100 - p) / (1 - z) here (half zeros: 99.99 is 99.98).

    Args:
        counts: Histogram of |x| over [0, max_abs], exact zeros left out: ``[bins] int64``.
        max_abs: Upper end of the last bin, > 0.
        percentile: Per cent of the values that are to lie at or below the threshold, 50 to 100.

    Returns:
        The threshold in the tensor's unit, interpolated within its bin as if the values lay there evenly:
        less than one bin width from the exact percentile. The maximum for 100, and for an empty histogram.

    Raises:
        CalibrationError: ``percentile`` is outside of that.
    """
    check_percentile(percentile)
    below = np.cumsum(counts)
    total = int(below[-1]) if len(below) else 0
    if total == 0 or percentile == 100:
        return max_abs
    wanted = total * (percentile / 100)
    bin_ = int(np.searchsorted(below, wanted))
    inside = (wanted - (int(below[bin_]) - int(counts[bin_]))) / int(counts[bin_])
    return min((bin_ + inside) * (max_abs / len(counts)), max_abs)


def check_percentile(percentile: float) -> None:
    """Refuse what can be no percentile of a calibration.

    Raises:
        CalibrationError: It is below ``LOWEST`` or above 100.
    """
    if not LOWEST <= percentile <= 100:
        raise CalibrationError(
            f"the percentile must be from {LOWEST:g} to 100, not {percentile:g}: {PERCENTILE:g} is usual"
        )

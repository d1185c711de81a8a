"""Weights and biases as integers: symmetric, per output channel; known exactly, none saturates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferometer.errors import CalibrationError

__all__ = [
    "BIAS_LIMIT",
    "LARGEST",
    "PAIR_LIMIT",
    "QuantizedWeight",
    "least_scales",
    "quantize_bias",
    "quantize_weight",
]

LARGEST = 127
"""Largest |q| of a weight: symmetric, so that -128 is not used."""

PAIR_LIMIT = 128
"""Largest sum of two weights of one sign and channel in the reduced (7-bit) range.

CPUs without an 8-bit dot product add two products of uint8 and int8 in a saturating int16. Which two meet
depends on the kernel, but 255 * 128 = 32640 fits whichever they are, and 255 * 129 = 32895 does not; weights
of unlike signs cancel. Twice 64 is the 7-bit range; one large weight beside small ones may keep 8 bits.
Source: Intel's instruction VPMADDUBSW, which these kernels use.
"""

BIAS_LIMIT = 2.0**30
"""Largest |q| of a bias: beside it 2**30 is left in the int32 for the products (33 000 of 255 * 127)."""

_TINY = float(np.finfo(np.float32).tiny)

Scales = npt.NDArray[np.float32]


@dataclass(frozen=True)
class QuantizedWeight:
    """Real weight = scale (of its channel) times q.

    Attributes:
        values: Of the weight's shape, int8.
        scales: ``[channels] float32``, or ``[] float32`` for one scale in all.
        axis: The output channels' axis; None for one scale in all.
    """

    values: npt.NDArray[np.int8]
    scales: Scales
    axis: int | None


def quantize_weight(
    weight: npt.NDArray[np.float32],
    name: str,
    *,
    axis: int,
    reduced: bool,
    per_channel: bool,
    least: npt.NDArray[np.float64] | None = None,
) -> QuantizedWeight:
    """Round a weight to int8.

    The scale of a channel is max |w| / ``LARGEST``, in the reduced range such that no two weights exceed
    ``PAIR_LIMIT``; or ``least`` where that is larger. A channel of zeros has nothing to represent: its scale
    is ``least``, or 1 where that is 0 too.

    Args:
        weight: Any shape, float32.
        name: For messages.
        axis: Of the output channels.
        reduced: Whether the weight is multiplied by kernels that add pairs in int16.
        per_channel: One scale per output channel, else one in all.
        least: ``[channels] float64``, the smallest scale that each channel's bias allows.

    Raises:
        CalibrationError: A weight is NaN or infinite.
    """
    rows = np.moveaxis(weight, axis, 0)
    channels = len(rows)
    measure = _pair_sums if reduced else _peaks
    reach = np.concatenate([np.zeros(0), *(measure(rows[part]) for part in _parts(rows))])
    if not np.isfinite(reach).all():
        raise CalibrationError(f"weight {name!r} holds NaN or infinite values: mend the model")
    # Two that add up to 127 exactly round to 128 at most.
    wanted = np.maximum(reach / LARGEST, 0.0 if least is None else least)
    if not per_channel:
        wanted = np.full(channels, wanted.max(initial=0.0))
    scales = np.where(wanted > 0, np.maximum(wanted, _TINY), 1.0).astype(np.float32)
    values = np.empty(weight.shape, np.int8)
    for part in _parts(rows):
        rounded = np.divide(rows[part], scales[part].reshape(-1, *[1] * (rows.ndim - 1)))
        np.rint(rounded, out=rounded)
        np.moveaxis(values, axis, 0)[part] = np.clip(rounded, -LARGEST, LARGEST, out=rounded)
    if per_channel:
        return QuantizedWeight(values, scales, axis)
    return QuantizedWeight(values, scales[:1].reshape(()), None)


def least_scales(bias: npt.NDArray[np.float32], input_scale: float) -> npt.NDArray[np.float64]:
    """The weight scales below which the bias would leave ``BIAS_LIMIT``: ``[channels] float64``."""
    return np.abs(bias.astype(np.float64)) / (input_scale * BIAS_LIMIT)


def quantize_bias(bias: npt.NDArray[np.float32], scales: Scales) -> npt.NDArray[np.int32]:
    """A bias as whole multiples of input scale times weight scale.

    Args:
        bias: ``[channels] float32``.
        scales: ``[channels]`` or ``[] float32``, made with `least_scales`, so that int32 holds the result.

    Returns:
        ``[channels] int32``.
    """
    return np.rint(bias.astype(np.float64) / scales.astype(np.float64)).astype(np.int32)


def _parts(rows: npt.NDArray[np.float32]) -> list[slice]:
    """Runs of channels of about 16 MB each: the temporaries of a whole layer could be gigabytes."""
    step = max(1, 2**22 // max(1, rows[:1].size))
    return [slice(start, start + step) for start in range(0, len(rows), step)]


def _peaks(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The largest magnitude in each channel of ``[channels, ...] float32``."""
    peaks = np.abs(rows).reshape(len(rows), -1).max(axis=1, initial=0.0)
    return np.asarray(peaks, np.float64)


def _pair_sums(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The largest sum of two magnitudes of one sign in each channel of ``[channels, ...] float32``."""
    rows = rows.reshape(len(rows), -1)
    channels, length = rows.shape
    if length == 0:
        return np.zeros(channels)
    each = np.arange(channels)
    sums = np.zeros(channels)
    left = np.maximum(rows, 0.0)
    for sign in (1, -1):
        if sign < 0:
            np.maximum(-rows, 0.0, out=left)
        where = left.argmax(axis=1)
        largest = left[each, where].astype(np.float64)
        left[each, where] = 0.0
        sums = np.maximum(sums, largest + left.max(axis=1))
    return sums

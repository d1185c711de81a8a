"""(x - mean) / std of 8-bit pixels: of 256 values all results are looked up."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from inferometer.data.resample import resampler

__all__ = ["look_up"]


def look_up(
    pixels: npt.NDArray[np.uint8],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    out: npt.NDArray[np.float32],
) -> None:
    """(x - mean) / std, computed in double precision and rounded once.

    Args:
        pixels: [H, W, C] uint8, of any strides.
        mean: One value per channel, on the scale 0..255.
        std: The same.
        out: [C, H, W] float32, of any strides; overwritten.
    """
    tables = _tables(mean, std)
    fast = resampler()
    if fast is not None:
        fast.code.normalise(pixels, tables, out)
        return
    for channel, table in enumerate(tables):
        # No index can be out of bounds; "clip" only spares numpy the check.
        out[channel] = np.take(table, pixels[..., channel], mode="clip")


@cache
def _tables(mean: tuple[float, ...], std: tuple[float, ...]) -> npt.NDArray[np.float32]:
    """[C, 256] float32: what each value of each channel becomes."""
    levels = np.arange(256, dtype=np.float64)
    tables = (levels - np.array(mean)[:, np.newaxis]) / np.array(std)[:, np.newaxis]
    return np.asarray(tables, dtype=np.float32)

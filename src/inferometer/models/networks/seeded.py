"""Seeded numbers that are the same on every machine and numpy version.

Only the raw 64-bit stream of PCG64 is used, turned into numbers by integer arithmetic; the distribution
methods of `numpy.random.Generator` may change between numpy versions, raw streams may not.
Source: NEP 19, "Random number generator policy".
"""

from __future__ import annotations

import math
import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["bell_integers", "bias", "filters"]

_MIDDLE = 4 * 0xFFFF // 2
_STD = math.sqrt(4 * (2**32 - 1) / 12)  # of a sum of four uniform 16-bit integers
_BLOCK = 1 << 17  # draws at a time, so that they stay in the cache; has no influence on the values

_HALVES = np.uint64(0x0000_FFFF_0000_FFFF)
_BITS_16 = np.uint64(16)
_BITS_32 = np.uint64(32)
_LOW_32 = np.uint64(0xFFFF_FFFF)


def bell_integers(bits: np.random.PCG64, count: int) -> NDArray[np.int32]:
    """Draw ``[count] int32`` of mean 0, nearly Gaussian, within +-131070 (3.46 standard deviations).

    Each draw is the sum of the four 16-bit quarters of one raw word.

    Source: Irwin-Hall distribution; P. Hall, Biometrika 19 (1927).
    """
    words: NDArray[np.uint64] = np.asarray(bits.random_raw(count), np.uint64)
    sums = (words & _HALVES) + ((words >> _BITS_16) & _HALVES)  # two sums of two, side by side
    draws: NDArray[np.int32] = ((sums + (sums >> _BITS_32)) & _LOW_32).astype(np.int32)
    draws -= np.int32(_MIDDLE)
    return draws


def filters(
    seed: int, name: str, shape: tuple[int, ...], std: float, *, centred: bool
) -> NDArray[np.float32]:
    """Draw the weights of a convolution or a fully connected layer.

    Args:
        seed: The network's seed.
        name: The tensor's name; a tensor keeps its values when the rest of the network changes.
        shape: ``(outputs, ...)``; the rest is what one output sums over.
        std: Standard deviation of the weights.
        centred: Whether each output's weights are shifted to a mean of zero (up to rounding), so that a
            constant offset of the input cannot accumulate from layer to layer.

    Returns:
        ``shape float32``.
    """
    bits, scale = _stream(seed, name), _scale(std)
    terms = math.prod(shape[1:])
    weights = np.empty((shape[0], terms), np.float32)
    rows = max(1, _BLOCK // terms)
    for start in range(0, shape[0], rows):
        block = weights[start : start + rows]
        draws = bell_integers(bits, block.size).reshape(block.shape)
        block[:] = draws
        if centred:
            # Integer sums: a float sum would depend on the order in which a CPU's vector units add.
            block -= (draws.sum(axis=1, dtype=np.int64) / terms).astype(np.float32)[:, None]
        block *= scale
    return weights.reshape(shape)


def bias(seed: int, name: str, count: int, std: float) -> NDArray[np.float32]:
    """Draw ``[count] float32`` of mean 0 and standard deviation ``std``."""
    return bell_integers(_stream(seed, name), count).astype(np.float32) * _scale(std)


def _stream(seed: int, name: str) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()),)))


def _scale(std: float) -> np.float32:
    """From draws to ``std``; at six digits, because mathematics libraries differ in the last bit."""
    return np.float32(f"{std / _STD:.6g}")

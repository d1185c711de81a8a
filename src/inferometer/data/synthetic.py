"""Seeded inputs for speed measurements, when no images are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.contracts import TensorInfo
from inferometer.errors import DataError

__all__ = ["synthetic_feeds"]


def synthetic_feeds(
    inputs: Sequence[TensorInfo], seed: int, batch: int | None = None
) -> dict[str, npt.NDArray[Any]]:
    """One feed per input: floats standard-normal, 8-bit integers uniform over their range, all others zero.

    Zero is the one index that every table and vocabulary has. Each input has its own generator,
    ``numpy.random.default_rng([seed, position])``, and a smaller batch is the beginning of a larger one.

    Args:
        inputs: The session's inputs.
        seed: 0 or more.
        batch: What stands for an open first dimension; None: it must be known.

    Returns:
        By name, in each input's shape and dtype.

    Raises:
        DataError: A dimension is open, or a dtype is no number.
    """
    return {
        tensor.name: _values(tensor, _shape(tensor, batch), np.random.default_rng([seed, position]))
        for position, tensor in enumerate(inputs)
    }


def _shape(tensor: TensorInfo, batch: int | None) -> tuple[int, ...]:
    shape: list[int] = []
    for axis, length in enumerate(tensor.shape):
        known = batch if length is None and axis == 0 else length
        if known is None:
            raise DataError(
                f"input {tensor.name!r}: dimension {axis} of {list(tensor.shape)} is open, so that no "
                "synthetic input can be made: fix it in the model"
            )
        shape.append(known)
    return tuple(shape)


def _values(tensor: TensorInfo, shape: tuple[int, ...], generator: np.random.Generator) -> npt.NDArray[Any]:
    try:
        dtype = np.dtype(tensor.dtype)
    except TypeError as error:
        raise DataError(f"input {tensor.name!r}: no synthetic input of dtype {tensor.dtype}") from error
    if dtype == np.float64:
        return generator.standard_normal(shape)
    if dtype.kind == "f":
        return generator.standard_normal(shape, dtype=np.float32).astype(dtype)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, size=shape, dtype=dtype, endpoint=True)
    if dtype.kind in "iub":
        return np.zeros(shape, dtype=dtype)
    raise DataError(f"input {tensor.name!r}: no synthetic input of dtype {tensor.dtype}")

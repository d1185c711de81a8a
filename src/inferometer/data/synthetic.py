"""Seeded inputs for speed measurements, when no images are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.contracts import TensorInfo
from inferometer.errors import ConfigError, DataError, nearest

__all__ = ["check_range", "synthetic_feeds"]

Range = tuple[float, float]


def synthetic_feeds(
    inputs: Sequence[TensorInfo],
    seed: int,
    batch: int | None = None,
    ranges: Mapping[str, Range] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """One feed per input, of values that say nothing: for speed alone.

    Without a range floats are standard-normal, 8-bit integers uniform over all they can hold, and all others
    zero, the one index that every table and vocabulary has. With a range the values are uniform over it, both
    ends included; when both ends are the same, that constant. Each input has its own generator,
    ``numpy.random.default_rng([seed, position])``, and a smaller batch is the beginning of a larger one.

    Args:
        inputs: The session's inputs.
        seed: 0 or more.
        batch: What stands for an open first dimension; None: it must be known.
        ranges: By input, its lowest and highest value.

    Returns:
        By name, in each input's shape and dtype.

    Raises:
        ConfigError: A range is of no input, or holds what the input's dtype cannot.
        DataError: A dimension is open, or a dtype is no number.
    """
    known = {tensor.name for tensor in inputs}
    wanted = ranges or {}
    for name in wanted:
        if name not in known:
            raise ConfigError(f"a range is given for {name!r}, which is no input{nearest(name, known)}")
    return {
        tensor.name: _values(
            tensor, _shape(tensor, batch), np.random.default_rng([seed, position]), wanted.get(tensor.name)
        )
        for position, tensor in enumerate(inputs)
    }


def check_range(name: str, dtype: str, limits: Range) -> None:
    """Refuse a range that an input's dtype cannot hold.

    Args:
        name: The input, for the message.
        dtype: Its NumPy dtype.
        limits: Lowest and highest value.

    Raises:
        ConfigError: An end is outside the dtype or no whole number for an integer, or the ends are swapped.
        DataError: The dtype is no number.
    """
    kind = _dtype(name, dtype)
    low, high = limits
    where = f"input {name!r}: the range {low:g}..{high:g}"
    if not low <= high:
        raise ConfigError(f"{where} wants its lower end first")
    if kind.kind in "iub" and not (float(low).is_integer() and float(high).is_integer()):
        raise ConfigError(f"{where} wants whole numbers: the input is {dtype}")
    bounds = (0, 1) if kind.kind == "b" else _bounds(kind)
    if low < bounds[0] or high > bounds[1]:
        raise ConfigError(f"{where} is wider than {dtype} holds, which is {bounds[0]:g}..{bounds[1]:g}")


def _bounds(dtype: np.dtype[Any]) -> tuple[float, float]:
    found: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    # As Python's numbers, which compare exactly: the largest int64 is no float64.
    return (float(found.min), float(found.max)) if dtype.kind == "f" else (int(found.min), int(found.max))


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


def _dtype(name: str, dtype: str) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise DataError(f"input {name!r}: no synthetic input of dtype {dtype}") from error
    if found.kind not in "fiub":
        raise DataError(f"input {name!r}: no synthetic input of dtype {dtype}")
    return found


def _values(
    tensor: TensorInfo, shape: tuple[int, ...], generator: np.random.Generator, limits: Range | None
) -> npt.NDArray[Any]:
    dtype = _dtype(tensor.name, tensor.dtype)
    if limits is not None:
        check_range(tensor.name, tensor.dtype, limits)
        return _uniform(dtype, shape, generator, *limits)
    if dtype == np.float64:
        return generator.standard_normal(shape)
    if dtype.kind == "f":
        return generator.standard_normal(shape, dtype=np.float32).astype(dtype)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        bounds = np.iinfo(dtype)
        return generator.integers(bounds.min, bounds.max, size=shape, dtype=dtype, endpoint=True)
    return np.zeros(shape, dtype=dtype)


def _uniform(
    dtype: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator, low: float, high: float
) -> npt.NDArray[Any]:
    if dtype.kind == "f":
        share = generator.random(shape)
        # Weighted, since the difference of two large ends may be infinite; clipped, since rounding may pass.
        values: npt.NDArray[Any] = np.clip(low * (1 - share) + high * share, low, high).astype(dtype)
        return values
    if dtype.kind == "b":
        return generator.integers(int(low), int(high), size=shape, endpoint=True).astype(dtype)
    drawn: npt.NDArray[Any] = generator.integers(int(low), int(high), size=shape, dtype=dtype, endpoint=True)
    return drawn

"""Tensors of a file of weights before and while their values are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from inferometer.errors import ModelError

__all__ = ["FLOATS", "Stored", "WeightFile", "as_float32", "without_prefixes"]

FLOATS = ("float16", "bfloat16", "float32", "float64")
"""Types of stored tensors that can be weights here."""

_PREFIXES = ("module.", "_orig_mod.", "model.")  # DataParallel, torch.compile, Lightning

T = TypeVar("T")

_CHUNK = 1 << 20  # elements looked at together


@dataclass(frozen=True)
class Stored:
    """One tensor of a file.

    Attributes:
        shape: Its shape.
        dtype: Its type: one of `FLOATS` as numpy calls it, any other as the file does.
        read: Reads its values, once: of this shape, and this type or one that holds it exactly. Only for
            `FLOATS`.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], NDArray[Any]]


@dataclass(frozen=True)
class WeightFile:
    """A file of weights while it is open.

    Attributes:
        path: The file.
        tensors: By name.
        notes: What the reader did to get at them, in words.
        nodes: The nodes that use the tensors, where the file tells (ONNX).
    """

    path: Path
    tensors: Mapping[str, Stored]
    notes: tuple[str, ...] = ()
    nodes: tuple[NodeProto, ...] = ()


def without_prefixes(tensors: Mapping[str, T]) -> tuple[dict[str, T], tuple[str, ...]]:
    """Take prefixes that all names share off them.

    Returns:
        The tensors by their new names, and what was taken off, in words.
    """
    found, notes = dict(tensors), list[str]()
    while True:
        shared = [one for one in _PREFIXES if found and all(name.startswith(one) for name in found)]
        if not shared:
            return found, tuple(notes)
        notes.append(f"took {shared[0]!r} off the names")
        found = {name.removeprefix(shared[0]): tensor for name, tensor in found.items()}


def as_float32(values: NDArray[Any], where: str) -> NDArray[np.float32]:
    """Convert to float32 and refuse what is no number.

    Args:
        values: Of any shape and floating type.
        where: The file and tensor, for the message.

    Raises:
        ModelError: A value is NaN, infinite, or beyond float32.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        converted: NDArray[np.float32] = np.ascontiguousarray(values, dtype=np.float32)
    flat = converted.reshape(-1)
    for start in range(0, flat.size, _CHUNK):  # in pieces: a mask of the whole would be large
        if not np.isfinite(flat[start : start + _CHUNK]).all():
            raise ModelError(
                f"{where} holds NaN or infinite values, or some beyond float32: give weights of a classifier "
                "that was trained whole"
            )
    return converted

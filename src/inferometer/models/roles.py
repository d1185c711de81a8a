"""What a model's inputs and outputs are for: which input takes images, which output are class scores.

Told from names, shapes and dtypes alone; what could be two things is refused rather than guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from inferometer.errors import ConfigError, ModelError, nearest

__all__ = ["ClassOutput", "class_output", "image_axes", "image_input", "other_inputs", "scores_of_rows"]


class Tensor(Protocol):
    """An input or output, of a file or of a session; an open dimension is a symbol or None."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def shape(self) -> tuple[int | str | None, ...] | None:
        """Its dimensions; None when the rank is unknown."""

    @property
    def dtype(self) -> str | None:
        """The numpy name of its element type; None or ``object`` when it is no tensor of numbers."""


T = TypeVar("T", bound=Tensor)


@dataclass(frozen=True)
class ClassOutput:
    """The output that is scored.

    Attributes:
        name: Its name.
        classes: How many; None when the file leaves it open, or for ``gives_labels``.
        gives_labels: Whether it holds the class itself, [N] integers, and no scores: top-1 alone can be told.
    """

    name: str
    classes: int | None
    gives_labels: bool = False


def image_input(inputs: Sequence[T]) -> T | None:
    """The input that takes images: the only one of four dimensions; None when there is none, or several."""
    found = [one for one in inputs if one.shape is not None and len(one.shape) == 4 and _is_numeric(one)]
    return found[0] if len(found) == 1 else None


def other_inputs(inputs: Sequence[T]) -> list[T]:
    """The inputs beside the image."""
    image = image_input(inputs)
    return [one for one in inputs if image is None or one.name != image.name]


def class_output(outputs: Sequence[Tensor], wanted: str | None) -> ClassOutput:
    """The output to score.

    Class scores are [N, classes], with any further axes of length 1, of floats or 8-bit integers. Where no
    output is such, one of [N] integers counts as the class itself.

    Args:
        outputs: Of the model.
        wanted: The name that the user gave, or None.

    Raises:
        ConfigError: There is no output ``wanted``.
        ModelError: It is no class scores, there are none, or several and none was named.
    """
    if wanted is not None:
        known = {one.name: one for one in outputs}
        if wanted not in known:
            raise ConfigError(f"there is no output {wanted!r}{nearest(wanted, known)}")
        found = _scores(known[wanted]) or _labels(known[wanted])
        if found is None:
            raise ModelError(f"output {_spelled(known[wanted])} is no list of class scores [N, classes]")
        return found
    for kind in (_scores, _labels):
        candidates = [found for one in outputs if (found := kind(one)) is not None]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = {one.name for one in candidates}
            several = ", ".join(_spelled(one) for one in outputs if one.name in names)
            raise ModelError(f"several outputs could be the class scores: name one by --output ({several})")
    those = ", ".join(_spelled(one) for one in outputs) or "none"
    raise ModelError(
        f"the model is no classifier: none of its outputs is a list of class scores [N, classes] ({those}); "
        "its throughput can be measured, its accuracy cannot"
    )


def scores_of_rows(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]], name: str) -> int:
    """How many classes an output's values [n, ...] hold for each image.

    Raises:
        ModelError: More than one axis is longer than 1: those are no class scores.
    """
    long = [length for length in values.shape[1:] if length != 1]
    if len(long) != 1:
        raise ModelError(
            f"output {name!r} has the shape {list(values.shape)}: wants class scores [N, classes]; "
            "name another by --output"
        )
    return int(long[0])


def _scores(one: Tensor) -> ClassOutput | None:
    if not _is_numeric(one):
        return None
    kind = np.dtype(one.dtype)
    if kind.kind != "f" and kind.itemsize != 1:
        return None
    if one.shape is None:
        return ClassOutput(one.name, None)
    long = [length for length in one.shape[1:] if length != 1]
    if len(long) != 1:
        return None
    return ClassOutput(one.name, long[0] if isinstance(long[0], int) else None)


def _labels(one: Tensor) -> ClassOutput | None:
    if not _is_numeric(one) or np.dtype(one.dtype).kind not in "iu" or one.shape is None:
        return None
    holds = len(one.shape) in (1, 2) and all(length == 1 for length in one.shape[1:])
    return ClassOutput(one.name, None, gives_labels=True) if holds else None


def _is_numeric(one: Tensor) -> bool:
    try:
        return one.dtype is not None and np.dtype(one.dtype).kind in "fiu"
    except TypeError:  # a type that numpy has not
        return False


def _spelled(one: Tensor) -> str:
    shape = "unknown shape" if one.shape is None else str([side if side else "?" for side in one.shape])
    return f"{one.name!r} {shape.replace(chr(39), '')} {one.dtype or 'no tensor'}"


def image_axes(shape: Sequence[int | str | None]) -> tuple[int, int | None, int | None] | None:
    """(channels, height, width) of an image input of 1 or 3 channels, wherever they stand; open sizes None.

    None when neither the second nor the last axis has 1 or 3, or an axis that could be either is open.
    """
    sides = [side if isinstance(side, int) else None for side in shape]
    if sides[1] in (1, 3):
        return sides[1], sides[2], sides[3]
    if sides[3] in (1, 3):
        return sides[3], sides[1], sides[2]
    return None

"""The 1000 classes of ILSVRC2012: WordNet ids in sorted order, and the ids of the development kit.

Nearly every trained ImageNet model numbers its classes 0..999 by the sorted WordNet ids. The challenge's own
ground truth uses other numbers, 1..1000: taking one for the other gives a wrong accuracy, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

__all__ = [
    "FIRST_CLASSES",
    "IMAGES",
    "NAME",
    "WNID",
    "class_of_id",
    "class_of_wnid",
    "number_of",
    "wnids",
]

IMAGES: Final = 50_000
"""Images of the validation set, and lines of its ground truth. Source: ILSVRC2012 development kit, readme."""

NAME: Final = re.compile(r"ILSVRC2012_val_([0-9]{8})(?:\.\w+)?")
"""An image's name in the validation set, with its number from 1."""

WNID: Final = re.compile(r"n[0-9]{8}")
"""A noun of WordNet."""

FIRST_CLASSES: Final = (65, 970, 230, 809, 516, 57, 334, 415, 674, 332, 109)
"""Class indices of the validation images 1..11.

Source: the first lines of Caffe's val.txt; the first ids of the ground truth (490, 361, 171, 822, 297, 482,
13, 704, 599, 164, 649) name the same classes.
"""


@cache
def wnids() -> tuple[str, ...]:
    """The 1000 WordNet ids; the place of one is its class index."""
    return tuple(wnid for wnid, _ in _table())


@cache
def class_of_wnid() -> Mapping[str, int]:
    """Class index 0..999 by WordNet id."""
    return MappingProxyType({wnid: index for index, wnid in enumerate(wnids())})


@cache
def class_of_id() -> Mapping[int, int]:
    """Class index 0..999 by ILSVRC2012_ID, 1..1000."""
    return MappingProxyType({number: index for index, (_, number) in enumerate(_table())})


def number_of(name: str) -> int | None:
    """The number of a validation image, from 1, by its name without folders; None for any other name."""
    match = NAME.fullmatch(name)
    return int(match[1]) if match else None


@cache
def _table() -> tuple[tuple[str, int], ...]:
    text = (files("inferometer.data") / "ilsvrc2012.txt").read_text(encoding="ascii")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return tuple((wnid, int(number)) for wnid, number in lines)

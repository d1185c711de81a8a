"""From labels as written to class indices: whole numbers, WordNet ids, names in a list of classes."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inferometer.data.ilsvrc2012 import FIRST_CLASSES, WNID, class_of_wnid, number_of, wnids
from inferometer.data.labelling import Labelled, Row
from inferometer.data.listing import some
from inferometer.errors import DataError

__all__ = ["CLASS_LISTS", "ClassList", "Numbering", "folder_indices", "label_indices"]

CLASS_LISTS = ("classes.txt", "synset_words.txt", "LOC_synset_mapping.txt", "synsets.txt")
"""Names of files that list classes in the order of their indices; the first that is there counts."""

Numbering = Literal["ilsvrc2012", "own"]

_INTEGER = re.compile(r"[0-9]{1,9}")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClassList:
    """Classes in the order of their indices, and the path of the file that says so."""

    where: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str, where: str) -> ClassList:
        """Read one class per line; of ``n01440764 tench, Tinca tinca`` the WordNet id is the name.

        Raises:
            DataError: A class stands twice, or none is there.
        """
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        firsts = [re.split(r"[\s,;]", line, maxsplit=1)[0] for line in lines]
        names = firsts if all(WNID.fullmatch(first) for first in firsts) else lines
        if not names:
            raise DataError(f"{where}: lists no class: wants one per line, in the order of the indices")
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise DataError(f"{where}: lists the class {name} twice: remove one of the lines")
            seen.add(name)
        return cls(where, tuple(names))

    @property
    def numbering(self) -> Numbering:
        """Whether the order is that of nearly all ImageNet models."""
        return "ilsvrc2012" if self.names == wnids() else "own"

    def indices(self) -> Mapping[str, int]:
        """Class index by name."""
        return {name: index for index, name in enumerate(self.names)}


def folder_indices(
    where: str, folders: Sequence[str], listed: ClassList | None
) -> tuple[list[int], str, Numbering, int]:
    """The classes that folders stand for.

    Args:
        where: The folder that holds them, for messages.
        folders: Their names, sorted.
        listed: A list of classes that lies there.

    Returns:
        Index of each folder; the layout's name; the numbering; the number of classes.

    Raises:
        DataError: Two folders stand for one class, or a list of classes leaves some out.
    """
    if all(_INTEGER.fullmatch(name) for name in folders):
        indices = [int(name) for name in folders]
        if len(set(indices)) != len(indices):
            raise DataError(
                f"{where}: two folders stand for one class: {some(folders)}: rename or merge them"
            )
        return indices, "index folders", "own", max(indices) + 1
    synsets = all(WNID.fullmatch(name) for name in folders)
    kind = "wnid folders" if synsets else "folders"
    if listed is not None:
        order = listed.indices()
        absent = [name for name in folders if name not in order]
        if not absent:
            return [order[name] for name in folders], kind, listed.numbering, len(order)
        if not synsets:
            raise DataError(
                f"{listed.where}: does not list the class folders {some(absent)}: add them, or rename "
                "the file to number the folders in sorted order"
            )
    if synsets:
        known = class_of_wnid()
        strange = [name for name in folders if name not in known]
        if not strange:
            return [known[name] for name in folders], kind, "ilsvrc2012", len(known)
        _log.warning(
            "%s: %d of %d folders are no classes of ILSVRC2012 (%s): numbered 0 to %d in sorted order",
            where, len(strange), len(folders), some(strange), len(folders) - 1,
        )  # fmt: skip
    return list(range(len(folders))), kind, "own", len(folders)


def label_indices(labels: Labelled, listed: ClassList | None) -> tuple[list[int], Numbering, int]:
    """The classes that the rows of a table or list stand for.

    Args:
        labels: The rows, one or more.
        listed: A list of classes that lies there.

    Returns:
        Index of each row; the numbering; the number of classes.

    Raises:
        DataError: A label that cannot be numbered, or numbers that are not those of the sorted WordNet ids
            although the images are ILSVRC2012's; the message names the line.
    """
    rows = labels.rows
    if all(_INTEGER.fullmatch(row.label) for row in rows):
        indices = [int(row.label) for row in rows]
        if not labels.table and all(number_of(_leaf(row)) for row in rows):
            _check_sorted(labels.where, rows, indices)
            return indices, "ilsvrc2012", len(wnids())
        return indices, "own", max(indices) + 1
    known = class_of_wnid()
    own = listed.indices() if listed is not None else {}
    if all(row.label in known for row in rows) and not all(row.label in own for row in rows):
        return [known[row.label] for row in rows], "ilsvrc2012", len(known)
    if listed is not None:
        return _by_name(labels.where, rows, own, listed.where), listed.numbering, len(own)
    odd = next((row for row in rows if not _INTEGER.fullmatch(row.label) and row.label not in known), None)
    if odd is None:
        raise DataError(f"{labels.where}: some labels are numbers, others WordNet ids: give all of one kind")
    raise DataError(
        f"{labels.where}, line {odd.line}: the label {odd.label!r} of {odd.name} is neither a whole number "
        f"of 0 or more nor a class of ILSVRC2012: names are numbered by a file {CLASS_LISTS[0]} in the same "
        "folder, with one class per line"
    )


def _leaf(row: Row) -> str:
    return row.name.rpartition("/")[2]


def _by_name(where: str, rows: Sequence[Row], known: Mapping[str, int], source: str) -> list[int]:
    for row in rows:
        if row.label not in known:
            raise DataError(
                f"{where}, line {row.line}: the label {row.label!r} of {row.name} is no class of {source}"
            )
    return [known[row.label] for row in rows]


def _check_sorted(where: str, rows: Sequence[Row], indices: Sequence[int]) -> None:
    """Refuse numbers that count otherwise, by their range and by images whose class is known."""
    for row, index in zip(rows, indices, strict=True):
        number = number_of(_leaf(row)) or 0
        true = FIRST_CLASSES[number - 1] if 1 <= number <= len(FIRST_CLASSES) else None
        if index >= len(wnids()) or true not in (None, index):
            known = "" if true is None else f", which is {true} ({wnids()[true]})"
            raise DataError(
                f"{where}, line {row.line}: gives {row.name} the class {index}{known}, among 0 to 999 of the "
                "sorted WordNet ids: these numbers count otherwise; give a list with WordNet ids, or the "
                "devkit's ILSVRC2012_validation_ground_truth.txt"
            )

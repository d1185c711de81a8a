"""From labels as written to class indices: whole numbers, WordNet ids, names in a list of classes."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inferometer.data.ilsvrc2012 import FIRST_CLASSES, WNID, class_of_wnid, number_of, wnids
from inferometer.data.labelling import Labelled, Row
from inferometer.data.listing import some
from inferometer.errors import DataError

__all__ = ["CLASS_LISTS", "ClassList", "Folders", "Numbering", "folder_indices", "label_indices"]

CLASS_LISTS = ("classes.txt", "synset_words.txt", "LOC_synset_mapping.txt", "synsets.txt")
"""Names of files that list classes in the order of their indices; the first that is there counts."""

Numbering = Literal["ilsvrc2012", "own"]

_INTEGER = re.compile(r"[0-9]{1,9}")
_NEGATIVE = re.compile(r"-[0-9]+")
_WNID_FOLDER = re.compile(rf"({WNID.pattern})(?:[_-].+)?")  # n01440764, n01440764_tench, n01440764-tench

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


@dataclass(frozen=True)
class Folders:
    """The classes that folders stand for.

    Attributes:
        kind: The layout's name.
        indices: Class index by folder, in the folders' order; without folders that are no class.
        numbering: Whose class indices they are.
        classes: The number of classes.
    """

    kind: str
    indices: Mapping[str, int]
    numbering: Numbering
    classes: int


def folder_indices(
    where: str, folders: Sequence[str], hollow: Collection[str], listed: ClassList | None
) -> Folders:
    """The classes that folders stand for.

    Args:
        where: The folder that holds them, for messages.
        folders: Their names, sorted.
        hollow: Those without images. They do not decide what the names are, and are no classes when their
            names are of another kind than those of the others.
        listed: A list of classes that lies there.

    Raises:
        DataError: Two folders stand for one class, some names are of another kind than most, a number is
            negative, or a list of classes leaves some out.
    """
    full = [name for name in folders if name not in hollow]
    if all(_INTEGER.fullmatch(name) for name in full):
        numbers = {name: int(name) for name in folders if _INTEGER.fullmatch(name)}
        _check_distinct(where, numbers)
        return Folders("index folders", numbers, "own", max(numbers.values()) + 1)
    ids = {name: match[1] for name in folders if (match := _WNID_FOLDER.fullmatch(name))}
    synsets = all(name in ids for name in full)
    kind = "wnid folders" if synsets else "folders"
    if listed is not None:
        order = listed.indices()
        found = {name: order.get(name, order.get(ids.get(name, name), -1)) for name in folders}
        found = {name: index for name, index in found.items() if index >= 0}
        absent = [name for name in full if name not in found]
        if not absent:
            _check_distinct(where, found)
            return Folders(kind, found, listed.numbering, len(order))
    _check_alike(where, full, ids)
    if listed is not None and not synsets:
        raise DataError(
            f"{listed.where}: does not list the class folders {some(absent)}: add them, or rename "
            "the file to number the folders in sorted order"
        )
    if not synsets:
        return Folders(kind, {name: index for index, name in enumerate(folders)}, "own", len(folders))
    _check_distinct(where, ids)
    known = class_of_wnid()
    strange = [name for name in full if ids[name] not in known]
    if not strange:
        found = {name: known[wnid] for name, wnid in ids.items() if wnid in known}
        return Folders(kind, found, "ilsvrc2012", len(known))
    _log.warning(
        "%s: %d of %d folders are no classes of ILSVRC2012 (%s): numbered 0 to %d in sorted order",
        where, len(strange), len(full), some(strange), len(ids) - 1,
    )  # fmt: skip
    return Folders(kind, {name: index for index, name in enumerate(ids)}, "own", len(ids))


def _check_distinct(where: str, classes: Mapping[str, int] | Mapping[str, str]) -> None:
    """Refuse two folders of one class."""
    first: dict[int | str, str] = {}
    for name, stands_for in classes.items():
        other = first.setdefault(stands_for, name)
        if other != name:
            raise DataError(
                f"{where}: two folders stand for one class: {other}, {name}: rename or merge them"
            )


def _check_alike(where: str, full: Sequence[str], ids: Mapping[str, str]) -> None:
    """Refuse names of which half or more are ILSVRC2012's, or numbers, but not all: one folder too many would
    number all the others anew."""
    mend = f"or give --labels, or list all classes in {CLASS_LISTS[0]} there"
    negative = [name for name in full if _NEGATIVE.fullmatch(name)]
    if negative:
        raise DataError(
            f"{where}: a negative number is no class index: {some(negative)}: rename the folder, {mend}"
        )
    known = class_of_wnid()
    for what, strays in (
        ("WordNet ids of ILSVRC2012", [name for name in full if ids.get(name) not in known]),
        ("whole numbers", [name for name in full if not _INTEGER.fullmatch(name)]),
    ):
        if 0 < len(strays) <= len(full) / 2:
            raise DataError(
                f"{where}: {len(full) - len(strays)} of {len(full)} class folders are named by {what}, but "
                f"not {some(strays)}: move them out of the folder, {mend}"
            )


def label_indices(labels: Labelled, listed: ClassList | None) -> tuple[list[int], Numbering, int]:
    """The classes that the rows of a table or list stand for.

    Args:
        labels: The rows, one or more.
        listed: A list of classes that lies there.

    Returns:
        Index of each row; the numbering; the number of classes.

    Raises:
        DataError: A label that cannot be numbered, or numbers that are not those of the sorted WordNet ids
            although the images are ILSVRC2012's; the message names the line. A table may count from 1 (the
            classes of models with one for the background): that is warned of.
    """
    rows = labels.rows
    if all(_INTEGER.fullmatch(row.label) for row in rows):
        indices = [int(row.label) for row in rows]
        if all(number_of(_leaf(row)) for row in rows):
            if not labels.table:
                _check_sorted(labels.where, rows, indices)
                return indices, "ilsvrc2012", len(wnids())
            _check_known(labels.where, rows, indices)
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


def _true(row: Row) -> int | None:
    """The class of an image where it is known for sure."""
    number = number_of(_leaf(row)) or 0
    return FIRST_CLASSES[number - 1] if 1 <= number <= len(FIRST_CLASSES) else None


def _check_sorted(where: str, rows: Sequence[Row], indices: Sequence[int]) -> None:
    """Refuse numbers that count otherwise, by their range and by images whose class is known."""
    for row, index in zip(rows, indices, strict=True):
        true = _true(row)
        if index >= len(wnids()) or true not in (None, index):
            raise _counts_otherwise(where, row, index, true)


def _check_known(where: str, rows: Sequence[Row], indices: Sequence[int]) -> None:
    """Refuse a table's numbers by images whose class is known, unless all of these are one more."""
    known = [(row, index, true) for row, index in zip(rows, indices, strict=True)
             if (true := _true(row)) is not None]  # fmt: skip
    if known and all(index == true + 1 for _, index, true in known):
        _log.warning(
            "%s: its labels count from 1: %s, of class %d, has %d: for a model of 1001 classes",
            where, known[0][0].name, known[0][2], known[0][1],
        )  # fmt: skip
        return
    for row, index, true in known:
        if index != true:
            raise _counts_otherwise(where, row, index, true)


def _counts_otherwise(where: str, row: Row, index: int, true: int | None) -> DataError:
    known = "" if true is None else f", which is {true} ({wnids()[true]})"
    return DataError(
        f"{where}, line {row.line}: gives {row.name} the class {index}{known}, among 0 to 999 of the "
        "sorted WordNet ids: these numbers count otherwise; give a list with WordNet ids, or the "
        "devkit's ILSVRC2012_validation_ground_truth.txt"
    )

"""Labels and files brought together: which file a row of labels means."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from inferometer.data.ilsvrc2012 import FIRST_CLASSES, IMAGES, class_of_id, number_of, wnids
from inferometer.data.labelling import GroundTruth, Labelled, Row
from inferometer.data.listing import Tree, child, is_image, size_of, some
from inferometer.data.numbering import ClassList, label_indices
from inferometer.errors import DataError

__all__ = ["Matched", "by_name", "by_number"]

_log = logging.getLogger(__name__)

_Find = Callable[[str], str | None]


@dataclass(frozen=True)
class Matched:
    """The labels of the files below one folder of a tree."""

    base: str
    labels: dict[str, int]
    classes: int
    numbering: Literal["ilsvrc2012", "own"]


def by_name(
    tree: Tree, bases: Sequence[str], labels: Labelled, listed: ClassList | None, *, strict: bool = False
) -> Matched:
    """The files that rows name.

    Args:
        tree: Where they lie.
        bases: Folders that the names may begin at; the first that holds one of them counts.
        labels: The rows.
        listed: Numbers classes by name.
        strict: Names are as they stand, in the first of ``bases``, and labels are numbers (``labels.csv``).

    Raises:
        DataError: A file is missing or stands twice, or a label cannot be numbered. Of ILSVRC2012's
            validation images any may be missing: parts of that set are common, and its lists are whole.
    """
    where, rows = labels.where, labels.rows
    if not rows:
        wants = "wants lines of file,class_index below the header" if strict else "wants a line for each"
        raise DataError(f"{where}: lists no image: {wants}")
    for row in rows:
        if (strict and row.name.startswith("/")) or ".." in row.name.split("/"):
            raise DataError(
                f"{where}, line {row.line}: {row.name} lies outside {tree.root}: give names in it"
            )
    if strict:
        _check_numbers(where, rows)
    base, find = (bases[0], _exact(tree, bases[0])) if strict else _begin(tree, bases, labels)
    indices, numbering, classes = label_indices(labels, listed)
    found: dict[str, int] = {}
    missing: list[str] = []
    for row, index in zip(rows, indices, strict=True):
        file = find(row.name)
        if file is None:
            missing.append(row.name)
            file = row.name
        if file in found:
            raise DataError(f"{where}, line {row.line}: {file} stands twice: remove one of the lines")
        found[file] = index
    if missing and (strict or not all(number_of(_leaf(row.name)) for row in rows)):
        raise DataError(f"{where} names {len(missing)} missing files: {some(missing)}")
    for name in missing:
        del found[name]
    if missing:
        _tell_missing(tree, base, found, where, len(missing))
    return Matched(base, found, classes, numbering)


def by_number(tree: Tree, bases: Sequence[str], truth: GroundTruth) -> Matched:
    """The validation images of ILSVRC2012, by the devkit's ground truth: line n is image n.

    Raises:
        DataError: Other images, or a file that cannot be that ground truth.
    """
    base = next((base for base in bases if any(map(is_image, tree.at(base).files))), bases[0])
    images = [name for name in tree.at(base).files if is_image(name)]
    numbers = {name: number_of(name) or 0 for name in images}
    where, ids = truth.where, truth.ids
    folder = tree.root / base
    odd = [name for name, number in numbers.items() if number == 0]
    if odd or not images:
        what = f"holds {some(sorted(odd))}" if odd else "holds none"
        raise DataError(
            f"{where}: one number per line is the ground truth of ILSVRC2012's validation images, named "
            f"ILSVRC2012_val_00000001.JPEG and so on; {folder} {what}: give lines of file name and label"
        )
    whole = sorted(numbers.values()) == list(range(1, len(ids) + 1))
    if len(ids) != IMAGES and not whole:
        raise DataError(
            f"{where}: has {len(ids)} lines for {len(images)} images: the ground truth has {IMAGES}, or as "
            "many as there are images, numbered from 1: fetch it again"
        )
    classes = class_of_id()
    strange = next((line for line, number in enumerate(ids, 1) if number not in classes), None)
    if strange is not None:
        raise DataError(
            f"{where}, line {strange}: {ids[strange - 1]} is no ILSVRC2012_ID, which are 1 to 1000"
        )
    for line, (number, true) in enumerate(zip(ids, FIRST_CLASSES, strict=False), 1):
        if classes[number] != true:
            raise DataError(
                f"{where}, line {line}: {number} is not the ILSVRC2012_ID of image {line}, which shows "
                f"{wnids()[true]}: these numbers count otherwise, or are of other images: give the devkit's"
            )
    beyond = next((name for name, number in numbers.items() if number > len(ids)), None)
    if beyond is not None:
        raise DataError(f"{where}: has {len(ids)} lines, none for {beyond}")
    labels = {name: classes[ids[number - 1]] for name, number in numbers.items()}
    return Matched(base, labels, len(wnids()), "ilsvrc2012")


def _check_numbers(where: str, rows: Sequence[Row]) -> None:
    for row in rows:
        if not (row.label.isascii() and row.label.isdigit() and len(row.label) <= 9):
            raise DataError(
                f"{where}, line {row.line}: class_index {row.label!r} of {row.name} is no whole number of 0 "
                "or more"
            )


def _begin(tree: Tree, bases: Sequence[str], labels: Labelled) -> tuple[str, _Find]:
    """Where names begin: in which folder of the tree, and behind which folders of their own."""
    above = _common_folder([row.name for row in labels.rows])
    for base in bases:
        for find in (_with_ending(tree, base, ""), _with_ending(tree, base, above)):
            if any(find(row.name) for row in labels.rows):
                return base, find
    first = labels.rows[0].name
    raise DataError(
        f"{labels.where}: names no file of {tree.root}: looked for {first} and the others in "
        f"{some([str(tree.root / base) for base in bases])}: is it the list of another set?"
    )


def _exact(tree: Tree, base: str) -> _Find:
    return lambda name: name if size_of(tree, child(base, name)) is not None else None


def _with_ending(tree: Tree, base: str, above: str) -> _Find:
    """Finds a file whose name may lack its ending, as in Kaggle's tables, behind the folders ``above``.

    Of ILSVRC2012's validation images the number tells which it is: ``.JPEG`` may be ``.jpeg`` or ``.png``.
    """
    stems: dict[tuple[str, bool], dict[str, list[str]]] = {}

    def find(name: str) -> str | None:
        name = name.removeprefix(above)
        if name.startswith("/"):
            return None
        folder, _, leaf = name.rpartition("/")
        files = tree.at(child(base, folder)).files
        if leaf in files:
            return name
        numbered = number_of(leaf) is not None
        if (is_image(leaf) and not numbered) or not files:
            return None
        if (folder, numbered) not in stems:
            stems[folder, numbered] = _stems(files, numbered)
        stem = leaf.rpartition(".")[0] if is_image(leaf) else leaf
        ends = stems[folder, numbered].get(stem.lower() if numbered else stem, [])
        if len(ends) > 1:
            raise DataError(
                f"{tree.root / base}: which file is {name}: {some(sorted(ends))}? Remove the others"
            )
        return child(folder, ends[0]) if ends else None

    return find


def _stems(files: Iterable[str], fold: bool) -> dict[str, list[str]]:
    """Images by their names without endings; ``fold``: in lower case."""
    stems: dict[str, list[str]] = {}
    for file in filter(is_image, files):
        stem = file.rpartition(".")[0]
        stems.setdefault(stem.lower() if fold else stem, []).append(file)
    return stems


def _tell_missing(tree: Tree, base: str, found: Collection[str], where: str, missing: int) -> None:
    rest = [name for name in tree.at(base).files if is_image(name) and name not in found]
    if rest:
        _log.warning(
            "%s: %d of its %d images are not there, and %d images have no line in it (%s): left out",
            where, missing, missing + len(found), len(rest), some(sorted(rest)),
        )  # fmt: skip
    else:
        _log.info("%s: %d of its %d images are not there", where, missing, missing + len(found))


def _common_folder(names: Sequence[str]) -> str:
    """The folders, with a ``/`` behind, that all names begin with."""
    first, last = min(names), max(names)
    alike = next(
        (n for n, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first)
    )
    return first[: first.rfind("/", 0, alike) + 1]


def _leaf(name: str) -> str:
    return name.rpartition("/")[2]

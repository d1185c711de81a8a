"""How a set of labelled images lies in a folder or archive, recognised by what is there.

In this order, at the top and, while nothing fits, in the only folder below:

1. a file of labels that was given (``--labels``);
2. ``labels.csv``;
3. validation images of ILSVRC2012 without folders, and ``val.txt``, ``val_map.txt``, ``LOC_val_solution.csv``
   or the devkit's ground truth, in the folder or beside it;
4. folders that hold images: one per class;
5. images without folders, and the only CSV or TSV file there, or ``val.txt``;
6. images without folders or labels, where labels are not needed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from inferometer.data.decode import EXTENSIONS
from inferometer.data.ilsvrc2012 import NAME
from inferometer.data.labelling import COLUMNS, GroundTruth, parsed, text_of
from inferometer.data.listing import Tree, child, is_image, read_file, some, visible_folders
from inferometer.data.matching import Matched, by_name, by_number
from inferometer.data.numbering import CLASS_LISTS, ClassList, folder_indices
from inferometer.errors import DataError

__all__ = ["LABELS", "UNLABELLED", "Layout", "at_of", "recognise"]

LABELS: Final = "labels.csv"
UNLABELLED: Final = -1
"""Stands for the class of an image that has no label."""

GROUND_TRUTH: Final = "ILSVRC2012_validation_ground_truth.txt"
_ILSVRC_LABELS = ("val.txt", "val_map.txt", "LOC_val_solution.csv", GROUND_TRUTH)
_LISTS = ("val.txt", "val_map.txt")
_KIT = "ILSVRC2012_devkit_t12"
_PLACES = ("", "data", f"{_KIT}/data")
# A folder of this name that lies alone is no class.
_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})
_WRAPPERS = _SPLITS | {"images", "image", "imgs", "img", "data", "dataset", "jpegimages"}
_DEEPEST = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """A recognised set.

    Attributes:
        kind: As ``ImageSet.layout``.
        base: The folder of the tree that image names begin at.
        labels: Class index by file, by name.
        classes: The number of classes.
        numbering: Whose class indices they are.
        ignored: Files beside the images that are not in the set.
    """

    kind: str
    base: str
    labels: dict[str, int]
    classes: int
    numbering: Literal["ilsvrc2012", "own"]
    ignored: int


@dataclass(frozen=True)
class _LabelFile:
    """A file of labels: its path for messages, its content, and its name in the tree (None: elsewhere)."""

    where: str
    data: bytes
    inside: str | None


def recognise(tree: Tree, base: str, given: Path | None, *, labelled: bool = True) -> Layout:
    """Find out how a set lies, and number its images.

    Args:
        tree: A folder or an archive.
        base: Where in it to begin.
        given: A file of labels, or None to look for one.
        labelled: Whether images without labels are refused.

    Raises:
        DataError: No set of labelled images, or one whose classes cannot be told for sure.
    """
    if given is not None:
        file = _LabelFile(str(given), read_file(given), _inside(tree, given))
        return _labelled(tree, _chain(tree, base), file)
    chain: list[str] = []
    for folder in _chain(tree, base):
        chain.append(folder)
        found = _recognised_at(tree, chain)
        if found is not None:
            return found
    images = [name for name in tree.at(chain[-1]).files if is_image(name)]
    if images and not labelled:
        others = len(tree.at(chain[-1]).files) - len(images) + _broken(tree, [chain[-1]])
        return Layout("unlabelled", chain[-1], dict.fromkeys(images, UNLABELLED), 0, "own", others)
    raise DataError(_nothing_found(tree, chain))


def at_of(tree: Tree, name: str) -> str:
    """The path of something in the tree, for messages."""
    return str(tree.root / name)


def _recognised_at(tree: Tree, chain: Sequence[str]) -> Layout | None:
    """The set in the last of ``chain``, the others being the folders above it."""
    base = chain[-1]
    place = tree.at(base)
    if LABELS in place.files:
        return _labels_csv(tree, base)
    images = [name for name in place.files if is_image(name)]
    if images and all(NAME.fullmatch(name) for name in images):
        file = _ilsvrc_labels(tree, base)
        if file is not None:
            return _labelled(tree, [base], file)
    folders = _class_folders(tree, base)
    if folders:
        return _from_folders(tree, chain, folders)
    if images:
        file = _only_table(tree, chain)
        if file is not None:
            return _labelled(tree, [base], file)
    return None


def _chain(tree: Tree, base: str) -> Iterator[str]:
    """``base``, and below it folders that lie alone."""
    for _ in range(_DEEPEST):
        yield base
        folders = _set_folders(tree, base)
        if len(folders) != 1:
            return
        base = child(base, folders[0])


def _set_folders(tree: Tree, base: str) -> list[str]:
    """The folders that may be classes or hold them: visible, and not the development kit."""
    folders = [name for name in visible_folders(tree.at(base)) if name != _KIT]
    full = [name for name in folders if _holds_images(tree, child(base, name))]
    if len(full) == 1 and _is_wrapper(full[0]):  # images/ beside annotations/, say: no classes
        return full
    return [name for name in folders if name in full or GROUND_TRUTH not in tree.at(child(base, name)).files]


def _holds_images(tree: Tree, folder: str) -> bool:
    return any(map(is_image, tree.at(folder).files))


def _is_wrapper(folder: str) -> bool:
    return folder.lower() in _WRAPPERS or folder.startswith("ILSVRC")


def _inside(tree: Tree, path: Path) -> str | None:
    if tree.packed or not path.resolve().is_relative_to(tree.root.resolve()):
        return None
    return path.resolve().relative_to(tree.root.resolve()).as_posix()


def _labels_csv(tree: Tree, base: str) -> Layout:
    name = child(base, LABELS)
    labels = parsed(tree.read(name), at_of(tree, name), strict=True)
    assert not isinstance(labels, GroundTruth), "a strict file is a table"
    matched = by_name(tree, [base], labels, None, strict=True)
    return _layout(tree, LABELS, matched, name)


def _labelled(tree: Tree, bases: Sequence[str] | Iterator[str], file: _LabelFile) -> Layout:
    """A set by any file of labels; its images lie in the first of ``bases`` that fits."""
    chain = list(bases)
    labels = parsed(file.data, file.where)
    if isinstance(labels, GroundTruth):
        return _layout(tree, "devkit", by_number(tree, chain, labels), file.inside)
    listed = _class_list(tree, chain) or _class_list_beside(file)
    matched = by_name(tree, chain, labels, listed)
    return _layout(tree, "table" if labels.table else "list", matched, file.inside)


def _layout(tree: Tree, kind: str, matched: Matched, inside: str | None) -> Layout:
    """Count what lies beside the images, but for the file of labels."""
    files = tree.at(matched.base).files
    counted = sum(1 for name in files if name not in matched.labels)
    counted -= inside is not None and inside.rpartition("/")[0] == matched.base
    counted += _broken(tree, [matched.base])
    return Layout(kind, matched.base, matched.labels, matched.classes, matched.numbering, counted)


def _ilsvrc_labels(tree: Tree, base: str) -> _LabelFile | None:
    """In the folder, in a development kit inside it, and in the same places beside it."""
    above = [base]
    while above[-1]:
        above.append(above[-1].rpartition("/")[0])
    for folder in (child(one, place) for one in above for place in _PLACES):
        for name in _ILSVRC_LABELS:
            if name in tree.at(folder).files:
                inside = child(folder, name)
                return _LabelFile(at_of(tree, inside), tree.read(inside), inside)
    return _beside(tree, _ILSVRC_LABELS, _PLACES)


def _beside(tree: Tree, names: Sequence[str], places: Sequence[str]) -> _LabelFile | None:
    """A file of labels on disk, next to the set's folder or archive."""
    for place in places:
        for name in names:
            path = tree.root.resolve().parent / place / name
            if path.is_file():
                return _LabelFile(str(path), read_file(path), None)
    return None


def _only_table(tree: Tree, chain: Sequence[str]) -> _LabelFile | None:
    for folder in reversed(chain):
        files = tree.at(folder).files
        tables = [name for name in files if re.fullmatch(r"[^.].*\.(csv|tsv)", name, re.IGNORECASE)]
        if len(tables) > 1:
            raise DataError(
                f"{at_of(tree, folder)}: holds several tables ({some(sorted(tables))}): give the one with "
                "the labels (--labels FILE, or labels: in the study)"
            )
        for name in tables or [name for name in _LISTS if name in files]:
            inside = child(folder, name)
            return _LabelFile(at_of(tree, inside), tree.read(inside), inside)
    return _beside(tree, (LABELS, *_LISTS), ("",)) if tree.packed else None


def _class_list(tree: Tree, chain: Sequence[str]) -> ClassList | None:
    for folder in reversed(chain):
        for name in CLASS_LISTS:
            if name in tree.at(folder).files:
                inside = child(folder, name)
                where = at_of(tree, inside)
                return ClassList.of(text_of(tree.read(inside), where), where)
    return None


def _class_list_beside(file: _LabelFile) -> ClassList | None:
    for name in CLASS_LISTS:
        path = Path(file.where).parent / name
        if file.inside is None and path.is_file():
            return ClassList.of(text_of(read_file(path), str(path)), str(path))
    return None


def _class_folders(tree: Tree, base: str) -> list[str]:
    """Folders that are the classes, if any holds an image.

    Raises:
        DataError: They are parts of a data set, such as train and val.
    """
    folders = _set_folders(tree, base)
    if len(folders) == 1 and _is_wrapper(folders[0]):
        return []
    full = [folder for folder in folders if _holds_images(tree, child(base, folder))]
    if not full:
        return []
    for parts in (folders, full):  # train and val, also beside notes/, say
        if len(parts) > 1 and all(folder.lower() in _SPLITS for folder in parts):
            raise DataError(f"{at_of(tree, base)}: holds several sets: {_which(tree, base, parts)}")
    return folders


def _from_folders(tree: Tree, chain: Sequence[str], folders: Sequence[str]) -> Layout:
    base = chain[-1]
    where = at_of(tree, base)
    paths = {folder: child(base, folder) for folder in folders}
    hollow = [folder for folder, path in paths.items() if not _holds_images(tree, path)]
    found = folder_indices(where, folders, hollow, _class_list(tree, chain))
    labels: dict[str, int] = {}
    ignored = len(tree.at(base).files)
    for folder, path in paths.items():
        files = tree.at(path).files
        images = [name for name in files if is_image(name)]
        ignored += len(files) - len(images)
        labels |= {f"{folder}/{name}": found.indices[folder] for name in images}
    if hollow:
        _log.warning("%s: %d class folders hold no image: %s", where, len(hollow), some(hollow))
    ignored += _broken(tree, [base, *paths.values()])
    deeper = [name for path in paths.values() for name in _deeper(tree, path)]
    if deeper:
        _log.warning(
            "%s: %d images lie deeper than in the class folders, such as %s: left out",
            where, len(deeper), deeper[0],
        )  # fmt: skip
        ignored += len(deeper)
    if ignored:
        _log.info("%s: %d files are no images, or lie beside the class folders: ignored", where, ignored)
    return Layout(found.kind, base, labels, found.classes, found.numbering, ignored)


def _deeper(tree: Tree, folder: str) -> Iterator[str]:
    """Images in the folders of a folder; behind a link, which may lead back, no further than one level."""
    rest = [folder]
    while rest:
        above = rest.pop()
        place = tree.at(above)
        for name in visible_folders(place):
            below = child(above, name)
            yield from (child(below, file) for file in tree.at(below).files if is_image(file))
            if name not in place.linked:
                rest.append(below)


def _broken(tree: Tree, folders: Sequence[str]) -> int:
    """How many links in folders lead nowhere, or to themselves; they are warned of but for hidden ones."""
    links = [child(folder, name) for folder in folders for name in tree.at(folder).broken]
    shown = [link for link in links if not link.rpartition("/")[2].startswith(".")]
    if shown:
        _log.warning("%s: %d links lead nowhere, such as %s: left out", tree.root, len(shown), shown[0])
    return len(links)


def _which(tree: Tree, base: str, folders: Sequence[str]) -> str:
    first, *others = [at_of(tree, child(base, folder)) for folder in folders[:3]]
    return f"is {first} the set?" + "".join(f" Or {other}?" for other in others)


def _nothing_found(tree: Tree, chain: Sequence[str]) -> str:
    """Why the last of ``chain`` holds no set."""
    base = chain[-1]
    place = tree.at(base)
    looked = (
        f"{at_of(tree, base)}: no images: looked for {LABELS} and for one folder per class with files of "
        f"{', '.join(sorted(EXTENSIONS))}"
    )
    deeper = [name for name in _set_folders(tree, base) if visible_folders(tree.at(child(base, name)))]
    if deeper:
        return f"{looked}; there are deeper folders: {_which(tree, base, deeper)}"
    if any(is_image(name) for name in place.files):
        return (
            f"{at_of(tree, base)}: the images lie unlabelled in it: add {LABELS} with the columns "
            f"{','.join(COLUMNS)}, or give a file of labels (--labels FILE, or labels: in the study); for "
            f"ILSVRC2012's validation images put val.txt or {GROUND_TRUTH} there or beside"
        )
    archives = [name for name in place.files if re.search(r"\.(tar|tgz|gz|zip)$", name)]
    if archives:
        return f"{looked}; it holds archives ({some(sorted(archives))}): unpack them, or give one of them"
    return looked

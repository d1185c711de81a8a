"""Sets of labelled images: a folder with ``labels.csv``, or one folder per class; their order and splits.

The order of a set is that of its file names when it is a flat ILSVRC folder
(``ILSVRC2012_val_00000001.JPEG``, ... in ``labels.csv``), whose names are in random order already; otherwise
it is a seeded permutation, since the first images of a class-ordered folder are all of one class.
"""

from __future__ import annotations

import csv
import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

import numpy as np

from inferometer.data.decode import EXTENSIONS
from inferometer.data.source import FolderSource, ImageSource
from inferometer.errors import ConfigError, DataError, nearest

__all__ = [
    "ImageEntry",
    "ImageSet",
    "Split",
    "check_labels",
    "named",
    "open_set",
    "ordered",
    "split_entries",
]

LABELS: Final = "labels.csv"
_COLUMNS = ("file", "class_index")
_ILSVRC = re.compile(r"ILSVRC\d{4}_(val|test)_\d{8}\.\w+")
_LIST_LIMIT = 16 * 1024**2

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageEntry:
    """One labelled image: its file, relative to the set's folder with ``/``, and its class."""

    file: str
    class_index: int


@dataclass(frozen=True)
class ImageSet:
    """A set of labelled images.

    Attributes:
        root: The folder.
        layout: ``labels.csv`` or ``folders``.
        entries: All images, by file name.
        classes: Number of classes: the largest index plus 1, or the number of class folders.
        listing_sha256: Hex digest of all names, sizes in bytes and labels: what the set is, unread.
        ignored: Files in the folder (and the class folders) that are not in the set.
        source: Gives their content.
    """

    root: Path
    layout: Literal["labels.csv", "folders"]
    entries: tuple[ImageEntry, ...]
    classes: int
    listing_sha256: str
    ignored: int
    source: ImageSource


@dataclass(frozen=True)
class Split:
    """Two disjoint parts of a set, each in the set's order, and how that order came about, for the record."""

    calibration: tuple[ImageEntry, ...]
    evaluation: tuple[ImageEntry, ...]
    order_kind: str


def open_set(path: str | Path) -> ImageSet:
    """List a set of labelled images; no image is opened.

    ``labels.csv`` (columns file and class_index, in any place, others ignored) wins over folders. Class
    folders hold their images directly; sorted by name they are the classes 0, 1, ..., but when all names are
    integers, those are the class indices. Names that begin with a dot are passed over, links are followed.

    Raises:
        DataError: Nothing there that could be a set, or a fault in ``labels.csv``: the message names the
            line.
    """
    root = Path(path)
    try:
        if not root.is_dir():
            what = "is a file" if root.exists() else "does not exist"
            wants = f"a folder with {LABELS}, or with one folder of images per class"
            raise DataError(f"{root} {what}: give {wants}")
        if (root / LABELS).is_file():
            return _from_labels(root)
        return _from_folders(root)
    except OSError as error:
        raise DataError(f"{error.filename or root}: {(error.strerror or str(error)).lower()}") from error


def check_labels(images: ImageSet, model_classes: int, model: str) -> None:
    """Refuse a set with a label that ``model`` cannot give.

    Raises:
        DataError: A label is ``model_classes`` or more.
    """
    for entry in images.entries:
        if entry.class_index >= model_classes:
            raise DataError(
                f"{images.root}: {entry.file} has the label {entry.class_index}, outside the classes of "
                f"{model} (0..{model_classes - 1}): wrong labels, or a model for other classes"
            )


def ordered(image_set: ImageSet, seed: int) -> tuple[ImageEntry, ...]:
    """All entries in the set's order.

    Args:
        image_set: The set.
        seed: Of ``numpy.random.Generator(PCG64(seed)).permutation``, applied to the file-name order; unused
            for a flat ILSVRC folder.
    """
    if _in_random_order(image_set):
        return image_set.entries
    places = np.random.Generator(np.random.PCG64(seed)).permutation(len(image_set.entries))
    return tuple(image_set.entries[place] for place in places)


def split_entries(image_set: ImageSet, images: int, how: str, seed: int) -> Split:
    """Part a set in images that calibrate and images that are scored.

    Args:
        image_set: The set.
        images: How many calibrate; of a set smaller than twice as many, half. A file's list is taken whole.
        how: ``first``: the first ``images`` in the set's order. ``even``: of the positions 0, 2, 4, ... in
            file-name order, which cover all classes of a class-ordered set, the first ``images`` in the set's
            order. Else the path of a text file that lists the images that calibrate, one name per line (empty
            lines and those with a leading ``#`` are skipped).
        seed: See ``ordered``.

    Returns:
        The two parts; the second holds everything that is not in the first.

    Raises:
        DataError: Fewer than two images, or a list that names an unknown image, one twice, or none.
        ConfigError: ``how`` is none of the three, or ``images`` is below 1.
    """
    if images < 1:
        raise ConfigError(f"{images} images to calibrate on: wants 1 or more")
    order = ordered(image_set, seed)
    kind = "file-name order" if _in_random_order(image_set) else f"seeded permutation (PCG64, seed {seed})"
    if how not in ("first", "even"):
        chosen = {entry.file for entry in named(image_set, _listed(how))}
        kind = f"listed in a file; {kind}"
    elif len(order) < 2:
        raise DataError(f"{image_set.root}: one image cannot be split: calibration and scoring want one each")
    elif how == "first":
        chosen = {entry.file for entry in order[: min(images, len(order) // 2)]}
    else:
        even = {entry.file for entry in image_set.entries[::2]}
        chosen = set([entry.file for entry in order if entry.file in even][:images])
        kind = f"even positions in file-name order; {kind}"
    return Split(
        calibration=tuple(entry for entry in order if entry.file in chosen),
        evaluation=tuple(entry for entry in order if entry.file not in chosen),
        order_kind=kind,
    )


def named(images: ImageSet, names: Iterable[str]) -> tuple[ImageEntry, ...]:
    """The entries with these file names, in the order of ``names``.

    Raises:
        DataError: A name is not in the set, or stands twice.
    """
    known = {entry.file: entry for entry in images.entries}
    wanted = list(names)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise DataError(f"{images.root} has no image {_some(unknown)}: names are relative to that folder")
    if len(set(wanted)) != len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise DataError(f"the list of images names {twice} twice")
    return tuple(known[name] for name in wanted)


def _in_random_order(images: ImageSet) -> bool:
    return images.layout == LABELS and all(_ILSVRC.fullmatch(entry.file) for entry in images.entries)


def _listed(path: str) -> list[str]:
    """The names in a split file."""
    file = Path(path)
    if not file.is_file():
        near = nearest(path, ("first", "even"))
        raise ConfigError(f"split {path!r} is neither 'first', 'even' nor a file{near}")
    try:
        if file.stat().st_size > _LIST_LIMIT:
            raise DataError(f"{file}: too large for a list of image names")
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise DataError(f"{file}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: wants one image name per line") from error
    names = [_normal(line.strip()) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not names:
        raise DataError(f"{file}: names no image: wants one name per line")
    return names


def _from_labels(root: Path) -> ImageSet:
    listed: dict[str, int] = {}
    for line, name, label in _rows(root / LABELS):
        where = f"{root / LABELS}, line {line}"
        if not re.fullmatch(r"[0-9]{1,9}", label):
            raise DataError(f"{where}: class_index {label!r} of {name} is no whole number of 0 or more")
        if name in listed:
            raise DataError(f"{where}: {name} stands twice: remove one of the lines")
        listed[name] = int(label)
    if not listed:
        raise DataError(f"{root / LABELS}: lists no image: wants lines of file,class_index below the header")
    missing = [name for name in listed if not (root / name).is_file()]
    if missing:
        raise DataError(f"{root / LABELS} names {len(missing)} missing files: {_some(missing)}")
    entries = tuple(ImageEntry(name, listed[name]) for name in sorted(listed))
    others = sum(1 for path in root.iterdir() if path.is_file() and path.name not in listed) - 1
    return ImageSet(
        root, LABELS, entries, max(listed.values()) + 1, _digest(root, entries), others, FolderSource(root)
    )


def _rows(path: Path) -> Iterable[tuple[int, str, str]]:
    """(line, file, class_index) of each line of ``labels.csv``, still as text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = [cell.strip() for cell in next(reader, [])]
            lacking = [column for column in _COLUMNS if header.count(column) != 1]
            if lacking:
                raise DataError(
                    f"{path}, line 1: wants one column {' and one '.join(lacking)}, comma-separated; "
                    f"the header is {','.join(header) or 'empty'!r}"
                )
            file, label = (header.index(column) for column in _COLUMNS)
            for cells in reader:
                if not cells or cells == [""]:
                    continue
                if len(cells) != len(header) or not cells[file].strip():
                    raise DataError(
                        f"{path}, line {reader.line_num}: wants {len(header)} cells as in the header, with a "
                        f"file name (one that holds a comma in double quotes); got {','.join(cells)!r}"
                    )
                yield reader.line_num, _normal(cells[file].strip()), cells[label].strip()
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: no comma-separated UTF-8 text: {error}") from error


def _from_folders(root: Path) -> ImageSet:
    folders = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    indices = _class_indices(root, folders)
    entries: list[ImageEntry] = []
    ignored = sum(1 for path in root.iterdir() if path.is_file())
    hollow: list[str] = []
    deeper: list[str] = []
    for folder, index in zip(folders, indices, strict=True):
        inside = list((root / folder).iterdir())
        images = [path.name for path in inside if _is_image(path)]
        ignored += sum(1 for path in inside if path.is_file()) - len(images)
        entries += [ImageEntry(f"{folder}/{name}", index) for name in images]
        if not images:
            hollow.append(folder)
            deeper += [f"{folder}/{path.name}" for path in inside if path.is_dir()][:1]
    if not entries:
        raise DataError(_nothing_found(root, folders, deeper))
    if hollow:
        _log.warning("%s: %d class folders hold no image: %s", root, len(hollow), _some(hollow))
    if ignored:
        _log.info("%s: %d files are no images, or lie beside the class folders: ignored", root, ignored)
    in_order = tuple(sorted(entries, key=lambda entry: entry.file))
    return ImageSet(
        root, "folders", in_order, max(indices) + 1, _digest(root, in_order), ignored, FolderSource(root)
    )


def _class_indices(root: Path, folders: Sequence[str]) -> list[int]:
    if not folders or not all(re.fullmatch(r"[0-9]{1,9}", name) for name in folders):
        return list(range(len(folders)))
    indices = [int(name) for name in folders]
    if len(set(indices)) != len(indices):
        raise DataError(f"{root}: two folders stand for one class: {_some(folders)}: rename or merge them")
    return indices


def _nothing_found(root: Path, folders: Sequence[str], deeper: Sequence[str]) -> str:
    endings = ", ".join(sorted(EXTENSIONS))
    looked = f"{root}: no images: looked for {LABELS} and for one folder per class with files of {endings}"
    if deeper:
        return f"{looked}; there are deeper folders: is {(root / deeper[0]).parent} the set?"
    if not folders and any(_is_image(path) for path in root.iterdir()):
        return f"{looked}; the images lie unlabelled in it: add {LABELS} with the columns file,class_index"
    return looked


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()


def _normal(name: str) -> str:
    """One spelling per file: ``./a//b.png`` and ``a\\b.png`` are ``a/b.png``."""
    return str(PurePosixPath(name.replace("\\", "/")))


def _digest(root: Path, entries: Sequence[ImageEntry]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        size = (root / entry.file).stat().st_size
        digest.update(f"{entry.file}\0{size}\0{entry.class_index}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest

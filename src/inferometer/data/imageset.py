"""Sets of labelled images: what is in one, its order and splits, and whether it fits a model.

How a folder or an archive becomes a set is told in ``layouts``. The order of a set is that of its file names
when it is a flat ILSVRC folder (``ILSVRC2012_val_00000001.JPEG``, ...), whose names are in random order
already; otherwise it is a seeded permutation, since the first images of a class-ordered folder are all of one
class.
"""

from __future__ import annotations

import hashlib
import logging
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from inferometer.data.labelling import normal
from inferometer.data.layouts import LABELS, recognise
from inferometer.data.listing import FolderTree, Tree, child, size_of, some
from inferometer.data.source import ImageSource
from inferometer.data.tars import open_tar
from inferometer.data.zips import open_zip
from inferometer.errors import ConfigError, DataError, nearest

__all__ = [
    "ImageEntry",
    "ImageSet",
    "Split",
    "check_labels",
    "check_unchanged",
    "named",
    "open_set",
    "ordered",
    "split_entries",
]

_ILSVRC = re.compile(r"ILSVRC\d{4}_(val|test)_\d{8}\.\w+")
_LIST_LIMIT = 16 * 1024**2

# First bytes. Source: RFC 1952 (gzip); the bzip2, xz and Zstandard (RFC 8878) file formats.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "Zstandard"}

_WITH_BACKGROUND = 1001  # classes of ImageNet models with one for the background

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """One labelled image: its file, relative to the set's folder with ``/``, and its class."""

    file: str
    class_index: int


@dataclass(frozen=True)
class ImageSet:
    """A set of labelled images.

    Attributes:
        root: The folder that the names begin at, or the archive.
        layout: How it lies: ``labels.csv``, ``table``, ``list``, ``devkit``, ``folders``, ``index folders``
            or ``wnid folders``, or ``unlabelled``.
        entries: All images, by file name.
        classes: Number of classes: 1000 in ILSVRC2012's numbering; of folders and lists of classes their
            number; else the largest index plus 1.
        listing_sha256: Hex digest of all names, sizes in bytes and labels: what the set is, unread.
        ignored: Files in the folder (and the class folders) that are not in the set.
        source: Gives their content.
        numbering: ``ilsvrc2012`` when the indices are those of the 1000 sorted WordNet ids for sure, else
            ``own``.
    """

    root: Path
    layout: str
    entries: tuple[ImageEntry, ...]
    classes: int
    listing_sha256: str
    ignored: int
    source: ImageSource
    numbering: Literal["ilsvrc2012", "own"] = "own"


@dataclass(frozen=True)
class Split:
    """Two disjoint parts of a set, each in the set's order, and how that order came about, for the record."""

    calibration: tuple[ImageEntry, ...]
    evaluation: tuple[ImageEntry, ...]
    order_kind: str


def open_set(path: str | Path, labels: str | Path | None = None, *, labelled: bool = True) -> ImageSet:
    """List a set of labelled images; no image is opened.

    Args:
        path: A folder, a zip or an uncompressed tar archive, or a folder in one (``set.zip/val``).
        labels: A file of labels; None: found in it, or beside it.
        labelled: Whether images without labels are refused; else their class is -1.

    Raises:
        DataError: Nothing there that could be a set, or a fault in a file of labels or an archive: the
            message names the line or the member.
    """
    root = Path(path)
    try:
        tree, base = _tree(root)
        layout = recognise(
            tree, base, None if labels is None else _file_of_labels(Path(labels)), labelled=labelled
        )
        entries = tuple(ImageEntry(name, layout.labels[name]) for name in sorted(layout.labels))
        digest = _digest(tree, layout.base, entries)
    except OSError as error:
        raise DataError(f"{error.filename or root}: {(error.strerror or str(error)).lower()}") from error
    return ImageSet(
        root=tree.root if tree.packed else tree.root / layout.base,
        layout=layout.kind,
        entries=entries,
        classes=layout.classes,
        listing_sha256=digest,
        ignored=layout.ignored,
        source=tree.source(layout.base),
        numbering=layout.numbering,
    )


def check_labels(images: ImageSet, model_classes: int, model: str, offset: int | None = None) -> None:
    """Refuse a set with a label that ``model`` cannot give.

    Args:
        images: The set.
        model_classes: How many scores the model gives.
        model: Its name, for messages.
        offset: Added to a label to get the model's class; None: nothing was said of it, which counts as 0.

    Raises:
        DataError: A label lies outside the model's classes, or the model has 1001, the set fewer, and
            nothing was said: its class 0 may be the background.
    """
    if offset is None and model_classes == _WITH_BACKGROUND and images.classes < _WITH_BACKGROUND:
        raise DataError(
            f"{model} has 1001 classes, {images.root} has labels of 0 to {images.classes - 1}: is the "
            "model's class 0 the background, as in ImageNet's models of 1001 classes? Then give "
            "--label-offset 1 (label_offset: 1 in a study), else 0"
        )
    if images.numbering == "own" and images.layout == "folders" and images.classes != model_classes:
        _log.warning(
            "%s: %d class folders, numbered in sorted order, for the %d classes of %s: does the model number "
            "them so? A file of labels (--labels) or a classes.txt in the folder says otherwise",
            images.root, images.classes, model_classes, model,
        )  # fmt: skip
    added = offset or 0
    for entry in images.entries:
        if not 0 <= entry.class_index + added < model_classes:
            shown = (
                f"{entry.class_index} {'+' if added > 0 else '-'} {abs(added)}"
                if added
                else entry.class_index
            )
            raise DataError(
                f"{images.root}: {entry.file} has the label {shown}, outside the classes of "
                f"{model} (0..{model_classes - 1}): wrong labels, or a model for other classes"
            )


def check_unchanged(images: ImageSet, listing_sha256: str | None) -> None:
    """Refuse a set that is not the one that was listed before, in another process.

    Args:
        images: The set as it is now.
        listing_sha256: Its digest when the study was planned.

    Raises:
        DataError: A name, a size or a label is another.
    """
    if images.listing_sha256 != listing_sha256:
        raise DataError(f"the images in {images.root} changed since the study was planned: start it again")


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
    return tuple(image_set.entries[place] for place in places.tolist())


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
        raise DataError(f"{images.root} has no image {some(unknown)}: names are relative to that folder")
    twice = [name for name, count in Counter(wanted).items() if count > 1]
    if twice:
        raise DataError(f"the list of images names {twice[0]} twice")
    return tuple(known[name] for name in wanted)


def _in_random_order(images: ImageSet) -> bool:
    return all(_ILSVRC.fullmatch(entry.file) for entry in images.entries)


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
    names = [normal(line.strip()) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not names:
        raise DataError(f"{file}: names no image: wants one name per line")
    return names


def _tree(root: Path) -> tuple[Tree, str]:
    """A folder, or an archive and a folder in it."""
    if root.is_dir():
        return FolderTree(root), ""
    if root.is_file():
        return _archive(root), ""
    for above in root.parents:
        if above.is_file():
            tree, base = _archive(above), root.relative_to(above).as_posix()
            if not (tree.at(base).files or tree.at(base).folders):
                raise DataError(f"{above} holds no folder {base}")
            return tree, base
    raise DataError(f"{root} does not exist: {_wanted()}")


def _archive(path: Path) -> Tree:
    with path.open("rb") as stream:
        start = stream.read(8)
    for magic, name in _COMPRESSED.items():
        if start.startswith(magic):
            raise DataError(
                f"{path}: is compressed ({name}): decompress it first, since it cannot be read at random"
            )
    ending = path.suffix.lower()
    if zipfile.is_zipfile(path) or start.startswith(b"PK\x03\x04") or ending == ".zip":
        return open_zip(path)
    if ending == ".tar" or tarfile.is_tarfile(path):
        return open_tar(path)
    raise DataError(f"{path} is a file: {_wanted()}")


def _wanted() -> str:
    return (
        f"give a folder with {LABELS}, or with one folder of images per class, or a zip or tar archive of one"
    )


def _file_of_labels(path: Path) -> Path:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(
            f"the file of labels {path} {what}: give a table, a list, or the devkit's ground truth"
        )
    return path


def _digest(tree: Tree, base: str, entries: Sequence[ImageEntry]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        line = f"{entry.file}\0{size_of(tree, child(base, entry.file))}\0{entry.class_index}\n"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()

"""Files of labels, read: tables (CSV, TSV), lists of names and labels, and the devkit's ground truth."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from inferometer.errors import DataError

__all__ = ["COLUMNS", "GroundTruth", "Labelled", "Row", "normal", "parsed", "text_of"]

COLUMNS: Final = ("file", "class_index")
"""Of ``labels.csv``."""

_FILES = frozenset(
    {"file", "filename", "filepath", "image", "imageid", "imagename", "imagepath", "img", "id", "path"}
)
# In order of trust. Of one tier exactly one may be there: two could disagree.
_LABELS = (
    frozenset({"classindex"}),
    frozenset({"wnid", "synset", "wordnetid"}),
    frozenset({"label", "labelid", "class", "classid", "classlabel", "classname", "target", "category"}),
    frozenset({"predictionstring"}),
)
_DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon"}


@dataclass(frozen=True, slots=True)
class Row:
    """One image of a file of labels: the line it stands in, its name, its label as written."""

    line: int
    name: str
    label: str


@dataclass(frozen=True)
class Labelled:
    """A table or list, with its path for messages. ``table`` tells which it is."""

    where: str
    rows: tuple[Row, ...]
    table: bool


@dataclass(frozen=True)
class GroundTruth:
    """One number per line, for the images by number."""

    where: str
    ids: tuple[int, ...]


def text_of(data: bytes, where: str) -> str:
    """A text file's content.

    Raises:
        DataError: Not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: no UTF-8 text: {error}") from error


def normal(name: str) -> str:
    """One spelling per file: ``./a//b.png`` and ``a\\b.png`` are ``a/b.png``."""
    return str(PurePosixPath(name.replace("\\", "/")))


def parsed(data: bytes, where: str, *, strict: bool = False) -> Labelled | GroundTruth:
    """Read a file of labels, recognised by what it holds.

    Args:
        data: Its content.
        where: Its path, for messages.
        strict: It is ``labels.csv``: comma-separated, with the columns ``file`` and ``class_index``.

    Raises:
        DataError: It is none of the forms, or a line is faulty; the message names the line.
    """
    try:
        text = data.decode("utf-8-sig")
        if strict:
            return Labelled(where, _labels_csv(text, where), True)
        lines = text.splitlines()
        first = next((line for line in lines if line.strip()), "")
        columns = _columns_of(first, where)
        if columns is not None:
            return Labelled(where, _table(text, where, *columns), True)
    except (csv.Error, UnicodeDecodeError) as error:
        kind = "comma-separated " if strict else "table or list in "
        raise DataError(f"{where}: no {kind}UTF-8 text: {error}") from error
    if re.search(r"\.(csv|tsv)$", where, re.IGNORECASE):
        raise DataError(
            f"{where}, line 1: wants a column for the image, such as file, and one for the label, such as "
            f"class_index or wnid, separated by commas, tabs or semicolons; the header is {first!r}"
        )
    if first and re.fullmatch(r"\s*-?[0-9]+\s*", first):
        return GroundTruth(where, _ids(lines, where))
    return Labelled(where, _list(lines, where), False)


def _labels_csv(text: str, where: str) -> tuple[Row, ...]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = [cell.strip() for cell in next(reader, [])]
    lacking = [column for column in COLUMNS if header.count(column) != 1]
    if lacking:
        raise DataError(
            f"{where}, line 1: wants one column {' and one '.join(lacking)}, comma-separated; "
            f"the header is {','.join(header) or 'empty'!r}"
        )
    file, label = (header.index(column) for column in COLUMNS)
    return tuple(_rows(reader, where, len(header), file, label))


def _columns_of(header: str, where: str) -> tuple[str, int, int] | None:
    """The delimiter of a table, and which columns hold image and label; None when it is no such header.

    Raises:
        DataError: Several columns could be it.
    """
    for delimiter in _DELIMITERS:
        cells = next(csv.reader([header], delimiter=delimiter), [])
        words = [re.sub("[^a-z0-9]", "", cell.lower()) for cell in cells]
        files = [place for place, word in enumerate(words) if word in _FILES]
        tiers = ([place for place, word in enumerate(words) if word in tier] for tier in _LABELS)
        labels = next((tier for tier in tiers if tier), [])
        if files and labels:
            for what, places in (("image", files), ("label", labels)):
                if len(places) > 1:
                    names = ", ".join(cells[place].strip() for place in places)
                    raise DataError(f"{where}, line 1: which column is the {what}: {names}? Keep one of them")
            return delimiter, files[0], labels[0]
    return None


def _table(text: str, where: str, delimiter: str, file: int, label: int) -> tuple[Row, ...]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    while not any(header):
        header = next(reader)
    rows = _rows(reader, where, len(header), file, label, _DELIMITERS[delimiter])
    if re.sub("[^a-z]", "", header[label].lower()) == "predictionstring":
        # Kaggle's, "n01978287 85 1 499 272 n01978287 3 4 498 200": a class and its box, again and again.
        return tuple(Row(row.line, row.name, (row.label.split() or [""])[0]) for row in rows)
    return tuple(rows)


def _rows(
    reader: Iterator[list[str]], where: str, width: int, file: int, label: int, delimiter: str = "comma"
) -> Iterator[Row]:
    for cells in reader:
        if not cells or cells == [""]:
            continue
        line: int = reader.line_num  # type: ignore[attr-defined]  # of the csv module's reader
        if len(cells) != width or not cells[file].strip():
            raise DataError(
                f"{where}, line {line}: wants {width} cells as in the header, with a "
                f"file name (one that holds a {delimiter} in double quotes); got {','.join(cells)!r}"
            )
        yield Row(line, normal(cells[file].strip()), cells[label].strip())


def _ids(lines: Sequence[str], where: str) -> tuple[int, ...]:
    ids = []
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
    for number, line in enumerate(lines[:last], 1):
        if not re.fullmatch(r"\s*[0-9]{1,9}\s*", line):
            raise DataError(f"{where}, line {number}: wants one number, as in line 1; got {line!r}")
        ids.append(int(line))
    return tuple(ids)


def _list(lines: Sequence[str], where: str) -> tuple[Row, ...]:
    """``NAME LABEL`` per line; with tabs the first two columns count."""
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        cells = line.strip().split("\t") if "\t" in line.strip() else line.rsplit(None, 1)
        if len(cells) < 2 or not cells[0].strip() or not cells[1].strip():
            raise DataError(
                f"{where}, line {number}: wants a file name and its label, such as "
                f"'ILSVRC2012_val_00000001.JPEG 65'; got {line!r}"
            )
        rows.append(Row(number, normal(cells[0].strip()), cells[1].strip()))
    return tuple(rows)

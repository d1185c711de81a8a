"""The store: append-only ``records.jsonl`` and sidecars, in one folder per study.

Layout of a folder::

    study.json       the study's name: which study the folder belongs to
    records.jsonl    one record a line; nothing is ever rewritten
    sidecars/        raw values that a record names, written before the line that names them
    .lock            held while a study writes here

A line is written whole and fsynced. A crash can tear the last line: it is reported, the next append
starts on a new line, and the fragment is skipped from then on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import signal
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from inferometer.errors import StoreError
from inferometer.records import FINAL_STATUSES, SCHEMA_VERSION, Record, Sidecar

__all__ = [
    "Contents",
    "PerImage",
    "SidecarMissing",
    "Store",
    "arrays",
    "is_store",
    "open_store",
    "read_layers",
    "read_per_image",
    "read_sidecar",
    "read_store",
    "sidecar_of",
    "write_atomically",
    "write_sidecar",
    "write_together",
]

RECORDS = "records.jsonl"
_STUDY = "study.json"
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair: JSON lets it pass, UTF-8 has none
_LARGEST = 1e30  # of any number: what is computed of it stays finite. Source: chosen


class SidecarMissing(StoreError):
    """A file that a record names is not there; the record itself is sound."""


@dataclass(frozen=True)
class Contents:
    """What a reader finds.

    Attributes:
        records: The final record of each trial, in order of first appearance (the last final line of an
            id counts).
        lines: Every record, ``interrupted`` and superseded ones included, in file order.
        fragments: Lines torn by a crash, skipped.
    """

    records: tuple[Record, ...]
    lines: tuple[Record, ...]
    fragments: int

    @property
    def final_ids(self) -> dict[str, Record]:
        """Final record by trial id."""
        return {record.id: record for record in self.records}


@dataclass(frozen=True)
class PerImage:
    """Outcome of an accuracy trial, image by image.

    Attributes:
        hashes: SHA-256 of each image file, hex.
        labels: ``[N] int64`` class indices.
        top: ``[N, k] int64`` best classes, best first.
    """

    hashes: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    top: npt.NDArray[np.int64]


class Store:
    """The writer's side: held by one process at a time (see ``open_store``)."""

    def __init__(self, folder: Path) -> None:
        """Wrap a folder that ``open_store`` has claimed and locked."""
        self.folder = folder

    def read(self) -> Contents:
        """All that is there now."""
        return read_store(self.folder)

    def append(self, record: Record) -> None:
        """Write one line and fsync it; on a full disk nothing of it stays.

        Raises:
            StoreError: The line could not be written whole.
        """
        path = self.folder / RECORDS
        line = record.model_dump_json(by_alias=True).encode() + b"\n"
        try:
            with _uninterrupted(), path.open("ab", buffering=0) as file:
                before = file.tell()
                rest = memoryview((b"" if _ends_whole(path) else b"\n") + line)
                try:
                    while rest:
                        rest = rest[file.write(rest) :]
                    os.fsync(file.fileno())
                    if before == 0:
                        _sync_folder(self.folder)
                except OSError:
                    os.ftruncate(file.fileno(), before)
                    raise
        except OSError as error:
            raise StoreError(f"{path}: could not write: {error.strerror}") from error


def is_store(folder: Path) -> bool:
    """Whether a study has written here."""
    return (folder / RECORDS).is_file() or (folder / _STUDY).is_file()


@contextlib.contextmanager
def open_store(folder: Path, study: str) -> Iterator[Store]:
    """Claim ``folder`` for the study of that name and hold it exclusively.

    Raises:
        StoreError: It is not writable, holds another study, or another process is writing there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sidecars").mkdir(exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise StoreError(f"{folder}: cannot write there: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                f"{folder}: another run is writing there: wait, or give another --out"
            ) from error
        except OSError as error:  # of a file system that knows no locks
            raise StoreError(
                f"{folder}: cannot be locked against a second run: {error.strerror}: give an --out elsewhere"
            ) from error
        _claim(folder, study)
        yield Store(folder)


def read_store(folder: Path) -> Contents:
    """Read a store at any moment, also while another process appends to it.

    Raises:
        StoreError: There is no store, a newer schema wrote it, or a whole line is no record.
    """
    path = folder / RECORDS if folder.is_dir() else folder
    try:
        raw = path.read_bytes()
    except OSError as error:
        if path.name == RECORDS and is_store(folder):
            return Contents((), (), 0)
        raise StoreError(f"{folder}: no records there: {(error.strerror or '').lower()}") from error
    lines: list[Record] = []
    fragments = 0
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            unsound = _unsound(content)
        except ValueError:
            fragments += 1
            continue
        except RecursionError as error:
            raise StoreError(f"{path}, line {number}: no record: it is nested too deep") from error
        lines.append(_record(content, f"{path}, line {number}"))
        if unsound is not None:  # in what the schema leaves open
            found = unsound.lstrip(".").encode("utf-8", "replace").decode()
            raise StoreError(f"{path}, line {number}: no record of this schema: {found}")
    final: dict[str, Record] = {}
    for record in lines:
        if record.status in FINAL_STATUSES:
            final[record.id] = record
    return Contents(tuple(final.values()), tuple(lines), fragments)


def write_sidecar(folder: Path, name: str, content: bytes) -> Sidecar:
    """Write ``sidecars/name`` whole and durably; returns what the record says of it."""
    path = folder / "sidecars" / name
    write_atomically(path, content)
    return Sidecar(path=f"sidecars/{name}", sha256=hashlib.sha256(content).hexdigest())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or all of the new; fsynced.

    Raises:
        StoreError: It could not be written; nothing is left behind.
    """
    write_together({path: content})


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write files that belong together: nothing is replaced before all of them lie on the disk; fsynced.

    Raises:
        StoreError: One could not be written; no draft is left behind.
    """
    drafts: dict[Path, Path] = {}
    path = Path()
    try:
        for path, content in files.items():
            place = path.resolve()  # a link stays a link
            if place.exists() and not place.is_file():
                raise StoreError(f"{path}: is no ordinary file, so it is not replaced: give another path")
            place.parent.mkdir(parents=True, exist_ok=True)
            drafts[place] = draft = place.with_name(f".{place.name}.{os.getpid()}")
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for place, draft in drafts.items():
            draft.replace(place)
        for folder in {place.parent for place in drafts}:
            _sync_folder(folder)
    except OSError as error:
        raise StoreError(f"{path}: could not write: {error.strerror}") from error
    finally:
        for draft in drafts.values():
            with contextlib.suppress(OSError):  # gone already when all went well
                draft.unlink()


def arrays(**named: npt.NDArray[Any]) -> bytes:
    """The bytes of a compressed NumPy archive."""
    buffer = BytesIO()
    np.savez_compressed(buffer, **named)  # type: ignore[arg-type]
    return buffer.getvalue()


def sidecar_of(record: Record, ending: str) -> Sidecar | None:
    """The record's sidecar whose name ends so, if there is one."""
    return next((item for item in record.sidecars if item.path.endswith(ending)), None)


def read_per_image(folder: Path, record: Record) -> PerImage | None:
    """The per-image outcome of an accuracy record; None when the record has none.

    Raises:
        StoreError: The sidecar is missing or is not the one that was written.
    """
    sidecar = sidecar_of(record, ".top5.npz")
    if sidecar is None:
        return None
    path, content = folder / sidecar.path, read_sidecar(folder, sidecar)
    try:
        with np.load(BytesIO(content), allow_pickle=False) as data:
            hashes: Sequence[str] = [row.tobytes().hex() for row in data["hashes"]]
            return PerImage(tuple(hashes), data["labels"].astype(np.int64), data["top"].astype(np.int64))
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path}: no per-image outcome: {error}") from error


def read_layers(folder: Path, record: Record) -> Any | None:
    """What the record's trial read back of its layers (``executed``, ``profile``), as its JSON.

    None when the record has no such sidecar.

    Raises:
        SidecarMissing: The sidecar is not there.
        StoreError: It cannot be read, is not the one that was written, or is no JSON.
    """
    sidecar = sidecar_of(record, ".layers.json")
    if sidecar is None:
        return None
    try:
        return _parsed(read_sidecar(folder, sidecar))
    except (ValueError, RecursionError, _NoNumberError) as error:
        raise StoreError(f"{folder / sidecar.path}: no layers: {error}") from error


def read_sidecar(folder: Path, sidecar: Sidecar) -> bytes:
    """The bytes of a sidecar, held against its hash.

    Raises:
        SidecarMissing: It is not there.
        StoreError: It cannot be read, or is not the one that was written.
    """
    path = folder / sidecar.path
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise SidecarMissing(f"{path}: a record names it, but: {error.strerror}") from error
    except OSError as error:
        raise StoreError(f"{path}: a record names it, but: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != sidecar.sha256:
        raise StoreError(f"{path}: its content is not what the record names (SHA-256 differs)")
    return content


class _NoNumberError(Exception):
    """NaN, an infinity, or a number too large for a float, where JSON has a number."""


def _parsed(content: bytes) -> Any:
    """The value of some JSON; Python's own reader lets numbers pass that are none.

    Raises:
        ValueError: It is no JSON.
        _NoNumberError: One of its numbers is none.
    """

    def finite(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise _NoNumberError(f"{text[:40]} is no number")
        return value

    return json.loads(content, parse_float=finite, parse_constant=finite)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until a line is written whole."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _record(content: Any, where: str) -> Record:
    version = content.get("schema") if isinstance(content, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise StoreError(
            f"{where}: written by a newer Inferometer (schema {version}, this one reads {SCHEMA_VERSION}):"
            " upgrade this one"
        )
    try:
        return Record.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"{where}: no record of this schema: {place}: {first['msg'].lower()}") from error


def _unsound(value: Any) -> str | None:
    """Where in a value a number or a text is none, and why; None where all are sound."""
    if isinstance(value, float) and not math.isfinite(value):
        return ": input should be a finite number"
    if isinstance(value, int | float) and abs(value) > _LARGEST:
        return f": input should be at most {_LARGEST:g}"
    if isinstance(value, str) and _HALF.search(value):
        return ": input should be a valid string"
    if not isinstance(value, dict | list):
        return None
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        found = _unsound(inner) or _unsound(key)
        if found is not None:
            return f".{key}{found}"
    return None


def _claim(folder: Path, study: str) -> None:
    marker = folder / _STUDY
    if marker.exists():
        try:
            owner = json.loads(marker.read_text(encoding="utf-8"))["name"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{marker}: unreadable; is {folder} a study's folder?") from error
        if owner != study:
            raise StoreError(f"{folder}: belongs to the study {owner!r}, not {study!r}: give another --out")
        return
    if (folder / RECORDS).exists():
        raise StoreError(f"{folder}: holds records but no {_STUDY}: give another --out")
    write_atomically(marker, json.dumps({"name": study}).encode() + b"\n")


def _ends_whole(path: Path) -> bool:
    size = path.stat().st_size
    if size == 0:
        return True
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

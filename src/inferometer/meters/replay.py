"""Readings from a file: a recorded trace, or what an external logger writes while it runs.

The file is a table in UTF-8 with the time in its first column, with or without a header::

    timestamp,watts
    2024-05-01T12:00:00+02:00,231.5

Cells are parted by comma, semicolon or tab. A time is ISO 8601 with a date and a time of day (with an offset
or ``Z``, else in the time zone of the option ``zone``), or a plain number: seconds since 1970, fractions
allowed, milliseconds refused. A value is a number with a decimal point; any other cell is a reading that is
not there (NaN). A line counts once its newline is written.
"""

from __future__ import annotations

import csv
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from inferometer.contracts import Channel, MeterSession, MeterStatus, Quantity, Sample
from inferometer.errors import ConfigError, MeterError, nearest

__all__ = ["ReplayMeter"]

_UNITS: Mapping[str, tuple[Quantity, float]] = {
    "W": ("power", 1.0),
    "mW": ("power", 1e-3),
    "kW": ("power", 1e3),
    "J": ("energy", 1.0),
    "mJ": ("energy", 1e-3),
    "Wh": ("energy", 3600.0),
    "kWh": ("energy", 3.6e6),
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d.*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = re.compile(r"\d+(\.\d*)?")
# The year 2200: milliseconds since 1970 are beyond it, and nanoseconds until then fit into 64 bits.
_LATEST_NS = 7_258_118_400 * 10**9
_GLANCE_BYTES = 65536  # enough to judge a file by


@dataclass(frozen=True)
class _Options:
    """The options, checked; defaults where they are absent."""

    file: Path | None
    zone: tzinfo
    unit: str
    clock_offset_s: float
    column: int | str | None
    boundary: str
    part: str
    semantics: str
    align: str
    gain_error: float | None
    period_s: float | None


class ReplayMeter:
    """The meter ``replay``: the readings of a file, as one pushed channel.

    Options: ``file`` (required); ``unit`` (W, mW, kW: power; J, mJ, Wh, kWh: cumulative energy; W if absent);
    ``column`` of the values, by its name in the header or its number, the time being 1 (absent: the one
    called watts, or the second of two); ``zone``, the IANA name of the time zone of times without an offset
    (UTC); ``clock_offset_s``, how far the logger's clock is ahead of this machine's (0); ``align``, ``wall``:
    times are wall-clock times, or ``start``: the first reading happens when the meter is opened (``wall``);
    ``period_s``, where the file does not show it yet; the channel's ``boundary`` (external meter), ``part``
    (the file's stem), ``semantics`` (as logged) and ``gain_error``.
    """

    name = "replay"

    def status(self, options: Mapping[str, Any]) -> Sequence[MeterStatus]:
        """One entry: whether the file's beginning can be read as the options say."""
        chosen = _chosen(options)
        if chosen.file is None:
            remedy = "name the table of an external logger or a recorded trace with the option file"
            return (MeterStatus("replay", reason="no file is named", remedy=remedy),)
        subject, reads = chosen.part, (f"{chosen.boundary} {_UNITS[chosen.unit][0]}",)
        try:
            with _open(chosen.file) as stream:
                table = _Table(chosen)
                rows = table.rows(stream.read(_GLANCE_BYTES))
            _refuse(table.fault)
            _period_s(chosen, rows)
        except (ConfigError, MeterError, OSError) as error:
            return (MeterStatus(subject, reads, reason=str(error)),)
        return (MeterStatus(subject, reads),)

    def open(self, options: Mapping[str, Any]) -> MeterSession:
        """Read what the file holds so far, and follow it from there.

        Raises:
            ConfigError: An option is not known, does not take its value, or is missing.
            MeterError: The file cannot be read, or is no such table; the message names the line.
        """
        chosen = _chosen(options)
        if chosen.file is None:
            raise ConfigError("replay: the option file is missing: it names the table to read")
        stream = _open(chosen.file)
        try:
            return _ReplaySession(chosen, chosen.file, stream)
        except (ConfigError, MeterError):
            stream.close()
            raise


class _ReplaySession(MeterSession):
    """Follows one file. Times are placed by the clocks as they stood when it was opened.

    Where the two clocks drift apart or one is set later, readings are off by as much. Once the file shows a
    fault, what came before is still given, and then every call tells the fault: what follows it has no sure
    place in time.
    """

    def __init__(self, options: _Options, path: Path, stream: BinaryIO) -> None:
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        self._opened_ns = (before_ns + after_ns) // 2
        # Added to a time of the file it gives CLOCK_MONOTONIC; aligned at the start, the first row tells it.
        self._shift_ns: int | None = None
        if options.align == "wall":
            self._shift_ns = self._opened_ns - wall_ns - round(options.clock_offset_s * 1e9)
        self._path, self._stream, self._read_bytes = path, stream, 0
        self._live, self._table = options.align == "start", _Table(options)
        self._waiting: deque[Sample] = deque()
        rows = self._new_rows()
        _refuse(self._table.fault)
        self._place(rows)
        self.channels = (_channel(options, _period_s(options, rows)),)
        self.facts = {"file": path.name, "zone": str(options.zone)} | {
            key: getattr(options, key) for key in ("unit", "column", "clock_offset_s", "align")
        }

    def read(self, place: int) -> float:
        raise MeterError(f"replay: channel {place} is pushed: its readings come by themselves")

    def arrived(self) -> Sequence[Sample]:
        """Readings of whole new lines; aligned at the start, only those whose time has come."""
        self._place(self._new_rows())
        now_ns = time.monotonic_ns()
        given: list[Sample] = []
        while self._waiting and (not self._live or self._waiting[0].begin_ns <= now_ns):
            given.append(self._waiting.popleft())
        _refuse(None if given or self._waiting else self._table.fault)
        return given

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()

    def _new_rows(self) -> list[_Row]:
        if self._table.fault:
            return []
        try:
            self._stream.seek(0, 2)
            if self._stream.tell() < self._read_bytes:
                self._table.fault = f"replay: {self._path}: became shorter while it was read"
                return []
            self._stream.seek(self._read_bytes)
            new = self._stream.read()
        except OSError as error:
            raise MeterError(f"replay: {self._path}: {error.strerror or error}") from error
        self._read_bytes += len(new)
        return self._table.rows(new)

    def _place(self, rows: Sequence[_Row]) -> None:
        for row in rows:
            if self._shift_ns is None:
                self._shift_ns = self._opened_ns - row.time_ns
            at_ns = row.time_ns + self._shift_ns
            self._waiting.append(Sample(0, at_ns, at_ns, row.value))


@dataclass(frozen=True)
class _Row:
    """One reading: nanoseconds since 1970 by the logger's clock, and the value in SI units."""

    time_ns: int
    value: float


@dataclass
class _Table:
    """Makes rows of a file's bytes as they come; ``fault`` says why it stopped, once it did."""

    options: _Options
    fault: str | None = None
    _torn: bytes = b""
    _line: int = 0
    _delimiter: str = ""
    _width: int = 0
    _place: int = 1
    _last: _Row | None = None
    _highest: float = float("-inf")

    def rows(self, new: bytes) -> list[_Row]:
        """The rows of the lines that ``new`` completes, up to the first fault."""
        *lines, self._torn = (self._torn + new).split(b"\n")
        found: list[_Row] = []
        for line in lines:
            if self.fault:
                break
            self._line += 1
            try:
                row = self._row(line)
            except (ValueError, csv.Error) as error:
                self.fault = f"replay: {self.options.file}: line {self._line}: {error}"
            else:
                found += [row] if row else []
        return found

    def _row(self, line: bytes) -> _Row | None:
        text = line.decode("utf-8-sig" if self._line == 1 else "utf-8").strip("\r\n ")
        if not text.strip():
            return None
        if not self._delimiter:
            self._delimiter = next((mark for mark in ("\t", ";") if mark in text), ",")
        cells = [cell.strip() for cell in next(csv.reader([text], delimiter=self._delimiter))]
        if not self._width:
            headed = not re.match(r"[-+.\d]", cells[0])
            self._place, self._width = _column(self.options.column, cells, headed), len(cells)
            if headed:
                return None
        if any(cells[self._width :]):  # 12,5 for 12.5 would be read as 12
            raise ValueError(f"has {len(cells)} cells, the first line has {self._width}")
        row = _Row(_time_ns(cells[0], self.options.zone), self._value(cells))
        if self._last and row.time_ns < self._last.time_ns:
            raise ValueError(f"time goes backwards, to {cells[0]}")
        if _UNITS[self.options.unit][0] == "energy":
            if row.value < self._highest:
                raise ValueError(f"cumulative energy falls, to {cells[self._place]} {self.options.unit}")
            self._highest = max(self._highest, row.value)  # NaN leaves it
        self._last = row
        return row

    def _value(self, cells: Sequence[str]) -> float:
        cell = cells[self._place] if self._place < len(cells) else ""
        if not _NUMBER.fullmatch(cell):
            if self._delimiter != "," and _NUMBER.fullmatch(cell.replace(",", ".")):
                raise ValueError(f"{cell!r} has a decimal comma: write a decimal point")
            return float("nan")
        value = float(cell) * _UNITS[self.options.unit][1]
        return value if abs(value) < float("inf") else float("nan")


def _column(wanted: int | str | None, cells: Sequence[str], headed: bool) -> int:
    """The place of the values, from 0 on."""
    if isinstance(wanted, int):
        if wanted > len(cells):
            raise ValueError(f"has no column {wanted}: there are {len(cells)}")
        return wanted - 1
    if wanted is not None:
        if not headed:
            raise ValueError(f"is no header: give the column {wanted!r} by its number")
        if cells.count(wanted) != 1:
            raise ValueError(f"has {cells.count(wanted)} columns {wanted!r}{nearest(wanted, cells[1:])}")
        return cells.index(wanted)
    called = [place for place, cell in enumerate(cells) if headed and cell.casefold() == "watts"]
    if len(called) == 1:
        return called[0]
    if len(cells) != 2:
        raise ValueError(f"has {len(cells)} columns: say by the option column which one holds the values")
    return 1


def _time_ns(text: str, zone: tzinfo) -> int:
    """Nanoseconds since 1970."""
    if _SECONDS.fullmatch(text):
        time_ns = int((Decimal(text) * 10**9).to_integral_value())
    elif _ISO.fullmatch(text):
        when = datetime.fromisoformat(text)
        since = (_local(when, zone) if when.tzinfo is None else when) - _EPOCH
        time_ns = since // timedelta(microseconds=1) * 1000
    else:
        raise ValueError(f"the time {text!r} is neither ISO 8601 (date and time) nor seconds since 1970")
    if not 0 <= time_ns < _LATEST_NS:
        raise ValueError(f"the time {text} is not from 1970 to 2200; plain numbers are seconds since 1970")
    return time_ns


def _local(when: datetime, zone: tzinfo) -> datetime:
    """A time of a zone's clocks; refused where they showed it twice or never."""
    first, second = when.replace(tzinfo=zone), when.replace(tzinfo=zone, fold=1)
    if first.utcoffset() == second.utcoffset():
        return first
    shown = first.astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=0) == when
    how = "is ambiguous in" if shown else "does not exist in"
    raise ValueError(
        f"the time {when.isoformat(' ')} {how} {zone}, whose clocks change then: log in UTC or with an offset"
    )


def _period_s(options: _Options, rows: Sequence[_Row]) -> float:
    if options.period_s is not None:
        return options.period_s
    if len(rows) < 2:
        lack = f"holds {len(rows)} whole lines of readings, which do not show how far apart they come"
        raise ConfigError(f"replay: {options.file}: {lack}: give period_s")
    period_s = median(after.time_ns - before.time_ns for before, after in pairwise(rows)) / 1e9
    if period_s <= 0:
        raise ConfigError(f"replay: {options.file}: most readings share their times: give period_s")
    return period_s


def _channel(options: _Options, period_s: float) -> Channel:
    quantity, _ = _UNITS[options.unit]
    name, own = f"{quantity} {options.part}", (options.boundary, options.part, options.semantics)
    return Channel(name, quantity, *own, period_s, primary=True, gain_error=options.gain_error, pushed=True)


def _refuse(fault: str | None) -> None:
    if fault:
        raise MeterError(fault)


def _open(path: Path) -> BinaryIO:
    try:
        if path.exists() and not path.is_file():
            raise MeterError(f"replay: {path}: is no file")  # opening a pipe would wait for its writer
        return path.open("rb")
    except OSError as error:
        raise MeterError(f"replay: {path}: {error.strerror or error}") from error


def _chosen(options: Mapping[str, Any]) -> _Options:
    """The options, checked; nothing is opened."""
    known = (*_Options.__dataclass_fields__, "devices")
    for key in sorted(options.keys() - set(known)):
        raise ConfigError(f"replay: unknown option {key!r}{nearest(key, known)}")
    devices = options.get("devices", ())
    if not isinstance(devices, (list, tuple)) or not all(isinstance(one, str) for one in devices):
        raise ConfigError(f"replay: devices: wants a list of UUIDs, got {devices!r}")
    file = _text(options, "file", "")
    path = Path(file) if file else None
    unit, align = _text(options, "unit", "W"), _text(options, "align", "wall")
    for key, value, allowed in (("unit", unit, tuple(_UNITS)), ("align", align, ("wall", "start"))):
        if value not in allowed:
            raise ConfigError(f"replay: {key}: {value!r} is not known{nearest(value, allowed)}")
    clock_offset_s = _real(options, "clock_offset_s", "a number of seconds", lambda _: True) or 0.0
    if align == "start" and clock_offset_s:
        raise ConfigError("replay: clock_offset_s has no meaning with align 'start': leave it out")
    return _Options(
        file=path,
        zone=_zone(_text(options, "zone", "UTC")),
        unit=unit,
        clock_offset_s=clock_offset_s,
        column=_wanted(options.get("column")),
        boundary=_text(options, "boundary", "external meter"),
        part=_text(options, "part", path.stem if path else "replay"),
        semantics=_text(options, "semantics", "as logged"),
        align=align,
        gain_error=_real(options, "gain_error", "a fraction from 0 to below 1", lambda it: 0 <= it < 1),
        period_s=_real(options, "period_s", "seconds above 0", lambda it: it > 0),
    )


def _text(options: Mapping[str, Any], key: str, default: str) -> str:
    value = options.get(key)
    if value is None:
        return default
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"replay: {key}: wants a text, got {value!r}")
    return value


def _real(options: Mapping[str, Any], key: str, what: str, fits: Callable[[float], bool]) -> float | None:
    value = options.get(key)
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) < float("inf") or not fits(value):
        raise ConfigError(f"replay: {key}: wants {what}, got {value!r}")
    return float(value)


def _wanted(column: object) -> int | str | None:
    whole = isinstance(column, int) and not isinstance(column, bool) and column >= 2
    if column is None or whole or (isinstance(column, str) and column.strip()):
        return cast("int | str | None", column)
    raise ConfigError(f"replay: column: wants a name, or a number from 2 on, got {column!r}")


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"replay: zone: {name!r} is not in the time zone database (tzdata)") from error

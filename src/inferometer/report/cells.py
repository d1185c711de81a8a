"""What tables are made of: cells with text and raw value, columns, and the columns that name a setup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inferometer.analysis.marks import MARK_NOTE, is_marked, ran_text, with_mark
from inferometer.analysis.rows import Setup, Summary
from inferometer.analysis.wording import count, plural, setting
from inferometer.records import Precision

__all__ = [
    "NONE",
    "Cell",
    "Column",
    "Place",
    "Raw",
    "Table",
    "Tone",
    "mark_note",
    "marked_cell",
    "optional",
    "raw_range",
    "status_cell",
]

Raw = str | int | float | None
Tone = Literal["plain", "good", "bad", "muted"]

NONE = "\N{EN DASH}"
"""Stands in a cell where there is nothing to say."""

_STATUS = {"out_of_memory": "out of memory", "timeout": "time limit"}
_FAULTS = ("failed", "timeout")


@dataclass(frozen=True)
class Column:
    """A column's name, its unit where it has one, and how it is set.

    ``header`` cells name their row. ``spare`` says which columns go first where there is no room: the
    highest; 0 always stays. ``prose`` may be broken into lines.
    """

    name: str
    unit: str | None = None
    align: Literal["left", "right"] = "left"
    header: bool = False
    spare: int = 0
    prose: bool = False


@dataclass(frozen=True)
class Cell:
    """What is shown, the raw value behind it (SI units, fractions), its tone, and a page's hint."""

    text: str
    raw: Raw
    tone: Tone = "plain"
    hint: str | None = None


@dataclass(frozen=True)
class Table:
    """A titled table; ``note`` says how to read it. Every row has one cell per column."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str | None = None


class Place:
    """The columns that say which setup a row is about: only those in which the rows differ."""

    def __init__(
        self,
        summary: Summary,
        setups: Sequence[Setup],
        *,
        model: bool = True,
        batch: bool = True,
        precision: bool = True,
    ) -> None:
        """Take the setups of a table's rows; ``model``, ``batch`` and ``precision``: are these columns?"""
        self._same: list[str] = []
        self._columns: list[tuple[Column, Callable[[Setup], Cell]]] = []
        if model:
            self._columns.append(
                (Column("Model", header=True), lambda one: Cell(summary.names[one.model], one.model))
            )
        for name in ("engine", "device"):
            values = {str(getattr(one, name)) for one in setups}
            if len(values) > 1:
                self._columns.append((Column(name.capitalize()), _field(name)))
            else:
                self._same += values
        if len({one.machine for one in setups}) > 1:
            self._columns.append(
                (Column("Machine", None, "right"), lambda one: Cell(str(one.machine + 1), one.machine + 1))
            )
        if any(one.variant for one in setups):
            self._columns.append((Column("Settings", prose=True), _variant))
        several = any(one.ranks > 1 for one in setups)
        self._of_first = several and len({one.machine for one in setups}) > 1
        if len({one.ranks for one in setups}) > 1:
            self._columns.append((Column("Ranks", None, "right", header=True), _field("ranks")))
        elif several:
            self._same.append(plural(setups[0].ranks, "rank"))
        self._places = any(one.place is not None for one in setups)
        if self._places:
            self._columns.append((Column("Place", None, "right"), lambda one: optional(one.place, str)))
        if precision:
            self._columns.append(
                (Column("Precision", header=True), lambda one: Cell(one.precision.upper(), one.precision))
            )
        if batch:
            self._columns.append(
                (Column("Batch", None, "right", header=True), lambda one: optional(one.batch, count))
            )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, the model's first where it is one."""
        return tuple(column for column, _ in self._columns)

    def cells(self, setup: Setup, share: float | None = None) -> tuple[Cell, ...]:
        """One row's cells for these columns; where ``share`` is low, the precision carries the mark."""
        return tuple(
            marked_cell(cell(setup), share, setup.precision) if column.name == "Precision" else cell(setup)
            for column, cell in self._columns
        )

    def note(self, text: str) -> str:
        """The note, led by what all rows have in common and followed by what the columns mean."""
        led = f"All on {', '.join(self._same)}. {text}" if self._same else text
        if self._places:
            led += " Place: which device worked alone, as the rank that it has in trials of several."
        if self._of_first:
            led += " The machine of several ranks is that of the first."
        return led


def marked_cell(cell: Cell, share: float | None, precision: Precision) -> Cell:
    """The cell with the mark behind its text and what ran as its hint; as it is where no mark is due."""
    if not is_marked(share):
        return cell
    hint = f"multiply-accumulates at this precision: {ran_text(share, precision)}"
    return replace(cell, text=with_mark(cell.text, share), hint=hint)


def mark_note(*shares: float | None) -> str:
    """The sentence on the mark, with a space before it; empty where no share has one."""
    return f" {MARK_NOTE}" if is_marked(*shares) else ""


def _field(name: str) -> Callable[[Setup], Cell]:
    def cell(setup: Setup) -> Cell:
        value = getattr(setup, name)
        return Cell(str(value), value)

    return cell


def _variant(setup: Setup) -> Cell:
    text = ", ".join(setting(name.removeprefix("options."), value) for name, value in setup.variant)
    return Cell(text or NONE, text or None)


def status_cell(status: str) -> Cell:
    """A trial's status in words; the two that are faults stand out."""
    return Cell(_STATUS.get(status, status), status, "bad" if status in _FAULTS else "muted")


def optional(value: Raw, text: Callable[..., str], tone: Tone = "plain") -> Cell:
    """The value through ``text``, or a dash when it is None."""
    return Cell(NONE, None, "muted") if value is None else Cell(text(value), value, tone)


def raw_range(interval: tuple[float, float]) -> str:
    """Both ends of an interval as one raw value."""
    return f"{interval[0]!r} {interval[1]!r}"

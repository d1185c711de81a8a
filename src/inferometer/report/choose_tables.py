"""A choice as a table with a verdict on every need, and as a JSON document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from inferometer.analysis.choose_rows import Candidate, Choice, NeedVerdict, What
from inferometer.analysis.choose_words import advice, sentence
from inferometer.analysis.wording import count, milliseconds, points, rate, significant
from inferometer.report.cells import NONE, Cell, Column, Raw, Table, Tone, mark_note

__all__ = ["choice_document", "choice_table"]

_TONES: dict[NeedVerdict, Tone] = {"meets": "good", "fails": "bad", "not known": "muted"}
_MARKS: dict[NeedVerdict, str] = {"meets": "", "fails": " \N{MULTIPLICATION X}", "not known": " ?"}
_ALONE = " *"
_NOTE = (
    "Rate, J/image and top-1: means. Devices: as many as the lower end of the rate's interval wants; load: of"
    " all of them. p99: of the worst repeat's calls while the device is kept busy. Beaten by: another that is"
    " no worse in any of rate, p99, joules and top-1 that this one tells, and better in one."
)


def choice_table(choice: Choice) -> Table:
    """All candidates, best first; what nobody tells, and nobody asked for, has no column."""
    several = len(choice.folders) > 1
    alone = any(one.crew.latency and not one.crew.latency.under_load for one in choice.candidates)
    columns: list[tuple[Column, Callable[[Candidate], Cell]]] = [
        (Column("Setup", header=True, prose=True), lambda one: Cell(one.title, one.title)),
        (Column("Rate", "images/s", "right"), lambda one: Cell(rate(one.rate), one.rate)),
        (Column("p99", "ms", "right", spare=1), _p99),
        (Column("Net", "J/image", "right", spare=2), _joules),
        (Column("Top-1", "%", "right", spare=2), _top1),
        (Column("Loss", "points", "right", spare=2), _loss),
        (Column("Devices", None, "right"), lambda one: _judged(one, "rate", one.devices, count)),
        (Column("Load", "W", "right", spare=2), lambda one: _judged(one, "watts", one.load_w, significant)),
        (Column("Price", None, "right", spare=2), lambda one: _judged(one, None, one.price, significant)),
        (Column("Verdict"), lambda one: Cell(one.verdict, one.verdict, _TONES[one.verdict])),
        (Column("Why not", prose=True), lambda one: Cell(one.why_not or "", one.why_not)),
        (Column("Beaten by", prose=True, spare=3), lambda one: Cell(one.beaten_by or "", one.beaten_by)),
    ]
    if several:
        columns.insert(0, (Column("Study", header=True), lambda one: Cell(one.source, one.source)))
    rows = [tuple(cell(one) for _, cell in columns) for one in choice.candidates]
    note = _NOTE + (f"{_ALONE}: of one request at a time." if alone else "")
    if any(one.judged for one in choice.candidates):
        note += f" {_MARKS['fails'].strip()}: fails the need;{_MARKS['not known']}: not known."
    note += mark_note(*(one.mac_share for one in choice.candidates))
    return _without_empty(
        Table("choice", "Setups", tuple(column for column, _ in columns), tuple(rows), note)
    )


def choice_document(choice: Choice) -> dict[str, Any]:
    """The choice as one JSON document."""
    return {"sentence": sentence(choice), "advice": advice(choice), **asdict(choice)}


def _without_empty(table: Table) -> Table:
    kept = [
        place
        for place in range(len(table.columns))
        if any(row[place].text not in ("", NONE) for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def _p99(one: Candidate) -> Cell:
    latency = one.crew.latency
    value = latency.p99_s if latency else None
    cell = _judged(one, "p99", value, milliseconds)
    if latency is not None and value is None and latency.least_s > 0:
        cell = replace(
            cell, text=f"\N{GREATER-THAN OR EQUAL TO} {milliseconds(latency.least_s)}{_mark(one, 'p99')}"
        )
    alone = _ALONE if latency is not None and not latency.under_load else ""
    return replace(cell, text=cell.text + alone)


def _joules(one: Candidate) -> Cell:
    return _judged(one, "joules", one.crew.j_per_image, significant)


def _top1(one: Candidate) -> Cell:
    return _judged(one, "top-1", one.top1, lambda value: f"{value * 100:.1f}")


def _loss(one: Candidate) -> Cell:
    return _judged(one, "loss", one.loss, points)


def _judged(one: Candidate, what: What | None, value: Raw, text: Callable[[Any], str]) -> Cell:
    """A figure with the verdict on its need, as a sign and a tone; neither where it was not asked for."""
    verdict = one.verdict_on(what) if what else None
    shown = NONE if value is None else text(value)
    if verdict is None:
        return Cell(shown, value, "muted" if value is None else "plain")
    return Cell(f"{shown}{_mark(one, what)}", value, _TONES[verdict])


def _mark(one: Candidate, what: What | None) -> str:
    verdict = one.verdict_on(what) if what else None
    return "" if verdict is None else _MARKS[verdict]

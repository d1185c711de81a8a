"""Tables of what MLPerf's LoadGen measured: apart from all others, since its clock is another."""

from __future__ import annotations

from collections.abc import Sequence

from inferometer.analysis.loadgen import LoadGenRow
from inferometer.analysis.rows import Summary
from inferometer.analysis.wording import count, joined, milliseconds, rate
from inferometer.report.cells import NONE, Cell, Column, Place, Table, mark_note, optional, status_cell

__all__ = ["loadgen_tables"]

_NOTE = (
    "Measured with MLPerf's {loadgen}, on LoadGen's clock: not an MLPerf result, and not to be mixed with the"
    " other tables' rates and latencies. Medians of the repeats. "
)
_OFFLINE = "All samples are issued at once; a sample is one image."
_SINGLE = "One call at a time; p90 is the 90th percentile of the time per call."
_INVALID = " INVALID is LoadGen's word for a run that did not meet its own conditions: {reasons}."


def loadgen_tables(summary: Summary) -> tuple[Table, ...]:
    """One table for each scenario; one without trials has no rows."""
    return tuple(_table(summary, scenario) for scenario in ("offline", "single-stream"))


def _table(summary: Summary, scenario: str) -> Table:
    rows = [row for row in summary.loadgen if row.scenario == scenario]
    place = Place(summary, [row.setup for row in rows])
    offline = scenario == "offline"

    def cells(row: LoadGenRow) -> tuple[Cell, ...]:
        each = [rate(one) for one in row.samples_per_s] if offline else [milliseconds(p) for p in row.p90_s]
        return (
            *place.cells(row.setup, row.mac_share if row.runs else None),
            _figure(row, offline),
            Cell(" \N{MIDDLE DOT} ".join(each) or NONE, len(each)),
            Cell(count(row.samples), row.samples) if row.runs else Cell(NONE, None),
            _judged(row),
        )

    unit = "samples/s" if offline else "ms"
    columns = (
        *place.columns,
        Column("Rate" if offline else "p90", unit, "right"),
        Column("Repeats", unit, "right", spare=1),
        Column("Samples" if offline else "Calls", None, "right", spare=2),
        Column("LoadGen says"),
    )
    note = place.note(_note(rows, offline)) + mark_note(*(row.mac_share for row in rows if row.runs))
    title = f"LoadGen, {scenario} (not an MLPerf result)"
    return Table(f"loadgen-{scenario}", title, columns, tuple(cells(row) for row in rows), note)


def _figure(row: LoadGenRow, offline: bool) -> Cell:
    if not row.runs:
        return status_cell(row.status)
    if offline:
        return optional(row.rate, rate)
    return Cell("too few", None, "muted") if row.p90 is None else Cell(milliseconds(row.p90), row.p90)


def _judged(row: LoadGenRow) -> Cell:
    if not row.runs:
        return Cell(NONE, None, "muted")
    if row.valid == row.runs:
        return Cell("VALID", "VALID")
    which = "" if row.valid == 0 else f" ({row.runs - row.valid} of {row.runs})"
    return Cell(f"INVALID{which}", "INVALID", "bad")


def _note(rows: Sequence[LoadGenRow], offline: bool) -> str:
    versions = list(dict.fromkeys(row.version for row in rows if row.version))
    reasons = list(dict.fromkeys(row.invalid_reason for row in rows if row.invalid_reason))
    loadgen = f"LoadGen {joined(versions)}" if versions else "LoadGen"
    text = _NOTE.format(loadgen=loadgen) + (_OFFLINE if offline else _SINGLE)
    return text + (_INVALID.format(reasons="; ".join(reasons)) if reasons else "")

"""Tables of power: per watt, against fp32, the watts behind these, and what was read to get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from inferometer.analysis.power import PowerRow, why_no_ratio
from inferometer.analysis.power_gains import PowerGain
from inferometer.analysis.rows import Summary
from inferometer.analysis.wording import (
    count,
    joined,
    percent,
    range_text,
    rate,
    ratio,
    ratio_range,
    significant,
)
from inferometer.report.cells import (
    NONE,
    Cell,
    Column,
    Place,
    Raw,
    Table,
    Tone,
    mark_note,
    marked_cell,
    optional,
    raw_range,
)

__all__ = ["power_tables"]

_TONES: Mapping[str, Tone] = {"more per watt": "good", "less per watt": "bad"}
_SHOWN = 3  # reasons in a note
_HELD = 0.05  # share of the load from which a cell stands out
_APART = 0.03
_NOTE = (
    "Means of the repeats. Net is the power under load less the idle of the bare device, with no process of"
    " the study on it; images/s/W and J per image are of net power. The 95 % interval is the wider of two:"
    " between the repeats, and the widest of the repeats' own, since an idle that repeats share errs alike in"
    " all of them. It leaves out the meter's own error of scale."
)
_OWN_NOTE = (
    " * a trial's own interval: the repeats agree better than their readings can tell, or there is only one."
)
_RELATIVE_NOTE = (
    "Images/s per net watt over those of FP32 in the same setup, from the same meter, whose error of scale"
    " cancels. The interval joins those of both sides and is of this ratio alone; one repeat supports no"
    " verdict, nor does a machine whose own probe changed between the two."
)
_WATTS_NOTE = (
    "Means of the repeats. Idle is with no process of the study on the device, idle with the model loaded is"
    " what a served model costs while it waits. Capped: share of the load in which the power limit held the"
    " clocks down; slowed: in which heat or hardware did. A dash: the device said nothing of it."
)
_READ_NOTE = (
    "Of the repeats the least and worst. Scale error is the meter's own, about 95 % within it. Drift is the"
    " idle after less that before; the age is from the idle before to the load. Apart is what another reading"
    " of the same boundary says more than the one used."
)


def power_tables(summary: Summary) -> tuple[Table, ...]:
    """All four; without power they have no rows."""
    return (_per_watt(summary), _relative(summary), _watts(summary), _read(summary))


def _per_watt(summary: Summary) -> Table:
    rows = summary.power
    place, boundary, boundary_cell = _place(summary, rows)

    def cells(row: PowerRow) -> tuple[Cell, ...]:
        own = row.ci_kind == "within_trial" and row.efficiency is not None
        return (
            *place.cells(row.setup, row.mac_share),
            *boundary_cell(row),
            _efficiency(row),
            _range(row.efficiency_interval, row.efficiency, " *" if own else ""),
            optional(row.j_per_image, significant),
            _range(row.j_interval, row.j_per_image),
            optional(row.images_per_s, rate),
            optional(row.net_w, significant),
            optional(row.load_w, significant),
            optional(row.idle_bare_w, significant),
            optional(row.load_efficiency, significant),
            _repeats(row),
        )

    columns = (
        *place.columns,
        *boundary,
        Column("Per watt", "images/s/W", "right"),
        Column("95 % interval", "images/s/W", "right"),
        Column("Energy", "J/image", "right"),
        Column("Energy interval", "J/image", "right", spare=4),
        Column("Rate", "images/s", "right", spare=2),
        Column("Net", "W", "right"),
        Column("Load", "W", "right", spare=1),
        Column("Idle", "W", "right", spare=1),
        Column("Per watt of load", "images/s/W", "right", spare=3),
        Column("Repeats", None, "right", spare=3),
    )
    note = _NOTE
    if any(row.ci_kind == "within_trial" and row.efficiency is not None for row in rows):
        note += _OWN_NOTE
    note += _reasons(rows) + mark_note(*(row.mac_share for row in rows))
    return Table(
        "power", "Images per second per watt", columns, tuple(map(cells, rows)), _led(place, rows, note)
    )


def _relative(summary: Summary) -> Table:
    gains = summary.power_gains
    place = Place(summary, [one.setup for one in gains])
    several = len({one.boundary for one in gains}) > 1

    def cells(one: PowerGain) -> tuple[Cell, ...]:
        return (
            *place.cells(one.setup, one.mac_shares[1]),
            *((Cell(one.boundary, one.boundary),) if several else ()),
            marked_cell(Cell(ratio(one.ratio), one.ratio), one.mac_shares[0], one.baseline),
            Cell(ratio_range(*one.interval), raw_range(one.interval)) if one.interval else Cell(NONE, None),
            Cell(rate(one.values[1]), one.values[1]),
            Cell(rate(one.values[0]), one.values[0]),
            Cell(one.verdict, one.verdict, _TONES.get(one.verdict, "muted")),
        )

    columns = (
        *place.columns,
        *((Column("Boundary"),) if several else ()),
        Column("Over FP32", "per watt", "right"),
        Column("95 % interval", None, "right"),
        Column("Own", "images/s/W", "right", spare=1),
        Column("FP32", "images/s/W", "right", spare=1),
        Column("Verdict"),
    )
    note = place.note(_RELATIVE_NOTE) + mark_note(*(share for one in gains for share in one.mac_shares))
    return Table("power-relative", "Per watt over FP32", columns, tuple(map(cells, gains)), note)


def _watts(summary: Summary) -> Table:
    rows = [row for row in summary.power if row.load_w is not None]
    place, boundary, boundary_cell = _place(summary, rows)

    def cells(row: PowerRow) -> tuple[Cell, ...]:
        return (
            *place.cells(row.setup, row.mac_share),
            *boundary_cell(row),
            optional(row.load_w, significant),
            optional(row.idle_bare_w, significant),
            optional(row.idle_loaded_w, significant),
            optional(row.net_w, significant),
            _range(row.net_interval, row.net_w),
            optional(row.power_limit_w, significant),
            _held(row.capped),
            _held(row.slowed, row.slowed_by),
            _extent(row.temperature_c, 1.0),
            _extent(row.clock_hz, 1e-6),
        )

    columns = (
        *place.columns,
        *boundary,
        Column("Load", "W", "right"),
        Column("Idle", "W", "right"),
        Column("Idle, loaded", "W", "right", spare=2),
        Column("Net", "W", "right"),
        Column("95 % interval", "W", "right"),
        Column("Limit", "W", "right", spare=4),
        Column("Capped", "of load", "right"),
        Column("Slowed", "of load", "right", spare=1),
        Column("Temperature", "\N{DEGREE SIGN}C", "right", spare=3),
        Column("Clock", "MHz", "right", spare=4),
    )
    note = _led(place, rows, _WATTS_NOTE + mark_note(*(row.mac_share for row in rows)))
    return Table("power-watts", "Watts under load, idle and net", columns, tuple(map(cells, rows)), note)


def _read(summary: Summary) -> Table:
    rows = [row for row in summary.power if row.boundary is not None]
    place, _, _ = _place(summary, rows)

    def cells(row: PowerRow) -> tuple[Cell, ...]:
        return (
            *place.cells(row.setup),
            Cell(row.meter or NONE, row.meter),
            Cell(row.boundary or NONE, row.boundary),
            Cell(joined(row.parts) if row.parts else NONE, " ".join(row.parts)),
            Cell(row.semantics or NONE, row.semantics),
            optional(row.rate_hz, significant),
            optional(row.samples, count),
            optional(row.distinct, count),
            optional(row.largest_gap_s, significant),
            optional(row.gain_error, _share_text),
            optional(row.drift_w, _signed),
            optional(row.idle_age_s, lambda value: significant(value, 2)),
            _apart(row),
        )

    columns = (
        *place.columns,
        Column("Meter"),
        Column("Boundary"),
        Column("Parts", spare=3, prose=True),
        Column("How", spare=2, prose=True),
        Column("Readings", "per s", "right"),
        Column("Count", None, "right", spare=1),
        Column("Distinct", None, "right"),
        Column("Longest gap", "s", "right", spare=4),
        Column("Scale error", None, "right"),
        Column("Drift", "W", "right"),
        Column("Age of idle", "s", "right", spare=4),
        Column("Apart", None, "right"),
    )
    flags = list(dict.fromkeys(flag for row in rows for flag, _ in row.flags))
    note = _READ_NOTE + (f" Flags: {'; '.join(flags)}." if flags else "")
    return Table("power-read", "Power: what was read", columns, tuple(map(cells, rows)), place.note(note))


def _place(
    summary: Summary, rows: Sequence[PowerRow]
) -> tuple[Place, tuple[Column, ...], Callable[[PowerRow], tuple[Cell, ...]]]:
    """The columns of the setup, and one for the boundary where there are several."""
    place = Place(summary, [row.setup for row in rows])
    if len({row.boundary for row in rows if row.boundary is not None}) < 2:
        return place, (), lambda _: ()
    return place, (Column("Boundary"),), lambda row: (Cell(row.boundary or NONE, row.boundary),)


def _led(place: Place, rows: Sequence[PowerRow], note: str) -> str:
    """The note, led by what all rows have in common, the boundary included."""
    boundaries = {(row.boundary, row.meter) for row in rows if row.boundary is not None}
    if len({boundary for boundary, _ in boundaries}) == 1:
        meters = joined(sorted({meter or "" for _, meter in boundaries}))
        note = f"Power of {next(iter(boundaries))[0]}, by {meters}. {note}"
    return place.note(note)


def _efficiency(row: PowerRow) -> Cell:
    if row.efficiency is not None:
        return Cell(rate(row.efficiency), row.efficiency)
    if row.boundary is None:
        return Cell("not measured", None, "muted", hint=why_no_ratio(row))
    return Cell("none" if row.net_w is not None else NONE, None, "muted", hint=why_no_ratio(row))


def _reasons(rows: Sequence[PowerRow]) -> str:
    """Why some rows have no ratio: the reasons that differ, the first few."""
    reasons = list(dict.fromkeys(reason for row in rows if (reason := why_no_ratio(row)) is not None))
    if not reasons:
        return ""
    more = f"; and {count(len(reasons) - _SHOWN)} more" if len(reasons) > _SHOWN else ""
    return f" Without a ratio: {'; '.join(reasons[:_SHOWN])}{more}."


def _repeats(row: PowerRow) -> Cell:
    lost = row.asked - row.repeats
    text = count(row.repeats) + (f" of {count(row.asked)}" if lost else "")
    return Cell(text, row.repeats, "bad" if lost else "plain")


def _range(interval: tuple[float, float] | None, like: float | None, mark: str = "") -> Cell:
    if interval is None or like is None:
        return Cell(NONE, None, "muted")
    return Cell(range_text(*interval, like=like) + mark, raw_range(interval))


def _held(share: float | None, names: Sequence[str] = ()) -> Cell:
    tone: Tone = "bad" if share is not None and share >= _HELD else "plain"
    cell = optional(share, _share_text, tone)
    return Cell(cell.text, cell.raw, cell.tone, joined(list(names))) if names else cell


def _extent(span: tuple[float, float] | None, scale: float) -> Cell:
    if span is None:
        return Cell(NONE, None, "muted")
    low, high = (f"{value * scale:,.0f}" for value in span)
    return Cell(low if low == high else f"{low} to {high}", raw_range(span))


def _apart(row: PowerRow) -> Cell:
    value: Raw = row.disagreement
    if row.disagreement is None:
        return Cell(NONE, None, "muted")
    tone: Tone = "bad" if abs(row.disagreement) > _APART else "plain"
    return Cell(f"{_signed(row.disagreement * 100)} %", value, tone, hint=row.beside)


def _share_text(share: float) -> str:
    """Whole percent; a share above 0 never reads as 0, one under 1 never as 100 %."""
    decimals = 1 if 0 < share < 0.01 or 0.99 < share < 1 else 0
    text = percent(share, decimals)
    return "under 0.1 %" if share > 0 and text == "0.0 %" else text.replace("100.0", "over 99.9")


def _signed(value: float) -> str:
    """With a true minus sign, one decimal."""
    text = f"{value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")

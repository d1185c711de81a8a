"""Tables of scaling: together against alone, where the rest went, the ranks, per watt; and of feeding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inferometer.analysis.feeding import FeedingRow
from inferometer.analysis.rows import Summary
from inferometer.analysis.scaling_rows import Cause, RankRow, ScalingPower, ScalingRow
from inferometer.analysis.scaling_words import largest, points_text
from inferometer.analysis.wording import (
    count,
    joined,
    milliseconds,
    p_value,
    percent,
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
    Table,
    Tone,
    mark_note,
    optional,
    raw_range,
)

__all__ = ["feeding_table", "scaling_tables"]

_POOR = 0.9
"""An efficiency below this stands out. Source: chosen."""

_SETTLED = ("less than linear", "more than linear")
_NOTE = (
    "Images/s of all ranks in the time in which all of them ran, mean of the repeats; alone is the sum of the"
    " same devices' means, each measured by itself. Their ratio is linear at 100 %; its interval is Welch's"
    " on logarithms, p corrected for the number of rows (Holm). Slowest: how far the slowest rank is below"
    " the mean of the ranks. Skew: the longest that a rank began after the first."
)
_LOSS_NOTE = (
    "In percentage points of linear, for what is less than linear: most ranks at the largest batch; the JSON"
    " has all. A cause has points only where arithmetic gives them; of what was seen beside these, the part"
    " is not known; and what remains was not measured."
)
_RANKS_NOTE = (
    "Of the most ranks at the largest batch; the CSV has all. Means of the repeats; kept is the rate over"
    " that of the same device alone."
)
_POWER_NOTE = (
    "Images/s per net watt together, over what the same devices give alone: the sum of their rates over the"
    " sum of their net watts. The interval joins those of all sides, whose errors are taken to go together."
)
_FEEDING_NOTE = (
    "Decoding alone: what the same threads decode with nothing else to do. Device alone: the same setup on"
    " synthetic input. Together: decoded images through the device. Waits: share of the time that requests"
    " wait for a decoded batch; hands over: share spent giving it to the engine."
)


def scaling_tables(summary: Summary) -> tuple[Table, ...]:
    """All four; without trials of several ranks they have no rows."""
    return (_scaling(summary), _loss(summary), _ranks(summary), _per_watt(summary))


def feeding_table(summary: Summary) -> Table:
    """Decoded images as input, against synthetic input."""
    rows = summary.feeding
    place = Place(summary, [replace(row.setup, variant=_but_input(row)) for row in rows])

    def cells(row: FeedingRow) -> tuple[Cell, ...]:
        return (
            *place.cells(replace(row.setup, variant=_but_input(row)), row.mac_share),
            optional(row.decode, rate),
            optional(row.device, rate),
            Cell(rate(row.together), row.together),
            Cell(row.bottleneck, row.bottleneck, "bad" if row.bottleneck == "images" else "plain"),
            Cell(percent(row.wait_share, 0), row.wait_share),
            Cell(percent(row.prepare_share, 0), row.prepare_share),
            Cell(count(row.workers), row.workers),
            Cell(count(row.images), row.images),
            Cell(row.decoder, row.decoder),
            Cell(count(row.repeats), row.repeats),
        )

    columns = (
        *place.columns,
        Column("Decoding alone", "images/s", "right"),
        Column("Device alone", "images/s", "right"),
        Column("Together", "images/s", "right"),
        Column("Bounded by"),
        Column("Waits", None, "right"),
        Column("Hands over", None, "right", spare=3),
        Column("Threads", "per rank", "right", spare=1),
        Column("Images", None, "right", spare=4),
        Column("Decoder", spare=4),
        Column("Repeats", None, "right", spare=2),
    )
    note = place.note(_FEEDING_NOTE) + mark_note(*(row.mac_share for row in rows))
    return Table("feeding", "Real images as input", columns, tuple(map(cells, rows)), note)


def _but_input(row: FeedingRow) -> tuple[tuple[str, str], ...]:
    """The settings without the one that the whole table is about."""
    return tuple(pair for pair in row.setup.variant if pair[0] != "input")


def _scaling(summary: Summary) -> Table:
    rows = summary.scaling
    place = Place(summary, [row.setup for row in rows])

    def cells(row: ScalingRow) -> tuple[Cell, ...]:
        return (
            *place.cells(row.setup, row.mac_share),
            Cell(rate(row.rate), row.rate),
            optional(row.alone_sum, rate),
            _efficiency(row),
            _interval(row),
            optional(row.p, p_value),
            Cell(row.verdict, row.verdict, "plain" if row.verdict in _SETTLED else "muted", row.why_no_sum),
            _slowest(row),
            optional(row.skew_s, milliseconds),
            Cell(f"{count(len(row.repeats))} and {count(row.alone_repeats)}", len(row.repeats)),
        )

    columns = (
        *place.columns,
        Column("Together", "images/s", "right"),
        Column("Alone, added up", "images/s", "right"),
        Column("Of linear", "%", "right"),
        Column("95 % interval", "%", "right"),
        Column("p", "corrected", "right", spare=2),
        Column("Verdict"),
        Column("Slowest", "below mean", "right", spare=1),
        Column("Skew", "ms", "right", spare=3),
        Column("Repeats", "together, alone", "right", spare=4),
    )
    note = place.note(_NOTE + _reasons(rows) + mark_note(*(row.mac_share for row in rows)))
    return Table("scaling", "Scaling", columns, tuple(map(cells, rows)), note)


def _efficiency(row: ScalingRow) -> Cell:
    if row.efficiency is None:
        return Cell(NONE, None, "muted", hint=row.why_no_sum)
    poor = row.verdict == "less than linear" and row.efficiency < _POOR
    return Cell(f"{row.efficiency * 100:.1f}", row.efficiency, "bad" if poor else "plain")


def _interval(row: ScalingRow) -> Cell:
    if row.interval is None:
        return Cell(NONE, None, "muted")
    low, high = row.interval
    return Cell(f"{low * 100:.1f} to {high * 100:.1f}", raw_range(row.interval))


def _slowest(row: ScalingRow) -> Cell:
    if row.slowest is None:
        return Cell(NONE, None, "muted")
    rank, below = row.slowest
    return Cell(percent(below), below, hint=f"rank {rank}")


def _reasons(rows: Sequence[ScalingRow]) -> str:
    reasons = list(dict.fromkeys(row.why_no_sum for row in rows if row.why_no_sum is not None))
    return f" Not compared: {'; '.join(reasons)}." if reasons else ""


def _loss(summary: Summary) -> Table:
    pairs = [(row, cause) for row in largest(summary.scaling) for cause in row.causes]
    place = Place(summary, [row.setup for row, _ in pairs])

    def cells(row: ScalingRow, cause: Cause) -> tuple[Cell, ...]:
        muted: Tone = "muted" if cause.points is None or cause.name == "skew" else "plain"
        return (
            *place.cells(row.setup, row.mac_share),
            Cell(f"{(1 - (row.efficiency or 0.0)) * 100:.1f}", 1 - (row.efficiency or 0.0)),
            Cell(cause.name, cause.name),
            Cell(points_text(cause), cause.points, muted),
            Cell(cause.evidence, cause.evidence),
        )

    columns = (
        *place.columns,
        Column("Missing", "points", "right", spare=1),
        Column("Cause"),
        Column("Its part", "points", "right"),
        Column("Evidence", prose=True),
    )
    note = place.note(_LOSS_NOTE + mark_note(*(row.mac_share for row, _ in pairs)))
    title = "Scaling: where the missing percent went"
    return Table("scaling-loss", title, columns, tuple(cells(*pair) for pair in pairs), note)


def _ranks(summary: Summary) -> Table:
    told = [row for row in largest(summary.scaling) if row.ranks]
    place = Place(summary, [row.setup for row in told])
    pairs = [(row, one) for row in told for one in row.ranks]
    watts = any(one.load_w is not None for _, one in pairs)
    hosts = len({one.host for _, one in pairs}) > 1

    def cells(row: ScalingRow, one: RankRow) -> tuple[Cell, ...]:
        slow = row.slowest is not None and row.slowest[0] == one.rank and row.slowest[1] >= 0.05
        return (
            *place.cells(row.setup, row.mac_share),
            Cell(count(one.rank), one.rank),
            *((Cell(one.host, one.host),) if hosts else ()),
            Cell(one.device, one.device, hint=one.uuid),
            optional(one.cores, str),
            Cell(rate(one.images_per_s), one.images_per_s, "bad" if slow else "plain")
            if one.images_per_s is not None
            else Cell(NONE, None, "muted"),
            optional(one.alone, rate),
            optional(one.kept, percent),
            optional(one.skew_s, milliseconds),
            optional(one.load_s, significant),
            *((optional(one.load_w, significant), _clock(one)) if watts else ()),
        )

    columns = (
        *place.columns,
        Column("Rank", None, "right"),
        *((Column("Host"),) if hosts else ()),
        Column("Device"),
        Column("Processors"),
        Column("Rate", "images/s", "right"),
        Column("Alone", "images/s", "right", spare=1),
        Column("Kept", None, "right", spare=1),
        Column("Skew", "ms", "right", spare=2),
        Column("Loading", "s", "right", spare=4),
        *((Column("Load", "W", "right"), Column("Clock", "MHz", "right", spare=3)) if watts else ()),
    )
    names = list(dict.fromkeys(one.host for _, one in pairs))
    note = _RANKS_NOTE + ("" if hosts or not names else f" All ranks on {joined(names)}.")
    return Table("ranks", "Ranks", columns, tuple(cells(*pair) for pair in pairs), place.note(note))


def _clock(one: RankRow) -> Cell:
    if one.clock_hz is None:
        return Cell(NONE, None, "muted")
    low, high = (f"{value / 1e6:,.0f}" for value in one.clock_hz)
    return Cell(low if low == high else f"{low} to {high}", raw_range(one.clock_hz))


def _per_watt(summary: Summary) -> Table:
    pairs = [(row, one) for row in summary.scaling for one in row.power]
    place = Place(summary, [row.setup for row, _ in pairs])
    several = len({one.boundary for _, one in pairs}) > 1

    def cells(row: ScalingRow, one: ScalingPower) -> tuple[Cell, ...]:
        return (
            *place.cells(row.setup, row.mac_share),
            *((Cell(one.boundary, one.boundary),) if several else ()),
            Cell(rate(one.together), one.together),
            Cell(rate(one.alone), one.alone),
            Cell(ratio(one.ratio), one.ratio),
            Cell(ratio_range(*one.interval), raw_range(one.interval))
            if one.interval
            else Cell(NONE, None, "muted"),
            Cell(significant(one.net_w), one.net_w),
            Cell(count(one.repeats), one.repeats),
        )

    columns = (
        *place.columns,
        *((Column("Boundary"),) if several else ()),
        Column("Together", "images/s/W", "right"),
        Column("Alone", "images/s/W", "right"),
        Column("Over alone", "per watt", "right"),
        Column("95 % interval", None, "right"),
        Column("Net", "W", "right", spare=1),
        Column("Repeats", None, "right", spare=2),
    )
    note = place.note(_POWER_NOTE + mark_note(*(row.mac_share for row, _ in pairs)))
    if not several and pairs:
        note = f"Power of {pairs[0][1].boundary}, by {pairs[0][1].meter}. {note}"
    title = "Scaling per watt"
    return Table("scaling-power", title, columns, tuple(cells(*pair) for pair in pairs), note)

"""The tables of a report: one form for terminal, page and CSV, each cell as text and as raw value."""

from __future__ import annotations

from collections.abc import Mapping

from inferometer.analysis.findings import pair_text
from inferometer.analysis.held import MACHINE_NOTE
from inferometer.analysis.marks import is_marked, ran_text, share_text, with_mark
from inferometer.analysis.rows import (
    AccuracyRow,
    DifferenceRow,
    LatencyRow,
    MachineChange,
    Proportion,
    Setup,
    SpeedUp,
    Summary,
    ThroughputRow,
)
from inferometer.analysis.wording import (
    bytes_text,
    count,
    joined,
    milliseconds,
    p_value,
    percent,
    points,
    range_text,
    rate,
    ratio,
    ratio_range,
)
from inferometer.report.cells import (
    NONE,
    Cell,
    Column,
    Place,
    Table,
    Tone,
    mark_note,
    marked_cell,
    optional,
    raw_range,
    status_cell,
)
from inferometer.report.context_tables import calibrations, machines, models, not_measured
from inferometer.report.flat import csv_text
from inferometer.report.loadgen_tables import loadgen_tables
from inferometer.report.power_tables import power_tables
from inferometer.report.scaling_tables import feeding_table, scaling_tables

__all__ = ["Cell", "Column", "Table", "csv_text", "result_tables", "table_of", "tables"]

_PROBES = {"compute": "compute", "memory copying": "copying"}
_TONES: Mapping[str, Tone] = {
    "faster": "good",
    "slower": "bad",
    "a real gain": "good",
    "a real loss": "bad",
}
_THROUGHPUT_NOTE = (
    "Mean of the repeats, each in a process of its own, and the t interval between them. Calls are the"
    " timed ones of all repeats together."
)
_ONE_REPEAT_NOTE = " * one repeat: that run's own interval, which supports no verdict."
_SPEED_UP_NOTE = (
    "Of geometric means of the repeats, as are the rates in the findings; Welch's interval on logarithms; p"
    " is corrected for the number of ratios (Holm), so an interval may leave 1 out and the verdict still see"
    " no difference. " + MACHINE_NOTE
)
_BASE_NOTE = " Behind a ratio it is FP32, the other side of it, that did not run as asked."
_LATENCY_NOTE = (
    "One request at a time. Each percentile is the median over the repeats; where one of them has fewer than"
    " five calls beyond it, there are too few."
)
_ACCURACY_NOTE = (
    "Wilson's intervals. Left out are the images that served the calibration. To compare, use the paired"
    " differences, not two of these numbers."
)
_DIFFERENCE_NOTE = (
    "Both on the same images. Lost images were right before and are wrong now; gained ones the reverse. The"
    " verdict is McNemar's exact test, the interval Tango's."
)


def tables(summary: Summary) -> tuple[Table, ...]:
    """All tables that have rows, in the order in which a report shows them."""
    context = (models(summary), calibrations(summary), *machines(summary))
    return result_tables(summary) + tuple(table for table in context if table.rows)


def result_tables(summary: Summary) -> tuple[Table, ...]:
    """Those that hold results, without models, calibrations and machines."""
    made = (
        _throughput(summary),
        _speed_ups(summary),
        *scaling_tables(summary),
        feeding_table(summary),
        _latency(summary),
        _accuracy(summary),
        _differences(summary),
        *power_tables(summary),
        *loadgen_tables(summary),
        not_measured(summary),
    )
    return tuple(table for table in made if table.rows)


def table_of(summary: Summary, name: str) -> Table | None:
    """The table with that ``id``; None when it has no rows."""
    return next((table for table in tables(summary) if table.id == name), None)


def _throughput(summary: Summary) -> Table:
    place = Place(summary, [row.setup for row in summary.throughput])
    shares = any(
        row.mac_share is not None and (row.setup.precision != "fp32" or is_marked(row.mac_share))
        for row in summary.throughput
    )
    single = any(row.ci_kind == "within_run" for row in summary.throughput)

    def cells(row: ThroughputRow) -> tuple[Cell, ...]:
        own = (
            Cell(rate(row.mean), row.mean) if row.mean is not None else status_cell(row.status),
            _interval(row),
            Cell(" \N{MIDDLE DOT} ".join(rate(one) for one in row.repeats) or NONE, len(row.repeats)),
            Cell(count(row.calls), row.calls) if row.repeats else Cell(NONE, None),
        )
        share = (_share(row.mac_share, row.setup),) if shares else ()
        where = place.cells(row.setup, row.mac_share if row.repeats else None)
        return (*where, *own, *share, optional(row.host_peak_bytes, bytes_text))

    return Table(
        "throughput",
        "Throughput",
        (
            *place.columns,
            Column("Rate", "images/s", "right"),
            Column("95 % interval", "images/s", "right"),
            Column("Repeats", "images/s", "right", spare=3),
            Column("Calls", None, "right", spare=4),
            *((Column("MACs at precision", None, "right", spare=2),) if shares else ()),
            Column("Peak memory", None, "right", spare=1),
        ),
        tuple(cells(row) for row in summary.throughput),
        place.note(
            _THROUGHPUT_NOTE
            + (_ONE_REPEAT_NOTE if single else "")
            + mark_note(*(row.mac_share for row in summary.throughput if row.repeats))
        ),
    )


def _speed_ups(summary: Summary) -> Table:
    place = Place(summary, [one.setup for one in summary.speed_ups])

    def cells(one: SpeedUp) -> tuple[Cell, ...]:
        return (
            *place.cells(one.setup, one.mac_share),
            marked_cell(Cell(ratio(one.ratio), one.ratio), one.baseline_mac_share, one.baseline),
            Cell(ratio_range(*one.interval), raw_range(one.interval)) if one.interval else Cell(NONE, None),
            optional(one.p, p_value),
            Cell(one.verdict, one.verdict, _TONES.get(one.verdict, "muted")),
            _share(one.mac_share, one.setup),
            _change(one.machine_change),
        )

    bases = [one.baseline_mac_share for one in summary.speed_ups]
    note = _SPEED_UP_NOTE + mark_note(*(one.mac_share for one in summary.speed_ups), *bases)
    if is_marked(*bases):
        note += _BASE_NOTE
    return Table(
        "speedup",
        "Speed-up over FP32",
        (
            *place.columns,
            Column("Ratio", None, "right"),
            Column("95 % interval", None, "right"),
            Column("p", "corrected", "right", spare=1),
            Column("Verdict"),
            Column("MACs at precision", None, "right", spare=2),
            Column("Machine moved", None, "right", spare=3),
        ),
        tuple(cells(one) for one in summary.speed_ups),
        place.note(note),
    )


def _latency(summary: Summary) -> Table:
    place = Place(summary, [row.setup for row in summary.latency])

    def cells(row: LatencyRow) -> tuple[Cell, ...]:
        if not row.repeats:
            quantiles = (status_cell(row.status), *[Cell(NONE, None)] * 5)
        else:
            quantiles = tuple(
                Cell(milliseconds(value), value) if value is not None else Cell("too few", None, "muted")
                for value in (row.p50, row.p90, row.p95, row.p99, row.mean, row.max)
            )
        calls = (Cell(count(row.calls), row.calls), Cell(count(len(row.repeats)), len(row.repeats)))
        return (*place.cells(row.setup, row.mac_share if row.repeats else None), *quantiles, *calls)

    spare = {"Longest": 1, "p95": 2}
    names = ("p50", "p90", "p95", "p99", "Mean", "Longest")
    quantiles = [Column(name, "ms", "right", spare=spare.get(name, 0)) for name in names]
    return Table(
        "latency",
        "Latency",
        (
            *place.columns,
            *quantiles,
            Column("Calls", None, "right", spare=3),
            Column("Repeats", None, "right", spare=4),
        ),
        tuple(cells(row) for row in summary.latency),
        place.note(_LATENCY_NOTE + mark_note(*(row.mac_share for row in summary.latency if row.repeats))),
    )


def _accuracy(summary: Summary) -> Table:
    place = Place(summary, [row.setup for row in summary.accuracy], batch=False)

    def cells(row: AccuracyRow) -> tuple[Cell, ...]:
        top1 = _proportion(row.top1, row.images)
        if row.top1 is None:
            top1 = (status_cell(row.status), Cell(NONE, None))
        return (
            *place.cells(row.setup, row.mac_share if row.top1 is not None else None),
            optional(row.images, count),
            *top1,
            *_proportion(row.top5, row.images),
            optional(row.excluded, count),
            optional(row.skipped, count, "bad" if row.skipped else "plain"),
        )

    return Table(
        "accuracy",
        "Accuracy",
        (
            *place.columns,
            Column("Images", None, "right"),
            Column("Top-1", "%", "right"),
            Column("95 % interval", "%", "right"),
            Column("Top-5", "%", "right", spare=1),
            Column("Top-5 interval", "%", "right", spare=3),
            Column("Left out", "images", "right", spare=2),
            # The cautions tell of these too.
            Column("Unreadable", "images", "right", spare=4),
        ),
        tuple(cells(row) for row in summary.accuracy),
        place.note(
            _ACCURACY_NOTE + mark_note(*(row.mac_share for row in summary.accuracy if row.top1 is not None))
        ),
    )


def _differences(summary: Summary) -> Table:
    place = Place(
        summary, [row.setup_b for row in summary.differences], model=False, batch=False, precision=False
    )

    def cells(row: DifferenceRow) -> tuple[Cell, ...]:
        return (
            _pair(summary, row),
            *place.cells(row.setup_b),
            Cell({"top1": "top-1", "top5": "top-5"}[row.metric], row.metric),
            Cell(count(row.images), row.images),
            Cell(points(row.delta), row.delta),
            Cell(f"{points(row.interval[0])} to {points(row.interval[1])}", raw_range(row.interval)),
            Cell(p_value(row.p), row.p),
            Cell(count(row.only_a), row.only_a),
            Cell(count(row.only_b), row.only_b),
            Cell(percent(row.agreement), row.agreement),
            Cell(row.verdict, row.verdict, _TONES.get(row.verdict, "muted")),
        )

    return Table(
        "difference",
        "Accuracy: paired differences",
        (
            Column("Compared", header=True),
            *place.columns,
            Column("Metric"),
            Column("Images", None, "right", spare=2),
            Column("Difference", "points", "right"),
            Column("95 % interval", "points", "right"),
            Column("p", "McNemar", "right", spare=1),
            Column("Lost", "images", "right", spare=3),
            Column("Gained", "images", "right", spare=3),
            Column("Same first class", None, "right", spare=4),
            Column("Verdict"),
        ),
        tuple(cells(row) for row in summary.differences),
        place.note(
            _DIFFERENCE_NOTE + mark_note(*(share for row in summary.differences for share in row.mac_shares))
        ),
    )


def _pair(summary: Summary, row: DifferenceRow) -> Cell:
    """Which two are compared; the mark is due when either did not run as asked."""
    text = with_mark(pair_text(summary, row), *row.mac_shares)
    sides = zip(row.mac_shares, (row.setup_a, row.setup_b), strict=True)
    low = [ran_text(share, setup.precision) for share, setup in sides if is_marked(share)]
    hint = f"multiply-accumulates at the precision asked for: {joined(low)}" if low else None
    return Cell(text, f"{_raw_name(row.setup_b)} - {_raw_name(row.setup_a)}", hint=hint)


def _interval(row: ThroughputRow) -> Cell:
    if row.interval is None or row.mean is None:
        return Cell(NONE, None)
    mark = " *" if row.ci_kind == "within_run" else ""
    return Cell(range_text(*row.interval, like=row.mean) + mark, raw_range(row.interval))


def _change(change: MachineChange | None) -> Cell:
    if change is None:
        return Cell("not known", None, "muted")
    tone: Tone = "bad" if change.changed else "plain"
    if change.change is None:
        return Cell("unlike probes", None, tone)
    return Cell(f"{percent(change.change)} {_PROBES[change.probe or '']}", change.change, tone)


def _raw_name(setup: Setup) -> str:
    return f"{setup.model} {setup.precision}"


def _share(share: float | None, setup: Setup) -> Cell:
    if share is None:
        # Of a baseline that does not tell there is nothing to warn of.
        return Cell(NONE, None) if setup.precision == "fp32" else Cell("not known", None, "muted")
    return Cell(share_text(share), share, "bad" if is_marked(share) else "plain")


def _proportion(one: Proportion | None, images: int | None) -> tuple[Cell, Cell]:
    if one is None or images is None:
        return Cell(NONE, None), Cell(NONE, None)
    decimals = 1 if images < 10_000 else 2
    interval = f"{one.lo * 100:.{decimals}f} to {one.hi * 100:.{decimals}f}"
    return Cell(f"{one.value * 100:.{decimals}f}", one.value), Cell(interval, raw_range((one.lo, one.hi)))

"""A comparison as tables, and its verdict on comparability in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from inferometer.analysis.comparison.accuracy import AccuracyGap
from inferometer.analysis.comparison.compare import Comparison, Verdict
from inferometer.analysis.comparison.differences import Comparability, Difference, by_name, told
from inferometer.analysis.comparison.growth import Growth, Sweep
from inferometer.analysis.comparison.points import Metric, Point
from inferometer.analysis.comparison.ratios import RatioRow
from inferometer.analysis.comparison.subjects import subject_words
from inferometer.analysis.held import MACHINE_NOTE
from inferometer.analysis.wording import (
    count,
    joined,
    milliseconds,
    model_names,
    p_value,
    percent,
    plural,
    points,
    ratio,
    ratio_range,
    significant,
)
from inferometer.records import Precision
from inferometer.report.cells import (
    NONE,
    Cell,
    Column,
    Table,
    Tone,
    mark_note,
    marked_cell,
    optional,
    raw_range,
    status_cell,
)

__all__ = ["comparison_tables", "verdict_sentences"]

_TONES: Mapping[str, Tone] = {
    "faster": "good",
    "more per watt": "good",
    "more for the price": "good",
    "a real gain": "good",
    "slower": "bad",
    "less per watt": "bad",
    "less for the price": "bad",
    "a real loss": "bad",
    "not comparable": "bad",
}
_METRICS: Mapping[Metric, str] = {
    "images_per_s": "images/s",
    "images_per_s_per_device": "images/s per device",
    "latency_p50_s": "median latency, ms",
    "latency_p99_s": "p99 latency, ms",
    "images_per_s_per_w": "images/s/W",
    "j_per_image": "J per image",
    "top1": "top-1",
    "top5": "top-5",
}
_PER = {"like count": "as many devices", "server": "all devices of each", "price": "price"}
_RATIO_NOTE = (
    "Of geometric means of the repeats; Welch's interval on logarithms; p is corrected for the number of"
    " ratios (Holm), so an interval may leave 1 out and the verdict still see no difference. "
    + MACHINE_NOTE
    + " A published figure has no repeats and hence no interval."
)
_UNKNOWN_SHOWN = 6
_ASKED_FOR = ("device", "engine", "precision")


def comparison_tables(found: Comparison) -> tuple[Table, ...]:
    """All tables that have rows, in the order in which they are shown."""
    made = (
        _differences(found),
        _ratios(found),
        _growth(found),
        _accuracy(found),
        *(_sweep(found, metric) for metric in dict.fromkeys(one.metric for one in found.sweeps)),
    )
    return tuple(_without_empty(table) for table in made if table.rows)


def verdict_sentences(found: Comparison) -> list[str]:
    """Whether what stands side by side is like for like: one sentence for each subject."""
    sentences = [_verdict(found, one) for one in found.verdicts]
    if found.unmatched:
        sentences.append(
            f"No figure is shared with {subject_words(found.baseline)} (the same network, precision, batch"
            f" and number of devices) by {joined([subject_words(one) for one in found.unmatched])}."
        )
    return sentences


def _without_empty(table: Table) -> Table:
    """Columns in which no row says anything are left out, as the intervals of published figures are."""
    kept = [
        place for place in range(len(table.columns)) if any(row[place].text != NONE for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def _verdict(found: Comparison, one: Verdict) -> str:
    pair = one.comparability
    text = f"{subject_words(one.subject)} against {subject_words(one.baseline)}: {pair.text}"
    if 0 < pair.refused < pair.pairs:
        reasons = joined(told(pair.refusing))
        text = (
            f"{subject_words(one.subject)} against {subject_words(one.baseline)}: {count(pair.refused)} of"
            f" {plural(pair.pairs, 'pair')} not comparable: {reasons}"
        )
    along = [other.name for other in pair.differences if other.along_axis]
    if along and not pair.refusing:
        text += f"; along the axis differ {joined(list(dict.fromkeys(along)))}"
    if pair.unknown:
        shown = [name.partition(",")[0].replace("_", " ") for name in pair.unknown[:_UNKNOWN_SHOWN]]
        more = len(pair.unknown) - len(shown)
        text += f". Not known, and so not taken to be equal: {', '.join(shown)}"
        text += f" and {more} more" if more else ""
    return f"{text}.{_way_out(found, pair) if pair.refused == pair.pairs else ''}"


def _way_out(found: Comparison, pair: Comparability) -> str:
    """The axis along which they would compare, where one thing alone keeps them apart."""
    names = {one.name for one in pair.refusing}
    other = next((axis for axis in _ASKED_FOR if axis != found.axis and names == {axis}), None)
    if other is None:
        return ""
    # What belongs to this axis would refuse them along the other.
    if any(one.along_axis and math.isinf(one.bound) for one in pair.differences):
        return f" They differ by {found.axis} and {other} at once: inferometer choose weighs whole setups."
    return f" Ask for --by {other}."


def _differences(found: Comparison) -> Table:
    def cells(one: Verdict, difference: Difference, more: int) -> tuple[Cell, ...]:
        kind = (
            "along the axis"
            if difference.along_axis
            else "not comparable"
            if difference.refuses
            else "marked"
        )
        bound = None if math.isinf(difference.bound) else difference.bound
        tone: Tone = "bad" if difference.refuses else "plain"
        return (
            Cell(subject_words(one.subject), one.subject),
            Cell(difference.name, difference.name),
            Cell(difference.own + (f" (and {plural(more, 'other pair')})" if more else ""), difference.own),
            Cell(difference.base, difference.base),
            Cell("without limit", None)
            if bound is None
            else Cell(percent(bound, 0 if bound > 0.01 else 1), bound),
            Cell(kind, kind, tone),
        )

    return Table(
        "differences",
        f"What differs from {subject_words(found.baseline)}",
        (
            Column("Subject", header=True),
            Column("What"),
            Column("Subject has", prose=True),
            Column("Baseline has", prose=True),
            Column("Could move a figure", "by up to", "right"),
            Column("So"),
        ),
        tuple(
            cells(one, each, more)
            for one in found.verdicts
            for each, more in by_name(one.comparability.differences)
        ),
        "Ranked by how much each could move a figure. The bounds rank; they correct nothing.",
    )


def _ratios(found: Comparison) -> Table:
    counted = any((row.own.count or 1, row.base.count or 1) != (1, 1) for row in found.ratios)
    purposes = any(row.per != "like count" for row in found.ratios)

    def cells(row: RatioRow) -> tuple[Cell, ...]:
        return (
            Cell(subject_words(row.subject), row.subject),
            *_place(row.own),
            _apart(found, row.own),
            *((Cell(_counts(row), row.own.count),) if counted else ()),
            Cell(_figure(found, row.own), row.own.metric),
            *((Cell(_PER[row.per], row.per),) if purposes else ()),
            _value(row.own),
            _value(row.base),
            optional(row.ratio, ratio),
            Cell(ratio_range(*row.interval), raw_range(row.interval)) if row.interval else Cell(NONE, None),
            optional(row.p, p_value),
            Cell(row.verdict, row.verdict, _TONES.get(row.verdict, "muted")),
            Cell(_why(row), None, "muted"),
        )

    return Table(
        "ratios",
        f"Ratios to {subject_words(found.baseline)}",
        (
            Column("Subject", header=True),
            Column("Model"),
            Column("Precision"),
            Column("Batch", None, "right"),
            Column("Where"),
            *((Column("Devices", None, "right", spare=3),) if counted else ()),
            Column("Figure"),
            *((Column("Per", spare=4),) if purposes else ()),
            Column("Subject", None, "right", spare=2),
            Column("Baseline", None, "right", spare=2),
            Column("Ratio", None, "right"),
            Column("95 % interval", None, "right", spare=1),
            Column("p", "corrected", "right", spare=1),
            Column("Verdict"),
            Column("Marked for", prose=True, spare=5),
        ),
        tuple(cells(row) for row in found.ratios),
        _RATIO_NOTE + mark_note(*(row.own.mac_share for row in found.ratios)),
    )


def _figure(found: Comparison, point: Point) -> str:
    """What is compared; of multiples of several things, such as a study publishes, of what."""
    scales = {row.own.relative_to for row in found.ratios if row.own.metric == point.metric}
    if point.relative_to is None or len(scales) < 2:
        return _METRICS[point.metric]
    one = point.relative_to
    return f"{_METRICS[point.metric]} (of {one.count or 1} {one.accelerator}, batch {one.batch})"


def _why(row: RatioRow) -> str:
    if row.comparability.refusing:
        return "; ".join(one.text for one in row.comparability.refusing)
    marks = [one.name for one in row.comparability.marking]
    return "; ".join([*marks, *dict.fromkeys((*row.own.marks, *row.base.marks))]) or NONE


def _growth(found: Comparison) -> Table:
    def cells(row: Growth) -> tuple[Cell, ...]:
        return (
            Cell(subject_words(row.subject), row.subject),
            *_place(row.point),
            _apart(found, row.point),
            optional(row.point.count, count),
            Cell(percent(row.efficiency), row.efficiency),
            Cell(_percents(row.interval), raw_range(row.interval)) if row.interval else Cell(NONE, None),
            Cell(row.verdict, row.verdict),
        )

    return Table(
        "scaling",
        "Scaling: several devices against as many times one",
        (
            Column("Subject", header=True),
            Column("Model"),
            Column("Precision"),
            Column("Batch", None, "right"),
            Column("Where"),
            Column("Devices", None, "right"),
            Column("Of linear", None, "right"),
            Column("95 % interval", None, "right", spare=1),
            Column("Verdict"),
        ),
        tuple(cells(row) for row in found.growth),
    )


def _accuracy(found: Comparison) -> Table:
    def cells(row: AccuracyGap) -> tuple[Cell, ...]:
        paired = row.paired
        return (
            Cell(subject_words(row.subject), row.subject),
            *_place(row.own)[:2],
            _apart(found, row.own),
            Cell(_METRICS[row.own.metric], row.own.metric),
            optional(row.own.value, lambda value: percent(value, 2)),
            optional(row.base.value, lambda value: percent(value, 2)),
            optional(row.delta, points),
            Cell(f"{points(paired.interval[0])} to {points(paired.interval[1])}", raw_range(paired.interval))
            if paired
            else Cell(NONE, None),
            optional(paired.images if paired else None, count),
            Cell(row.verdict, row.verdict, _TONES.get(row.verdict, "muted")),
        )

    return Table(
        "accuracy",
        "Accuracy",
        (
            Column("Subject", header=True),
            Column("Model"),
            Column("Precision"),
            Column("Where"),
            Column("Metric"),
            Column("Subject", "%", "right"),
            Column("Baseline", "%", "right"),
            Column("Difference", "points", "right"),
            Column("95 % interval", "points", "right", spare=1),
            Column("Same images", None, "right", spare=2),
            Column("Verdict"),
        ),
        tuple(cells(row) for row in found.accuracy),
        "Where both sides know what became of each image, these are compared one by one (McNemar's exact"
        " test, Tango's interval); two bare figures support no verdict.",
    )


def _sweep(found: Comparison, metric: Metric) -> Table:
    """Batches down, subjects across."""
    own = [one for one in found.sweeps if one.metric == metric]
    relative = dict.fromkeys(point.relative_to for one in own for point in one.points if point.relative_to)
    keys = list(dict.fromkeys(_sweep_key(found, one) for one in own))
    names = list(dict.fromkeys(one.subject for one in own))
    by = {(_sweep_key(found, one), one.subject, point.batch): point for one in own for point in one.points}
    rows = []
    for key in keys:
        members = [one for one in own if _sweep_key(found, one) == key]
        for batch in sorted({point.batch or 0 for one in members for point in one.points}):
            figures = [by.get((key, name, batch)) for name in names]
            first = next(point for point in figures if point is not None)
            values = (_value(one) if one else Cell(NONE, None) for one in figures)
            model, precision, at = _place(first)
            if found.axis == "precision":  # it runs across
                precision = Cell(NONE, None)
            rows.append((model, precision, at, _apart(found, first), *values))
    note = None
    if relative:
        bases = [f"{one.count or 1} {one.accelerator} at batch {one.batch}" for one in relative]
        note = f"Multiples of the figure of {joined(bases)}."
    return Table(
        f"sweep-{metric}",
        f"By batch: {_METRICS[metric]}",
        (
            Column("Model", header=True),
            Column("Precision"),
            Column("Batch", None, "right", header=True),
            Column("Where"),
            *(Column(subject_words(name), None, "right") for name in names),
        ),
        tuple(rows),
        note,
    )


def _sweep_key(found: Comparison, one: Sweep) -> tuple[object, ...]:
    """What stands in one row: figures of several places never do, nor those of several scales."""
    point = one.points[0]
    engine = None if found.axis == "engine" else point.engine
    precision = None if found.axis == "precision" else point.precision
    return _model(point), precision, found.apart(point), engine, point.boundary, point.relative_to


def _apart(found: Comparison, point: Point) -> Cell:
    text = found.apart(point)
    return Cell(text or NONE, text or None)


def _place(point: Point) -> tuple[Cell, Cell, Cell]:
    return (
        Cell(_model(point), point.model),
        marked_cell(
            Cell(point.precision.upper(), point.precision), point.mac_share, cast(Precision, point.precision)
        ),
        optional(point.batch, count),
    )


def _model(point: Point) -> str:
    return model_names([point.model])[point.model]


def _value(point: Point) -> Cell:
    if point.value is None:
        return status_cell(point.status) if point.status != "ok" else Cell("too few", None, "muted")
    scale = milliseconds if point.metric.startswith("latency") else significant
    return Cell(scale(point.value), point.value)


def _counts(row: RatioRow) -> str:
    own, base = row.own.count or 1, row.base.count or 1
    return count(own) if own == base else f"{own} to {base}"


def _percents(interval: tuple[float, float]) -> str:
    return f"{percent(interval[0])} to {percent(interval[1])}"

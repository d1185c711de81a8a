"""The charts of a report, as Vega-Lite through Altair: small panels, one per model, on common styles.

Each chart comes with a sentence and with the table that holds the same numbers. A chart, or a panel,
without data is not made.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from inferometer.analysis.marks import is_marked, ran_text
from inferometer.analysis.rows import DifferenceRow, LatencyRow, SpeedUp, Summary, ThroughputRow
from inferometer.analysis.wording import milliseconds, percent, points, rate, ratio
from inferometer.report.daggers import daggers, ran, ran_both
from inferometer.report.drawing import (
    CUT,
    PANEL_HEIGHT,
    Chart,
    Draw,
    by_panel,
    chart_of,
    having,
    is_cut,
    lines_and_intervals,
    points_and_crosses,
    reference_line,
    scale_to,
    tooltip_of,
    top_of,
    values_of,
)
from inferometer.report.encodings import Data, Encodings, Panels, Rows, drawn
from inferometer.report.power_charts import power_charts
from inferometer.report.scaling_charts import scaling_charts
from inferometer.report.theme import LIGHT

__all__ = ["DRAWN", "Chart", "charts"]

DRAWN = frozenset(
    {"throughput", "speedup", "scaling", "scaling-power", "latency", "accuracy", "difference",
     "power", "power-relative", "power-watts"}
)  # fmt: skip
"""Tables that have a chart wherever they hold something to draw."""

_ROW_HEIGHT = 30
_LABEL_PIXELS = 200
_REPEAT_SHIFT = 6  # pixels from a mean to its repeats


def charts(summary: Summary) -> tuple[Chart, ...]:
    """Every chart that has data, in the order of the report."""
    made = (
        _throughput(summary),
        _speed_ups(summary),
        *scaling_charts(summary),
        _latency(summary),
        _accuracy(summary),
        _differences(summary),
        *power_charts(summary),
    )
    return tuple(chart for chart in made if chart is not None)


def _throughput(summary: Summary) -> Chart | None:
    shown, beside = drawn([row.setup for row in summary.throughput])
    place = Panels(summary, tuple(shown))
    told = [row for row in summary.throughput if row.setup in shown]
    rows = [one for row in told for one in _throughput_rows(place.row(row.setup), row)]
    with_rate = {row["panel"] for row in rows if "value" in row}
    rows = [row for row in rows if row["panel"] in with_rate]
    encoded = Encodings(rows)
    x = alt.X("batch:O", title="batch, images", axis=alt.Axis(labelAngle=0))
    tooltip = tooltip_of("batch")

    def draw(panel: Rows, data: Data) -> list[Any]:
        rated = having(panel, "value")
        top = top_of(values_of(panel), rated)
        y = alt.Y("value:Q", title="images/s", scale=scale_to(0, top, rated), axis=alt.Axis(tickCount=5))
        layers = lines_and_intervals(encoded, rated, data, x, y, top)
        for _, members, shift in encoded.apart(having(panel, "repeat")):
            layers.append(
                alt.Chart(data.add(members))
                .mark_point(size=12, strokeWidth=1, opacity=1, xOffset=shift + _REPEAT_SHIFT)
                .encode(x=x, y="repeat:Q", color=encoded.colour, tooltip=tooltip)
            )
        layers += points_and_crosses(encoded, panel, data, x, y, tooltip)
        return [*layers, *daggers(encoded, rated, data, x, y, tooltip)]

    caption = (
        "Images per second by batch; more is better. Large marks are means, small ones beside them single"
        " repeats, bars the 95 % interval."
    )
    if any(is_cut(having(members, "hi"), values_of(members)) for members in by_panel(rows).values()):
        caption += CUT
    if any("absent" in row for row in rows):
        caption += " A cross marks a batch that gave no number; the table says why."
    caption += beside
    return chart_of(
        summary, "throughput", "Throughput by batch and precision", caption, rows, draw, PANEL_HEIGHT
    )


def _throughput_rows(base: dict[str, Any], row: ThroughputRow) -> Rows:
    if row.mean is None:
        return [base | {"absent": 1, "ran": "nothing", "text": row.status.replace("_", " ")}]
    base = base | ran(row.setup.precision, row.mac_share)
    lo, hi = row.interval or (row.mean, row.mean)
    mean = base | {"value": row.mean, "lo": lo, "hi": hi, "text": f"{rate(row.mean)} images/s"}
    plain = base | {"low": False}  # the mark stands at the mean
    repeats = [plain | {"repeat": one, "text": f"one repeat: {rate(one)} images/s"} for one in row.repeats]
    return [mean, *repeats]


def _speed_ups(summary: Summary) -> Chart | None:
    shown, beside = drawn([one.setup for one in summary.speed_ups])
    place = Panels(summary, tuple(shown))
    rows = [place.row(one.setup) | _speed_up_row(one) for one in summary.speed_ups if one.setup in shown]
    encoded = Encodings(rows)
    x = alt.X("batch:O", title="batch, images", axis=alt.Axis(labelAngle=0))
    values = [row["value"] for row in rows]
    low = min([1.0, *values, *(row["lo"] for row in rows)])
    top = top_of([1.0, *values], rows)
    # Where no legend names the precision, the axis does: a picture may stand alone.
    title = f"{encoded.only} over FP32" if encoded.only else "times FP32"

    def draw(panel: Rows, data: Data) -> list[Any]:
        y = alt.Y("value:Q", title=title, scale=scale_to(low, top, rows), axis=alt.Axis(tickCount=5))
        layers = lines_and_intervals(encoded, panel, data, x, y, top)
        layers.append(reference_line().encode(y=alt.YDatum(1)))
        for _, members, shift in encoded.apart(panel):
            layers.append(
                alt.Chart(data.add(members))
                .mark_point(size=55, filled=True, opacity=1, strokeWidth=2, xOffset=shift)
                .encode(x=x, y=y, **encoded.mark, tooltip=tooltip_of("batch"))
            )
        return [*layers, *daggers(encoded, panel, data, x, y, tooltip_of("batch"))]

    caption = (
        "Images per second over those of FP32 in the same setup, with the 95 % interval between repeats; the"
        " line at 1 is FP32."
    )
    if is_cut(rows, [1.0, *values]):
        caption += CUT
    if any(row["open"] for row in rows):
        caption += " Hollow marks have no verdict; the table says why."
    caption += beside
    return chart_of(summary, "speedup", "Speed-up over FP32", caption, rows, draw, PANEL_HEIGHT)


def _speed_up_row(one: SpeedUp) -> dict[str, Any]:
    lo, hi = one.interval or (one.ratio, one.ratio)
    text = f"{ratio(one.ratio)} FP32: {one.verdict}"
    share = ran(one.setup.precision, one.mac_share)
    if is_marked(one.baseline_mac_share):
        base = ran_text(one.baseline_mac_share, one.baseline)
        share = {"ran": f"{share['ran']}; of FP32 {base}", "low": True}
    return share | {
        "value": one.ratio,
        "lo": lo,
        "hi": hi,
        "text": text,
        "open": one.verdict not in ("faster", "slower"),
    }


def _latency(summary: Summary) -> Chart | None:
    shown, beside = drawn([row.setup for row in summary.latency])
    place = Panels(summary, tuple(shown))
    several = len({row.setup.batch for row in summary.latency}) > 1
    told = [row for row in summary.latency if row.setup in shown]
    rows = [place.row(row.setup) | one for row in told for one in _latency_rows(row, several)]
    encoded = Encodings(rows, legend=False)
    names = ["p50", "p90", "p99"]
    marks = tooltip_of("quantile")
    shape = alt.Shape(
        "quantile:N",
        scale=alt.Scale(domain=names, range=["circle", "triangle-up", "square"]),
        legend=alt.Legend(symbolFillColor=LIGHT["quiet"], symbolStrokeColor=LIGHT["quiet"]),
    )
    x = alt.X("value:Q", title="milliseconds", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))

    def draw(panel: Rows, data: Data) -> list[Any]:
        own, y = data.add(panel), _labels(panel)
        return [
            alt.Chart(own)
            .mark_rule(strokeWidth=2, opacity=0.5)
            .encode(y=y, x="lo:Q", x2="hi:Q", color=encoded.colour),
            alt.Chart(own)
            .mark_point(size=45, filled=True, opacity=1)
            .encode(y=y, x=x, shape=shape, color=encoded.colour, tooltip=marks),
            *daggers(encoded, panel, data, x, y, marks, apart=False),
        ]

    caption = "Milliseconds from submitting one request to its completion, one at a time; less is better."
    caption += beside
    return chart_of(summary, "latency", "Latency", caption, rows, draw, alt.Step(_ROW_HEIGHT))


def _latency_rows(row: LatencyRow, several: bool) -> Rows:
    label = row.setup.precision.upper() + (f", batch {row.setup.batch}" if several else "")
    known = {"p50": row.p50, "p90": row.p90, "p99": row.p99}
    found = {name: value * 1e3 for name, value in known.items() if value is not None}
    share = ran(row.setup.precision, row.mac_share)
    return [
        share
        | {
            "low": share["low"] and name == list(found)[-1],  # one mark a row
            "label": label,
            "quantile": name,
            "value": value,
            "lo": min(found.values()),
            "hi": max(found.values()),
            "text": f"{milliseconds(value / 1e3)} ms",
        }
        for name, value in found.items()
    ]


def _accuracy(summary: Summary) -> Chart | None:
    place = Panels(summary, [row.setup for row in summary.accuracy])
    rows = [
        place.row(row.setup)
        | ran(row.setup.precision, row.mac_share)
        | {
            "label": row.setup.precision.upper(),
            "value": row.top1.value * 100,
            "lo": row.top1.lo * 100,
            "hi": row.top1.hi * 100,
            "text": f"{percent(row.top1.value)}, {row.top1.lo * 100:.1f} to {row.top1.hi * 100:.1f} %",
        }
        for row in summary.accuracy
        if row.top1 is not None
    ]
    caption = (
        "Share of images whose label is the model's first answer, with its 95 % interval. Overlapping"
        " intervals say little about a difference, since all precisions saw the same images: see the paired"
        " differences."
    )
    draw = _dots(rows, "top-1, %", alt.Scale(zero=False))
    return chart_of(summary, "accuracy", "Top-1 accuracy", caption, rows, draw, alt.Step(_ROW_HEIGHT))


def _differences(summary: Summary) -> Chart | None:
    place = Panels(summary, [row.setup_b for row in summary.differences])
    rows = [
        place.row(row.setup_b)
        | ran_both(row)
        | {
            "label": f"{_pair(summary, row)}, {row.metric.replace('top', 'top-')}",
            "value": row.delta * 100,
            "lo": row.interval[0] * 100,
            "hi": row.interval[1] * 100,
            "open": row.verdict == "within noise",
            "text": f"{points(row.delta)} points: {row.verdict}",
        }
        for row in summary.differences
    ]
    caption = (
        "Accuracy gained or lost on the same images, with the 95 % interval of the paired difference; left of"
        " zero is a loss. Hollow marks are within noise."
    )
    scale = alt.Scale(domain=_extent(rows, 0.0), nice=True, zero=False)
    draw = _dots(rows, "percentage points", scale, reference_line().encode(x=alt.XDatum(0)))
    title = "What a precision costs in accuracy"
    return chart_of(summary, "difference", title, caption, rows, draw, alt.Step(_ROW_HEIGHT))


def _pair(summary: Summary, row: DifferenceRow) -> str:
    """The two precisions; the panel names the model of the first, so only another one is named here."""
    a, b = row.setup_a, row.setup_b
    other = "" if a.model == b.model else f"{summary.names[a.model]} "
    return f"{b.precision.upper()} \N{MINUS SIGN} {other}{a.precision.upper()}"


def _dots(rows: Rows, title: str, scale: alt.Scale, *under: Any) -> Draw:
    """One labelled line per row: its value as a mark on its interval."""
    encoded = Encodings(rows, legend=False)
    x = alt.X("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5))

    def draw(panel: Rows, data: Data) -> list[Any]:
        own, y = data.add(panel), _labels(panel)
        return [
            *under,
            alt.Chart(own).mark_rule(strokeWidth=2).encode(y=y, x="lo:Q", x2="hi:Q", color=encoded.colour),
            alt.Chart(own)
            .mark_point(size=70, filled=True, opacity=1, strokeWidth=2)
            .encode(y=y, x=x, **encoded.mark, tooltip=tooltip_of()),
            *daggers(encoded, panel, data, x, y, tooltip_of(), apart=False),
        ]

    return draw


def _labels(rows: Rows) -> alt.Y:
    order = list(dict.fromkeys(str(row["label"]) for row in rows))
    return alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=_LABEL_PIXELS))


def _extent(rows: Rows, *more: float) -> list[float]:
    """A domain common to all panels that takes in every interval, value and what is named."""
    values = [row[key] for row in rows for key in ("lo", "hi", "value")] + list(more)
    return [min(values), max(values)]

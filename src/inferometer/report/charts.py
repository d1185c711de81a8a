"""The charts of a report, as Vega-Lite through Altair: small panels, one per model, on common styles.

Each chart comes with a sentence and with the table that holds the same numbers. A chart, or a panel,
without data is not made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from inferometer.analysis.grouping import PRECISION_ORDER
from inferometer.analysis.rows import DifferenceRow, LatencyRow, Setup, SpeedUp, Summary, ThroughputRow
from inferometer.analysis.wording import milliseconds, percent, points, rate, ratio
from inferometer.report.tables import Table, table_of
from inferometer.report.theme import DASHES, LIGHT, PRECISION_COLOURS, SHAPES, chart_config

__all__ = ["Chart", "charts"]

_PANEL_WIDTH = 230  # pixels; the page fits panels to its own width
_PANEL_HEIGHT = 190
_ROW_HEIGHT = 30
_COLUMNS = 3
_LABEL_PIXELS = 200
_ROOM = 2.0  # an axis ends at this many times the largest value; longer intervals are cut there
_CUT = " An interval that reaches the upper edge goes on beyond it."
# Charts whose panels stack well beside their table.
_BESIDE = ("throughput", "latency", "accuracy")

Rows = list[dict[str, Any]]
Draw = Callable[[Rows, "_Data"], list[Any]]


@dataclass(frozen=True)
class Chart:
    """One chart: ``chart`` is an Altair chart, a panel per model; ``table`` holds the same numbers.

    ``beside`` says whether, where there is room, the table stands beside the chart rather than under it.
    """

    id: str
    title: str
    caption: str
    chart: Any
    table: Table
    beside: bool


def charts(summary: Summary) -> tuple[Chart, ...]:
    """Every chart that has data, in the order of the report."""
    made = (
        _throughput(summary),
        _speed_ups(summary),
        _latency(summary),
        _accuracy(summary),
        _differences(summary),
    )
    return tuple(chart for chart in made if chart is not None)


def _throughput(summary: Summary) -> Chart | None:
    place = _Panels(summary, [row.setup for row in summary.throughput])
    rows = [one for row in summary.throughput for one in _throughput_rows(place.row(row.setup), row)]
    with_rate = {row["panel"] for row in rows if "value" in row}
    rows = [row for row in rows if row["panel"] in with_rate]
    encoded = _Encodings(rows)
    x = alt.X("batch:O", title="batch, images", axis=alt.Axis(labelAngle=0))
    tooltip = _tooltip("batch")

    def draw(panel: Rows, data: _Data) -> list[Any]:
        rated, absent = _with(panel, "value"), _with(panel, "absent")
        means, repeats = data.add(rated), data.add(_with(panel, "repeat"))
        top = _top([row[key] for row in panel for key in ("value", "repeat") if key in row], rated)
        scale = alt.Scale(domain=[0, top], nice=True)
        y = alt.Y("value:Q", title="images/s", scale=scale, axis=alt.Axis(tickCount=5))
        layers = [
            *encoded.lines(rated, data, x, y),
            alt.Chart(means)
            .mark_rule(strokeWidth=1.5, clip=True)
            .encode(x=x, y="lo:Q", y2="hi:Q", color=encoded.colour),
            alt.Chart(repeats)
            .mark_point(size=12, strokeWidth=1, opacity=1, xOffset=9)
            .encode(x=x, y="repeat:Q", color=encoded.colour, tooltip=tooltip),
            alt.Chart(means)
            .mark_point(size=45, filled=True, opacity=1)
            .encode(x=x, y=y, color=encoded.colour, shape=encoded.shape, tooltip=tooltip),
        ]
        if absent:
            cross = alt.Chart(data.add(absent)).mark_text(
                text="\N{MULTIPLICATION X}", fontSize=14, baseline="bottom"
            )
            layers.append(cross.encode(x=x, y=alt.value("height"), color=encoded.colour, tooltip=tooltip))
        return layers

    caption = (
        "Images per second by batch; more is better. Large marks are means, small ones beside them single"
        " repeats, bars the 95 % interval."
    )
    if any(row["hi"] > _ROOM * row["value"] for row in _with(rows, "hi")):
        caption += _CUT
    if any("absent" in row for row in rows):
        caption += " \N{MULTIPLICATION X} marks a batch that gave no number; the table says why."
    return _chart(
        summary, "throughput", "Throughput by batch and precision", caption, rows, draw, _PANEL_HEIGHT
    )


def _throughput_rows(base: dict[str, Any], row: ThroughputRow) -> Rows:
    if row.mean is None:
        return [base | {"absent": 1, "text": row.status.replace("_", " ")}]
    lo, hi = row.interval or (row.mean, row.mean)
    mean = base | {"value": row.mean, "lo": lo, "hi": hi, "text": f"{rate(row.mean)} images/s"}
    repeats = [base | {"repeat": one, "text": f"one repeat: {rate(one)} images/s"} for one in row.repeats]
    return [mean, *repeats]


def _speed_ups(summary: Summary) -> Chart | None:
    place = _Panels(summary, [one.setup for one in summary.speed_ups])
    rows = [place.row(one.setup) | _speed_up_row(one) for one in summary.speed_ups]
    encoded = _Encodings(rows)
    x = alt.X("batch:O", title="batch, images", axis=alt.Axis(labelAngle=0))
    values = [row["value"] for row in rows]
    low = min([1.0, *values, *(row["lo"] for row in rows)])
    scale = alt.Scale(domain=[low, _top([1.0, *values], rows)], nice=True, zero=False)

    def draw(panel: Rows, data: _Data) -> list[Any]:
        own = data.add(panel)
        y = alt.Y("value:Q", title="times FP32", scale=scale, axis=alt.Axis(tickCount=5))
        return [
            *encoded.lines(panel, data, x, y),
            _reference_line().encode(y=alt.YDatum(1)),
            alt.Chart(own)
            .mark_rule(strokeWidth=1.5, clip=True)
            .encode(x=x, y="lo:Q", y2="hi:Q", color=encoded.colour),
            alt.Chart(own)
            .mark_point(size=55, filled=True, opacity=1, strokeWidth=2)
            .encode(x=x, y=y, **encoded.mark, tooltip=_tooltip("batch")),
        ]

    caption = (
        "Images per second over those of FP32 in the same setup, with the 95 % interval between repeats; the"
        " line at 1 is FP32."
    )
    if any(row["hi"] > _ROOM * max([1.0, *values]) for row in rows):
        caption += _CUT
    if any(row["open"] for row in rows):
        caption += " Hollow marks have no verdict; the table says why."
    return _chart(summary, "speedup", "Speed-up over FP32", caption, rows, draw, _PANEL_HEIGHT)


def _speed_up_row(one: SpeedUp) -> dict[str, Any]:
    lo, hi = one.interval or (one.ratio, one.ratio)
    text = f"{ratio(one.ratio)} FP32: {one.verdict}"
    return {
        "value": one.ratio,
        "lo": lo,
        "hi": hi,
        "text": text,
        "open": one.verdict not in ("faster", "slower"),
    }


def _latency(summary: Summary) -> Chart | None:
    place = _Panels(summary, [row.setup for row in summary.latency])
    several = len({row.setup.batch for row in summary.latency}) > 1
    rows = [place.row(row.setup) | one for row in summary.latency for one in _latency_rows(row, several)]
    encoded = _Encodings(rows, legend=False)
    names = ["p50", "p90", "p99"]
    shape = alt.Shape(
        "quantile:N",
        scale=alt.Scale(domain=names, range=["circle", "triangle-up", "square"]),
        legend=alt.Legend(symbolFillColor=LIGHT["quiet"], symbolStrokeColor=LIGHT["quiet"]),
    )
    x = alt.X("value:Q", title="milliseconds", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))

    def draw(panel: Rows, data: _Data) -> list[Any]:
        own, y = data.add(panel), _labels(panel)
        return [
            alt.Chart(own)
            .mark_rule(strokeWidth=2, opacity=0.5)
            .encode(y=y, x="lo:Q", x2="hi:Q", color=encoded.colour),
            alt.Chart(own)
            .mark_point(size=45, filled=True, opacity=1)
            .encode(y=y, x=x, shape=shape, color=encoded.colour, tooltip=_tooltip("quantile")),
        ]

    caption = "Milliseconds from submitting one request to its completion, one at a time; less is better."
    return _chart(summary, "latency", "Latency", caption, rows, draw, alt.Step(_ROW_HEIGHT))


def _latency_rows(row: LatencyRow, several: bool) -> Rows:
    label = row.setup.precision.upper() + (f", batch {row.setup.batch}" if several else "")
    known = {"p50": row.p50, "p90": row.p90, "p99": row.p99}
    found = {name: value * 1e3 for name, value in known.items() if value is not None}
    return [
        {
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
    place = _Panels(summary, [row.setup for row in summary.accuracy])
    rows = [
        place.row(row.setup)
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
    return _chart(summary, "accuracy", "Top-1 accuracy", caption, rows, draw, alt.Step(_ROW_HEIGHT))


def _differences(summary: Summary) -> Chart | None:
    place = _Panels(summary, [row.setup_b for row in summary.differences])
    rows = [
        place.row(row.setup_b)
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
    draw = _dots(rows, "percentage points", scale, _reference_line().encode(x=alt.XDatum(0)))
    title = "What a precision costs in accuracy"
    return _chart(summary, "difference", title, caption, rows, draw, alt.Step(_ROW_HEIGHT))


def _pair(summary: Summary, row: DifferenceRow) -> str:
    """The two precisions; the panel names the model of the first, so only another one is named here."""
    a, b = row.setup_a, row.setup_b
    other = "" if a.model == b.model else f"{summary.names[a.model]} "
    return f"{b.precision.upper()} \N{MINUS SIGN} {other}{a.precision.upper()}"


def _dots(rows: Rows, title: str, scale: alt.Scale, *under: Any) -> Draw:
    """One labelled line per row: its value as a mark on its interval."""
    encoded = _Encodings(rows, legend=False)
    x = alt.X("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5))

    def draw(panel: Rows, data: _Data) -> list[Any]:
        own, y = data.add(panel), _labels(panel)
        return [
            *under,
            alt.Chart(own).mark_rule(strokeWidth=2).encode(y=y, x="lo:Q", x2="hi:Q", color=encoded.colour),
            alt.Chart(own)
            .mark_point(size=70, filled=True, opacity=1, strokeWidth=2)
            .encode(y=y, x=x, **encoded.mark, tooltip=_tooltip()),
        ]

    return draw


class _Data:
    """The rows of a chart, each set once and by name: Altair copies whatever stands inside a layer."""

    def __init__(self) -> None:
        self.sets: dict[str, Rows] = {}

    def add(self, rows: Rows) -> alt.NamedData:
        name = f"rows-{len(self.sets)}"
        self.sets[name] = rows
        return alt.NamedData(name=name)


class _Panels:
    """Which panel a setup belongs to: its model, and engine, device or settings where these differ."""

    def __init__(self, summary: Summary, setups: Sequence[Setup]) -> None:
        self._names = summary.names
        fields = ("engine", "device", "machine")
        self._differ = [name for name in fields if len({getattr(one, name) for one in setups}) > 1]

    def row(self, setup: Setup) -> dict[str, Any]:
        parts = [self._names[setup.model]]
        for name in self._differ:
            value = getattr(setup, name)
            parts.append(f"machine {value + 1}" if name == "machine" else str(value))
        parts += [f"{name} {value}" for name, value in setup.variant]
        return {"panel": ", ".join(parts), "precision": setup.precision.upper(), "batch": setup.batch}


class _Encodings:
    """Colour, shape and line style by precision, the same in every panel."""

    def __init__(self, rows: Rows, *, legend: bool = True) -> None:
        present = {row["precision"] for row in rows}
        self._names = [name for name in PRECISION_ORDER if name.upper() in present]
        legends: dict[str, Any] = {} if legend and len(self._names) > 1 else {"legend": None}
        self.colour = alt.Color("precision:N", scale=self._scale(PRECISION_COLOURS), **legends)
        self.shape = alt.Shape("precision:N", scale=self._scale(SHAPES), **legends)
        hollow = any(row.get("open") for row in rows)
        self.mark: dict[str, Any] = {"color": self.colour, "shape": self.shape}
        if hollow:
            self.mark |= {
                "fillOpacity": alt.condition("datum.open", alt.value(0), alt.value(1)),
                "stroke": alt.Stroke("precision:N", scale=self._scale(PRECISION_COLOURS), **legends),
            }

    def lines(self, rows: Rows, data: _Data, x: alt.X, y: alt.Y) -> list[Any]:
        """One line per precision, in its own style (as an encoding, that would spoil the legend)."""
        return [
            alt.Chart(data.add(members))
            .mark_line(strokeWidth=2, strokeDash=DASHES[name])
            .encode(x=x, y=y, color=self.colour)
            for name in self._names
            if (members := [row for row in rows if row["precision"] == name.upper()])
        ]

    def _scale(self, values: Mapping[str, Any]) -> alt.Scale:
        names = [name.upper() for name in self._names]
        return alt.Scale(domain=names, range=[values[name] for name in self._names])


def _chart(
    summary: Summary, name: str, title: str, caption: str, rows: Rows, draw: Draw, height: Any
) -> Chart | None:
    """The panels side by side, in the order in which they first appear in ``rows``."""
    table = table_of(summary, name)
    if not rows or table is None:
        return None
    panels: dict[str, Rows] = {}
    for row in rows:
        panels.setdefault(row["panel"], []).append(row)
    data = _Data()
    drawn = [
        alt.layer(*draw(members, data)).properties(title=panel, width=_PANEL_WIDTH, height=height)
        for panel, members in panels.items()
    ]
    chart = (
        alt.concat(*drawn, columns=min(_COLUMNS, len(drawn)))
        .properties(description=f"{title}. {caption}", datasets=data.sets)
        .configure(**chart_config())
    )
    return Chart(name, title, caption, chart, table, beside=name in _BESIDE)


def _with(rows: Rows, key: str) -> Rows:
    return [row for row in rows if key in row]


def _labels(rows: Rows) -> alt.Y:
    order = list(dict.fromkeys(str(row["label"]) for row in rows))
    return alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=_LABEL_PIXELS))


def _top(values: Sequence[float], rows: Rows) -> float:
    """Where an axis ends: intervals fit in unless they are so wide that the values would shrink to a line."""
    highest = max(values)
    return min(max([highest, *(float(row["hi"]) for row in rows)]), _ROOM * highest)


def _extent(rows: Rows, *more: float) -> list[float]:
    """A domain common to all panels that takes in every interval, value and what is named."""
    values = [row[key] for row in rows for key in ("lo", "hi", "value")] + list(more)
    return [min(values), max(values)]


def _reference_line() -> Any:
    return alt.Chart(alt.InlineData(values=[{}])).mark_rule(strokeWidth=1.5, color=LIGHT["ink"])


def _tooltip(*more: str) -> list[alt.Tooltip]:
    names = {"panel": "model", "text": "value"}
    fields = ("panel", "precision", *more, "text")
    return [alt.Tooltip(f"{field}:N", title=names.get(field, field)) for field in fields]

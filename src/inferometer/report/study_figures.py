"""The 2017 studies' figures, drawn in their form: bars of images/s, lines of images/s/W on a second axis."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import altair as alt
import vl_convert

from inferometer.analysis.comparison.figures import Bar, StudyFigure
from inferometer.report.characters import allowed, png
from inferometer.report.encodings import Data
from inferometer.report.theme import LIGHT, SHAPES, chart_config
from inferometer.store import write_atomically

__all__ = ["FORMATS", "Format", "figure_caption", "figure_chart", "figure_specification", "write_figures"]

Format = Literal["png", "svg", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "svg", "pdf")

# Okabe and Ito's, from the darkest: the first two are what a grey print tells apart best.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c9096", "#1b1c1e")
_STEP, _LEAST_WIDTH, _HEIGHT = 34, 360, 290  # pixels
_LETTERS = 88  # of the title's size, over the narrowest figure
_BARS, _UNDER, _LINES = 0.52, 0.64, 0.28  # of the height: bars, what lies under lines, and these
_CROWDED = 0.05  # of the highest figure: numbers nearer than that would overprint
_SCALE = 2.0  # device pixels per chart pixel


def write_figures(
    figures: Sequence[StudyFigure], folder: Path, formats: Sequence[Format] = FORMATS
) -> list[Path]:
    """Write ``NAME.FORMAT`` for each figure; returns the paths.

    Raises:
        StoreError: The folder cannot be written.
    """
    written = []
    for figure in figures:
        specification = figure_specification(figure)
        for form in formats:
            path = folder / f"{figure.name}.{form}"
            write_atomically(path, _drawn(specification, form))
            written.append(path)
    return written


def figure_specification(figure: StudyFigure) -> dict[str, Any]:
    """The figure as Vega-Lite, with title and caption, on a white ground."""
    specification: dict[str, Any] = figure_chart(figure).to_dict()
    specification["config"]["background"] = LIGHT["ground"]
    specification["padding"] = 16
    specification["title"] = {
        "text": textwrap.wrap(figure.title, 60),
        "subtitle": textwrap.wrap(figure_caption(figure), _LETTERS),
        "anchor": "start", "frame": "bounds", "fontSize": 15, "subtitleFontSize": 12,
        "subtitleColor": LIGHT["quiet"], "subtitlePadding": 6, "limit": 2000, "offset": 16,
    }  # fmt: skip
    return specification


def figure_chart(figure: StudyFigure) -> Any:
    """Bars, lines over them, and a word where there is no figure because it ended otherwise."""
    data = Data()
    series = list(dict.fromkeys(one.series for one in figure.bars))
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=series, range=[_COLOURS[i % len(_COLOURS)] for i in range(len(series))]),
    )
    places = sorted({one.at for one in figure.bars})
    width = max(_LEAST_WIDTH, _STEP * len(series) * len(places))
    under = _crowded(figure.bars)
    rows = data.add([_row(one, one in under) for one in figure.bars])
    x = alt.X(
        "at:O",
        title="Devices" if figure.by == "devices" else "Batch",
        sort=places,
        axis=alt.Axis(labelAngle=0),
        scale=alt.Scale(paddingInner=0.25, paddingOuter=0.2),
    )
    layers: list[Any] = []
    rates = [one.rate for one in figure.bars if one.rate is not None]
    efficiencies = [one.efficiency for one in figure.bars if one.efficiency is not None]
    if rates:
        layers.append(_bars(rows, x, series, colour, max(rates), alone=not efficiencies))
    if efficiencies:
        lines = _lines(rows, x, series, colour, (min(efficiencies), max(efficiencies)), alone=not rates)
        layers.append(lines)
    if any(one.status != "ok" for one in figure.bars):
        layers.append(_lost(rows, x, series, colour))
    shown = [text for text, any_of in (("Images/s", rates), ("images/s/W", efficiencies)) if any_of]
    panel = alt.layer(*layers).resolve_scale(y="independent", shape="independent")
    title = " and ".join(shown)
    return (
        alt.concat(
            panel.properties(width=width, height=_HEIGHT, title=title[0].upper() + title[1:]), columns=1
        )
        .properties(datasets=data.sets, description=f"{figure.title}. {figure_caption(figure)}")
        .configure(**chart_config())
    )


def _bars(rows: Any, x: Any, series: Sequence[str], colour: Any, most: float, *, alone: bool) -> Any:
    """In the lower part where lines have the upper."""
    shown = alt.Chart(rows).transform_filter("isValid(datum.rate)")
    offset = alt.XOffset("series:N", sort=list(series))
    top = most * (1.1 if alone else 1 / _BARS)
    y = alt.Y(
        "rate:Q",
        title="Images/s, relative",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(values=_ticks(0, most)),
    )
    bars = shown.mark_bar().encode(x=x, xOffset=offset, y=y, color=colour, tooltip=_tooltip())
    words = shown.mark_text(baseline="bottom", dy=-3, fontSize=11, color=LIGHT["ink"]).encode(
        x=x, xOffset=offset, y=y, text=alt.Text("rate:Q", format=".2f" if most < 10 else ".3r")
    )
    return bars + words


def _lines(
    rows: Any, x: Any, series: Sequence[str], colour: Any, span: tuple[float, float], *, alone: bool
) -> Any:
    """Images/s/W; on the right, and above, where bars have the left. Their axis need not begin at 0."""
    shown = alt.Chart(rows).transform_filter("isValid(datum.efficiency)")
    low, high = span
    height = max(high - low, 0.1 * high)
    domain = [0.0, 1.1 * high] if alone else [low - height * _UNDER / _LINES, high + 0.25 * height]
    axis = alt.Axis(
        orient="left" if alone else "right",
        values=_ticks(0, high) if alone else _ticks(low, high),
        grid=alone,
        ticks=False,
        domain=False,
    )
    y = alt.Y(
        "efficiency:Q",
        title="Images/s/W, relative",
        scale=alt.Scale(domain=domain, nice=False, zero=False),
        axis=axis,
    )
    shapes = list(SHAPES.values())
    shape = alt.Shape(
        "series:N",
        scale=alt.Scale(domain=list(series), range=[shapes[i % len(shapes)] for i in range(len(series))]),
        legend=None,
    )
    stroke = LIGHT["ground"]
    halo = shown.mark_line(strokeWidth=5, stroke=stroke).encode(x=x, y=y, detail="series:N")
    lines = shown.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour)
    points = shown.mark_point(size=70, filled=True, stroke=stroke, strokeWidth=1.5, opacity=1).encode(
        x=x, y=y, color=colour, shape=shape, tooltip=_tooltip()
    )
    label = alt.Text("efficiency:Q", format=".3~g" if alone else ".2f")
    words = [
        shown.transform_filter(which)
        .mark_text(dy=dy, fontSize=11, fontWeight="bold")
        .encode(x=x, y=y, color=colour, text=label)
        for which, dy in (("!datum.under", -11), ("datum.under", 13))
    ]
    return alt.layer(halo, lines, points, *words)


def _crowded(bars: Sequence[Bar]) -> list[Bar]:
    """Those whose number stands under its point, since that of another line would lie on it."""
    known = [one for one in bars if one.efficiency is not None]
    span = max((one.efficiency or 0.0 for one in known), default=0.0)
    found = []
    for place in {one.at for one in known}:
        here = sorted((one for one in known if one.at == place), key=lambda one: one.efficiency or 0.0)
        for lower, upper in pairwise(here):
            if (upper.efficiency or 0.0) - (lower.efficiency or 0.0) < _CROWDED * span:
                found.append(lower)
    return found


def _lost(rows: Any, x: Any, series: Sequence[str], colour: Any) -> Any:
    """``out of memory``, written upwards where the bar would stand."""
    shown = alt.Chart(rows).transform_filter("datum.status !== 'ok'")
    return shown.mark_text(angle=270, align="left", baseline="middle", dx=4, fontSize=10).encode(
        x=x,
        xOffset=alt.XOffset("series:N", sort=list(series)),
        y=alt.value(_HEIGHT),
        text="status:N",
        color=colour,
    )


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from the one below ``low`` to the one above ``high``, some four apart."""
    rough = max(high - low, 0.1 * high) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{place * step:.6g}") for place in range(first, last + 1)]


def _row(bar: Bar, under: bool) -> dict[str, Any]:
    return {
        "under": under,
        "series": bar.series,
        "at": bar.at,
        "rate": bar.rate,
        "efficiency": bar.efficiency,
        "status": bar.status.replace("_", " "),
    }


def _tooltip() -> list[Any]:
    return [
        alt.Tooltip("series:N", title="Series"),
        alt.Tooltip("rate:Q", title="Images/s", format=".3f"),
        alt.Tooltip("efficiency:Q", title="Images/s/W", format=".3f"),
    ]


def figure_caption(figure: StudyFigure) -> str:
    """What bars and lines are, and relative to what."""
    parts = []
    if figure.rate_base is not None:
        parts.append(f"Bars: images/s, relative to {figure.rate_base}")
    if figure.efficiency_base is not None:
        parts.append(f"Lines: images/s/W with idle subtracted, relative to {figure.efficiency_base}")
    return ". ".join([*parts, *([figure.note] if figure.note else [])]) + "."


def _drawn(specification: dict[str, Any], form: Format) -> bytes:
    if form == "png":
        return png(specification, _SCALE)
    if form == "svg":
        return str(vl_convert.vegalite_to_svg(allowed(specification))).encode()
    return bytes(vl_convert.vegalite_to_pdf(allowed(specification)))

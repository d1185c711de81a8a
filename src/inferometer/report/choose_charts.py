"""What is bought with what: images/s of a device against latency, energy and accuracy, as a chart."""

from __future__ import annotations

import math
import string
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import altair as alt

from inferometer.analysis.choose_rows import Candidate, Choice, Need
from inferometer.analysis.choose_words import sentence
from inferometer.analysis.marks import MARK_NOTE, is_marked, ran_text
from inferometer.analysis.wording import milliseconds, percent, rate, significant
from inferometer.report.characters import png
from inferometer.report.encodings import Data, Encodings, Rows
from inferometer.report.theme import DASHES, LIGHT, chart_config

__all__ = ["choice_caption", "choice_chart", "choice_png"]

_WIDTH, _HEIGHT, _SCALE = 300, 300, 2.0  # pixels; device pixels per chart pixel
_LETTERS = 56  # of the title's size, over one panel
_SMALL, _LARGE, _RING = 55, 130, 420  # square pixels


class _Panel:
    """One figure against the rate: its titles, a candidate's value as drawn and as told, and its limit."""

    def __init__(
        self,
        title: str,
        axis: str,
        value: Callable[[Candidate], float | None],
        text: Callable[[float], str],
        limit: Callable[[Need], float | None],
        scale: Literal["log", "linear"] = "log",
    ) -> None:
        self.title, self.axis, self.value, self.text = title, axis, value, text
        self.limit, self.scale = limit, scale


_PANELS = (
    _Panel(
        "Latency: better to the lower right",
        "p99 of a call under load, ms",
        lambda one: None if one.loaded_s is None else one.loaded_s * 1e3,
        lambda value: f"p99 {milliseconds(value / 1e3)} ms",
        lambda need: None if need.p99_s is None else need.p99_s * 1e3,
    ),
    _Panel(
        "Energy: better to the lower right",
        "J/image, net of idle",
        lambda one: one.crew.j_per_image,
        lambda value: f"{significant(value)} J/image",
        lambda need: need.j_per_image,
    ),
    _Panel(
        "Accuracy: better to the upper right",
        "Top-1, %",
        lambda one: None if one.top1 is None else one.top1 * 100,
        lambda value: f"top-1 {percent(value / 100)}",
        lambda need: None if need.min_top1 is None else need.min_top1 * 100,
        "linear",
    ),
)


def choice_chart(choice: Choice) -> Any | None:
    """A panel for each figure that is known beside the rate; None where there is none."""
    drawn = [(panel, rows) for panel in _PANELS if (rows := _rows(choice, panel))]
    if not drawn:
        return None
    data = Data()
    encoded = Encodings([row for _, rows in drawn for row in rows])
    panels = [_drawn(choice, panel, rows, encoded, data) for panel, rows in drawn]
    return (
        alt.concat(*panels, columns=3)
        .properties(description=f"{sentence(choice)} {choice_caption(choice)}", datasets=data.sets)
        .configure(**chart_config())
    )


def choice_caption(choice: Choice) -> str:
    """How to read the chart."""
    letters = "; ".join(f"{letter}: {name}" for name, letter in _letters(choice).items())
    drawn = [panel for panel in _PANELS if any(panel.value(one) is not None for one in choice.candidates)]
    absent = any(panel.value(one) is None for panel in drawn for one in choice.candidates)
    parts = [
        "Filled: beaten by no other in all that is known of it; its number is the batch"
        + (", its letter the study." if letters else "."),
        "Larger: meets the need. Lines: one precision through its batches.",
        *(["Ringed: the one to take."] if choice.best else []),
        *(["Dashed across: the need."] if any(panel.limit(choice.need) for panel in drawn) else []),
        *(["What has no such figure is not drawn."] if absent else []),
        *([f"{letters}."] if letters else []),
        *([MARK_NOTE] if is_marked(*(one.mac_share for one in choice.candidates)) else []),
    ]
    return " ".join(parts)


def choice_png(choice: Choice) -> bytes | None:
    """The chart as a PNG file with its sentence above; None where there is nothing to draw."""
    chart = choice_chart(choice)
    if chart is None:
        return None
    specification: dict[str, Any] = chart.to_dict()
    letters = max(_LETTERS * len(specification["concat"]), 72)
    specification["config"]["background"] = LIGHT["ground"]
    specification["padding"] = 16
    specification["title"] = {
        "text": textwrap.wrap(sentence(choice), letters),
        "subtitle": textwrap.wrap(choice_caption(choice), letters),
        "anchor": "start", "frame": "bounds", "fontSize": 14, "subtitleFontSize": 12,
        "subtitleColor": LIGHT["quiet"], "subtitlePadding": 6, "limit": 4000, "offset": 16,
    }  # fmt: skip
    return png(specification, _SCALE)


def _letters(choice: Choice) -> dict[str, str]:
    """A letter for each study, where there are several."""
    names = [name for name, _ in choice.folders]
    return dict(zip(names, string.ascii_lowercase, strict=False)) if len(names) > 1 else {}


def _rows(choice: Choice, panel: _Panel) -> Rows:
    letters = _letters(choice)
    return [
        {
            "panel": choice.model_name,
            "setup": one.name,
            "precision": one.setup.precision.upper(),
            "line": f"{one.source} {replace(one.setup, batch=None)}",
            "batch": one.setup.batch,
            "label": f"{letters.get(one.source, '')}{one.setup.batch}",
            "x": one.rate,
            "y": value,
            "text": f"{rate(one.rate)} images/s, {panel.text(value)}",
            "open": one.beaten_by is not None,
            "meets": one.verdict == "meets",
            "best": one is choice.best,
            "ran": ran_text(one.mac_share, one.setup.precision),
        }
        for one in choice.candidates
        if (value := panel.value(one)) is not None and one.rate > 0
    ]


def _drawn(choice: Choice, panel: _Panel, rows: Rows, encoded: Encodings, data: Data) -> Any:
    limit = panel.limit(choice.need)
    x = _axis(alt.X, "x:Q", "Images/s of a device", [row["x"] for row in rows], "log")
    values = [row["y"] for row in rows] + ([limit] if limit else [])
    y = _axis(alt.Y, "y:Q", panel.axis, values, panel.scale)
    layers: list[Any] = []
    if limit is not None:
        rule = alt.Chart(alt.InlineData(values=[{"y": limit}]))
        layers.append(rule.mark_rule(strokeDash=[5, 4], strokeWidth=1.2, color=LIGHT["quiet"]).encode(y=y))
    for name, members, _ in encoded.apart(rows):
        line = alt.Chart(data.add(members)).mark_line(strokeWidth=1, strokeDash=DASHES[name])
        layers.append(
            line.encode(x=x, y=y, color=encoded.colour, detail="line:N", order=alt.Order("batch:Q"))
        )
    shown = alt.Chart(data.add(rows))
    if any(row["best"] for row in rows):
        ring = alt.Chart(data.add([row for row in rows if row["best"]]))
        layers.append(
            ring.mark_point(shape="circle", size=_RING, filled=False, stroke=LIGHT["ink"], strokeWidth=1.4)
            .encode(x=x, y=y)
        )  # fmt: skip
    layers.append(
        shown.mark_point(filled=True, opacity=1, strokeWidth=1.6).encode(
            x=x,
            y=y,
            size=alt.condition("datum.meets", alt.value(_LARGE), alt.value(_SMALL)),
            tooltip=[alt.Tooltip(f"{name}:N", title=title) for name, title in _TOLD.items()],
            **encoded.mark,
        )
    )
    named = alt.Chart(data.add([row for row in rows if row["best"] or not row["open"]]))
    letters = named.mark_text(align="left", dx=9, dy=-9, fontSize=11, color=LIGHT["ink"])
    layers.append(letters.encode(x=x, y=y, text="label:N"))
    return alt.layer(*layers).properties(title=panel.title, width=_WIDTH, height=_HEIGHT)


_TOLD = {"setup": "setup", "text": "value", "ran": "MACs at precision"}


def _axis(
    channel: Any, field: str, title: str, values: Sequence[float], kind: Literal["log", "linear"]
) -> Any:
    """An axis with room at both ends, for marks and what stands beside them."""
    low, high = min(values), max(values)
    if kind == "linear" or low <= 0:
        room = max(0.12 * (high - low), 0.01 * abs(high), 1e-6)
        scale = alt.Scale(domain=[low - room, high + room], nice=False, zero=False)
        return channel(field, title=title, scale=scale, axis=alt.Axis(tickCount=6))
    room = max((high / low) ** 0.12, 1.15)
    scale = alt.Scale(type="log", domain=[low / room, high * room], nice=False)
    ticks = _ticks(low / room, high * room)
    axis = alt.Axis(values=ticks) if len(ticks) > 2 else alt.Axis(tickCount=5)
    return channel(field, title=title, scale=scale, axis=axis)


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten; of more than four powers 1 alone."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) < 6 else (1,)
    found = (step * 10.0**decade for decade in decades for step in steps)
    return [value for value in found if low <= value <= high]

"""What the charts of a report are drawn with: a panel per model, lines with intervals, axes that fit both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from inferometer.analysis.marks import MARK_NOTE
from inferometer.analysis.rows import Summary
from inferometer.report.daggers import low_rows
from inferometer.report.encodings import Data, Encodings, Rows
from inferometer.report.tables import Table, table_of
from inferometer.report.theme import DASHES, LIGHT, chart_config

__all__ = [
    "CUT",
    "PANEL_HEIGHT",
    "Chart",
    "Draw",
    "by_panel",
    "chart_of",
    "having",
    "is_cut",
    "lines_and_intervals",
    "points_and_crosses",
    "reference_line",
    "scale_to",
    "tooltip_of",
    "top_of",
    "values_of",
]

PANEL_HEIGHT = 190
"""Of a panel with batches along it, pixels."""

CUT = " A triangle at the upper edge marks an interval that goes on beyond it."
"""Explains what `lines_and_intervals` draws where the axis cuts an interval."""

_PANEL_WIDTH = 230  # pixels; the page fits panels to its own width
_COLUMNS = 3
_ROOM = 2.0  # an axis ends at this many times the largest value; longer intervals are cut there
# Charts whose panels stack well beside their table, which is narrow.
_BESIDE = ("latency", "accuracy")

Draw = Callable[[Rows, Data], list[Any]]
"""Draws one panel: its rows, and where to keep what its layers show."""


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


def chart_of(
    summary: Summary, name: str, title: str, caption: str, rows: Rows, draw: Draw, height: Any
) -> Chart | None:
    """The panels side by side, in the order in which they first appear in ``rows``."""
    table = table_of(summary, name)
    if not rows or table is None:
        return None
    if low_rows(rows):
        caption += f" {MARK_NOTE}"
    data = Data()
    drawn = [
        alt.layer(*draw(members, data)).properties(title=panel, width=_PANEL_WIDTH, height=height)
        for panel, members in by_panel(rows).items()
    ]
    chart = (
        alt.concat(*drawn, columns=min(_COLUMNS, len(drawn)))
        .properties(description=f"{title}. {caption}", datasets=data.sets)
        .configure(**chart_config())
    )
    return Chart(name, title, caption, chart, table, beside=name in _BESIDE)


def lines_and_intervals(
    encoded: Encodings, rows: Rows, data: Data, x: alt.X, y: alt.Y, top: float
) -> list[Any]:
    """Per precision a line in its own style (as an encoding, that would spoil the legend) and the intervals.

    One that the axis cuts at ``top`` ends in a triangle.
    """
    layers: list[Any] = []
    for name, members, shift in encoded.apart(rows):
        own = alt.Chart(data.add(members))
        layers += [
            own.mark_line(strokeWidth=2, strokeDash=DASHES[name], xOffset=shift).encode(
                x=x, y=y, color=encoded.colour
            ),
            own.mark_rule(strokeWidth=1.5, clip=True, xOffset=shift).encode(
                x=x, y="lo:Q", y2="hi:Q", color=encoded.colour
            ),
        ]
        if beyond := [row for row in members if row["hi"] > top]:
            mark = alt.Chart(data.add(beyond)).mark_point(
                shape="triangle-up", size=40, filled=True, opacity=1, xOffset=shift
            )
            layers.append(mark.encode(x=x, y=alt.value(0), color=encoded.colour))
    return layers


def points_and_crosses(
    encoded: Encodings, rows: Rows, data: Data, x: alt.X, y: alt.Y, tooltip: list[alt.Tooltip]
) -> list[Any]:
    """Per precision a mark for each row with a ``value``, a cross on the axis for each that is ``absent``."""
    layers: list[Any] = []
    for _, members, shift in encoded.apart(having(rows, "value")):
        layers.append(
            alt.Chart(data.add(members))
            .mark_point(size=45, filled=True, opacity=1, xOffset=shift)
            .encode(x=x, y=y, color=encoded.colour, shape=encoded.shape, tooltip=tooltip)
        )
    for _, members, shift in encoded.apart(having(rows, "absent")):
        cross = alt.Chart(data.add(members)).mark_text(
            text="\N{MULTIPLICATION X}", fontSize=14, baseline="bottom", xOffset=shift
        )
        layers.append(cross.encode(x=x, y=alt.value("height"), color=encoded.colour, tooltip=tooltip))
    return layers


def having(rows: Rows, key: str) -> Rows:
    """The rows with that key."""
    return [row for row in rows if key in row]


def by_panel(rows: Rows) -> dict[str, Rows]:
    """The rows of each panel, in the order in which panels first appear."""
    panels: dict[str, Rows] = {}
    for row in rows:
        panels.setdefault(row["panel"], []).append(row)
    return panels


def values_of(rows: Rows) -> list[float]:
    """Every value that a panel shows, repeats included."""
    return [row[key] for row in rows for key in ("value", "repeat") if key in row]


def is_cut(rows: Rows, values: Sequence[float]) -> bool:
    """Whether the axis for these values cuts an interval."""
    return any(row["hi"] > top_of(values, rows) for row in rows)


def scale_to(low: float, top: float, rows: Rows) -> alt.Scale:
    """An axis to a round number; to ``top`` itself where an interval goes beyond, so that it is cut there."""
    return alt.Scale(domain=[low, top], nice=all(row["hi"] <= top for row in rows), zero=False)


def top_of(values: Sequence[float], rows: Rows) -> float:
    """Where an axis ends: intervals fit in unless they are so wide that the values would shrink to a line."""
    highest = max(values)
    return min(max([highest, *(float(row["hi"]) for row in rows)]), _ROOM * highest)


def reference_line() -> Any:
    """A line across the panel; its place is set by ``encode``."""
    return alt.Chart(alt.InlineData(values=[{}])).mark_rule(strokeWidth=1.5, color=LIGHT["ink"])


def tooltip_of(*more: str) -> list[alt.Tooltip]:
    """What a mark says of itself: model, precision, ``more``, value, and what ran."""
    names = {"panel": "model", "text": "value", "ran": "MACs at precision"}
    fields = ("panel", "precision", *more, "text", "ran")
    return [alt.Tooltip(f"{field}:N", title=names.get(field, field)) for field in fields]

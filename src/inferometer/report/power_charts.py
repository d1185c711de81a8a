"""The charts of power: images per second per watt, the same against fp32, and the watts behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from inferometer.analysis.marks import MARK, is_marked, ran_text
from inferometer.analysis.power import PowerRow
from inferometer.analysis.power_gains import PowerGain
from inferometer.analysis.rows import Setup, Summary
from inferometer.analysis.wording import rate, ratio, significant
from inferometer.report.daggers import daggers, low_rows, ran
from inferometer.report.drawing import (
    CUT,
    PANEL_HEIGHT,
    Chart,
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
from inferometer.report.theme import LIGHT

__all__ = ["power_charts"]


def power_charts(summary: Summary) -> tuple[Chart | None, ...]:
    """All three, in the order of the report; None where there is nothing to draw."""
    return (_per_watt(summary), _relative(summary), _watts(summary))


class _Places:
    """Panels of setups, with the boundary in their name where there are several."""

    def __init__(self, summary: Summary, found: Sequence[tuple[Setup, str | None]]) -> None:
        self._shown, self.caption = drawn([setup for setup, _ in found])
        self._panels = Panels(summary, tuple(self._shown))
        self._several = len({boundary for _, boundary in found}) > 1

    def __contains__(self, setup: object) -> bool:
        """Whether it is drawn."""
        return setup in self._shown

    def row(self, setup: Setup, boundary: str | None) -> dict[str, Any]:
        row = self._panels.row(setup)
        return row | {"panel": f"{row['panel']}, {boundary}"} if self._several else row


def _per_watt(summary: Summary) -> Chart | None:
    known = [row for row in summary.power if row.boundary is not None]
    place = _Places(summary, [(row.setup, row.boundary) for row in known])
    rows = [place.row(row.setup, row.boundary) | _per_watt_row(row) for row in known if row.setup in place]
    with_value = {row["panel"] for row in rows if "value" in row}
    rows = [row for row in rows if row["panel"] in with_value]
    encoded = Encodings(rows)
    x, tooltip = _batches(), tooltip_of("batch")

    def draw(panel: Rows, data: Data) -> list[Any]:
        rated = having(panel, "value")
        top = top_of(values_of(panel), rated)
        y = alt.Y("value:Q", title="images/s/W", scale=scale_to(0, top, rated), axis=alt.Axis(tickCount=5))
        layers = lines_and_intervals(encoded, rated, data, x, y, top)
        layers += points_and_crosses(encoded, panel, data, x, y, tooltip)
        return [*layers, *daggers(encoded, rated, data, x, y, tooltip)]

    caption = (
        "Images per second over net watts, that is power under load less idle, by batch; more is better. Bars"
        " are the 95 % interval, without the meter's own error of scale."
    )
    if any(is_cut(having(members, "hi"), values_of(members)) for members in by_panel(rows).values()):
        caption += CUT
    if any("absent" in row for row in rows):
        caption += " A cross marks a batch without a ratio; the table says why."
    caption += place.caption
    title = "Images/s/W by batch and precision"
    return chart_of(summary, "power", title, caption, rows, draw, PANEL_HEIGHT)


def _per_watt_row(row: PowerRow) -> dict[str, Any]:
    if row.efficiency is None:
        return {"absent": 1, "ran": ran(row.setup.precision, row.mac_share)["ran"], "text": "no ratio"}
    lo, hi = row.efficiency_interval or (row.efficiency, row.efficiency)
    return ran(row.setup.precision, row.mac_share) | {
        "value": row.efficiency,
        "lo": lo,
        "hi": hi,
        "text": f"{rate(row.efficiency)} images/s/W",
    }


def _relative(summary: Summary) -> Chart | None:
    place = _Places(summary, [(one.setup, one.boundary) for one in summary.power_gains])
    told = [one for one in summary.power_gains if one.setup in place]
    rows = [place.row(one.setup, one.boundary) | _relative_row(one) for one in told]
    encoded = Encodings(rows)
    values = [1.0, *(row["value"] for row in rows)]
    top = top_of(values, rows)
    title = f"{encoded.only} over FP32, per watt" if encoded.only else "times FP32, per watt"

    def draw(panel: Rows, data: Data) -> list[Any]:
        y = alt.Y("value:Q", title=title, scale=scale_to(0, top, rows), axis=alt.Axis(tickCount=5))
        own = alt.Chart(data.add(panel))
        x = {"x": _batches(), "xOffset": encoded.beside}
        return [
            own.mark_bar(clip=True).encode(**x, y=y, color=encoded.colour, tooltip=tooltip_of("batch")),
            reference_line().encode(y=alt.YDatum(1)),
            own.mark_rule(strokeWidth=1.5, color=LIGHT["ink"], clip=True).encode(**x, y="lo:Q", y2="hi:Q"),
            *_marks(panel, data, x, y),
        ]

    caption = (
        "Images per second per net watt over those of FP32 at the same batch, with the 95 % interval; the"
        " line at 1 is FP32."
    )
    if is_cut(rows, values):
        caption += " The axis cuts the longest intervals."
    caption += place.caption
    return chart_of(summary, "power-relative", "Per watt over FP32", caption, rows, draw, PANEL_HEIGHT)


def _relative_row(one: PowerGain) -> dict[str, Any]:
    lo, hi = one.interval or (one.ratio, one.ratio)
    share = ran(one.setup.precision, one.mac_shares[1])
    if is_marked(one.mac_shares[0]):
        share = {"ran": f"{share['ran']}; of FP32 {ran_text(one.mac_shares[0], one.baseline)}", "low": True}
    text = f"{ratio(one.ratio)} FP32: {one.verdict}"
    return share | {"value": one.ratio, "lo": lo, "hi": hi, "text": text}


def _watts(summary: Summary) -> Chart | None:
    known = [row for row in summary.power if row.load_w is not None]
    place = _Places(summary, [(row.setup, row.boundary) for row in known])
    rows = [place.row(row.setup, row.boundary) | _watts_row(row) for row in known if row.setup in place]
    encoded = Encodings(rows)
    tooltip = tooltip_of("batch")

    def draw(panel: Rows, data: Data) -> list[Any]:
        x = {"x": _batches(), "xOffset": encoded.beside}
        top = max(row[key] for row in panel for key in ("load", "idle_loaded", "hi") if key in row)
        scale = alt.Scale(domain=[0, top], nice=True)
        y = alt.Y("load:Q", title="watts", scale=scale, axis=alt.Axis(tickCount=5))
        split = alt.Chart(data.add(having(panel, "idle")))
        layers = [
            split.mark_bar().encode(**x, y=y, y2="idle:Q", color=encoded.colour, tooltip=tooltip),
            split.mark_bar(color=LIGHT["quiet"]).encode(
                **x, y=alt.Y("idle:Q", scale=scale), y2=alt.datum(0), tooltip=tooltip
            ),
        ]
        if whole := [row for row in panel if "idle" not in row]:
            pale = alt.Chart(data.add(whole)).mark_bar(opacity=0.35)
            layers.append(pale.encode(**x, y=y, color=encoded.colour, tooltip=tooltip))
        if spans := having(panel, "lo"):
            line = alt.Chart(data.add(spans)).mark_rule(strokeWidth=1.5, color=LIGHT["ink"])
            layers.append(line.encode(**x, y="lo:Q", y2="hi:Q"))
        if warm := having(panel, "idle_loaded"):
            mark = alt.Chart(data.add(warm)).mark_tick(thickness=2, size=5, color=LIGHT["ink"])
            layers.append(mark.encode(**x, y="idle_loaded:Q"))
        return [*layers, *_marks(panel, data, x, y)]

    caption = "The height is the power under load: grey is idle, the colour above it net power."
    if any("lo" in row for row in rows):
        caption += " Lines are the 95 % interval of net."
    if any("idle_loaded" in row for row in rows):
        caption += " Ticks are idle with the model loaded."
    if any("idle" not in row for row in rows):
        caption += " Pale bars are load alone: their idle is not known."
    caption += place.caption
    title = "Watts under load, idle and net"
    return chart_of(summary, "power-watts", title, caption, rows, draw, PANEL_HEIGHT)


def _watts_row(row: PowerRow) -> dict[str, Any]:
    load = row.load_w or 0.0
    found = ran(row.setup.precision, row.mac_share) | {"load": load, "value": load}
    text = f"{significant(load)} W under load"
    if row.idle_bare_w is not None and row.net_w is not None:
        found |= {"idle": row.idle_bare_w}
        text += f", {significant(row.idle_bare_w)} W idle, {significant(row.net_w)} W net"
        if row.net_interval is not None:
            found |= {
                "lo": row.net_interval[0] + row.idle_bare_w,
                "hi": row.net_interval[1] + row.idle_bare_w,
            }
    if row.idle_loaded_w is not None:
        found |= {"idle_loaded": row.idle_loaded_w}
        text += f", {significant(row.idle_loaded_w)} W idle with the model loaded"
    return found | {"text": text}


def _batches() -> alt.X:
    return alt.X("batch:O", title="batch, images", axis=alt.Axis(labelAngle=0))


def _marks(panel: Rows, data: Data, x: dict[str, Any], y: alt.Y) -> list[Any]:
    """The dagger over each bar that is due one."""
    low = low_rows(panel)
    if not low:
        return []
    mark = alt.Chart(data.add(low)).mark_text(
        text=MARK, fontSize=15, fontWeight="bold", color=LIGHT["ink"], baseline="bottom", dx=5, dy=-1
    )
    return [mark.encode(**x, y=y, tooltip=tooltip_of("batch"))]

"""The charts of scaling: images/s and share of linear by ranks, and images/s/W over the devices alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import altair as alt

from inferometer.analysis.rows import Summary
from inferometer.analysis.scaling_rows import ScalingPower, ScalingRow
from inferometer.analysis.scaling_words import largest
from inferometer.analysis.wording import percent, rate, ratio
from inferometer.report.daggers import daggers, ran
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
from inferometer.report.encodings import Data, Encodings, Panels, Rows
from inferometer.stats import mean_interval

__all__ = ["scaling_charts"]

_MARGIN = 18  # pixels between the ends of the axis and the outermost marks


def scaling_charts(summary: Summary) -> tuple[Chart | None, ...]:
    """Both; None where there is nothing to draw."""
    return (_scaling(summary), _per_watt(summary))


class _Groups:
    """The rows that are drawn: of each precision and setting all numbers of ranks, at the largest batch."""

    def __init__(self, summary: Summary, rows: Sequence[ScalingRow]) -> None:
        self.rows = [
            row
            for most in largest(rows)
            for row in rows
            if row.setup == replace(most.setup, ranks=row.setup.ranks)
        ]
        self._panels = Panels(summary, [replace(row.setup, ranks=1) for row in self.rows])
        self.ranks = sorted({1, *(row.setup.ranks for row in self.rows)})

    def row(self, row: ScalingRow) -> dict[str, Any]:
        """What every mark of this row holds."""
        setup = row.setup
        named = self._panels.row(replace(setup, ranks=1)) | ran(setup.precision, row.mac_share)
        panel = f"{named['panel']}, batch {setup.batch}"
        return named | {"panel": panel, "ranks": setup.ranks, "share": False}

    @property
    def x(self) -> alt.X:
        """The axis of ranks: as far apart as the numbers are, so that linear is straight."""
        axis = alt.Axis(values=self.ranks, format="d", labelOverlap=True)
        scale = alt.Scale(domain=[1, self.ranks[-1]], padding=_MARGIN, nice=False)
        return alt.X("ranks:Q", title="ranks", axis=axis, scale=scale)


def _scaling(summary: Summary) -> Chart | None:
    groups = _Groups(summary, summary.scaling)
    rates = [one for row in groups.rows for one in _rate_rows(groups, row)]
    shares = [one for row in groups.rows for one in _share_rows(groups, row)]
    rows = [*rates, *shares]
    encoded = Encodings(rows)
    x, tooltip = groups.x, tooltip_of("ranks", "batch")
    low, high = _extent(shares)

    def draw(panel: Rows, data: Data) -> list[Any]:
        if panel[0]["share"]:
            scale = scale_to(low, high, shares)
            y = alt.Y("value:Q", title="% of linear", scale=scale, axis=alt.Axis(tickCount=5))
            layers = lines_and_intervals(encoded, panel, data, x, y, high)
            layers.append(reference_line().encode(y=alt.YDatum(100)))
        else:
            rated = having(panel, "value")
            sums = having(panel, "linear")
            top = top_of([*values_of(rated), *(row["linear"] for row in sums)], rated)
            scale = scale_to(0, top, rated)
            y = alt.Y("value:Q", title="images/s", scale=scale, axis=alt.Axis(tickCount=5))
            layers = _sums(encoded, sums, data, x, alt.Y("linear:Q", scale=scale))
            layers += lines_and_intervals(encoded, rated, data, x, y, top)
        layers += points_and_crosses(encoded, panel, data, x, y, tooltip)
        return [*layers, *daggers(encoded, having(panel, "value"), data, x, y, tooltip)]

    caption = (
        "Images per second of all ranks together, at the largest batch. The dotted line is what the same"
        " devices give alone, added up; at one rank both are their mean. Of linear: the share of that sum, in"
        " percent. Bars are the 95 % interval between repeats."
    )
    rated = having(rates, "value")
    if any(is_cut(one, values_of(one)) for one in by_panel(rated).values()) or any(
        row["hi"] > high for row in shares
    ):
        caption += CUT
    return chart_of(summary, "scaling", "Scaling", caption, rows, draw, PANEL_HEIGHT)


def _rate_rows(groups: _Groups, row: ScalingRow) -> Rows:
    """The rate together and the sum alone; of the row with most ranks also what one device gives."""
    base = groups.row(row)
    low, high = _mean_interval(row.repeats, row.rate)
    found = [base | {"value": row.rate, "lo": low, "hi": high, "text": f"{rate(row.rate)} images/s"}]
    if row.alone_sum is None:
        return found
    plain = base | {"low": False, "text": f"alone, added up: {rate(row.alone_sum)} images/s"}
    found.append(plain | {"linear": row.alone_sum})
    if row.setup.ranks == max(one.setup.ranks for one in groups.rows if _alike(one, row) and one.alone):
        one = statistics.fmean(row.alone)
        text = f"one device alone, mean of {len(row.alone)}: {rate(one)} images/s"
        single = base | {"ranks": 1, "text": text, "low": False}
        found += [single | {"value": one, "lo": one, "hi": one}, single | {"linear": one}]
    return sorted(found, key=lambda one: int(one["ranks"]))


def _share_rows(groups: _Groups, row: ScalingRow) -> Rows:
    if row.efficiency is None:
        return []
    base = groups.row(row)
    low, high = row.interval or (row.efficiency, row.efficiency)
    text = f"{percent(row.efficiency)} of linear: {row.verdict}"
    own = {"value": row.efficiency * 100, "lo": low * 100, "hi": high * 100, "text": text, "share": True}
    return [base | own | {"panel": f"{base['panel']}: of linear"}]


def _sums(encoded: Encodings, rows: Rows, data: Data, x: alt.X, y: alt.Y) -> list[Any]:
    """The devices alone, added up: a dotted line for each precision, in its colour."""
    return [
        alt.Chart(data.add(members))
        .mark_line(strokeWidth=1.2, strokeDash=[1, 3], opacity=0.9, xOffset=shift)
        .encode(x=x, y=y, color=encoded.colour)
        for _, members, shift in encoded.apart(rows)
    ]


def _per_watt(summary: Summary) -> Chart | None:
    groups = _Groups(summary, [row for row in summary.scaling if row.power])
    several = len({one.boundary for row in groups.rows for one in row.power}) > 1
    rows = [_watt_row(groups, row, one, several) for row in groups.rows for one in row.power]
    encoded = Encodings(rows)
    x, tooltip = groups.x, tooltip_of("ranks", "batch")
    top = top_of([1.0, *values_of(rows)], rows)

    def draw(panel: Rows, data: Data) -> list[Any]:
        scale = scale_to(0, top, rows)
        y = alt.Y("value:Q", title="times alone, per watt", scale=scale, axis=alt.Axis(tickCount=5))
        layers = lines_and_intervals(encoded, panel, data, x, y, top)
        layers.append(reference_line().encode(y=alt.YDatum(1)))
        layers += points_and_crosses(encoded, panel, data, x, y, tooltip)
        return [*layers, *daggers(encoded, panel, data, x, y, tooltip)]

    caption = (
        "Images per second per net watt of all ranks together, over what the same devices give alone, at the"
        " largest batch; the line at 1 is as much per watt as alone. Bars are the 95 % interval."
    )
    if any(row["hi"] > top for row in rows):
        caption += CUT
    return chart_of(summary, "scaling-power", "Scaling per watt", caption, rows, draw, PANEL_HEIGHT)


def _watt_row(groups: _Groups, row: ScalingRow, one: ScalingPower, several: bool) -> dict[str, Any]:
    base = groups.row(row)
    low, high = one.interval or (one.ratio, one.ratio)
    text = f"{ratio(one.ratio)} alone: {rate(one.together)} against {rate(one.alone)} images/s/W"
    panel = f"{base['panel']}, {one.boundary}" if several else base["panel"]
    return base | {"panel": panel, "value": one.ratio, "lo": low, "hi": high, "text": text}


def _alike(one: ScalingRow, other: ScalingRow) -> bool:
    return one.setup == replace(other.setup, ranks=one.setup.ranks)


def _mean_interval(repeats: Sequence[float], mean: float) -> tuple[float, float]:
    """The t interval between the repeats; of one repeat the rate itself."""
    between = mean_interval(repeats)
    return (max(between.lo, 0.0), between.hi) if between is not None else (mean, mean)


def _extent(rows: Rows) -> tuple[float, float]:
    """The axis of shares, the same in all panels: it holds 100 % and all intervals but very long ones."""
    values = [100.0, *values_of(rows)]
    low = min([*values, *(float(row["lo"]) for row in rows)])
    return max(low, min(values) / 2), top_of(values, rows)

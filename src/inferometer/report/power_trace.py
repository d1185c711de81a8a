"""What the meters read during one trial: watts and temperature over time, from its sidecar."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import numpy.typing as npt

from inferometer.analysis.wording import joined, model_names, plural, significant
from inferometer.errors import StoreError
from inferometer.records import PowerFigure, Record
from inferometer.report.encodings import Data, Rows
from inferometer.report.theme import LIGHT, PRECISION_COLOURS, chart_config
from inferometer.store import SidecarMissing, read_sidecar, sidecar_of

__all__ = [
    "CAPTION",
    "MOST_TRACES",
    "PowerTrace",
    "Series",
    "Traces",
    "read_trace",
    "trace_chart",
    "traces_of",
]

MOST_TRACES = 12
"""So many trials are drawn; a large study has hundreds."""

CAPTION = (
    "Watts over seconds from the begin of the load, and temperature. Shaded are the windows that figures rest"
    " on: blue the load, grey idle, yellow idle with the model loaded. A counter's line is made of means."
)
"""What every trace shows."""

_ENDING = ".power.npz"
_POINTS = 400  # of a line
_AROUND_S = 90.0  # of readings on each side of the load: idle that trials share may lie hours before
_GAP = 10  # times the usual time between readings
_STEPS = 10  # of a counter in one mean: its reading is up to a step old, so that two make 10 % at most
_WIDTH, _HEIGHT, _LOW = 620, 220, 90  # pixels
_LINES = 6
_TOLD, _TOLD_SIZE = 80, 90  # values of a line that can be read off; square pixels around each
_COLOURS = [PRECISION_COLOURS[name] for name in ("fp32", "int8", "fp16", "bf16", "tf32")] + [LIGHT["quiet"]]
_SHADES = {"idle": LIGHT["quiet"], "idle, model loaded": "#c9a400", "load": LIGHT["accent"]}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One channel's readings as they are drawn: seconds from the begin of the load; W or degrees Celsius.

    ``primary``: the record's figures rest on it. A value is NaN where there is a gap.
    """

    name: str
    seconds: tuple[float, ...]
    values: tuple[float, ...]
    primary: bool


@dataclass(frozen=True)
class PowerTrace:
    """What is drawn of one trial; ``windows``: name, begin and end, in seconds from the begin of the load."""

    title: str
    record_id: str
    watts: tuple[Series, ...]
    temperatures: tuple[Series, ...]
    windows: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Traces:
    """The trials that are drawn, how many others have readings too, and of how many the file is gone."""

    drawn: tuple[PowerTrace, ...] = ()
    others: int = 0
    gone: int = 0

    @property
    def note(self) -> str | None:
        """What is not drawn, in a sentence; None when all is."""
        parts = [f"{plural(self.others, 'more trial')} with power readings, not drawn"] if self.others else []
        if self.gone:
            parts.append(f"{plural(self.gone, 'trial')} whose file of power readings is not there")
        return f"Besides: {joined(parts)}." if parts else None


def traces_of(records: Sequence[Record], folder: Path) -> Traces:
    """The traces of so many trials as are drawn, first repeats first.

    Args:
        records: Of all kinds.
        folder: The store's, which holds their sidecars.

    Raises:
        StoreError: A sidecar cannot be read, or is not the one that was written.
    """
    metered = [record for record in records if sidecar_of(record, _ENDING) is not None]
    names = model_names([record.trial.model for record in records])
    chosen = sorted(metered, key=lambda record: record.trial.repeat)[:MOST_TRACES]
    drawn: list[PowerTrace] = []
    gone = 0
    for record in chosen:
        try:
            one = read_trace(folder, record, names)
        except SidecarMissing:
            gone += 1
            continue
        if one is not None and one.watts:
            drawn.append(one)
    return Traces(tuple(drawn), len(metered) - len(chosen), gone)


def read_trace(
    folder: Path, record: Record, names: Mapping[str, str] | None = None, points: int = _POINTS
) -> PowerTrace | None:
    """What the meters read during a trial; None when the record has no such sidecar, or no load.

    Args:
        folder: The store's.
        record: Of a throughput trial.
        names: Short names by model.
        points: A line is thinned to so many.

    Raises:
        StoreError: The sidecar cannot be read, or is not the one that was written.
    """
    load = record.load_window
    found = _arrays(folder, record)
    if found is None or load is None:
        return None
    channels, channel, middle, values = found
    length = (load.end_ns - load.begin_ns) / 1e9
    seconds = (middle - load.begin_ns) / 1e9
    near = (seconds > -_AROUND_S) & (seconds < length + _AROUND_S)
    watts, temperatures = [], []
    for place, about in enumerate(channels):
        own = near & (channel == place)
        if not own.any():
            continue
        one = _series(about, channels, seconds[own], values[own], points)
        if about["quantity"] in ("power", "energy") and len(one.seconds) > 1:
            watts.append(one)
        elif about["quantity"] == "temperature":
            temperatures.append(one)
    watts.sort(key=lambda one: not one.primary)
    trial = record.trial
    name = (names or {}).get(trial.model, trial.model)
    title = f"{name}, {trial.precision.upper()}, batch {trial.batch}, repeat {trial.repeat + 1}"
    return PowerTrace(
        f"{title} ({trial.engine}, {trial.device})",
        record.id,
        tuple(watts[:_LINES]),
        tuple(temperatures[:_LINES]),
        tuple(_windows(record, seconds[near])),
    )


def trace_chart(trace: PowerTrace) -> Any:
    """The trial's watts, and its temperatures below, as an Altair chart of one panel or two."""
    data = Data()
    panels = [_panel(trace, trace.watts, "watts", data)]
    if trace.temperatures:
        panels.append(_panel(trace, trace.temperatures, "\N{DEGREE SIGN}C", data))
    return (
        alt.concat(*panels, columns=1)
        .resolve_scale(color="independent", strokeDash="independent")
        .properties(description=f"{trace.title}. {CAPTION}", datasets=data.sets)
        .configure(**chart_config())
    )


def _panel(trace: PowerTrace, lines: Sequence[Series], unit: str, data: Data) -> Any:
    watts = unit == "watts"
    # A name on one panel alone, since a button of the page hides what has it.
    names = [one.name if watts else f"{one.name}, temperature" for one in lines]
    # All panels of one trial show the same time.
    times = [second for one in (*trace.watts, *trace.temperatures) for second in one.seconds]
    scale = alt.Scale(domain=[min(times), max(times)], nice=False)
    x = alt.X("second:Q", title="seconds", scale=scale, axis=alt.Axis(tickCount=8, grid=False))
    y = alt.Y("value:Q", title=unit, scale=alt.Scale(zero=watts), axis=alt.Axis(tickCount=4))
    several = len(names) > 1
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=_COLOURS[: len(names)]),
        legend=alt.Legend(labelLimit=400, columns=2) if several else None,
    )
    fields = {"series": "series", "second": "second", "text": "value"}
    tooltip = [alt.Tooltip(f"{field}:N", title=title) for field, title in fields.items()]
    layers: list[Any] = [
        alt.Chart(data.add([{"begin": begin, "end": end, "window": name}]))
        .mark_rect(opacity=0.13, color=_SHADES[name])
        .encode(
            x=alt.X("begin:Q", scale=scale, title="seconds"), x2="end:Q", tooltip=[alt.Tooltip("window:N")]
        )
        for name, begin, end in trace.windows
    ]
    for name, one in zip(names, lines, strict=True):
        own = [
            {"series": name, "second": second, "value": None if np.isnan(value) else value}
            for second, value in zip(one.seconds, one.values, strict=True)
        ]
        dash, width = ([1, 0], 1.6) if one.primary or not watts else ([4, 2], 1.1)
        line = alt.Chart(data.add(own)).mark_line(strokeWidth=width, strokeDash=dash)
        layers.append(line.encode(x=x, y=y, color=colour))
        told = alt.Chart(data.add(_told(own, "W" if watts else unit)))
        point = told.mark_point(size=_TOLD_SIZE, filled=True, opacity=0)
        layers.append(point.encode(x=x, y=y, color=colour, tooltip=tooltip))
    title, height = ("Power", _HEIGHT) if watts else ("Temperature", _LOW)
    return alt.layer(*layers).properties(title=title, width=_WIDTH, height=height)


def _told(rows: Rows, unit: str) -> Rows:
    """Some readings along a line, which say their value where the mouse is."""
    known = [row for row in rows if row["value"] is not None]
    thinned = known[:: math.ceil(len(known) / _TOLD) or 1]
    return [row | {"text": f"{significant(row['value'])} {unit}"} for row in thinned]


def _series(
    about: Mapping[str, Any],
    channels: Sequence[Mapping[str, Any]],
    seconds: Floats,
    values: Floats,
    points: int,
) -> Series:
    alike = [one for one in channels if _group(one) == _group(about)]
    parts = [about["part"]] if len({one["part"] for one in alike}) > 1 else []
    boundary = [about["boundary"]] if about["quantity"] != "temperature" or not parts else []
    name = ", ".join([*boundary, *parts, about["semantics"]])
    if (
        len([one for one in alike if (one["part"], one["semantics"]) == (about["part"], about["semantics"])])
        > 1
    ):
        name += f" ({about['name']})"
    mean_s = _STEPS * about.get("step_s", 0.0) if about.get("step_s") else None
    pieces: list[tuple[Floats, Floats]] = []
    for own in _runs(seconds):
        share = max(2, round(points * len(own) / len(seconds)))
        piece = seconds[own], values[own]
        if about["quantity"] == "energy":
            piece = _power_of(*piece, share, mean_s)
        elif len(own) > share:
            piece = _thinned(*piece, share)
        if len(piece[0]):
            pieces += [piece, (piece[0][-1:], np.array([np.nan]))]  # the line breaks where nothing was kept
    seconds = np.concatenate([np.zeros(0), *(piece[0] for piece in pieces[:-1])])
    values = np.concatenate([np.zeros(0), *(piece[1] for piece in pieces[:-1])])
    return Series(
        name,
        tuple(round(float(one), 3) for one in seconds),
        tuple(round(float(one), 2) for one in values),
        bool(about["primary"]),
    )


def _runs(seconds: Floats) -> list[npt.NDArray[np.intp]]:
    """Places of readings that follow one another without a gap."""
    steps = np.diff(seconds)
    far = np.flatnonzero(steps > _GAP * np.median(steps)) + 1 if len(steps) else np.zeros(0, np.intp)
    return np.split(np.arange(len(seconds)), far)


def _group(about: Mapping[str, Any]) -> tuple[bool, Any]:
    return about["quantity"] == "temperature", about["boundary"]


def _power_of(seconds: Floats, joules: Floats, points: int, mean_s: float | None) -> tuple[Floats, Floats]:
    """Mean power between equally spaced moments, from a counter interpolated where its value changed.

    Each mean spans ``mean_s`` at least; None: as many changes as make the error of its edges small.
    """
    known = ~np.isnan(joules)
    seconds, joules = seconds[known], joules[known]
    if len(joules) < 2:
        return np.zeros(0), np.zeros(0)
    changed = np.concatenate([[True], np.diff(joules) > 0])
    seconds, joules = seconds[changed], joules[changed]
    if len(joules) < 2:
        return np.zeros(0), np.zeros(0)
    span = seconds[-1] - seconds[0]
    changes_s = float(np.median(np.diff(seconds)))
    length_s = _STEPS * changes_s if mean_s is None else max(mean_s, changes_s)
    count = int(min(points, max(1, span / length_s)))
    edges = np.linspace(seconds[0], seconds[-1], count + 1)
    energy = np.interp(edges, seconds, joules)
    return (edges[:-1] + edges[1:]) / 2, np.diff(energy) / np.diff(edges)


def _thinned(seconds: Floats, values: Floats, points: int) -> tuple[Floats, Floats]:
    """Means over neighbours; NaN only where all of them are."""
    groups = [part for part in np.array_split(np.arange(len(seconds)), points) if len(part)]
    means = [
        float(np.mean(own)) if len(own := values[part][~np.isnan(values[part])]) else np.nan
        for part in groups
    ]
    return np.array([float(np.mean(seconds[part])) for part in groups]), np.array(means)


def _windows(record: Record, seconds: Floats) -> list[tuple[str, float, float]]:
    """The windows that figures rest on, as far as there are readings near the load."""
    load = record.load_window
    if load is None or not len(seconds):
        return []
    spans: list[tuple[str, int, int]] = [("load", load.begin_ns, load.end_ns)]
    if load.idle_loaded is not None:
        spans.append(("idle, model loaded", *load.idle_loaded))
    first = next(iter(record.power or ()), None)
    if first is not None:
        figures: list[PowerFigure | None] = [first.idle_before, first.idle_after]
        spans += [("idle", one.begin_ns, one.end_ns) for one in figures if one is not None]
        if load.idle_loaded is None and first.idle_loaded is not None:
            spans.append(("idle, model loaded", first.idle_loaded.begin_ns, first.idle_loaded.end_ns))
    low, high = float(seconds.min()), float(seconds.max())
    found = []
    for name, begin, end in sorted(spans, key=lambda one: one[1]):
        from_s = max((begin - load.begin_ns) / 1e9, low)
        to_s = min((end - load.begin_ns) / 1e9, high)
        if to_s > from_s:
            found.append((name, round(from_s, 3), round(to_s, 3)))
    return found


def _arrays(
    folder: Path, record: Record
) -> tuple[list[dict[str, Any]], npt.NDArray[np.int32], Floats, Floats] | None:
    """The channels, and of every reading its channel, the middle of its time in ns, and its value."""
    sidecar = sidecar_of(record, _ENDING)
    if sidecar is None:
        return None
    path, content = folder / sidecar.path, read_sidecar(folder, sidecar)
    try:
        with np.load(BytesIO(content), allow_pickle=False) as data:
            channels = json.loads(str(data["channels"][()]))
            middle = data["begin_ns"] + (data["end_ns"] - data["begin_ns"]) / 2
            return channels, data["channel"], middle, data["value"].astype(np.float64)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path}: no power readings: {error}") from error

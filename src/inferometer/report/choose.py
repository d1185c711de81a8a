"""A choice as a table, and as a chart of what is bought with what."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Literal

import altair as alt

from inferometer.analysis.choose import sentence
from inferometer.analysis.choose_rows import Candidate, Choice
from inferometer.analysis.findings import crew_text, settings_text
from inferometer.analysis.wording import milliseconds, percent, rate, significant
from inferometer.report.cells import NONE, Cell, Column, Table, Tone
from inferometer.report.characters import png
from inferometer.report.encodings import Data
from inferometer.report.theme import LIGHT, PRECISION_COLOURS, SHAPES, chart_config

__all__ = ["choice_png", "choice_table"]

_TONES: dict[str, Tone] = {"meets": "good", "fails": "bad", "not known": "muted"}
_AXES: dict[str, tuple[str, Callable[[Any], float]]] = {
    "images_per_s": ("Images/s of a device", lambda one: one.images_per_s / one.devices),
    "p99_s": ("p99 of a call under load, ms", lambda one: one.p99_s * 1e3),
    "j_per_image": ("J/image, net of idle", lambda one: one.j_per_image),
    "top1": ("Top-1, %", lambda one: one.top1 * 100),
}
_TITLES = {"p99_s": "Latency and rate", "j_per_image": "Energy and rate", "top1": "Accuracy and rate"}
_WIDTH, _HEIGHT, _SCALE = 420, 320, 2.0  # pixels; device pixels per chart pixel


def choice_table(choice: Choice) -> Table:
    """All candidates, best first."""
    several = len({one.source for one in choice.candidates}) > 1
    columns = [
        *([Column("Study", header=True)] if several else []),
        Column("Setup", header=True, prose=True),
        Column("Rate", "images/s", "right"),
        Column("p99 under load", "ms", "right", spare=1),
        Column("Load", "W", "right", spare=2),
        Column("Net", "J/image", "right", spare=2),
        Column("Top-1", "%", "right", spare=2),
        Column("Devices", None, "right"),
        Column("Verdict"),
        Column("Why", prose=True),
        Column("Beaten by", prose=True, spare=3),
    ]
    note = (
        "Of one device, or as many as the setup has. p99: of a call while the device is kept busy, of the"
        " worst repeat. Devices: as many as the lower end of the rate's interval wants. Beaten by: another"
        " that is no worse in any of rate, p99, joules and top-1 that this one tells, and better in one."
    )
    rows = tuple(_cells(one, several) for one in choice.candidates)
    return Table("choice", "Setups", tuple(columns), rows, note)


def choice_png(choice: Choice) -> bytes | None:
    """Images/s of a device against each other figure that is known; None where there is none but the rate."""
    names = [name for name in ("p99_s", "j_per_image", "top1") if _known(choice.candidates, name)]
    if not names:
        return None
    data = Data()
    panels = alt.concat(*(_panel(choice, name, data) for name in names), columns=3)
    chart = panels.properties(datasets=data.sets).configure(**chart_config())
    specification = chart.to_dict()
    specification["config"]["background"] = LIGHT["ground"]
    specification["padding"] = 16
    letters = 62 * len(names)
    specification["title"] = {
        "text": textwrap.wrap(sentence(choice), letters),
        "subtitle": textwrap.wrap(
            "Numbers: batch. Filled: beaten by no other in all that is known of it. Larger: meets the need.",
            letters,
        ),
        "anchor": "start", "frame": "bounds", "fontSize": 14, "subtitleColor": LIGHT["quiet"], "limit": 4000,
        "offset": 14,
    }  # fmt: skip
    return png(specification, _SCALE)


def _known(candidates: Sequence[Candidate], name: str) -> bool:
    return any(getattr(one, name) is not None for one in candidates)


def _panel(choice: Choice, name: str, data: Data) -> Any:
    (across, rated), (up, valued) = _AXES["images_per_s"], _AXES[name]
    rows = [
        {
            "setup": _setup(one),
            "precision": one.setup.precision.upper(),
            "batch": str(one.setup.batch),
            "x": rated(one),
            "y": valued(one),
            "front": one.beaten_by is None,
            "meets": one.verdict == "meets",
        }
        for one in choice.candidates
        if getattr(one, name) is not None
    ]
    precisions = [word for word in PRECISION_COLOURS if any(row["precision"] == word.upper() for row in rows)]
    domain = [word.upper() for word in precisions]
    log: Literal["linear", "log"] = "linear" if name == "top1" else "log"
    shown = alt.Chart(data.add(rows), width=_WIDTH, height=_HEIGHT, title=_TITLES[name]).encode(
        x=alt.X("x:Q", title=across, scale=alt.Scale(type="log", nice=False, padding=30)),
        y=alt.Y("y:Q", title=up, scale=alt.Scale(type=log, zero=False, nice=False, padding=24)),
    )
    names = shown.mark_text(align="left", dx=8, dy=-8, fontSize=11).encode(text="batch:N")
    points = shown.mark_point(opacity=0.9, strokeWidth=1.6).encode(
        color=alt.Color(
            "precision:N",
            scale=alt.Scale(domain=domain, range=[PRECISION_COLOURS[one] for one in precisions]),
        ),
        shape=alt.Shape(
            "precision:N", scale=alt.Scale(domain=domain, range=[SHAPES[one] for one in precisions])
        ),
        fillOpacity=alt.condition("datum.front", alt.value(0.9), alt.value(0.0)),
        fill=alt.Fill(
            "precision:N",
            scale=alt.Scale(domain=domain, range=[PRECISION_COLOURS[one] for one in precisions]),
        ),
        size=alt.condition("datum.meets", alt.value(110), alt.value(45)),
        tooltip=["setup:N", "x:Q", "y:Q"],
    )
    return points + names


def _setup(one: Candidate) -> str:
    setup = one.setup
    where = f"{setup.engine} {setup.device}"
    return f"{where} {setup.precision.upper()} batch {setup.batch}{crew_text(setup)}{settings_text(setup)}"


def _cells(one: Candidate, several: bool) -> tuple[Cell, ...]:
    why = "; ".join(f"{each.what}: {each.evidence}" for each in one.judged)
    devices = None if one.units is None else one.units * one.devices
    shown = (
        Cell(_setup(one), _setup(one)),
        Cell(rate(one.images_per_s), one.images_per_s),
        _optional(one.p99_s, milliseconds),
        _optional(one.load_w, significant),
        _optional(one.j_per_image, significant),
        _optional(one.top1, lambda value: percent(value).removesuffix(" %")),
        Cell(NONE if devices is None else str(devices), devices),
        Cell(one.verdict, one.verdict, _TONES[one.verdict]),
        Cell(why, why),
        Cell(one.beaten_by or "", one.beaten_by),
    )
    return (Cell(one.source, one.source), *shown) if several else shown


def _optional(value: float | None, text: Any) -> Cell:
    return Cell(NONE, None, "muted") if value is None else Cell(text(value), value)

"""Where a call's time goes at two precisions, and its longest layers, as a chart."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt

from inferometer.analysis.explain_layers import Layer
from inferometer.analysis.explain_rows import Explanation, Side
from inferometer.analysis.explain_words import headlines, marked, place
from inferometer.analysis.marks import MARK_NOTE, is_marked
from inferometer.analysis.wording import milliseconds
from inferometer.report.characters import png
from inferometer.report.encodings import Data
from inferometer.report.explain import longest
from inferometer.report.theme import LIGHT, PRECISION_COLOURS, chart_config

__all__ = ["CAPTION", "explanation_chart", "explanation_png"]

CAPTION = (
    "By kind of layer, and the layers that take longest. The upright line is the time that a call took when"
    " it was measured; the layers are those of one call by the runtime's own profile, nothing scaled."
)

_WIDTH, _BAR, _ROW = 300, 46, 26  # pixels
_LAYERS = 10
_LETTERS = 34  # of a layer's name
_SCALE = 2.0  # device pixels per chart pixel
# Beside the precisions' own colours; none of these is close to one of them.
_KINDS = {
    "does not multiply": LIGHT["quiet"],
    "reorder": LIGHT["reorder"],
    "to and from integers": LIGHT["convert"],
    "not known to multiply": LIGHT["unknown"],
}


def explanation_chart(one: Explanation) -> Any | None:
    """The two panels of one explanation; None without profiles."""
    if not one.parts:
        return None
    data = Data()
    panels = alt.concat(_stack(one, data), _bars(one, data), columns=2)
    return (
        panels.resolve_scale(color="independent")
        .properties(description=f"{place(one)}. {CAPTION}", datasets=data.sets)
        .configure(**chart_config())
    )


def explanation_png(found: Sequence[Explanation]) -> bytes | None:
    """All explanations that have profiles, one below the other, as a PNG file; None when none has."""
    drawn = [(one, chart) for one in found if (chart := explanation_chart(one)) is not None]
    if not drawn:
        return None
    rows: list[dict[str, Any]] = []
    sets: dict[str, Any] = {}
    for number, (one, chart) in enumerate(drawn):
        specification = chart.to_dict()
        names = {name: f"{name}-{number}" for name in specification["datasets"]}
        sets |= {names[name]: rows_ for name, rows_ in specification["datasets"].items()}
        rows.append(
            {
                "concat": [_renamed(panel, names) for panel in specification["concat"]],
                "columns": 2,
                "resolve": {"scale": {"color": "independent"}},
                "title": {
                    "text": textwrap.wrap(headlines(one)[0], 105),
                    "anchor": "start", "frame": "bounds", "fontSize": 14, "limit": 2000, "offset": 14,
                },
            }
        )  # fmt: skip
    schema = drawn[0][1].to_dict()
    note = CAPTION
    if any(is_marked(one.own.mac_share, one.base.mac_share) for one, _ in drawn):
        note += f" {MARK_NOTE}"
    whole = {
        "$schema": schema["$schema"],
        "config": {**schema["config"], "background": LIGHT["ground"], "concat": {"spacing": 34}},
        "padding": 16,
        "datasets": sets,
        "vconcat": rows,
        "resolve": {"scale": {"color": "independent", "yOffset": "independent"}},
        "title": {
            "text": "Where a call's time goes", "subtitle": textwrap.wrap(note, 115), "fontSize": 16,
            "subtitleFontSize": 12, "subtitleColor": LIGHT["quiet"], "subtitlePadding": 6, "limit": 2000,
            "offset": 18, "anchor": "start",
        },
    }  # fmt: skip
    return png(whole, _SCALE)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """A panel with its named data under other names."""
    if isinstance(value, dict):
        return {
            key: {"name": names[inner["name"]]} if key == "data" else _renamed(inner, names)
            for key, inner in value.items()
        }
    return [_renamed(inner, names) for inner in value] if isinstance(value, list) else value


def _stack(one: Explanation, data: Data) -> Any:
    rows = [row for side in (one.base, one.own) for row in _kinds(side)]
    calls = [
        {
            "precision": marked(side),
            "ms": side.call_s * 1e3,
            "text": f"{milliseconds(side.call_s)} ms",
        }
        for side in (one.base, one.own)
    ]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    order = [marked(one.base), marked(one.own)]
    y = alt.Y("precision:N", title=None, sort=order)
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=kinds, range=[_colour(kind) for kind in kinds]),
        sort=kinds,
        legend=alt.Legend(columns=2, symbolType="square"),
    )
    bars = (
        alt.Chart(data.add(rows))
        # Parts are told apart by a line between them too, and stand in the order of the legend.
        .mark_bar(height=_BAR * 0.55, stroke=LIGHT["ground"], strokeWidth=1)
        .encode(
            y=y,
            x=alt.X("ms:Q", title="milliseconds of one call", axis=alt.Axis(tickCount=5)),
            color=colour,
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip(f"{name}:N") for name in ("precision", "kind", "layers", "text")],
        )
    )
    call = (
        alt.Chart(data.add(calls))
        .mark_tick(thickness=2, size=_BAR * 0.8, color=LIGHT["ink"], opacity=1)
        .encode(y=y, x="ms:Q", tooltip=[alt.Tooltip("text:N", title="a call, measured")])
    )
    return alt.layer(bars, call).properties(width=_WIDTH, height=alt.Step(_BAR), title="By kind of layer")


def _kinds(side: Side) -> list[dict[str, Any]]:
    """The seconds of one side by kind, what multiplies first."""
    sums: dict[str, list[Layer]] = {}
    for layer in side.layers:
        sums.setdefault(_kind(layer), []).append(layer)
    first = sorted(sums, key=lambda kind: (list(_KINDS).index(kind) if kind in _KINDS else -1, kind))
    return [
        {
            "precision": marked(side),
            "kind": kind,
            "place": place_,
            "layers": len(sums[kind]),
            "ms": sum(layer.seconds for layer in sums[kind]) * 1e3,
            "text": f"{milliseconds(sum(layer.seconds for layer in sums[kind]))} ms",
        }
        for place_, kind in enumerate(first)
    ]


def _kind(layer: Layer) -> str:
    if layer.multiplies:
        return f"multiplies in {(layer.precision or 'another precision').upper()}"
    if layer.role == "quantize":
        return "to and from integers"
    if layer.role == "reorder":
        return "reorder"
    return "not known to multiply" if layer.macs is None else "does not multiply"


def _colour(kind: str) -> str:
    return _KINDS.get(kind) or PRECISION_COLOURS.get(kind.rsplit(" ", 1)[-1].lower(), LIGHT["accent"])


def _bars(one: Explanation, data: Data) -> Any:
    order = [marked(side) for side in (one.base, one.own)]
    rows: list[dict[str, Any]] = []
    for rank, (base, own, _) in enumerate(longest(one, _LAYERS), start=1):
        label = f"{rank}. {_short((own or base).key)}" if (own or base) else ""  # type: ignore[union-attr]
        for precision, layer in zip(order, (base, own), strict=True):
            if layer is not None:
                text = f"{milliseconds(layer.seconds)} ms"
                rows.append(
                    {"layer": label, "precision": precision, "ms": layer.seconds * 1e3, "name": layer.name,
                     "text": text}
                )  # fmt: skip
    colours = [PRECISION_COLOURS[side.setup.precision] for side in (one.base, one.own)]
    labels = list(dict.fromkeys(row["layer"] for row in rows))
    return (
        alt.Chart(data.add(rows))
        .mark_bar()
        .encode(
            y=alt.Y("layer:N", sort=labels, title=None, axis=alt.Axis(labelLimit=260)),
            yOffset=alt.YOffset("precision:N", sort=order),
            x=alt.X("ms:Q", title="milliseconds", axis=alt.Axis(tickCount=5)),
            color=alt.Color("precision:N", scale=alt.Scale(domain=order, range=colours), sort=order),
            tooltip=[alt.Tooltip(f"{name}:N") for name in ("name", "precision", "text")],
        )
        .properties(width=_WIDTH, height=alt.Step(_ROW, **{"for": "position"}), title="The longest layers")
    )


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"

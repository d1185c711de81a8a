"""Layers of a quantized model by the damage each does, as a table and as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from inferometer.analysis.wording import percent, significant
from inferometer.report.cells import Cell, Column, Table, optional
from inferometer.report.characters import png
from inferometer.report.theme import LIGHT, chart_config

__all__ = ["LayerRow", "NoiseRow", "layers_png", "layers_table", "noise_table"]

_SHOWN = 24  # layers in the picture's first part: those that matter
_WIDTH, _ROW_HEIGHT, _LINE_HEIGHT = 560, 18, 220  # pixels
_LETTERS = 46  # of a layer's name

_NOTE = (
    "Damage: error energy of the logits when this layer alone is quantized, in per mille of the logits' own, "
    "with its standard error (in the picture the 95 % interval). Agreement: images whose first class stays. "
    "Own and accumulated noise: signal to quantization noise behind the layer with exact inputs, and with "
    "all before it quantized too."
)


@dataclass(frozen=True)
class LayerRow:
    """One layer.

    Attributes:
        layer: Its name.
        op: Its operator.
        position: In graph order, from 0.
        damage: Error energy of the logits over their own energy, when it alone is quantized.
        standard_error: Of that; None for a single image.
        agreement: Fraction of images whose first class stays.
        sqnr_db: Signal to noise behind it with all before it quantized, decibels; None without noise.
        own_sqnr_db: The same with exact inputs.
        in_float: Whether it was left in float.
    """

    layer: str
    op: str
    position: int
    damage: float
    standard_error: float | None
    agreement: float
    sqnr_db: float | None
    own_sqnr_db: float | None
    in_float: bool


@dataclass(frozen=True)
class NoiseRow:
    """The noise behind one layer: with all before it quantized, and with exact inputs; None without any."""

    layer: str
    op: str
    sqnr_db: float | None
    own_sqnr_db: float | None


def noise_table(rows: Sequence[NoiseRow], title: str) -> Table:
    """Signal to noise behind each layer, in the order of the network."""
    weakest = min((row.own_sqnr_db for row in rows if row.own_sqnr_db is not None), default=None)

    def cells(row: NoiseRow) -> tuple[Cell, ...]:
        return (
            Cell(row.layer, row.layer),
            Cell(row.op, row.op),
            optional(row.own_sqnr_db, "{:.1f}".format, "bad" if row.own_sqnr_db == weakest else "plain"),
            optional(row.sqnr_db, "{:.1f}".format),
        )

    return Table(
        "noise",
        title,
        (
            Column("Layer", header=True),
            Column("Operator", spare=1),
            Column("Own", "dB", "right"),
            Column("Accumulated", "dB", "right"),
        ),
        tuple(cells(row) for row in rows),
        "Signal to quantization noise; more is better. Own: with the float model's inputs, so what the layer "
        "adds itself. Accumulated: with all before it quantized too.",
    )


def layers_table(rows: Sequence[LayerRow], note: str = "", most: int | None = None) -> Table:
    """The layers in the order given, which is by damage.

    Args:
        rows: By damage, the largest first.
        note: Said before how to read the table.
        most: Show only so many, and those that stay in float.
    """

    def cells(rank: int, row: LayerRow) -> tuple[Cell, ...]:
        return (
            Cell(str(rank), rank),
            Cell(row.layer, row.layer),
            Cell(row.op, row.op),
            Cell(significant(1000 * row.damage), row.damage, "bad" if row.in_float else "plain"),
            optional(row.standard_error, lambda error: significant(1000 * error, 2)),
            optional(row.agreement, percent),
            optional(row.own_sqnr_db, "{:.1f}".format),
            optional(row.sqnr_db, "{:.1f}".format),
            Cell("float" if row.in_float else "int8", row.in_float),
        )

    shown = [
        (rank, row) for rank, row in enumerate(rows, start=1) if most is None or rank <= most or row.in_float
    ]
    left = f"{len(rows) - len(shown)} more do less." if len(shown) < len(rows) else ""
    return Table(
        "layers",
        "Layers by the damage each does when quantized alone",
        (
            Column("#", None, "right"),
            Column("Layer", header=True),
            Column("Operator", spare=1),
            Column("Damage", "\N{PER MILLE SIGN}", "right"),
            Column("\N{PLUS-MINUS SIGN}", "\N{PER MILLE SIGN}", "right", spare=3),
            Column("Agreement", "%", "right", spare=2),
            Column("Own noise", "dB", "right", spare=4),
            Column("Accumulated", "dB", "right", spare=5),
            Column("Runs in"),
        ),
        tuple(cells(rank, row) for rank, row in shown),
        " ".join(part for part in (note, left, _NOTE) if part),
    )


def layers_png(rows: Sequence[LayerRow], title: str) -> bytes:
    """Draw the most damaging layers, and the noise along the network.

    Args:
        rows: By damage, the largest first.
        title: Above the picture.

    Returns:
        A PNG file.
    """
    both = alt.vconcat(_damages(rows[:_SHOWN]), _noise(rows)).properties(spacing=28)
    both = both.resolve_scale(color="independent", strokeDash="independent")
    specification = both.to_dict()
    specification["config"] = {**chart_config(), "background": LIGHT["ground"]}
    specification["padding"] = 16
    lines = textwrap.wrap(_NOTE, 100)
    specification["title"] = {
        "text": title, "subtitle": lines, "fontSize": 16, "subtitleFontSize": 12,
        "subtitleColor": LIGHT["quiet"], "subtitlePadding": 6, "limit": 2000, "offset": 16, "anchor": "start",
    }  # fmt: skip
    return png(specification, 2.0)


def _damages(rows: Sequence[LayerRow]) -> Any:
    data = [
        {
            "layer": f"{rank}. {_short(row.layer)}",
            "damage": 1000 * row.damage,
            "lo": 1000 * max(0.0, row.damage - 1.96 * (row.standard_error or 0.0)),
            "hi": 1000 * (row.damage + 1.96 * (row.standard_error or 0.0)),
            "runs": "left in float" if row.in_float else "int8",
        }
        for rank, row in enumerate(rows, start=1)
    ]
    y = alt.Y("layer:N", sort=None, title=None, axis=alt.Axis(labelLimit=400))
    colour = alt.Color(
        "runs:N",
        scale=alt.Scale(domain=["int8", "left in float"], range=[LIGHT["int8"], LIGHT["fp32"]]),
        legend=alt.Legend() if any(row.in_float for row in rows) else None,
    )
    base = alt.Chart(alt.InlineData(values=data))
    bars = base.mark_bar(height=11).encode(
        y=y,
        x=alt.X("damage:Q", title="damage to the logits, \N{PER MILLE SIGN} of their energy"),
        color=colour,
    )
    intervals = base.mark_rule(color=LIGHT["ink"], strokeWidth=1).encode(y=y, x="lo:Q", x2="hi:Q")
    return (bars + intervals).properties(
        width=_WIDTH,
        height=_ROW_HEIGHT * len(rows),
        title=f"Quantized alone: the {len(rows)} most damaging" if len(rows) == _SHOWN else "Quantized alone",
    )


def _noise(rows: Sequence[LayerRow]) -> Any:
    data = [
        {"position": row.position + 1, "kind": kind, "db": value}
        for row in sorted(rows, key=lambda row: row.position)
        for kind, value in (("accumulated", row.sqnr_db), ("own", row.own_sqnr_db))
        if value is not None
    ]
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=["accumulated", "own"], range=[LIGHT["int8"], LIGHT["quiet"]]),
    )
    return (
        alt.Chart(alt.InlineData(values=data))
        .mark_line(point={"size": 22, "filled": True}, strokeWidth=1.5)
        .encode(
            x=alt.X("position:Q", title="layer, in the order of the network", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("db:Q", title="signal to noise, dB", scale=alt.Scale(zero=False)),
            color=colour,
            strokeDash=alt.StrokeDash(
                "kind:N", scale=alt.Scale(domain=["accumulated", "own"], range=[[1, 0], [4, 3]])
            ),
        )
        .properties(width=_WIDTH, height=_LINE_HEIGHT, title="Noise behind each layer; more is better")
    )


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"

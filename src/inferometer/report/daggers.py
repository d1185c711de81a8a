"""The mark of what did not run at the precision asked for, at the points of charts."""

from __future__ import annotations

from typing import Any

import altair as alt

from inferometer.analysis.marks import MARK, is_marked, ran_text
from inferometer.analysis.rows import DifferenceRow
from inferometer.records import Precision
from inferometer.report.encodings import Data, Encodings, Rows
from inferometer.report.theme import LIGHT

__all__ = ["daggers", "low_rows", "ran", "ran_both"]

_BESIDE = 7  # pixels from a point's middle


def ran(precision: Precision, share: float | None) -> dict[str, Any]:
    """What a chart's row says of what ran: for the tooltip, and whether the mark is due."""
    return {"ran": ran_text(share, precision), "low": is_marked(share)}


def ran_both(row: DifferenceRow) -> dict[str, Any]:
    """The same of both sides of a difference."""
    sides = zip(row.mac_shares, (row.setup_a, row.setup_b), strict=True)
    text = "; ".join(ran_text(share, one.precision) for share, one in sides)
    return {"ran": text, "low": is_marked(*row.mac_shares)}


def low_rows(rows: Rows) -> Rows:
    """The rows that are due the mark."""
    return [row for row in rows if row.get("low")]


def daggers(
    encoded: Encodings,
    rows: Rows,
    data: Data,
    x: alt.X,
    y: alt.Y,
    tooltip: list[alt.Tooltip],
    *,
    apart: bool = True,
) -> list[Any]:
    """Layers with the mark at the upper right of each point that is due one.

    ``apart``: the precisions' points stand side by side.
    """
    layers = []
    for _, members, shift in encoded.apart(low_rows(rows)):
        mark = alt.Chart(data.add(members)).mark_text(
            text=MARK,
            fontSize=15,
            fontWeight="bold",
            color=LIGHT["ink"],
            dx=_BESIDE,
            dy=-_BESIDE,
            xOffset=shift if apart else 0,
        )
        layers.append(mark.encode(x=x, y=y, tooltip=tooltip))
    return layers

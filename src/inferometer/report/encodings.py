"""What the charts share: rows set once by name, panels, and how each precision looks and where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from inferometer.analysis.findings import crew_text
from inferometer.analysis.grouping import PRECISION_ORDER, first_places
from inferometer.analysis.rows import Setup, Summary
from inferometer.analysis.wording import plural, setting
from inferometer.report.theme import PRECISION_COLOURS, SHAPES

__all__ = ["FIRST_PLACES", "Data", "Encodings", "Panels", "Rows", "drawn"]

FIRST_PLACES = " Of several devices measured alone the first is drawn; the table has all."
"""Explains what `drawn` leaves out."""

Rows = list[dict[str, Any]]

_APART = 14.0  # pixels between the marks of two precisions
_SPREAD = 28.0  # pixels for all of them: less than eight batches leave in a panel


class Data:
    """The rows of a chart, each set once and by name: Altair copies whatever stands inside a layer."""

    def __init__(self) -> None:
        """Start without rows."""
        self.sets: dict[str, Rows] = {}

    def add(self, rows: Rows) -> alt.NamedData:
        """Take the rows in under a new name."""
        name = f"rows-{len(self.sets)}"
        self.sets[name] = rows
        return alt.NamedData(name=name)


def drawn(setups: Sequence[Setup]) -> tuple[frozenset[Setup], str]:
    """The setups that charts show, and what a caption then says of the others."""
    shown = first_places(setups)
    return shown, FIRST_PLACES if len(shown) < len(set(setups)) else ""


class Panels:
    """Which panel a setup belongs to: its model, and engine, device, ranks or settings where these differ."""

    def __init__(self, summary: Summary, setups: Sequence[Setup]) -> None:
        """Take the setups of all rows of a chart."""
        self._names = summary.names
        fields = ("engine", "device", "machine")
        self._differ = [name for name in fields if len({getattr(one, name) for one in setups}) > 1]
        self._crews = len({(one.ranks, one.place) for one in setups}) > 1

    def row(self, setup: Setup) -> dict[str, Any]:
        """What every row of this setup holds: panel, precision, batch."""
        parts = [self._names[setup.model]]
        for name in self._differ:
            value = getattr(setup, name)
            parts.append(f"machine {value + 1}" if name == "machine" else str(value))
        parts += [setting(name.removeprefix("options."), value) for name, value in setup.variant]
        if self._crews:
            parts.append(crew_text(setup).removeprefix(" with ") or plural(setup.ranks, "rank"))
        return {"panel": ", ".join(parts), "precision": setup.precision.upper(), "batch": setup.batch}


class Encodings:
    """Colour, shape and line style by precision, the same in every panel."""

    def __init__(self, rows: Rows, *, legend: bool = True) -> None:
        """Take all rows of a chart; a legend is made where there are several precisions."""
        present = {row["precision"] for row in rows}
        self._names = [name for name in PRECISION_ORDER if name.upper() in present]
        legends: dict[str, Any] = {} if legend and len(self._names) > 1 else {"legend": None}
        self.colour = alt.Color("precision:N", scale=self._scale(PRECISION_COLOURS), **legends)
        self.shape = alt.Shape("precision:N", scale=self._scale(SHAPES), **legends)
        hollow = any(row.get("open") for row in rows)
        self.mark: dict[str, Any] = {"color": self.colour, "shape": self.shape}
        if hollow:
            self.mark |= {
                "fillOpacity": alt.condition("datum.open", alt.value(0), alt.value(1)),
                "stroke": alt.Stroke("precision:N", scale=self._scale(PRECISION_COLOURS), **legends),
            }

    def apart(self, rows: Rows) -> Iterator[tuple[str, Rows, float]]:
        """Each precision that has rows, with these, and how many pixels its marks stand beside their place.

        Precisions side by side: on one place, the interval of one would hide that of another.
        """
        step = min(_APART, _SPREAD / len(self._names))
        for place, name in enumerate(self._names):
            members = [row for row in rows if row["precision"] == name.upper()]
            if members:
                yield name, members, (place - (len(self._names) - 1) / 2) * step

    @property
    def beside(self) -> alt.XOffset:
        """Bars of several precisions side by side, in the order of the precisions."""
        return alt.XOffset("precision:N", sort=[name.upper() for name in self._names])

    @property
    def only(self) -> str | None:
        """The one precision there is, where there is but one, so that no legend names it."""
        return self._names[0].upper() if len(self._names) == 1 else None

    def _scale(self, values: Mapping[str, Any]) -> alt.Scale:
        names = [name.upper() for name in self._names]
        return alt.Scale(domain=names, range=[values[name] for name in self._names])

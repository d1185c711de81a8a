"""The charts as pictures, drawn without a browser or a network."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inferometer.analysis.rows import Summary
from inferometer.report.characters import png
from inferometer.report.charts import Chart, charts
from inferometer.report.power_trace import CAPTION, PowerTrace, trace_chart
from inferometer.report.theme import LIGHT
from inferometer.store import write_atomically

__all__ = ["write_pngs"]

_SCALE = 2.0  # device pixels per chart pixel: sharp on screens and in slides
_LETTERS = 48  # of the caption's size, over one panel
_MOST_PANELS = 3  # side by side
_TRACE_LETTERS = 105


def write_pngs(summary: Summary, folder: Path, traces: Sequence[PowerTrace] = ()) -> list[Path]:
    """Write ``NAME.png`` for each chart that has data, on a white ground; returns the paths.

    Args:
        summary: What is drawn.
        folder: Where to.
        traces: Each becomes ``power-trace-N.png``, N from 1.

    Raises:
        StoreError: The folder cannot be written.
    """
    drawn = [(chart.id, chart.chart, _title(chart)) for chart in charts(summary)]
    for number, trace in enumerate(traces, start=1):
        heading = _heading(trace.title, textwrap.wrap(CAPTION, _TRACE_LETTERS))
        drawn.append((f"power-trace-{number}", trace_chart(trace), heading))
    written = []
    for name, chart, title in drawn:
        specification = chart.to_dict()
        specification["config"]["background"] = LIGHT["ground"]
        specification["padding"] = 16
        specification["title"] = title
        path = folder / f"{name}.png"
        write_atomically(path, png(specification, _SCALE))
        written.append(path)
    logging.getLogger(__name__).debug("%d pictures in %s", len(written), folder)
    return written


def _title(chart: Chart) -> dict[str, Any]:
    panels = min(len(chart.chart.to_dict()["concat"]), _MOST_PANELS)
    return _heading(chart.title, textwrap.wrap(chart.caption, max(_LETTERS * panels, 70)))


def _heading(title: str, lines: list[str]) -> dict[str, Any]:
    """Title and caption above the panels: a picture stands without the page around it."""
    return {
        "text": title,
        "subtitle": lines,
        "fontSize": 16,
        "subtitleFontSize": 12,
        "subtitleColor": LIGHT["quiet"],
        "subtitlePadding": 6,
        "limit": 2000,
        "offset": 16,
    }

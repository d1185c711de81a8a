"""The charts as pictures, drawn without a browser or a network."""

from __future__ import annotations

import logging
import textwrap
from pathlib import Path
from typing import Any

from inferometer.analysis.rows import Summary
from inferometer.report.characters import png
from inferometer.report.charts import Chart, charts
from inferometer.report.theme import LIGHT
from inferometer.store import write_atomically

__all__ = ["write_pngs"]

_SCALE = 2.0  # device pixels per chart pixel: sharp on screens and in slides
_LETTERS = 48  # of the caption's size, over one panel
_MOST_PANELS = 3  # side by side


def write_pngs(summary: Summary, folder: Path) -> list[Path]:
    """Write ``NAME.png`` for each chart that has data, on a white ground; returns the paths.

    Raises:
        StoreError: The folder cannot be written.
    """
    written = []
    for chart in charts(summary):
        specification = chart.chart.to_dict()
        specification["config"]["background"] = LIGHT["ground"]
        specification["padding"] = 16
        specification["title"] = _title(chart)
        path = folder / f"{chart.id}.png"
        write_atomically(path, png(specification, _SCALE))
        written.append(path)
    logging.getLogger(__name__).debug("%d pictures in %s", len(written), folder)
    return written


def _title(chart: Chart) -> dict[str, Any]:
    """Title and caption above the panels: a picture stands without the page around it."""
    panels = min(len(chart.chart.to_dict()["concat"]), _MOST_PANELS)
    return {
        "text": chart.title,
        "subtitle": textwrap.wrap(chart.caption, max(_LETTERS * panels, 70)),
        "fontSize": 16,
        "subtitleFontSize": 12,
        "subtitleColor": LIGHT["quiet"],
        "subtitlePadding": 6,
        "limit": 2000,
        "offset": 16,
    }

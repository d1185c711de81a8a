"""The charts as pictures, drawn without a browser or a network."""

from __future__ import annotations

import logging
from pathlib import Path

import vl_convert

from inferometer.analysis.rows import Summary
from inferometer.report.charts import charts
from inferometer.report.theme import LIGHT
from inferometer.store import write_atomically

__all__ = ["write_pngs"]

_SCALE = 2.0  # device pixels per chart pixel: sharp on screens and in slides


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
        path = folder / f"{chart.id}.png"
        write_atomically(path, vl_convert.vegalite_to_png(specification, scale=_SCALE))
        written.append(path)
    logging.getLogger(__name__).debug("%d pictures in %s", len(written), folder)
    return written

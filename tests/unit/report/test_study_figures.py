"""The study's figures drawn: every format, and the figures that they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferometer import published
from inferometer.analysis.comparison.figures import Bar, StudyFigure, study_figures
from inferometer.analysis.comparison.points import study_source
from inferometer.report.study_figures import _ticks, figure_specification, write_figures

MADE = StudyFigure(
    "devices",
    "A <b>net</b>, INT8, batch 8",
    "a, one device",
    None,
    (Bar("a", 1, 1.0, None), Bar("a", 2, 1.9, None), Bar("b\x07", 2, None, None, "out_of_memory")),
)


def test_every_format_is_written_whole(tmp_path: Path) -> None:
    written = write_figures([MADE], tmp_path)
    assert [path.name for path in written] == [
        f"a-b-net-b-int8-batch-8-by-devices.{form}" for form in ("png", "svg", "pdf")
    ]
    heads = [path.read_bytes()[:5] for path in written]
    assert heads == [b"\x89PNG\r", b"<svg ", b"%PDF-"]
    svg = written[1].read_text()
    assert "<b>" not in svg
    assert "out of memory" in svg
    assert ">1.90<" in svg


def test_bars_and_lines_have_an_axis_each() -> None:
    points = study_source(published.load("dell-2017-07")).points
    figure = study_figures(points)[0]
    specification = figure_specification(figure)
    (panel,) = specification["concat"]
    assert panel["resolve"]["scale"]["y"] == "independent"
    assert panel["title"] == "Images/s and images/s/W"
    assert len(panel["layer"]) == 2
    assert "relative to tesla-p40, one device" in " ".join(specification["title"]["subtitle"])


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 2.99, [0, 1, 2, 3]),
        (1.0, 1.59, [1.0, 1.2, 1.4, 1.6]),
        (0, 15.3, [0, 5, 10, 15, 20]),
        (1.0, 1.0, [1.0]),
    ],
)
def test_ticks_are_round_numbers_around_the_values(low: float, high: float, ticks: list[float]) -> None:
    assert _ticks(low, high) == ticks


def test_a_number_that_would_lie_on_anothers_stands_under_its_point():
    figures = {one.name: one for one in study_figures(study_source(published.load("dell-2017-07")).points)}
    (rows,) = figure_specification(figures["alexnet-int8-one-device-by-batch"])["datasets"].values()
    assert [(row["series"], row["at"]) for row in rows if row["under"]] == [("tesla-p40", 1)]

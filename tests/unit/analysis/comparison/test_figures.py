"""The 2017 study's figures from its points, and from a store's."""

from __future__ import annotations

import pytest

from inferometer import published
from inferometer.analysis.comparison.compare import compare
from inferometer.analysis.comparison.figures import StudyFigure, comparison_figures, study_figures
from inferometer.analysis.comparison.points import store_source, study_source
from inferometer.records import Record
from inferometer.report.study_figures import figure_caption
from tests.unit.analysis.comparison.sample_sources import elsewhere, store, trials
from tests.unit.report.power_records import power_study
from tests.unit.report.sample_records import ENVIRONMENT, record, throughput


@pytest.fixture(scope="module")
def figures() -> dict[str, StudyFigure]:
    points = study_source(published.load("dell-2017-07")).points
    return {one.name: one for one in study_figures(points)}


def test_the_study_s_three_figures_are_there(figures: dict[str, StudyFigure]) -> None:
    assert list(figures) == [
        "alexnet-int8-batch-128-by-devices",
        "alexnet-int8-one-device-by-batch",
        "googlenet-int8-batch-128-by-devices",
    ]


def test_figure_1_as_printed(figures: dict[str, StudyFigure]) -> None:
    figure = figures["alexnet-int8-batch-128-by-devices"]
    assert (figure.rate_base, figure.efficiency_base) == ("tesla-p40, one device",) * 2
    bars = {(one.series, one.at): (one.rate, one.efficiency) for one in figure.bars}
    assert bars["tesla-p4", 1] == (0.52, 1.42)
    assert bars["tesla-p4", 4] == (2.09, 1.52)
    assert bars["tesla-p40", 3] == (2.99, 1.00)
    assert ("tesla-p40", 4) not in bars


def test_figure_3_as_printed_with_where_memory_ended(figures: dict[str, StudyFigure]) -> None:
    figure = figures["alexnet-int8-one-device-by-batch"]
    assert (figure.rate_base, figure.efficiency_base) == (None, "tesla-p40, batch 1")
    p4 = {one.at: one for one in figure.bars if one.series == "tesla-p4"}
    assert (p4[64].efficiency, p4[1024].efficiency) == (14.7, 15.2)
    assert {at: one.status for at, one in p4.items() if one.efficiency is None} == {
        2048: "out_of_memory",
        4096: "out_of_memory",
    }


def test_a_store_s_figures_are_relative_to_its_first() -> None:
    points = store_source("one", power_study(), lambda one: None).points
    figure = next(one for one in study_figures(points) if one.title == "ResNet-50, FP32, one device")
    assert figure.rate_base == figure.efficiency_base
    assert figure.rate_base is not None
    assert figure.rate_base.endswith("batch 1")
    first, *_, last = figure.bars
    assert (first.at, first.rate, first.efficiency) == (1, 1.0, 1.0)
    assert (last.at, last.rate) == (128, pytest.approx(8000 / 900, rel=0.02))


def test_one_batch_and_one_device_make_no_figure() -> None:
    points = store_source("one", [record(throughput=throughput(50.0))], lambda one: None).points
    assert study_figures(points) == ()


def test_two_stores_of_one_device_are_told_apart_by_their_labels() -> None:
    records = [record(batch=batch, throughput=throughput(50.0 * batch)) for batch in (1, 8)]
    points = [
        point for label in ("old", "new") for point in store_source(label, records, lambda one: None).points
    ]
    (figure,) = study_figures(points)
    assert list(dict.fromkeys(one.series for one in figure.bars)) == ["cpu, old", "cpu, new"]


def series(figure: StudyFigure) -> list[str]:
    return list(dict.fromkeys(one.series for one in figure.bars))


def batches(**fields: object) -> list[Record]:
    return [one for batch in (1, 8) for one in trials(batch=batch, **fields)]


def test_by_precision_they_are_series_of_one_figure_the_baseline_first() -> None:
    found = compare([store("one", batches(), batches(precision="fp32"))], "precision")
    (figure,) = comparison_figures(found)
    assert (figure.title, series(figure)) == ("ResNet-50, one device", ["FP32", "INT8"])
    assert (figure.rate_base, figure.note) == ("FP32, batch 1", None)


def test_everything_is_relative_to_the_baseline_wherever_it_stands() -> None:
    sources = [store("june", batches()), store("july", batches())]
    (figure,) = comparison_figures(compare(sources, baseline="july"))
    assert figure.rate_base == "cpu, july, batch 1"
    assert series(figure) == ["cpu, july", "cpu, june"]


def test_machines_of_one_store_are_series_of_their_own() -> None:
    both = store("one", batches(), batches(environment=elsewhere()))
    (figure,) = comparison_figures(compare([both], "machine"))
    assert [name.partition("machine ")[2] for name in series(figure)] == [
        ENVIRONMENT["machine_key"][:6], "012345",
    ]  # fmt: skip


def test_what_is_not_comparable_is_said_on_the_figure() -> None:
    other = batches(config_options={"threads": 1})
    (figure,) = comparison_figures(compare([store("a", batches()), store("b", other)]))
    assert figure.note == "b against a is not comparable: threads: 1 against 2 (up to 100 %)"
    assert figure_caption(figure).endswith(f"{figure.note}.")

"""A choice as table, chart and page: every verdict can be read without colour, and names are text."""

from __future__ import annotations

from typing import Any

import pytest

from inferometer.analysis.choose import choose
from inferometer.analysis.choose_rows import Choice, Need, Source
from inferometer.analysis.summary import summarise
from inferometer.records import Latency
from inferometer.report.choose_charts import choice_caption, choice_chart, choice_png
from inferometer.report.choose_page import choice_page
from inferometer.report.choose_tables import choice_document, choice_table
from tests.unit.report.power_records import power_study
from tests.unit.report.sample_records import latency, record, throughput


def choice(p99: bool = True, several: bool = False, model: str = "resnet50", **need: Any) -> Choice:
    """Of the metered study; a call takes as long as its batch, those of batch 1 are too few for a p99."""
    records = power_study()
    by_id = {one.id: one for one in records}

    def stamped(name: str) -> tuple[Latency, ...]:
        one = by_id[name]
        batch, rate = one.trial.batch or 1, one.throughput.images_per_s if one.throughput else 1.0
        return (Latency(**latency(batch / rate, n=400 if batch == 1 else 1000)),) if p99 else ()

    summary = summarise(records, lambda one: None)
    names = ("new", "old") if several else ("new",)
    sources = [Source(name, name, summary, records) for name in names]
    return choose(sources, Need(model=model, **need), [stamped] * len(names), {})


def cells(found: Choice) -> list[dict[str, str]]:
    table = choice_table(found)
    return [
        {column.name: cell.text for column, cell in zip(table.columns, row, strict=True)}
        for row in table.rows
    ]


def test_the_table_says_of_every_need_how_it_stands() -> None:
    rows = cells(choice(images_per_s=60000, p99_s=0.006, watts=2000))
    assert rows[0] == {
        "Setup": "tensorrt cuda:0 INT8 batch 32", "Rate": "31,000", "p99": "1.25", "Net": "0.0147",
        "Devices": "2", "Load": "1,066", "Verdict": "meets", "Why not": "", "Beaten by": "",
    }  # fmt: skip
    by = {row["Setup"]: row for row in rows}
    fp32 = by["tensorrt cuda:0 FP32 batch 128"]
    assert (fp32["p99"], fp32["Load"], fp32["Verdict"]) == (
        "19.4 \N{MULTIPLICATION X}",
        "5,104 \N{MULTIPLICATION X}",
        "fails",
    )
    assert fp32["Why not"].startswith("p99: 19.4 ms under load, 3.23 times what is allowed; power: 5,104 W")
    one = by["tensorrt cuda:0 INT8 batch 1"]
    assert one["p99"] == "\N{GREATER-THAN OR EQUAL TO} 0.727 ?"


def test_figures_that_none_has_and_none_asked_for_have_no_column() -> None:
    assert {"p99", "Top-1", "Loss", "Price"} & cells(choice(p99=False))[0].keys() == set()
    assert cells(choice(p99=False, p99_s=0.01))[0]["p99"] == "\N{EN DASH} ?"


def test_the_chart_has_a_panel_for_each_figure_that_is_known() -> None:
    found = choice(images_per_s=60000, p99_s=0.006)
    chart = choice_chart(found)
    assert chart is not None
    specification = chart.to_dict()
    assert [panel["title"] for panel in specification["concat"]] == [
        "Latency: better to the lower right",
        "Energy: better to the lower right",
    ]
    drawn = [row for rows in specification["datasets"].values() for row in rows if "x" in row]
    best = {row["setup"] for row in drawn if row["best"]}
    assert found.best is not None
    assert best == {found.best.name}
    front = {row["setup"] for row in drawn if not row["open"]}
    assert front == {one.name for one in found.candidates if one.beaten_by is None}
    assert "Ringed: the one to take. Dashed across: the need. What has no such figure is not drawn." in (
        choice_caption(found)
    )


def test_studies_have_letters_in_the_chart_where_there_are_several() -> None:
    found = choice(several=True)
    assert choice_caption(found).endswith("a: new; b: old.")
    rows = [row for rows in choice_chart(found).to_dict()["datasets"].values() for row in rows]
    assert {row["label"] for row in rows} >= {"a32", "b32"}


def test_the_picture_is_a_png_and_nothing_is_drawn_of_a_rate_alone() -> None:
    picture = choice_png(choice(p99_s=0.006))
    assert picture is not None
    assert picture.startswith(b"\x89PNG")
    bare = [record(throughput=throughput(50.0))]
    found = choose([Source("a", "a", summarise(bare, lambda one: None), bare)], Need(), [lambda name: ()], {})
    assert choice_png(found) is None
    assert "<figure>" not in choice_page(found)


def test_the_page_has_answer_advice_chart_and_table_in_order() -> None:
    page = choice_page(choice(images_per_s=60000, p99_s=0.006))
    places = [page.index(f"<section id='{name}'") for name in ("answer", "more", "pareto", "choice")]
    assert places == sorted(places)
    assert "60,000&nbsp;images/s or more, p99 6.00&nbsp;ms or less" in page
    assert page.count("<figure>") == 1
    assert "aria-pressed='true' data-field='precision' data-name='INT8'" in page


@pytest.mark.parametrize("name", ["<script>x", "</script><b>", "a'\"&b"])
def test_names_are_text(name: str) -> None:
    records = [
        record(batch=batch, model=name, trial_engine=name, throughput=throughput(50.0 * batch))
        for batch in (1, 8)
    ]
    calls = (Latency(**latency(0.01)),)
    found = choose(
        [Source(name, name, summarise(records, lambda one: None), records)], Need(), [lambda _: calls], {}
    )
    page = choice_page(found)
    for part in (f"{name} cpu FP32", f"From {name}"):
        assert part not in page
    assert "<b>" not in page


def test_the_document_is_whole() -> None:
    document = choice_document(choice(images_per_s=60000))
    assert document["sentence"].startswith("Take tensorrt cuda:0 INT8 batch 32, 2 devices (")
    assert document["best"]["crew"]["record_ids"] == tuple(
        f"throughput-resnet50-tensorrt-cuda:0-int8-32-{repeat}" for repeat in range(3)
    )
    assert len(document["candidates"]) == 9

"""What did not run at the precision asked for is marked in every table, chart, page and file."""

import csv
import io
import re

import numpy as np
import pytest

from inferometer.analysis.marks import MARK, MARK_NOTE
from inferometer.analysis.summary import summarise
from inferometer.cli.console import print_findings
from inferometer.report.charts import charts
from inferometer.report.document import prose
from inferometer.report.html import page
from inferometer.report.tables import csv_text, table_of
from tests.unit.report.sample_records import accuracy, latency, per_image, record, throughput
from tests.unit.report.test_charts import rows
from tests.unit.report.test_tables import column

KINDS = ("throughput", "speedup", "latency", "accuracy", "difference")


def records_of(int8, fp32=None, engine="onnxruntime"):
    """One model in both precisions, in every kind of trial; the shares are those of the MACs."""

    def both(kind, **fields):
        return [
            record(kind, precision=one, batch=8, trial_engine=engine, **fields) for one in ("fp32", "int8")
        ]

    ran = {
        "fp32": None if fp32 is None else {"fp32": fp32, "tf32": 1 - fp32},
        "int8": None if int8 is None else {"int8": int8, "fp32": 1 - int8},
    }
    timed = [
        one.model_copy(update={"precision_mac_share": ran[one.trial.precision]})
        for one in both("throughput", throughput=throughput(9.0))
    ]
    return [
        *timed,
        *both("latency", latency_s=latency(0.01)),
        *both("accuracy", accuracy=accuracy(0.9, images=100)),
    ]


def summary_of(*shares):
    outcome = per_image(np.arange(100) % 10 > 0)
    return summarise(records_of(*shares), lambda _: outcome)


@pytest.fixture(scope="module")
def low():
    return summary_of(0.84, 1.0)


@pytest.mark.parametrize("name", KINDS)
def test_every_table_marks_the_precision_and_says_what_that_means(low, name):
    table = table_of(low, name)
    first = "Compared" if name == "difference" else "Precision"
    marks = [cell.text.endswith(MARK) for cell in column(table, first)]
    expected = {"speedup": [True], "difference": [True, True]}.get(name, [False, True])
    assert marks == expected
    assert table.note.count(MARK_NOTE) == 1
    assert all(cell.hint is not None and "84 % in INT8" in cell.hint
               for cell in column(table, first) if cell.text.endswith(MARK))  # fmt: skip
    assert {cell.raw for cell in column(table, first)} <= {"fp32", "int8", "resnet50 int8 - resnet50 fp32"}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("shares", [(1.0, 1.0), (0.9, None), (None, None)])
def test_nothing_is_marked_at_the_limit_or_where_the_share_is_unknown(name, shares):
    found = summary_of(*shares)
    table = table_of(found, name)
    assert MARK not in table.note
    assert not any(MARK in cell.text for row in table.rows for cell in row)
    chart = {one.id: one for one in charts(found)}[name]
    assert MARK not in chart.caption
    assert not any(row["low"] for row in rows(chart, "low"))


@pytest.mark.parametrize("name", KINDS)
def test_every_chart_has_the_mark_at_its_points_and_in_its_caption(low, name):
    chart = {one.id: one for one in charts(low)}[name]
    assert chart.caption.endswith(MARK_NOTE)
    specification = chart.chart.to_dict()
    layers = [layer for panel in specification["concat"] for layer in panel["layer"]]
    marks = [layer for layer in layers if layer["mark"].get("text") == MARK]
    assert len(marks) == 1
    marked = specification["datasets"][marks[0]["data"]["name"]]
    assert {row["precision"] for row in marked} == {"INT8"}
    assert all(row["low"] and "84 % in INT8" in row["ran"] for row in marked)
    assert "MACs at precision" in [tip["title"] for tip in marks[0]["encoding"]["tooltip"]]


def test_a_tooltip_says_where_the_share_is_not_known():
    chart = {one.id: one for one in charts(summary_of(None, None))}["throughput"]
    assert {row["ran"] for row in rows(chart, "lo")} == {"not known"}


def test_fp32_that_ran_as_another_precision_is_marked_and_so_is_the_ratio_to_it():
    found = summary_of(1.0, 0.2)
    cells = column(table_of(found, "throughput"), "Precision")
    assert [cell.text for cell in cells] == [f"FP32 {MARK}", "INT8"]
    shares = column(table_of(found, "throughput"), "MACs at precision")
    assert [(cell.text, cell.tone) for cell in shares] == [("20 %", "bad"), ("100 %", "plain")]
    gains = table_of(found, "speedup")
    assert column(gains, "Precision")[0].text == "INT8"
    assert column(gains, "Ratio")[0].text == f"1.00× {MARK}"
    assert "Behind a ratio it is FP32" in gains.note
    chart = {one.id: one for one in charts(found)}["speedup"]
    assert [row["ran"] for row in rows(chart, "low")] == ["100 % in INT8; of FP32 20 % in FP32"]


def test_the_page_has_the_mark_with_what_ran_as_its_hint(low):
    text = page(low, records_of(0.84, 1.0))
    assert len(re.findall(rf"<th[^>]* title='[^']*84 % in INT8[^']*'>INT8 {MARK}</th>", text)) == 4
    assert MARK_NOTE.replace(" %", "&nbsp;%") in text


def test_the_csv_says_share_and_mark_of_every_kind_of_trial():
    lines = list(csv.DictReader(io.StringIO(csv_text(records_of(0.84)))))
    found = {
        (row["kind"], row["precision"]): (row["mac_share_at_precision"], row["mac_share_marked"])
        for row in lines
    }
    for kind in ("throughput", "latency", "accuracy"):
        assert found[kind, "int8"] == ("0.84", "true")
        assert found[kind, "fp32"] == ("", "")


def test_the_mark_is_explained_where_findings_are_shown(capsys):
    base = record(throughput=throughput(5.0), precision_mac_share={"fp32": 1.0})
    own = record(precision="bf16", throughput=throughput(9.0), precision_mac_share={"fp32": 1.0})
    print_findings(summarise([base, own], lambda _: None))
    assert capsys.readouterr().out.rstrip().endswith(f"- {MARK_NOTE}")
    print_findings(summarise([base], lambda _: None))
    assert MARK_NOTE not in capsys.readouterr().out
    found = page(summarise([base, own], lambda _: None), [base, own]).split("</section>")[0]
    assert f"<p class='note'>{prose(MARK_NOTE)}</p>" in found

"""Scaling and feeding in tables, charts, page, pictures and CSV."""

import csv
import io
import json

import pytest
import vl_convert
from PIL import Image

from inferometer.analysis.summary import summarise
from inferometer.report.charts import charts
from inferometer.report.html import page
from inferometer.report.png import write_pngs
from inferometer.report.tables import csv_text, result_tables, table_of
from tests.unit.report.sample_records import latency, record
from tests.unit.report.scaling_records import (
    alone,
    cpu_study,
    fed_study,
    feeding,
    gpu_study,
    rank_result,
    together,
)

DASH = "\N{EN DASH}"


def summary_of(records):
    return summarise(records, lambda _: None)


def texts(table):
    names = [column.name for column in table.columns]
    return [dict(zip(names, (cell.text for cell in row), strict=True)) for row in table.rows]


def rows_with(chart, key):
    found = [row for rows in chart.chart.to_dict()["datasets"].values() for row in rows if key in row]
    return list({json.dumps(row, sort_keys=True): row for row in found}.values())


def drawn(summary):
    return {chart.id: chart for chart in charts(summary)}


@pytest.fixture(scope="module")
def records():
    return (
        gpu_study(power=True)
        + gpu_study(batch=128, factor=1.1, power=True)
        + gpu_study("int8", 128, 2.5, power=True)
    )


@pytest.fixture(scope="module")
def studied(records):
    return summary_of(records)


def test_the_tables_stand_among_the_results(studied):
    assert [table.id for table in result_tables(studied)] == [
        "throughput", "speedup", "scaling", "scaling-loss", "ranks", "scaling-power",
        "power", "power-relative", "power-watts", "power-read",
    ]  # fmt: skip
    for table in result_tables(studied):
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_ranks_and_place_are_columns_where_they_differ(studied):
    rows = texts(table_of(studied, "throughput"))
    assert [(row["Ranks"], row["Place"]) for row in rows[::3]] == [
        ("1", "0"), ("1", "1"), ("1", "2"), ("1", "3"), ("2", DASH), ("4", DASH),
    ]  # fmt: skip
    assert "Place: which device worked alone" in table_of(studied, "throughput").note
    pair = summary_of(cpu_study())
    assert "Ranks" not in texts(table_of(pair, "scaling"))[0]
    assert table_of(pair, "scaling").note.startswith("All on onnxruntime, cpu, 2 ranks.")
    single = table_of(summary_of(fed_study()), "throughput")
    assert not {"Ranks", "Place"} & set(texts(single)[0])


def test_the_scaling_table_has_text_and_raw_value(studied):
    table = table_of(studied, "scaling")
    row = texts(table)[3]
    names = ("Together", "Alone, added up", "Of linear", "Verdict", "Slowest")
    assert [row[name] for name in names] == ["3,600", "4,000", "90.0", "less than linear", "26.7 %"]
    place = [column.name for column in table.columns].index("Of linear")
    assert table.rows[3][place].raw == pytest.approx(0.9)


def test_what_is_not_compared_says_why():
    table = table_of(summary_of([together([rank_result(0), rank_result(1)])]), "scaling")
    assert (texts(table)[0]["Of linear"], texts(table)[0]["Verdict"]) == (DASH, "not compared")
    assert "place 0 was not measured alone; place 1 was not measured alone." in table.note


def test_the_missing_percents_add_up(studied):
    table = table_of(studied, "scaling-loss")
    rows = [row for row in texts(table) if row["Precision"] == "FP32"]
    assert [(row["Cause"], row["Its part"]) for row in rows] == [
        ("uneven ranks", "8.0"), ("device clocks", "not known"), ("what remains", "2.0"), ("skew", "0.0"),
    ]  # fmt: skip
    assert {row["Missing"] for row in rows} == {"10.0"}
    assert rows[1]["Evidence"].startswith("the power limit held clocks down for 40 % of the load together")


def test_the_ranks_of_most_ranks_at_the_largest_batch(studied):
    rows = [row for row in texts(table_of(studied, "ranks")) if row["Precision"] == "FP32"]
    assert [(row["Rank"], row["Device"], row["Rate"], row["Kept"], row["Load"]) for row in rows] == [
        ("0", "cuda:0", "1,078", "98.0 %", "478"), ("1", "cuda:1", "1,078", "98.0 %", "479"),
        ("2", "cuda:2", "1,078", "98.0 %", "480"), ("3", "cuda:3", "726", "66.0 %", "481"),
    ]  # fmt: skip
    assert "All ranks on node1." in table_of(studied, "ranks").note
    rows = texts(table_of(summary_of(cpu_study()), "ranks"))
    assert [row["Processors"] for row in rows] == ["0", "1"]
    assert "Load" not in rows[0]
    hosts = [rank_result(0), rank_result(1, host="node2")]
    assert [row["Host"] for row in texts(table_of(summary_of([together(hosts)]), "ranks"))] == [
        "node1",
        "node2",
    ]


def test_per_watt_over_the_devices_alone(studied):
    row = texts(table_of(studied, "scaling-power"))[3]
    assert (row["Together"], row["Alone"], row["Over alone"], row["Net"]) == (
        "2.25", "2.50", "0.90\N{MULTIPLICATION SIGN}", "1,600",
    )  # fmt: skip


def test_real_images_beside_synthetic_input():
    table = table_of(summary_of(fed_study()), "feeding")
    (row,) = texts(table)
    assert "Settings" not in row
    assert [row[name] for name in ("Decoding alone", "Device alone", "Together", "Bounded by", "Waits")] == [
        "310", "1,240", "300", "images", "60 %",
    ]  # fmt: skip
    settings = [row["Settings"] for row in texts(table_of(summary_of(fed_study()), "throughput"))]
    assert settings == ["images as input", "synthetic input"]


def test_the_chart_of_scaling_has_rates_sums_and_shares(studied):
    chart = drawn(studied)["scaling"]
    panels = chart.chart.to_dict()["concat"]
    assert [panel["title"] for panel in panels] == ["ResNet-50, batch 128", "ResNet-50, batch 128: of linear"]
    values = {
        (row["precision"], row["ranks"], row["share"]): row["value"] for row in rows_with(chart, "value")
    }
    assert values == pytest.approx(
        {
            ("FP32", 1, False): 1100.0, ("FP32", 2, False): 2178.0, ("FP32", 4, False): 3960.0,
            ("INT8", 1, False): 2500.0, ("INT8", 2, False): 4950.0, ("INT8", 4, False): 9000.0,
            ("FP32", 2, True): 99.0, ("FP32", 4, True): 90.0,
            ("INT8", 2, True): 99.0, ("INT8", 4, True): 90.0,
        }
    )  # fmt: skip
    sums = {(row["precision"], row["ranks"]): row["linear"] for row in rows_with(chart, "linear")}
    assert sums == pytest.approx(
        {("FP32", 1): 1100, ("FP32", 2): 2200, ("FP32", 4): 4400,
         ("INT8", 1): 2500, ("INT8", 2): 5000, ("INT8", 4): 10000}
    )  # fmt: skip
    scales = [
        layer["encoding"]["x"]["scale"]["domain"] for layer in panels[1]["layer"] if "x" in layer["encoding"]
    ]
    assert scales
    assert all(scale == [1, 4] for scale in scales)


def test_ranks_without_the_devices_alone_have_a_rate_and_no_share():
    chart = drawn(summary_of([together([rank_result(0), rank_result(1)])]))["scaling"]
    assert [panel["title"] for panel in chart.chart.to_dict()["concat"]] == ["ResNet-50, batch 32"]
    assert [(row["ranks"], row["value"]) for row in rows_with(chart, "value")] == [(2, 2000.0)]


def test_charts_draw_the_first_of_several_devices_alone(studied):
    made = drawn(studied)
    for name in ("throughput", "speedup", "power", "power-watts"):
        titles = [panel["title"] for panel in made[name].chart.to_dict()["concat"]]
        assert titles == ["ResNet-50, 1 rank (place 0)", "ResNet-50, 2 ranks", "ResNet-50, 4 ranks"], name
        assert "Of several devices measured alone the first is drawn" in made[name].caption
    shown = [
        record("latency", latency_s=latency(0.02), trial_ranks=ranks, trial_place=place, id=f"{ranks}{place}")
        for ranks, place in ((1, 0), (1, 1), (2, None))
    ]
    titles = [panel["title"] for panel in drawn(summary_of(shown))["latency"].chart.to_dict()["concat"]]
    assert titles == ["ResNet-50, 1 rank (place 0)", "ResNet-50, 2 ranks"]


def test_per_watt_is_drawn_over_alone(studied):
    chart = drawn(studied)["scaling-power"]
    values = {(row["precision"], row["ranks"]): row["value"] for row in rows_with(chart, "value")}
    assert values == pytest.approx(
        {("FP32", 2): 0.99, ("FP32", 4): 0.9, ("INT8", 2): 0.99, ("INT8", 4): 0.9}, rel=1e-4
    )


def test_charts_compile_without_a_warning(studied, capfd):
    for name in ("scaling", "scaling-power"):
        assert vl_convert.vegalite_to_vega(drawn(studied)[name].chart.to_dict(), show_warnings=True)["marks"]
    assert "WARN" not in "".join(capfd.readouterr())


def test_the_page_has_scaling_and_no_word_of_missing_charts(studied, records):
    text = page(studied, records)
    for name in ("scaling", "scaling-loss", "ranks", "scaling-power"):
        assert f"<section id='{name}'" in text
    assert "There is nothing to draw here" not in text
    assert "id='chart-scaling'" in text
    assert "id='chart-ranks'" not in text


def test_pictures_of_scaling(tmp_path):
    written = write_pngs(summary_of(cpu_study()), tmp_path)
    assert [path.name for path in written] == ["throughput.png", "scaling.png"]
    with Image.open(tmp_path / "scaling.png") as picture:
        assert picture.size[0] > 900


def test_csv_has_ranks_and_feeding():
    two = together([rank_result(0, 900.0), rank_result(1, 800.0, host="node2")])
    fed = record(throughput=two.throughput.model_dump(), feeding=feeding(), trial_input="images")
    rows = list(csv.DictReader(io.StringIO(csv_text([alone(1), two, fed]))))
    assert [(row["ranks"], row["place"], row["input"]) for row in rows] == [
        ("1", "1", "synthetic"), ("2", "", "synthetic"), ("1", "", "images"),
    ]  # fmt: skip
    assert (rows[1]["hosts"], rows[1]["slowest_rank_images_per_s"]) == ("node1 node2", "800.0")
    assert [one["rank"] for one in json.loads(rows[1]["rank_results"])] == [0, 1]
    assert (rows[2]["feeding_bottleneck"], rows[2]["feeding_wait_share"]) == ("images", "0.6")
    assert rows[0]["feeding_bottleneck"] == ""


def test_csv_keeps_the_watts_of_each_device(records):
    rows = list(csv.DictReader(io.StringIO(csv_text(records))))
    parts = json.loads(next(row["power_by_part"] for row in rows if row["ranks"] == "4"))
    assert [part["load_w"] for part in parts] == [478.0, 479.0, 480.0, 481.0]
    assert {row["power_by_part"] for row in rows if row["ranks"] == "1"} == {""}

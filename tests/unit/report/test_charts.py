"""Charts: what data they hold, that they are never empty, and that they compile without a warning."""

import pytest
import vl_convert

from inferometer.analysis.summary import summarise
from inferometer.report.charts import charts
from inferometer.report.theme import LIGHT, PRECISION_COLOURS, SHAPES, with_variables
from tests.unit.report.sample_records import record, throughput


@pytest.fixture(scope="module")
def drawn(summary):
    return {chart.id: chart for chart in charts(summary)}


def rows(chart, key):
    sets = chart.chart.to_dict()["datasets"].values()
    found = [row for data in sets for row in data if key in row]
    return [dict(one) for one in dict.fromkeys(tuple(sorted(row.items(), key=str)) for row in found)]


def test_each_chart_has_its_table_and_a_sentence(drawn):
    assert list(drawn) == ["throughput", "speedup", "latency", "accuracy", "difference"]
    for name, chart in drawn.items():
        assert chart.table.id == name
        assert chart.caption.endswith(".")


def test_nothing_measured_gives_no_chart():
    lost = record(status="out_of_memory", reason="too big")
    assert charts(summarise([], lambda _: None)) == ()
    assert charts(summarise([lost], lambda _: None)) == ()


def test_a_model_without_a_number_gets_no_empty_panel():
    found = summarise(
        [record(throughput=throughput(9.0)), record(model="alexnet", status="failed", reason="died")],
        lambda _: None,
    )
    (chart,) = charts(found)
    assert [panel["title"] for panel in chart.chart.to_dict()["concat"]] == ["ResNet-50"]


def test_throughput_shows_means_intervals_every_repeat_and_what_failed(drawn, summary):
    means = rows(drawn["throughput"], "lo")
    assert len(means) == 18
    for row in summary.throughput:
        if row.mean is not None:
            name, precision = summary.names[row.setup.model], row.setup.precision.upper()
            match = [one for one in means if (one["panel"], one["precision"], one["batch"]) ==
                     (name, precision, row.setup.batch)]  # fmt: skip
            assert [(one["value"], one["lo"], one["hi"]) for one in match] == [(row.mean, *row.interval)]
    assert len(rows(drawn["throughput"], "repeat")) == 53
    assert {(row["batch"], row["text"]) for row in rows(drawn["throughput"], "absent")} == {
        (512, "out of memory"), (1024, "skipped"),
    }  # fmt: skip
    assert "A cross marks a batch that gave no number" in drawn["throughput"].caption


def test_speed_up_panels_share_a_scale_that_holds_one_and_all_intervals(drawn, summary):
    highs = [gain.interval[1] for gain in summary.speed_ups]
    panels = drawn["speedup"].chart.to_dict()["concat"]
    domains = [
        layer["encoding"]["y"]["scale"]["domain"]
        for panel in panels
        for layer in panel["layer"]
        if "scale" in layer["encoding"]["y"]
    ]
    assert domains
    assert all(domain == [1.0, max(highs)] for domain in domains)


def test_a_ratio_without_a_verdict_is_hollow():
    found = summarise(
        [record(throughput=throughput(9.0)), record(precision="int8", throughput=throughput(18.0))],
        lambda _: None,
    )
    chart = {one.id: one for one in charts(found)}["speedup"]
    assert [row["open"] for row in rows(chart, "open")] == [True]
    assert "Hollow marks have no verdict" in chart.caption
    marks = [layer["encoding"].get("fillOpacity") for layer in chart.chart.to_dict()["concat"][0]["layer"]]
    assert {"condition": {"test": "datum.open", "value": 0}, "value": 1} in marks


def test_intervals_of_precisions_stand_side_by_side(drawn):
    layers = drawn["throughput"].chart.to_dict()["concat"][0]["layer"]
    assert [layer["mark"]["xOffset"] for layer in layers if layer["mark"]["type"] == "rule"] == [-7, 7]


def test_the_axis_names_the_precision_that_no_legend_names(drawn):
    layers = drawn["speedup"].chart.to_dict()["concat"][0]["layer"]
    assert layers[0]["encoding"]["y"]["title"] == "INT8 over FP32"


def test_an_interval_that_the_axis_cuts_ends_in_a_triangle():
    def drawn_of(*values):
        records = [record(repeat=i, throughput=throughput(value)) for i, value in enumerate(values)]
        (chart,) = charts(summarise(records, lambda _: None))
        layers = chart.chart.to_dict()["concat"][0]["layer"]
        marks = [layer for layer in layers if layer["mark"].get("shape") == "triangle-up"]
        return chart, [layer["encoding"]["y"] for layer in marks], layers[0]["encoding"]["y"]["scale"]

    # Two repeats: the interval of 20 reaches to 20 + 12.7 x 10 = 147, the axis to twice the largest value.
    chart, marks, scale = drawn_of(10.0, 30.0)
    assert (marks, scale["domain"], scale["nice"]) == ([{"value": 0}], [0, 60.0], False)
    assert "A triangle at the upper edge marks" in chart.caption
    chart, marks, scale = drawn_of(10.0, 10.1)
    assert (marks, scale["nice"]) == ([], True)
    assert "triangle" not in chart.caption


def test_latency_is_in_milliseconds(drawn, summary):
    first = summary.latency[0]
    values = {row["quantile"]: row["value"] for row in rows(drawn["latency"], "quantile")
              if (row["panel"], row["label"]) == ("GoogLeNet", "FP32")}  # fmt: skip
    assert values == pytest.approx({"p50": first.p50 * 1e3, "p90": first.p90 * 1e3, "p99": first.p99 * 1e3})


def test_differences_are_points_around_zero(drawn):
    found = {row["label"]: row["value"] for row in rows(drawn["difference"], "open")}
    minus = "\N{MINUS SIGN}"
    assert found == pytest.approx(
        {f"INT8 {minus} FP32, top-1": -200 / 1297, f"INT8 {minus} FP32, top-5": 0.0}
    )


def test_precisions_differ_in_colour_and_in_shape():
    assert len(set(PRECISION_COLOURS.values())) == len(set(SHAPES.values())) == len(PRECISION_COLOURS) == 5


def test_every_chart_compiles_without_a_warning(drawn, capfd):
    for chart in drawn.values():
        compiled = vl_convert.vegalite_to_vega(chart.chart.to_dict(), show_warnings=True)
        assert compiled["marks"]
    assert "WARN" not in "".join(capfd.readouterr())


def test_the_page_gets_colours_as_variables_and_texts_as_they_are():
    assert len(set(LIGHT.values())) == len(LIGHT)
    found = with_variables(
        {
            "config": {"title": {"color": LIGHT["ink"]}},
            "concat": [{"title": LIGHT["int8"], "encoding": {"range": [LIGHT["int8"]]}}],
            "datasets": {"rows-0": [{"panel": LIGHT["int8"]}]},
        }
    )
    assert found == {
        "config": {"title": {"color": "var(--ink)"}},
        "concat": [{"title": LIGHT["int8"], "encoding": {"range": ["var(--int8)"]}}],
        "datasets": {"rows-0": [{"panel": LIGHT["int8"]}]},
    }

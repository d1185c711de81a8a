"""The buttons of a chart's series, made from its own scales."""

import copy

import pytest

from inferometer.report.charts import charts
from inferometer.report.keys import Key, keys_of, series_buttons, without_legends
from inferometer.report.theme import DASHES, PRECISION_COLOURS, SHAPES


@pytest.fixture(scope="module")
def drawn(summary):
    return {chart.id: chart.chart.to_dict() for chart in charts(summary)}


def test_a_series_has_the_colour_shape_and_line_that_its_marks_have(drawn):
    assert keys_of(drawn["throughput"]) == {
        "precision": tuple(
            Key("precision", name.upper(), PRECISION_COLOURS[name], SHAPES[name], tuple(DASHES[name]))
            for name in ("fp32", "int8")
        )
    }


def test_marks_without_a_line_have_none_and_other_fields_their_own_group(drawn):
    found = keys_of(drawn["latency"])
    assert [(key.name, key.shape, key.dash) for key in found["precision"]] == [
        ("FP32", None, None), ("INT8", None, None),
    ]  # fmt: skip
    assert [(key.name, key.shape) for key in found["quantile"]] == [
        ("p50", "circle"), ("p90", "triangle-up"), ("p99", "square"),
    ]  # fmt: skip


def test_one_series_alone_has_no_button(drawn):
    assert keys_of(drawn["speedup"]) == {}
    assert series_buttons(drawn["speedup"], "Speed-up") == ""


def test_legends_go_where_there_are_buttons_and_the_rest_stays(drawn):
    before = copy.deepcopy(drawn["throughput"])
    found = without_legends(drawn["throughput"])
    assert drawn["throughput"] == before
    layers = [layer for panel in found["concat"] for layer in panel["layer"]]
    coloured = [layer["encoding"]["color"] for layer in layers if "color" in layer["encoding"]]
    assert coloured
    assert all(one["legend"] is None for one in coloured)
    assert found["datasets"] == before["datasets"]
    assert without_legends(drawn["speedup"]) == drawn["speedup"]


def test_buttons_say_that_they_are_pressed_and_escape_names():
    colours = {"field": "series", "scale": {"domain": ["<b>'", "two"], "range": ["#111111", "#222222"]}}
    specification = {
        "datasets": {"a": [{"series": "two"}]},
        "layer": [
            {"mark": {"type": "line", "strokeDash": [4, 2]}, "data": {"name": "a"},
             "encoding": {"color": colours}},
            {"mark": "text", "encoding": {"text": {"field": "series"}}},
        ],
    }  # fmt: skip
    text = series_buttons(specification, 'A "chart"')
    assert text.count("<button type='button' aria-pressed='true'") == 2
    assert "data-field='series' data-name='&lt;b&gt;&#x27;'" in text
    assert "aria-label='Series of A &quot;chart&quot;, by series'" in text
    assert text.count("stroke-dasharray='4 2'") == 1
    assert "<b>" not in text

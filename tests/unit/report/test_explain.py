"""Explanations as tables, chart, page and document."""

import copy
import io
import json
from dataclasses import replace

import pytest
import vl_convert
from PIL import Image

from inferometer.analysis.marks import MARK, MARK_NOTE
from inferometer.report.explain import document, explanation_tables, longest
from inferometer.report.explain_charts import explanation_chart, explanation_png
from inferometer.report.explain_page import explanation_page
from inferometer.report.width import fitted, natural_width
from tests.unit.analysis.explained import FP32, INT8, explained, rates, usual
from tests.unit.report.test_files import HOSTILE, block, read


def column(table, name):
    place = [one.name for one in table.columns].index(name)
    return [row[place] for row in table.rows]


@pytest.fixture(scope="module")
def one():
    return usual()


@pytest.fixture(scope="module")
def low(one):
    return replace(one, own=replace(one.own, mac_share=0.5, ran={"int8": 0.5, "fp32": 0.5}))


def without_layers():
    records = rates("fp32", [100.0, 101.0]) + rates("int8", [200.0, 201.0])
    return explained(records, {})[0][0]


def test_the_first_table_sums_to_the_profiles_and_ends_with_the_measured_call(one):
    table = explanation_tables(one)[0]
    assert [cell.text for cell in column(table, "Layers that")] == [
        "multiply, in INT8", "multiply, not in INT8", "to and from integers", "reorders", "do not multiply",
        "sum of the layers", "a call, measured",
    ]  # fmt: skip
    assert [cell.text for cell in column(table, "INT8")][-2:] == ["7.00", "39.8"]
    changes = [cell.raw for cell in column(table, "Change")][-2:]
    assert changes == pytest.approx([-0.003, 8 / 200.998342 - 8 / 100.996700], rel=1e-5)
    assert sum(cell.raw for cell in column(table, "INT8")[:-2]) == pytest.approx(0.007)
    assert column(table, "Change")[0].text == "\N{MINUS SIGN}2.40"


def test_the_second_has_the_longest_layers_of_either_side(one):
    table = explanation_tables(one)[1]
    assert [cell.text for cell in column(table, "Layer")] == [
        "conv1", "conv2", "fc", "pool", "back", "to_int", "to_float",
    ]  # fmt: skip
    assert [cell.text for cell in column(table, "Matched")] == ["order", "name", "name", "name", *["not"] * 3]
    assert [cell.tone for cell in column(table, "Ratio")][:2] == ["plain", "bad"]
    assert column(table, "FP32")[4].raw == 0.0005
    assert (column(table, "INT8")[4].text, column(table, "Layer")[0].raw) == ("\N{EN DASH}", "conv1_token_7")


def test_shorter_layers_are_counted(one):
    assert len(longest(one, 3)) == 3
    more = copy.deepcopy(INT8)
    more["profile"] += [
        {"name": f"x{place}", "op": "Add", "seconds": 1e-6, "role": "compute"} for place in range(9)
    ]
    found, _ = explained(rates("fp32", [100.0]) + rates("int8", [200.0]), {"fp32": FP32, "int8": more})
    assert explanation_tables(found[0])[1].note.startswith("4 shorter ones are not shown.")


def test_tables_fit_a_narrow_terminal(one):
    for table in explanation_tables(one):
        assert natural_width(fitted(table, 80)[0]) <= 80


def test_a_precision_that_did_not_run_as_asked_is_marked_in_table_and_chart(low):
    table = explanation_tables(low)[0]
    assert [one.name for one in table.columns][1:3] == ["FP32", f"INT8 {MARK}"]
    assert MARK_NOTE in table.note
    assert table.note.endswith("Ran: 50 % in INT8.")
    assert [one.name for one in explanation_tables(low)[1].columns][2:4] == ["FP32", f"INT8 {MARK}"]
    for rows in explanation_chart(low).to_dict()["datasets"].values():
        assert {row["precision"] for row in rows} == {"FP32", f"INT8 {MARK}"}
    assert f"INT8 {MARK} against FP32" in explanation_page([low], [], "study")


def test_the_chart_stacks_each_precision_and_shows_the_call(one):
    specification = explanation_chart(one).to_dict()
    stacked, layers = specification["concat"]
    kinds, calls = (specification["datasets"][layer["data"]["name"]] for layer in stacked["layer"])
    assert {(row["precision"], row["kind"]): round(row["ms"], 3) for row in kinds} == {
        ("FP32", "multiplies in FP32"): 8.5, ("FP32", "does not multiply"): 1.0, ("FP32", "reorder"): 0.5,
        ("INT8", "multiplies in INT8"): 4.6, ("INT8", "multiplies in FP32"): 1.5,
        ("INT8", "does not multiply"): 0.2, ("INT8", "to and from integers"): 0.7,
    }  # fmt: skip
    assert [row["ms"] for row in calls] == pytest.approx([8 / 0.100996700, 8 / 0.200998342], rel=1e-6)
    names = [row["name"] for row in specification["datasets"][layers["data"]["name"]]]
    assert names[:2] == ["relu1_nchwc", "conv1_token_7"]


def test_the_chart_compiles_without_a_warning(one, capfd):
    assert vl_convert.vegalite_to_vega(explanation_chart(one).to_dict(), show_warnings=True)["marks"]
    assert "WARN" not in "".join(capfd.readouterr())


def test_without_profiles_there_is_nothing_to_draw():
    blind = without_layers()
    assert explanation_tables(blind) == ()
    assert explanation_chart(blind) is None
    assert explanation_png([blind]) is None
    text = explanation_page([blind], [], "study")
    assert block(read(text), "charts") == []
    assert "No times of layers for FP32" in text


def test_the_picture_holds_every_explanation(one, low):
    with Image.open(io.BytesIO(explanation_png([one]))) as first:
        assert 1200 < first.width < 2400
        colours = {colour for _, colour in first.convert("RGB").getcolors(1 << 20)}
    assert {(255, 255, 255), (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x5A, 0x3A, 0x00)} <= colours
    with Image.open(io.BytesIO(explanation_png([one, low]))) as second:
        assert second.height > 1.5 * first.height


def test_the_page_stands_alone_and_says_what_the_terminal_says(one):
    text = explanation_page([one], [], "my study")
    reader = read(text)
    assert {tag for tag, _ in reader.elements} & {"link", "img", "iframe", "object", "embed"} == set()
    assert "default-src 'none'" in text
    assert len(block(reader, "charts")) == 1
    assert block(reader, "records") == json.loads(json.dumps(document([one], [])))
    assert "2 layers that multiply ran in INT8: 7.00&nbsp;ms in FP32" in text
    identifiers = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(set(identifiers)) == len(identifiers)
    assert f"chart-{block(reader, 'charts')[0]['id']}" in identifiers


def test_nothing_in_a_record_or_a_layer_is_markup():
    bad = copy.deepcopy(INT8)
    bad["profile"][0]["name"] = bad["executed"][0]["name"] = HOSTILE
    records = rates("fp32", [100.0], trial_engine=HOSTILE) + rates("int8", [200.0], trial_engine=HOSTILE)
    found, singles = explained(records, {"fp32": FP32, "int8": bad})
    text = explanation_page(found, singles, HOSTILE)
    assert "<script>alert" not in text
    assert len([1 for a, _ in read(text).scripts if a.get("type") != "application/json"]) == 2


def test_the_document_has_every_figure_as_plain_values(one):
    (found,) = json.loads(json.dumps(document([one], []), allow_nan=False))["explanations"]
    assert (found["precision"], found["baseline"], found["batch"]) == ("int8", "fp32", 8)
    assert found["ratio"]["verdict"] == "faster"
    assert found["bound"] == pytest.approx({"rest_s": 0.0024, "ratio": 10 / 2.4})
    assert [pair["by"] for pair in found["pairs"]] == ["order", "name", "name", "name"]
    assert sum(layer["seconds"] for layer in found["own"]["layers"]) == pytest.approx(
        found["own"]["profile_s"]
    )
    assert found["own"]["profile_share_of_call"] == pytest.approx(0.007 / (8 / 200.998342), rel=1e-6)
    assert found["reasons"][0]["about"] == "at_precision"


def test_what_was_not_compared_is_in_the_document():
    found, singles = explained(rates("int8", [200.0]), {})
    (one,) = document(found, singles)["not_compared"]
    assert (one["model"], one["precisions"]) == ("resnet50", ["int8"])
    assert "Not compared" in explanation_page(found, singles, "study")

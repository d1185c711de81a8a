"""Names with characters that pages, pictures or terminals have no place for."""

import copy

import pytest

from inferometer.analysis.summary import summarise
from inferometer.report.characters import allowed, one_line, page_bytes, unturned
from inferometer.report.explain_charts import explanation_png
from inferometer.report.explain_page import explanation_page
from inferometer.report.layers import LayerRow, layers_png
from inferometer.report.png import write_pngs
from tests.unit.analysis.explained import FP32, INT8, explained, rates
from tests.unit.report.sample_records import record, throughput

ODD = ["a\x00b", "a\x1b[31mb", "a\ufffeb", "a\ud800b"]


def test_only_what_xml_has_no_place_for_is_replaced_however_deep():
    assert allowed({"a\x00": ["\x1b", ("\ud800", 1.5, None, True)], "b": "\t\n\u202e\U0001f600"}) == {
        "a\N{REPLACEMENT CHARACTER}": [
            "\N{REPLACEMENT CHARACTER}", ["\N{REPLACEMENT CHARACTER}", 1.5, None, True],
        ],
        "b": "\t\n\u202e\U0001f600",
    }  # fmt: skip


def test_what_turns_text_is_replaced_however_deep_but_not_letters_that_run_from_right_to_left():
    other = "\N{REPLACEMENT CHARACTER}"
    assert unturned({"\u202e": ["\u2066a", 1.5, None]}) == {other: [f"{other}a", 1.5, None]}
    assert unturned("\N{HEBREW LETTER ALEF} b") == "\N{HEBREW LETTER ALEF} b"
    assert page_bytes("<p>a\u202eb\x00") == f"<p>a{other}b{other}".encode()


def test_a_terminal_gets_one_line_that_it_obeys_in_nothing():
    assert one_line("a\n\tb\x1b[31m\x9b\u202e\ud800\N{GREEK SMALL LETTER ALPHA}") == (
        "a b\N{REPLACEMENT CHARACTER}[31m" + 3 * "\N{REPLACEMENT CHARACTER}" + "\N{GREEK SMALL LETTER ALPHA}"
    )


@pytest.mark.parametrize("name", ODD)
def test_an_explanation_with_such_a_layer_is_drawn_and_written(name):
    odd = copy.deepcopy(INT8)
    odd["profile"][1]["name"] = odd["executed"][1]["name"] = name
    found, singles = explained(rates("fp32", [100.0]) + rates("int8", [200.0]), {"fp32": FP32, "int8": odd})
    assert explanation_png(found).startswith(b"\x89PNG")
    assert page_bytes(explanation_page(found, singles, name)).endswith(b"</html>\n")


def test_the_pictures_of_a_report_and_of_layers_are_drawn(tmp_path):
    # Half a surrogate pair never comes out of a store: records with one are refused.
    name = "".join(ODD[:3])
    summary = summarise([record(model=name, throughput=throughput(9.0))], lambda _: None)
    (path,) = write_pngs(summary, tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    row = LayerRow("".join(ODD), name, 0, 0.1, None, 1.0, 30.0, 40.0, False)
    assert layers_png([row], name).startswith(b"\x89PNG")

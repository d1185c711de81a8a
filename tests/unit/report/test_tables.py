"""Cells of the tables against the sample's known values."""

import pytest

from inferometer.analysis.summary import summarise
from inferometer.report.tables import result_tables, table_of, tables
from tests.unit.report.sample_records import probe, record, throughput


def column(table, name):
    place = [one.name for one in table.columns].index(name)
    return [row[place] for row in table.rows]


def summary_of(*records):
    return summarise(records, lambda _: None)


def test_every_table_is_rectangular_and_named_once(summary):
    made = tables(summary)
    assert [table.id for table in made] == [
        "throughput", "speedup", "latency", "accuracy", "difference", "not-measured", "models", "calibration",
        "machine",
    ]  # fmt: skip
    for table in made:
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_results_stand_without_their_context(summary):
    assert [table.id for table in result_tables(summary)] == [
        "throughput", "speedup", "latency", "accuracy", "difference", "not-measured",
    ]  # fmt: skip


def test_an_empty_summary_has_no_tables():
    assert tables(summary_of()) == ()


def test_throughput_cells_have_text_and_raw_value(summary):
    table = table_of(summary, "throughput")
    assert [one.name for one in table.columns][:3] == ["Model", "Precision", "Batch"]
    first = summary.throughput[0]
    rate = column(table, "Rate")[0]
    assert (rate.raw, rate.text) == (first.mean, f"{first.mean:.1f}")
    assert column(table, "Repeats")[0].text.count("\N{MIDDLE DOT}") == 2
    # Forty calls per repeat, three repeats.
    assert (column(table, "Calls")[0].text, column(table, "Calls")[15].raw) == ("120", None)
    assert column(table, "Rate")[15].text == "out of memory"
    assert table.note.startswith("All on onnxruntime, cpu.")


def test_a_low_share_and_a_verdict_stand_out(summary):
    shares = column(table_of(summary, "speedup"), "MACs at precision")
    assert [(cell.text, cell.tone) for cell in shares[2:4]] == [("99 %", "plain"), ("84 %", "bad")]
    verdicts = column(table_of(summary, "speedup"), "Verdict")
    assert {(cell.text, cell.tone) for cell in verdicts} == {("faster", "good")}


def test_one_repeat_is_marked_in_cell_and_note():
    table = table_of(summary_of(record(throughput=throughput(50.0))), "throughput")
    assert column(table, "95 % interval")[0].text == "49.5 to 50.5 *"
    assert "* one repeat" in table.note


def test_a_changed_machine_shows_in_the_table():
    rows = [record(repeat=i, throughput=throughput(10.0 + i)) for i in range(2)]
    rows += [
        record(precision="int8", repeat=i, throughput=throughput(20.0 + i), probe=probe(14e9))
        for i in range(2)
    ]
    table = table_of(summary_of(*rows), "speedup")
    (change,) = column(table, "Machine moved")
    assert (change.text, change.tone, change.raw) == ("16.7 % compute", "bad", pytest.approx(1 / 6))
    assert column(table, "Verdict")[0].text == "inconclusive: machine changed"


def test_engine_device_and_settings_are_columns_only_where_they_differ():
    rows = [
        record(throughput=throughput(10.0)),
        record(throughput=throughput(11.0), trial_engine="openvino"),
        record(repeat=1, throughput=throughput(12.0), trial_engine="openvino", trial_copies="excluded"),
    ]
    table = table_of(summary_of(*rows), "throughput")
    assert [one.name for one in table.columns][:5] == ["Model", "Engine", "Settings", "Precision", "Batch"]
    assert [cell.text for cell in column(table, "Settings")] == [
        "\N{EN DASH}",
        "copies excluded",
        "copies included",
    ]
    assert table.note.startswith("All on cpu.")


def test_accuracy_is_percent_in_text_and_a_fraction_raw(summary):
    table = table_of(summary, "accuracy")
    top1 = column(table, "Top-1")[0]
    # 1297 images, every fortieth wrong: 33 of them.
    assert (top1.text, top1.raw) == ("97.5", pytest.approx(1264 / 1297))
    difference = column(table_of(summary, "difference"), "Difference")[0]
    assert column(table_of(summary, "difference"), "Compared")[0].text == "digits INT8 against FP32"
    assert (difference.text, difference.raw) == ("\N{MINUS SIGN}0.15", pytest.approx(-2 / 1297))


def test_unknown_facts_say_why(summary):
    values = {row[0].text: row[1] for row in table_of(summary, "machine").rows}
    assert values["GPUs"].text == "not known: the package nvidia-ml-py is not installed"
    assert (values["GPUs"].raw, values["GPUs"].tone) == (None, "muted")


def test_trials_without_a_number_say_why(summary):
    table = table_of(summary, "not-measured")
    assert [(cell.text, cell.tone) for cell in column(table, "Status")] == [
        ("failed", "bad"), ("out of memory", "muted"), ("skipped", "muted"),
    ]  # fmt: skip
    assert column(table, "Reason")[2].text == "batch 512 ran out of memory"

"""Figures of one subject that come from several places: each is told of, and says where it is from."""

import pytest

from inferometer.analysis.comparison.compare import compare
from inferometer.report.comparison_tables import comparison_tables
from tests.unit.analysis.comparison.sample_sources import dell, elsewhere, store, trials
from tests.unit.report.power_records import metered, power_study, result
from tests.unit.report.sample_records import record

STEADY = (100.0, 101.0, 99.0)
SPREAD = (0.99, 1.0, 1.01)


def sentences(found, about):
    return [one.sentence for one in found.findings if one.about == about]


def rows(found, table):
    (own,) = [one for one in comparison_tables(found) if one.id == table]
    names = [column.name for column in own.columns]
    return [dict(zip(names, (cell.text for cell in row), strict=True)) for row in own.rows]


def both(factor, gain, **fields):
    """FP32 and INT8 at two batches."""
    rates = [one * factor for one in STEADY]
    return [one for batch in (8, 16) for one in (
        *trials(rates, precision="fp32", batch=batch, **fields),
        *trials([one * gain for one in rates], batch=batch, **fields),
    )]  # fmt: skip


@pytest.fixture
def two_stores():
    return [store("june", both(1.0, 3.0)), store("july", both(2.0, 6.0, environment=elsewhere()))]


def test_by_precision_every_store_has_its_own_sentence(two_stores):
    speed = sentences(compare(two_stores, "precision"), "speed")
    assert [one.partition(" (95 %")[0] for one in speed] == ["INT8 gives 3.00 times", "INT8 gives 6.00 times"]
    assert [one.partition("batch 16; ")[2] for one in speed] == ["june): faster.", "july): faster."]


def test_the_tables_keep_the_figures_of_every_store(two_stores):
    found = compare(two_stores, "precision")
    assert [(row["Where"], row["Batch"], row["Ratio"]) for row in rows(found, "ratios")] == [
        ("june", "8", "3.00×"), ("july", "8", "6.00×"), ("june", "16", "3.00×"), ("july", "16", "6.00×"),
    ]  # fmt: skip
    swept = rows(found, "sweep-images_per_s")
    assert [(row["Where"], row["FP32"]) for row in swept if row["FP32"] != "–"] == [
        ("june", "100"), ("june", "100"), ("july", "200"), ("july", "200"),
    ]  # fmt: skip


def test_precisions_stand_side_by_side_where_they_are_what_is_compared(two_stores):
    swept = rows(compare(two_stores, "precision"), "sweep-images_per_s")
    assert [(row["Where"], row["Batch"], row["FP32"], row["INT8"]) for row in swept] == [
        ("june", "8", "100", "300"), ("june", "16", "100", "300"),
        ("july", "8", "200", "1,200"), ("july", "16", "200", "1,200"),
    ]  # fmt: skip
    assert "Precision" not in swept[0]


@pytest.mark.parametrize(("axis", "filled"), [("engine", 2), ("store", 1)])
def test_engines_share_a_row_only_where_they_are_what_is_compared(axis, filled):
    def swept(engine):
        return [one for batch in (8, 16) for one in trials(batch=batch, trial_engine=engine)]

    found = compare([store("a", swept("onnxruntime")), store("b", swept("openvino"))], axis)
    for row in rows(found, "sweep-images_per_s"):
        assert [row[name] != "–" for name in found.subjects].count(True) == filled


def test_devices_of_one_store_are_told_apart_and_never_mixed():
    def on(device, int8_w):
        return [metered(result(net * one, 8000.0), repeat=place, precision=precision, trial_device=device)
                for precision, net in (("fp32", 500.0), ("int8", int8_w))
                for place, one in enumerate(SPREAD)]  # fmt: skip

    found = compare([store("here", [*on("cuda:0", 250.0), *on("cuda:1", 100.0)])], "precision")
    power = sentences(found, "power")
    assert [one.partition(" (95 %")[0] for one in power] == ["INT8 gives 2.00 times", "INT8 gives 5.00 times"]
    assert "batch 128; cuda:0)" in power[0]
    assert "batch 128; cuda:1)" in power[1]


def test_where_nothing_else_tells_them_apart_nothing_is_said():
    for found in (compare([dell()]), compare([store("a", trials()), store("b", trials())])):
        assert not any(";" in one.sentence.partition("(")[2].partition(")")[0] for one in found.findings)
        assert "Where" not in rows(found, "ratios")[0]


def test_two_machines_of_one_store_are_told_apart():
    there = {"environment": elsewhere()}
    found = compare([store("here", [*both(1.0, 3.0), *both(2.0, 6.0, **there)])], "precision")
    speed = sentences(found, "speed")
    assert len(speed) == 2
    assert "machine e29ffd" in speed[0]
    assert "machine 012345" in speed[1]


def test_memory_that_ended_on_several_devices_says_on_how_many():
    def lost(ranks):
        ended = {"status": "out_of_memory", "reason": "too big", "trial_ranks": ranks}
        return record(batch=64, id=f"lost-{ranks}", **ended)

    ran = [*trials(precision="fp32"), *trials()]
    found = compare([store("here", ran, [lost(1), lost(2)])], "precision")
    assert [one.partition(" at batch")[0] for one in sentences(found, "memory")] == [
        "FP32 ran out of memory", "FP32 on 2 devices ran out of memory",
    ]  # fmt: skip


def test_per_watt_claims_to_be_near_the_best_only_where_it_is():
    """ResNet-50 in FP32 gives 16.0 images/s/W at batch 32 and 14.3 at 128, its largest: 11 % below."""
    told = sentences(compare([store("a", power_study())], "precision"), "power")
    resnet = [one for one in told if "ResNet-50 FP16" in one and " times " in one]
    assert resnet == [
        "FP16 gives 1.51 to 3.10 times the images/s/W of FP32 at batch 1 to 128 (ResNet-50 FP16): from no"
        " batch on do both stay within 10 % of their best; 3 of 3 ratios are told from 1."
    ]

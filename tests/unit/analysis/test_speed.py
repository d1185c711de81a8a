"""Throughput, speed-ups and latency from hand-made records."""

import math

import pytest

from inferometer.analysis.summary import summarise
from tests.unit.report.sample_records import latency, record, throughput


def summary_of(records):
    return summarise(records, lambda _: None)


def rates(values, precision="fp32", **fields):
    return [
        record("throughput", "resnet50", precision, 8, repeat, throughput=throughput(value), **fields)
        for repeat, value in enumerate(values)
    ]


def test_repeats_are_pooled_by_hand():
    (row,) = summary_of(rates([98.0, 102.0, 100.0])).throughput
    assert row.repeats == (98.0, 102.0, 100.0)
    assert (row.mean, row.median, row.ci_kind) == (100.0, 100.0, "between_repeats")
    half = 4.302653 * 2 / math.sqrt(3)
    assert row.interval == pytest.approx((100 - half, 100 + half), abs=1e-4)


def test_one_repeat_shows_its_own_interval_and_supports_no_verdict():
    found = summary_of(rates([50.0]) + rates([100.0], "int8"))
    assert [row.ci_kind for row in found.throughput] == ["within_run", "within_run"]
    assert found.throughput[0].interval == (49.5, 50.5)
    (gain,) = found.speed_ups
    assert (gain.ratio, gain.interval, gain.p) == (pytest.approx(2.0), None, None)
    assert gain.verdict == "one repeat: no verdict"
    assert any("2 throughput rows rest on one repeat" in sentence for sentence in found.cautions)


def test_an_interval_of_a_rate_never_falls_below_zero():
    (row,) = summary_of(rates([10.0, 30.0])).throughput
    assert row.interval == pytest.approx((0.0, 20 + 12.706205 * 10), abs=1e-4)


def test_one_repeat_with_few_windows_has_no_interval_at_all():
    (row,) = summary_of([record(throughput=throughput(9.0, windows=3, ci95=None))]).throughput
    assert (row.mean, row.interval, row.ci_kind) == (9.0, None, None)


@pytest.mark.parametrize(
    ("other", "verdict"),
    [([200, 202, 201], "faster"), ([50, 50.5, 51], "slower"), ([99, 103, 101], "no difference seen")],
)
def test_verdicts(other, verdict):
    found = summary_of(rates([100.0, 101.0, 102.0]) + rates(other, "int8"))
    (gain,) = found.speed_ups
    assert gain.verdict == verdict
    assert gain.ratio == pytest.approx(math.prod(other) ** (1 / 3) / math.prod([100, 101, 102]) ** (1 / 3))
    assert gain.interval[0] < gain.ratio < gain.interval[1]


def test_p_values_are_corrected_for_their_number():
    def pair(batch):
        return [
            record("throughput", "resnet50", precision, batch, repeat, throughput=throughput(value))
            for precision, values in (("fp32", [100, 101, 102]), ("int8", [103, 104, 105]))
            for repeat, value in enumerate(values)
        ]

    (alone,) = summary_of(pair(1)).speed_ups
    among = summary_of([one for batch in (1, 2, 4, 8) for one in pair(batch)]).speed_ups
    assert alone.verdict == "faster"
    assert [gain.p for gain in among] == pytest.approx([4 * alone.p] * 4)
    assert {gain.verdict for gain in among} == {"no difference seen"}


def test_a_missing_probe_is_said_and_not_taken_for_steady():
    found = summary_of(rates([100, 101, 102], probe=None) + rates([300, 301, 302], "int8", probe=None))
    assert found.speed_ups[0].machine_change is None
    assert any("6 of 6 timed trials came without the machine's probe" in one for one in found.cautions)


def test_only_the_same_setup_is_compared():
    others = [
        record("throughput", "resnet50", "int8", 4, throughput=throughput(300.0)),
        record("throughput", "alexnet", "int8", 8, throughput=throughput(300.0)),
        *rates([300, 301], "int8", trial_engine="openvino"),
    ]
    assert summary_of(rates([100, 101, 102]) + others).speed_ups == ()


def test_other_settings_are_never_pooled():
    one, two = ({"options": {"threads": n}} for n in (1, 2))
    found = summary_of(
        rates([100, 101], config=one)
        + rates([150, 151], trial_copies="excluded", config=two)
        + rates([300, 301], "int8", config=one)
    )
    names = [row.setup.variant for row in found.throughput]
    assert (("copies", "included"), ("options.threads", "1")) in names
    assert (("copies", "excluded"), ("options.threads", "2")) in names
    (gain,) = found.speed_ups
    assert gain.ratio == pytest.approx(3.0, rel=0.01)


def test_an_option_and_its_absence_are_two_rows_named_by_it_alone():
    plain = {"options": {"threads": 2}, "engine_version": "1.32.0"}
    other = {"options": {"threads": 2, "provider": "openvino"}, "engine_version": "1.32.0 with 1.8.1"}
    others = [one.model_copy(update={"id": f"{one.id}-other"}) for one in rates([300, 301], config=other)]
    found = summary_of(rates([100, 101], config=plain) + others)
    assert [(row.setup.variant, row.mean) for row in found.throughput] == [
        ((("options.provider", "default"),), 100.5),
        ((("options.provider", "openvino"),), 300.5),
    ]
    assert found.speed_ups == ()


def test_a_failed_repeat_is_told_and_does_not_split_its_row():
    lost = record("throughput", "resnet50", "fp32", 8, 2, status="failed", reason="signal 11")
    lost = lost.model_copy(update={"model": None, "environment": None, "probe": None})
    found = summary_of([*rates([100.0, 102.0]), lost])
    (row,) = found.throughput
    assert (row.status, row.mean, row.setup.variant) == ("ok", 101.0, ())
    assert row.reason == "1 of 3 repeats gave no rate: signal 11"
    assert found.not_measured[0].status == "failed"
    assert found.statuses == {"ok": 2, "failed": 1}


def test_a_batch_without_memory_has_no_number():
    oom = record("throughput", "resnet50", "fp32", 512, status="out_of_memory", reason="the kernel ended it")
    found = summary_of([*rates([100.0, 102.0]), oom])
    row = found.throughput[1]
    assert (row.status, row.mean, row.interval, row.repeats) == ("out_of_memory", None, None, ())
    assert any(one.sentence == "ResNet-50 in FP32 ran out of memory at batch 512." for one in found.findings)


def test_int8_that_is_mostly_float_is_marked():
    share = {"int8": 0.62, "fp32": 0.38}
    int8 = rates([200, 201, 202], "int8", precision_mac_share=share)
    found = summary_of(rates([100, 101, 102]) + int8)
    assert found.speed_ups[0].mac_share == 0.62
    assert any("only 62 % of its multiply-accumulates did" in sentence for sentence in found.cautions)
    assert "Only 62 % of its multiply-accumulates ran in INT8." in found.findings[0].sentence


def test_an_unknown_share_comes_with_its_reason():
    why = {"precision_mac_share": "the engine cannot tell"}
    found = summary_of(rates([100, 101], "int8", missing=why))
    assert found.throughput[0].mac_share is None
    assert found.throughput[0].mac_share_missing == "the engine cannot tell"
    assert any("is not known: the engine cannot tell" in sentence for sentence in found.cautions)


def test_a_precision_that_ran_nothing_at_all_is_zero_not_unknown():
    found = summary_of(rates([100, 101], "int8", precision_mac_share={"fp32": 1.0}))
    assert found.throughput[0].mac_share == 0.0


def test_latency_is_the_median_of_the_repeats():
    values = (0.020, 0.030, 0.022)
    rows = [record("latency", batch=1, repeat=i, latency_s=latency(v)) for i, v in enumerate(values)]
    (row,) = summary_of(rows).latency
    assert (row.p50, row.p99) == (0.022, pytest.approx(0.022 * 1.21))
    assert (row.min, row.max, row.calls) == (pytest.approx(0.0194), pytest.approx(0.048), 3000)
    assert [one.p50 for one in row.repeats] == [0.020, 0.030, 0.022]


def test_a_percentile_needs_enough_calls_in_every_repeat():
    rows = [
        record("latency", batch=1, repeat=i, latency_s=latency(0.02, n)) for i, n in enumerate((1000, 200))
    ]
    (row,) = summary_of(rows).latency
    assert row.p99 is None
    assert row.p90 == pytest.approx(0.021)


def test_an_unsteady_warm_up_is_told():
    found = summary_of([record(throughput=throughput(9.0, steady=False))])
    assert any("1 of 1 throughput trial had not reached a steady rate" in one for one in found.cautions)

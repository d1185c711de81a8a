"""Figures of an explanation, against sums by hand."""

import copy

import pytest

from tests.unit.analysis.explained import FP32, INT8, explained, rates, usual
from tests.unit.report.sample_records import record, throughput


def parts(one):
    return {part.name: (part.base_s * 1e3, part.own_s * 1e3, part.difference_s * 1e3) for part in one.parts}


def test_each_layer_is_in_one_part_and_the_parts_sum_to_the_profiles():
    one = usual()
    assert parts(one) == {
        "at_precision": pytest.approx((7.0, 4.6, -2.4)),
        "otherwise": pytest.approx((1.5, 1.5, 0.0)),
        "quantize": pytest.approx((0.0, 0.7, 0.7)),
        "reorder": pytest.approx((0.5, 0.0, -0.5)),
        "no_macs": pytest.approx((1.0, 0.2, -0.8)),
    }
    assert (one.base.profile_s, one.own.profile_s) == pytest.approx((0.010, 0.007))
    assert sum(part.own_s for part in one.parts) == pytest.approx(one.own.profile_s)
    assert sum(part.base_s for part in one.parts) == pytest.approx(one.base.profile_s)


def test_a_call_takes_batch_times_requests_in_flight_over_the_rate():
    two = throughput(200.0) | {"in_flight": 2}
    int8 = rates("int8", [200.0])[0].model_copy(update={"throughput": record(throughput=two).throughput})
    (one,), _ = explained([*rates("fp32", [100.0]), int8], {"fp32": FP32, "int8": INT8})
    assert (one.base.call_s, one.own.call_s) == pytest.approx((0.08, 0.08))
    assert one.own.covered == pytest.approx(0.007 / 0.08)


def test_layers_that_lose_are_those_a_tenth_slower_and_more():
    one = usual()
    assert [(pair.base.name, pair.own.name) for pair in one.slower] == [("conv2_nchwc", "conv2_token_9")]
    nearly = copy.deepcopy(INT8)
    nearly["profile"][2]["seconds"] = 0.0032
    (other,), _ = explained(rates("fp32", [100.0]) + rates("int8", [200.0]), {"fp32": FP32, "int8": nearly})
    assert other.slower == ()


def test_the_bound_is_what_remains_when_int8_takes_no_time():
    one = usual()
    # Of INT8 remain: quantizing 0.7, the pool 0.2, fc in float 1.5.
    assert one.bound.rest_s == pytest.approx(0.0024)
    assert one.bound.ratio == pytest.approx(10 / 2.4)


def test_int8_is_held_against_the_fastest_float_precision():
    bf16 = copy.deepcopy(FP32)
    for one in bf16["executed"]:
        one["precision"] = "bf16"
    records = rates("fp32", [100, 101, 102]) + rates("bf16", [150, 151, 152]) + rates("int8", [200, 201, 202])
    found, _ = explained(records, {"fp32": FP32, "bf16": bf16, "int8": INT8})
    int8, other = found
    assert (int8.own.setup.precision, int8.gain.baseline) == ("int8", "bf16")
    assert int8.gain.ratio == pytest.approx((200 * 201 * 202 / (150 * 151 * 152)) ** (1 / 3))
    assert [gain.baseline for gain in int8.others] == ["fp32"]
    assert (other.own.setup.precision, other.gain.baseline) == ("bf16", "fp32")
    assert int8.base.layers[0].precision == "bf16"


def test_the_verdict_against_fp32_is_the_reports():
    records = rates("fp32", [100, 101, 102]) + rates("int8", [200, 201, 202])
    (one,), _ = explained(records, {})
    assert one.gain.verdict == "faster"
    assert one.gain.p < 0.001


def test_the_batch_explained_is_the_largest_with_both_profiles():
    records = [
        *rates("fp32", [100, 101]), *rates("int8", [200, 201]),
        *rates("fp32", [110, 111], 32), *rates("int8", [220, 221], 32),
    ]  # fmt: skip
    (one,), _ = explained(records, {"fp32": FP32, "int8": INT8})
    assert one.own.setup.batch == 8
    assert [at.batch for at in one.batches] == [8, 32]
    (blind,), _ = explained(records, {"fp32": FP32})
    assert (blind.own.setup.batch, blind.parts, blind.bound) == (32, (), None)


def test_profiles_of_no_layer_say_whose_fault_that_is():
    records = rates("fp32", [100.0]) + rates("int8", [200.0])
    (one,), _ = explained(
        records, {"fp32": {"executed": [], "profile": []}, "int8": {"executed": [], "profile": None}}
    )
    assert one.base.why_no_profile == "the engine has no profile of its layers"
    assert one.own.why_no_profile == "layers are timed at the largest batch of a study alone"
    (none,), _ = explained(records, {})
    assert none.own.why_no_profile == "what ran was not kept with its trials"


def test_a_single_precision_is_told_apart():
    found, singles = explained(rates("int8", [200.0]), {})
    assert found == []
    assert [(one.name, one.precisions) for one in singles] == [("ResNet-50", ("int8",))]


def test_precisions_of_no_common_batch_are_not_compared():
    found, singles = explained(rates("fp32", [100.0], 1) + rates("int8", [200.0], 8), {})
    assert found == []
    assert singles[0].precisions == ("fp32", "int8")


def test_engines_are_explained_apart():
    records = [*rates("fp32", [100.0]), *rates("int8", [200.0])]
    records += [
        *rates("fp32", [90.0], trial_engine="openvino"),
        *rates("int8", [95.0], trial_engine="openvino"),
    ]
    found, _ = explained(records, {"fp32": FP32, "int8": INT8})
    assert [(one.own.setup.engine, round(one.gain.ratio, 2)) for one in found] == [
        ("onnxruntime", 2.0), ("openvino", 1.06),
    ]  # fmt: skip


def test_layers_without_known_macs_are_a_part_of_their_own_and_bound_nothing():
    untold = copy.deepcopy(INT8)
    for one in untold["executed"]:
        one["macs"] = None
    (one,), _ = explained(rates("fp32", [100.0]) + rates("int8", [200.0]), {"fp32": FP32, "int8": untold})
    assert parts(one)["unknown"] == pytest.approx((9.5, 6.3, -3.2))
    assert one.bound is None


def test_layers_that_multiply_without_a_counterpart_stand_apart():
    more = copy.deepcopy(INT8)
    more["executed"][2]["macs"] = 99
    (one,), _ = explained(rates("fp32", [100.0]) + rates("int8", [200.0]), {"fp32": FP32, "int8": more})
    assert parts(one)["unmatched"] == pytest.approx((3.0, 3.6, 0.6))
    assert one.slower == ()

"""Scaling from hand-made records: efficiencies, verdicts, matching of devices, findings and cautions."""

import math

import pytest

from inferometer.analysis.explain import explain
from inferometer.analysis.explain_words import place
from inferometer.analysis.scaling import efficiency_of
from inferometer.analysis.summary import summarise
from inferometer.stats import ratio_interval, t_cdf, t_quantile
from tests.unit.report.sample_records import latency, probe, record, throughput
from tests.unit.report.scaling_records import (
    alone,
    cpu_rank,
    cpu_study,
    gpu_study,
    rank_result,
    together,
)


def summary_of(records):
    return summarise(records, lambda _: None)


def said(found, words):
    return [line for line in found.cautions if words in line]


def test_an_efficiency_by_hand():
    # The devices alone do not vary: the variance is that of 90 alone, with two degrees of freedom.
    found = efficiency_of([89.0, 90.0, 91.0], [[50.0, 50.0], [50.0, 50.0]])
    half = 4.302653 * math.sqrt(1 / 3) / 90
    assert found.value == pytest.approx(0.9)
    assert found.interval == pytest.approx((0.9 * math.exp(-half), 0.9 * math.exp(half)), rel=1e-7)


def test_variances_of_the_parts_add_up_over_the_square_of_their_sum():
    # 1 % of 90 on one side; 1 of 200 and 1.7320508 of 200 on the other, together 1 %: as much. Two sides with
    # one degree of freedom each would have two; one of them is shared between parts in the ratio of 1 to 3.
    found = efficiency_of([89.1, 90.9], [[99.0, 101.0], [100 - math.sqrt(3), 100 + math.sqrt(3)]])
    error = math.sqrt(2) * 0.01
    df = 2**2 / (1 + 0.25**2 + 0.75**2)
    half = t_quantile(0.975, df) * error
    assert found.interval == pytest.approx((0.45 * math.exp(-half), 0.45 * math.exp(half)), rel=1e-9)
    assert found.p == pytest.approx(2 * t_cdf(math.log(0.45) / error, df))


def test_with_one_part_and_equal_spreads_it_is_welchs():
    a, b = [100.0, 100.1, 99.9, 100.05], [90.0, 90.1, 89.8]
    known, found = ratio_interval(a, b), efficiency_of(b, [a])
    assert found.interval == pytest.approx((known.lo, known.hi), rel=1e-5)
    assert found.p == pytest.approx(known.p, rel=1e-2)


def test_repeats_without_any_spread_are_exact():
    assert efficiency_of([90.0, 90.0], [[50.0, 50.0], [50.0, 50.0]]).interval == (0.9, 0.9)
    assert efficiency_of([100.0, 100.0], [[50.0, 50.0], [50.0, 50.0]]).p == 1.0
    assert efficiency_of([90.0], [[50.0, 50.0], [50.0, 50.0]]).interval is None


def test_devices_together_against_the_same_alone():
    two, four = summary_of(gpu_study()).scaling
    assert (two.setup.ranks, two.setup.place, four.setup.ranks) == (2, None, 4)
    assert two.alone == pytest.approx((1000.0, 1000.0))
    assert (two.efficiency, four.efficiency) == (pytest.approx(0.99), pytest.approx(0.9))
    assert (two.verdict, four.verdict) == ("less than linear", "less than linear")
    assert four.slowest == (3, pytest.approx(1 - 660 / 900))
    assert (four.skew_s, four.timed_s) == pytest.approx((0.0012, 640 / 3600))
    assert [one.kept for one in four.ranks] == pytest.approx([0.98, 0.98, 0.98, 0.66])
    assert len(four.alone_ids) == 12


def test_several_ranks_are_never_pooled_with_one():
    found = summary_of(gpu_study())
    crews = [(row.setup.ranks, row.setup.place, row.setup.variant) for row in found.throughput]
    assert crews == [(1, 0, ()), (1, 1, ()), (1, 2, ()), (1, 3, ()), (2, None, ()), (4, None, ())]
    assert {len(row.repeats) for row in found.throughput} == {3}


def test_precisions_are_compared_with_the_same_ranks_and_place():
    gains = summary_of(gpu_study() + gpu_study("int8", factor=2.5)).speed_ups
    assert [(gain.setup.ranks, gain.setup.place) for gain in gains] == [
        (1, 0), (1, 1), (1, 2), (1, 3), (2, None), (4, None),
    ]  # fmt: skip
    assert [gain.ratio for gain in gains] == pytest.approx([2.5] * 6)


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((17.0, 17.0), "less than linear"),
        ((20.0, 20.0), "no difference from linear seen"),
        ((20.5, 20.5), "more than linear"),
    ],
)
def test_verdicts(rates, verdict):
    (row,) = summary_of(cpu_study(rates)).scaling
    assert row.verdict == verdict
    assert row.interval[0] < row.efficiency < row.interval[1]


def test_p_values_are_corrected_for_the_number_of_rows():
    def p(records):
        return [row.p for row in summary_of(records).scaling]

    (one,) = p(cpu_study((19.95, 19.9)))
    two = p(cpu_study((19.95, 19.9)) + cpu_study((19.95, 19.9), batch=16))
    assert two == pytest.approx([2 * one, 2 * one])


def test_one_repeat_has_an_efficiency_and_no_verdict():
    found = summary_of(cpu_study(repeats=1))
    (row,) = found.scaling
    assert (row.efficiency, row.interval, row.p) == (pytest.approx(0.85), None, None)
    assert (row.verdict, row.causes) == ("one repeat: no verdict", ())
    assert said(found, "1 row of scaling rests on one repeat on a side")
    (finding,) = [one for one in found.findings if one.about == "scaling"]
    assert (finding.figure, finding.settled) == ("no verdict", False)
    assert "one repeat on a side supports no verdict" in finding.sentence


def test_a_changed_machine_gives_no_verdict_but_copying_alone_does_not_count():
    def changed(**of):
        records = cpu_study()
        return [
            one.model_copy(update={"probe": probe(**of)}) if one.trial.ranks > 1 else one for one in records
        ]

    found = summary_of(changed(compute=14e9))
    assert found.scaling[0].verdict == "inconclusive: machine changed"
    assert said(found, "1 of 1 comparison of several ranks with the same devices alone is inconclusive")
    # A launcher's processes get other pages.
    assert summary_of(changed(copy=19e9)).scaling[0].verdict == "less than linear"


def test_without_all_devices_alone_there_is_no_sum():
    lost = alone(1, status="out_of_memory", reason="too big", throughput=None, ranks=())
    pair = [together([rank_result(0), rank_result(1)], repeat) for repeat in range(2)]
    first = [alone(0, 1000.0, repeat) for repeat in range(2)]
    found = summary_of([*first, *pair])
    (row,) = found.scaling
    assert (row.efficiency, row.alone_sum, row.alone, row.apart) == (None, None, (), None)
    assert (row.verdict, row.why_no_sum) == ("not compared", "place 1 was not measured alone")
    assert said(found, "How ResNet-50 in FP32 at batch 32 with 2 ranks scales is not known: place 1 was not")
    (row,) = summary_of([*first, lost, *pair]).scaling
    assert row.why_no_sum == "place 1 alone gave no rate (out of memory)"


def test_another_device_at_a_place_is_not_the_same():
    pair = [together([rank_result(0), rank_result(1, host="node2")], repeat) for repeat in range(2)]
    devices = [alone(place, repeat=repeat) for place in range(2) for repeat in range(2)]
    (row,) = summary_of(devices + pair).scaling
    assert row.why_no_sum == "rank 1 ran on another device than place 1 alone"
    other = [together([rank_result(0), rank_result(1, uuid="GPU-x")], repeat) for repeat in range(2)]
    (row,) = summary_of(devices + other).scaling
    assert row.why_no_sum == "rank 1 ran on another device than place 1 alone"


def test_devices_of_two_hosts_are_found_on_their_machines():
    def on(host, one):
        return one.model_copy(update={"environment": {**one.environment, "machine_key": host}})

    far = {"host": "node2", "clock_offset_s": 5.0, "clock_u_s": 20e-6}
    records = []
    for repeat in range(2):
        records.append(on("node1", alone(0, 1000.0, repeat)))
        records.append(on("node2", alone(1, 1010.0, repeat, ranks=(rank_result(1, 1010.0, **far),))))
        records.append(on("node1", together([rank_result(0, 990.0), rank_result(1, 1000.0, **far)], repeat)))
    found = summary_of(records)
    (row,) = found.scaling
    assert (row.setup.machine, row.alone) == (0, (1000.0, 1010.0))
    assert row.efficiency == pytest.approx(1990 / 2010)
    assert found.cautions[0] == (
        "The records come from 2 machines: their trials are never pooled here, and compared only with what"
        " their devices do together."
    )
    assert not said(found, "Clocks of different hosts")
    vague = [one.model_copy(update={"ranks": (*one.ranks[:1], rank_result_of(one.ranks[1]))})
             if one.trial.ranks > 1 else one for one in records]  # fmt: skip
    assert said(summary_of(vague), "Clocks of different hosts are known to within 20.0 ms only")


def rank_result_of(one):
    return one.model_copy(update={"clock_u_s": 0.02})


def test_hosts_that_differ_and_shared_devices_are_told():
    unlike = {"hosts differ": ["system.kernel: 6.1.0 on node1, 6.8.0 on node2"]}
    one = together([rank_result(0), rank_result(1, uuid="GPU-0", device="cuda:0")], session=unlike)
    found = summary_of([one])
    assert said(found, "machines that differ: system.kernel: 6.1.0 on node1, 6.8.0 on node2.")
    assert said(found, "Several ranks ran on one and the same device")


def test_shared_processors_are_told():
    assert said(summary_of(cpu_study(shared=True)), "Ranks shared processors")
    assert not said(summary_of(cpu_study()), "Ranks shared processors")


def test_a_large_skew_is_told():
    late = [cpu_rank(0, 17.0), cpu_rank(1, 17.0, skew_s=5.0)]
    found = summary_of([together(late, trial_device="cpu")])
    # 640 images at 34 images/s: 18.8 s.
    assert said(found, "Ranks began up to 5,000 ms apart")
    assert not said(summary_of(cpu_study()), "Ranks began up to")


def test_findings_tell_of_one_device_and_of_most_ranks_at_the_largest_batch():
    found = summary_of(gpu_study() + gpu_study(batch=128, factor=1.1) + gpu_study("int8", 128, 2.5))
    sentences = [one.sentence for one in found.findings]
    assert sentences == [
        "ResNet-50 with 1 rank (place 0): INT8 is 2.27\N{MULTIPLICATION SIGN} FP32 at batch 128 (95 %"
        " interval 2.26 to 2.28): 2,500 images/s against 1,100.",
        "ResNet-50 with 4 ranks in FP32 at batch 128: 3,960 images/s, 90.0 % of what the same devices give"
        " alone, added up (4,400; 95 % interval 89.6 to 90.4 %): less than linear. The slowest rank, 3, is"
        " 26.7 % below their mean. Of the 10.0 points that are missing, uneven ranks took 8.0; 2.0 are left,"
        " usually the host, which was not measured.",
        "ResNet-50 with 4 ranks in INT8 at batch 128: 9,000 images/s, 90.0 % of what the same devices give"
        " alone, added up (10,000; 95 % interval 89.6 to 90.4 %): less than linear. The slowest rank, 3, is"
        " 26.7 % below their mean. Of the 10.0 points that are missing, uneven ranks took 8.0; 2.0 are left,"
        " usually the host, which was not measured.",
    ]
    assert [one.figure for one in found.findings] == ["2.27\N{MULTIPLICATION SIGN}", "90.0 %", "90.0 %"]


def test_latency_and_memory_do_not_repeat_themselves_for_each_place():
    records = [
        record(
            "latency", latency_s=latency(0.02), trial_ranks=ranks, trial_place=place, id=f"l{ranks}{place}"
        )
        for ranks, place in ((1, 0), (1, 1), (2, None))
    ]
    lost = {"status": "out_of_memory", "reason": "full"}
    records += [
        record(batch=batch, trial_ranks=ranks, trial_place=place, id=f"m{batch}{ranks}{place}", **lost)
        for batch, ranks, place in ((64, 1, 0), (64, 1, 1), (64, 2, None), (32, 2, None))
    ]
    assert [one.sentence for one in summary_of(records).findings] == [
        "ResNet-50 with 1 rank (place 0): one image takes 20.0 ms in FP32 (median).",
        "ResNet-50 with 1 rank (place 0) in FP32 ran out of memory at batch 64.",
        "ResNet-50 with 2 ranks in FP32 ran out of memory at batch 32.",
    ]


def test_an_explanation_is_of_one_device():
    records = gpu_study() + gpu_study("int8", factor=2.5)
    found, left = explain(summary_of(records), records, lambda _: None)
    assert [place(one) for one in found] == ["ResNet-50 on torch, cuda with 1 rank (place 0)"]
    assert left == ()


def test_calls_are_few_by_the_rank():
    two = together([rank_result(0), rank_result(1)], throughput=throughput(2000.0, images=32 * 18))
    assert said(summary_of([two]), "1 of 1 throughput trial timed fewer than ten calls (least 9)")


def test_power_together_against_the_devices_alone():
    found = summary_of(gpu_study(power=True))
    four = found.scaling[1]
    (one,) = four.power
    # 3,600 images/s for 1,600 W net, against 1,000 for 400.
    assert (one.together, one.alone, one.ratio) == pytest.approx((2.25, 2.5, 0.9), rel=1e-4)
    # Both sides have 2 W of uncertainty in net: 1,600 and, adding up, 400 each.
    assert one.interval[0] < 0.9 < one.interval[1]
    assert (one.boundary, one.repeats, one.net_w) == ("GPU board", 3, 1600.0)
    assert [rank.load_w for rank in four.ranks] == [478.0, 479.0, 480.0, 481.0]
    assert four.ranks[0].clock_hz == (1.5e9, 1.9e9)
    (finding,) = [each for each in found.findings if each.about == "scaling" and "/W" in each.sentence]
    assert finding.sentence.startswith(
        "ResNet-50 with 4 ranks in FP32 at batch 32: 2.25 images/s/W of net power,"
        " 0.90\N{MULTIPLICATION SIGN} what the same devices give alone (2.50; 95 % interval"
    )
    assert finding.settled

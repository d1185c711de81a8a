"""Ratios between sources: verdicts, drift, several counts, power, and what is refused."""

import pytest

from inferometer.analysis.comparison.compare import compare
from inferometer.errors import ConfigError
from inferometer.stats import holm, ratio_interval
from tests.unit.analysis.comparison.sample_sources import elsewhere, store, trials
from tests.unit.report.power_records import held, metered, result
from tests.unit.report.sample_records import latency, probe, record, study

STEADY = (100.0, 101.0, 99.0)


def only(found):
    (row,) = found.ratios
    return row


def test_the_same_study_twice_gives_no_difference():
    found = compare([store("a", trials(STEADY)), store("b", trials((101.0, 99.5, 100.4)))])
    assert (found.axis, found.baseline) == ("store", "a")
    row = only(found)
    assert row.verdict == "no difference seen"
    assert row.interval[0] < 1 < row.interval[1]


def test_a_difference_is_called_by_what_it_is():
    row = only(compare([store("a", trials(STEADY)), store("b", trials((150.0, 151.0, 149.0)))]))
    expected = ratio_interval(STEADY, (150.0, 151.0, 149.0))
    assert (row.verdict, row.ratio, row.interval) == (
        "faster", pytest.approx(expected.ratio), (expected.lo, expected.hi),
    )  # fmt: skip
    assert (
        only(compare([store("a", trials(STEADY)), store("b", trials((50.0, 51.0, 49.0)))])).verdict
        == "slower"
    )


def test_the_baseline_can_be_chosen():
    sources = [store("a", trials(STEADY)), store("b", trials((150.0, 151.0, 149.0)))]
    row = only(compare(sources, baseline="b"))
    assert (row.subject, row.baseline, row.verdict) == ("a", "b", "slower")
    with pytest.raises(ConfigError, match=r"there is no 'c'.*known are a, b"):
        compare(sources, baseline="c")


def test_p_values_are_corrected_for_all_ratios_of_the_call():
    models = ("googlenet", "alexnet", "resnet50")
    a = store("a", *(trials(STEADY, model=name) for name in models))
    b = store("b", *(trials((101.0 + gain, 102.4 + gain, 101.2 + gain), model=name)
                     for name, gain in zip(models, (0.0, 0.5, 1.0), strict=True)))  # fmt: skip
    found = compare([a, b]).ratios
    plain = [ratio_interval(row.base.repeats, row.own.repeats).p for row in found]
    assert min(plain) < 0.05
    assert [row.p for row in found] == pytest.approx(holm(plain))
    assert all(row.verdict == "no difference seen" for row in found if row.p >= 0.05)


def test_half_the_threads_are_not_comparable_and_the_cause_is_named():
    row = only(compare([store("a", trials(STEADY)),
                        store("b", trials((50.0, 51.0, 49.0), config_options={"threads": 1}))]))  # fmt: skip
    assert (row.verdict, row.ratio, row.p) == ("not comparable", None, None)
    assert row.comparability.text == "not comparable: threads: 1 against 2 (up to 100 %)"


def test_a_machine_that_changed_between_the_two_makes_it_inconclusive():
    slower = trials((80.0, 81.0, 79.0), probe=probe(9e9, 7e9))
    row = only(compare([store("a", trials(STEADY)), store("b", slower)]))
    assert row.verdict == "inconclusive: machine changed"
    assert row.machine_change.changed


def test_a_machine_that_drifts_within_both_makes_it_inconclusive_though_their_medians_agree():
    def drifting(rates):
        made = trials(rates)
        return [one.model_copy(update={"probe": probe(speed)})
                for one, speed in zip(made, (12e9, 10e9, 8e9), strict=True)]  # fmt: skip

    row = only(compare([store("a", drifting((100.0, 84.0, 67.0))), store("b", drifting((99.0, 83.0, 66.0)))]))
    assert row.verdict == "inconclusive: machine changed"


def test_probes_of_two_machines_are_shown_and_judge_nothing():
    other = trials((150.0, 151.0, 149.0), environment=elsewhere(), probe=probe(30e9))
    found = compare([store("a", trials(STEADY)), store("b", other)])
    assert (found.axis, only(found).verdict) == ("machine", "faster")
    assert only(found).machine_change is None
    assert "machine probe" in [one.name for one in found.verdicts[0].comparability.differences]


def test_one_repeat_supports_no_verdict():
    row = only(compare([store("a", trials((100.0,))), store("b", trials((200.0,)))]))
    assert (row.ratio, row.interval, row.verdict) == (pytest.approx(2.0), None, "one repeat: no verdict")


@pytest.mark.parametrize(
    ("net_w", "repeats", "expected"),
    [
        (400.0, 3, "more per watt"),
        (700.0, 3, "less per watt"),
        (562.0, 3, "no difference seen"),
        (400.0, 1, "one repeat: no verdict"),  # though one run has an interval of its own
    ],
)
def test_images_per_watt_are_compared_with_their_own_interval(net_w, repeats, expected):
    def drawing(watts):
        return [metered(result(watts * by, 8000.0), repeat=place)
                for place, by in enumerate((0.99, 1.0, 1.01)[:repeats])]  # fmt: skip

    found = compare([store("a", drawing(560.0)), store("b", drawing(net_w))])
    (row,) = [one for one in found.ratios if one.own.metric == "images_per_s_per_w"]
    assert (row.verdict, row.own.boundary) == (expected, "GPU board")
    assert row.ratio == pytest.approx(560 / net_w, rel=1e-3)
    assert (row.interval is None) == (repeats == 1)


def test_what_held_clocks_back_is_marked_and_told():
    def drawing(**fields):
        return [metered(result(**fields), repeat=place) for place in range(3)]

    found = compare([store("a", drawing()), store("b", drawing(conditions=held(cap=0.4)))])
    assert all(row.own.marks == ("throttled: power limit",) for row in found.ratios)
    assert [one.sentence for one in found.findings if one.about == "disturbance"] == [
        "b: clocks were held down (power limit) in 1 figure."
    ]


def test_a_shorter_latency_is_faster():
    def latencies(p50):
        return [record("latency", repeat=place, latency_s=latency(p50 * factor, n=100))
                for place, factor in enumerate((1.0, 1.01, 0.99))]  # fmt: skip

    row = only(compare([store("a", latencies(0.02)), store("b", latencies(0.01))]))
    assert (row.own.metric, row.ratio, row.verdict) == ("latency_p50_s", pytest.approx(0.5), "faster")


def test_all_devices_of_each_machine_are_compared_where_their_numbers_differ():
    def machine(rate, ranks, **fields):
        alone, together = ([rate * one / 100 * number for one in STEADY] for number in (1, ranks))
        return [*trials(alone, **fields), *trials(together, trial_ranks=ranks, **fields)]

    a, b = store("a", machine(100.0, 3)), store("b", machine(50.0, 4, environment=elsewhere()))
    rows = {one.per: one for one in compare([a, b]).ratios}
    assert rows["like count"].ratio == pytest.approx(0.5)
    assert rows["server"].ratio == pytest.approx(200 / 300)
    assert (rows["server"].own.count, rows["server"].base.count) == (4, 3)
    assert rows["server"].verdict == "slower"


def test_a_processor_is_held_against_an_accelerator_only_where_no_machine_has_both():
    def gpu(rate, **fields):
        return trials([rate, rate + 1, rate - 1], trial_device="cuda:0", **fields)

    there = {"environment": elsewhere()}
    alone = compare([store("a", trials(STEADY)), store("b", gpu(500.0, **there))])
    assert [(row.base.device, row.own.device, row.verdict) for row in alone.ratios] == [
        ("cpu", "cuda:0", "faster")
    ]
    both = compare(
        [store("a", trials(STEADY), gpu(250.0)), store("b", trials(STEADY, **there), gpu(500.0, **there))]
    )
    assert [(row.base.device, row.own.device) for row in both.ratios] == [
        ("cpu", "cpu"),
        ("cuda:0", "cuda:0"),
    ]


def test_trials_under_other_options_are_held_against_those_like_them():
    def both(factor):
        return [*trials([one * factor for one in STEADY]),
                *trials([one / 2 * factor for one in STEADY], config_options={"threads": 1})]  # fmt: skip

    found = compare([store("a", both(1.0)), store("b", both(1.5))])
    assert [row.ratio for row in found.ratios] == pytest.approx([1.5, 1.5])


def test_by_precision_each_source_is_its_own_baseline():
    def both(factor):
        return [*trials([one * factor for one in STEADY], precision="fp32"),
                *trials([3 * one * factor for one in STEADY])]  # fmt: skip

    found = compare([store("a", both(1.0)), store("b", both(5.0))], "precision")
    assert {(row.own.source, row.base.source) for row in found.ratios} == {("a", "a"), ("b", "b")}
    assert [row.ratio for row in found.ratios] == pytest.approx([3.0, 3.0])


def test_engines_of_two_stores_stand_side_by_side_when_asked_for():
    sources = [store("a", trials(STEADY)), store("b", trials((200.0, 201.0, 199.0), trial_engine="openvino"))]
    assert only(compare(sources)).verdict == "not comparable"
    found = compare(sources, "engine")
    assert (found.subjects, only(found).verdict) == (("onnxruntime", "openvino"), "faster")


def test_the_default_axis_is_the_first_that_varies():
    assert compare([store("a", trials(precision="fp32"), trials())]).axis == "precision"
    assert compare([store("a", trials(), trials(trial_engine="openvino"))]).axis == "engine"
    assert compare([store("a", trials(), trials(environment=elsewhere()))]).axis == "machine"
    shared_out = [trials(precision="fp32"), trials(), trials(model="alexnet", environment=elsewhere())]
    assert compare([store("a", *shared_out)]).axis == "precision"
    with pytest.raises(ConfigError, match="one machine, device, engine and precision"):
        compare([store("a", trials())])


def test_a_whole_study_against_itself_calls_nothing_different():
    records, top5 = study()
    again, _ = study()
    a, b = store("a", records, top5=top5), store("b", again, top5=top5)
    found = compare([a, b])
    assert len(found.ratios) > 20
    assert not {row.verdict for row in found.ratios} & {"faster", "slower"}
    assert {gap.verdict for gap in found.accuracy} == {"within noise"}
    assert all(gap.paired.images == 1297 for gap in found.accuracy)


def test_what_int8_gained_and_cost_is_told_of_each_store():
    records, top5 = study()
    found = compare([store("a", records, top5=top5), store("b", records, top5=top5)])
    told = [one.sentence for one in found.findings if one.sentence.startswith("a: INT8 gives")]
    assert any(" the images/s of FP32 (GoogLeNet INT8, batch 8): faster." in one for one in told)
    cost = [one for one in found.findings if one.sentence.startswith("a: digits, INT8 against FP32: top-1")]
    assert len(cost) == 1
    assert "on the same 1,297 images" in cost[0].sentence
    assert len(cost[0].record_ids) == 2

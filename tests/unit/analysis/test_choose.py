"""Which setup meets a need: by hand, and what is not known meets nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from inferometer.analysis.choose import choose
from inferometer.analysis.choose_rows import Candidate, Choice, Need, Source, Watts
from inferometer.analysis.choose_words import advice, sentence
from inferometer.analysis.summary import summarise
from inferometer.errors import ConfigError
from inferometer.records import Latency, ModelInfo, Record
from tests.unit.report.power_records import held, metered, result
from tests.unit.report.sample_records import accuracy, latency, per_image, probe, record, throughput
from tests.unit.report.scaling_records import gpu_study, state

Calls = Mapping[str, Sequence[Latency]]


def rates(values: Sequence[float], **fields: Any) -> list[Record]:
    return [record(repeat=repeat, throughput=throughput(one), **fields) for repeat, one in enumerate(values)]


def source(*records: Record, name: str = "a", top5: Any = lambda one: None) -> Source:
    return Source(name, f"runs/{name}", summarise(records, top5), records)


def calls(p99: float, n: int = 1000) -> tuple[Latency, ...]:
    """Of one rank, whose p99 is that; the other percentiles are lower, and of few calls fewer are told."""
    return (Latency(**latency(p99 / 1.21, n)),)


def chosen(sources: Source | Sequence[Source], told: Calls | None = None, **need: Any) -> Choice:
    several = [sources] if isinstance(sources, Source) else list(sources)
    prices = need.pop("prices", {})
    stamped = [lambda name: (told or {}).get(name, ())] * len(several)
    return choose(several, Need(**need), stamped, prices)


def only(sources: Source, told: Calls | None = None, **need: Any) -> Candidate:
    (found,) = chosen(sources, told, **need).candidates
    return found


def evidence(one: Candidate) -> dict[str, str]:
    return {each.what: f"{each.verdict}: {each.evidence}" for each in one.judged}


def test_so_many_devices_as_the_lower_end_of_the_interval_wants() -> None:
    steady, noisy = source(*rates([100.0] * 3)), source(*rates([80.0, 120.0, 100.0]))
    assert only(steady, images_per_s=300).devices == 3
    assert only(steady, images_per_s=301).devices == 4
    found = only(noisy, images_per_s=300)
    assert found.crew.interval is not None
    assert found.crew.interval[0] == pytest.approx(100 - 4.302653 * 20 / 3**0.5)  # t of 2, spread of 20
    assert found.devices == 6
    assert found.least_images_per_s == pytest.approx(6 * found.crew.interval[0])
    assert "6 devices: linear scaling is assumed beyond one" in found.cautions


def test_of_one_repeat_its_own_interval_counts_and_it_is_told() -> None:
    found = only(source(*rates([100.0])), images_per_s=100)
    assert (found.devices, found.crew.interval) == (2, (99.0, 101.0))
    assert "one repeat: how far others would differ is not known" in found.cautions


def test_a_rate_whose_interval_reaches_0_tells_no_number() -> None:
    found = chosen(source(*rates([10.0, 90.0])), images_per_s=10)
    assert (found.verdict, found.candidates[0].devices) == ("not known", None)
    assert advice(found) == [
        "rate of onnxruntime cpu FP32 batch 1: repeats: 4 in the study, then inferometer run STUDY.yaml"
        " --out runs/a"
    ]


@pytest.mark.parametrize(
    ("wanted", "devices", "scale", "least"),
    [
        (990, 1, "measured", 995.0),  # two give 1,980, four 3,600, at the spread of the repeats a little less
        (1500, 2, "measured", 1970.0),
        (2000, 3, "between", 2686.0),  # each as one of four
        (3500, 4, "measured", 3582.0),
        (5000, 6, "linear", 5373.0),
    ],
)  # fmt: skip
def test_measured_scaling_counts_and_beyond_it_the_largest_crew_s(
    wanted: float, devices: int, scale: str, least: float
) -> None:
    found = only(source(*gpu_study(power=True)), images_per_s=wanted)
    assert (found.devices, found.scale) == (devices, scale)
    assert found.least_images_per_s == pytest.approx(least, rel=1e-3)
    assert found.load_w == pytest.approx(devices * (found.crew.watts[0].load_w / found.crew.devices))


def test_what_scaling_rests_on_is_told() -> None:
    study = source(*gpu_study())
    assert only(study, images_per_s=2000).cautions[0] == (
        "3 devices were not measured together: each is taken to give what one of 4 does"
    )
    assert only(study, images_per_s=5000).cautions[0] == (
        "6 devices: linear scaling is assumed beyond the 4 measured (90.0 % of linear)"
    )
    gpus = {"gpus": [{"name": "a GPU", "uuid": f"GPU-{place}"} for place in range(4)]}
    four = [
        one.model_copy(update={"environment": {**(one.environment or {}), **gpus}}) for one in gpu_study()
    ]
    assert sentence(chosen(source(*four), images_per_s=5000)).startswith(
        "Take torch cuda FP32 batch 32, 6 devices in 2 machines, 4 devices each ("
    )


def test_the_fewest_devices_win_unless_a_price_is_given() -> None:
    fast, slow = source(*rates([100.0] * 2), name="fast"), source(*rates([60.0] * 2), name="slow")
    found = chosen([fast, slow], images_per_s=100)
    assert [(one.source, one.devices, one.why_not) for one in found.candidates] == [
        ("fast", 1, None),
        ("slow", 2, "2 devices, not 1"),
    ]
    found = chosen([fast, slow], images_per_s=100, prices={"fast": 10.0, "slow": 4.0})
    assert [(one.source, one.price, one.why_not) for one in found.candidates] == [
        ("slow", 8.0, None),
        ("fast", 10.0, "price 10.0, not 8.00"),
    ]
    assert sentence(found).endswith("so 2 give 120 or more; price 8.00.")


def test_where_no_rate_is_asked_for_the_fastest_wins_or_the_most_for_the_price() -> None:
    fast, slow = source(*rates([100.0] * 2), name="fast"), source(*rates([60.0] * 2), name="slow")
    found = chosen([slow, fast])
    assert [(one.source, one.why_not) for one in found.candidates] == [
        ("fast", None),
        ("slow", "60.0 images/s a device, not 100"),
    ]
    found = chosen([slow, fast], prices={"fast": 10.0, "slow": 3.0})
    assert [(one.source, one.why_not) for one in found.candidates] == [
        ("slow", None),
        ("fast", "price of an image/s 0.100, not 0.0500"),
    ]


def test_a_latency_that_is_not_known_meets_nothing_and_what_would_tell_it_is_said() -> None:
    one, eight = rates([50.0] * 2), rates([90.0] * 2, batch=8)
    told = {each.id: calls(0.02) for each in one} | {each.id: calls(0.02, n=400) for each in eight}
    found = chosen(source(*one, *eight), told, images_per_s=90, p99_s=0.03)
    assert [(each.setup.batch, each.verdict) for each in found.candidates] == [(1, "meets"), (8, "not known")]
    assert found.candidates[1].why_not == "p99: 400 calls are too few for a p99"
    assert advice(found) == [
        "With less than that might do: onnxruntime cpu FP32 batch 8, 1 device (not known: p99).",
        # 500 calls of 8 images at 90 a second, and a fifth more
        "p99 of onnxruntime cpu FP32 batch 8: measure: {max_s: 54, interval: 0.0001} in the study (500 calls"
        " in each repeat), then inferometer run STUDY.yaml --out NEW",
    ]
    found = chosen(source(*eight), told, p99_s=0.03)
    assert (found.verdict, found.best) == ("not known", None)
    assert sentence(found).startswith("It cannot be told: onnxruntime cpu FP32 batch 8, 1 device (")
    assert sentence(found).endswith("would do, but for this: p99: 400 calls are too few for a p99.")


def test_too_few_calls_for_a_p99_can_still_fail_it() -> None:
    one = rates([50.0] * 2)
    found = only(source(*one), {each.id: calls(0.121, n=400) for each in one}, p99_s=0.1)
    # Of 400 calls the 95th percentile is known: 0.1 times 1.09.
    assert evidence(found) == {"p99": "fails: at least 109 ms under load, 9.0 % more than is allowed"}


def test_the_worst_repeat_and_rank_count_and_all_have_to_tell_it() -> None:
    one = rates([50.0] * 2)
    worst = {one[0].id: calls(0.01), one[1].id: (*calls(0.01), *calls(0.05))}
    assert evidence(only(source(*one), worst, p99_s=0.03)) == {
        "p99": "fails: 50.0 ms under load, 1.67 times what is allowed"
    }
    assert evidence(only(source(*one), {one[0].id: calls(0.01)}, p99_s=0.03)) == {
        "p99": "not known: not measured"
    }


def test_of_too_few_calls_their_least_p99_is_not_beaten_by_longer_ones() -> None:
    one, eight = rates([50.0] * 2), rates([90.0] * 2, batch=8)
    few = {each.id: calls(0.02, n=400) for each in one}
    longer = few | {each.id: calls(0.1, n=400) for each in eight}
    found = {each.setup.batch: each for each in chosen(source(*one, *eight), longer, p99_s=0.03).candidates}
    assert found[1].verdict == "not known"
    assert found[1].beaten_by is None
    quicker = few | {each.id: calls(0.01) for each in eight}
    found = {each.setup.batch: each for each in chosen(source(*one, *eight), quicker, p99_s=0.03).candidates}
    assert found[1].beaten_by == found[8].name


def test_a_machine_that_changed_is_told() -> None:
    drift = [
        one.model_copy(update={"probe": probe(copy=speed)})
        for one, speed in zip(rates([50.0] * 2), (20e9, 40e9), strict=True)
    ]
    assert chosen(source(*drift)).notes == (
        "a: the machine changed while it was measured: its memory copying probe moved by 100.0 %",
    )


def test_without_stamps_latency_trials_stand_in_with_a_mark_and_prove_nothing_under_load() -> None:
    alone = [record("latency", repeat=repeat, latency_s=latency(0.02)) for repeat in range(2)]
    study = source(*rates([50.0] * 2), *alone)
    found = only(study, p99_s=0.03)
    assert evidence(found) == {"p99": "meets: 24.2 ms with one request at a time"}
    assert found.loaded_s is None
    assert "p99 is of one request at a time: no time stamps of calls under load were found" in found.cautions
    assert evidence(only(study, p99_s=0.03, images_per_s=10))["p99"] == (
        "not known: 24.2 ms with one request at a time; under load not measured"
    )
    assert evidence(only(study, p99_s=0.02, images_per_s=10))["p99"] == (
        "fails: 24.2 ms with one request at a time, 1.21 times what is allowed"
    )


def test_none_that_meets_the_need_the_nearest_and_what_limits_it() -> None:
    one, eight = rates([50.0] * 2), rates([90.0] * 2, batch=8)
    told = {each.id: calls(0.06) for each in one} | {each.id: calls(0.2) for each in eight}
    found = chosen(source(*eight, *one), told, p99_s=0.03)
    assert (found.verdict, found.best) == ("fails", None)
    assert sentence(found) == (
        "None meets the need. Nearest comes onnxruntime cpu FP32 batch 1, 1 device"
        f" ({found.candidates[0].machine}); what limits it: p99: 60.0 ms under load, 2.00 times what is"
        " allowed."
    )
    assert [each.setup.batch for each in found.candidates] == [1, 8]


def test_watts_are_of_all_devices_and_joules_by_the_cautious_end() -> None:
    study = source(*[metered(result(net=150.0, rate=100.0, idle=50.0), repeat=place) for place in range(2)])
    need = {"images_per_s": 150}
    found = only(study, **need, watts=404)
    assert (found.devices, found.load_w, found.boundary) == (2, 400.0, "GPU board")
    # Net power's interval goes on by 4 W for each.
    assert evidence(found)["watts"] == "not known: 400 W (GPU board), up to 408 within its interval"
    assert evidence(only(study, **need, watts=408.1))["watts"] == "meets: 400 W (GPU board)"
    assert evidence(only(study, **need, watts=399))["watts"] == (
        "fails: 400 W (GPU board), 0.3 % more than is allowed"
    )
    assert "the meter's own scale, about 5 %, is in no interval of watts" in found.cautions
    assert found.crew.j_per_image == pytest.approx(1.5)
    assert only(study, j_per_image=1.55).verdict == "meets"
    assert only(study, j_per_image=1.52).verdict == "not known"
    assert only(study, j_per_image=1.4).verdict == "fails"


def test_of_several_boundaries_the_one_with_most_counts_and_a_server_is_whole() -> None:
    server = result(net=500.0, idle=300.0) | {
        "boundary": "server input (PSU sum)",
        "parts": ("PSU 1", "PSU 2"),
    }
    study = source(*[metered(result(), server, repeat=place) for place in range(2)])
    found = only(study, images_per_s=20000, watts=2000)
    assert (found.devices, found.boundary) == (3, "server input (PSU sum)")
    assert evidence(found)["watts"] == (
        "fails: 2,400 W (server input (PSU sum); beside it 1,914 W of GPU board), 1.20 times what is allowed"
    )
    boards, supplies = (Watts("", 100.0, 100.0, None, parts) for parts in (4, 2))
    assert (boards.times(4, 3), supplies.times(4, 3), supplies.times(4, 5)) == (0.75, 1, 2)


def test_power_that_was_not_metered_is_not_known_and_how_to_meter_it_is_said() -> None:
    found = chosen(source(*rates([50.0] * 2)), watts=100)
    assert found.verdict == "not known"
    assert advice(found) == [
        "power of onnxruntime cpu FP32 batch 1: power: {meters: [rapl]} in the study (docs/power.md), then"
        " inferometer run STUDY.yaml --out NEW"
    ]


def scored(wrong: int, images: int = 2000) -> Source:
    """FP32 that is right in all, and INT8 that misses so many of the same images."""
    right = {"fp32": [True] * images, "int8": [place >= wrong for place in range(images)]}
    both = {
        precision: record(
            "accuracy", precision=precision, trial_input="images", batch=8,
            accuracy=accuracy(sum(hits) / images, images),
        )
        for precision, hits in right.items()
    }  # fmt: skip
    outcomes = {both[precision].id: per_image(hits) for precision, hits in right.items()}
    made = [*rates([50.0] * 2), *rates([90.0] * 2, precision="int8"), *both.values()]
    return source(*made, top5=lambda one: outcomes.get(one.id))


@pytest.mark.parametrize(
    ("wrong", "most", "verdict"), [(4, 0.01, "meets"), (8, 0.005, "not known"), (30, 0.005, "fails")]
)
def test_a_loss_counts_by_its_cautious_end(wrong: int, most: float, verdict: str) -> None:
    found = chosen(scored(wrong), max_drop=most, images_per_s=80)
    by = {each.setup.precision: each for each in found.candidates}
    assert (by["fp32"].verdict, by["int8"].verdict) == ("meets", verdict)
    assert by["int8"].loss == pytest.approx(wrong / 2000)
    assert found.best is by["int8" if verdict == "meets" else "fp32"]


def test_top_1_has_to_reach_with_its_whole_interval_and_only_where_it_was_scored() -> None:
    study = scored(100)  # INT8: 95 %, by Wilson 93.95 to 95.87 %
    by = {one.setup.precision: one for one in chosen(study, min_top1=0.945).candidates}
    assert (by["fp32"].verdict, by["int8"].verdict) == ("meets", "not known")
    assert evidence(by["int8"])["top-1"] == "not known: 95.0 % (94.0 % to 95.9 %): the interval holds 94.5 %"
    by = {one.setup.precision: one for one in chosen(study, min_top1=0.96).candidates}
    assert evidence(by["int8"])["top-1"] == "fails: 95.0 % (94.0 % to 95.9 %), +1.00 points short"
    found = chosen(source(*rates([50.0] * 2)), min_top1=0.1)
    assert found.verdict == "not known"
    assert advice(found) == [
        "top-1 of FP32: accuracy: {data: DIR} in the study, then inferometer run STUDY.yaml --out runs/a"
    ]


def test_one_is_beaten_only_by_what_tells_all_that_it_tells() -> None:
    one, eight, many = rates([50.0] * 2), rates([90.0] * 2, batch=8), rates([95.0] * 2, batch=64)
    told = {each.id: calls(0.02) for each in one} | {each.id: calls(0.01) for each in eight}
    found = {
        each.setup.batch: each.beaten_by for each in chosen(source(*one, *eight, *many), told).candidates
    }
    assert found == {1: "onnxruntime cpu FP32 batch 8", 8: None, 64: None}


def test_one_that_left_copies_out_beats_none_that_has_them_in() -> None:
    gpu = {"trial_device": "cuda:0", "trial_engine": "torch"}
    bare = source(*rates([90.0] * 2, trial_copies="excluded", **gpu), name="bare")
    full = source(*rates([50.0] * 2, trial_copies="included", **gpu), name="full")
    assert [one.beaten_by for one in chosen([bare, full]).candidates] == [None, None]
    faster = source(*rates([95.0] * 2, trial_copies="included", **gpu), name="faster")
    found = {one.source: one.beaten_by for one in chosen([bare, faster]).candidates}
    assert found == {"bare": "faster: torch cuda:0 FP32 batch 1", "faster": None}


def test_joules_of_another_boundary_beat_none() -> None:
    board = source(*[metered(result(net=500.0), repeat=place) for place in range(2)], name="board")
    server = [result(net=900.0) | {"boundary": "server"} for _ in range(2)]
    whole = source(*[metered(one, repeat=place) for place, one in enumerate(server)], name="whole")
    assert [one.beaten_by for one in chosen([board, whole]).candidates] == [None, None]


def test_what_is_not_like_a_server_is_told() -> None:
    fields = {"trial_device": "cuda:0", "trial_copies": "excluded", "precision_mac_share": {"tf32": 1.0}}
    found = only(source(*rates([50.0], state=state(busy=60.0), **fields)))
    assert found.cautions == (
        "copies to and from the device are not in it",
        "synthetic input: decoding pictures is not in it",
        "one repeat: how far others would differ is not known",
        "only 0 % of the multiply-accumulates ran in FP32",
        "other processes kept 60.0 cores busy: rates may be too low",
    )
    hot = result(conditions=held(cap=0.4, heat=0.2))
    found = only(source(*[metered(hot, repeat=place) for place in range(2)]))
    assert found.cautions[-3:] == (
        "the power limit held clocks down for 40.0 % of the load: under another limit the rate is another",
        "heat or hardware held clocks down for 20.0 % of the load",
        "fewer than ten calls were timed: measure longer",
    )


def test_the_engine_that_computes_nothing_is_no_candidate_beside_one_that_does() -> None:
    null, real = rates([9e6] * 2, trial_engine="null"), rates([50.0] * 2)
    assert [one.setup.engine for one in chosen(source(*null, *real)).candidates] == ["onnxruntime"]
    assert only(source(*null)).cautions[0] == (
        "the engine null computes nothing: it shows what the harness costs"
    )


def test_how_long_a_batch_takes_to_come_together_is_told() -> None:
    eight = rates([90.0] * 2, batch=8)
    found = only(source(*eight), {each.id: calls(0.02) for each in eight}, images_per_s=40, p99_s=0.03)
    assert found.cautions[0] == (
        "a batch of 8 takes 200 ms to come together at this rate, before its call begins: that is not in p99"
    )


def test_setups_without_a_rate_and_files_that_differ_are_told() -> None:
    lost = record(batch=512, status="out_of_memory", reason="no memory")
    file = ModelInfo(sha256="9" * 64, macs=1, parameters=1)
    others = [one.model_copy(update={"model": file}) for one in rates([60.0] * 2)]
    assert chosen([source(*rates([50.0] * 2), lost), source(*others, name="b")]).notes == (
        "2 different model files go by this name: their accuracy may differ",
        "a and b come from one machine: whether it is faster in one, compare tells",
        "a: 1 setup gave no rate (out of memory: FP32 batch 512)",
    )


def test_several_models_want_a_name() -> None:
    two = source(*rates([50.0]), *rates([60.0], model="alexnet"))
    with pytest.raises(ConfigError, match="give --model, one of resnet50, alexnet"):
        chosen(two)
    with pytest.raises(ConfigError, match="there is no 'alexnt'; did you mean 'alexnet'"):
        chosen(two, model="alexnt")
    assert only(two, model="alexnet").crew.images_per_s == 60.0
    assert chosen(two, model="AlexNet").model_name == "AlexNet"
    with pytest.raises(ConfigError, match="no throughput trial of resnet50 in these studies gave a rate"):
        chosen(source(record(status="failed", reason="no")))

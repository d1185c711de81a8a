"""Rows, ratios and sentences of power: what they rest on, and what they must not claim."""

import json
from dataclasses import asdict

import pytest

from inferometer.analysis.power import why_no_ratio
from inferometer.analysis.summary import summarise
from inferometer.stats import mean_interval
from tests.unit.report.power_records import figure, held, metered, power_study, result, without_ratio
from tests.unit.report.sample_records import probe, record, study, throughput


def summary_of(*records):
    return summarise(records, lambda _: None)


def row_of(*records):
    (row,) = summary_of(*records).power
    return row


def sentences(summary):
    return [one.sentence for one in summary.findings if one.about == "power"]


def repeats(*results, **fields):
    return [metered(one, repeat=number, **fields) for number, one in enumerate(results)]


def said(summary, word):
    return [one for one in summary.cautions if word in one]


def test_one_repeat_has_its_own_figures_and_interval():
    one = result(560.0, 8000.0)
    row = row_of(metered(one))
    assert (row.load_w, row.idle_bare_w, row.idle_loaded_w, row.net_w) == (638.0, 78.0, 118.0, 560.0)
    assert (row.efficiency, row.efficiency_interval) == (8000 / 560, (8000 / 564, 8000 / 556))
    assert (row.j_per_image, row.j_interval) == (560 / 8000, (556 / 8000, 564 / 8000))
    assert row.load_efficiency == 8000 / 638
    assert (row.ci_kind, row.repeats, row.asked, row.first) == ("within_trial", 1, 1, True)
    assert (row.meter, row.boundary, row.gain_error) == ("nvml", "GPU board", 0.05)


def test_repeats_far_apart_give_the_interval_between_them():
    row = row_of(*repeats(result(500.0), result(560.0), result(620.0)))
    between = mean_interval([8000 / 500, 8000 / 560, 8000 / 620])
    assert (row.efficiency, row.efficiency_interval) == (between.mean, (between.lo, between.hi))
    assert (row.net_w, row.ci_kind) == (560.0, "between_repeats")


def test_repeats_that_agree_never_narrow_a_trials_own_interval():
    # The idle's error is in both repeats alike: between them nothing is seen of it.
    row = row_of(*repeats(result(560.0, u=20.0), result(560.0, u=10.0)))
    assert row.net_interval == (520.0, 600.0)
    assert row.efficiency_interval == pytest.approx((8000 / 600, 8000 / 520))
    assert row.ci_kind == "within_trial"


def test_repeats_whose_net_power_could_be_nothing_give_no_ratio():
    row = row_of(*repeats(result(200.0), result(900.0)))
    assert row.net_interval[0] < 0
    assert (row.efficiency, row.efficiency_interval, row.j_per_image) == (None, None, None)
    assert why_no_ratio(row) == "the interval of net power over the repeats reaches 0"


def test_what_was_best_is_told_only_where_the_others_are_known_to_be_less():
    def sentence(*records):
        (one,) = [one for one in summary_of(*records).findings if "images/s/W of net power" in one.sentence]
        return one.settled, one.sentence

    fast = metered(result(rate=16000.0), precision="fp16")
    clear, said_of_it = sentence(metered(result(rate=8000.0), precision="tf32"), fast)
    assert clear
    assert "gives most per watt in FP16" in said_of_it
    assert said_of_it.endswith("(GPU board), 2.00\N{MULTIPLICATION SIGN} that of TF32 there.")

    near, said_of_it = sentence(metered(result(rate=15900.0), precision="tf32"), fast)
    assert not near
    assert "not shown to be the best: the intervals of 1 other setup reach it." in said_of_it

    unknown = result(rate=8000.0, images_per_s_per_w=None, images_per_s_per_w_ci95=None)
    lacking, said_of_it = sentence(metered(unknown, precision="tf32"), fast)
    assert not lacking
    assert "not shown to be the best: 1 other setup gave no ratio." in said_of_it


def test_no_ratio_unless_every_repeat_has_one():
    row = row_of(*repeats(result(6.0, 20.0, u=1.4), without_ratio()))
    assert (row.efficiency, row.j_per_image, row.efficiency_interval) == (None, None, None)
    assert (row.net_w, row.repeats) == (pytest.approx(4.55), 2)
    assert why_no_ratio(row).startswith("net power of 3.1 W is within three times")


def test_a_repeat_without_net_power_is_left_out_and_told():
    lost = dict.fromkeys(
        ("idle_bare_w", "net_w", "u_net_w", "net_ci95_w", "images_per_s_per_w", "images_per_s_per_w_ci95",
         "j_per_image", "j_per_image_ci95")
    )  # fmt: skip
    blind = result(**lost, missing={"idle_bare_w": "another process held the GPU"})
    row = row_of(*repeats(result(560.0), blind))
    assert (row.net_w, row.repeats, row.asked, row.efficiency) == (560.0, 1, 2, 8000 / 560)
    alone = row_of(metered(blind))
    assert (alone.load_w, alone.net_w, alone.efficiency) == (638.0, None, None)
    assert why_no_ratio(alone) == "another process held the GPU"


def test_power_that_was_asked_for_and_is_missing_has_its_reason():
    lost = [metered(repeat=n, missing={"power": "nvml: no driver"}) for n in range(2)]
    summary = summary_of(*lost)
    (row,) = summary.power
    assert (row.boundary, row.load_w, row.efficiency, row.asked, row.repeats) == (None, None, None, 2, 0)
    assert why_no_ratio(row) == "nvml: no driver"
    assert said(summary, "asked for") == [
        "Power was asked for and is missing: nvml: no driver (ResNet-50 in FP32 at batch 128)."
    ]
    partly = summary_of(metered(result()), *lost[1:])
    assert said(partly, "asked for")[0].startswith(
        "Power was asked for and is missing: 1 of 2 repeats: nvml: no driver"
    )


def test_power_that_was_not_asked_for_makes_no_row():
    records, top5 = study()
    assert summarise(records, top5).power == ()
    assert summary_of(record(throughput=throughput(9.0), config={"power": None})).power == ()


def test_boundaries_have_rows_of_their_own_and_the_first_is_the_records_first():
    server = result(700.0, idle=300.0, boundary="server input", meter="redfish", gain_error=None)
    rows = summary_of(metered(result(), server)).power
    assert [(row.boundary, row.meter, row.first) for row in rows] == [
        ("GPU board", "nvml", True), ("server input", "redfish", False),
    ]  # fmt: skip
    pairs = [metered(result(), server, batch=batch) for batch in (1, 32)]
    assert [(row.boundary, row.setup.batch) for row in summary_of(*pairs).power] == [
        ("GPU board", 1), ("GPU board", 32), ("server input", 1), ("server input", 32),
    ]  # fmt: skip
    other = row_of(metered(result())), summary_of(metered(result(parts=("GPU-2",)), repeat=1)).power[0]
    assert [one.parts for one in other] == [("GPU-1f3a",), ("GPU-2",)]
    assert len(summary_of(*repeats(result(), result(parts=("GPU-2",)))).power) == 2


def test_what_held_the_clocks_back_is_a_mean_over_the_repeats():
    row = row_of(*repeats(result(conditions=held(0.9, 0.2)), result(conditions=held(0.7, 0.0))))
    assert (row.capped, row.slowed) == (pytest.approx(0.8), pytest.approx(0.1))
    assert row.slowed_by == ("slowed by hardware for heat",)
    free = row_of(*repeats(result(conditions=()), result(conditions=held(0.9)[:1])))
    assert (free.capped, free.slowed) == (pytest.approx(0.45), 0.0)
    unknown = row_of(metered(result(conditions=())))
    assert (unknown.capped, unknown.slowed) == (None, None)


def test_a_ratio_to_fp32_joins_the_intervals_of_both():
    base = repeats(result(560.0, 8000.0), result(560.0, 8000.0))
    fast = repeats(result(560.0, 16000.0), result(560.0, 16000.0), precision="fp16")
    (gain,) = summary_of(*base, *fast).power_gains
    assert (gain.ratio, gain.verdict, gain.repeats) == (2.0, "more per watt", (2, 2))
    # Both sides: 0.71 % on either side, in quadrature 1.01 %.
    assert gain.interval == pytest.approx((1.98, 2.02), abs=0.001)
    (single,) = summary_of(base[0], fast[0]).power_gains
    assert single.verdict == "one repeat: no verdict"
    (same,) = summary_of(*base, *repeats(result(559.0), result(561.0), precision="int8")).power_gains
    assert same.verdict == "no difference seen"


def test_a_ratio_only_where_both_are_known_and_the_machine_stayed():
    base = repeats(result(), result())
    assert summary_of(*base, *repeats(without_ratio(), without_ratio(), precision="fp16")).power_gains == ()
    changed = repeats(result(rate=16000.0), result(rate=16000.0), precision="fp16", probe=probe(14e9))
    (gain,) = summary_of(*base, *changed).power_gains
    assert gain.verdict == "inconclusive: machine changed"
    (text,) = [one for one in sentences(summary_of(*base, *changed)) if "inconclusive" in one]
    assert text.startswith("ResNet-50: FP16 against FP32 per watt at batch 128 is inconclusive")


def test_the_sentences_of_a_study():
    found = sentences(summarise(power_study(), lambda _: None))
    assert found[:4] == [
        "ResNet-50 gives most per watt in INT8 at batch 128: 81.4 images/s/W of net power (95 % interval 80.5"
        " to 82.2), 668 W under load, 78.0 W idle (GPU board).",
        "ResNet-50: FP16 gives 3.10× the images/s/W of FP32 at batch 128 (95 % interval 3.06 to 3.14): 44.3"
        " images/s/W of net power against 14.3.",
        "ResNet-50: INT8 gives 5.69× the images/s/W of FP32 at batch 128 (95 % interval 5.62 to 5.78): 81.4"
        " images/s/W of net power against 14.3.",
        "ResNet-50 in FP16 at batch 128 ran at its power limit of 700 W for 98 % of the load: its clocks were"
        " held down.",
    ]  # fmt: skip
    assert len(found) == 8


def test_several_setups_at_the_limit_are_one_sentence():
    capped = [
        metered(result(conditions=held(share)), batch=batch)
        for batch, share in ((1, 0.0), (32, 0.6), (64, 0.9))
    ]
    summary = summary_of(*capped)
    assert sentences(summary)[-1] == (
        "ResNet-50 ran at its power limit of 700 W in 2 of 3 setups, for up to 90 % of the load (FP32 at"
        " batch 64): its clocks were held down."
    )
    assert said(summary, "Heat or hardware") == []
    hot = summary_of(metered(result(conditions=held(0.0, 0.12))))
    assert said(hot, "Heat or hardware")[0].startswith(
        "Heat or hardware slowed the device for up to 12 % of the load: ResNet-50 in FP32 at batch 128; it"
        " says: slowed by hardware for heat."
    )


def test_net_within_noise_is_told_with_its_reason_and_is_no_number():
    summary = summary_of(metered(without_ratio()))
    assert said(summary, "There are no images/s/W") == [
        "There are no images/s/W of GPU board for ResNet-50 in FP32 at batch 128: net power of 3.1 W is"
        " within three times its uncertainty of 1.4 W."
    ]
    assert sentences(summary) == []


@pytest.mark.parametrize(
    ("apart", "words"),
    [(0.02, None), (-0.05, "less than the one used"), (0.2, "one of the two is wrong")],
)
def test_two_readings_of_one_boundary_that_disagree(apart, words):
    beside = ({"semantics": "average over 1 s", "load_w": 600.0, "disagreement": apart},)
    found = said(summary_of(metered(result(beside=beside))), "in two ways")
    if words is None:
        assert found == []
        return
    (text,) = found
    assert words in text
    assert f"up to {abs(apart) * 100:.1f} % apart: the other (average over 1 s)" in text
    assert ("lags behind the load" in text) == (abs(apart) < 0.1)


def test_drift_flags_and_the_meters_own_error_are_told():
    noisy = result(drift_w=-40.0, load=figure(638.0, u=2.0, flags=("readings resemble each other for 9 s",)))
    summary = summary_of(metered(noisy))
    (drift,) = said(summary, "Idle power moved")
    assert "by 40.0 W, 7 % of net" in drift
    assert said(summary, "Power readings") == [
        "Power readings of GPU board in 1 of 1 trial: readings resemble each other for 9 s."
    ]
    assert said(summary, "own error") == [
        "All watts of GPU board (nvml) carry the meter's own error of about 5 %, which is not in the"
        " intervals: it matters against another meter, not between trials on this one."
    ]
    assert said(summary_of(metered(result(drift_w=20.0))), "Idle power moved") == []
    unknown = summary_of(metered(result(gain_error=None)))
    assert said(unknown, "scale error")[0].startswith(
        "The scale error of the meter of GPU board (nvml) is not"
    )


def test_the_mark_of_little_arithmetic_stands_in_power_too():
    summary = summary_of(metered(result(), precision="fp16", precision_mac_share={"fp16": 0.2, "fp32": 0.8}))
    (one,) = [one for one in summary.findings if one.about == "power"]
    assert one.marked
    assert "in FP16 \N{DAGGER} at batch 128" in one.sentence


def test_a_summary_with_power_is_json():
    server = result(boundary="server input", meter="redfish")
    summary = summary_of(metered(result(), server), metered(batch=1, missing={"power": "no meter"}))
    assert json.loads(json.dumps(asdict(summary)))["power"][0]["boundary"] in ("GPU board", None)


def test_flags_that_differ_in_numbers_alone_are_one_sentence():
    loads = [
        result(load=figure(638.0, 2.0, flags=(f"correlation time {n}.5 s is too long",))) for n in (2, 3)
    ]
    assert said(summary_of(*repeats(*loads)), "Power readings") == [
        "Power readings of GPU board in 2 of 2 trials: such as correlation time 2.5 s is too long."
    ]


def test_a_flag_of_a_window_that_matters_little_stays_in_the_record():
    flags = ("correlation time 2.1 s is too long for a window of 5 s",)
    small = result(idle_after=figure(78.0, 0.5, flags=flags), idle_loaded=figure(120.0, 9.0, flags=flags))
    assert said(summary_of(metered(small)), "Power readings") == []
    large = result(idle_after=figure(78.0, 1.8, flags=flags))
    assert len(said(summary_of(metered(large)), "Power readings")) == 1


def test_a_meter_that_was_refused_and_an_idle_that_is_missing_are_told():
    one = metered(
        result(drift_w=None, missing={"idle_after": "another process held the GPU"}),
        missing={"power.redfish": "no answer from the BMC"},
    )
    summary = summary_of(one)
    assert said(summary, "redfish") == ["The meter redfish gave nothing: no answer from the BMC."]
    assert said(summary, "Idle after") == [
        "Idle after the load is missing for ResNet-50 in FP32 at batch 128: another process held the GPU. Net"
        " power there rests on one idle, and how far idle moved is not known."
    ]

"""Sentences of an explanation: what they say, and what they must not."""

import copy
from dataclasses import replace

import pytest

from inferometer.analysis.explain_advice import advice
from inferometer.analysis.explain_rows import AtBatch
from inferometer.analysis.explain_words import headlines, missing, overtaking, reasons, single_words
from tests.unit.analysis.explained import FP32, INT8, explained, rates, usual
from tests.unit.report.sample_records import ENVIRONMENT, probe


def one_of(int8=(200.0, 202.0, 201.0), **fields):
    records = rates("fp32", (100.0, 101.0, 102.0), **fields) + rates("int8", int8, **fields)
    return explained(records, {"fp32": FP32, "int8": INT8})[0][0]


def text_of(one, about):
    return [reason.text for reason in reasons(one) if reason.about == about]


def machine(**cpu):
    return ENVIRONMENT | {"cpu": ENVIRONMENT["cpu"] | cpu}


def test_the_headline_is_the_verdict():
    (line,) = headlines(usual())
    assert line.startswith("ResNet-50 on onnxruntime, cpu: INT8 is 1.99× FP32 at batch 8 (95 % interval 1.9")
    assert line.endswith(": 201 images/s against 101.")


def test_the_fastest_float_precision_is_named_where_there_are_several():
    records = rates("fp32", [100, 101]) + rates("bf16", [150, 151]) + rates("int8", [140, 141])
    first, also = headlines(explained(records, {})[0][0])
    assert "INT8 is 0.93× BF16 at batch 8" in first
    assert first.endswith("BF16 is the fastest float precision there, which INT8 must beat.")
    assert also.startswith("Also: INT8 is 1.40× FP32 at batch 8")


def test_reasons_rank_by_the_seconds_of_a_call():
    found = reasons(usual())
    timed = [(reason.about, round(reason.seconds * 1e3, 2)) for reason in found if reason.seconds is not None]
    assert timed == [
        ("at_precision", 2.4), ("otherwise", 1.5), ("quantize", 0.7), ("slower", 0.6), ("no_macs", 0.2),
        ("reorder", 0.0),
    ]  # fmt: skip
    assert [reason.about for reason in found if reason.seconds is None] == [
        "mac_share", "bound", "batch", "machine", "profile",
    ]  # fmt: skip


def test_each_part_says_both_sides_and_its_longest_layers():
    one = usual()
    assert text_of(one, "at_precision") == [
        "2 layers that multiply ran in INT8: 7.00 ms in FP32, 4.60 ms in INT8 (1.52×)."
    ]
    assert text_of(one, "otherwise") == [
        "1 layer that multiplies ran in FP32, not in INT8: 1.50 ms in FP32, 1.50 ms in INT8."
        " Longest in INT8: fc (1.50 ms)."
    ]
    assert text_of(one, "quantize")[0].endswith("Longest in INT8: to_int (0.400 ms) and to_float (0.300 ms).")
    assert text_of(one, "slower") == [
        "Of the layers in both profiles, 1 is slower in INT8 than in FP32 (1.1 times or more), by 0.600 ms"
        " together; most: conv2 (3.00 to 3.60 ms)."
    ]


def test_the_share_and_the_bound_are_said():
    one = usual()
    assert text_of(one, "mac_share") == ["95 % of the multiply-accumulates ran in INT8 (5 % in FP32)."]
    assert (
        "2.40 ms would remain of its call: at most 4.17× FP32, by the profiles." in text_of(one, "bound")[0]
    )


def test_a_low_share_says_only_and_an_unknown_one_says_so():
    low = replace(usual().own, mac_share=0.4, ran={"int8": 0.4, "fp32": 0.6})
    assert text_of(replace(usual(), own=low), "mac_share") == [
        "Only 40 % of the multiply-accumulates ran in INT8 (60 % in FP32)."
    ]
    unknown = replace(usual().own, mac_share=None, ran=None)
    assert text_of(replace(usual(), own=unknown), "mac_share") == [
        "How many multiply-accumulates ran in INT8 is not known."
    ]


def test_a_baseline_that_did_not_run_as_asked_is_named():
    base = replace(usual().base, mac_share=0.1)
    (text,) = text_of(replace(usual(), base=base), "mac_share")
    assert text.endswith("Of FP32, 10 % ran as asked: the ratio is not to it.")


def test_profiles_are_held_against_the_measured_time_and_never_scaled():
    (text,) = text_of(usual(), "profile")
    # 8 images at 100, 101 and 102, and at 200, 201 and 202 images/s: geometric means.
    assert text.startswith(
        "The layers of one call of FP32 sum to 10.0 ms, where a call took 79.2 ms (13 %), of INT8 sum to"
        " 7.00 ms, where a call took 39.8 ms (18 %)."
    )
    assert "the profiles' own ratio is 1.43×, the measured one 1.99×" in text
    assert text.endswith("Read the layers as shares of a call, not as its milliseconds.")


def test_profiles_that_contradict_the_measurement_are_said_to():
    (text,) = text_of(one_of(int8=(50.0, 51.0, 52.0)), "profile")
    assert text.endswith(
        "They disagree on which is faster, so that the layers do not explain what was measured."
    )


@pytest.mark.parametrize(
    ("points", "text"),
    [
        ([(8, 2.0, "faster")], "Both ran at batch 8 (2.00×) alone"),
        ([(1, 1.5, "faster"), (8, 2.0, "faster")], "INT8 is ahead of FP32 at every measured batch: 1"),
        ([(1, 0.8, "slower"), (8, 0.9, "slower")], "INT8 is ahead of FP32 at no measured batch"),
        ([(1, 0.8, "slower"), (8, 1.1, "faster"), (32, 1.2, "faster")],
         "INT8 overtakes FP32 between batch 1 and 8: 1 (0.80×), 8 (1.10×) and 32 (1.20×)."),
        ([(1, 0.8, "slower"), (8, 1.0, "no difference seen"), (32, 1.2, "faster")],
         "INT8 overtakes FP32 between batch 1 and 32; at batch 8 there is no verdict: "),
        ([(1, 1.4, "no difference seen"), (8, 1.5, "faster")],
         "INT8 is ahead of FP32 from batch 8 on; at batch 1 there is no verdict: 1 (1.40×) and 8 (1.50×)."),
        ([(1, 1.2, "faster"), (8, 0.9, "slower")], "INT8 is ahead of FP32 at batch 1, not at 8"),
        ([(1, 1.5, "faster"), (8, 1.0, "no difference seen"), (32, 1.5, "faster")],
         "INT8 is ahead of FP32 at batch 1 and 32, no verdict at 8: 1 (1.50×)"),
        ([(1, 1.5, "faster"), (8, 1.0, "no difference seen"), (32, 0.7, "slower")],
         "INT8 is ahead of FP32 at batch 1, not at 32, no verdict at 8: 1 (1.50×)"),
        ([(1, 1.0, "no difference seen"), (8, 1.5, "faster"), (32, 1.0, "no difference seen")],
         "INT8 is ahead of FP32 at batch 8, no verdict at 1 and 32: 1 (1.00×)"),
        ([(1, 1.0, "no difference seen"), (8, 1.02, "no difference seen")],
         "No difference between INT8 and FP32 is seen at any measured batch: 1 (1.00×) and 8 (1.02×)."),
        ([(1, 3.0, "inconclusive: machine changed"), (8, 1.0, "no difference seen")],
         "There is no verdict at any batch: 1 (3.00×) and 8 (1.00×); where INT8 overtakes FP32 is not"),
        ([(1, 0.9, "slower"), (8, 1.3, "no difference seen")],
         "No verdict has INT8 ahead of FP32: 1 (0.90×) and 8 (1.30×); at batch 8 there is none."),
        ([(1, 0.9, "one repeat: no verdict"), (8, 1.3, "one repeat: no verdict")],
         "INT8 overtakes FP32 between batch 1 and 8: 1 (0.90×) and 8 (1.30×), by one repeat each,"),
    ],
)  # fmt: skip
def test_where_one_overtakes_is_said_between_measured_batches_only(points, text):
    one = replace(usual(), batches=tuple(AtBatch(*point) for point in points))
    assert overtaking(one).startswith(text)


def test_what_the_cpu_has_is_listed_and_what_it_lacks_is_said():
    assert text_of(usual(), "machine") == ["The CPU has instructions for INT8: avx512_vnni."]
    weak = one_of(environment=machine(features=["avx2", "fma"], int8_dot=False))
    (text,) = text_of(replace(weak, weight_bits=7), "machine")
    assert text.startswith("The CPU has no instruction for products in INT8 (none of avx512_vnni,")
    assert "1.33× at most in arithmetic" in text
    assert text.endswith("INT8 weights keep 7 bits here.")
    (text,) = text_of(one_of(environment=machine(features=None, int8_dot=None)), "machine")
    assert text == "Whether the CPU has instructions for INT8 is not known: the record does not say."
    assert (
        "1.33" not in text_of(one_of(environment=machine(features=["asimd"], int8_dot=False)), "machine")[0]
    )


def test_on_a_gpu_the_cpu_is_no_matter():
    one = one_of(trial_device="cuda:0", environment=ENVIRONMENT | {"gpus": [{"name": "H200"}]})
    assert text_of(one, "machine") == ["The machine's GPUs: H200."]


def test_ways_of_running_that_differ_are_named_and_what_came_of_them_is_not():
    base = {"threads": 2, "streams": 1, "inference_precision": "f32", "integer_kernels": 0, "requests": 1}
    own = {"threads": 2, "streams": 2, "inference_precision": "i8", "integer_kernels": 54}
    one = replace(
        usual(),
        base=replace(usual().base, session=base),
        own=replace(usual().own, session=own, in_flight=2),
    )
    assert text_of(one, "session") == [
        "The runtime did not run FP32 and INT8 alike: requests in flight 1 and 2; streams 1 and 2; requests 1"
        " and not told."
    ]
    assert text_of(usual(), "session") == []


def test_nodes_that_ran_elsewhere_are_named():
    own = replace(usual().own, session={"fallback": ["conv1 (Conv)", "fc (Gemm)"]})
    assert text_of(replace(usual(), own=own), "session") == [
        "In INT8, nodes ran on another provider than asked, such as conv1 (Conv) and fc (Gemm)."
    ]
    nothing = replace(usual().own, session={"fallback": []})
    assert text_of(replace(usual(), own=nothing), "session") == []


def test_what_is_missing_says_how_to_get_it():
    assert missing(usual()) == ()
    records = rates("fp32", [100.0]) + rates("int8", [200.0])
    (one,), _ = explained(records, {"fp32": {"executed": [], "profile": None}, "int8": INT8})
    assert missing(one) == (
        "No times of layers for FP32 at batch 8: layers are timed at the largest batch of a study alone.",
        "Run a study whose largest batch is one that both precisions can run.",
        "One repeat supports no verdict: measure with two repeats or more.",
    )


def test_a_profile_older_than_roles_is_said_to_be():
    old = copy.deepcopy(INT8)
    for layer in old["profile"]:
        del layer["role"]
    records = rates("fp32", [100.0, 101.0]) + rates("int8", [200.0, 201.0])
    (one,), _ = explained(records, {"fp32": FP32, "int8": old})
    assert missing(one)[0].startswith("The profile of INT8 does not say which layers reorder or quantize")
    assert not text_of(one, "quantize")


def test_a_changed_machine_forbids_comparing_layers():
    records = rates("fp32", [100.0, 101.0]) + rates("int8", [200.0, 201.0], probe=probe(16e9))
    (one,), _ = explained(records, {"fp32": FP32, "int8": INT8})
    assert "times of layers do not compare either" in missing(one)[0]
    assert not any("slower layer" in line for line in advice(one))


def test_a_single_precision_says_what_to_measure():
    _, (one,) = explained(rates("fp32", [100.0]), {})
    assert single_words(one) == (
        "ResNet-50 on onnxruntime, cpu: only FP32 gave a rate, so there is nothing to compare. Measure it"
        " beside int8, at the same batches."
    )


def test_advice_names_the_most_that_it_could_save():
    assert advice(usual()) == (
        "1 layer that multiplies did not run in INT8: an INT8 kernel could save at most 1.50 ms (21 %) of its"
        " call's profile.",
        "Left in FP32, 1 slower layer could save at most 0.600 ms (9 %) of its call's profile, less the"
        " conversions that this adds.",
    )


def test_two_changes_of_type_are_needed_and_only_more_are_advised_against():
    more = copy.deepcopy(INT8)
    for name in ("again", "and_again"):
        more["profile"].append({"name": name, "op": "QuantizeLinear", "seconds": 0.0005, "role": "quantize"})
    (one,), _ = explained(
        rates("fp32", [100.0, 101.0]) + rates("int8", [200.0, 201.0]), {"fp32": FP32, "int8": more}
    )
    # The two longest, 0.5 ms each, must be; 0.4 and 0.3 of 8 ms need not.
    assert any("all but two of the 4 could save at most 0.700 ms (9 %)" in line for line in advice(one))


def test_a_float_precision_that_wins_is_advised():
    assert advice(one_of(int8=(50.0, 51.0, 52.0)))[0] == (
        "FP32 is the faster choice here at batch 8, and needs no calibration."
    )


def test_larger_batches_are_advised_only_by_verdicts():
    points = (AtBatch(1, 0.8, "slower"), AtBatch(8, 1.4, "faster"), AtBatch(32, 1.3, "faster"))
    assert "Larger batches: INT8 gains most at batch 8 (1.40×)." in advice(replace(usual(), batches=points))
    blind = tuple(replace(one, verdict="one repeat: no verdict") for one in points)
    assert not any("Larger" in line for line in advice(replace(usual(), batches=blind)))


def test_a_file_that_came_quantized_may_be_calibrated_anew_only_where_much_stayed_in_float():
    low = replace(usual(), own=replace(usual().own, mac_share=0.5), calibration_source="model")
    assert any("inferometer calibrate MODEL --engine onnxruntime" in line for line in advice(low))
    assert not any("calibrate" in line for line in advice(replace(usual(), calibration_source="model")))


def test_a_cpu_without_dot_products_is_named():
    weak = one_of(environment=machine(features=["avx2"], int8_dot=False))
    assert any("A CPU with 8-bit dot products" in line for line in advice(weak))


def with_share(records, share):
    return [one.model_copy(update={"precision_mac_share": share}) for one in records]


def test_a_float_that_did_not_run_as_asked_is_no_rival_to_beat():
    both = rates("fp32", [100.0, 101.0]) + rates("int8", [200.0, 202.0])
    wide = with_share(rates("bf16", [120.0, 121.0]), {"fp32": 1.0})
    first, other = headlines(explained(both + wide, {})[0][0])
    assert "INT8 is 2.00× FP32 at batch 8" in first
    assert first.endswith(
        "FP32 is the fastest float precision there that ran as asked, which INT8 must beat."
    )
    assert other.startswith("Also: INT8 is 1.67× BF16 \N{DAGGER} at batch 8")
    low = with_share(rates("fp32", [100.0, 101.0]), {"tf32": 1.0}) + rates("int8", [200.0, 202.0])
    (first, _) = headlines(explained(low + wide, {})[0][0])
    assert "INT8 is 1.67× BF16 \N{DAGGER} at batch 8" in first
    assert first.endswith("No float precision ran as asked there; BF16 \N{DAGGER} gave the highest rate.")


def test_what_ran_is_told_by_the_repeat_in_which_least_did():
    records = rates("fp32", [100.0, 101.0]) + rates("int8", [200.0, 202.0])
    for place, share in ((2, 0.95), (3, 0.5)):
        ran = {"int8": share, "fp32": 1 - share}
        records[place] = records[place].model_copy(update={"precision_mac_share": ran})
    (one,), _ = explained(records, {"fp32": FP32, "int8": INT8})
    assert one.own.mac_share == 0.5
    assert text_of(one, "mac_share") == ["Only 50 % of the multiply-accumulates ran in INT8 (50 % in FP32)."]


def test_a_profile_of_no_time_is_none():
    still = copy.deepcopy(INT8)
    for layer in still["profile"]:
        layer["seconds"] = 0.0
    records = rates("fp32", [100.0, 101.0]) + rates("int8", [200.0, 201.0])
    (one,), _ = explained(records, {"fp32": FP32, "int8": still})
    assert (one.own.profile_s, one.parts) == (None, ())
    assert text_of(one, "profile") == []
    assert missing(one) == ("No times of layers for INT8 at batch 8: its times are all 0.",)


def test_a_precision_without_a_batch_in_common_is_said_to_have_none():
    found, (one,) = explained(rates("fp32", [100.0], 8) + rates("int8", [200.0], 16), {})
    assert not found
    assert single_words(one) == (
        "ResNet-50 on onnxruntime, cpu: FP32 (batch 8) and INT8 (batch 16) share no batch, so there is"
        " nothing to compare. Measure them at the same batches."
    )
    records = rates("fp32", [100.0], 8) + rates("bf16", [120.0], 8) + rates("int8", [200.0], 16)
    (bf16,), (one,) = explained(records, {})
    assert bf16.own.setup.precision == "bf16"
    assert single_words(one) == (
        "ResNet-50 on onnxruntime, cpu: INT8 (batch 16) ran at no batch that is explained here, so that it is"
        " not compared. Measure it at the same batches as FP32 (batch 8) and BF16 (batch 8)."
    )


def test_several_machines_are_told_apart():
    records = rates("fp32", [100.0]) + rates("int8", [200.0])
    other = ENVIRONMENT | {"machine_key": "other", "gpus": [{"name": "Tesla P4"}]}
    more = [one.model_copy(update={"id": f"{one.id}-2", "environment": other}) for one in records]
    found, _ = explained(records + more, {})
    starts = [headlines(one)[0].split(": INT8")[0] for one in found]
    assert starts[0].startswith("ResNet-50 on onnxruntime, cpu, machine 1 (Dell Inc. PowerEdge R740, Intel")
    assert starts[1].startswith("ResNet-50 on onnxruntime, cpu, machine 2 (Dell Inc. PowerEdge R740, Intel")
    assert starts[1].endswith(", Tesla P4)")

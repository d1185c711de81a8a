"""Accuracy rows and paired differences from hand-made per-image outcomes."""

import numpy as np
import pytest

from inferometer.analysis.summary import summarise
from inferometer.store import PerImage
from tests.unit.report.sample_records import accuracy, per_image, record


def scored(precision, right, **fields):
    top1 = float(np.mean(right))
    return record("accuracy", "digits", precision, 8, accuracy=accuracy(top1, len(right), **fields))


def compare(outcomes, **fields):
    records = [scored(precision, outcome[0], **fields) for precision, outcome in outcomes.items()]
    by_id = {one.id: outcome[1] for one, outcome in zip(records, outcomes.values(), strict=True)}
    return summarise(records, lambda one: by_id.get(one.id))


def test_a_difference_by_hand():
    a = np.ones(200, bool)
    b = a.copy()
    b[:20] = False
    b_better = b.copy()
    found = compare({"fp32": (a, per_image(a)), "int8": (b_better, per_image(b_better))})
    top1, top5 = found.differences
    assert (top1.setup_a.precision, top1.setup_b.precision, top1.metric) == ("fp32", "int8", "top1")
    assert (top1.images, top1.only_a, top1.only_b) == (200, 20, 0)
    assert top1.delta == pytest.approx(-0.1)
    assert top1.interval[0] < -0.1 < top1.interval[1] < 0
    assert top1.verdict == "a real loss"
    assert top1.agreement == pytest.approx(0.9)
    assert (top5.delta, top5.verdict) == (0.0, "within noise")
    assert found.findings[0].figure == "\N{MINUS SIGN}10.00"


def test_every_pair_of_precisions_is_compared_in_order():
    right = np.ones(50, bool)
    outcome = (right, per_image(right))
    found = compare({"int8": outcome, "fp32": outcome, "fp16": outcome})
    pairs = {(row.setup_a.precision, row.setup_b.precision) for row in found.differences}
    assert pairs == {("fp32", "fp16"), ("fp32", "int8"), ("fp16", "int8")}


def models(*named, all_pairs=False):
    """The top-1 differences of trials (model, precision, source of its calibration, engine, right)."""
    records, outcomes = [], {}
    for model, precision, source, engine, right in named:
        calibration = {"table_sha256": None, "source": source, "method": None, "images": None}
        one = record(
            "accuracy", model, precision, 8, accuracy=accuracy(float(np.mean(right)), len(right)),
            calibration=calibration if source else None, trial_engine=engine,
        )  # fmt: skip
        records.append(one)
        outcomes[one.id] = per_image(right)
    found = summarise(records, lambda one: outcomes[one.id], all_pairs=all_pairs)
    pairs = [(row.setup_a, row.setup_b, row) for row in found.differences if row.metric == "top1"]
    return found, [(a.model, a.precision, b.model, b.precision, row.delta) for a, b, row in pairs]


def test_a_float_model_is_compared_with_an_already_quantized_file():
    right, less = np.ones(100, bool), np.arange(100) >= 10
    found, pairs = models(
        ("net_int8", "int8", "model", "onnxruntime", less), ("net", "fp32", None, "onnxruntime", right)
    )
    assert pairs == [("net", "fp32", "net_int8", "int8", pytest.approx(-0.1))]
    sentence = found.findings[0].sentence
    assert sentence.startswith(
        "net_int8 INT8 against net FP32: top-1 differs by \N{MINUS SIGN}10.00 points on 100 images"
    )
    assert [one.about for one in found.findings] == ["accuracy"]


def test_a_study_compares_only_what_belongs_together():
    right = np.ones(20, bool)
    _, pairs = models(
        ("one", "fp32", None, "onnxruntime", right),
        ("one", "int8", "images", "onnxruntime", right),
        ("two", "fp32", None, "onnxruntime", right),
        ("file", "int8", "model", "openvino", right),
    )
    assert pairs == [("one", "fp32", "one", "int8", 0.0)]


def test_a_quantized_file_is_not_held_against_another_network():
    right = np.ones(20, bool)
    # GoogLeNet with 1.58 G multiply-accumulates and AlexNet with 0.72 G; of "file" none are known.
    _, pairs = models(
        ("googlenet", "fp32", None, "onnxruntime", right),
        ("alexnet", "int8", "model", "onnxruntime", right),
        ("file", "int8", "model", "onnxruntime", right),
    )
    assert pairs == [("googlenet", "fp32", "file", "int8", 0.0)]


def test_all_pairs_of_one_call_are_compared_in_its_order():
    right, less = np.ones(20, bool), np.arange(20) >= 5
    trials = [("b", "int8", "model", "onnxruntime", less), ("a", "fp32", None, "onnxruntime", right),
              ("c", "fp32", None, "onnxruntime", right)]  # fmt: skip
    _, pairs = models(*trials, all_pairs=True)
    assert pairs == [
        ("b", "int8", "a", "fp32", 0.25),
        ("b", "int8", "c", "fp32", 0.25),
        ("a", "fp32", "c", "fp32", 0.0),
    ]


def test_only_common_images_count_paired_by_hash():
    whole = per_image([True] * 10)
    part = per_image([True] * 10)
    order = np.array([9, 3, 5, 7])
    shuffled = PerImage(tuple(part.hashes[i] for i in order), part.labels[order], part.top[order])
    found = compare({"fp32": (np.ones(10), whole), "int8": (np.ones(4), shuffled)})
    row = found.differences[0]
    assert (row.images, row.left_out, row.agreement) == (4, 6, 1.0)
    assert any("6 images that only one of the two has seen" in sentence for sentence in found.cautions)


def test_copies_of_one_file_are_paired_one_by_one_and_other_labels_not_at_all():
    base = per_image([True, True, True])
    twice = PerImage((base.hashes[0],) * 2 + base.hashes[2:], np.array([0, 0, 2]), base.top[[0, 0, 2]])
    relabelled = PerImage(twice.hashes, np.array([0, 0, 7]), twice.top)
    found = compare({"fp32": (np.ones(3), twice), "int8": (np.ones(3), relabelled)})
    assert (found.differences[0].images, found.differences[0].left_out) == (2, 2)


def test_nothing_in_common_gives_no_difference():
    one = per_image([True])
    other = PerImage(("ff" * 32,), one.labels, one.top)
    assert compare({"fp32": (np.ones(1), one), "int8": (np.ones(1), other)}).differences == ()


def test_without_per_image_outcomes_there_is_no_difference():
    found = compare({"fp32": (np.ones(9), None), "int8": (np.ones(9), None)})
    assert found.differences == ()
    assert [row.images for row in found.accuracy] == [9, 9]
    assert "top-1 100.0 % on 9 images" in found.findings[0].sentence


def test_top5_says_nothing_with_few_classes():
    right = np.ones(20, bool)
    found = compare(
        {"fp32": (right, per_image(right)), "int8": (right, per_image(right))}, top5=None, classes=4
    )
    assert [row.metric for row in found.differences] == ["top1"]
    assert found.accuracy[0].top5 is None


def test_wilson_interval_of_the_row():
    (row,) = summarise([scored("fp32", np.arange(100) < 90)], lambda _: None).accuracy
    # Wilson for 90 of 100 (Newcombe 1998): 0.8256 to 0.9448
    assert (row.top1.value, row.top1.lo, row.top1.hi) == pytest.approx((0.9, 0.8256, 0.9448), abs=5e-5)


def test_skipped_and_excluded_images_are_told():
    found = summarise(
        [scored("fp32", np.ones(5), skipped=2, skipped_files=("a.jpg", "b.jpg"))], lambda _: None
    )
    assert (found.accuracy[0].skipped, found.accuracy[0].excluded) == (2, 500)
    assert any(
        "2 images for digits could not be decoded and count nowhere: a.jpg and b.jpg." in sentence
        for sentence in found.cautions
    )


def test_a_failed_accuracy_trial_has_a_row_without_numbers():
    lost = record("accuracy", "digits", "int8", 8, status="failed", reason="no labels")
    (row,) = summarise([lost], lambda _: None).accuracy
    assert (row.status, row.reason, row.images, row.top1) == ("failed", "no labels", None, None)


def test_a_quantized_file_is_not_held_against_a_float_model_under_other_options():
    right, wrong = np.ones(40, bool), np.zeros(40, bool)
    plain, other = (
        {"options": {}, "engine_version": "1"},
        {"options": {"provider": "x"}, "engine_version": "1"},
    )
    newer = {"options": {}, "engine_version": "2"}
    file = {"source": "model", "table_sha256": None, "method": None, "images": None}

    def pairs(*trials):
        records, outcomes = [], {}
        for place, (model, precision, config, seen) in enumerate(trials):
            made = {"calibration": file} if precision == "int8" else {}
            one = record(
                "accuracy", model, precision, 8, accuracy=accuracy(float(np.mean(seen)), 40), config=config,
                id=str(place), **made,
            )  # fmt: skip
            records.append(one)
            outcomes[one.id] = per_image(seen)
        found = summarise(records, lambda one: outcomes[one.id])
        return [(row.record_ids, row.delta) for row in found.differences if row.metric == "top1"], found

    both = [("net", "fp32", plain, right), ("net", "fp32", other, wrong)]
    alike, found = pairs(*both, ("netq", "int8", plain, right), ("netq", "int8", other, wrong))
    assert alike == [(("0", "2"), 0.0), (("1", "3"), 0.0)]
    assert [one.sentence.split(":")[0] for one in found.findings] == [
        "netq INT8 against net FP32 (options.provider default)",
        "netq INT8 against net FP32 (options.provider x)",
    ]
    # The file ran under one set of options alone, so that its own setup names none.
    assert pairs(*both, ("netq", "int8", other, wrong))[0] == [(("1", "2"), 0.0)]
    assert pairs(("net", "fp32", plain, right), ("netq", "int8", newer, right))[0] == []

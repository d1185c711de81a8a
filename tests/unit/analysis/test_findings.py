"""The computed sentences: what they claim, and what they must not."""

import pytest

from inferometer.analysis.summary import summarise
from tests.unit.report.sample_records import (
    ENVIRONMENT,
    accuracy,
    latency,
    per_image,
    probe,
    record,
    throughput,
)


def rates(values, precision="fp32", batch=8, **fields):
    return [
        record("throughput", "alexnet", precision, batch, repeat, throughput=throughput(value), **fields)
        for repeat, value in enumerate(values)
    ]


def found(*records, top5=lambda _: None):
    return summarise(records, top5).findings


def test_the_rates_shown_are_the_geometric_means_that_divide_to_the_ratio():
    # Geometric means 4 and 20, arithmetic ones 5 and 25; neither interval is narrow.
    (one,) = found(*rates([2, 8]), *rates([10, 40], "int8"))
    assert ": 20.0 images/s against 4.00." in one.sentence
    assert "(5.00×, 95 % interval" in one.sentence


def test_the_largest_batch_at_which_both_ran_is_told_whatever_the_rates():
    (one,) = found(
        *rates([100, 101, 102], batch=1), *rates([300, 301, 302], "int8", batch=1),
        *rates([100, 101, 102], batch=4), *rates([150, 151, 152], "int8", batch=4),
        *rates([900, 901, 902], "int8", batch=16),
    )  # fmt: skip
    assert one.sentence.startswith("AlexNet: INT8 is 1.50× FP32 at batch 4 (95 % interval")
    assert (one.figure, one.settled) == ("1.50×", True)


def test_each_precision_has_its_own_sentence():
    made = found(*rates([100, 101]), *rates([200, 202], "fp16"), *rates([300, 303], "int8"))
    assert [one.sentence.split(" (")[0] for one in made] == [
        "AlexNet: FP16 is 2.00× FP32 at batch 8",
        "AlexNet: INT8 is 3.00× FP32 at batch 8",
    ]


@pytest.mark.parametrize(
    ("other", "start"),
    [
        (
            rates([99, 103, 101], "int8"),
            "AlexNet: no difference seen between INT8 and FP32 at batch 8 (1.00×, 95 % interval 0.9",
        ),
        (
            rates([300, 301, 302], "int8", probe=probe(14e9)),
            "AlexNet: INT8 against FP32 at batch 8 is inconclusive, since the machine changed (2.98×, 95 %",
        ),
        (
            rates([202], "int8"),
            "AlexNet: INT8 against FP32 at batch 8 has no verdict, since one repeat supports none (2.00×):",
        ),
    ],
    ids=["no difference", "machine changed", "one repeat"],
)
def test_a_ratio_without_a_verdict_is_no_headline(other, start):
    (one,) = found(*rates([100, 101, 102]), *other)
    assert one.sentence.startswith(start)
    assert (one.figure, one.settled) == ("no verdict", False)


def test_an_interval_that_leaves_one_out_without_a_verdict_is_explained():
    records = [
        one
        for batch in (1, 2, 4, 8)
        for one in (*rates([100, 101, 102], batch=batch), *rates([103, 104, 105], "int8", batch=batch))
    ]
    (one,) = found(*records)
    assert "no difference seen between INT8 and FP32 at batch 8" in one.sentence
    assert "when corrected for the number of ratios)" in one.sentence


def test_a_precision_without_a_median_is_named():
    few = record("latency", "alexnet", "fp32", latency_s=latency(0.05, n=5))
    known = record("latency", "alexnet", "int8", latency_s=latency(0.03))
    (one,) = found(few, known)
    assert one.sentence == "AlexNet: one image takes 30.0 ms in INT8 (median; FP32: too few calls)."
    lost = record("latency", "alexnet", "fp32", status="out_of_memory", reason="too big")
    assert found(lost, known)[0].sentence.endswith("(median; FP32: out of memory).")
    assert found(few) == ()


def test_more_images_settle_it_only_if_the_difference_stays():
    right = {"fp32": [True] * 100, "int8": [True] * 98 + [False] * 2}
    records = [
        record("accuracy", "digits", name, accuracy=accuracy(sum(hit) / 100, images=100))
        for name, hit in right.items()
    ]
    (one,) = found(*records, top5=lambda one: per_image(right[one.trial.precision]))
    assert "within noise. If the difference stays as it is, about " in one.sentence
    assert one.sentence.endswith(" more images would settle it.")
    assert not one.settled


def test_few_timed_calls_are_told_with_the_least():
    def calls(*numbers):
        records = [
            record(repeat=i, batch=8, throughput=throughput(9.0, images=8 * n)) for i, n in enumerate(numbers)
        ]
        summary = summarise(records, lambda _: None)
        return summary.throughput[0].calls, [one for one in summary.cautions if "timed fewer" in one]

    assert calls(10, 11) == (21, [])
    assert calls(3, 9, 10) == (
        22,
        [
            "2 of 3 throughput trials timed fewer than ten calls (least 3): measure longer (measure.max_s)"
            " before relying on them."
        ],
    )


def test_a_cpu_without_int8_and_its_narrow_weights_are_one_sentence():
    weak = ENVIRONMENT | {"cpu": ENVIRONMENT["cpu"] | {"int8_dot": False}}
    calibration = {"source": "images", "table_sha256": "ab", "method": "kl", "images": 50, "weight_bits": 7}
    one = record(precision="int8", throughput=throughput(9.0), calibration=calibration, environment=weak)
    said = [
        line for line in summarise([one], lambda _: None).cautions if "dot-product" in line or "7-" in line
    ]
    assert len(said) == 1
    assert "instruction, so that INT8 of ResNet-50 uses 7-bit weights: on one that has it" in said[0]


def test_every_kind_of_finding_carries_the_mark():
    low = {"precision_mac_share": {"fp32": 1.0}}
    rate, late, right = (
        record(precision="bf16", throughput=throughput(9.0), **low),
        record("latency", precision="bf16", latency_s=latency(0.01)),
        record("accuracy", precision="bf16", accuracy=accuracy(0.8)),
    )
    made = found(rate, late, right)
    assert [(one.about, one.marked) for one in made] == [
        ("speed", True),
        ("latency", True),
        ("accuracy", True),
    ]
    assert "runs fastest in BF16 \N{DAGGER} at batch 1" in made[0].sentence
    assert "10.0 ms in BF16 \N{DAGGER} (median)" in made[1].sentence
    assert made[2].sentence.startswith("ResNet-50 in BF16 \N{DAGGER}: top-1 80.0 %")
    (ratio,) = found(rate, record(throughput=throughput(5.0)))
    assert ratio.marked
    assert "BF16 \N{DAGGER} against FP32 at batch 1" in ratio.sentence
    sound = found(record(throughput=throughput(5.0)), record("latency", latency_s=latency(0.01)))
    assert [one.marked for one in sound] == [False, False]
    assert "\N{DAGGER}" not in "".join(one.sentence for one in sound)


def test_findings_of_several_machines_name_theirs():
    other = ENVIRONMENT | {"machine_key": "other"}
    records = [*rates([100, 101]), *rates([200, 202], "int8")]
    records += [one.model_copy(update={"id": f"{one.id}-2", "environment": other}) for one in records]
    assert [one.sentence.split(":")[0] for one in found(*records)] == [
        "AlexNet on machine 1", "AlexNet on machine 2",
    ]  # fmt: skip

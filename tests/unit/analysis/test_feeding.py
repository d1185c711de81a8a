"""Real images as input: rows beside synthetic input, and what bounds the rate."""

import pytest

from inferometer.analysis.summary import summarise
from inferometer.records import Feeding
from tests.unit.report.sample_records import record, throughput
from tests.unit.report.scaling_records import fed_study, feeding, gpu_study


def summary_of(records):
    return summarise(records, lambda _: None)


def test_decoding_alone_the_device_alone_and_both_together():
    (row,) = summary_of(fed_study()).feeding
    assert (row.decode, row.device, row.together) == pytest.approx((310.0, 1240.0, 300.0))
    assert (row.bottleneck, row.wait_share, row.workers, row.repeats) == ("images", pytest.approx(0.6), 4, 3)
    assert row.setup.variant == (("input", "images"),)


def test_the_finding_says_what_bounds_the_rate():
    (finding,) = [one for one in summary_of(fed_study()).findings if one.about == "feeding"]
    assert finding.sentence == (
        "GoogLeNet on decoded images, in FP32 at batch 32: 300 images/s (the device alone does 1,240, 4"
        " threads alone decode 310): decoding bounds it; requests wait 60 % of their time for images."
    )
    assert finding.figure == "decoding"


def test_without_synthetic_input_the_device_alone_is_not_known():
    records = [one for one in fed_study() if one.trial.input == "images"]
    found = summary_of(records)
    assert found.feeding[0].device is None
    (finding,) = [one for one in found.findings if one.about == "feeding"]
    assert "300 images/s (4 threads alone decode 310)" in finding.sentence


def test_what_one_repeat_lacks_is_not_told_and_the_worst_bottleneck_counts():
    def one(repeat, **of):
        return record(
            repeat=repeat, throughput=throughput(300.0), feeding=feeding(**of), trial_input="images"
        )

    (row,) = summary_of(
        [one(0, bottleneck="device", wait=0.0), one(1, decode=None, bottleneck="both")]
    ).feeding
    assert (row.decode, row.bottleneck, row.wait_share) == (None, "both", pytest.approx(0.3))


def test_on_a_cpu_both_may_bound_it_since_they_share_the_processors():
    one = record(
        throughput=throughput(90.0),
        feeding=feeding(wait=0.12, decode=600.0, bottleneck="both"),
        trial_input="images",
    )
    (finding,) = [found for found in summary_of([one]).findings if found.about == "feeding"]
    assert "decoding does 15 % of what it can alone, on the model's own processors;" in finding.sentence


def test_a_study_on_synthetic_input_alone_has_none():
    found = summary_of(gpu_study())
    assert found.feeding == ()
    assert not [one for one in found.findings if one.about == "feeding"]


def test_of_several_ranks_the_most_are_told():
    def fed(one):
        feed = Feeding.model_validate(feeding())
        return one.model_copy(
            update={"feeding": feed, "trial": one.trial.model_copy(update={"input": "images"})}
        )

    found = summary_of([fed(one) for one in gpu_study()])
    assert len(found.feeding) == 6
    (finding,) = [one for one in found.findings if one.about == "feeding"]
    assert finding.sentence.startswith("ResNet-50 with 4 ranks on decoded images, in FP32 at batch 32: 3,600")
    assert "16 threads alone decode 310" in finding.sentence

"""Points: stores and studies in one form."""

import pytest

from inferometer.analysis.comparison.points import store_source
from tests.unit.analysis.comparison.sample_sources import DELL, dell, store, trials
from tests.unit.report.sample_records import ENVIRONMENT, latency, record, study, throughput


def test_a_study_keeps_the_place_that_its_figures_are_relative_to():
    points = dell().points
    assert len(points) == 46
    own = next(
        one for one in points if (one.device, one.count, one.metric) == ("tesla-p4", 4, "images_per_s")
    )
    assert (own.value, own.model, own.precision, own.batch, own.engine) == (
        2.09,
        "alexnet",
        "int8",
        128,
        "tensorrt",
    )
    assert (own.relative_to.accelerator, own.relative_to.count, own.relative_to.batch) == (
        "tesla-p40",
        1,
        128,
    )
    assert (own.repeats, own.runs, own.interval, own.record_ids) == ((), 0, None, ())
    assert own.evidence == (
        f"{DELL}: figures / figure_1_alexnet_int8_batch128 / images_per_s / tesla-p4 / 4",
    )


def test_what_ran_out_of_memory_has_no_value_but_a_reason():
    lost = [one for one in dell().points if one.status == "out_of_memory"]
    assert [(one.device, one.batch, one.value) for one in lost] == [
        ("tesla-p4", 2048, None),
        ("tesla-p4", 4096, None),
    ]
    assert all(one.reason for one in lost)


def test_a_store_gives_its_repeats_their_interval_and_their_records():
    (point,) = store("here", trials()).points
    assert (point.source, point.device, point.engine, point.metric) == (
        "here",
        "cpu",
        "onnxruntime",
        "images_per_s",
    )
    assert (point.repeats, point.runs, point.value) == ((100.0, 101.0, 99.0), 3, 100.0)
    assert point.interval[0] < 100 < point.interval[1]
    assert len(point.record_ids) == 3
    assert point.evidence == tuple(f"here: {one}" for one in point.record_ids)
    assert point.marks == ()


def test_a_store_has_points_of_every_kind():
    source = store_source("demo", *study())
    found = {(one.model, one.metric) for one in source.points}
    assert {("resnet50", "images_per_s"), ("resnet50", "latency_p50_s"), ("resnet50", "latency_p99_s"),
            ("digits", "top1"), ("digits", "top5")} <= found  # fmt: skip
    lost = [one for one in source.points if one.status == "out_of_memory"]
    assert [(one.model, one.batch, one.value) for one in lost] == [("resnet50", 512, None)]
    assert "oom_kill" in lost[0].reason
    marked = {one.model for one in source.points if "low MAC share" in one.marks}
    assert marked == {"alexnet"}
    top1 = next(one for one in source.points if one.metric == "top1")
    assert (top1.batch, top1.count) == (None, None)


def test_a_percentile_of_too_few_calls_has_a_reason_and_no_value():
    source = store("few", [record("latency", "resnet50", "fp32", 1, latency_s=latency(0.01, n=20))])
    by = {one.metric: one for one in source.points}
    assert by["latency_p50_s"].value == 0.01
    assert (by["latency_p99_s"].value, by["latency_p99_s"].reason) == (None, "too few calls for p99")


@pytest.mark.parametrize(
    ("names", "device"),
    [(("Tesla P4", "Tesla P4"), "Tesla P4"), (("Tesla P4", "Tesla P40"), "cuda:0"), ((), "cuda:0")],
)
def test_a_gpu_goes_by_its_own_name_where_that_is_certain(names, device):
    gpus = [{"name": name, "uuid": f"GPU-{place}"} for place, name in enumerate(names)]
    one = record(
        trial_device="cuda:0", throughput=throughput(100.0), environment=ENVIRONMENT | {"gpus": gpus}
    )
    (point,) = store("gpu", [one]).points
    assert point.device == device

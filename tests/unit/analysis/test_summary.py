"""The whole sample, machines, cautions, and that a summary is plain JSON."""

import json
from dataclasses import asdict

import pytest

from inferometer.analysis.summary import summarise
from tests.unit.report.sample_records import ENVIRONMENT, accuracy, record, study, throughput


@pytest.fixture(scope="module")
def sample():
    return summarise(*study())


def test_the_sample_has_everything(sample):
    assert sample.studies == ("demo",)
    assert (sample.trials, sample.statuses["ok"]) == (76, 73)
    assert len(sample.throughput) == 20
    assert len(sample.speed_ups) == 9
    assert {gain.verdict for gain in sample.speed_ups} == {"faster"}
    assert len(sample.latency) == 6
    assert [row.setup.precision for row in sample.accuracy] == ["fp32", "int8"]
    assert [row.model for row in sample.models] == ["googlenet", "alexnet", "resnet50", "digits"]
    assert [(row.setup.batch, row.status) for row in sample.not_measured] == [
        (8, "failed"), (512, "out_of_memory"), (1024, "skipped"),
    ]  # fmt: skip


def test_ratios_are_those_the_sample_was_made_with(sample):
    # Noise of one percent per repeat: three repeats come within one percent of the truth.
    gains = {(gain.setup.model, gain.setup.batch): gain for gain in sample.speed_ups}
    assert gains["resnet50", 8].ratio == pytest.approx(2.17, rel=0.01)
    assert gains["alexnet", 8].repeats == (3, 2)


def test_findings_are_computed_sentences(sample):
    sentences = [one.sentence for one in sample.findings]
    assert sentences[2].startswith("ResNet-50: INT8 is 2.1")
    assert "at batch 8 (95 % interval" in sentences[2]
    assert "ResNet-50 in FP32 ran out of memory at batch 512." in sentences
    assert all(one.record_ids for one in sample.findings)


def test_a_summary_is_json(sample):
    text = json.dumps(asdict(sample), allow_nan=False)
    assert json.loads(text)["statuses"] == {"ok": 73, "failed": 1, "out_of_memory": 1, "skipped": 1}


def test_synthetic_calibration_is_said_loudly(sample):
    assert sample.cautions[0] == (
        "INT8 of GoogLeNet, AlexNet and ResNet-50 was calibrated on synthetic input: it shows speed only."
        " For accuracy, calibrate on real images."
    )


def test_lost_trials_are_counted(sample):
    assert (
        "Of 76 trials, 1 failed, 1 ran out of memory and 1 was skipped: see the trials without a number."
        in (sample.cautions)
    )


def test_interrupted_trials_are_counted_and_nothing_else():
    found = summarise([record(status="interrupted", reason="Ctrl-C")], lambda _: None)
    assert found.statuses == {"interrupted": 1}
    assert found.throughput == ()
    assert found.not_measured[0].reason == "Ctrl-C"


def test_an_empty_store_gives_an_empty_summary():
    found = summarise([], lambda _: None)
    assert (found.trials, found.started, found.machines, found.findings, found.cautions) == (
        0,
        None,
        (),
        (),
        (),
    )


def test_the_machine_in_words(sample):
    (machine,) = sample.machines
    facts = {fact.name: fact for fact in machine.facts}
    assert machine.title == (
        "Dell Inc. PowerEdge R740, Intel(R) Xeon(R) Gold 6142 CPU @ 2.60GHz, 32 cores / 64 threads,"
        " 192 GiB memory"
    )
    assert facts["Caches"].value == "L1d 32 x 32 KiB, L3 2 x 22 MiB"
    assert facts["Clock governor"].value is None
    assert facts["Clock governor"].reason == "/sys/devices/system/cpu/cpufreq is not there"
    assert facts["GPUs"].reason == "the package nvidia-ml-py is not installed"
    assert facts["Libraries"].value == "onnxruntime 1.20.1"


def test_a_machine_that_tells_nothing_breaks_nothing():
    found = summarise([record(environment={"cpu": "odd"}, throughput=throughput(5.0))], lambda _: None)
    assert found.machines[0].title == "a machine that is not known"
    assert all(
        fact.value is None and fact.reason == "the record does not say" for fact in found.machines[0].facts
    )


def test_two_machines_are_neither_pooled_nor_compared():
    other = ENVIRONMENT | {"machine_key": "other", "gpus": [{"name": "Tesla P4"}, {"name": "Tesla P4"}]}
    records = [
        record("throughput", precision="fp32", repeat=0, throughput=throughput(10.0)),
        record("throughput", precision="int8", repeat=0, throughput=throughput(30.0), environment=other),
        record("throughput", precision="int8", repeat=1, status="failed", reason="died", environment=None),
    ]
    found = summarise(records, lambda _: None)
    assert [row.setup.machine for row in found.throughput] == [0, 1]
    assert found.speed_ups == ()
    assert found.machines[1].title.endswith("2 x Tesla P4")
    assert found.cautions[0].startswith("The records come from 2 machines")


def test_a_cpu_without_int8_instructions_is_named():
    weak = ENVIRONMENT | {"cpu": ENVIRONMENT["cpu"] | {"int8_dot": False}}
    found = summarise(
        [record(precision="int8", throughput=throughput(30.0), environment=weak)], lambda _: None
    )
    assert any("has no INT8 dot-product instruction" in sentence for sentence in found.cautions)


def test_seven_bit_weights_are_named_with_their_reason():
    calibration = {"source": "images", "table_sha256": "ab", "method": "kl", "images": 50, "weight_bits": 7,
                   "reason": "no VNNI"}  # fmt: skip
    found = summarise(
        [record(precision="int8", throughput=throughput(9.0), calibration=calibration)], lambda _: None
    )
    assert "INT8 of ResNet-50 uses 7-bit weights: no VNNI." in found.cautions


def test_a_calibration_trial_shows_only_where_no_trial_used_its_table():
    made = {"source": "images", "table_sha256": "ab", "method": "kl", "images": 50}
    trial = record("calibration", batch=8, calibration=made)
    used = record(precision="int8", throughput=throughput(9.0), calibration=made | {"scheme": "s"})
    assert [row.scheme for row in summarise([trial, used], lambda _: None).calibrations] == ["s"]
    assert [row.scheme for row in summarise([trial], lambda _: None).calibrations] == [None]


def test_load_by_other_processes_is_said():
    def one(repeat, busy_cores):
        state = {"load": {"busy_cores": busy_cores}}
        return record(repeat=repeat, state=state, environment={"usable_cores": 2}, throughput=throughput(9.0))

    def said(*records):
        return [line for line in summarise(records, lambda _: None).cautions if "Other processes" in line]

    assert said(one(0, 0.05), one(1, 0.98)) == [
        "Other processes kept up to 0.980 cores busy during 1 of 2 timed trials: those rates may be too low."
    ]
    assert said(one(0, 0.05)) == []


def test_options_of_one_engine_stay_apart_outside_the_tables_too():
    plain, other = {"options": {}}, {"options": {"provider": "x"}}
    low = {"fp32": 0.0, "bf16": 1.0}
    records = [
        record(batch=64, status="out_of_memory", reason="full", config=plain, id="a"),
        record(batch=128, status="out_of_memory", reason="full", config=other, id="b"),
        record(precision="bf16", status="unsupported", reason="no kernels", config=plain, id="c"),
        record(throughput=throughput(5.0), precision_mac_share={"fp32": 1.0}, config=plain, id="d"),
        record(throughput=throughput(6.0), precision_mac_share=low, config=other, id="e"),
    ]
    found = summarise(records, lambda _: None)
    default, given = (("options.provider", "default"),), (("options.provider", "x"),)
    assert [(one.setup.batch, one.setup.variant) for one in found.not_measured] == [
        (64, default), (128, given), (1, default),
    ]  # fmt: skip
    assert [one.sentence for one in found.findings if one.about == "memory"] == [
        "ResNet-50 in FP32 (options.provider default) ran out of memory at batch 64.",
        "ResNet-50 in FP32 (options.provider x) ran out of memory at batch 128.",
    ]
    (caution,) = [one for one in found.cautions if "was asked to run" in one]
    assert caution.startswith("ResNet-50 (options.provider x) was asked to run in FP32, but only 0 % of its")


def test_accuracy_alone_names_its_options():
    plain, other = {"options": {}}, {"options": {"provider": "x"}}
    records = [
        record("accuracy", precision="fp32", accuracy=accuracy(top1), config=config, id=str(top1))
        for top1, config in ((0.8, plain), (0.5, other))
    ]
    starts = [one.sentence.split(":")[0] for one in summarise(records, lambda _: None).findings]
    assert starts == [
        "ResNet-50 in FP32 (options.provider default)", "ResNet-50 in FP32 (options.provider x)",
    ]  # fmt: skip

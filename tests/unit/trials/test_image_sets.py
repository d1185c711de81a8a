"""Trials read the images that the study was planned with."""

import pytest

from inferometer.config import Limits, MeasureSection
from inferometer.data.imageset import open_set
from inferometer.errors import DataError
from inferometer.records import ModelInfo, Trial
from inferometer.trials.accuracy import run_accuracy
from inferometer.trials.calibration import run_calibration
from inferometer.trials.spec import AccuracyTask, CalibrationTask, TrialSpec, identity_of


def spec(**tasks):
    trial = Trial(
        kind="accuracy", study="s", model="m", engine="null", device="cpu", precision="fp32", batch=1
    )
    return TrialSpec(
        id="0", trial=trial, folder="f", model_path="m.onnx", quantized=False, preprocess=None,
        model=ModelInfo(sha256="0", macs=None, parameters=None), engine_version="1", options={}, output=None,
        seed=0, measure=MeasureSection(), limits=Limits(), isolation="trial", **tasks,
    )  # fmt: skip


def accuracy(**changes):
    return AccuracyTask(**{"data": "d", "listing_sha256": "0", "images": None, "exclude": ()} | changes)


def test_where_labels_lie_is_no_part_of_a_trial_but_what_they_say_is():
    plain = identity_of(spec(accuracy=accuracy()))
    assert identity_of(spec(accuracy=accuracy(labels="elsewhere.csv"))) == plain
    assert identity_of(spec(accuracy=accuracy(listing_sha256="1"))) != plain
    task = CalibrationTask(data="d", listing_sha256="0", images=2, method="kl", split="first")
    moved = task.model_copy(update={"labels": "elsewhere.csv"})
    assert identity_of(spec(calibration=moved)) == identity_of(spec(calibration=task))


def test_a_trial_refuses_a_set_that_changed_since_the_plan(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"x")
    planned = open_set(tmp_path).listing_sha256
    (tmp_path / "cat" / "2.png").write_bytes(b"x")
    task = accuracy(data=str(tmp_path), listing_sha256=planned)
    with pytest.raises(DataError, match="changed since the study was planned"):
        run_accuracy(spec(accuracy=task), lambda done, of: None)


def test_a_calibration_refuses_it_too(tmp_path, mini):
    (tmp_path / "set" / "cat").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    for name in "12":
        (tmp_path / "set" / "cat" / f"{name}.png").write_bytes(b"x")
    task = CalibrationTask(
        data=str(tmp_path / "set"), listing_sha256="0", images=1, method="kl", split="first"
    )
    wanted = spec(calibration=task).model_copy(update={"model_path": str(mini), "folder": str(tmp_path)})
    with pytest.raises(DataError, match="changed since the study was planned"):
        run_calibration(wanted, lambda done, of: None)


def test_a_trial_reads_the_labels_that_were_given(tmp_path):
    (tmp_path / "a.png").write_bytes(b"x")
    task = accuracy(data=str(tmp_path), labels=str(tmp_path / "absent.csv"))
    with pytest.raises(DataError, match=r"the file of labels .*absent\.csv does not exist"):
        run_accuracy(spec(accuracy=task), lambda done, of: None)

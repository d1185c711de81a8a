"""How long a study still takes, from what its trials took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferometer.config import Limits, MeasureSection, PowerSection, Study, parse
from inferometer.records import ModelInfo, Trial
from inferometer.study.estimate import Pace
from inferometer.study.run import run_study
from inferometer.trials.spec import PowerTask, TrialSpec
from tests.unit.study.watcher import Remembering

POWER = PowerTask(section=PowerSection.model_validate({"meters": ["nvml"]}), min_s=60.0, idle_loaded_s=10.0)


def spec(name: str, kind: str = "throughput", power: PowerTask | None = None, **labels: Any) -> TrialSpec:
    content: dict[str, Any] = {"kind": kind, "study": "s", "model": "m", "engine": "null", "device": "cpu"}
    trial = Trial.model_validate({**content, "precision": "fp32", "batch": 1, **labels})
    return TrialSpec(
        id=name, trial=trial, folder="f", model_path="m.onnx", quantized=False, preprocess=None,
        model=ModelInfo(sha256="0", macs=None, parameters=None), engine_version="1", options={}, output=None,
        seed=0, measure=MeasureSection(), limits=Limits(), isolation="trial", power=power,
    )  # fmt: skip


def paced(*expected: TrialSpec) -> Pace:
    pace = Pace()
    for one in expected:
        pace.expect(one, one.id)
    return pace


def test_nothing_known_is_no_estimate_and_nothing_left_is_none_at_all() -> None:
    assert Pace().left_s() == 0.0
    assert paced(spec("a")).left_s() is None


def test_the_mean_of_a_series_times_what_is_left_of_it() -> None:
    pace = paced(*(spec(name, batch=8, repeat=n) for n, name in enumerate("abcd")))
    pace.took(spec("a"), 10.0)
    assert pace.left_s() == 30.0
    pace.took(spec("b"), 20.0)
    assert pace.left_s() == 30.0
    pace.took(spec("c"), 0.0)  # ruled out: it took no time, and the next will not be as quick
    assert pace.left_s() == 15.0


def test_a_series_goes_by_its_own_else_by_its_kind_else_by_kinds_that_measure_as_long() -> None:
    pace = paced(spec("int8", precision="int8"), spec("fp16", precision="fp16"), spec("latency", "latency"))
    pace.took(spec("x", precision="int8"), 2.0)
    assert pace.left_s() == 2.0 + 2.0 + 2.0
    pace.took(spec("y"), 4.0)
    assert pace.left_s() == 2.0 + 3.0 + 3.0
    pace.took(spec("z", "latency"), 7.0)
    assert pace.left_s() == 2.0 + 3.0 + 7.0


def test_speed_says_nothing_of_accuracy() -> None:
    pace = paced(spec("a"), spec("scored", "accuracy"))
    pace.took(spec("a"), 5.0)
    assert pace.left_s() is None
    pace.took(spec("x", "accuracy", precision="int8"), 100.0)
    assert pace.left_s() == 100.0


def test_ranks_are_a_series_of_their_own() -> None:
    pace = paced(spec("alone", ranks=1, place=0), spec("both", ranks=2))
    pace.took(spec("x", ranks=1, place=0), 1.0)
    pace.took(spec("y", ranks=2), 9.0)
    assert pace.left_s() == 1.0 + 9.0


@pytest.mark.parametrize(("jobs", "idle_s"), [("ab", 2 * 70.0), ("aa", 70.0)])
def test_idle_is_measured_once_for_each_job_left(jobs: str, idle_s: float) -> None:
    pace = Pace()
    for name, job in zip("ab", jobs, strict=True):
        pace.expect(spec(name, power=POWER), job)
    pace.took(spec("x"), 60.0)
    assert pace.left_s(around_s=70.0) == 120.0 + idle_s
    for name in "ab":
        pace.took(spec(name), 60.0)
    assert pace.left_s(around_s=70.0) == 0.0


def test_a_study_tells_what_is_left_after_each_trial_and_knows_from_its_records(
    mini: Path, tmp_path: Path
) -> None:
    def run(**changes: Any) -> list[float | None]:
        content: dict[str, Any] = {
            "models": [str(mini)], "engines": ["null"], "batches": [1, 2], "kinds": ["throughput"],
            "measure": {"max_s": 0.05, "warmup_max_s": 0.05},
        }  # fmt: skip
        watcher = Remembering()
        run_study(parse(Study, content | changes, "test"), tmp_path / "out", watcher)
        return watcher.estimates

    first = run(repeats=1)[-3:]  # before the trials, and after each of the two
    assert first[0] is None
    assert first[1] is not None
    assert first[1] > 0
    assert first[2] == 0.0
    resumed = run(repeats=2)[-3:]
    assert resumed[0] is not None
    assert resumed[0] > 0
    assert resumed[2] == 0.0

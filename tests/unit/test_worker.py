"""What a worker does where it cannot write."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferometer.config import Study, parse
from inferometer.contracts import Device
from inferometer.environment.probe import machine_probe
from inferometer.errors import EngineError, StoreError
from inferometer.study.plan import plan_trials
from inferometer.study.resolve import resolve
from inferometer.trials.spec import Job, TrialSpec
from inferometer.worker import STORE_FAILED, _of_this_host, result_path, run_trial


@pytest.fixture
def spec(mini: Path, tmp_path: Path) -> TrialSpec:
    content = {
        "models": [str(mini)],
        "engines": ["null"],
        "batches": [1],
        "repeats": 1,
        "kinds": ["throughput"],
        "measure": {"max_s": 0.01, "warmup_max_s": 0.01},
    }
    folder = tmp_path / "out"
    for name in ("work", "sidecars"):
        (folder / name).mkdir(parents=True)
    (planned,) = plan_trials(resolve(parse(Study, content, "test"), folder), {})
    return planned.spec


def test_a_full_disk_ends_the_study_and_not_the_trial(
    spec: TrialSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise EngineError("the engine's file\ncannot be written") from error

    monkeypatch.setattr("inferometer.worker.run_speed", run)
    with pytest.raises(StoreError) as found:
        run_trial(spec, lambda done, of: None, machine_probe())
    assert str(found.value) == (
        f"{spec.folder}: a trial needs room on a disk that is full: the engine's file cannot be written"
    )


def test_it_says_that_it_could_not_write_even_where_that_cannot_be_said(spec: TrialSpec) -> None:
    result_path(spec).mkdir()  # no file can take its place
    job = result_path(spec).with_name("job.json")
    job.write_text(Job(parent_pid=os.getpid(), processes=1, trials=(spec,)).model_dump_json())
    command = [sys.executable, "-P", "-m", "inferometer.worker", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == STORE_FAILED
    assert done.stderr.startswith(f"{result_path(spec)}: is no ordinary file")
    with Path("/dev/full").open("w") as full:
        silent = subprocess.run(command, stderr=full, stdout=subprocess.DEVNULL, check=False)
    assert silent.returncode == STORE_FAILED


def test_a_device_is_named_by_the_host_that_it_is_on(
    spec: TrialSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Engine:
        def devices(self) -> list[Device]:
            return [Device("cuda:0", "a GPU", "GPU-here")]

    monkeypatch.setattr("inferometer.worker.registry.engine", lambda _: Engine())
    trial = spec.trial.model_copy(update={"device": "cuda:0"})
    parents = spec.model_copy(update={"device_uuid": "GPU-parent", "trial": trial})
    assert _of_this_host(parents).device_uuid == "GPU-parent"  # without a template it is that host
    assert _of_this_host(parents.model_copy(update={"template": "srun"})).device_uuid == "GPU-here"


@pytest.mark.parametrize(
    ("limit", "error", "status"),
    [
        (2**30, ImportError("libblas.so: failed to map segment from shared object"), "out_of_memory"),
        (2**30, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "out_of_memory"),
        (2**30, ImportError("there is no such module"), "failed"),
        (None, ImportError("libblas.so: failed to map segment from shared object"), "failed"),
    ],
)
def test_a_library_that_does_not_load_within_the_bound_ran_out_of_memory(
    spec: TrialSpec, monkeypatch: pytest.MonkeyPatch, limit: int | None, error: Exception, status: str
) -> None:
    def run(*_: object) -> None:
        try:
            raise error
        except Exception as first:
            raise ImportError("the engine could not be loaded") from first

    monkeypatch.setattr("inferometer.worker.run_speed", run)
    bounded = spec.model_copy(update={"limits": spec.limits.model_copy(update={"memory_bytes": limit})})
    outcome, _ = run_trial(bounded, lambda done, of: None, machine_probe())
    assert outcome.status == status
    assert outcome.reason == "ImportError: the engine could not be loaded"

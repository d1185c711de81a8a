"""SIGTERM, as batch systems send it before they take a machine away, and a second run on one folder."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import yaml

from inferometer.cli.main import INTERRUPTED
from inferometer.errors import StoreError
from inferometer.records import FINAL_STATUSES
from inferometer.store import read_store
from tests.faults.conftest import leftovers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("faulty")]
alone_and_together = pytest.mark.parametrize("ranks", [[1], [1, 2]], ids=["alone", "ranks"])


def study_file(path: Path, model: Path, ranks: list[int]) -> Path:
    """Trials of two seconds."""
    content = {
        "name": "preempted",
        "models": [str(model)],
        "engines": ["faulty"],
        "batches": [1],
        "ranks": ranks,
        "launch": {"oversubscribe": True},
        "repeats": 1,
        "kinds": ["throughput"],
        "measure": {"max_s": 2, "interval": 1e-6, "warmup_max_s": 0.1},
    }
    path.write_text(yaml.safe_dump(content))
    return path


def begun(study: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "inferometer", "run", str(study), "--out", str(study.parent / "out")]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def measuring(out: Path, ranks: list[int]) -> bool:
    """Whether the largest trial of the study runs."""
    notes = list((out / "work").glob("rank-*.json" if len(ranks) > 1 else "worker.json"))
    return len(notes) == max(ranks)


def begun_and_measuring(study: Path, ranks: list[int]) -> subprocess.Popen[str]:
    run = begun(study)
    wait_for(lambda: run.poll() is not None or measuring(study.parent / "out", ranks))
    assert run.poll() is None
    time.sleep(1.0)  # the worker loads the model, and begins
    return run


def check_interrupted(run: subprocess.Popen[str], out: Path) -> None:
    _, said = run.communicate(timeout=60)
    assert run.returncode == INTERRUPTED, said
    assert said == (
        f"inferometer: interrupted: what was finished is kept in {out}, the same command goes on from there\n"
    )
    last = read_store(out).lines[-1]
    assert (last.status, last.reason) == ("interrupted", "the study was interrupted")
    assert last.id not in read_store(out).final_ids
    wait_for(lambda: leftovers(out) == [], 10)


def check_resumed(study: Path, trials: int) -> None:
    run = begun(study)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 0, said
    final = [
        record.id for record in read_store(study.parent / "out").lines if record.status in FINAL_STATUSES
    ]
    assert len(final) == len(set(final)) == trials


@alone_and_together
def test_a_study_that_is_told_to_go_ends_in_good_order_and_goes_on(
    mini: Path, tmp_path: Path, ranks: list[int], no_mpi: str | None
) -> None:
    if no_mpi and len(ranks) > 1:
        pytest.skip(no_mpi)
    study, out = study_file(tmp_path / "study.yaml", mini, ranks), tmp_path / "out"
    run = begun_and_measuring(study, ranks)
    run.send_signal(signal.SIGTERM)
    run.send_signal(signal.SIGTERM)  # a second time, from the script around it
    check_interrupted(run, out)
    check_resumed(study, trials=sum(ranks))


@alone_and_together
def test_workers_that_are_told_before_the_study_are_no_failures(
    mini: Path, tmp_path: Path, ranks: list[int], no_mpi: str | None
) -> None:
    if no_mpi and len(ranks) > 1:
        pytest.skip(no_mpi)
    study, out = study_file(tmp_path / "study.yaml", mini, ranks), tmp_path / "out"
    run = begun_and_measuring(study, ranks)
    for process in psutil.Process(run.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a launcher ends its ranks itself
            process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    run.send_signal(signal.SIGTERM)
    check_interrupted(run, out)


def test_a_second_run_on_the_folder_is_refused_and_the_first_goes_on(mini: Path, tmp_path: Path) -> None:
    study, out = study_file(tmp_path / "study.yaml", mini, [1]), tmp_path / "out"
    first = begun_and_measuring(study, [1])
    second = begun(study)
    _, said = second.communicate(timeout=60)
    assert second.returncode == StoreError.exit_code
    assert said == f"inferometer: {out}: another run is writing there: wait, or give another --out\n"
    _, said = first.communicate(timeout=60)
    assert first.returncode == 0, said
    assert [record.status for record in read_store(out).lines] == ["ok"]

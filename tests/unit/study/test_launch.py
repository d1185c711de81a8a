"""Processes that outlived what launched them, and their half-written files."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferometer.environment.process import process_start
from inferometer.records import Outcome
from inferometer.study import launch
from inferometer.study.launch import end_leftovers
from inferometer.study.notes import PROCESS, note_process
from inferometer.trials.spec import TrialSpec
from tests.unit.study.watcher import Remembering
from tests.unit.test_worker import spec

__all__ = ["spec"]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that leads a group of its own, and does nothing for long."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as started:
        yield started
        started.kill()


@pytest.mark.parametrize("place", ["worker.json", f"sampler-1/{PROCESS}"])
def test_what_was_left_is_ended_even_if_it_is_stopped(
    tmp_path: Path, process: subprocess.Popen[bytes], place: str
) -> None:
    note = tmp_path / "work" / place
    note.parent.mkdir(parents=True)
    note_process(note, process.pid)
    process.send_signal(signal.SIGSTOP)
    end_leftovers(tmp_path)
    assert process_start(process.pid) is None
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ({}, True),
        ({"host": "another"}, False),
        ({"start": "another-boot 1234"}, False),
        ({"start": None}, False),
    ],
)
def test_only_the_rank_that_was_written_down_is_ended(
    tmp_path: Path, process: subprocess.Popen[bytes], change: dict[str, str | None], ends: bool
) -> None:
    note = tmp_path / "work" / "rank-0.json"
    note.parent.mkdir()
    note_process(note, process.pid)
    content = json.loads(note.read_text())
    note.write_text(json.dumps(content | {"host": socket.gethostname()} | change))
    end_leftovers(tmp_path)
    assert (process.poll() is not None) == ends
    assert not note.exists()


def test_a_process_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    note_process(tmp_path / "work" / "worker.json", gone.pid)
    assert not (tmp_path / "work" / "worker.json").exists()
    (tmp_path / "work" / "worker.json").write_text('{"pid": ')
    end_leftovers(tmp_path)


def test_drafts_go_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    kept = ["study.json", "report.html", ".lock", ".gitignore", "models/m.onnx", "sidecars/a.npz"]
    drafts = [".study.json.1", ".report.html.22", "models/.m.onnx.3", "sidecars/.a.npz.4"]
    for name in kept + drafts:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    end_leftovers(tmp_path)
    assert sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    ) == sorted(kept)
    assert list((tmp_path / "work").iterdir()) == []


def test_of_a_launcher_s_words_those_of_a_rank_are_told_and_slurm_s_only_if_there_are_no_others() -> None:
    slurm = "srun: error: node1: task 0: Killed\nslurmstepd: error: *** STEP 5.0 ON node1 CANCELLED ***"
    assert launch._lines(f"-----\nno memory\n{slurm}\n\n") == ["no memory"]
    assert launch._lines(slurm) == slurm.splitlines()


def test_ranks_end_by_themselves_after_their_last_trial(
    spec: TrialSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPI gives back shared memory at its own end: what is killed right after its result leaves it there."""
    ended = tmp_path / "ended"
    script = f"import sys, time, pathlib; time.sleep(0.5); pathlib.Path({str(ended)!r}).touch()"
    monkeypatch.setattr(launch, "launch_command", lambda *_: [sys.executable, "-c", script])
    monkeypatch.setattr(
        launch, "_watch", lambda worker, spec, *_: launch.Finished(spec, Outcome(status="ok"), 1.0)
    )
    (Path(spec.folder) / "work").mkdir(exist_ok=True)
    two = spec.model_copy(update={"trial": spec.trial.model_copy(update={"ranks": 2})})
    list(launch.run_job([two], Remembering()))
    assert ended.exists()

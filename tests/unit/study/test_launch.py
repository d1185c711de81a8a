"""Processes that outlived what launched them, and their half-written files."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferometer.environment.process import process_start
from inferometer.study.launch import PROCESS, end_leftovers, note_process


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

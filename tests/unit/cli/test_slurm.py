"""``inferometer slurm``: the script it writes runs a study, and survives being told to go."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from inferometer.store import read_store
from tests.unit.cli.command import inferometer

STUDY = """\
name: s
models: [./mini.onnx]
engines: ["null"]
batches: [1]
repeats: {repeats}
kinds: [throughput]
measure: {{max_s: {seconds}, warmup_max_s: 0.05, interval: 0.0001}}
"""


def written(
    folder: Path, capsys: pytest.CaptureFixture[str], *, repeats: int = 1, seconds: float = 0.05
) -> Path:
    """The script of a study that lies in ``folder``, run from elsewhere."""
    (folder / "study.yaml").write_text(STUDY.format(repeats=repeats, seconds=seconds))
    script = folder / "job.sh"
    words = ("--out", folder / "out", "--time", "10m", "-o", script)
    done = inferometer(capsys, "slurm", folder / "study.yaml", *words)
    assert (done.code, done.out, done.err) == (0, "", f"sbatch {script}\n")
    return script


def statuses(out: Path) -> list[str]:
    return [record.status for record in read_store(out).records]


@pytest.mark.usefixtures("mini")
def test_the_script_runs_the_study_wherever_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = written(tmp_path, capsys)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(["bash", script], cwd=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert statuses(tmp_path / "out") == ["ok"]
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.usefixtures("mini")
@pytest.mark.parametrize("to_all", [False, True], ids=["the shell alone", "every process"])
def test_a_signal_ends_it_in_good_order_and_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], to_all: bool
) -> None:
    """Slurm signals the shell before the end; where processes are not tracked by cgroups, all of them."""
    out = tmp_path / "out"
    script = written(tmp_path, capsys, seconds=30.0)
    job = subprocess.Popen(
        ["bash", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + 30
    while not (out / "work" / "worker.json").exists() and time.monotonic() < until:
        time.sleep(0.02)
    (os.killpg if to_all else os.kill)(job.pid, signal.SIGTERM)
    _, said = job.communicate(timeout=30)
    assert job.returncode == 130, said
    assert "Traceback" not in said
    assert "interrupted: what was finished is kept" in said
    lines = (out / "records.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert '"interrupted"' in lines[0]
    script = written(tmp_path, capsys)
    assert subprocess.run(["bash", script], capture_output=True, check=False).returncode == 0
    assert statuses(out) == ["ok"]


def test_to_standard_output(tmp_path: Path, mini: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, capsys)
    words = ("--out", tmp_path / "out", "--time", "10m")
    done = inferometer(capsys, "slurm", tmp_path / "study.yaml", *words)
    assert (done.code, done.err) == (0, "")
    assert done.out == (tmp_path / "job.sh").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--time", "90"), "--time: '90' is no time limit"),
        (("--nodes", "2"), "--nodes 2: the study has 1 ranks at most"),
        (("--partition", "a;b"), "slurm: partition: "),
        (("-o", "study.yaml"), "would overwrite what is read"),
    ],
)
def test_one_line_for_what_is_wrong(
    words: tuple[str, str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(STUDY.format(repeats=1, seconds=1))
    done = inferometer(capsys, "slurm", "study.yaml", "--out", "out", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1

"""A full disk ends a study, and is no outcome of the trials that met it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inferometer.config import Study, parse
from inferometer.errors import StoreError
from inferometer.store import read_store
from inferometer.study.run import run_study
from inferometer.trials.spec import TrialSpec
from tests.faults.conftest import Disk
from tests.unit.study.watcher import Remembering

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("faulty")]
A_RECORD_BYTES = 100_000  # room for a record's line, and for little else


class Filling(Remembering):
    """Fills the disk when a trial of so many ranks begins."""

    def __init__(self, disk: Disk, ranks: int, but_bytes: int = 0) -> None:
        super().__init__()
        self._disk, self._ranks, self._but_bytes = disk, ranks, but_bytes

    def started(self, spec: TrialSpec) -> None:
        super().started(spec)
        if spec.trial.ranks == self._ranks:
            self._disk.fill(self._but_bytes)


def study(model: Path, **changes: Any) -> Study:
    content = {
        "name": "full",
        "models": [str(model)],
        "engines": ["faulty"],
        "batches": [1],
        "repeats": 1,
        "kinds": ["throughput"],
        "launch": {"oversubscribe": True},
        "measure": {"max_s": 0.05, "warmup_max_s": 0.05},
    }
    return parse(Study, content | changes, "test")


@pytest.mark.parametrize(
    ("batch", "but_bytes", "after"),
    [(1, 0, "ok"), (14, A_RECORD_BYTES, "failed"), (18, A_RECORD_BYTES, "failed")],
    ids=["cannot write its result", "aborts for its own reasons", "exits for its own reasons"],
)
def test_nothing_is_final_that_a_worker_left_on_a_full_disk(
    mini: Path, small_disk: Disk, batch: int, but_bytes: int, after: str
) -> None:
    content, out = study(mini, batches=[batch]), small_disk.place / "out"
    with pytest.raises(StoreError, match=str(small_disk.place)):
        run_study(content, out, Filling(small_disk, 1, but_bytes))
    assert read_store(out).lines == ()
    small_disk.empty()
    assert [record.status for record in run_study(content, out, Remembering()).records] == [after]


def test_ranks_that_cannot_write_end_the_study(mini: Path, small_disk: Disk, no_mpi: str | None) -> None:
    if no_mpi:
        pytest.skip(no_mpi)
    content, out = study(mini, ranks=[1, 2]), small_disk.place / "out"
    with pytest.raises(StoreError, match=str(small_disk.place)):
        run_study(content, out, Filling(small_disk, 2))
    assert {record.trial.ranks for record in read_store(out).lines} <= {1}
    small_disk.empty()
    records = run_study(content, out, Remembering()).records
    assert [record.status for record in records] == ["ok"] * 3


def test_the_command_says_so_in_one_line(mini: Path, small_disk: Disk) -> None:
    (small_disk.place / "out").mkdir()
    small_disk.fill()
    file = mini.parent / "study.yaml"
    file.write_text(f"models: [{mini}]\nengines: ['null']\nname: full\n")
    command = [sys.executable, "-m", "inferometer", "run", str(file), "--out", str(small_disk.place / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == StoreError.exit_code
    assert done.stderr.startswith(f"inferometer: {small_disk.place}")
    assert done.stderr.endswith("No space left on device\n")
    assert done.stderr.count("\n") == 1
    with Path("/dev/full").open("w") as full:  # said where nothing can be said either
        silent = subprocess.run(command, stdout=full, stderr=full, check=False)
    assert silent.returncode == StoreError.exit_code

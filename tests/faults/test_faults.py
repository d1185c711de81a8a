"""A study of 200 trials under faults: killed parents, workers and ranks, stopped ones, a full disk.

After every fault, and again and again between them, the store reads; in the end every trial has one final
record. The seed is printed; INFEROMETER_FAULT_SEED sets it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
import yaml

from inferometer.records import FINAL_STATUSES
from inferometer.store import read_store
from tests.faults.conftest import Disk, leftovers
from tests.faults.storm import RANKS, TRIAL_S, Storm

pytestmark = pytest.mark.slow
TRIALS = 200
BATCHES = list(range(1, 18))
FAULTS = {"kill parent": 5, "end parent": 3, "full disk": 4, "kill worker": 4, "stop worker": 2} | {
    "kill rank": 3,
    "stop rank": 2,
}


def study_file(path: Path, model: Path, ranks: list[int], repeats: int) -> Path:
    content = {
        "name": "faults",
        "models": [str(model)],
        "engines": ["null"],
        "batches": BATCHES,
        "ranks": ranks,
        "launch": {"oversubscribe": True},
        "repeats": repeats,
        "kinds": ["throughput"],
        "isolation": "series",
        "measure": {"max_s": 0.01, "warmup_max_s": 0.01},
        "limits": {"trial_s": TRIAL_S},
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_every_trial_ends_once_whatever_happens(
    mini: Path, tmp_path: Path, disk: Disk, no_mpi: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("INFEROMETER_FAULT_SEED", random.randrange(10**6)))
    ranks, crews = ([1], 1) if no_mpi else ([1, 2], 3)  # each of two places alone, and both
    repeats = -(-TRIALS // (crews * len(BATCHES)))
    without = {*(RANKS if no_mpi else ()), *(() if disk.small else ("full disk",))}
    faults = {kind: count for kind, count in FAULTS.items() if kind not in without}
    study = study_file(tmp_path / "study.yaml", mini, ranks, repeats)
    storm = Storm(seed, study, disk, faults)
    print(f"seed {seed}")  # shown where the test fails, also under pytest-xdist
    with capsys.disabled():
        print(f"\nseed {seed}; without {', '.join(sorted(without)) or 'nothing'}", end="")
        print(f": {no_mpi}" if no_mpi else "", flush=True)
    storm.run()

    contents = read_store(storm.out)
    statuses = Counter(record.status for record in contents.lines)
    with capsys.disabled():
        print(f"faults {dict(storm.counts)}, exit codes {dict(storm.codes)}, records {dict(statuses)}")
    assert set(storm.counts) == set(faults)
    final = Counter(record.id for record in contents.lines if record.status in FINAL_STATUSES)
    assert set(final.values()) == {1}
    points = {
        (record.trial.batch, record.trial.ranks, record.trial.place, record.trial.repeat)
        for record in contents.records
    }
    assert len(points) == len(final) == crews * len(BATCHES) * repeats
    for record in contents.records:
        hit = {"failed": ("ended by SIGKILL", "no result of ranks"), "timeout": ("limits.trial_s",)}
        if record.status != "ok":
            expected = hit.get(record.status, ("timed out",))
            assert any(words in (record.reason or "") for words in expected), record.reason
        assert all((storm.out / sidecar.path).exists() for sidecar in record.sidecars)
    # At most, since what has just left its result may be hit as well.
    assert statuses["failed"] <= storm.counts["kill worker"] + storm.counts["kill rank"]
    assert statuses["interrupted"] <= storm.counts["end parent"]
    drafts = [path for path in storm.out.rglob(".*") if path.name != ".lock"]
    assert drafts == []
    assert leftovers(storm.out) == []

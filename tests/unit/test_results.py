"""The records in ``results/`` are whole, and read by this version."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from inferometer.store import read_store

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("*/records.jsonl"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_record_reads_and_its_sidecars_are_those_it_names(folder: Path) -> None:
    contents = read_store(folder)
    assert contents.fragments == 0
    assert contents.records
    for record in contents.records:
        assert record.status == "ok"
        for sidecar in record.sidecars:
            assert hashlib.sha256((folder / sidecar.path).read_bytes()).hexdigest() == sidecar.sha256


def test_the_watts_of_one_h200_are_what_the_documentation_says() -> None:
    found = {record.trial.precision: record for record in read_store(RESULTS / "h200-power").records}
    for precision, per_watt, load_w, idle_w in (
        ("tf32", "29.2", "693", "80.9"),
        ("fp16", "50.1", "692", "80.7"),
    ):
        (power,) = found[precision].power or ()
        assert f"{power.images_per_s_per_w:.1f}" == per_watt
        assert (f"{power.load_w:.0f}", f"{power.idle_bare_w:.1f}") == (load_w, idle_w)
        (beside,) = power.beside
        assert abs(beside.disagreement) < 0.03

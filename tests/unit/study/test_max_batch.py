"""The largest batch that runs, on an engine whose memory ends above batch 35."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferometer.config import Study, parse
from inferometer.store import read_store
from inferometer.study.max_batch import LARGEST_TRIED, MaxBatch, find_max_batches, search
from inferometer.study.run import run_study
from tests.unit.cli.command import Ended, inferometer
from tests.unit.study.watcher import Remembering

Tried = list[tuple[int | None, str]]


def searched(largest: int, low: int, high: int | None = None) -> tuple[tuple[int, int | None], list[int]]:
    tried: list[int] = []

    def runs(batch: int) -> bool:
        tried.append(batch)
        return batch <= largest

    return search(runs, low, high), tried


def test_it_doubles_then_halves() -> None:
    assert searched(35, 8) == ((35, 36), [16, 32, 64, 48, 40, 36, 34, 35])
    assert searched(8, 8) == ((8, 9), [16, 12, 10, 9])


def test_it_goes_down_from_what_does_not_run() -> None:
    assert searched(3, 0, 8) == ((3, 4), [4, 2, 3])
    assert searched(0, 0, 8) == ((0, 1), [4, 2, 1])


def test_it_goes_no_closer_than_a_64th() -> None:
    assert searched(5000, 4096) == ((4992, 5056), [8192, 6144, 5120, 4608, 4864, 4992, 5056])


@pytest.mark.parametrize("largest", [1, 7, 63, 64, 65, 1000, 99_999])
@pytest.mark.parametrize("low", [0, 1])
def test_what_it_finds_is_right(largest: int, low: int) -> None:
    (found, beyond), tried = searched(largest, low)
    assert beyond is not None
    assert found <= largest < beyond
    assert beyond - found <= max(1, found // 64)
    assert len(tried) == len(set(tried))


def test_it_ends_at_the_largest_that_is_tried() -> None:
    (found, beyond), tried = searched(LARGEST_TRIED + 1, LARGEST_TRIED // 2 + 1)
    assert (found, beyond, tried) == (LARGEST_TRIED, None, [LARGEST_TRIED])
    assert searched(LARGEST_TRIED + 9, LARGEST_TRIED + 5) == ((LARGEST_TRIED + 5, None), [])


def study(model: Path, engine: str, **changes: Any) -> Study:
    content = {
        "models": [str(model)],
        "engines": [engine],
        "repeats": 1,
        "measure": {"max_s": 0.05, "warmup_max_s": 0.05},
        "kinds": ["throughput"],
    }
    return parse(Study, content | changes, "test")


def found(content: Study, folder: Path) -> tuple[tuple[MaxBatch, ...], Tried]:
    known = run_study(content, folder, Remembering()).records
    largest, tried = find_max_batches(content, folder, Remembering(), known)
    kept = {record.id for record in read_store(folder).records}
    assert kept == {record.id for record in [*known, *tried]}
    return largest, [(record.trial.batch, record.status) for record in tried]


@pytest.mark.usefixtures("faulty")
def test_attempts_are_trials_with_their_records_and_are_not_run_again(mini: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    content = study(mini, "faulty", batches=[1, 28])
    (largest,), tried = found(content, out)
    assert largest.beyond is not None
    assert (largest.precision, largest.batch, largest.beyond.trial.batch) == ("fp32", 35, 36)
    assert (largest.beyond.status, largest.beyond.reason) == ("out_of_memory", "35 fit, and no more")
    full = "out_of_memory"
    assert tried == [(56, full), (42, full), (35, "ok"), (38, full), (36, full)]
    watcher = Remembering()
    find_max_batches(content, out, watcher, read_store(out).records)
    assert watcher.begun == []


@pytest.mark.usefixtures("faulty")
def test_it_searches_below_what_ran_out_of_memory(mini: Path, tmp_path: Path) -> None:
    (largest,), tried = found(study(mini, "faulty", batches=[70]), tmp_path / "out")
    assert largest.batch == 35
    assert tried[0] == (35, "ok")


@pytest.mark.usefixtures("faulty")
def test_it_does_not_search_below_what_failed_otherwise(mini: Path, tmp_path: Path) -> None:
    (largest,), tried = found(study(mini, "faulty", batches=[17]), tmp_path / "out")
    assert tried == []
    assert largest.batch is None
    assert largest.beyond is not None
    assert (largest.beyond.trial.batch, largest.beyond.status) == (17, "failed")


@pytest.mark.usefixtures("faulty")
def test_bench_tells_it(mini: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def bench(*words: str) -> Ended:
        common = ("--engine", "faulty", "--batch", "34", "--repeats", 1, "--seconds", "0.05")
        return inferometer(
            capsys, "bench", mini, *common, "--find-max-batch", "--out", tmp_path / "out", *words
        )

    told = bench("--json")
    assert told.code == 0, told.err
    beyond = {"batch": 36, "status": "out_of_memory", "reason": "35 fit, and no more"}
    assert told.document["max_batch"] == [{"precision": "fp32", "batch": 35, "beyond": beyond}]
    batches = {
        one["trial"]["batch"] for one in told.document["records"] if one["trial"]["kind"] == "throughput"
    }
    assert batches == {34, 68, 51, 42, 38, 36, 35}
    said = " ".join(bench().out.split())
    assert "fp32: batch 35 runs, 36 does not (out_of_memory: 35 fit, and no more)." in said


def test_memory_bounds_what_a_trial_may_take(
    mini: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Input of 1000 times 3 x 16 x 16 floats, 3 MB, fits; of 500,000 times as many does not."""
    common = ("--engine", "null", "--repeats", 1, "--seconds", "0.05", "--memory", "600MB", "--json")
    told = inferometer(capsys, "bench", mini, "--batch", "1000,500000", *common)
    assert told.code == 0, told.err
    assert "max_batch" not in told.document
    statuses = {
        one["trial"]["batch"]: one["status"]
        for one in told.document["records"]
        if one["trial"]["kind"] == "throughput"
    }
    assert statuses == {1000: "ok", 500_000: "out_of_memory"}

"""Studies on engines that compute nothing: what is run, recorded, resumed and ruled out."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from inferometer.config import Study, parse
from inferometer.errors import StoreError
from inferometer.records import Record
from inferometer.store import read_store
from inferometer.study.run import StudyRun, run_study
from tests.unit.study.watcher import Remembering

QUICK = {"max_s": 0.05, "warmup_max_s": 0.05}


def study(model: Path, engine: str = "null", **changes: Any) -> Study:
    content = {
        "name": "s",
        "models": [str(model)],
        "engines": [engine],
        "batches": [1, 2],
        "repeats": 2,
        "measure": QUICK,
        "kinds": ["throughput"],
    }
    return parse(Study, content | changes, "test")


def run(content: Study, folder: Path, **options: Any) -> tuple[StudyRun, Remembering]:
    watcher = Remembering()
    return run_study(content, folder, watcher, **options), watcher


def points(records: tuple[Record, ...]) -> list[tuple[int | None, int, str]]:
    return [(record.trial.batch, record.trial.repeat, record.status) for record in records]


def test_every_point_gets_its_repeats_interleaved_and_nothing_runs_twice(mini: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, watcher = run(study(mini), out)
    assert points(first.records) == [(1, 0, "ok"), (2, 0, "ok"), (1, 1, "ok"), (2, 1, "ok")]
    assert first.remaining == 0
    assert watcher.totals[-1] == (4, 0)
    for record in first.records:
        assert record.throughput is not None
        assert record.throughput.images > 0
        assert record.environment is not None
        assert record.probe is not None
        assert set(record.probe) == {"before", "after"}
        assert {item.path.rsplit(".", 2)[1] for item in record.sidecars} >= {"stamps"}
    lines = (out / "records.jsonl").read_bytes()
    again, watcher = run(study(mini), out)
    assert watcher.begun == []
    assert again.records == first.records
    assert (out / "records.jsonl").read_bytes() == lines


def test_a_grown_study_runs_only_what_is_new(mini: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(study(mini, repeats=1), out)
    grown, watcher = run(study(mini, repeats=1, batches=[1, 2, 4]), out)
    assert len(watcher.begun) == 1
    assert points(grown.records) == [(1, 0, "ok"), (2, 0, "ok"), (4, 0, "ok")]


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("isolation", ["trial", "series"])
def test_what_goes_wrong_is_recorded_and_the_study_ends(mini: Path, tmp_path: Path, isolation: str) -> None:
    content = study(
        mini,
        "faulty",
        batches=[1, 13, 14, 15, 16, 17, 18, 19],
        repeats=1,
        isolation=isolation,
        limits={"trial_s": 6.0},
    )
    outcome, _ = run(content, tmp_path / "out")
    found = {record.trial.batch: (record.status, record.reason) for record in outcome.records}
    assert found[1] == ("ok", None)
    assert found[13][0] == "failed"
    assert "SIGSEGV" in str(found[13][1])
    assert found[14][0] == "failed"
    assert "SIGABRT" in str(found[14][1])
    assert found[15] == ("timeout", "not done after 6 s (limits.trial_s)")
    assert found[16] == ("out_of_memory", "the pretended device is full")
    for batch in (17, 18, 19):
        assert found[batch] == ("skipped", "batch 16 ran out of memory")
    assert outcome.remaining == 0


@pytest.mark.usefixtures("faulty")
def test_a_fault_in_python_is_one_line_and_retry_supersedes_it(mini: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    content = study(mini, "faulty", batches=[1, 17, 18], repeats=1)
    outcome, _ = run(content, out)
    found = {record.trial.batch: (record.status, record.reason) for record in outcome.records}
    assert found[17] == ("failed", "ValueError: no reason at all")
    assert found[18] == ("failed", "the worker exited with 3")
    again, watcher = run(content, out, retry=["failed"])
    assert len(watcher.begun) == 2
    assert len(again.records) == 3
    assert len(read_store(out).lines) == 5


@pytest.mark.usefixtures("faulty")
def test_a_batch_that_ran_out_of_memory_is_not_tried_again_in_later_repeats(
    mini: Path, tmp_path: Path
) -> None:
    outcome, watcher = run(study(mini, "faulty", batches=[1, 16, 32], repeats=2), tmp_path / "out")
    assert points(outcome.records) == [
        (1, 0, "ok"),
        (16, 0, "out_of_memory"),
        (32, 0, "skipped"),
        (1, 1, "ok"),
        (16, 1, "skipped"),
        (32, 1, "skipped"),
    ]
    assert len(watcher.begun) == 3


def test_real_memory_exhaustion_is_a_result(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    content = parse(
        Study,
        {
            "name": "s",
            "models": ["googlenet"],
            "batches": [1, 2048, 4096],
            "repeats": 1,
            "kinds": ["throughput"],
            "measure": QUICK,
            "limits": {"memory_bytes": 1_000_000_000},
        },
        "test",
    )
    outcome, _ = run(content, tmp_path / "out")
    assert points(outcome.records) == [(1, 0, "ok"), (2048, 0, "out_of_memory"), (4096, 0, "skipped")]


def test_a_memory_limit_bounds_the_trial_and_not_the_probe(mini: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    content = study(
        mini, "onnxruntime", batches=[1, 400_000], repeats=1, limits={"memory_bytes": 250_000_000}
    )
    outcome, _ = run(content, tmp_path / "out")
    assert points(outcome.records) == [(1, 0, "ok"), (400_000, 0, "out_of_memory")]


def test_records_of_an_earlier_form_of_the_study_do_not_count(mini: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(study(mini, repeats=2), out)
    smaller, _ = run(study(mini, repeats=1), out)
    assert points(smaller.records) == [(1, 0, "ok"), (2, 0, "ok")]
    assert len(read_store(out).records) == 4


def test_an_unsupported_precision_is_a_result_with_its_reason(mini: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    outcome, watcher = run(
        study(mini, "onnxruntime", batches=[1], repeats=1, precisions=["fp32", "bf16"]), tmp_path / "out"
    )
    statuses = {record.trial.precision: (record.status, record.reason) for record in outcome.records}
    assert statuses["fp32"][0] == "ok"
    assert statuses["bf16"][0] == "unsupported"
    assert "no bf16 kernels" in str(statuses["bf16"][1])
    assert len(watcher.begun) == 1


def test_a_spent_budget_leaves_the_rest_for_later(mini: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, _ = run(study(mini), out, budget_s=1e-6)
    assert first.records == ()
    assert first.remaining == 4
    rest, _ = run(study(mini), out)
    assert rest.remaining == 0
    assert len(rest.records) == 4


def test_another_studys_folder_is_left_alone(mini: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(study(mini, repeats=1), out)
    before = sorted(path.name for path in out.iterdir())
    with pytest.raises(StoreError, match="belongs to the study 's', not 'other'"):
        run(study(mini, name="other"), out)
    assert sorted(path.name for path in out.iterdir()) == before


def _start_parent(tmp_path: Path, mini: Path, out: Path) -> subprocess.Popen[bytes]:
    yaml = tmp_path / "study.yaml"
    yaml.write_text(
        f"name: s\nmodels: [{mini}]\nengines: ['null']\nbatches: [1, 2, 4, 8]\nrepeats: 3\n"
        "kinds: [throughput]\nmeasure: {max_s: 0.3, interval: 0.0001, warmup_max_s: 0.05}\n"
    )
    command = [sys.executable, "-m", "inferometer", "run", str(yaml), "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _workers(out: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "inferometer.worker" in line and any(str(out) in word for word in line):
            found.append(process)
    return found


def _wait_for(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_parent_leaves_no_orphan_and_nothing_is_lost_or_repeated(
    mini: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    finished: dict[str, Record] = {}
    interrupted = 0
    for round_number in range(2):
        parent = _start_parent(tmp_path, mini, out)

        def enough(wanted: int = len(finished) + 2, running: Any = parent) -> bool:
            assert running.poll() is None, running.stderr.read().decode()
            if not (out / "records.jsonl").exists():
                return False
            contents = read_store(out)
            assert contents.fragments <= 1
            return len(contents.records) >= wanted and bool(_workers(out))

        _wait_for(enough)
        time.sleep(0.1 * round_number)
        parent.send_signal(number)
        assert parent.wait(30) == (130 if number == signal.SIGINT else -signal.SIGKILL)
        assert parent.stderr is not None
        said = parent.stderr.read().decode()
        parent.stderr.close()
        assert "Traceback" not in said
        if number == signal.SIGINT:
            assert said.startswith("inferometer: interrupted: what was finished is kept in ")
            assert said.count("\n") == 1
        _wait_for(lambda: not _workers(out), 10)
        now = read_store(out).final_ids
        assert finished.items() <= now.items()
        finished = now
        interrupted += read_store(out).lines[-1].status == "interrupted"
    # A signal that meets the moment between two trials interrupts none.
    assert number == signal.SIGKILL or interrupted
    last = _start_parent(tmp_path, mini, out)
    assert last.wait(120) == 0
    assert last.stderr is not None
    last.stderr.close()
    contents = read_store(out)
    final = [record for record in contents.lines if record.status != "interrupted"]
    assert len(final) == len({record.id for record in final}) == 12
    assert finished.items() <= contents.final_ids.items()

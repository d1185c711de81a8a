"""Trials of several ranks over real MPI: Open MPI and MPICH, one host and two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from inferometer.config import Study, parse
from inferometer.demo.assets import extract
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import ConfigError, EngineError
from inferometer.records import Record
from inferometer.store import read_store
from inferometer.study.run import run_study
from tests.unit.study.watcher import Remembering

pytestmark = pytest.mark.slow
QUICK = {"max_s": 0.3, "warmup_max_s": 0.1}
two_cores = pytest.mark.skipif(usable_cores() < 2, reason="two ranks want two cores")


def study(model: Path, engine: str = "null", **changes: Any) -> Study:
    content = {
        "name": "scale",
        "models": [str(model)],
        "engines": [engine],
        "batches": [1],
        "ranks": [1, 2],
        "repeats": 1,
        "measure": QUICK,
        "kinds": ["throughput"],
    }
    return parse(Study, content | changes, "test")


def records_of(content: Study, folder: Path) -> tuple[Record, ...]:
    return run_study(content, folder, Remembering()).records


def crews(records: Sequence[Record]) -> Counter[tuple[int, int | None, str]]:
    return Counter((record.trial.ranks, record.trial.place, record.status) for record in records)


@two_cores
@pytest.mark.usefixtures("launcher")
def test_two_ranks_with_a_core_each(mini: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    records = records_of(study(mini, "onnxruntime", kinds=["throughput", "latency"]), tmp_path / "out")
    assert crews(records) == {(1, 0, "ok"): 2, (1, 1, "ok"): 2, (2, None, "ok"): 2}
    assert {record.config and record.config["options"]["threads"] for record in records} == {
        usable_cores() // 2
    }
    alone = {record.trial.place: record.ranks[0] for record in records if record.trial.ranks == 1}
    for record in records:
        if record.trial.ranks == 1:
            continue
        assert [one.rank for one in record.ranks] == [0, 1]
        assert [one.cores for one in record.ranks] == [alone[0].cores, alone[1].cores]
        assert len({one.cores for one in record.ranks}) == 2
        assert {one.clock_u_s for one in record.ranks} == {0.0}
        if record.throughput is not None:
            rates = [one.images_per_s or 0 for one in record.ranks]
            assert sum(rates) == pytest.approx(record.throughput.images_per_s)
            assert min(rates) > 0
            assert max(one.skew_s or 0 for one in record.ranks) < record.throughput.seconds
        else:
            assert record.latency_s is not None
            n = [len(submitted) for submitted, _ in stamps(tmp_path / "out", record)]
            assert record.latency_s.n == sum(n)
            assert all(one.median_latency_s for one in record.ranks)


def stamps(folder: Path, record: Record) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """The timed submissions and completions of each rank."""
    found = []
    for sidecar in record.sidecars:
        if sidecar.path.endswith(".stamps.npz"):
            with np.load(folder / sidecar.path) as data:
                timed = data["segment"] >= data["warmup_segments"]
                found.append((data["submitted_ns"][timed], data["completed_ns"][timed]))
    return found


@pytest.mark.usefixtures("launcher")
def test_eight_oversubscribed_ranks_lose_and_repeat_nothing(mini: Path, tmp_path: Path) -> None:
    content = study(mini, ranks=[1, 8], batches=[1, 2, 4], isolation="series", launch={"oversubscribe": True})
    records = records_of(content, tmp_path / "out")
    assert crews(records) == {**{(1, place, "ok"): 3 for place in range(8)}, (8, None, "ok"): 3}
    lines = read_store(tmp_path / "out").lines
    assert Counter(line.id for line in lines) == Counter(record.id for record in records)
    for record in records:
        if record.trial.ranks == 1:
            continue
        assert record.throughput is not None
        assert record.trial.batch is not None
        assert [one.rank for one in record.ranks] == list(range(8))
        by_rank = stamps(tmp_path / "out", record)
        assert len(by_rank) == 8
        every = sum(len(completed) for _, completed in by_rank) * record.trial.batch
        assert 0 < record.throughput.images <= every
        for submitted, completed in by_rank:
            assert len(submitted) == len(completed)
            assert (np.diff(completed) >= 0).all()
            assert (completed >= submitted).all()
    again = run_study(content, tmp_path / "out", Remembering())
    assert again.run == 0


@pytest.mark.usefixtures("launcher", "faulty")
def test_one_rank_that_fails_ends_the_trial_and_not_the_study(mini: Path, tmp_path: Path) -> None:
    content = study(
        mini, "faulty", batches=[1, 21, 22, 23], isolation="series", launch={"oversubscribe": True}
    )
    records = records_of(content, tmp_path / "out")
    found = {record.trial.batch: record for record in records if record.trial.ranks == 2}
    assert {batch: record.status for batch, record in found.items()} == {
        1: "ok",
        21: "out_of_memory",
        22: "skipped",
        23: "skipped",
    }
    assert found[21].reason == "rank 1: the pretended device is full"
    assert crews(records)[1, 1, "ok"] == 4


@pytest.mark.usefixtures("launcher", "faulty")
def test_a_killed_rank_is_recorded_and_the_study_goes_on(mini: Path, tmp_path: Path) -> None:
    content = study(mini, "faulty", batches=[1, 22, 23], launch={"oversubscribe": True})
    records = records_of(content, tmp_path / "out")
    found = {record.trial.batch: record for record in records if record.trial.ranks == 2}
    assert {batch: record.status for batch, record in found.items()} == {1: "ok", 22: "failed", 23: "ok"}
    assert (found[22].reason or "").startswith("no result of ranks 0, 1; the launcher exited with")


@pytest.mark.usefixtures("faulty")
def test_two_hosts_and_one_loses_its_rank(mini: Path, tmp_path: Path, two_hosts: str) -> None:
    content = study(
        mini, "faulty", batches=[1, 22, 23], launch={"template": two_hosts, "oversubscribe": True}
    )
    records = records_of(content, tmp_path / "out")
    found = {record.trial.batch: record for record in records if record.trial.ranks == 2}
    assert {batch: record.status for batch, record in found.items()} == {1: "ok", 22: "failed", 23: "ok"}
    for record in (found[1], found[23]):
        assert [one.host for one in record.ranks] == ["node-a", "node-b"]
        first, second = record.ranks
        assert (first.clock_offset_s, first.clock_u_s) == (0, 0)
        assert 0 < second.clock_u_s < 0.1
        assert abs(second.clock_offset_s) <= second.clock_u_s  # it is one clock in truth
    alone = {record.trial.place: record for record in records if record.trial.ranks == 1}
    assert [alone[place].ranks[0].host for place in (0, 1)] == ["node-a", "node-b"]


@two_cores
@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize("images", [None, 23])
def test_accuracy_over_two_ranks_is_that_of_one(tmp_path: Path, images: int | None) -> None:
    pytest.importorskip("onnxruntime")
    digits = extract(tmp_path / "digits")
    broken = sorted(path for path in Path(digits.images).rglob("*.png"))[5]
    broken.write_bytes(b"no picture")
    entry = {"model": str(digits.model), "preprocess": str(digits.preprocess)}
    found = {}
    for ranks in (1, 2):
        content = study(
            tmp_path,
            "onnxruntime",
            models=[entry],
            ranks=[ranks],
            kinds=[],
            threads=1,
            accuracy={"data": str(digits.images), "images": images},
        )
        (record,) = records_of(content, tmp_path / f"out{ranks}")
        (sidecar,) = (one for one in record.sidecars if one.path.endswith(".top5.npz"))
        found[ranks] = (record.accuracy, (tmp_path / f"out{ranks}" / sidecar.path).read_bytes())
        assert record.trial.ranks == ranks
    assert found[1][0] is not None
    assert found[1] == found[2]


def test_more_ranks_than_cores_are_refused_before_any_is_launched(
    mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferometer.study.resolve.check_launcher", None)
    most = usable_cores() + 1
    with pytest.raises(ConfigError, match=f"{most} ranks want {most} cores, and there are {most - 1}"):
        records_of(study(mini, ranks=[1, most]), tmp_path / "out")
    assert not (tmp_path / "out" / "records.jsonl").exists()


def test_a_launcher_of_another_mpi_is_named_before_any_trial(mini: Path, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    script = tmp_path / "launch"
    script.write_text('#!/bin/sh\nshift\n"$@" & "$@"; code=$?; wait; exit $code\n')  # two that are alone
    script.chmod(0o755)
    with pytest.raises(EngineError, match=r"sees 1|does not load"):
        records_of(study(mini, launch={"template": f"{script} {{ranks}} {{command}}"}), tmp_path / "out")


def test_a_launcher_that_is_not_there_is_named(mini: Path, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    with pytest.raises(EngineError, match="there is no 'nosuchlauncher' to launch ranks with"):
        records_of(study(mini, launch={"template": "nosuchlauncher {ranks} {command}"}), tmp_path / "out")


def test_a_launcher_that_starts_nothing_is_named(mini: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"true: of 2 ranks 0 were started: is launch\.template right"):
        records_of(study(mini, launch={"template": "true {ranks} {command}"}), tmp_path / "out")


@pytest.mark.usefixtures("launcher")
def test_ranks_on_images_have_their_own(mini: Path, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(6):
        Image.new("RGB", (16, 16), (number,) * 3).save(pictures / f"{number}.png")
    content = study(
        mini,
        models=[{"model": str(mini), "preprocess": "raw"}],
        input=["synthetic", "images"],
        images={"data": str(pictures)},
        launch={"oversubscribe": True},
    )
    records = records_of(content, tmp_path / "out")
    assert crews(records) == {(1, 0, "ok"): 2, (1, 1, "ok"): 2, (2, None, "ok"): 2}
    fed = {record.trial.ranks: record.feeding for record in records if record.feeding is not None}
    own = max(1, usable_cores() // 2)  # threads for the processors of one rank, alone as in company
    assert {ranks: (one.images, one.workers) for ranks, one in fed.items()} == {1: (6, own), 2: (6, own)}
    assert all(one.images_per_s and one.bottleneck == "images" for one in fed.values())

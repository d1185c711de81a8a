"""Trials that MLPerf's LoadGen drives: what it is asked to do, what is kept, and what goes wrong."""

from __future__ import annotations

import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from inferometer.config import Study, parse
from inferometer.engines.null import NullSession
from inferometer.errors import ConfigError, MissingExtra, OutOfMemory
from inferometer.records import LoadGenResult
from inferometer.study.plan import Planned, plan_trials
from inferometer.study.resolve import resolve
from inferometer.study.run import run_study
from inferometer.trials.loadgen import ask
from inferometer.trials.spec import TrialSpec
from tests.unit.cli.command import inferometer
from tests.unit.study.watcher import Remembering

needs_loadgen = pytest.mark.skipif(
    find_spec("mlperf_loadgen") is None,
    reason="the package mlcommons-loadgen (extra mlperf) is not installed",
)


def study(model: Path, scenario: str | None, **changes: Any) -> Study:
    content = {
        "models": [str(model)],
        "engines": ["null"],
        "batches": [8, 4],
        "repeats": 1,
        "kinds": ["loadgen"],
        "measure": {"max_s": 0.05, "warmup_max_s": 0.05},
        "loadgen": scenario and {"scenario": scenario},
    }
    return parse(Study, content | changes, "test")


def planned(content: Study, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Planned]:
    monkeypatch.setattr("inferometer.study.resolve.loadgen_library", lambda: None)
    return plan_trials(resolve(content, folder), {})


class Counting(NullSession):
    """Knows which slots are under way, and who drove it; breaks at the call of that number."""

    def __init__(self, model: Path, batch: int, in_flight: int = 1, breaks_at: int | None = None) -> None:
        super().__init__(model, batch)
        self.in_flight, self._breaks_at = in_flight, breaks_at
        self.calls, self.under_way, self.deepest = 0, set(), 0
        self.threads: set[int] = set()

    def submit(self, slot: int) -> None:
        self.calls += 1
        if self.calls == self._breaks_at:
            raise OutOfMemory("the pretended device is full")
        assert slot not in self.under_way
        self.under_way.add(slot)
        self.deepest = max(self.deepest, len(self.under_way))
        self.threads.add(threading.get_ident())
        if not self.ordered:
            time.sleep(0.0005)  # so that the slots' threads meet

    def wait(self, slot: int) -> None:
        self.under_way.remove(slot)


@needs_loadgen
@pytest.mark.parametrize("ordered", [True, False])
def test_offline_runs_whole_batches_on_every_slot_and_not_on_loadgens_thread(
    mini: Path, tmp_path: Path, ordered: bool
) -> None:
    session = Counting(mini, 8, in_flight=3)
    session.ordered = ordered
    found = ask(session, 8, "offline", 0.02, 10_000, tmp_path)
    assert isinstance(found, LoadGenResult)
    assert found.samples == 8 * session.calls == 8 * 270  # 1.35 times 10,000 calls/s for 0.02 s
    assert (session.under_way, session.deepest) == (set(), 3)
    assert session.threads.isdisjoint({threading.get_ident()})
    assert found.samples_per_s is not None
    assert found.samples_per_s > 0


@needs_loadgen
def test_a_single_stream_is_one_call_after_another(mini: Path, tmp_path: Path) -> None:
    session = Counting(mini, 1, in_flight=3)
    found = ask(session, 1, "single-stream", 0.02, 1000, tmp_path)
    assert found.queries == found.samples == session.calls >= 64
    assert session.deepest == 1


@needs_loadgen
@pytest.mark.parametrize("scenario", ["offline", "single-stream"])
def test_what_the_session_raises_ends_the_run_and_comes_out(
    mini: Path, tmp_path: Path, scenario: Any
) -> None:
    session = Counting(mini, 2, in_flight=2, breaks_at=20)
    with pytest.raises(OutOfMemory, match="the pretended device is full"):
        ask(session, 2, scenario, 0.05, 10_000, tmp_path)
    assert session.calls == 20
    again = ask(Counting(mini, 2, in_flight=2), 2, scenario, 0.02, 10_000, tmp_path)
    assert again.result_valid is not None  # LoadGen can be asked again in the same process


@needs_loadgen
def test_a_run_too_fast_for_what_was_expected_is_invalid_not_wrong(mini: Path, tmp_path: Path) -> None:
    found = ask(Counting(mini, 1), 1, "single-stream", 5.0, 20, tmp_path)
    assert not found.result_valid
    assert found.invalid_reason is not None
    assert found.invalid_reason.startswith("not met: min duration")


@needs_loadgen
def test_a_study_keeps_loadgens_result_and_its_logs(mini: Path, tmp_path: Path) -> None:
    watcher = Remembering()
    content = study(mini, "offline", kinds=["throughput", "loadgen"], batches=[4], isolation="series")
    outcome = run_study(content, tmp_path / "out", watcher)
    assert [(record.trial.kind, record.status) for record in outcome.records] == [
        ("throughput", "ok"),
        ("loadgen", "ok"),
    ]
    record = outcome.records[1]
    assert record.loadgen is not None
    assert record.throughput is None
    assert record.loadgen.scenario == "offline"
    assert record.loadgen.samples % 4 == 0
    assert record.config is not None
    assert record.config["loadgen"] == {"scenario": "offline"}
    assert record.memory is not None
    assert record.memory.host_peak_bytes
    kept = {item.path.split(".", 1)[1]: tmp_path / "out" / item.path for item in record.sidecars}
    assert set(kept) == {"mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"}
    assert "Scenario : Offline" in kept["mlperf_log_summary.txt"].read_text()
    assert not list((tmp_path / "out" / "work").glob("loadgen-*"))
    again = run_study(content, tmp_path / "out", Remembering())
    assert again.run == 0


@needs_loadgen
def test_a_single_stream_study_measures_a_percentile(mini: Path, tmp_path: Path) -> None:
    outcome = run_study(study(mini, "single-stream"), tmp_path / "out", Remembering())
    (record,) = outcome.records
    assert (record.status, record.trial.batch) == ("ok", 1)
    assert record.loadgen is not None
    assert record.loadgen.latency_s is not None
    assert record.loadgen.latency_s.p90 is not None
    assert record.loadgen.latency_s.p90 <= (record.loadgen.p90_estimate_s or 0)


def test_offline_has_a_trial_per_batch_and_a_single_stream_but_one(
    mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches(scenario: str) -> list[int | None]:
        return [one.spec.trial.batch for one in planned(study(mini, scenario), tmp_path, monkeypatch)]

    assert batches("offline") == [4, 8]
    assert batches("single-stream") == [1]


def test_the_scenario_is_part_of_what_a_trial_is(
    mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = planned(study(mini, "offline", batches=[1]), tmp_path, monkeypatch)
    other = planned(study(mini, "single-stream"), tmp_path, monkeypatch)
    assert one[0].spec.trial == other[0].spec.trial
    assert one[0].spec.id != other[0].spec.id
    assert (one[0].spec.keeps_many_in_flight, other[0].spec.keeps_many_in_flight) == (True, False)


def test_loadgen_shares_the_series_of_the_speed_trials(
    mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = study(mini, "offline", kinds=["throughput", "latency", "loadgen"])
    trials = planned(content, tmp_path, monkeypatch)
    assert len({one.series for one in trials}) == 1
    assert [one.spec.loadgen is not None for one in trials] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"loadgen": None}, "kinds: [loadgen] and loadgen: {scenario: offline} go together"),
        ({"kinds": ["throughput"]}, "kinds: [loadgen] and loadgen: {scenario: offline} go together"),
        ({"loadgen": {"scenario": "server"}}, "loadgen.scenario: 'server' is not known; known are offline"),
        ({"loadgen": {"scenario": "offlin"}}, "did you mean 'offline'?"),
        ({"loadgen": {}}, "'loadgen.scenario' is missing"),
        ({"loadgen": {"scenario": "offline", "duration": 3}}, "unknown key 'loadgen.duration'"),
    ],
)
def test_a_section_that_cannot_be_is_refused(mini: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        study(mini, "offline", **changes)
    assert expected in str(caught.value)


def test_one_model_alone_may_be_asked_by_loadgen(
    mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [{"model": str(mini), "kinds": ["loadgen"]}]
    content = study(mini, "offline", models=models, kinds=["latency"])
    assert {one.spec.trial.kind for one in planned(content, tmp_path, monkeypatch)} == {"loadgen"}


def test_a_missing_loadgen_is_told_before_anything_runs(
    mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    with pytest.raises(MissingExtra, match=r"pip install 'inferometer\[mlperf\]'"):
        resolve(study(mini, "offline"), tmp_path)
    file = tmp_path / "study.yaml"
    file.write_text(
        f"models: [{mini}]\nengines: ['null']\nkinds: [loadgen]\nloadgen: {{scenario: offline}}\n"
    )
    ended = inferometer(capsys, "run", file, "--out", tmp_path / "out")
    assert ended.code == 5
    assert "mlperf" in ended.err
    assert not (tmp_path / "out" / "records.jsonl").exists()


def test_what_a_worker_that_died_left_of_its_logs_is_cleared(mini: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "work").mkdir(parents=True)
    run_study(study(mini, None, kinds=["throughput"], batches=[4]), out, Leaving(out / "work" / "loadgen-x"))
    assert not (out / "work" / "loadgen-x").exists()


class Leaving(Remembering):
    """Makes a folder while a trial runs, as a worker does that LoadGen drives."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def started(self, spec: TrialSpec) -> None:
        super().started(spec)
        self._folder.mkdir()

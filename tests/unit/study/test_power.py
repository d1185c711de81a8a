"""Studies that measure power, by a logger that the test drives: what is read, when, and what is recorded."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferometer.config import Study, parse
from inferometer.errors import MeterError
from inferometer.records import PowerFigure, PowerResult, Record, Status
from inferometer.store import read_store, sidecar_of
from inferometer.study.run import NO_POWER, StudyRun, run_study
from inferometer.trials.spec import TrialSpec
from tests.unit.study.watcher import Remembering

IDLE_W, LOAD_W, RIPPLE_W = 20.0, 140.0, (0.0, 0.25, 0.5, 0.25, 0.0, -0.25, -0.5, -0.25)
POWER: dict[str, Any] = {"idle_s": 1, "min_s": 1, "idle_loaded_s": 1, "settle_max_s": 0}


class Logger(Remembering):
    """An external logger that reads more while a trial runs, told so by the study itself.

    It shows a period of 0.1 s and then writes twice as often: a busy machine may delay it.
    """

    def __init__(self, path: Path, load_w: float = LOAD_W) -> None:
        super().__init__()
        self.path, self.load_w = path, load_w
        self._watts, self._stop = IDLE_W, threading.Event()
        now = time.time()
        path.write_text("".join(f"{now - 2 + place * 0.1:.4f},{IDLE_W}\n" for place in range(20)))
        self._thread = threading.Thread(target=self._log)

    def __enter__(self) -> Logger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def started(self, spec: TrialSpec) -> None:
        super().started(spec)
        self._watts = self.load_w

    def waits(self, what: str, seconds: float) -> None:
        super().waits(what, seconds)
        self._watts = IDLE_W

    def kill(self, what: str, seconds: float) -> None:
        """A logger that dies as soon as the study waits for something."""
        self._stop.set()

    def finished(self, spec: TrialSpec, status: Status, reason: str | None) -> None:
        super().finished(spec, status, reason)
        self._watts = IDLE_W

    def _log(self) -> None:
        due = time.time()
        for ripple in itertools.cycle(RIPPLE_W):
            with self.path.open("a") as file:
                file.write(f"{time.time():.4f},{self._watts + ripple}\n")
            due += 0.05
            if self._stop.wait(max(0.0, due - time.time())):
                return


def study(model: Path, log: Path, **changes: Any) -> Study:
    content = {
        "name": "s",
        "models": [str(model)],
        "engines": ["null"],
        "batches": [1, 2],
        "repeats": 1,
        "measure": {"max_s": 0.1, "warmup_max_s": 0.05},
        "kinds": ["throughput", "latency"],
        "power": POWER | {"meters": [{"meter": "replay", "options": {"file": str(log), "unit": "W"}}]},
    }
    return parse(Study, content | changes, "test")


def run(content: Study, folder: Path, watcher: Remembering) -> StudyRun:
    return run_study(content, folder, watcher)


def only(record: Record) -> PowerResult:
    assert record.power is not None, record.missing
    assert len(record.power) == 1
    return record.power[0]


@pytest.mark.slow
def test_watts_come_from_the_window_of_the_images_and_idle_from_around_it(mini: Path, tmp_path: Path) -> None:
    with Logger(tmp_path / "w.csv") as logger:
        done = run(study(mini, logger.path), tmp_path / "out", logger)
    latency, *speed = sorted(done.records, key=lambda one: (one.trial.kind != "latency", one.trial.batch))
    assert (latency.status, latency.power, latency.load_window) == ("ok", None, None)
    assert [(record.status, record.reason) for record in speed] == [("ok", None), ("ok", None)]
    for record in speed:
        result, window = only(record), record.load_window
        assert window is not None
        assert result.load_w == pytest.approx(LOAD_W, abs=0.2)
        assert result.idle_bare_w == pytest.approx(IDLE_W, abs=10)
        assert result.net_w == pytest.approx(LOAD_W - IDLE_W, abs=10)
        assert result.images_per_s == pytest.approx(window.images / (window.end_ns - window.begin_ns) * 1e9)
        assert result.images_per_s_per_w == pytest.approx(window.images_per_s / result.net_w)
        assert result.j_per_image == pytest.approx(result.net_w / window.images_per_s)
        assert (window.end_ns - window.begin_ns) * 1e-9 >= 0.95
        assert result.load is not None
        assert (result.load.begin_ns, result.load.end_ns) == (window.begin_ns, window.end_ns)
        assert result.idle_before is not None
        assert result.idle_after is not None
        assert window.idle_loaded is not None
        loaded, load = window.idle_loaded, (window.begin_ns, window.end_ns)
        order = [result.idle_before.end_ns, *loaded, *load, result.idle_after.begin_ns]
        assert order == sorted(order)
        sidecar = sidecar_of(record, ".power.npz")
        assert sidecar is not None
        with np.load(tmp_path / "out" / sidecar.path) as kept:
            assert {float(value) for value in np.round(kept["value"], -1)} == {IDLE_W, LOAD_W}
        assert record.config is not None
        assert record.config["power"] == {
            "meters": ["replay"], "idle_s": 1.0, "min_s": pytest.approx(2.0, abs=0.1), "idle_loaded_s": 1.0
        }  # fmt: skip


@pytest.mark.slow
def test_one_idle_is_shared_while_it_holds(mini: Path, tmp_path: Path) -> None:
    # A load of no watts: the idle after it reads as that before, however late the logger is.
    with Logger(tmp_path / "w.csv", load_w=IDLE_W) as logger:
        done = run(study(mini, logger.path, kinds=["throughput"]), tmp_path / "out", logger)
    first, second = (only(record) for record in done.records)
    assert _span(first.idle_before) == _span(second.idle_before)
    assert first.idle_age_s is not None
    assert second.idle_age_s is not None
    assert second.idle_age_s > first.idle_age_s


@pytest.mark.slow
def test_power_within_noise_gives_no_ratio_and_says_so(mini: Path, tmp_path: Path) -> None:
    with Logger(tmp_path / "w.csv", load_w=IDLE_W) as logger:
        content = study(mini, logger.path, kinds=["throughput"], batches=[1])
        done = run(content, tmp_path / "out", logger)
    result = only(done.records[0])
    assert result.net_w == pytest.approx(0.0, abs=0.3)
    assert (result.images_per_s_per_w, result.j_per_image) == (None, None)
    assert "within three times its uncertainty" in result.missing["images_per_s_per_w"]


@pytest.mark.slow
def test_a_series_shares_the_idles_around_it(mini: Path, tmp_path: Path) -> None:
    with Logger(tmp_path / "w.csv") as logger:
        content = study(mini, logger.path, kinds=["throughput"], isolation="series")
        done = run(content, tmp_path / "out", logger)
    first, second = (only(record) for record in done.records)
    assert _span(first.idle_before) == _span(second.idle_before)
    assert _span(first.idle_after) == _span(second.idle_after)
    assert second.net_w == pytest.approx(LOAD_W - IDLE_W, abs=10)


@pytest.mark.slow
def test_a_meter_of_another_time_is_told_before_the_first_trial(mini: Path, tmp_path: Path) -> None:
    with Logger(tmp_path / "w.csv") as logger:
        content = study(mini, logger.path)
        assert content.power is not None
        entry = content.power.meters[0]
        for offset_s, expected in (
            (-3600, "readings of times to come"),
            (3600, "newest reading is 36.. s old"),
        ):
            options = entry.options | {"clock_offset_s": offset_s}
            power = content.power.model_copy(
                update={"meters": (entry.model_copy(update={"options": options}),)}
            )
            with pytest.raises(MeterError, match=expected):
                run(content.model_copy(update={"power": power}), tmp_path / "out", logger)
    assert not (tmp_path / "out" / "records.jsonl").exists()


@pytest.mark.slow
def test_trials_whose_power_is_missing_run_again_when_asked_to(mini: Path, tmp_path: Path) -> None:
    without = study(mini, tmp_path / "w.csv", batches=[1], kinds=["throughput"])
    with Logger(tmp_path / "w.csv") as logger:
        logger.waits = logger.kill  # type: ignore[method-assign]
        (first,) = run(without, tmp_path / "out", logger).records
    assert first.status == "ok"
    assert first.power is not None
    assert first.power[0].net_w is None
    with Logger(tmp_path / "w.csv") as logger:
        assert run(without, tmp_path / "out", logger).run == 0
        again = run_study(without, tmp_path / "out", logger, retry=[NO_POWER])
    assert again.run == 1
    assert only(again.records[0]).net_w == pytest.approx(LOAD_W - IDLE_W, abs=10)


@pytest.mark.slow
def test_a_trial_whose_idle_after_was_cut_off_runs_again(mini: Path, tmp_path: Path) -> None:
    content = study(mini, tmp_path / "w.csv", batches=[1], kinds=["throughput"])

    def stop(what: str, seconds: float) -> None:
        if logger.begun:  # the trial has run, and the idle after it begins
            raise KeyboardInterrupt

    with Logger(tmp_path / "w.csv") as logger:
        logger.waits = stop  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            run(content, tmp_path / "out", logger)
    lines = read_store(tmp_path / "out").lines
    assert [(record.status, record.power) for record in lines] == [("interrupted", None)]
    assert not list((tmp_path / "out" / "work").glob("sampler-*"))
    with Logger(tmp_path / "w.csv") as logger:
        again = run(content, tmp_path / "out", logger)
    assert again.run == 1
    assert only(again.records[0]).drift_w is not None


def _span(figure: PowerFigure | None) -> tuple[int, int]:
    assert figure is not None
    return figure.begin_ns, figure.end_ns


def test_without_any_meter_nothing_starts_and_with_all_records_none_is_needed(
    mini: Path, tmp_path: Path
) -> None:
    content = study(mini, tmp_path / "none.csv")
    with pytest.raises(MeterError, match=r"replay: .*none\.csv"):
        run(content, tmp_path / "out", Remembering())
    assert not (tmp_path / "out" / "records.jsonl").exists()

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inferometer import measure
from inferometer.config import MeasureSection
from inferometer.contracts import ExecutedLayer, Feeds, LayerTime, Session
from inferometer.errors import EngineError
from inferometer.measure import (
    Measurement,
    Segment,
    WarmUp,
    latency_of,
    measure_latency,
    measure_throughput,
    rate_windows,
    run_segment,
    throughput_of,
    warm_up,
)


class Sleeper(Session):
    """Slots that each take ``seconds`` from submission to completion, all at once."""

    def __init__(self, seconds: float, in_flight: int = 1) -> None:
        self.inputs = self.outputs = ()
        self.in_flight = in_flight
        self.seconds = seconds
        self.due = [0.0] * in_flight
        self.log: list[tuple[str, int]] = []
        self.collecting: set[bool] = set()

    def _prepare(self, slot: int, feeds: Feeds) -> None: ...

    def submit(self, slot: int) -> None:
        self.log.append(("submit", slot))
        self.collecting.add(gc.isenabled())
        self.due[slot] = time.monotonic() + self.seconds

    def wait(self, slot: int) -> None:
        self.log.append(("wait", slot))
        time.sleep(max(0.0, self.due[slot] - time.monotonic()))

    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        return {}

    def executed(self) -> tuple[ExecutedLayer, ...]:
        return ()

    def profile(self) -> tuple[LayerTime, ...]:
        return ()

    def close(self) -> None: ...


def segment(*completed_ms: float, start_ms: float = 0.0) -> Segment:
    stamps = [int(value * 1e6) for value in completed_ms]
    return Segment(np.array([int(start_ms * 1e6), *stamps[:-1]], np.int64), np.array(stamps, np.int64))


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_every_submission_of_a_slot_completes_before_its_next(slots: int) -> None:
    session = Sleeper(0.002, slots)
    run = run_segment(session, slots, 0.03, min_calls=2 * slots)
    for slot in range(slots):
        turns = [what for what, whose in session.log if whose == slot]
        assert turns == ["submit", "wait"] * (len(turns) // 2) != []
    assert run.calls == len(session.log) // 2 >= 2 * slots
    assert (np.diff(run.completed) >= 0).all()
    assert (run.completed - run.submitted >= 0.002e9).all()


@pytest.mark.parametrize("slots", [2, 3])
def test_slots_of_one_queue_take_turns(slots: int) -> None:
    session = Sleeper(0.002, slots)
    session.ordered = True
    run = run_segment(session, slots, 0.03, min_calls=2 * slots)
    submits = [slot for what, slot in session.log if what == "submit"]
    waits = [slot for what, slot in session.log if what == "wait"]
    assert submits == waits == [number % slots for number in range(len(submits))]
    assert run.calls == len(submits)
    assert (np.diff(run.submitted) >= 0).all()
    assert (np.diff(run.completed) >= 0).all()


def test_a_fast_slot_does_not_wait_for_a_slow_one() -> None:
    class Uneven(Sleeper):
        """The first slot takes five times as long as the second."""

        def submit(self, slot: int) -> None:
            super().submit(slot)
            self.due[slot] += 4 * self.seconds if slot == 0 else 0

    session = Uneven(0.004, 2)
    run = run_segment(session, 2, 0.1)
    assert session.log.count(("submit", 1)) > session.log.count(("submit", 0)) + 1
    assert run.calls == len(session.log) // 2
    assert (run.completed - run.submitted >= 0.004e9).all()


def test_what_one_slot_raises_reaches_the_caller() -> None:
    class Failing(Sleeper):
        def wait(self, slot: int) -> None:
            super().wait(slot)
            if slot == 1:
                raise EngineError("the second slot fails")

    session = Failing(0.001, 2)
    with pytest.raises(EngineError, match="the second slot fails"):
        run_segment(session, 2, 60.0)
    assert len(session.log) < 1000  # the other slot did not go on for a minute
    assert gc.isenabled()


def test_the_garbage_collector_rests_while_timing_and_works_again_after() -> None:
    session = Sleeper(0.001)
    run_segment(session, 1, 0.01)
    assert session.collecting == {False}
    assert gc.isenabled()


def test_edges_leave_out_filling_and_draining() -> None:
    run = Segment(np.array([0, 1, 10, 11, 20, 21], np.int64), np.array([10, 11, 20, 21, 30, 31], np.int64))
    assert run.edges(1).tolist() == [0, 10, 11, 20, 21, 30, 31]
    assert run.edges(2).tolist() == [11, 20, 21]


@pytest.mark.parametrize("slots", [2, 3, 4])
@pytest.mark.parametrize("rounds", [3, 4, 10])
def test_bursts_of_requests_have_their_true_rate(slots: int, rounds: int) -> None:
    # All requests are done at once, every 10 ms; and evenly, one every 10 / slots ms.
    bursts = np.repeat(np.arange(1, rounds + 1) * 10_000_000, slots)
    even = np.arange(1, rounds * slots + 1) * 10_000_000 // slots
    for completed in (bursts, even):
        part = Segment(np.zeros_like(completed), completed)
        result = throughput_of(Measurement(WarmUp((part,), True), (part,), 1, slots))
        assert result.images_per_s == pytest.approx(slots * 100, rel=1e-6)
        assert result.windows == pytest.approx([slots * 100] * len(result.windows), rel=1e-6)


def test_throughput_is_total_images_over_total_time() -> None:
    # 4 calls of 8 images in 40 ms, then 2 calls in 40 ms: 48 images in 80 ms.
    measurement = Measurement(
        WarmUp((segment(10),), False), (segment(10, 20, 30, 40), segment(120, 140, start_ms=100)), 8, 1
    )
    result = throughput_of(measurement)
    assert result.images == 48
    assert result.seconds == pytest.approx(0.080)
    assert result.images_per_s == pytest.approx(600.0)
    assert result.windows == pytest.approx((800, 800, 800, 800, 400, 400))
    assert result.median_images_per_s == pytest.approx(800)
    assert result.warmup_calls == 1
    assert result.warmup_steady is False


def test_few_windows_give_no_interval() -> None:
    result = throughput_of(Measurement(WarmUp((segment(10),), True), (segment(10, 20),), 1, 1))
    assert result.ci95 is None


def test_windows_hold_equally_many_calls_and_stay_within_a_segment() -> None:
    edges = [np.arange(0, 61, dtype=np.int64) * 1_000_000, np.arange(0, 41, dtype=np.int64) * 2_000_000]
    rates = rate_windows(edges, batch=2)
    assert rates == pytest.approx([2000.0] * 12 + [1000.0] * 8)


def test_a_steady_engine_warms_up_quickly() -> None:
    result = warm_up(Sleeper(0.01), 1, max_s=5.0)
    assert result.steady
    assert 3 <= len(result.segments) < 30


def test_an_engine_that_never_settles_is_not_called_steady() -> None:
    session = Sleeper(0.02)
    original = session.submit

    def faster_and_faster(slot: int) -> None:
        session.seconds *= 0.95
        original(slot)

    session.submit = faster_and_faster  # type: ignore[method-assign]
    result = warm_up(session, 1, max_s=0.6)
    assert not result.steady


def test_one_long_call_is_all_there_is() -> None:
    result = warm_up(Sleeper(0.25), 1, max_s=0.3)
    assert result.calls == 1
    assert not result.steady


def test_measuring_stops_at_the_interval_asked_for_or_at_the_time() -> None:
    tight = measure_throughput(Sleeper(0.01), 1, MeasureSection(max_s=1.2, interval=0.5, warmup_max_s=0.5))
    assert len(tight.segments) == 3
    hurried = measure_throughput(
        Sleeper(0.02), 1, MeasureSection(max_s=0.001, interval=0.5, warmup_max_s=0.001)
    )
    assert len(hurried.segments) == 3
    loose = measure_throughput(Sleeper(0.01), 1, MeasureSection(max_s=0.6, interval=1e-9, warmup_max_s=0.1))
    assert len(loose.segments) > 3
    rate = throughput_of(tight).images_per_s
    assert 50 < rate <= 100


def test_latency_counts_from_submission_with_one_request_at_a_time() -> None:
    session = Sleeper(0.005, in_flight=4)
    measurement = measure_latency(session, 1, MeasureSection(max_s=0.3, warmup_max_s=0.1))
    assert {slot for _, slot in session.log} == {0}
    result = latency_of(measurement)
    few = measure_latency(Sleeper(0.002), 1, MeasureSection(max_s=0.001, warmup_max_s=0.001))
    assert latency_of(few).n == 11
    assert latency_of(few).p50 is not None
    assert result.min >= 0.005
    assert result.n == measurement.segments[0].calls


def test_percentiles_need_enough_calls() -> None:
    stamps = np.arange(1, 51, dtype=np.int64) * 1_000_000
    run = Segment(np.zeros(50, np.int64), stamps)
    result = latency_of(Measurement(WarmUp((), True), (run,), 1, 1))
    assert result.min == pytest.approx(0.001)
    assert result.max == pytest.approx(0.050)
    assert result.mean == pytest.approx(0.0255)
    assert result.p50 == pytest.approx(0.0255, abs=0.0006)
    assert result.p90 == pytest.approx(0.045, abs=0.0006)
    assert result.p95 is None
    assert result.p99 is None


def test_the_stamps_of_an_engine_that_takes_no_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_segment(Sleeper(0.0), 1, 60.0, max_calls=1000).calls == 1000
    monkeypatch.setattr(measure, "_LOOK_CALLS", 10)
    monkeypatch.setattr(measure, "_STEADY_MARGIN", -1.0)
    assert warm_up(Sleeper(0.0), 1, 60.0).calls == 400

"""The loop and the clock: nothing else times inference.

The loop knows three things: wait, stamp, submit. Everything else (warm-up decisions, windows,
intervals) happens between its runs, on the stamps it left. The clock is CLOCK_MONOTONIC in
nanoseconds, which power readings share.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inferometer.config import MeasureSection
from inferometer.records import Latency, LoadWindow, Throughput
from inferometer.stats import percentile, rate_interval

__all__ = [
    "ONE_RANK",
    "Driven",
    "Measurement",
    "Segment",
    "Together",
    "WarmUp",
    "latency_of",
    "load_window_of",
    "measure_latency",
    "measure_throughput",
    "rate_windows",
    "run_segment",
    "throughput_of",
    "warm_up",
]

Stamps = npt.NDArray[np.int64]

_WINDOWS = (
    20  # pieces into which a run is cut for its interval: enough for a t-interval, few enough to be long
)
_MIN_SEGMENTS = 3  # whatever the time allowed: fewer calls would be an anecdote
_MEDIAN_CALLS = 11  # a latency trial makes so many, whatever the time: from ten on there is a median
_SEGMENTS = 6  # looks at the interval per run: the loop itself never looks
_STEADY_MARGIN = 0.03  # relative; how far the last look may leave the range of the two before it
_MIN_LOOK_S = 0.1
# What bounds the stamps that engines of microseconds leave: looks of a warm-up, segments, calls in each.
_MAX_LOOKS, _LOOK_CALLS = 40, 10_000
_MAX_SEGMENTS, _SEGMENT_CALLS = 20, 50_000


class Together(Protocol):
    """The ranks of a trial, each in its own process, doing the same at the same time."""

    def begin(self) -> None:
        """Return at one moment on all of them."""

    def all(self, vote: bool) -> bool:
        """Whether all of them say so."""


class Driven(Protocol):
    """What the loop needs of a session: see `inferometer.contracts.Session`."""

    in_flight: int
    ordered: bool

    def submit(self, slot: int) -> None:
        """Start one inference."""

    def wait(self, slot: int) -> None:
        """Return when it is done."""


class _OneRank:
    def begin(self) -> None:
        """Nobody to wait for."""

    def all(self, vote: bool) -> bool:
        return vote


ONE_RANK: Together = _OneRank()


@dataclass(frozen=True)
class Segment:
    """One uninterrupted run of the loop; its calls in the order in which they were done.

    Attributes:
        submitted: ``[calls] int64`` nanoseconds (CLOCK_MONOTONIC), when each call was submitted.
        completed: ``[calls] int64`` nanoseconds, when each call was known to be done, ascending.
    """

    submitted: Stamps
    completed: Stamps

    @property
    def calls(self) -> int:
        """Number of completed calls."""
        return len(self.completed)

    def edges(self, in_flight: int) -> Stamps:
        """Times between which whole calls were completed at full depth.

        The first edge is when as many calls were done as there are requests, the last one before the pipeline
        drained; with one request in flight that is the first submission and the last completion. Between them
        lie whole rounds of ``in_flight`` calls: requests that are done all at once, again and again, would
        otherwise have one burst begun and not ended in the count: a rate too low by up to half a round.
        """
        if in_flight == 1:
            return np.concatenate([self.submitted[:1], self.completed])
        rounds = (len(self.completed) + 1) // in_flight - 2
        return self.completed[in_flight - 1 : in_flight * (rounds + 1)]


@dataclass(frozen=True)
class WarmUp:
    """The calls before the measurement, and whether their rate had become steady."""

    segments: tuple[Segment, ...]
    steady: bool

    @property
    def calls(self) -> int:
        """Number of warm-up calls."""
        return sum(segment.calls for segment in self.segments)


@dataclass(frozen=True)
class Measurement:
    """Raw stamps of one trial; every figure of its record is derived from them."""

    warmup: WarmUp
    segments: tuple[Segment, ...]
    batch: int
    in_flight: int


def run_segment(
    session: Driven, slots: int, seconds: float, min_calls: int = 1, max_calls: int = _SEGMENT_CALLS
) -> Segment:
    """Keep ``slots`` prepared slots busy for ``seconds``, then let them drain.

    This is the timed region: it submits, waits and stamps, with the garbage collector off. Each slot is
    driven by a thread of its own, so that one that is done is submitted again at once: where slots took
    turns, the faster would wait for the slower. Only those of a session that is ``ordered`` take turns. It
    ends early at ``max_calls``.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        if session.ordered or slots == 1:
            return _in_turn(session, slots, seconds, min_calls, max_calls)
        return _by_threads(session, slots, seconds, min_calls, max_calls)
    finally:
        if collecting:
            gc.enable()


def _in_turn(session: Driven, slots: int, seconds: float, min_calls: int, max_calls: int) -> Segment:
    """One thread drives all slots; calls complete in the order of submission."""
    clock, submit, wait = time.monotonic_ns, session.submit, session.wait
    submitted: list[int] = []
    completed: list[int] = []
    deadline = clock() + int(seconds * 1e9)
    for slot in range(slots):
        submitted.append(clock())
        submit(slot)
    slot = 0
    while True:
        wait(slot)
        now = clock()
        completed.append(now)
        calls = len(submitted)
        if (now >= deadline and calls >= min_calls) or calls >= max_calls:
            break
        submitted.append(clock())
        submit(slot)
        slot = (slot + 1) % slots
    for step in range(1, slots):
        wait((slot + step) % slots)
        completed.append(clock())
    return Segment(np.array(submitted, np.int64), np.array(completed, np.int64))


def _by_threads(session: Driven, slots: int, seconds: float, min_calls: int, max_calls: int) -> Segment:
    """A thread for each slot."""
    clock, submit, wait = time.monotonic_ns, session.submit, session.wait
    numbers = itertools.count(1)  # of submissions, of all slots together
    deadline = clock() + int(seconds * 1e9)

    def drive(slot: int) -> tuple[list[int], list[int]]:
        nonlocal deadline, min_calls
        submitted: list[int] = []
        completed: list[int] = []
        now, number = 0, next(numbers)
        try:
            while number <= slots or (number <= max_calls and (now < deadline or number <= min_calls)):
                submitted.append(clock())
                submit(slot)
                wait(slot)
                now = clock()
                completed.append(now)
                number = next(numbers)
        except BaseException:
            deadline = min_calls = 0  # the others need not go on
            raise
        return submitted, completed

    with ThreadPoolExecutor(slots - 1, "inferometer-slot") as pool:
        others = [pool.submit(drive, slot) for slot in range(1, slots)]
        stamps = [drive(0), *(other.result() for other in others)]
    submitted = np.concatenate([np.array(one, np.int64) for one, _ in stamps])
    completed = np.concatenate([np.array(one, np.int64) for _, one in stamps])
    order = np.argsort(completed, kind="stable")
    return Segment(submitted[order], completed[order])


def warm_up(session: Driven, slots: int, max_s: float, together: Together = ONE_RANK) -> WarmUp:
    """Run until the rate is steady, or for ``max_s``; of several ranks, until that of each is.

    Steady means: the rate of the last look (each at least 0.1 s and one call) is within 3 % of the
    range of the two before it, so neither compilation, caches nor clocks are still settling in one
    direction; noise around one level is no reason to go on. When one call takes longer than a third
    of ``max_s``, there are fewer than three looks, and the rate is not called steady.
    """
    segments: list[Segment] = []
    end = time.monotonic() + max_s
    while True:
        segments.append(run_segment(session, slots, _MIN_LOOK_S, max_calls=_LOOK_CALLS))
        *before, last = [_rate(segment) for segment in segments[-3:]]
        settled = len(before) == 2 and (
            min(before) * (1 - _STEADY_MARGIN) <= last <= max(before) * (1 + _STEADY_MARGIN)
        )
        if together.all(settled):
            return WarmUp(tuple(segments), True)
        took_s = float(segments[-1].completed[-1] - segments[-1].submitted.min()) * 1e-9
        late = len(segments) == _MAX_LOOKS or time.monotonic() + took_s > end
        if not together.all(not late):
            return WarmUp(tuple(segments), settled)


def measure_throughput(
    session: Driven,
    batch: int,
    settings: MeasureSection,
    min_s: float = 0.0,
    together: Together = ONE_RANK,
) -> Measurement:
    """Warm up, then measure until the interval asked for is reached or the time is up, not before ``min_s``.

    All slots must be prepared. Runs 3 to 20 segments, of at least one call each; of several ranks all run as
    many, which begin together.
    """
    slots = session.in_flight
    warmup = warm_up(session, slots, settings.warmup_max_s, together)
    segments: list[Segment] = []
    max_s = max(settings.max_s, min_s)
    length_s = max_s / _SEGMENTS
    begin = time.monotonic()
    end = begin + max_s
    min_calls = 3 * slots  # one round at least between the filling and the draining of the pipeline
    while True:
        together.begin()
        segments.append(run_segment(session, slots, length_s, min_calls if slots > 1 else 1))
        measurement = Measurement(warmup, tuple(segments), batch, slots)
        now = time.monotonic()
        over = len(segments) >= _MAX_SEGMENTS or now + length_s / 2 > end
        enough = len(segments) >= _MIN_SEGMENTS and now >= begin + min_s
        if together.all(enough and (over or _tight(measurement, settings.interval))):
            return measurement


def measure_latency(
    session: Driven, batch: int, settings: MeasureSection, together: Together = ONE_RANK
) -> Measurement:
    """Warm up, then one request at a time, on slot 0, for ``max_s`` seconds and at least 11 calls."""
    warmup = warm_up(session, 1, settings.warmup_max_s, together)
    together.begin()
    segment = run_segment(session, 1, settings.max_s, min_calls=_MEDIAN_CALLS)
    return Measurement(warmup, (segment,), batch, 1)


def throughput_of(measurement: Measurement) -> Throughput:
    """Images/s and its within-run interval from the raw stamps."""
    edges = [segment.edges(measurement.in_flight) for segment in measurement.segments]
    calls = sum(len(part) - 1 for part in edges)
    seconds = sum(float(part[-1] - part[0]) for part in edges) * 1e-9
    images = calls * measurement.batch
    windows = rate_windows(edges, measurement.batch, measurement.in_flight)
    return Throughput(
        images_per_s=images / seconds,
        median_images_per_s=float(np.median(windows)),
        ci95=rate_interval(images, seconds, windows),
        ci_kind="within_run",
        windows=tuple(windows),
        in_flight=measurement.in_flight,
        images=images,
        seconds=seconds,
        warmup_calls=measurement.warmup.calls,
        warmup_steady=measurement.warmup.steady,
    )


def load_window_of(measurement: Measurement) -> LoadWindow:
    """From the first full pipeline to the last whole round: the time that power is read in.

    Everything that was done in it counts, and all of its time: also the short pauses between segments, in
    which the device draws less.
    """
    edges = [segment.edges(measurement.in_flight) for segment in measurement.segments]
    begin_ns, end_ns = int(edges[0][0]), int(edges[-1][-1])
    completed = np.concatenate([segment.completed for segment in measurement.segments])
    images = int(((completed > begin_ns) & (completed <= end_ns)).sum()) * measurement.batch
    rate = images / ((end_ns - begin_ns) * 1e-9)
    steady = throughput_of(measurement)
    # Half of a 95 % interval is about two standard uncertainties.
    half = None if steady.ci95 is None else (steady.ci95[1] - steady.ci95[0]) / 2
    return LoadWindow(
        begin_ns=begin_ns,
        end_ns=end_ns,
        images=images,
        images_per_s=rate,
        u_images_per_s=None if half is None else half / 2 * rate / steady.images_per_s,
    )


def latency_of(measurement: Measurement) -> Latency:
    """Percentiles of the seconds from submission to completion."""
    seconds = np.sort(
        np.concatenate([segment.completed - segment.submitted for segment in measurement.segments]) * 1e-9
    )
    ordered: Sequence[float] = [float(value) for value in seconds]
    return Latency(
        min=ordered[0],
        mean=float(seconds.mean()),
        p50=percentile(ordered, 0.50),
        p90=percentile(ordered, 0.90),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        max=ordered[-1],
        n=len(ordered),
    )


def rate_windows(edges: Sequence[Stamps], batch: int, in_flight: int = 1) -> list[float]:
    """Images/s of 20 windows or more of equally many calls, whole rounds; none spans two segments.

    Args:
        edges: Per segment, ``[calls + 1] int64`` nanoseconds between which whole calls were done.
        batch: Images per call.
        in_flight: Calls in a round.
    """
    calls = sum(len(part) - 1 for part in edges)
    shortest = min(len(part) - 1 for part in edges)  # of many segments each is shorter than a 20th of all
    per_window = max(1, min(calls // _WINDOWS, shortest) // in_flight) * in_flight
    rates: list[float] = []
    for part in edges:
        for start in range(0, len(part) - per_window, per_window):
            elapsed_ns = int(part[start + per_window] - part[start])
            if elapsed_ns > 0:
                rates.append(per_window * batch / (elapsed_ns * 1e-9))
    return rates


def _rate(segment: Segment) -> float:
    return segment.calls / max(float(segment.completed[-1] - segment.submitted.min()) * 1e-9, 1e-9)


def _tight(measurement: Measurement, wanted: float) -> bool:
    """Whether the relative half-width of the within-run interval is at most ``wanted``."""
    result = throughput_of(measurement)
    return result.ci95 is not None and (result.ci95[1] - result.ci95[0]) / 2 <= wanted * result.images_per_s

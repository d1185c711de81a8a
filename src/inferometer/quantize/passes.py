"""Passes of the calibration images through a session; memory does not grow with the images.

Every slot of the session is driven by a thread of its own, which decodes a batch, runs it and gathers its
statistics while the values are still in the cache; so no cores wait, and the statistics do not compete with
the engine's threads. The outcome does not depend on which thread met which batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from inferometer.contracts import Session
from inferometer.errors import CalibrationError

__all__ = ["Batches", "CalibrationBatch", "StageTimes", "Visit", "real_rows", "run_pass"]


@dataclass(frozen=True)
class CalibrationBatch:
    """One batch of inputs.

    Attributes:
        feeds: By input name, each with the session's whole batch.
        count: How many rows at the start are images; the rest only fills the batch, and is not counted.
        hashes: SHA-256 of those images; empty for synthetic input.
    """

    feeds: Mapping[str, npt.NDArray[Any]]
    count: int
    hashes: tuple[str, ...]


Batches = Callable[[], Iterator["CalibrationBatch | Callable[[], CalibrationBatch | None]"]]
"""Gives the same batches each time it is called: each as it is, or as a function that makes it in the thread
that drives the session (None: nothing is left of it, every image was broken)."""

Values = Mapping[str, npt.NDArray[Any]]
Visit = Callable[[int, CalibrationBatch, int, Values], None]
"""Told of each batch: slot, batch, its number in the pass, and the session's outputs (views that the slot's
next batch overwrites) and inputs by name."""


@dataclass
class StageTimes:
    """Where the time of a calibration went.

    Attributes:
        seconds: By stage (``decode``, ``forward``, ``statistics``: summed over the threads; ``search``).
        wall_s: From the first to the last.
        threads: How many ran at once.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    threads: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, stage: str, seconds: float) -> None:
        """Add time to a stage."""
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begin)


def run_pass(
    session: Session,
    batches: Batches,
    visit: Visit,
    times: StageTimes,
    on_images: Callable[[int], None] = lambda count: None,
) -> None:
    """Run all batches, as many at once as the session has slots.

    Args:
        session: Whose slots run independently of each other.
        batches: Their source.
        visit: Called in the slot's thread.
        times: Where the time of each stage goes.
        on_images: Told of the number of images of each batch when it is done, one call at a time.

    Raises:
        InferometerError: What ``batches``, the session or ``visit`` raise; of several the earliest batch's.
    """
    work = _Work(session, batches, visit, times, on_images)
    times.threads = session.in_flight
    if session.in_flight == 1:
        work.drive(0)
        return
    with ThreadPoolExecutor(session.in_flight, thread_name_prefix="inferometer-calibration") as pool:
        try:
            driven = [pool.submit(work.drive, slot) for slot in range(session.in_flight)]
            faults = [future.exception() for future in driven]  # waits for all
        finally:
            work.stopped = True  # an interrupt ends the threads after the batch they are at
    for _, fault in sorted(zip(work.numbers, faults, strict=True), key=lambda pair: pair[0]):
        if fault is not None:
            raise fault


def real_rows(values: npt.NDArray[Any], name: str, batch: CalibrationBatch, number: int) -> npt.NDArray[Any]:
    """What belongs to a batch's images: axis 0 holds the images, or pieces of each.

    Raises:
        CalibrationError: The filling of an incomplete batch cannot be told from its images.
    """
    rows = len(next(iter(batch.feeds.values())))
    if batch.count == rows:
        return values
    if values.ndim == 0 or values.shape[0] % rows:
        raise CalibrationError(
            f"tensor {name!r}: shape {list(values.shape)} does not begin with the batch of {rows}, so the "
            f"filling of batch {number} cannot be left out: give a multiple of {rows} images"
        )
    return values[: values.shape[0] // rows * batch.count]


class _Work:
    """One pass: the threads take batches from it until none is left or one of them fails."""

    def __init__(
        self,
        session: Session,
        batches: Batches,
        visit: Visit,
        times: StageTimes,
        on_images: Callable[[int], None],
    ) -> None:
        self._session, self._visit, self._times, self._on_images = session, visit, times, on_images
        self._items = enumerate(batches())
        self._lock = threading.Lock()
        self.numbers = [-1] * session.in_flight
        self.stopped = False

    def drive(self, slot: int) -> None:
        """Run batches on one slot until none is left or a thread fails."""
        done = False
        try:
            while not self.stopped:
                with self._lock:
                    self.numbers[slot], item = next(self._items, (-1, None))
                if item is None:
                    break
                self._run(slot, self.numbers[slot], item)
            done = True
        finally:
            self.stopped = self.stopped or not done

    def _run(self, slot: int, number: int, item: Any) -> None:
        with self._times.stage("decode"):
            batch = item() if callable(item) else item
        if batch is None:
            return
        with self._times.stage("forward"):
            self._session.prepare(slot, batch.feeds)
            self._session.submit(slot)
            self._session.wait(slot)
            values = {**batch.feeds, **self._session.view(slot)}
        with self._times.stage("statistics"):
            self._visit(slot, batch, number, values)
        with self._lock:
            self._on_images(batch.count)

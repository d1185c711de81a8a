"""The largest batch that runs: attempts at larger and larger ones, each an ordinary trial with its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inferometer import registry
from inferometer.config import Study
from inferometer.environment.cgroup import memory_limit
from inferometer.environment.facts import Absent
from inferometer.environment.memory import memory_facts
from inferometer.records import Precision, Record
from inferometer.study.launch import Watcher
from inferometer.study.run import run_study

__all__ = ["LARGEST_TRIED", "MaxBatch", "find_max_batches", "search"]

LARGEST_TRIED = 524_288
"""No larger batch is tried."""

_STEPS = 64  # the search ends when what runs and what does not are no further apart than a 64th
_ATTEMPT_S = 1.0
_HOST_SHARE = 0.9
_SEARCHED_BELOW = frozenset({"out_of_memory", "timeout", "skipped"})


@dataclass(frozen=True)
class MaxBatch:
    """What was found for one precision.

    Attributes:
        precision: As it was asked for.
        batch: The largest batch that ran; None: none did.
        beyond: The record of the smallest larger batch that was tried and did not run; None: the largest that
            is tried ran.
    """

    precision: Precision
    batch: int | None
    beyond: Record | None


@dataclass
class _Attempts:
    """The throughput trials of one precision, by batch."""

    run: Callable[[int], Sequence[Record]]
    records: dict[int, Record] = field(default_factory=dict)

    def add(self, records: Sequence[Record]) -> None:
        """Of several repeats one that did not run counts."""
        for record in records:
            batch = record.trial.batch
            if batch is not None and (batch not in self.records or record.status != "ok"):
                self.records[batch] = record

    def runs(self, batch: int) -> bool:
        """Whether it does; tried unless that is known."""
        if batch not in self.records:
            self.add(self.run(batch))
        return self.records[batch].status == "ok"


def find_max_batches(
    study: Study, folder: Path, watcher: Watcher, known: Sequence[Record]
) -> tuple[tuple[MaxBatch, ...], tuple[Record, ...]]:
    """Search for each precision of a study of one model and one engine.

    Args:
        study: Its largest batch is where the search starts.
        folder: Of its records, where those of the attempts go too.
        watcher: Told of progress.
        known: The study's own records.

    Returns:
        What was found, and the records of the attempts.

    Raises:
        InferometerError: As `run_study` does.
    """
    found, tried = [], []
    for precision in study.precisions:
        attempts = _Attempts(_runner(study, precision, folder, watcher))
        attempts.add([one for one in known if _counts(one, precision)])
        before = set(attempts.records)
        found.append(_found(precision, attempts))
        tried += [record for batch, record in attempts.records.items() if batch not in before]
    return tuple(found), tuple(tried)


def search(runs: Callable[[int], bool], low: int, high: int | None) -> tuple[int, int | None]:
    """Double, then halve what lies between.

    Args:
        runs: Whether a batch does.
        low: A batch that is known to; 0: none.
        high: A larger one that is known not to; None: none.

    Returns:
        A batch that runs (0: none), and a larger one, by no more than a 64th, that does not (None: the
        largest that is tried does).
    """
    while high is None:
        if low >= LARGEST_TRIED:
            return low, None
        batch = min(max(1, 2 * low), LARGEST_TRIED)
        if runs(batch):
            low = batch
        else:
            high = batch
    while high - low > max(1, low // _STEPS):
        middle = (low + high) // 2
        if runs(middle):
            low = middle
        else:
            high = middle
    return low, high


def _found(precision: Precision, attempts: _Attempts) -> MaxBatch:
    good = [batch for batch, record in attempts.records.items() if record.status == "ok"]
    low = max(good, default=0)
    bad = {batch: one for batch, one in attempts.records.items() if batch > low and one.status != "ok"}
    high = min(bad, default=None)
    if not good and high is not None and bad[high].status not in _SEARCHED_BELOW:
        return MaxBatch(precision, None, bad[high])  # smaller ones would end in the same way
    low, high = search(attempts.runs, low, high)
    return MaxBatch(precision, low or None, None if high is None else attempts.records[high])


def _counts(record: Record, precision: Precision) -> bool:
    return record.trial.kind == "throughput" and record.trial.precision == precision


def _runner(
    study: Study, precision: Precision, folder: Path, watcher: Watcher
) -> Callable[[int], Sequence[Record]]:
    """Runs one short trial at a batch."""
    measure = study.measure.model_copy(
        update={
            "max_s": min(_ATTEMPT_S, study.measure.max_s),
            "warmup_max_s": min(_ATTEMPT_S, study.measure.warmup_max_s),
        }
    )
    attempt = study.model_copy(
        update={
            "precisions": (precision,),
            "kinds": ("throughput",),
            "repeats": 1,
            "measure": measure,
            "limits": study.limits.model_copy(update={"memory_bytes": _bound_bytes(study)}),
            "accuracy": None,
            "calibration": study.calibration if precision == "int8" else None,
            "power": None,
        }
    )

    def run(batch: int) -> Sequence[Record]:
        done = run_study(attempt.model_copy(update={"batches": (batch,)}), folder, watcher)
        return [record for record in done.records if _counts(record, precision)]

    return run


def _bound_bytes(study: Study) -> int | None:
    """The study's bound; else, on a CPU, most of what is free: without one the machine would run out."""
    entry = study.engines[0]
    device = entry.device or next((one.name for one in registry.engine(entry.engine).devices()), None)
    free, most = memory_facts()[0].available_bytes, memory_limit()
    if study.limits.memory_bytes is not None or device != "cpu" or free is None:
        return study.limits.memory_bytes
    return int(_HOST_SHARE * (free if isinstance(most, Absent) else min(free, most)))

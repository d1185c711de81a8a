"""How long a study will still take, from how long its finished trials took (pure).

A trial takes as long as the mean of its own series, else of its kind, else of all speed trials if it is one:
the same section of the study says how long they measure. Where none of these tells, there is no estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from inferometer.trials.spec import SPEED_KINDS, TrialSpec

__all__ = ["Pace"]

_Key = tuple[str, ...]


class Pace:
    """What finished trials took, and which are left."""

    def __init__(self) -> None:
        """Nothing known, nothing left."""
        self._sums: dict[_Key, tuple[float, int]] = {}
        self._keys: dict[str, _Key] = {}
        self._left: Counter[_Key] = Counter()
        self._metered: dict[str, str] = {}
        self._jobs: Counter[str] = Counter()

    def expect(self, spec: TrialSpec, job: str) -> None:
        """A trial is to run.

        Args:
            spec: The trial.
            job: Which trials share a worker, and the idle that is measured around them.
        """
        if spec.id in self._keys:
            return
        self._keys[spec.id] = key = _key(spec)
        self._left[key] += 1
        if spec.power is not None:
            self._metered[spec.id] = job
            self._jobs[job] += 1

    def took(self, spec: TrialSpec, wall_s: float) -> None:
        """A trial has its record; ``wall_s`` 0 for one that did not run, which says nothing of others."""
        if (key := self._keys.pop(spec.id, None)) is not None:
            self._left[key] -= 1
        if (job := self._metered.pop(spec.id, None)) is not None:
            self._jobs[job] -= 1
        if wall_s > 0:
            for wider in _wider(_key(spec)):
                total_s, count = self._sums.get(wider, (0.0, 0))
                self._sums[wider] = (total_s + wall_s, count + 1)

    def left_s(self, around_s: float = 0.0) -> float | None:
        """Seconds that the trials left will take; None if there is one of which nothing is known.

        Args:
            around_s: What measuring idle takes, for each job with power.
        """
        total_s = around_s * sum(count > 0 for count in self._jobs.values())
        for key, count in self._left.items():
            if count == 0:
                continue
            known = next((self._sums[wider] for wider in _wider(key) if wider in self._sums), None)
            if known is None:
                return None
            total_s += count * known[0] / known[1]
        return total_s


def _key(spec: TrialSpec) -> _Key:
    """The kind, then the series without batch and repeat."""
    trial = spec.trial
    crew = (str(trial.ranks), str(trial.place))
    return (trial.kind, trial.model, trial.engine, trial.device, trial.precision, str(spec.options), *crew)


def _wider(key: _Key) -> Iterator[_Key]:
    """A series, its kind, and kinds that take as long: from the best to the last guess."""
    yield key
    yield key[:1]
    if key[0] in SPEED_KINDS:
        yield ("speed",)

"""A watcher that remembers what it was told."""

from inferometer.records import Status
from inferometer.trials.spec import TrialSpec


class Remembering:
    def __init__(self) -> None:
        self.totals: list[tuple[int, int]] = []
        self.begun: list[str] = []
        self.ended: list[tuple[str, Status]] = []
        self.steps: list[tuple[int, int]] = []
        self.waited: list[tuple[str, float]] = []
        self.estimates: list[float | None] = []

    def planned(self, total: int, done: int) -> None:
        self.totals.append((total, done))

    def started(self, spec: TrialSpec) -> None:
        self.begun.append(spec.id)

    def step(self, done: int, of: int) -> None:
        self.steps.append((done, of))

    def waits(self, what: str, seconds: float) -> None:
        self.waited.append((what, seconds))

    def finished(self, spec: TrialSpec, status: Status, reason: str | None) -> None:
        self.ended.append((spec.id, status))

    def left(self, seconds: float | None) -> None:
        self.estimates.append(seconds)

"""What the trials of one row have in common."""

from __future__ import annotations

from dataclasses import dataclass

from inferometer.records import Precision

__all__ = ["Setup"]


@dataclass(frozen=True)
class Setup:
    """What the trials of one row have in common.

    Attributes:
        model: As the records name it.
        engine: Engine name.
        device: Where it ran.
        precision: The one asked for.
        batch: Images per call, of each rank; None for trials that have none.
        machine: Index into ``Summary.machines``; of several ranks that of the first.
        variant: Further settings, (name, value), where the store holds several for one setup.
        ranks: How many devices worked at once.
        place: In a study of several ranks, which device worked alone: the rank that it has in the trials of
            several; None for these, and in studies of one rank.
    """

    model: str
    engine: str
    device: str
    precision: Precision
    batch: int | None
    machine: int = 0
    variant: tuple[tuple[str, str], ...] = ()
    ranks: int = 1
    place: int | None = None

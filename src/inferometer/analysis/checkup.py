"""What a model file is, and what each engine of a machine makes of it: the result types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inferometer.models.roles import ClassOutput
from inferometer.models.summary import ModelSummary
from inferometer.records import Precision

__all__ = ["Attempt", "Checkup"]


@dataclass(frozen=True)
class Attempt:
    """One engine at one precision.

    Attributes:
        engine: Its name.
        precision: ``int8`` is tried for files that are quantized.
        outcome: ``runs``; ``refuses`` the model or precision; ``fails`` although it should not; ``absent``.
        reason: Why it does not run.
    """

    engine: str
    precision: Precision
    outcome: Literal["runs", "refuses", "fails", "absent"]
    reason: str | None = None


@dataclass(frozen=True)
class Checkup:
    """What a model is.

    Attributes:
        summary: What its file says.
        takes_images: Whether one input is an image.
        output: What is scored; None when nothing can be.
        not_scored: Why not.
        batch: How its batch can be chosen, in words.
        int8: Whether ranges can be chosen for it, in words.
        int8_ok: Whether they can; None for a file that is quantized already.
        attempts: Engine by engine.
    """

    summary: ModelSummary
    takes_images: bool
    output: ClassOutput | None
    not_scored: str | None
    batch: str
    int8: str
    int8_ok: bool | None
    attempts: tuple[Attempt, ...]

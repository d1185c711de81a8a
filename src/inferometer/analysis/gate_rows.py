"""The frozen rows of a gate: is NEW slower than BASE by more than is allowed?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inferometer.analysis.rows import MachineChange
from inferometer.analysis.setup import Setup

__all__ = ["Gate", "GateMetric", "GatePoint", "GateVerdict"]

GateVerdict = Literal["pass", "fail", "inconclusive"]
GateMetric = Literal["images_per_s", "latency_s"]


@dataclass(frozen=True)
class GatePoint:
    """One point of the study in both stores.

    Attributes:
        setup: Which one.
        metric: Images/s, or the median latency of a call in seconds.
        verdict: ``pass``: no slower than allowed; ``fail``: slower; each with 95 % confidence.
        reason: Why it is inconclusive, or why it failed without figures.
        base: Each repeat's figure, in the unit of ``metric``.
        new: Likewise.
        slowdown: 1 less how many times BASE's speed NEW has (a fraction; negative: faster).
        bounds: One-sided 95 % bounds of ``slowdown``: no less than the first, and no more than the second.
        p_slower: Of "it is slower than allowed by chance alone", corrected by Holm for the number of points.
        p_within: Of "it is within what is allowed by chance alone".
        more_repeats: So many more on each side would probably tell; None: it is told, or cannot be told so.
        machine_change: How far the machine's probe moved between the stores.
        base_ids: Records behind it.
        new_ids: Likewise.
    """

    setup: Setup
    metric: GateMetric
    verdict: GateVerdict
    reason: str | None
    base: tuple[float, ...]
    new: tuple[float, ...]
    slowdown: float | None
    bounds: tuple[float, float] | None
    p_slower: float | None
    p_within: float | None
    more_repeats: int | None
    machine_change: MachineChange | None
    base_ids: tuple[str, ...]
    new_ids: tuple[str, ...]


@dataclass(frozen=True)
class Gate:
    """All points, and what they make together.

    Attributes:
        verdict: ``fail`` when a point fails; ``pass`` when all pass; else ``inconclusive``.
        max_slowdown: What was allowed (a fraction).
        points: In the order of BASE.
        names: A short name of each model.
        differences: What differs between the stores, in words, be it what was changed or not.
        notes: What was left out, and why.
        more_repeats: The most that a point wants; None: none wants any, or they cannot tell.
    """

    verdict: GateVerdict
    max_slowdown: float
    points: tuple[GatePoint, ...]
    names: dict[str, str]
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    more_repeats: int | None

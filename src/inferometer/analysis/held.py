"""What a ratio is with the machine held at one state, where its probe moved between the two sides (pure).

A probe that moved says that the machine changed, not that the rates followed: memory copying may halve beside
networks that do not feel it. Repeats met both states, so that how rates follow the probe is known from within
each side; a ratio that is told from 1 at one state of the machine as well keeps its verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from inferometer.analysis.probe import limits_text, moved_between, probe_of
from inferometer.analysis.rows import MachineChange
from inferometer.records import Record
from inferometer.stats import Difference, covariance_difference, t_cdf, t_quantile

__all__ = ["MACHINE_NOTE", "held", "widened"]

MACHINE_NOTE = (
    "Where one and the same machine changed (its fixed probe's medians on the two sides are over"
    f" {limits_text()} apart), interval and p are also those of the ratio with the probe held at one speed;"
    " where that cannot be told, or tells no difference, there is no verdict."
)

_LEAST_DF = 2.0
"""With fewer degrees of freedom an interval at one state tells nothing. Source: chosen."""

Span = tuple[float, float]


def held(
    base: Sequence[Record],
    own: Sequence[Record],
    value: Callable[[Record], float | None],
    change: MachineChange | None,
) -> tuple[Difference, ...]:
    """Log of ``own`` over ``base`` with each probe that moved held at one speed, one by one.

    Args:
        base: The one side's trials, one for each repeat.
        own: The other's.
        value: A positive figure of a trial, such as images/s.
        change: How the machine changed, between the two or around them.

    Returns:
        One for each probe; none where the machine did not change, or it cannot be told: readings that do not
        compare or lack, sides of which none met a state that the other met, or too few repeats.
    """
    if change is None or not change.changed or change.probe is None:
        return ()
    found = []
    for probe in dict.fromkeys([change.probe, *moved_between(base, own)]):
        sides = [_points(side, value, probe) for side in (base, own)]
        if not all(sides) or not _overlap(*([x for _, x in side] for side in sides)):
            return ()
        one = covariance_difference(sides[0], sides[1])
        if one is None or one.df < _LEAST_DF:
            return ()
        found.append(one)
    return tuple(found)


def widened(
    interval: Span, p: float, differences: Sequence[Difference], factor: float = 1.0
) -> tuple[Span, float]:
    """The interval that holds a ratio's own and those at one state, and the largest p of them.

    Args:
        interval: 95 %, of the ratio.
        p: Of a ratio of 1.
        differences: As `held` gives them.
        factor: By which the ratio was multiplied since, such as one of prices.
    """
    low, high = interval
    for one in differences:
        middle = one.value + math.log(factor)
        half = t_quantile(0.975, one.df) * one.error
        low, high = min(low, math.exp(middle - half)), max(high, math.exp(middle + half))
        p = max(p, _p(middle, one))
    return (low, high), p


def _p(middle: float, one: Difference) -> float:
    if not one.error:
        return 1.0 if middle == 0 else 0.0
    return min(2 * t_cdf(-abs(middle) / one.error, one.df), 1.0)


def _points(
    records: Sequence[Record], value: Callable[[Record], float | None], probe: str
) -> list[tuple[float, float]]:
    """Logarithms of each trial's figure and of the probe around it; none where one lacks."""
    found = []
    for record in records:
        figure, speed = value(record), probe_of(record, probe)
        if figure is None or figure <= 0 or speed is None:
            return []
        found.append((math.log(figure), math.log(speed)))
    return found


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether both met speeds between which the other's lie: else a line would be drawn beyond its points."""
    return max(min(a), min(b)) <= min(max(a), max(b))

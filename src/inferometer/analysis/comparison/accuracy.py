"""Accuracy side by side: image by image where both sides know their outcomes, else two figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inferometer.analysis.comparison.differences import Comparability, Side, likeness
from inferometer.analysis.comparison.matters import Axis
from inferometer.analysis.comparison.points import Point, Source
from inferometer.analysis.comparison.ratios import network
from inferometer.analysis.correctness import Scored, pair_difference
from inferometer.analysis.rows import DifferenceRow

__all__ = ["UNPAIRED", "AccuracyGap", "accuracy_gaps"]

UNPAIRED = "two figures: no verdict"


@dataclass(frozen=True)
class AccuracyGap:
    """Accuracy of one subject less that of the baseline.

    Attributes:
        subject: Whom ``own`` is of.
        baseline: Whom ``base`` is of.
        own: The point; ``top1`` or ``top5``.
        base: The other.
        delta: Own less base, over the common images where paired (a fraction); None where refused.
        paired: The comparison on the same images; None where one side's outcomes are not known.
        verdict: That of the paired comparison, or why there is none.
        comparability: Whether the two are like for like.
    """

    subject: str
    baseline: str
    own: Point
    base: Point
    delta: float | None
    paired: DifferenceRow | None
    verdict: str
    comparability: Comparability


def accuracy_gaps(
    sources: Sequence[Source], axis: Axis, name: Callable[[Point], str], baseline: str
) -> tuple[AccuracyGap, ...]:
    """Every accuracy against that of the baseline on the same network and metric.

    Args:
        sources: Stores and studies.
        axis: What is asked about.
        name: The subject that a point belongs to.
        baseline: The subject that the others are held against.
    """
    sides = [
        Side(point, source)
        for source in sources
        for point in source.points
        if point.metric in ("top1", "top5") and point.value is not None
    ]
    bases = [side for side in sides if name(side.point) == baseline]
    found = []
    for own in sides:
        fitting = [base for base in bases if _key(base.point, axis) == _key(own.point, axis)]
        if name(own.point) == baseline or not fitting:
            continue
        judged = [(base, likeness(own, base, axis)) for base in fitting]
        base, alike = min(
            judged, key=lambda pair: (len(pair[1].refusing), pair[0].source.label != own.source.label)
        )
        found.append(_gap(name, own, base, alike))
    return tuple(found)


def _key(point: Point, axis: Axis) -> tuple[str, str, str | None]:
    return network(point), point.metric, None if axis == "precision" else point.precision


def _gap(name: Callable[[Point], str], own: Side, base: Side, alike: Comparability) -> AccuracyGap:
    paired = None if alike.refusing else _paired(own, base)
    delta = (own.point.value or 0.0) - (base.point.value or 0.0)
    verdict = UNPAIRED
    if alike.refusing:
        verdict = "not comparable"
    elif paired is not None:
        delta, verdict = paired.delta, paired.verdict
    return AccuracyGap(
        subject=name(own.point),
        baseline=name(base.point),
        own=own.point,
        base=base.point,
        delta=None if alike.refusing else delta,
        paired=paired,
        verdict=verdict,
        comparability=alike,
    )


def _paired(own: Side, base: Side) -> DifferenceRow | None:
    a, b = _scored(base), _scored(own)
    if a is None or b is None:
        return None
    return next((row for row in pair_difference(a, b) if row.metric == own.point.metric), None)


def _scored(side: Side) -> Scored | None:
    if side.source.summary is None:
        return None
    for row in side.source.summary.accuracy:
        if row.record_id in side.point.record_ids:
            record = side.source.records[row.record_id]
            outcome = side.source.top5(record)
            return None if outcome is None else Scored(row.setup, record, outcome, row.mac_share)
    return None

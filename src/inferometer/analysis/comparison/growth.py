"""How each subject scales with the number of its devices, and what it gives at each batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from inferometer.analysis.comparison.points import Metric, Point, Source, told_ids
from inferometer.analysis.comparison.ratios import network
from inferometer.analysis.comparison.subjects import Namer
from inferometer.analysis.power import Span

__all__ = ["LINEAR_WITHIN", "Growth", "Sweep", "growth_rows", "sweeps"]

LINEAR_WITHIN = 0.03
"""Up to so far from linear published figures count as linear (a fraction).

Source: chosen; a label of two decimals near 0.5 is rounded by 1 %, and a ratio of two of them by 1.4 %.
"""


@dataclass(frozen=True)
class Growth:
    """Several devices against as many times one.

    Attributes:
        subject: Whom it is of.
        point: The figure of several.
        efficiency: It over ``count`` times one, or over the sum of the same devices alone; 1 is linear.
        interval: 95 %; None for published figures and with one repeat on a side.
        verdict: What may be said of it.
        evidence: What it rests on.
    """

    subject: str
    point: Point
    efficiency: float
    interval: Span | None
    verdict: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """One metric of one subject over its batches, ascending, everything else alike."""

    subject: str
    metric: Metric
    points: tuple[Point, ...]

    @property
    def best(self) -> Point | None:
        """The one with the highest value."""
        known = [point for point in self.points if point.value is not None]
        return max(known, key=lambda point: point.value or 0.0, default=None)


def growth_rows(sources: Sequence[Source], name: Namer) -> tuple[Growth, ...]:
    """Every figure of several devices that can be held against one."""
    found: list[Growth] = []
    for source in sources:
        found += _published(source, name) if source.study is not None else _measured(source, name)
    return tuple(found)


def sweeps(sources: Sequence[Source], name: Namer, metric: Metric) -> tuple[Sweep, ...]:
    """Figures of one device at two batches or more, those that ran out of memory among them.

    A study's figures belong together only where they are multiples of the same figure.
    """
    groups: dict[Hashable, list[Point]] = defaultdict(list)
    for source in sources:
        for point in source.points:
            if point.metric == metric and point.batch is not None and point.count in (None, 1):
                place = (
                    name(point),
                    source.label,
                    network(point),
                    point.precision,
                    point.engine,
                    point.device,
                )
                apart = point.machine_key, point.settings, point.relative_to, point.boundary
                groups[(*place, *apart)].append(point)
    return tuple(
        Sweep(name(members[0]), metric, tuple(sorted(members, key=lambda one: one.batch or 0)))
        for members in groups.values()
        if len({point.batch for point in members}) > 1
    )


def _published(source: Source, name: Namer) -> list[Growth]:
    rated = [one for one in source.points if one.metric == "images_per_s" and one.value]
    alone = [one for one in rated if one.count == 1]
    found = []
    for point in rated:
        fitting = [one for one in alone if _place(one) == _place(point)]
        if (point.count or 1) < 2 or not fitting:
            continue
        # A study may state the figure of one in several sections: the one beside that of several counts.
        one = min(fitting, key=lambda other: _section(other) != _section(point))
        efficiency = (point.value or 0.0) / ((point.count or 1) * (one.value or 1.0))
        evidence = (*one.evidence, *point.evidence)
        found.append(Growth(name(point), point, efficiency, None, _verdict(efficiency), evidence))
    return found


def _place(point: Point) -> Hashable:
    return point.device, network(point), point.precision, point.batch, point.relative_to, point.settings


def _section(point: Point) -> str:
    """The keys above the number of devices."""
    return (point.section or "").rpartition(" / ")[0]


def _verdict(efficiency: float) -> str:
    if abs(efficiency - 1) <= LINEAR_WITHIN:
        return "linear"
    return "less than linear" if efficiency < 1 else "more than linear"


def _measured(source: Source, name: Namer) -> list[Growth]:
    """As a report of the store judges it: against the sum of the same devices alone."""
    found = []
    for row in source.summary.scaling if source.summary else ():
        own = set(row.record_ids)
        fitting = (
            one for one in source.points if one.metric == "images_per_s" and own <= set(one.record_ids)
        )
        point = next(fitting, None)
        if point is not None and row.efficiency is not None:
            evidence = told_ids(source.label, (*row.alone_ids, *row.record_ids))
            found.append(Growth(name(point), point, row.efficiency, row.interval, row.verdict, evidence))
    return found

"""Every point against the same point of the baseline: ratio, interval, and what may be said of it."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inferometer.analysis.comparison.differences import Comparability, Side, likeness
from inferometer.analysis.comparison.facts import is_cpu
from inferometer.analysis.comparison.matters import Axis
from inferometer.analysis.comparison.points import LOWER_IS_BETTER, Metric, Point, Source
from inferometer.analysis.held import held, widened
from inferometer.analysis.power import Span
from inferometer.analysis.power_gains import ratio_interval_of
from inferometer.analysis.probe import change_between
from inferometer.analysis.ratios import SIGNIFICANT
from inferometer.analysis.rows import MachineChange
from inferometer.records import Record
from inferometer.stats import Difference, holm, ratio_interval, t_cdf, t_quantile

__all__ = ["Per", "RatioRow", "RatioVerdict", "network", "ratio_rows"]

Per = Literal["like count", "server", "price"]
"""``like count``: as many devices on both sides; ``server``: all that each has; ``price``: for its price."""

RatioVerdict = Literal[
    "faster",
    "slower",
    "more per watt",
    "less per watt",
    "more for the price",
    "less for the price",
    "no difference seen",
    "published: no interval",
    "one repeat: no verdict",
    "inconclusive: machine changed",
    "not comparable",
]

# Joules per image are the reciprocal of images/s/W; accuracy is compared image by image, not as a ratio.
_COMPARED: tuple[Metric, ...] = (
    "images_per_s",
    "images_per_s_per_device",
    "latency_p50_s",
    "latency_p99_s",
    "images_per_s_per_w",
)
_Key = Callable[[Point], tuple[Hashable, ...]]
# Where they stand in a key.
_METRIC, _BATCH = 1, 2
_PER_SERVER: tuple[Metric, ...] = ("images_per_s", "images_per_s_per_w")


@dataclass(frozen=True)
class RatioRow:
    """One point over the same point of the baseline.

    Attributes:
        per: What both sides are taken for.
        subject: Whom the point is of.
        baseline: Whom the other is of.
        own: The point.
        base: The other.
        ratio: Value over the baseline's value, of geometric means of the repeats; None where refused.
        interval: 95 %; None with one repeat on a side, and for published figures.
        p: Two-sided, of a ratio of 1, corrected by Holm for all ratios of the comparison.
        verdict: What may be said of it.
        machine_change: How far the probe of one and the same machine moved between the two, or within one.
        comparability: Whether the two are like for like, and why not.
        prices: Of own and base, where it is a ratio for the price.
        held: The machine changed, and interval and p are also those of the ratio with it held at one state,
            which is this (see ``analysis.held``); empty where that is not so.
    """

    per: Per
    subject: str
    baseline: str
    own: Point
    base: Point
    ratio: float | None
    interval: Span | None
    p: float | None
    verdict: RatioVerdict
    machine_change: MachineChange | None
    comparability: Comparability
    prices: tuple[float, float] | None = None
    held: tuple[Difference, ...] = ()


def ratio_rows(
    sources: Sequence[Source],
    axis: Axis,
    name: Callable[[Point], str],
    baseline: str,
    prices: Mapping[str, float] | None = None,
) -> tuple[RatioRow, ...]:
    """All ratios to the baseline, in the order of the points.

    Args:
        sources: Stores and studies.
        axis: What is asked about.
        name: The subject that a point belongs to.
        baseline: The subject that the others are held against.
        prices: By subject: of a device along the axis of devices, else of all of it.
    """
    sides = [
        Side(point, source)
        for source in sources
        for point in source.points
        if point.metric in _COMPARED and point.value is not None and point.value > 0
    ]
    key = _keys(sides, axis, name)
    found = [
        *_like_count(sides, axis, name, baseline, key),
        *_per_server(sides, axis, name, baseline, key),
    ]
    found += _per_price(found, axis, prices or {})
    corrected = iter(holm([one.p for one in found if one.p is not None]))
    return tuple(one if one.p is None else _judged(replace(one, p=next(corrected))) for one in found)


def network(point: Point) -> str:
    """The network's name without folder and ending: by it points of several sources are brought together."""
    return point.model.rsplit("/", 1)[-1].removesuffix(".onnx").lower()


def _like_count(
    sides: Sequence[Side], axis: Axis, name: Callable[[Point], str], baseline: str, key: _Key
) -> Iterator[RatioRow]:
    groups: dict[tuple[Hashable, ...], list[Side]] = defaultdict(list)
    for side in sides:
        groups[(*key(side.point), side.point.count)].append(side)
    for group in (*groups.values(), *_without_batch(groups, name, baseline)):
        bases = [side for side in group if name(side.point) == baseline]
        for own in group:
            if bases and name(own.point) != baseline:
                base, alike = _nearest(own, bases, axis)
                yield _row("like count", name, own, base, alike)


def _without_batch(
    groups: Mapping[tuple[Hashable, ...], Sequence[Side]], name: Callable[[Point], str], baseline: str
) -> Iterator[list[Side]]:
    """A study that states no batch took its best: beside it stands the best of the others."""
    for key, stated in groups.items():
        if key[_BATCH] is not None or key[_METRIC] not in ("images_per_s", "images_per_s_per_device"):
            continue
        best: dict[str, Side] = {}
        for other, members in groups.items():
            if other != key and other[:_BATCH] + other[_BATCH + 1 :] == key[:_BATCH] + key[_BATCH + 1 :]:
                for side in members:
                    known = best.get(name(side.point))
                    if known is None or (side.point.value or 0) > (known.point.value or 0):
                        best[name(side.point)] = side
        named = {name(side.point) for side in stated}
        found = {subject: side for subject, side in best.items() if subject not in named}
        for own in stated:
            # Those that state a batch, or state none, have met each other already.
            if name(own.point) == baseline:
                yield [own, *found.values()]
            elif baseline in found:
                yield [own, found[baseline]]


def _per_server(
    sides: Sequence[Side], axis: Axis, name: Callable[[Point], str], baseline: str, key: _Key
) -> Iterator[RatioRow]:
    """The largest number of devices on each side, where these numbers differ."""
    if axis not in ("machine", "device"):
        return
    groups: dict[Hashable, list[Side]] = defaultdict(list)
    for side in sides:
        if side.point.metric in _PER_SERVER and side.point.count is not None:
            groups[key(side.point)].append(side)
    for group in groups.values():
        largest: dict[str, int] = {}
        for side in group:
            subject = name(side.point)
            largest[subject] = max(largest.get(subject, 0), side.point.count or 0)
        if baseline not in largest:
            continue
        full = [side for side in group if side.point.count == largest[name(side.point)]]
        bases = [side for side in full if name(side.point) == baseline]
        for own in full:
            if name(own.point) != baseline and own.point.count != largest[baseline]:
                base, alike = _nearest(own, bases, axis, as_populated=True)
                yield _row("server", name, own, base, alike)


def _keys(sides: Sequence[Side], axis: Axis, name: Callable[[Point], str]) -> _Key:
    """What two points must share to be held against each other at all."""
    kinds: dict[str, set[bool]] = defaultdict(set)
    for side in sides:
        kinds[name(side.point)].add(is_cpu(side.point))
    # Where a machine has both, its processor is held against the other's processor.
    both = axis == "machine" and any(len(found) > 1 for found in kinds.values())

    def key(point: Point) -> tuple[Hashable, ...]:
        precision = None if axis == "precision" else point.precision
        kind = is_cpu(point) if both else None
        return network(point), point.metric, point.batch, precision, point.boundary, kind

    return key


def _nearest(
    own: Side, bases: Sequence[Side], axis: Axis, *, as_populated: bool = False
) -> tuple[Side, Comparability]:
    """Of several points of the baseline the one most like it; its own source's before another's."""
    judged = [(base, likeness(own, base, axis, as_populated=as_populated)) for base in bases]
    return min(
        judged,
        key=lambda pair: (
            len(pair[1].refusing),
            pair[0].source.label != own.source.label,
            len(pair[1].marking),
        ),
    )


def _row(per: Per, name: Callable[[Point], str], own: Side, base: Side, alike: Comparability) -> RatioRow:
    row = RatioRow(
        per=per,
        subject=name(own.point),
        baseline=name(base.point),
        own=own.point,
        base=base.point,
        ratio=None,
        interval=None,
        p=None,
        verdict="not comparable",
        machine_change=None,
        comparability=alike,
    )
    if alike.refusing:
        return row
    change = _change(own, base)
    row = replace(row, machine_change=change, held=_held(own, base, change))
    return _compared(row, own.point, base.point)


_FIGURES: Mapping[Metric, Callable[[Record], float | None]] = {
    "images_per_s": lambda record: record.throughput.images_per_s if record.throughput else None,
    "latency_p50_s": lambda record: record.latency_s.p50 if record.latency_s else None,
    "latency_p99_s": lambda record: record.latency_s.p99 if record.latency_s else None,
}


def _held(own: Side, base: Side, change: MachineChange | None) -> tuple[Difference, ...]:
    """None where the points' repeats are not figures of a record each."""
    figure = _FIGURES.get(own.point.metric)
    sides = [[one for one in side.source.of(side.point) if one.status == "ok"] for side in (base, own)]
    if figure is None or any(
        len(records) != len(side.point.repeats) for records, side in zip(sides, (base, own), strict=True)
    ):
        return ()
    return held(sides[0], sides[1], figure, change)


def _compared(row: RatioRow, own: Point, base: Point) -> RatioRow:
    """The row with its ratio, from points that may have been scaled."""
    plain = _centre(own) / _centre(base)
    if 0 in (own.runs, base.runs):
        return replace(row, ratio=plain, verdict="published: no interval")
    row = replace(row, ratio=plain, verdict="one repeat: no verdict")
    if min(own.runs, base.runs) < 2:
        return row
    if own.repeats and base.repeats:
        found = ratio_interval(base.repeats, own.repeats)
        if found is None:
            return row
        factor = plain / (_centre(row.own) / _centre(row.base))  # of prices
        wide, p = widened((found.lo, found.hi), found.p, row.held, factor)
        return replace(row, interval=wide, p=p)
    interval = ratio_interval_of(_centre(own), own.interval, _centre(base), base.interval)
    if interval is None:
        return row
    return replace(row, interval=interval, p=_p(plain, interval, min(own.runs, base.runs) - 1))


def _centre(point: Point) -> float:
    return statistics.geometric_mean(point.repeats) if point.repeats else point.value or math.nan


def _p(ratio: float, interval: Span, df: int) -> float:
    """Of a ratio of 1, from an interval on logarithms: with the tails of the side that has fewer repeats."""
    distance = abs(math.log(ratio))
    half = math.log(ratio / interval[0]) if ratio > 1 else math.log(interval[1] / ratio)
    if half <= 0:
        return 1.0 if distance == 0 else 0.0
    return min(2 * t_cdf(-distance / half * t_quantile(0.975, df), df), 1.0)


def _change(own: Side, base: Side) -> MachineChange | None:
    """Of one machine: between the two sides, and within each of two stores; machines are never mixed."""
    key = own.point.machine_key
    if key is None or key != base.point.machine_key:
        return None
    found = [change_between(base.source.of(base.point), own.source.of(own.point))]
    if own.source.label != base.source.label:
        found += [side.source.summary.machine_change for side in (own, base) if side.source.summary]
    return max((one for one in found if one is not None), key=lambda one: one.severity, default=None)


def _per_price(rows: Iterable[RatioRow], axis: Axis, prices: Mapping[str, float]) -> list[RatioRow]:
    found = []
    for row in rows:
        known = prices.get(row.subject), prices.get(row.baseline)
        if row.own.metric != "images_per_s" or row.ratio is None or None in known:
            continue
        # What is named along the axis of devices is one of them; else the whole of it.
        counts = ((row.own.count or 1), (row.base.count or 1)) if axis == "device" else (1, 1)
        own, base = ((price or 0) * count for price, count in zip(known, counts, strict=True))
        priced = replace(row, per="price", prices=(own, base))
        found.append(_compared(priced, _scaled(row.own, 1 / own), _scaled(row.base, 1 / base)))
    return found


def _scaled(point: Point, factor: float) -> Point:
    return replace(
        point,
        value=None if point.value is None else point.value * factor,
        repeats=tuple(value * factor for value in point.repeats),
    )


def _judged(row: RatioRow) -> RatioRow:
    return replace(row, verdict=_verdict(row))


def _verdict(row: RatioRow) -> RatioVerdict:
    told = row.p is not None and row.p < SIGNIFICANT
    if row.machine_change is not None and row.machine_change.changed and not (row.held and told):
        return "inconclusive: machine changed"
    if row.ratio is None or not told:
        return "no difference seen"
    more = row.ratio > 1
    if row.per == "price":
        return "more for the price" if more else "less for the price"
    if row.own.metric == "images_per_s_per_w":
        return "more per watt" if more else "less per watt"
    return "faster" if more != (row.own.metric in LOWER_IS_BETTER) else "slower"

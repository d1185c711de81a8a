"""The comparison in sentences, each computed from the points and with what it rests on."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Literal

from inferometer.analysis.comparison.accuracy import AccuracyGap
from inferometer.analysis.comparison.growth import LINEAR_WITHIN, Growth, Sweep
from inferometer.analysis.comparison.points import Point, Source, told_ids
from inferometer.analysis.comparison.ratios import RatioRow, network
from inferometer.analysis.comparison.specifications import agreement, expected_per_watt
from inferometer.analysis.comparison.subjects import Namer, subject_words
from inferometer.analysis.marks import with_mark
from inferometer.analysis.probe import limits_text
from inferometer.analysis.rows import Finding
from inferometer.analysis.wording import (
    count,
    joined,
    model_names,
    percent,
    plural,
    points,
    ratio,
    ratio_range,
    significant,
)

__all__ = [
    "accuracy_findings",
    "disturbance_findings",
    "efficiency_findings",
    "growth_findings",
    "memory_findings",
    "speed_findings",
]

PLATEAU = 0.9
"""From the batch on at which both give so much of their best, they are compared per watt (a fraction).

Source: chosen; below it the calls' own cost is in the ratio.
"""

_LOAD = 0.5  # of a core, that other processes kept busy on average. Source: chosen


def speed_findings(rows: Sequence[RatioRow], sources: Sequence[Source], apart: Namer) -> Iterator[Finding]:
    """How fast each subject is beside the baseline: per network and precision, at its largest batch.

    Args:
        rows: All ratios.
        sources: Stores and studies.
        apart: What else tells figures of one subject apart; here and in the functions below.
    """
    groups: dict[Hashable, list[RatioRow]] = defaultdict(list)
    for row in rows:
        if row.own.metric in ("images_per_s", "latency_p50_s"):
            groups[row.per, row.own.metric, row.subject, _what(row.own), apart(row.own)].append(row)
    for members in groups.values():
        least = min(row.own.count or 1 for row in members)
        told = [row for row in members if row.per != "like count" or (row.own.count or 1) == least]
        fair = [row for row in told if row.ratio is not None]
        if fair:
            yield _speed(max(fair, key=lambda one: one.own.batch or 0), sources, apart)
    yield from _refused(rows)


def _refused(rows: Sequence[RatioRow]) -> Iterator[Finding]:
    """One sentence for each subject and reason."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[RatioRow]] = defaultdict(list)
    for row in rows:
        if row.ratio is None:
            reasons = tuple(one.text for one in row.comparability.refusing)
            groups[row.subject, row.baseline, reasons].append(row)
    for (subject, baseline, reasons), members in groups.items():
        text = (
            f"{plural(len(members), 'figure')} of {subject_words(subject)} and {subject_words(baseline)}"
            f" {'is' if len(members) == 1 else 'are'} not compared: {joined(reasons)}."
        )
        evidence = tuple(dict.fromkeys(name for row in members for name in _evidence(row)))
        yield Finding("speed", None, text, evidence, settled=False)


def _speed(row: RatioRow, sources: Sequence[Source], apart: Namer) -> Finding:
    latency = row.own.metric == "latency_p50_s"
    subject, baseline = _counted(row.subject, row.own, row), _counted(row.baseline, row.base, row)
    where = _where(row.own, apart)
    evidence = _evidence(row)
    about: Literal["latency", "speed"] = "latency" if latency else "speed"
    what = {"server": " with all devices that each has", "price": " for the same money"}.get(row.per, "")
    unit = "median latency" if latency else "images/s"
    verb = "take" if latency else "give"
    text = f"{_verb(subject, row, verb)} {_ratio(row)} the {unit} of {baseline}{what} ({where})"
    specified = agreement(row, sources)
    text += _verdict_words(row) + (f"; {specified}" if specified else "") + "."
    marks = row.comparability.marking
    if marks:
        text += f" Not quite like for like: {joined([one.text for one in marks[:3]])}."
    settled = row.verdict not in (
        "no difference seen",
        "inconclusive: machine changed",
        "one repeat: no verdict",
    )
    return Finding(about, ratio(row.ratio or 0.0), text, evidence, settled=settled, marked=_low(row))


def growth_findings(rows: Sequence[Growth], apart: Namer) -> Iterator[Finding]:
    """How linear each subject scales: its largest number of devices, and how far any is from linear."""
    groups: dict[Hashable, list[Growth]] = defaultdict(list)
    for row in rows:
        groups[row.subject, _what(row.point), row.point.batch, apart(row.point)].append(row)
    for members in groups.values():
        last = max(members, key=lambda one: one.point.count or 0)
        most = last.point.count or 0
        subject = subject_words(last.subject)
        words = f"{subject} with {most} devices: {last.verdict}"
        if last.interval is None:
            words = f"{subject} scales {_linear(members)}"
        interval = ""
        if last.interval is not None:
            interval = f", 95 % interval {percent(last.interval[0])} to {percent(last.interval[1])}"
        text = (
            f"{words}: {most} of them give {significant(last.efficiency * most)} times"
            f" what one does, {percent(last.efficiency)} of linear{interval} ({_where(last.point, apart)})."
        )
        evidence = tuple(dict.fromkeys(name for one in members for name in one.evidence))
        yield Finding("scaling", percent(last.efficiency), text, evidence)


def _linear(members: Sequence[Growth]) -> str:
    away = max((one.efficiency - 1 for one in members), key=abs)
    if abs(away) <= LINEAR_WITHIN:
        return f"linearly, within {percent(max(abs(away), 0.001))}"
    return f"{'less' if away < 0 else 'more'} than linearly, {percent(abs(away))} off at most"


def efficiency_findings(
    rows: Sequence[RatioRow], found: Sequence[Sweep], sources: Sequence[Source], apart: Namer
) -> Iterator[Finding]:
    """Images/s/W beside the baseline where both are near their best, and at which batch each is best."""
    groups: dict[Hashable, list[RatioRow]] = defaultdict(list)
    for row in rows:
        if row.own.metric == "images_per_s_per_w" and row.per == "like count" and row.own.count in (None, 1):
            scale = row.own.relative_to, row.own.boundary
            groups[row.subject, _what(row.own), apart(row.own), scale].append(row)
    for members in groups.values():
        finding = _per_watt(members, sources, apart)
        if finding is not None:
            yield finding
    for row in rows:
        if row.own.metric == "images_per_s_per_w" and row.per == "server" and row.ratio is not None:
            subject, baseline = _counted(row.subject, row.own, row), _counted(row.baseline, row.base, row)
            text = (
                f"{_verb(subject, row, 'give')} {_ratio(row)} the images/s/W of {baseline}"
                f" with all devices that each has ({_where(row.own, apart)}){_verdict_words(row)}."
            )
            yield Finding("power", ratio(row.ratio), text, _evidence(row))
    for sweep in found:
        if sweep.best is not None:
            yield _best(sweep, sweep.best, apart)


def _per_watt(members: Sequence[RatioRow], sources: Sequence[Source], apart: Namer) -> Finding | None:
    rated = [row for row in members if row.ratio is not None]
    if not rated:
        return None
    best = max(row.own.value or 0 for row in rated), max(row.base.value or 0 for row in rated)
    near = {
        row.own.batch or 0: all(
            (point.value or 0) >= PLATEAU * top for point, top in zip((row.own, row.base), best, strict=True)
        )
        for row in rated
    }
    below = [batch for batch, held in near.items() if not held]
    plateau = [row for row in rated if (row.own.batch or 0) > max(below, default=-1)]
    told = plateau or rated
    ratios = [row.ratio or 0.0 for row in told]
    first = told[0]
    evidence = tuple(name for row in told for name in _evidence(row))
    expected = expected_per_watt(first, sources)
    specified = f"; {expected}" if expected else ""
    if len(told) == 1:
        words = (
            f"{_ratio(first)} the images/s/W of {subject_words(first.baseline)} ({_where(first.own, apart)})"
        )
        text = f"{subject_words(first.subject)} gives {words}{_verdict_words(first)}{specified}."
        return Finding("power", ratio(ratios[0]), text, evidence)
    batches = sorted(row.own.batch or 0 for row in told)
    what, near_best = _network_words(first.own, apart), f"within {percent(1 - PLATEAU, 0)} of their best"
    if plateau:
        place = f"{count(batches[0])} and up ({what}), where both are {near_best}"
    else:
        span = f"{count(batches[0])} to {count(batches[-1])}"
        place = f"{span} ({what}): from no batch on do both stay {near_best}"
    text = (
        f"{subject_words(first.subject)} gives {min(ratios):.2f} to {max(ratios):.2f} times the images/s/W of"
        f" {subject_words(first.baseline)} at batch {place}{_told(told)}{specified}."
    )
    return Finding("power", f"{min(ratios):.2f} to {max(ratios):.2f}\N{MULTIPLICATION SIGN}", text, evidence)


def _told(rows: Sequence[RatioRow]) -> str:
    """How many of the ratios have a verdict; published figures have none."""
    known = [row for row in rows if row.p is not None]
    if not known:
        return ""
    sure = sum(row.verdict in ("more per watt", "less per watt") for row in known)
    return f"; {count(sure)} of {plural(len(known), 'ratio')} are told from 1"


def _best(sweep: Sweep, best: Point, apart: Namer) -> Finding:
    value = significant(best.value or 0)
    unit = "images/s/W"
    if best.relative_to is not None:
        base = best.relative_to
        unit = f"times the images/s/W of {base.count or 1} {base.accelerator} at batch {base.batch}"
    text = (
        f"{subject_words(sweep.subject)} is most efficient at batch {count(best.batch or 0)}: {value} {unit}"
        f" ({_network_words(best, apart)})."
    )
    return Finding("power", f"batch {count(best.batch or 0)}", text, best.evidence)


def memory_findings(sources: Sequence[Source], name: Namer, apart: Namer) -> Iterator[Finding]:
    """Where memory ended: the smallest batch that did not fit, and the largest that did."""
    groups: dict[Hashable, list[Point]] = defaultdict(list)
    for source in sources:
        for point in source.points:
            if point.batch is not None:
                groups[name(point), _what(point), apart(point), point.count].append(point)
    for members in groups.values():
        lost = [one for one in members if one.status == "out_of_memory"]
        if not lost:
            continue
        least = min(one.batch or 0 for one in lost)
        first = [one for one in lost if one.batch == least]
        ran = [one.batch or 0 for one in members if one.value is not None and (one.batch or 0) < least]
        still = f"; batch {count(max(ran))} still ran" if ran else ""
        subject, where = subject_words(name(first[0])), _network_words(first[0], apart)
        several = f" on {first[0].count} devices" if (first[0].count or 1) > 1 else ""
        text = f"{subject}{several} ran out of memory at batch {count(least)}{still} ({where})."
        yield Finding("memory", f"batch {count(least)}", text, tuple(dict.fromkeys(
            name for one in first for name in one.evidence
        )))  # fmt: skip


def accuracy_findings(gaps: Sequence[AccuracyGap], apart: Namer) -> Iterator[Finding]:
    """Top-1 beside the baseline; within noise or not where both were scored on the same images."""
    for gap in gaps:
        if gap.own.metric != "top1":
            continue
        evidence = (*gap.base.evidence, *gap.own.evidence)
        what = _named(gap.own) if gap.own.precision != gap.base.precision else _network_words(gap.own)
        place = f" ({apart(gap.own)})" if apart(gap.own) else ""
        who = f"{what}, {subject_words(gap.subject)} against {subject_words(gap.baseline)}{place}"
        if gap.delta is None:
            text = f"{who}: top-1 is {gap.comparability.text}."
            yield Finding("accuracy", None, text, evidence, settled=False)
            continue
        text = f"{who}: top-1 differs by {points(gap.delta)} points"
        if gap.paired is not None:
            lo, hi = gap.paired.interval
            text += (
                f" on the same {plural(gap.paired.images, 'image')}"
                f" (95 % interval {points(lo)} to {points(hi)}): {gap.verdict}."
            )
        else:
            text += ": two figures, which do not tell whether that is within noise."
        settled = gap.paired is not None and gap.verdict != "within noise"
        yield Finding("accuracy", points(gap.delta), text, evidence, settled=settled)


def disturbance_findings(sources: Sequence[Source], name: Namer) -> Iterator[Finding]:
    """What was throttled, and which machine changed or was busy with other work."""
    held: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for source in sources:
        for point in source.points:
            for mark in point.marks if point.metric == "images_per_s" else ():
                if mark.startswith("throttled"):
                    held[name(point), mark].append(point)
    for (subject, mark), members in held.items():
        why = mark.partition(": ")[2]
        text = f"{subject_words(subject)}: clocks were held down ({why}) in {plural(len(members), 'figure')}."
        yield Finding("disturbance", None, text, _ids(members), settled=False)
    for source in sources:
        yield from _disturbed(source)


def _disturbed(source: Source) -> Iterator[Finding]:
    if source.summary is None:
        return
    change = source.summary.machine_change
    if change is not None and change.changed:
        moved = change.reason or f"its {change.probe} probe moved by {percent(change.change or 0)}"
        text = f"{source.label}: the machine changed while it was measured: {moved} (limit: {limits_text()})."
        yield Finding("disturbance", None, text, told_ids(source.label, source.records), settled=False)
    loads = {
        record.id: float(busy)
        for record in source.records.values()
        if isinstance(busy := ((record.state or {}).get("load") or {}).get("busy_cores"), int | float)
    }
    mean = statistics.fmean(loads.values()) if loads else 0.0
    if mean > _LOAD:
        text = f"{source.label}: other processes kept {significant(mean)} cores busy, on average."
        ids = told_ids(source.label, loads)
        yield Finding("disturbance", f"{significant(mean)} cores", text, ids, settled=False)


def _ratio(row: RatioRow) -> str:
    """``0.52 of``, ``1.92 times``; the interval between the two words."""
    value = row.ratio or 0.0
    word = "of" if value < 1 else "times"
    text = f"{value:.2f}" if value < 100 else count(round(value))
    held = ", the machine's change allowed for" if row.held else ""
    return (
        f"{text} {word} (95 % interval {ratio_range(*row.interval)}{held})"
        if row.interval
        else f"{text} {word}"
    )


def _verdict_words(row: RatioRow) -> str:
    if row.verdict == "published: no interval":
        return ""
    return f": {row.verdict}"


def _counted(subject: str, point: Point, row: RatioRow) -> str:
    """``4 x tesla-p4`` where numbers of devices are what is compared, ``one tesla-p4`` of published ones."""
    if row.per == "server" or (point.count or 1) > 1:
        return f"{point.count} x {subject_words(subject)}"
    return (
        f"one {subject}" if subject == point.device and point.section is not None else subject_words(subject)
    )


def _verb(subject: str, row: RatioRow, verb: str) -> str:
    """The subject at the head of a sentence and what it does."""
    head = f"One{subject[3:]}" if subject.startswith("one ") else subject
    return f"{head} {verb if (row.own.count or 1) > 1 else verb + 's'}"


def _evidence(row: RatioRow) -> tuple[str, ...]:
    return (*row.base.evidence, *row.own.evidence)


def _where(point: Point, apart: Namer) -> str:
    batch = f", batch {count(point.batch)}" if point.batch is not None else ""
    return f"{_network_words(point)}{batch}{_apart_words(point, apart)}"


def _network_words(point: Point, apart: Namer | None = None) -> str:
    words = f"{_named(point)} {with_mark(point.precision.upper(), point.mac_share)}"
    return words if apart is None else words + _apart_words(point, apart)


def _apart_words(point: Point, apart: Namer) -> str:
    return f"; {apart(point)}" if apart(point) else ""


def _named(point: Point) -> str:
    return model_names([point.model])[point.model]


def _what(point: Point) -> Hashable:
    return network(point), point.precision


def _low(row: RatioRow) -> bool:
    return any("low MAC share" in point.marks for point in (row.own, row.base))


def _ids(members: Iterable[Point]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for point in members for name in point.evidence))

"""Scaling in sentences: what devices do together, where what is missing went, and what limits that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from inferometer.analysis.cautions import listed, named
from inferometer.analysis.findings import settings_text, subject
from inferometer.analysis.grouping import place_of
from inferometer.analysis.marks import is_marked, with_mark
from inferometer.analysis.rows import Finding, Summary
from inferometer.analysis.scaling_causes import shared_processors
from inferometer.analysis.scaling_rows import Cause, ScalingPower, ScalingRow
from inferometer.analysis.wording import (
    count,
    joined,
    milliseconds,
    p_value,
    percent,
    plural,
    rate,
    ratio,
    ratio_range,
    significant,
)
from inferometer.records import HOSTS_DIFFER, Record

__all__ = ["largest", "points_text", "scaling_cautions", "scaling_findings"]

_SKEWED = 0.05
"""Largest skew over the timed seconds from which it is told. Source: chosen."""
_CLOCK_ERROR = 0.001
"""Error of a host's clock over the timed seconds from which it is told. Source: chosen."""


def scaling_findings(summary: Summary) -> tuple[Finding, ...]:
    """Per model, engine, device, precision and settings: most ranks at the largest batch; and per watt."""
    rows = largest(summary.scaling)
    watts = [(row, one) for row in rows for one in row.power if one.first]
    return (*(_scaled(summary, row) for row in rows), *(_per_watt(summary, *pair) for pair in watts))


def scaling_cautions(summary: Summary, records: Sequence[Record]) -> tuple[str, ...]:
    """What a reader must know before believing an efficiency, gravest first."""
    made = (
        _inconclusive(summary),
        _hosts_differ(records),
        _shared(summary),
        _one_device(summary),
        _clocks(summary),
        _skewed(summary),
        _not_compared(summary),
        _one_repeat(summary),
    )
    return tuple(sentence for sentences in made for sentence in sentences)


def largest(rows: Sequence[ScalingRow]) -> tuple[ScalingRow, ...]:
    """Of each setup the row of most ranks at the largest batch: one chosen by its rate would be flattered."""
    found: dict[tuple[object, ...], ScalingRow] = {}
    for row in rows:
        kind = (place_of(row.setup), row.setup.precision, row.setup.variant)
        if kind not in found or _size(row) > _size(found[kind]):
            found[kind] = row
    return tuple(found.values())


def points_text(cause: Cause) -> str:
    """The part of linear: ``4.2``, ``up to 4.2``, ``at least 1.0``; ``not known`` where it was only seen."""
    if cause.points is None:
        return "not known"
    words = {"exactly": "", "at most": "up to ", "at least": "at least "}[cause.bound]
    return f"{words}{cause.points * 100:.1f}"


def _size(row: ScalingRow) -> tuple[int, int]:
    return row.setup.ranks, row.setup.batch or 0


def _scaled(summary: Summary, row: ScalingRow) -> Finding:
    setup = row.setup
    precision = with_mark(setup.precision.upper(), row.mac_share)
    head = (
        f"{subject(summary, setup)}{settings_text(setup)} in {precision} at batch {setup.batch}:"
        f" {rate(row.rate)} images/s"
    )
    marked = is_marked(row.mac_share)
    if row.efficiency is None or row.alone_sum is None:
        text = f"{head}; how that scales is not known: {row.why_no_sum}."
        return Finding("scaling", rate(row.rate), text, row.record_ids, settled=False, marked=marked)
    known = f"{percent(row.efficiency)} of what the same devices give alone, added up ({rate(row.alone_sum)}"
    if row.interval is not None:
        known += f"; 95 % interval {row.interval[0] * 100:.1f} to {percent(row.interval[1])}"
    text = f"{head}, {known}): {_verdict_words(row)}.{_slowest(row)}{_missing(row)}"
    settled = row.verdict in ("less than linear", "more than linear")
    figure = percent(row.efficiency) if settled else "no verdict"
    ids = row.record_ids + row.alone_ids
    return Finding("scaling", figure, text, ids, settled=settled, marked=marked)


def _verdict_words(row: ScalingRow) -> str:
    outside = row.interval is not None and not row.interval[0] <= 1 <= row.interval[1]
    if row.verdict == "no difference from linear seen" and outside and row.p is not None:
        # The interval is of this row alone, the verdict allows for all of them.
        return f"{row.verdict} (p {p_value(row.p)} when corrected for the number of setups)"
    if row.verdict == "one repeat: no verdict":
        return "one repeat on a side supports no verdict"
    if row.verdict == "inconclusive: machine changed":
        return "inconclusive, since the machine changed"
    return row.verdict


def _slowest(row: ScalingRow) -> str:
    if row.slowest is None or row.slowest[1] < 0.01:
        return ""
    return f" The slowest rank, {row.slowest[0]}, is {percent(row.slowest[1])} below their mean."


def _missing(row: ScalingRow) -> str:
    """Where what is missing went, in short; the table has the evidence."""
    if not row.causes or row.efficiency is None:
        return ""
    lost = f"{(1 - row.efficiency) * 100:.1f} points"
    counted = [
        one for one in row.causes if one.points is not None and one.name not in ("what remains", "skew")
    ]
    rest = next((one for one in row.causes if one.name == "what remains"), None)
    beside = [one.name for one in row.causes if one.points is None]
    usual = "memory bandwidth or shared cache" if row.setup.device == "cpu" else "the host"
    seen = f"seen beside them: {joined(beside)}" if beside else f"usually {usual}, which was not measured"
    if not counted:
        return f" No arithmetic accounts for the {lost} that are missing; {seen}."
    known = joined([f"{one.name} took {points_text(one)}" for one in counted])
    left = f"; {points_text(rest)} are left, {seen}" if rest else ""
    return f" Of the {lost} that are missing, {known}{left}."


def _per_watt(summary: Summary, row: ScalingRow, one: ScalingPower) -> Finding:
    outside = one.interval is not None and not one.interval[0] <= 1 <= one.interval[1]
    changed = row.machine_change is not None and row.machine_change.changed
    settled = outside and one.repeats > 1 and not changed
    interval = f"95 % interval {ratio_range(*one.interval)}" if one.interval else "no interval"
    text = (
        f"{subject(summary, row.setup)}{settings_text(row.setup)} in"
        f" {with_mark(row.setup.precision.upper(), row.mac_share)} at batch {row.setup.batch}:"
        f" {rate(one.together)} images/s/W of net power, {ratio(one.ratio)} what the same devices give alone"
        f" ({rate(one.alone)}; {interval}; {one.boundary})"
    )
    if not settled:
        why = "one repeat supports no verdict" if one.repeats < 2 else "no difference seen"
        text += f": {'inconclusive, since the machine changed' if changed else why}"
    figure = ratio(one.ratio) if settled else "no verdict"
    ids = row.record_ids + row.alone_ids
    return Finding("scaling", figure, f"{text}.", ids, settled=settled, marked=is_marked(row.mac_share))


def _inconclusive(summary: Summary) -> Iterable[str]:
    judged = [row.verdict for row in summary.scaling if row.p is not None]
    lost = judged.count("inconclusive: machine changed")
    if lost:
        yield (
            f"{count(lost)} of {plural(len(judged), 'comparison')} of several ranks with the same devices"
            f" alone {'is' if lost == 1 else 'are'} inconclusive: the machine's own probe differed too much"
            " between the two sides. Stop other programs and measure again."
        )


def _hosts_differ(records: Sequence[Record]) -> Iterable[str]:
    differences = list(
        dict.fromkeys(
            str(one) for record in records for one in (record.session or {}).get(HOSTS_DIFFER) or ()
        )
    )
    if differences:
        shown = "; ".join(differences[:4])
        more = f"; and {count(len(differences) - 4)} more" if len(differences) > 4 else ""
        yield f"Ranks ran on machines that differ: {shown}{more}. What they give together is of no one kind."


def _shared(summary: Summary) -> Iterable[str]:
    rows = [row for row in summary.scaling if shared_processors(row.ranks) is not None]
    if rows:
        yield (
            f"Ranks shared processors, which alone they have to themselves"
            f" ({listed(named(summary, row.setup) for row in rows)}): these rates do not tell how more"
            " processors would scale."
        )


def _one_device(summary: Summary) -> Iterable[str]:
    rows = []
    for row in summary.scaling:
        devices = [(one.host, one.uuid) for one in row.ranks if one.uuid is not None]
        if len(set(devices)) < len(devices):
            rows.append(row)
    if rows:
        where = listed(named(summary, row.setup) for row in rows)
        yield f"Several ranks ran on one and the same device ({where}): they share it, and do not scale."


def _clocks(summary: Summary) -> Iterable[str]:
    worst = [
        (max(one.clock_u_s for one in row.ranks), row)
        for row in summary.scaling
        if row.ranks and row.timed_s > 0
    ]
    large = [(error, row) for error, row in worst if error > _CLOCK_ERROR * row.timed_s]
    if large:
        error, row = max(large, key=lambda pair: pair[0])
        yield (
            f"Clocks of different hosts are known to within {milliseconds(error)} ms only"
            f" ({named(summary, row.setup)}, timed over {significant(row.timed_s)} s): when all ranks ran is"
            " known no better. Measure longer (measure.max_s)."
        )


def _skewed(summary: Summary) -> Iterable[str]:
    large = [
        (row.skew_s, row)
        for row in summary.scaling
        if row.skew_s is not None and row.skew_s > _SKEWED * row.timed_s
    ]
    if large:
        skew, row = max(large, key=lambda pair: pair[0])
        yield (
            f"Ranks began up to {milliseconds(skew)} ms apart ({named(summary, row.setup)}), in which the"
            f" earlier ones ran alone: only {significant(row.timed_s)} s in which all ran count."
        )


def _not_compared(summary: Summary) -> Iterable[str]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in summary.scaling:
        if row.why_no_sum is not None:
            reasons[row.why_no_sum].append(named(summary, row.setup))
    for reason, where in reasons.items():
        yield f"How {listed(where)} scales is not known: {reason}."


def _one_repeat(summary: Summary) -> Iterable[str]:
    single = sum(row.verdict == "one repeat: no verdict" for row in summary.scaling)
    if single:
        yield (
            f"{plural(single, 'row')} of scaling {'rests' if single == 1 else 'rest'} on one repeat on a"
            " side: its efficiency has no interval and no verdict. Use two repeats or more."
        )

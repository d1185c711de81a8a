"""Power in sentences: what was found, and what limits it; computed from the rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from inferometer.analysis.cautions import listed, named
from inferometer.analysis.findings import crew_text, settings_text, subject
from inferometer.analysis.grouping import of_one_rank, place_of
from inferometer.analysis.marks import is_marked, share_text, with_mark
from inferometer.analysis.power import PowerRow, why_no_ratio
from inferometer.analysis.power_gains import PowerGain
from inferometer.analysis.rows import Finding, Setup, Summary
from inferometer.analysis.wording import (
    joined,
    percent,
    plural,
    range_text,
    rate,
    ratio,
    ratio_range,
    significant,
)

__all__ = ["power_cautions", "power_findings"]

HELD_SHARE = 0.05
"""Share of the load from which it is said that clocks were held back. Source: chosen."""

DRIFT_SHARE = 0.05
"""Drift of idle over net power from which it is said. Source: chosen."""

APART, FAR_APART = 0.03, 0.1
"""Two readings of one boundary that differ by this share are told of, and called doubtful. Source: chosen."""


def power_findings(summary: Summary) -> tuple[Finding, ...]:
    """Per model, engine and device: most images per watt, precisions against fp32, the power limit."""
    places: dict[tuple[object, ...], list[PowerRow]] = defaultdict(list)
    for row in summary.power:
        if row.first:
            places[place_of(row.setup)].append(row)
    return tuple(one for rows in places.values() for one in _of_place(summary, rows))


def power_cautions(summary: Summary) -> tuple[str, ...]:
    """What a reader must know before believing watts, gravest first."""
    rows = summary.power
    made = (
        _not_measured(summary),
        _refused(rows),
        _no_ratio(summary),
        _slowed(summary),
        _apart(summary),
        _drift(summary),
        _one_idle(summary),
        _flags(rows),
        _one_repeat(rows),
        _gain_error(rows),
    )
    return tuple(sentence for sentences in made for sentence in sentences)


def _of_place(summary: Summary, every: Sequence[PowerRow]) -> Iterable[Finding]:
    # What ranks give together is told beside what the devices give alone: see `scaling_words`.
    told = of_one_rank(row.setup for row in every)
    rows = [row for row in every if row.setup in told]
    known = [row for row in rows if row.efficiency is not None]
    if known:
        yield _best(summary, max(known, key=lambda row: row.efficiency or 0.0), rows)
    largest: dict[tuple[object, ...], PowerGain] = {}
    for gain in summary.power_gains:
        kind = (gain.setup.precision, gain.setup.variant, gain.setup.place)
        # At the largest batch: one chosen by its ratio would be flattered.
        if (
            gain.first
            and gain.setup in told
            and place_of(gain.setup) == place_of(rows[0].setup)
            and (kind not in largest or (gain.setup.batch or 0) > (largest[kind].setup.batch or 0))
        ):
            largest[kind] = gain
    yield from (_gain(summary, gain) for gain in largest.values())
    capped = [row for row in every if row.capped is not None and row.capped >= HELD_SHARE]
    if capped:
        yield _capped(summary, capped, len(every))


def _best(summary: Summary, row: PowerRow, rows: Sequence[PowerRow]) -> Finding:
    """The setup with most images per watt; whether it is the best depends on what is known of the others."""
    value = row.efficiency or 0.0
    others = [one for one in rows if one is not row]
    lacking = [one for one in others if one.efficiency is None]
    close = [one for one in others if one.efficiency is not None and not _below(one, row)]
    settled = bool(others) and not lacking and not close
    gives = "gives most per watt" if settled else "gives this per watt"
    text = (
        f"{subject(summary, row.setup)}{settings_text(row.setup)} {gives}"
        f" in {with_mark(row.setup.precision.upper(), row.mac_share)} at batch {row.setup.batch}:"
        f" {rate(value)} images/s/W of net power{_spread(row)}, {_watts(row.load_w)} under load,"
        f" {_watts(row.idle_bare_w)} idle ({row.boundary}){_against(row, others)}."
    )
    if others and not settled:
        text += " It is the highest that was measured, and not shown to be the best"
        reasons = [f"{plural(len(lacking), 'other setup')} gave no ratio"] if lacking else []
        reasons += [f"the intervals of {plural(len(close), 'other setup')} reach it"] if close else []
        text += f": {joined(reasons)}."
    figure = rate(value)
    return Finding(
        "power", figure, text, row.record_ids, settled=settled or not others, marked=is_marked(row.mac_share)
    )


def _below(one: PowerRow, best: PowerRow) -> bool:
    """Whether all of one's interval is under all of the best's."""
    if one.efficiency_interval is None or best.efficiency_interval is None:
        return False
    return one.efficiency_interval[1] < best.efficiency_interval[0]


def _against(row: PowerRow, others: Sequence[PowerRow]) -> str:
    """The least of the other precisions at the same batch, where none of them is the usual base."""
    same = [one for one in others if one.setup.batch == row.setup.batch and one.efficiency]
    if not same or any(one.setup.precision == "fp32" for one in (*same, row)):
        return ""
    least = min(same, key=lambda one: one.efficiency or 0.0)
    times = ratio((row.efficiency or 0.0) / (least.efficiency or 1.0))
    return f", {times} that of {with_mark(least.setup.precision.upper(), least.mac_share)} there"


def _spread(row: PowerRow) -> str:
    parts = []
    if row.efficiency_interval is not None and row.efficiency is not None:
        parts.append(f"95 % interval {range_text(*row.efficiency_interval, like=row.efficiency)}")
    if row.repeats == 1:
        parts.append("one repeat")
    return f" ({', '.join(parts)})" if parts else ""


def _gain(summary: Summary, gain: PowerGain) -> Finding:
    own = with_mark(gain.setup.precision.upper(), gain.mac_shares[1])
    base = with_mark(gain.baseline.upper(), gain.mac_shares[0])
    at = f"at batch {gain.setup.batch}"
    interval = f"95 % interval {ratio_range(*gain.interval)}" if gain.interval else ""
    settled = gain.verdict in ("more per watt", "less per watt")
    if settled:
        said = f"{own} gives {ratio(gain.ratio)} the images/s/W of {base} {at} ({interval})"
    else:
        known = f"({', '.join(filter(None, (ratio(gain.ratio), interval)))})"
        said = {
            "no difference seen": f"no difference per watt seen between {own} and {base} {at} {known}",
            "inconclusive: machine changed": (
                f"{own} against {base} per watt {at} is inconclusive, since the machine changed {known}"
            ),
        }.get(
            gain.verdict,
            f"{own} against {base} per watt {at} has no verdict, since one repeat supports none {known}",
        )
    text = (
        f"{subject(summary, gain.setup)}{settings_text(gain.setup)}: {said}:"
        f" {rate(gain.values[1])} images/s/W of net power against {rate(gain.values[0])}."
    )
    figure = ratio(gain.ratio) if settled else "no verdict"
    marked = is_marked(*gain.mac_shares)
    return Finding("power", figure, text, gain.record_ids, settled=settled, marked=marked)


def _capped(summary: Summary, rows: Sequence[PowerRow], of: int) -> Finding:
    most = max(rows, key=lambda row: row.capped or 0.0)
    share = share_text(most.capped or 0.0)
    limit = f"power limit of {_watts(most.power_limit_w)}" if most.power_limit_w else "power limit"
    if len(rows) == 1:
        text = (
            f"{_placed(summary, most.setup)} ran at its {limit} for {share} of the load: its clocks were held"
            " down."
        )
    else:
        where = f"{most.setup.precision.upper()} at batch {most.setup.batch}{crew_text(most.setup)}"
        where += settings_text(most.setup)
        text = (
            f"{subject(summary, most.setup, crew=False)} ran at its {limit} in {len(rows)} of"
            f" {plural(of, 'setup')}, for up to {share} of the load ({where}): its clocks were held down."
        )
    ids = tuple(name for row in rows for name in row.record_ids)
    return Finding("power", "at its limit", text, ids)


def _not_measured(summary: Summary) -> Iterable[str]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in summary.power:
        if row.first and "power" in row.missing:
            reasons[row.missing["power"]].append(named(summary, row.setup))
    for reason, where in reasons.items():
        yield f"Power was asked for and is missing: {reason} ({listed(where)})."


def _refused(rows: Sequence[PowerRow]) -> Iterable[str]:
    found = {(name, why) for row in rows for name, why in row.missing.items() if name.startswith("power.")}
    for name, reason in sorted(found):
        yield f"The meter {name.removeprefix('power.')} gave nothing: {reason}."


def _no_ratio(summary: Summary) -> Iterable[str]:
    by_boundary: dict[str, list[tuple[str, PowerRow]]] = defaultdict(list)
    for row in summary.power:
        reason = why_no_ratio(row)
        if row.boundary is not None and reason is not None:
            by_boundary[row.boundary].append((reason, row))
    for boundary, found in by_boundary.items():
        reasons = list(dict.fromkeys(reason for reason, _ in found))
        others = "" if len(reasons) == 1 else "; the table names the other reasons"
        where = listed(named(summary, row.setup) for _, row in found)
        yield f"There are no images/s/W of {boundary} for {where}: {reasons[0]}{others}."


def _slowed(summary: Summary) -> Iterable[str]:
    rows = [row for row in summary.power if row.slowed is not None and row.slowed >= HELD_SHARE]
    if rows:
        names = joined(list(dict.fromkeys(name for row in rows for name in row.slowed_by)))
        most = percent(max(row.slowed or 0.0 for row in rows), 0)
        yield (
            f"Heat or hardware slowed the device for up to {most} of the load:"
            f" {listed(named(summary, row.setup) for row in rows)}; it says: {names}. Their rates are not"
            " those of a device that is free to run."
        )


def _apart(summary: Summary) -> Iterable[str]:
    by_kind: dict[tuple[str | None, ...], list[tuple[float, PowerRow]]] = defaultdict(list)
    for row in summary.power:
        if row.disagreement is not None and abs(row.disagreement) > APART:
            kind = (row.meter, row.boundary, row.semantics, row.beside)
            by_kind[kind].append((row.disagreement, row))
    for (meter, boundary, semantics, beside), found in by_kind.items():
        worst, row = max(found, key=lambda one: abs(one[0]))
        more = "more" if worst > 0 else "less"
        advice = (
            "one of the two is wrong; do not rely on these watts before it is known which"
            if abs(worst) > FAR_APART
            else "a reading that averages lags behind the load, and few readings miss its changes"
        )
        yield (
            f"{meter} reads {boundary} in two ways that are up to {percent(abs(worst))} apart: the other"
            f" ({beside}) says {more} than the one used ({semantics}), most for"
            f" {named(summary, row.setup)}: {advice}."
        )


def _drift(summary: Summary) -> Iterable[str]:
    found = [
        (abs(row.drift_w) / row.net_w, row)
        for row in summary.power
        if row.drift_w is not None and row.net_w is not None and row.net_w > 0
    ]
    large = [(share, row) for share, row in found if share > DRIFT_SHARE]
    if large:
        worst, row = max(large, key=lambda one: one[0])
        yield (
            f"Idle power moved by more than {percent(DRIFT_SHARE, 0)} of net power during"
            f" {plural(len(large), 'setup')}, most for {_bounded(summary, row)}:"
            f" by {_watts(abs(row.drift_w or 0.0))}, {percent(worst, 0)} of net. The intervals allow for it;"
            " measure again with the machine warmed up and otherwise idle."
        )


def _one_idle(summary: Summary) -> Iterable[str]:
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in summary.power:
        for name in ("before", "after"):
            reason = row.missing.get(f"idle_{name}")
            if reason is not None and row.net_w is not None:
                reasons[name, reason].append(_bounded(summary, row))
    for (name, reason), where in reasons.items():
        yield (
            f"Idle {name} the load is missing for {listed(where)}: {reason}. Net power there rests on one"
            " idle, and how far idle moved is not known."
        )


def _flags(rows: Sequence[PowerRow]) -> Iterable[str]:
    """Flags that differ in their numbers alone are told once, by the first."""
    counts: dict[tuple[str | None, str], int] = defaultdict(int)
    first: dict[tuple[str | None, str], str] = {}
    for row in rows:
        kinds: dict[tuple[str | None, str], int] = defaultdict(int)
        for flag, number in row.flags:
            kind = row.boundary, re.sub(r"[\d.,]+", "#", flag)
            first.setdefault(kind, flag)
            kinds[kind] += number
        for kind, number in kinds.items():
            counts[kind] += min(number, row.asked)
    for (boundary, text), number in counts.items():
        trials = plural(sum(row.asked for row in rows if row.boundary == boundary), "trial")
        such_as = " such as" if "#" in text and number > 1 else ""
        yield f"Power readings of {boundary} in {number} of {trials}:{such_as} {first[boundary, text]}."


def _one_repeat(rows: Sequence[PowerRow]) -> Iterable[str]:
    single = len({row.setup for row in rows if row.repeats == 1})
    if single:
        yield (
            f"Power of {plural(single, 'setup')} rests on one repeat: its interval is that of the readings of"
            " one trial, and says nothing of another. Use two repeats or more."
        )


def _gain_error(rows: Sequence[PowerRow]) -> Iterable[str]:
    known: dict[float, list[str]] = defaultdict(list)
    unknown: list[str] = []
    for row in rows:
        if row.boundary is None:
            continue
        name = f"{row.boundary} ({row.meter})"
        if row.gain_error is None:
            unknown.append(name)
        else:
            known[row.gain_error].append(name)
    for error, names in known.items():
        yield (
            f"All watts of {listed(names)} carry the meter's own error of about {_error(error)}, which is not"
            " in the intervals: it matters against another meter, not between trials on this one."
        )
    if unknown:
        yield f"The scale error of the meter of {listed(unknown)} is not known, and is not in the intervals."


def _placed(summary: Summary, setup: Setup) -> str:
    return (
        f"{subject(summary, setup)} in {setup.precision.upper()} at batch {setup.batch}{settings_text(setup)}"
    )


def _bounded(summary: Summary, row: PowerRow) -> str:
    """The setup, and the boundary where the summary holds several."""
    several = len({one.boundary for one in summary.power if one.boundary is not None}) > 1
    return named(summary, row.setup) + (f" ({row.boundary})" if several else "")


def _error(share: float) -> str:
    return f"{significant(share * 100, 2).removesuffix('.0')} %"


def _watts(value: float | None) -> str:
    return "not known" if value is None else f"{significant(value)} W"

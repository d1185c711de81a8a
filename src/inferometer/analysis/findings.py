"""The results in sentences, computed from the rows; no conclusion is stored as text."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from inferometer.analysis.grouping import of_one_rank, place_of
from inferometer.analysis.marks import is_marked, share_text, with_mark
from inferometer.analysis.rows import (
    DifferenceRow,
    Finding,
    LatencyRow,
    Setup,
    SpeedUp,
    Summary,
    ThroughputRow,
)
from inferometer.analysis.wording import (
    compared,
    joined,
    milliseconds,
    p_value,
    percent,
    plural,
    points,
    range_text,
    rate,
    ratio,
    ratio_range,
    setting,
)

__all__ = [
    "crew_text",
    "findings",
    "headlines",
    "judgement",
    "pair_settings",
    "pair_text",
    "settings_text",
    "subject",
]

_SHOWN = 4


def findings(summary: Summary) -> tuple[Finding, ...]:
    """What the numbers say: speed per model, latency, the cost in accuracy, where memory ended."""
    return (
        *_speed(summary),
        *_latency(summary),
        *_accuracy(summary),
        *_memory(summary),
    )


def headlines(found: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """A large study has many findings: the first few of each kind, and all others."""
    seen: Counter[str] = Counter()
    first: list[Finding] = []
    rest: list[Finding] = []
    for one in found:
        seen[one.about] += 1
        (first if seen[one.about] <= _SHOWN else rest).append(one)
    return first, rest


def pair_text(summary: Summary, row: DifferenceRow) -> str:
    """Which two a row compares: ``net INT8 against FP32``."""
    a, b = row.setup_a, row.setup_b
    return compared(summary.names[b.model], b.precision, summary.names[a.model], a.precision)


def settings_text(setup: Setup) -> str:
    """The settings that tell this row from others of its setup, in brackets; empty without any."""
    return f" ({', '.join(setting(*pair) for pair in setup.variant)})" if setup.variant else ""


def crew_text(setup: Setup) -> str:
    """`` with 4 ranks``, or which of several devices worked alone; empty in studies of one rank."""
    if setup.place is not None:
        return f" with 1 rank (place {setup.place})"
    return f" with {plural(setup.ranks, 'rank')}" if setup.ranks > 1 else ""


def pair_settings(row: DifferenceRow) -> str:
    """The same of a pair; where the two differ, that of the judged one against the other's."""
    a, b = dict(row.setup_a.variant), dict(row.setup_b.variant)
    words = [
        f"{setting(name, b[name])} against {a[name]}"
        if name in a and name in b and a[name] != b[name]
        else setting(name, b.get(name, a.get(name, "")))
        for name in sorted(a | b)
    ]
    return f" ({', '.join(words)})" if words else ""


def _speed(summary: Summary) -> Iterable[Finding]:
    """Per model, engine and device: what each precision gained over fp32, or else the highest rate.

    The gain is the one at the largest batch at which both ran: one chosen by its rate would be flattered. Of
    several ranks, what one does stands for all: `scaling` tells what they do together.
    """
    rows: dict[tuple[object, ...], list[ThroughputRow]] = defaultdict(list)
    rated = [row for row in summary.throughput if row.mean is not None]
    told = of_one_rank(row.setup for row in rated)
    for row in rated:
        if row.setup in told:
            rows[place_of(row.setup)].append(row)
    for place, members in rows.items():
        largest: dict[tuple[object, ...], SpeedUp] = {}
        for one in summary.speed_ups:
            kind = (one.setup.precision, one.setup.variant, one.setup.place)
            if (
                one.setup in told
                and place_of(one.setup) == place
                and (kind not in largest or (one.setup.batch or 0) > (largest[kind].setup.batch or 0))
            ):
                largest[kind] = one
        if largest:
            yield from (_gain(summary, one) for one in largest.values())
        else:
            yield _fastest(summary, max(members, key=lambda row: row.mean or 0))


def _fastest(summary: Summary, row: ThroughputRow) -> Finding:
    text = (
        f"{subject(summary, row.setup)}{settings_text(row.setup)} runs fastest in"
        f" {with_mark(row.setup.precision.upper(), row.mac_share)} at batch {row.setup.batch}:"
        f" {rate(row.mean or 0)} images/s{_spread(row)}."
    )
    return Finding("speed", rate(row.mean or 0), text, row.record_ids, marked=is_marked(row.mac_share))


def _gain(summary: Summary, gain: SpeedUp) -> Finding:
    # Geometric means, as in the ratio, so that the two rates divide to it.
    means = {
        row.record_ids: statistics.geometric_mean(row.repeats) for row in summary.throughput if row.repeats
    }
    mine, base = (means[ids] for ids in (gain.own_ids, gain.baseline_ids))
    text = (
        f"{subject(summary, gain.setup)}{settings_text(gain.setup)}: {judgement(gain)}:"
        f" {rate(mine)} images/s against {rate(base)}."
    )
    if gain.mac_share is not None and is_marked(gain.mac_share):
        share = f"{share_text(gain.mac_share)} of its multiply-accumulates"
        text += f" Only {share} ran in {gain.setup.precision.upper()}."
    if gain.baseline_mac_share is not None and is_marked(gain.baseline_mac_share):
        share = f"{share_text(gain.baseline_mac_share)} of those of {gain.baseline.upper()}"
        text += f" Only {share} ran in {gain.baseline.upper()}: the ratio is not to it."
    judged = gain.verdict in ("faster", "slower")
    figure = ratio(gain.ratio) if judged else "no verdict"
    low = is_marked(gain.mac_share, gain.baseline_mac_share)
    return Finding("speed", figure, text, gain.baseline_ids + gain.own_ids, settled=judged, marked=low)


def judgement(gain: SpeedUp) -> str:
    """The verdict first; the ratio leads only where there is one. What did not run as asked has the mark."""
    own = with_mark(gain.setup.precision.upper(), gain.mac_share)
    base = with_mark(gain.baseline.upper(), gain.baseline_mac_share)
    at = f"at batch {gain.setup.batch}"
    interval = f"95 % interval {ratio_range(*gain.interval)}" if gain.interval else ""
    interval += ", the machine's change allowed for" if gain.held else ""
    if gain.verdict in ("faster", "slower"):
        return f"{own} is {ratio(gain.ratio)} {base} {at} ({interval})"
    known = f"({', '.join(filter(None, (ratio(gain.ratio), interval)))})"
    if gain.verdict == "no difference seen":
        if gain.p is not None and gain.interval and not gain.interval[0] <= 1 <= gain.interval[1]:
            # The interval is of this ratio alone, the verdict allows for all of them.
            known = f"{known[:-1]}; p {p_value(gain.p)} when corrected for the number of ratios)"
        return f"no difference seen between {own} and {base} {at} {known}"
    if gain.verdict == "inconclusive: machine changed":
        return f"{own} against {base} {at} is inconclusive, since the machine changed {known}"
    return f"{own} against {base} {at} has no verdict, since one repeat supports none {known}"


def _spread(row: ThroughputRow) -> str:
    if row.interval is None or row.ci_kind != "between_repeats" or row.mean is None:
        return " (one repeat)"
    return f" (95 % interval {range_text(*row.interval, like=row.mean)})"


def _latency(summary: Summary) -> Iterable[Finding]:
    """One sentence per model, engine and device: the median of each precision at its least batch."""
    rows: dict[tuple[object, ...], list[LatencyRow]] = defaultdict(list)
    told = of_one_rank(row.setup for row in summary.latency)
    for row in summary.latency:
        if row.setup in told:
            rows[place_of(row.setup)].append(row)
    for members in rows.values():
        batch = min((row.setup.batch or 1 for row in members if row.p50 is not None), default=None)
        if batch is None:
            continue
        at = [row for row in members if (row.setup.batch or 1) == batch]
        known = [(row, row.p50) for row in at if row.p50 is not None]
        what = "one image takes" if batch == 1 else f"a batch of {batch} takes"
        parts = [
            f"{milliseconds(p50)} ms in {with_mark(row.setup.precision.upper(), row.mac_share)}"
            f"{settings_text(row.setup)}"
            for row, p50 in known
        ]
        without = list(dict.fromkeys(_without_median(row) for row in at if row.p50 is None))
        how = "; ".join(["median", *([joined(without)] if without else [])])
        text = f"{subject(summary, at[0].setup)}: {what} {joined(parts)} ({how})."
        ids = tuple(name for row, _ in known for name in row.record_ids)
        low = is_marked(*(row.mac_share for row, _ in known))
        yield Finding("latency", f"{milliseconds(min(p50 for _, p50 in known))} ms", text, ids, marked=low)


def _without_median(row: LatencyRow) -> str:
    why = "too few calls" if row.repeats else row.status.replace("_", " ")
    return f"{row.setup.precision.upper()}{settings_text(row.setup)}: {why}"


def _accuracy(summary: Summary) -> Iterable[Finding]:
    known: set[Setup] = set()
    for row in summary.differences:
        if row.metric == "top1":
            known |= {row.setup_a, row.setup_b}
            text, settled = _difference(summary, row), row.verdict != "within noise"
            low = is_marked(*row.mac_shares)
            yield Finding("accuracy", points(row.delta), text, row.record_ids, settled=settled, marked=low)
    for one in summary.accuracy:
        if one.setup not in known and one.top1 is not None and one.images is not None:
            text = (
                f"{subject(summary, one.setup, crew=False)} in"
                f" {with_mark(one.setup.precision.upper(), one.mac_share)}"
                f"{settings_text(one.setup)}:"
                f" top-1 {percent(one.top1.value)} on {plural(one.images, 'image')}"
                f" (95 % interval {range_text(one.top1.lo, one.top1.hi, one.top1.value, 100)} %)."
            )
            low = is_marked(one.mac_share)
            yield Finding("accuracy", percent(one.top1.value), text, (one.record_id,), marked=low)


def _difference(summary: Summary, row: DifferenceRow) -> str:
    lo, hi = row.interval
    sentence = (
        f"{with_mark(pair_text(summary, row), *row.mac_shares)}{_where(summary, row.setup_b)}"
        f"{pair_settings(row)}: top-1 differs by"
        f" {points(row.delta)} points on {plural(row.images, 'image')}"
        f" (95 % interval {points(lo)} to {points(hi)}): {row.verdict}."
    )
    if row.images_to_settle is not None:
        sentence += (
            f" If the difference stays as it is, about {_about(row.images_to_settle)} would settle it."
        )
    return sentence


def _memory(summary: Summary) -> Iterable[Finding]:
    """Where memory ended: the least batch that did not fit, per setup but for its batch.

    Of several ranks only where they end at a lesser batch than fewer do.
    """
    least: dict[tuple[object, ...], ThroughputRow] = {}
    found: list[ThroughputRow] = []
    lost = [row for row in summary.throughput if row.status == "out_of_memory"]
    for row in sorted(lost, key=lambda one: (one.setup.ranks, one.setup.batch or 0, one.setup.place or 0)):
        kind = (place_of(row.setup), row.setup.precision, row.setup.variant)
        if kind not in least or (row.setup.batch or 0) < (least[kind].setup.batch or 0):
            least[kind] = row
            found.append(row)
    for row in sorted(found, key=lost.index):
        text = (
            f"{subject(summary, row.setup)} in {row.setup.precision.upper()}{settings_text(row.setup)}"
            f" ran out of memory at batch {row.setup.batch}."
        )
        yield Finding("memory", f"batch {row.setup.batch}", text, row.record_ids)


def subject(summary: Summary, setup: Setup, *, crew: bool = True) -> str:
    """The model's name, with engine and device where the summary holds several for it, and the ``crew``."""
    return summary.names[setup.model] + _where(summary, setup) + (crew_text(setup) if crew else "")


def _where(summary: Summary, setup: Setup) -> str:
    """`` on ENGINE DEVICE, machine N``, each only where the summary holds several for the model."""
    known = [row.setup for row in summary.throughput]
    known += [row.setup for row in summary.latency] + [row.setup for row in summary.accuracy]
    engines = {one.engine for one in known if one.model == setup.model}
    devices = {one.device for one in known if one.model == setup.model}
    parts = [setup.engine] * (len(engines) > 1) + [setup.device] * (len(devices) > 1)
    words = [" ".join(parts)] if parts else []
    if len({one.machine for one in known if one.model == setup.model}) > 1:
        words.append(f"machine {setup.machine + 1}")
    return f" on {', '.join(words)}" if words else ""


def _about(images: int) -> str:
    """A rough number of images, to two digits, since it extrapolates from a few."""
    return plural(int(float(f"{images:.1e}")), "more image")

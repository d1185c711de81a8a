"""The results in sentences, computed from the rows; no conclusion is stored as text."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from inferometer.analysis.rows import (
    DifferenceRow,
    Finding,
    LatencyRow,
    Setup,
    SpeedUp,
    Summary,
    ThroughputRow,
)
from inferometer.analysis.speed import MIN_MAC_SHARE
from inferometer.analysis.wording import (
    compared,
    joined,
    milliseconds,
    percent,
    plural,
    points,
    range_text,
    rate,
    ratio,
    ratio_range,
)

__all__ = ["findings", "headlines", "pair_text"]

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


def _speed(summary: Summary) -> Iterable[Finding]:
    """Per model, engine and device: the highest rate, and what it gained over fp32 at that batch."""
    best: dict[tuple[object, ...], ThroughputRow] = {}
    for row in summary.throughput:
        place = _place(row.setup)
        if row.mean is not None and (place not in best or row.mean > (best[place].mean or 0)):
            best[place] = row
    for place, row in best.items():
        gains = [
            one
            for one in summary.speed_ups
            if _place(one.setup) == place
            and row.setup in (one.setup, replace(one.setup, precision=one.baseline))
        ]
        if gains:
            yield _gain(summary, max(gains, key=lambda one: one.ratio))
        else:
            text = (
                f"{_subject(summary, row.setup)} runs fastest in {row.setup.precision.upper()} at batch"
                f" {row.setup.batch}: {rate(row.mean or 0)} images/s{_spread(row)}."
            )
            yield Finding("speed", rate(row.mean or 0), text, row.record_ids)


def _gain(summary: Summary, gain: SpeedUp) -> Finding:
    means = {row.record_ids: row.mean for row in summary.throughput if row.mean is not None}
    mine, base = (means[ids] for ids in (gain.own_ids, gain.baseline_ids))
    interval = f"95 % interval {ratio_range(*gain.interval)}" if gain.interval else ""
    judged = gain.verdict in ("faster", "slower")
    text = (
        f"{_subject(summary, gain.setup)}: {gain.setup.precision.upper()} is {ratio(gain.ratio)}"
        f" {gain.baseline.upper()} at batch {gain.setup.batch} ({interval if judged else gain.verdict}):"
        f" {rate(mine)} images/s against {rate(base)}."
    )
    if gain.mac_share is not None and gain.mac_share < MIN_MAC_SHARE:
        share = f"{percent(gain.mac_share, 0)} of its multiply-accumulates"
        text += f" Only {share} ran in {gain.setup.precision.upper()}."
    return Finding("speed", ratio(gain.ratio), text, gain.baseline_ids + gain.own_ids, settled=judged)


def _spread(row: ThroughputRow) -> str:
    if row.interval is None or row.ci_kind != "between_repeats" or row.mean is None:
        return " (one repeat)"
    return f" (95 % interval {range_text(*row.interval, like=row.mean)})"


def _latency(summary: Summary) -> Iterable[Finding]:
    """One sentence per model, engine and device: the median of each precision at its least batch."""
    rows: dict[tuple[object, ...], list[LatencyRow]] = defaultdict(list)
    for row in summary.latency:
        if row.p50 is not None:
            rows[_place(row.setup)].append(row)
    for members in rows.values():
        batch = min(row.setup.batch or 1 for row in members)
        at = [row for row in members if (row.setup.batch or 1) == batch]
        what = "one image takes" if batch == 1 else f"a batch of {batch} takes"
        parts = [
            f"{milliseconds(row.p50)} ms in {row.setup.precision.upper()}"
            for row in at
            if row.p50 is not None
        ]
        ids = tuple(name for row in at for name in row.record_ids)
        text = f"{_subject(summary, at[0].setup)}: {what} {joined(parts)} (median)."
        best = min(row.p50 for row in at if row.p50 is not None)
        yield Finding("latency", f"{milliseconds(best)} ms", text, ids)


def _accuracy(summary: Summary) -> Iterable[Finding]:
    known: set[Setup] = set()
    for row in summary.differences:
        if row.metric == "top1":
            known |= {row.setup_a, row.setup_b}
            yield Finding("accuracy", points(row.delta), _difference(summary, row), row.record_ids)
    for one in summary.accuracy:
        if one.setup not in known and one.top1 is not None and one.images is not None:
            text = (
                f"{_subject(summary, one.setup)} in {one.setup.precision.upper()}:"
                f" top-1 {percent(one.top1.value)} on {plural(one.images, 'image')}"
                f" (95 % interval {range_text(one.top1.lo, one.top1.hi, one.top1.value, 100)} %)."
            )
            yield Finding("accuracy", percent(one.top1.value), text, (one.record_id,))


def _difference(summary: Summary, row: DifferenceRow) -> str:
    lo, hi = row.interval
    sentence = (
        f"{pair_text(summary, row)}{_where(summary, row.setup_b)}: top-1 differs by"
        f" {points(row.delta)} points on {plural(row.images, 'image')}"
        f" (95 % interval {points(lo)} to {points(hi)}): {row.verdict}."
    )
    if row.images_to_settle is not None:
        sentence += f" About {_about(row.images_to_settle)} would settle it."
    return sentence


def _memory(summary: Summary) -> Iterable[Finding]:
    """Where memory ended: the least batch that did not fit, per model, engine, device and precision."""
    least: dict[tuple[object, ...], ThroughputRow] = {}
    for row in summary.throughput:
        if row.status == "out_of_memory":
            place = (_place(row.setup), row.setup.precision)
            if place not in least or (row.setup.batch or 0) < (least[place].setup.batch or 0):
                least[place] = row
    for row in least.values():
        text = (
            f"{_subject(summary, row.setup)} in {row.setup.precision.upper()} ran out of memory"
            f" at batch {row.setup.batch}."
        )
        yield Finding("memory", f"batch {row.setup.batch}", text, row.record_ids)


def _place(setup: Setup) -> tuple[object, ...]:
    return setup.model, setup.engine, setup.device, setup.machine


def _subject(summary: Summary, setup: Setup) -> str:
    """The model's name, with engine and device where the summary holds several for it."""
    return summary.names[setup.model] + _where(summary, setup)


def _where(summary: Summary, setup: Setup) -> str:
    """`` on ENGINE DEVICE``, each only where the summary holds several for the model."""
    known = [row.setup for row in summary.throughput]
    known += [row.setup for row in summary.latency] + [row.setup for row in summary.accuracy]
    engines = {one.engine for one in known if one.model == setup.model}
    devices = {one.device for one in known if one.model == setup.model}
    parts = [setup.engine] * (len(engines) > 1) + [setup.device] * (len(devices) > 1)
    return f" on {' '.join(parts)}" if parts else ""


def _about(images: int) -> str:
    """A rough number of images, to two digits, since it extrapolates from a few."""
    return plural(int(float(f"{images:.1e}")), "more image")

"""Where what is missing to linear scaling went: each cause only where the records show it.

Points of linear are given to a cause where arithmetic supports it, exactly or as a bound. Whatever else was
seen stands beside them without points, and what remains is called that.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from inferometer.analysis.cautions import DISTURBING_SHARE
from inferometer.analysis.scaling_ranks import processors_of
from inferometer.analysis.scaling_rows import Cause, Circumstances, RankRow, ScalingRow
from inferometer.analysis.wording import joined, milliseconds, percent, plural, significant

__all__ = ["causes", "shared_processors"]

UNEVEN = 0.02
"""A rank that keeps so much less of its own rate than others do is told of. Source: chosen."""

HELD_MORE = 0.05
"""Share of the load by which clocks are held down for longer together than alone. Source: chosen."""

SLOWER_CLOCK = 0.02
"""How much lower a clock is together than alone to be told of. Source: chosen."""

WAITS_MORE = 0.02
"""Share of the slots' time that images are waited for, together over alone. Source: chosen."""

QUOTA_SHARE = 0.01
"""Share of the time in which the CPU quota held the processes back, likewise. Source: chosen."""


def causes(row: ScalingRow) -> tuple[Cause, ...]:
    """The causes of a row that is less than linear, largest first; then what remains, then the skew."""
    if row.verdict != "less than linear" or row.efficiency is None or row.apart is None:
        return ()
    missing = 1 - row.efficiency
    seen = [
        *_uneven(row.ranks),
        *_shared(row, missing),
        *_waiting(row, row.together, row.apart),
        *_device_clocks(row.together, row.apart),
        *_cpu_clock(row, row.together, row.apart),
        *_quota(row.together, row.apart),
        *_load(row.together, row.apart),
    ]
    ranked = sorted(seen, key=lambda one: -1.0 if one.points is None else one.points, reverse=True)
    return (*ranked, *_rest(row, missing, ranked), *_skew(row))


def shared_processors(ranks: Sequence[RankRow]) -> float | None:
    """Different processors over those that the ranks count on, where some share one; None where none do.

    By host, the least: the ranks of one host share no processor with those of another.
    """
    by_host: dict[str, list[frozenset[int]]] = defaultdict(list)
    for one in ranks:
        if one.cores is not None:
            by_host[one.host].append(processors_of(one.cores))
    shares = [
        len(frozenset().union(*sets)) / wanted
        for sets in by_host.values()
        if (wanted := sum(len(one) for one in sets))
    ]
    least = min(shares, default=1.0)
    return least if least < 1 else None


def _uneven(ranks: Sequence[RankRow]) -> Iterable[Cause]:
    """What is lost by ranks that keep less of their own rate than the middle one (of two the better)."""
    known = [(one, one.kept, one.alone) for one in ranks if one.kept is not None and one.alone is not None]
    if len(known) < len(ranks) or len(known) < 2:
        return
    middle = statistics.median_high([kept for _, kept, _ in known])
    behind = [(one, kept, alone) for one, kept, alone in known if kept < middle * (1 - UNEVEN)]
    if not behind:
        return
    points = sum((middle - kept) * alone for _, kept, alone in behind) / sum(alone for _, _, alone in known)
    told = joined([f"rank {one.rank} ({_where(one)}) keeps {percent(kept)}" for one, kept, _ in behind[:3]])
    more = f", and {plural(len(behind) - 3, 'other')} less than that" if len(behind) > 3 else ""
    evidence = f"{told} of what its device does alone{more}; the middle of the ranks keeps {percent(middle)}"
    yield Cause("uneven ranks", points, "exactly", evidence)


def _shared(row: ScalingRow, missing: float) -> Iterable[Cause]:
    share = shared_processors(row.ranks)
    if share is not None:
        evidence = (
            f"the ranks count on {1 / share:.3g} times as many processors as they have: computing on all of"
            f" them, they could reach {percent(share, 0)} of linear"
        )
        yield Cause("shared processors", min(missing, 1 - share), "at most", evidence)


def _waiting(row: ScalingRow, together: Circumstances, apart: Circumstances) -> Iterable[Cause]:
    ours, theirs = together.wait_share, apart.wait_share
    if ours is None or theirs is None or ours - theirs < WAITS_MORE or row.efficiency is None:
        return
    # Waiting no longer than alone, a slot's calls could follow one another that much faster, not more.
    gain = row.efficiency * ((1 - theirs) / (1 - ours) - 1) if ours < 1 else 1 - row.efficiency
    evidence = (
        f"requests wait {percent(ours, 0)} of their time for decoded images together, {percent(theirs, 0)}"
        " alone: the host prepares too few"
    )
    yield Cause("host preprocessing", min(gain, 1 - row.efficiency), "at most", evidence)


def _device_clocks(together: Circumstances, apart: Circumstances) -> Iterable[Cause]:
    found = []
    limits = (
        (together.capped, apart.capped, "the power limit"),
        (together.slowed, apart.slowed, "heat or hardware"),
    )
    for ours, theirs, by in limits:
        if ours is not None and theirs is not None and ours - theirs >= HELD_MORE:
            held = f"{by} held clocks down for {percent(ours, 0)} of the load together"
            found.append(f"{held}, {percent(theirs, 0)} alone")
    if together.clock_hz is not None and apart.clock_hz is not None:
        pairs = zip(together.clock_hz, apart.clock_hz, strict=True)
        if any(ours < theirs * (1 - SLOWER_CLOCK) for ours, theirs in pairs):
            found.append(f"the clock was {_mhz(*together.clock_hz)} together, {_mhz(*apart.clock_hz)} alone")
    if found:
        yield Cause("device clocks", None, "exactly", "; ".join(found))


def _cpu_clock(row: ScalingRow, together: Circumstances, apart: Circumstances) -> Iterable[Cause]:
    ours, theirs = together.cpu_hz, apart.cpu_hz
    if (
        row.setup.device == "cpu"
        and ours is not None
        and theirs is not None
        and ours < theirs * (1 - SLOWER_CLOCK)
    ):
        evidence = (
            f"right after the trials the processors ran at {_mhz(ours, ours)}, {_mhz(theirs, theirs)} alone"
        )
        yield Cause("CPU clock", None, "exactly", evidence)


def _quota(together: Circumstances, apart: Circumstances) -> Iterable[Cause]:
    ours, theirs = together.quota_share, apart.quota_share
    if ours is not None and theirs is not None and ours - theirs >= QUOTA_SHARE:
        evidence = f"the CPU quota held processes back for {percent(ours, 0)} of the time together"
        yield Cause("CPU quota", None, "exactly", f"{evidence}, {percent(theirs, 0)} alone")


def _load(together: Circumstances, apart: Circumstances) -> Iterable[Cause]:
    least = DISTURBING_SHARE * (together.usable_cores or 1)
    found = []
    readings = (
        (together.busy_cores, apart.busy_cores, "other processes kept {} cores busy"),
        (together.steal_cores, apart.steal_cores, "the hypervisor gave {} cores to other machines"),
    )
    for ours, theirs, words in readings:
        if ours is not None and theirs is not None and ours - theirs > least:
            found.append(f"{words.format(significant(ours))} meanwhile, {significant(theirs)} alone")
    if found:
        yield Cause("load by others", None, "exactly", "; ".join(found))


def _rest(row: ScalingRow, missing: float, seen: Sequence[Cause]) -> Iterable[Cause]:
    """What no arithmetic accounts for; what it usually is, is never claimed."""
    told = sum(one.points for one in seen if one.points is not None)
    left = max(0.0, missing - told)
    beside = [one.name for one in seen if one.points is None]
    usual = (
        "memory bandwidth or shared cache"
        if row.setup.device == "cpu"
        else "the host, which starts the devices' work and feeds them"
    )
    kind = "CPU ranks" if row.setup.device == "cpu" else "other devices"
    evidence = f"not measured; on {kind} it is usually {usual}"
    if beside:
        evidence += f", here beside what was seen ({joined(beside)})"
    kept = [one.kept for one in row.ranks if one.kept is not None]
    if kept and not any(one.name == "uneven ranks" for one in seen):
        evidence += f"; all ranks slow down alike, to {_percents(min(kept), max(kept))} of their own rate"
    ours, theirs = row.together.cpu_hz, row.apart.cpu_hz if row.apart else None
    if row.setup.device == "cpu" and ours and theirs and abs(ours / theirs - 1) <= SLOWER_CLOCK:
        evidence += f"; right after the trials the processors' clock was the same ({_mhz(ours, ours)})"
    bounded = any(one.bound == "at most" for one in seen)
    if left > 0 or not bounded:
        yield Cause("what remains", left, "at least" if bounded else "exactly", evidence)


def _skew(row: ScalingRow) -> Iterable[Cause]:
    if row.skew_s is not None:
        evidence = (
            f"ranks began up to {milliseconds(row.skew_s)} ms apart in {significant(row.timed_s)} s; the rate"
            " counts only the time in which all of them ran, so that this takes nothing from it"
        )
        yield Cause("skew", 0.0, "exactly", evidence)


def _where(one: RankRow) -> str:
    """The device, or of CPU ranks the processors."""
    return f"processors {one.cores}" if one.cores is not None else f"{one.device} of {one.host}"


def _mhz(low: float, high: float) -> str:
    texts = [f"{value / 1e6:,.0f}" for value in (low, high)]
    return f"{texts[0]} MHz" if texts[0] == texts[1] else f"{texts[0]} to {texts[1]} MHz"


def _percents(low: float, high: float) -> str:
    texts = [percent(value) for value in (low, high)]
    return texts[0] if texts[0] == texts[1] else f"{texts[0].removesuffix(' %')} to {texts[1]}"

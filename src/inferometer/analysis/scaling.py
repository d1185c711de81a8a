"""How several devices scale: their rate together over the sum of what each does alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inferometer.analysis.circumstances import circumstances
from inferometer.analysis.power import PowerRow, Span
from inferometer.analysis.probe import change_between
from inferometer.analysis.ratios import SIGNIFICANT
from inferometer.analysis.rows import ThroughputRow
from inferometer.analysis.scaling_causes import causes
from inferometer.analysis.scaling_power import scaling_power
from inferometer.analysis.scaling_ranks import rank_rows
from inferometer.analysis.scaling_rows import RankRow, ScalingRow, ScalingVerdict
from inferometer.records import RankResult, Record
from inferometer.stats import holm, t_cdf, t_quantile

__all__ = ["Efficiency", "efficiency_of", "scaling_rows"]

# Copying depends on the pages that a process gets, and those of a launcher's processes are not like those of
# one that is started directly: on an idle machine with 2 cores 23 to 26 GB/s alone, 43 to 50 in two ranks.
_PROBES = ("compute",)


@dataclass(frozen=True)
class Efficiency:
    """A rate over a sum of rates; ``lo``, ``hi`` and ``p`` are None with one repeat on a side."""

    value: float
    interval: Span | None
    p: float | None


def efficiency_of(together: Sequence[float], alone: Sequence[Sequence[float]]) -> Efficiency:
    """The mean of ``together`` over the sum of the means of ``alone``, all of them repeats of positive rates.

    On natural logarithms, as all ratios here: the variance of ``log(mean / sum of means)`` is to first order
    the sum of each mean's own variance over the square of what it is part of, and its degrees of freedom are
    the effective ones. ``p`` is of the ratio being 1.

    Source: JCGM 100:2008 (GUM), 5.1.2 and G.4.1 (Welch and Satterthwaite).
    """
    mean, total = statistics.fmean(together), sum(statistics.fmean(part) for part in alone)
    value = mean / total
    sides = [(together, mean), *((part, total) for part in alone)]
    if min(len(values) for values, _ in sides) < 2:
        return Efficiency(value, None, None)
    terms = [(statistics.variance(values) / len(values) / of**2, len(values) - 1) for values, of in sides]
    error = math.sqrt(sum(term for term, _ in terms))
    # Repeats equal to the last bit have no spread: the ratio is then exact.
    if error < 1e-15:
        return Efficiency(value, (value, value), 1.0 if abs(value - 1) < 1e-15 else 0.0)
    df = max(error**4 / sum(term**2 / own for term, own in terms), 1.0)
    half = t_quantile(0.975, df) * error
    p = min(2 * t_cdf(-abs(math.log(value)) / error, df), 1.0)
    return Efficiency(value, (value * math.exp(-half), value * math.exp(half)), p)


def scaling_rows(
    throughput: Sequence[ThroughputRow], records: Mapping[str, Record], power: Sequence[PowerRow] = ()
) -> tuple[ScalingRow, ...]:
    """Every row of several ranks that gave a rate, against the same devices alone.

    Args:
        throughput: All rows, in the order wanted.
        records: By id.
        power: Of the same trials.
    """
    known = [row for row in throughput if row.repeats and min(row.repeats) > 0]
    rows = [_row(row, throughput, records, power) for row in known if row.setup.ranks > 1]
    corrected = iter(holm([one.p for one in rows if one.p is not None]))
    judged = [one if one.p is None else _judged(replace(one, p=next(corrected))) for one in rows]
    return tuple(replace(one, causes=causes(one)) for one in judged)


def _row(
    row: ThroughputRow,
    throughput: Sequence[ThroughputRow],
    records: Mapping[str, Record],
    power: Sequence[PowerRow],
) -> ScalingRow:
    together = _ran(row, records)
    alone, why = _alone(row, throughput, records)
    sides = [one for one in alone if one is not None]
    whole = sides if why is None else []
    found = efficiency_of(row.repeats, [one.repeats for one in whole]) if whole else None
    apart = [record for one in whole for record in _ran(one, records)]
    # Another host has a probe of its own: it says nothing of this one.
    here = [
        record for one in sides if one.setup.machine == row.setup.machine for record in _ran(one, records)
    ]
    ranks = rank_rows(together, [None if one is None else statistics.fmean(one.repeats) for one in alone])
    single = found is not None and found.p is None
    return ScalingRow(
        setup=row.setup,
        repeats=row.repeats,
        rate=statistics.fmean(row.repeats),
        alone=tuple(statistics.fmean(one.repeats) for one in whole),
        alone_sum=sum(statistics.fmean(one.repeats) for one in whole) if whole else None,
        why_no_sum=why,
        alone_repeats=min((len(one.repeats) for one in whole), default=0),
        efficiency=found.value if found else None,
        interval=found.interval if found else None,
        p=found.p if found else None,
        verdict="one repeat: no verdict" if single else "not compared",
        machine_change=change_between(here, together, _PROBES) if whole else None,
        slowest=_slowest(ranks),
        skew_s=max((one.skew_s for one in ranks if one.skew_s is not None), default=None),
        timed_s=statistics.median(one.throughput.seconds for one in together if one.throughput),
        ranks=ranks,
        together=circumstances(together),
        apart=circumstances(apart) if whole else None,
        power=scaling_power(row.setup, [one.setup for one in whole], power),
        causes=(),
        mac_share=row.mac_share,
        record_ids=row.record_ids,
        alone_ids=tuple(name for one in whole for name in one.record_ids),
    )


def _ran(row: ThroughputRow, records: Mapping[str, Record]) -> list[Record]:
    return [
        record
        for name in row.record_ids
        if (record := records[name]).status == "ok" and record.throughput is not None
    ]


def _alone(
    row: ThroughputRow, rows: Sequence[ThroughputRow], records: Mapping[str, Record]
) -> tuple[list[ThroughputRow | None], str | None]:
    """The row of each rank's device alone, and why they make no sum where they do not."""
    of_rank = {one.rank: one for record in _ran(row, records) for one in record.ranks}
    found: list[ThroughputRow | None] = []
    reasons: list[str] = []
    for place in range(row.setup.ranks):
        wanted = replace(row.setup, ranks=1, place=place)
        there = [one for one in rows if replace(one.setup, machine=wanted.machine) == wanted]
        rated = [one for one in there if one.repeats and min(one.repeats) > 0]
        same = [one for one in rated if _same_device(one, of_rank.get(place), records)]
        # Of one device in several machines' studies, the one of this machine.
        best = sorted(same, key=lambda one: one.setup.machine != wanted.machine)
        found.append(best[0] if best else None)
        if rated and not same:
            reasons.append(f"rank {place} ran on another device than place {place} alone")
        elif there and not rated:
            reasons.append(f"place {place} alone gave no rate ({there[0].status.replace('_', ' ')})")
        elif not there:
            reasons.append(f"place {place} was not measured alone")
    return found, "; ".join(reasons) or None


def _same_device(row: ThroughputRow, rank: RankResult | None, records: Mapping[str, Record]) -> bool:
    """Whether a device alone is the one that the rank had; what the records do not tell is taken to be so."""
    told = [one for record in _ran(row, records) for one in record.ranks]
    if rank is None or not told:
        return True
    return any(
        one.host == rank.host
        and (one.uuid == rank.uuid if one.uuid and rank.uuid else one.device == rank.device)
        for one in told
    )


def _slowest(ranks: Sequence[RankRow]) -> tuple[int, float] | None:
    rates = {one.rank: one.images_per_s for one in ranks if one.images_per_s is not None}
    mean = statistics.fmean(rates.values()) if rates else 0.0
    if not mean > 0:
        return None
    slowest = min(rates, key=lambda rank: rates[rank])
    return slowest, 1 - rates[slowest] / mean


def _judged(one: ScalingRow) -> ScalingRow:
    return replace(one, verdict=_verdict(one))


def _verdict(one: ScalingRow) -> ScalingVerdict:
    if one.machine_change is not None and one.machine_change.changed:
        return "inconclusive: machine changed"
    if one.p is None or one.efficiency is None or one.p >= SIGNIFICANT:
        return "no difference from linear seen"
    return "less than linear" if one.efficiency < 1 else "more than linear"

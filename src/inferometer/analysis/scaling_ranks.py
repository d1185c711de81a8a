"""The ranks of trials of several, each over all repeats."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence

from inferometer.analysis.scaling_rows import RankRow
from inferometer.records import PartPower, RankResult, Record

__all__ = ["processors_of", "rank_rows"]

_RUN = re.compile(r"(\d+)(?:-(\d+))?")


def rank_rows(records: Sequence[Record], alone: Sequence[float | None]) -> tuple[RankRow, ...]:
    """One row for each rank.

    Args:
        records: The repeats of one trial of several.
        alone: Images/s of the same devices alone, in the order of the ranks.
    """
    by_rank: dict[int, list[RankResult]] = {}
    for record in records:
        for one in record.ranks:
            by_rank.setdefault(one.rank, []).append(one)
    parts = [part for record in records for result in record.power or () for part in result.by_part]
    return tuple(
        _rank(results, alone[rank] if rank < len(alone) else None, parts)
        for rank, results in sorted(by_rank.items())
    )


def processors_of(listed: str | None) -> frozenset[int]:
    """The processors in a list as Linux writes it: ``0-3,8``."""
    found: set[int] = set()
    for low, high in _RUN.findall(listed or ""):
        found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def _rank(results: Sequence[RankResult], alone: float | None, parts: Sequence[PartPower]) -> RankRow:
    last = results[-1]
    rates = [one.images_per_s for one in results if one.images_per_s is not None]
    rate = statistics.fmean(rates) if len(rates) == len(results) else None
    own = [part for part in parts if last.uuid is not None and part.part == last.uuid]
    watts = [part.load_w for part in own if part.load_w is not None]
    clocks = [part.clock_hz for part in own if part.clock_hz is not None]
    return RankRow(
        rank=last.rank,
        host=last.host,
        device=last.device,
        uuid=last.uuid,
        cores=last.cores,
        images_per_s=rate,
        alone=alone,
        kept=rate / alone if rate is not None and alone else None,
        skew_s=_largest(one.skew_s for one in results),
        clock_u_s=max(one.clock_u_s for one in results),
        load_s=_largest(one.load_s for one in results),
        load_w=statistics.fmean(watts) if watts else None,
        clock_hz=(min(low for low, _ in clocks), max(high for _, high in clocks)) if clocks else None,
    )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)

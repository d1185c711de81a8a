"""How many more images per watt a precision gives than fp32 in the same setup, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inferometer.analysis.grouping import comparable
from inferometer.analysis.power import PowerRow, Span
from inferometer.analysis.probe import change_between
from inferometer.analysis.ratios import BASELINE
from inferometer.analysis.rows import Setup
from inferometer.records import Precision, Record

__all__ = ["PowerGain", "PowerVerdict", "power_gains", "ratio_interval_of"]

PowerVerdict = Literal[
    "more per watt",
    "less per watt",
    "no difference seen",
    "one repeat: no verdict",
    "inconclusive: machine changed",
]


@dataclass(frozen=True)
class PowerGain:
    """Images/s per net watt at a precision over those at ``baseline``, in otherwise the same setup.

    ``interval`` is formed on logarithms from the intervals of both sides; the meter's gain error is in both
    and cancels. ``values`` are images/s/W of the baseline and of this one, ``mac_shares`` theirs likewise.
    """

    setup: Setup
    boundary: str
    first: bool
    baseline: Precision
    ratio: float
    interval: Span | None
    values: tuple[float, float]
    repeats: tuple[int, int]
    verdict: PowerVerdict
    mac_shares: tuple[float | None, float | None]
    record_ids: tuple[str, ...]


def power_gains(rows: Sequence[PowerRow], records: Mapping[str, Record]) -> tuple[PowerGain, ...]:
    """Every row with a ratio at another precision, against fp32 in the same setup and boundary.

    Args:
        rows: Of `power.power_rows`.
        records: By id; they hold the machine's probe.
    """
    known = [row for row in rows if row.efficiency is not None and row.efficiency > 0]
    return tuple(
        _gain(row, base, records)
        for row in known
        if row.setup.precision != BASELINE
        for base in known
        if base.setup.precision == BASELINE
        and comparable(row.setup, base.setup)
        and (row.meter, row.boundary, row.semantics) == (base.meter, base.boundary, base.semantics)
    )


def _gain(row: PowerRow, base: PowerRow, records: Mapping[str, Record]) -> PowerGain:
    own, other = row.efficiency or 0.0, base.efficiency or 0.0
    interval = ratio_interval_of(own, row.efficiency_interval, other, base.efficiency_interval)
    change = change_between(
        [records[one] for one in base.record_ids], [records[one] for one in row.record_ids]
    )
    verdict: PowerVerdict = "no difference seen"
    if min(row.repeats, base.repeats) < 2:
        verdict = "one repeat: no verdict"
    elif change is not None and change.changed:
        verdict = "inconclusive: machine changed"
    elif interval is not None and not interval[0] <= 1 <= interval[1]:
        verdict = "more per watt" if own > other else "less per watt"
    return PowerGain(
        setup=row.setup,
        boundary=row.boundary or "",
        first=row.first,
        baseline=base.setup.precision,
        ratio=own / other,
        interval=interval,
        values=(other, own),
        repeats=(base.repeats, row.repeats),
        verdict=verdict,
        mac_shares=(base.mac_share, row.mac_share),
        record_ids=base.record_ids + row.record_ids,
    )


def ratio_interval_of(a: float, of_a: Span | None, b: float, of_b: Span | None) -> Span | None:
    """The 95 % interval of a / b from those of both; None where one is not known or reaches 0.

    Source: variance estimates recovery (MOVER), G. Y. Zou and A. Donner, "Construction of confidence limits
    about effect measures: a general approach", Statistics in Medicine 27 (2008), on logarithms.
    """
    if of_a is None or of_b is None or of_a[0] <= 0 or of_b[0] <= 0:
        return None
    below = math.hypot(math.log(a / of_a[0]), math.log(of_b[1] / b))
    above = math.hypot(math.log(of_a[1] / a), math.log(b / of_b[0]))
    return a / b * math.exp(-below), a / b * math.exp(above)

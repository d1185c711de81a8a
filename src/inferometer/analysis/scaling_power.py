"""Images per second per watt of several devices together, against the same devices alone."""

from __future__ import annotations

from collections.abc import Sequence

from inferometer.analysis.power import PowerRow, Span
from inferometer.analysis.power_gains import ratio_interval_of
from inferometer.analysis.scaling_rows import ScalingPower
from inferometer.analysis.setup import Setup

__all__ = ["scaling_power"]


def scaling_power(
    setup: Setup, alone: Sequence[Setup], power: Sequence[PowerRow]
) -> tuple[ScalingPower, ...]:
    """One for each boundary in which the devices together, and each alone, have images/s/W.

    Args:
        setup: Of the trials of several.
        alone: Of each device alone; empty where they make no sum.
        power: The rows of all.
    """
    found = []
    for row in power:
        if not alone or row.setup != setup or row.efficiency is None or row.net_w is None:
            continue
        how = (row.meter, row.boundary, row.semantics)
        same = [one for one in power if (one.meter, one.boundary, one.semantics) == how]
        sides = [one for place in alone for one in same if one.setup == place and one.efficiency is not None]
        if len(sides) == len(alone):
            found.append(_held(row, row.efficiency, row.net_w, sides))
    return tuple(found)


def _held(row: PowerRow, together: float, net_w: float, sides: Sequence[PowerRow]) -> ScalingPower:
    """Alone, the devices do their work for the sum of their energy: means weighted by net watts."""
    total_w = sum(one.net_w or 0.0 for one in sides)
    weights = [(one.net_w or 0.0) / total_w for one in sides]
    alone = sum(weight * (one.efficiency or 0.0) for weight, one in zip(weights, sides, strict=True))
    span = _weighted([one.efficiency_interval for one in sides], weights)
    return ScalingPower(
        meter=row.meter or "",
        boundary=row.boundary or "",
        first=row.first,
        together=together,
        alone=alone,
        ratio=together / alone,
        interval=ratio_interval_of(together, row.efficiency_interval, alone, span),
        repeats=min(row.repeats, *(one.repeats for one in sides)),
        net_w=net_w,
    )


def _weighted(spans: Sequence[Span | None], weights: Sequence[float]) -> Span | None:
    """Ends add up: errors of one meter may go together, and then do not average out."""
    known = [span for span in spans if span is not None]
    if len(known) < len(spans):
        return None
    low = sum(weight * span[0] for weight, span in zip(weights, known, strict=True))
    return low, sum(weight * span[1] for weight, span in zip(weights, known, strict=True))

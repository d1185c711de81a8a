"""Power in rows: one for each setup and boundary, from the repeats."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from inferometer.analysis.rows import Setup
from inferometer.analysis.speed import mac_share
from inferometer.analysis.wording import plural
from inferometer.clock_events import CLOCK_EVENTS, POWER_CAP
from inferometer.records import BesideReading, PowerResult, Record
from inferometer.stats import mean_interval

__all__ = ["PowerRow", "Span", "power_rows", "why_no_ratio"]

Span = tuple[float, float]
"""Lower and upper end."""

Number = TypeVar("Number", int, float)
Kind = Literal["between_repeats", "within_trial"]

_CAP = CLOCK_EVENTS[POWER_CAP]
_MATTERS = 0.003  # an uncertainty of a window, relative to net power
# Where the reason for a missing ratio stands: the first of these that a result gives one for.
_BEHIND = (
    "images_per_s_per_w", "net_w", "load_w", "idle_bare_w", "idle_before", "idle_after", "load",
    "images_per_s", "power",
)  # fmt: skip


@dataclass(frozen=True)
class PowerRow:
    """Power of one setup within one boundary: means over the repeats. W, J, images/s, seconds, fractions.

    An interval is the wider of two: the t interval between the repeats' values, and the widest of the
    repeats' own, set about their mean. An error of an idle that repeats share is not seen between them, and
    one repeat's own interval says nothing of other repeats.

    Attributes:
        setup: Which one.
        meter: Its name; None, like every figure, where power was asked for and no repeat has it.
        boundary: What the figures cover.
        first: Whether the records name this boundary first: findings speak of these rows.
        parts: What was added up.
        semantics: How a reading comes about.
        asked: Repeats that ran and were to be metered.
        repeats: Those of them that the figures rest on.
        load_w: Mean power under load.
        idle_bare_w: Idle with no process of the study on the device.
        idle_loaded_w: Idle with the model loaded; None unless every repeat has it.
        net_w: ``load_w`` less ``idle_bare_w``.
        net_interval: Its interval.
        images_per_s: In the load window.
        efficiency: Images/s over net watts; None unless every repeat has it, so that none is chosen by it.
        efficiency_interval: Its interval.
        j_per_image: Net joules; None as ``efficiency``.
        j_interval: Its interval.
        load_efficiency: Images/s over watts under load, idle not subtracted.
        ci_kind: Which of the two ``efficiency_interval`` is, or ``net_interval`` where there is no ratio.
        capped: Share of the load in which the power limit held the clocks down; None: not told.
        slowed: Share in which heat or hardware slowed the device, of the condition that held longest.
        slowed_by: The names of those conditions.
        power_limit_w: Enforced, of the last repeat.
        temperature_c: Lowest and highest.
        clock_hz: Lowest and highest.
        gain_error: Of the meter's scale, in no interval here.
        drift_w: Of the repeat in which idle moved most.
        idle_age_s: Longest time from the idle before to the load.
        rate_hz: Least readings per second under load.
        samples: Least readings under load.
        distinct: Least readings that differ from the one before.
        largest_gap_s: Between two readings.
        coverage: Least share of the load that is not in gaps.
        beside: How the other channel's reading comes about that disagrees most.
        disagreement: Its excess over the primary channel, a fraction of that.
        flags: Each flag of the readings, with how many repeats have it.
        missing: Field to the reason why it is None, the first repeat's.
        mac_share: Least share of the MACs that ran at the precision asked for.
        record_ids: The trials that were to be metered.
    """

    setup: Setup
    meter: str | None
    boundary: str | None
    first: bool
    parts: tuple[str, ...]
    semantics: str | None
    asked: int
    repeats: int
    load_w: float | None
    idle_bare_w: float | None
    idle_loaded_w: float | None
    net_w: float | None
    net_interval: Span | None
    images_per_s: float | None
    efficiency: float | None
    efficiency_interval: Span | None
    j_per_image: float | None
    j_interval: Span | None
    load_efficiency: float | None
    ci_kind: Kind | None
    capped: float | None
    slowed: float | None
    slowed_by: tuple[str, ...]
    power_limit_w: float | None
    temperature_c: Span | None
    clock_hz: Span | None
    gain_error: float | None
    drift_w: float | None
    idle_age_s: float | None
    rate_hz: float | None
    samples: int | None
    distinct: int | None
    largest_gap_s: float | None
    coverage: float | None
    beside: str | None
    disagreement: float | None
    flags: tuple[tuple[str, int], ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    mac_share: float | None = None
    record_ids: tuple[str, ...] = ()


def power_rows(throughput: Iterable[tuple[Setup, Sequence[Record]]]) -> tuple[PowerRow, ...]:
    """A row for each boundary of each setup whose trials were to be metered, boundary by boundary.

    Args:
        throughput: The setups of throughput trials in the order wanted, each with its records.
    """
    rows: list[PowerRow] = []
    for setup, members in throughput:
        asked = sorted(
            (record for record in members if record.status == "ok" and _was_asked(record)),
            key=lambda record: record.trial.repeat,
        )
        found: dict[tuple[object, ...], list[PowerResult]] = {}
        for record in asked:
            for one in record.power or ():
                # Only what was read in the same way of the same parts is pooled.
                found.setdefault((one.boundary, one.meter, one.semantics, one.parts), []).append(one)
        without = [record for record in asked if not record.power]
        first = next(iter(found), (None,))[0]
        for results in found.values():
            rows.append(_row(setup, results, asked, without, first=results[0].boundary == first))
        if asked and not found:
            rows.append(_nothing(setup, asked))
    order = list(dict.fromkeys(row.boundary for row in rows if row.boundary is not None))
    # What has no boundary stands where its setup would.
    return tuple(sorted(rows, key=lambda row: order.index(row.boundary) if row.boundary else 0))


def why_no_ratio(row: PowerRow) -> str | None:
    """Why a row has no images/s/W, in the records' words; None when it has."""
    if row.efficiency is not None:
        return None
    known = (row.missing[name] for name in _BEHIND if name in row.missing)
    return next(known, "the record does not say")


def _was_asked(record: Record) -> bool:
    return record.power is not None or bool((record.config or {}).get("power")) or "power" in record.missing


def _row(
    setup: Setup,
    results: Sequence[PowerResult],
    asked: Sequence[Record],
    without: Sequence[Record],
    *,
    first: bool,
) -> PowerRow:
    with_load = [one for one in results if one.load_w is not None]
    counted = [one for one in with_load if one.net_w is not None] or with_load
    efficiency, efficiency_interval, kind = _mean(counted, "images_per_s_per_w", "images_per_s_per_w_ci95")
    joules, j_interval, _ = _mean(counted, "j_per_image", "j_per_image_ci95")
    net, net_interval, net_kind = _mean(counted, "net_w", "net_ci95_w", negative=True)
    worst = _worst_beside(counted)
    missing = _missing(results, counted, without, asked)
    if efficiency is not None and net_interval is not None and net_interval[0] <= 0:
        efficiency = efficiency_interval = joules = j_interval = kind = None
        missing["images_per_s_per_w"] = "the interval of net power over the repeats reaches 0"
    capped, slowed, slowed_by = _held_back(counted)
    return PowerRow(
        setup=setup,
        meter=results[0].meter,
        boundary=results[0].boundary,
        first=first,
        parts=results[0].parts,
        semantics=results[0].semantics,
        asked=len(asked),
        repeats=len(counted),
        load_w=_plain_mean(counted, "load_w"),
        idle_bare_w=_plain_mean(counted, "idle_bare_w"),
        idle_loaded_w=_plain_mean(counted, "idle_loaded_w"),
        net_w=net,
        net_interval=net_interval,
        images_per_s=_plain_mean(counted, "images_per_s"),
        efficiency=efficiency,
        efficiency_interval=efficiency_interval,
        j_per_image=joules,
        j_interval=j_interval,
        load_efficiency=_plain_mean(counted, "images_per_s_per_load_w"),
        ci_kind=kind or net_kind,
        capped=capped,
        slowed=slowed,
        slowed_by=slowed_by,
        power_limit_w=next((one.power_limit_w for one in reversed(counted) if one.power_limit_w), None),
        temperature_c=_extremes(one.temperature_c for one in counted),
        clock_hz=_extremes(one.clock_hz for one in counted),
        gain_error=_of(max, (one.gain_error for one in results)),
        drift_w=_of(lambda drifts: max(drifts, key=abs), (one.drift_w for one in counted)),
        idle_age_s=_of(max, (one.idle_age_s for one in counted)),
        **_audit(counted),
        beside=worst.semantics if worst else None,
        disagreement=worst.disagreement if worst else None,
        flags=_flags(results),
        missing=missing,
        mac_share=mac_share(asked)[0],
        record_ids=tuple(record.id for record in asked),
    )


def _worst_beside(results: Sequence[PowerResult]) -> BesideReading | None:
    readings = (reading for one in results for reading in one.beside)
    return max(readings, key=lambda reading: abs(reading.disagreement), default=None)


def _nothing(setup: Setup, asked: Sequence[Record]) -> PowerRow:
    """Power was asked for, and no repeat has it."""
    absent: dict[str, Any] = dict.fromkeys(PowerRow.__dataclass_fields__)
    known: dict[str, Any] = {
        "setup": setup, "first": True, "parts": (), "asked": len(asked), "repeats": 0, "slowed_by": (),
        "flags": (), "missing": {"power": _reason(asked)} | _refused(asked), "mac_share": mac_share(asked)[0],
        "record_ids": tuple(record.id for record in asked),
    }  # fmt: skip
    return PowerRow(**(absent | known))


def _audit(results: Sequence[PowerResult]) -> dict[str, Any]:
    """The least and worst of the readings under load."""
    loads = [one.load for one in results if one.load is not None]
    return {
        "rate_hz": _of(min, (one.rate_hz for one in loads)),
        "samples": _of(min, (one.samples for one in loads)),
        "distinct": _of(min, (one.distinct for one in loads)),
        "largest_gap_s": _of(max, (one.largest_gap_s for one in loads)),
        "coverage": _of(min, (one.coverage for one in loads)),
    }


def _mean(
    results: Sequence[PowerResult], name: str, interval: str, *, negative: bool = False
) -> tuple[float | None, Span | None, Kind | None]:
    """The mean and the wider interval (see `PowerRow`), and which it is; None unless all results have it."""
    values = [getattr(one, name) for one in results]
    if not values or None in values:
        return None, None, None
    mean = statistics.fmean(values)
    own = [
        (value - span[0], span[1] - value)
        for value, one in zip(values, results, strict=True)
        if (span := getattr(one, interval)) is not None
    ]
    widest = max(own, key=sum, default=None)
    between = mean_interval(values)
    least = -math.inf if negative else 0.0
    if between is not None and (widest is None or between.hi - between.lo >= sum(widest)):
        return mean, (max(between.lo, least), between.hi), "between_repeats"
    if widest is None:
        return mean, None, None
    return mean, (max(mean - widest[0], least), mean + widest[1]), "within_trial"


def _plain_mean(results: Sequence[PowerResult], name: str) -> float | None:
    values = [getattr(one, name) for one in results]
    return statistics.fmean(values) if values and None not in values else None


def _held_back(results: Sequence[PowerResult]) -> tuple[float | None, float | None, tuple[str, ...]]:
    """Mean shares over the repeats: by the power limit, by what else slows, and the names of the latter."""
    conditions = [condition for one in results for condition in one.conditions]
    if not conditions:
        return None, None, ()
    # A repeat that names none was not held back: it counts with nothing.
    shares: dict[str, float] = {}
    for one in conditions:
        if one.slows:
            shares[one.name] = shares.get(one.name, 0.0) + one.share / len(results)
    others = {name: share for name, share in shares.items() if name != _CAP and share > 0}
    return shares.get(_CAP, 0.0), max(others.values(), default=0.0), tuple(others)


def _flags(results: Sequence[PowerResult]) -> tuple[tuple[str, int], ...]:
    """Each flag of a window that net power rests on and depends on, with how many results have it.

    What flags a window whose uncertainty is a small part of net power stays in the record.
    """
    counts: dict[str, int] = {}
    for one in results:
        figures = (figure for figure in (one.load, one.idle_before, one.idle_after) if figure is not None)
        least_w = _MATTERS * abs(one.net_w) if one.net_w is not None else 0.0
        flags = (flag for figure in figures if figure.u_w >= least_w for flag in figure.flags)
        for flag in dict.fromkeys(flags):
            counts[flag] = counts.get(flag, 0) + 1
    return tuple(counts.items())


def _missing(
    results: Sequence[PowerResult],
    counted: Sequence[PowerResult],
    without: Sequence[Record],
    asked: Sequence[Record],
) -> dict[str, str]:
    found = _refused(asked)
    # Those that count first: a value that the row lacks, one of them lacks.
    for one in (*counted, *results):
        for name, reason in one.missing.items():
            found.setdefault(name, reason)
    if without:
        found["power"] = f"{len(without)} of {plural(len(asked), 'repeat')}: {_reason(without)}"
    return found


def _reason(records: Sequence[Record]) -> str:
    reasons = (record.missing.get("power", "the record does not say") for record in records)
    return "; ".join(dict.fromkeys(reasons))


def _refused(records: Sequence[Record]) -> dict[str, str]:
    """The meters that could not be read, as ``power.NAME``, with their reasons."""
    pairs = (pair for record in records for pair in record.missing.items())
    return {name: reason for name, reason in pairs if name.startswith("power.")}


def _extremes(spans: Iterable[Span | None]) -> Span | None:
    known = [span for span in spans if span is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def _of(choose: Callable[[list[Number]], Number], values: Iterable[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None

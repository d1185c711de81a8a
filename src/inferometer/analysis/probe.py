"""Did the machine itself change? Medians of the fixed probe around each trial, compared.

Single readings jump, so that what is compared are medians: of all readings around one side of a ratio against
the other side's, and of one round of repeats against the others. Repeats are interleaved: what both sides of
a ratio met alike is in the interval between repeats already.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from inferometer.analysis.rows import MachineChange
from inferometer.analysis.wording import joined, percent
from inferometer.records import Record

__all__ = [
    "PROBE_LIMITS",
    "change_between",
    "change_over_rounds",
    "limits_text",
    "moved_between",
    "probe_of",
]

PROBE_LIMITS: Mapping[str, float] = {"compute": 0.10, "memory copying": 0.40}
"""Highest over lowest median, less one, above which a machine counts as changed (fractions).

Source: measured, 40 probes on an idle virtual machine with 2 cores. Computing: readings with a standard
deviation of 0.9 %, one of 40 as much as 40 % low; medians of 6 readings within 1.2 %. Copying: standard
deviation 12.6 %, medians of 6 readings within 29 %. On another such machine, with nothing else running in it,
copying went to and fro between 21 and 42 GB/s for minutes at a time, and ratios stood: see ``held``.
"""

_FIELDS = {"compute_bytes_per_s": "compute", "copy_bytes_per_s": "memory copying"}
# What two readings must share to have done the same work: see ``environment.probe.ProbeReading``.
_WORK = {"version": "version", "threads": "threads", "copy_bytes": "bytes copied"}
_TIMED = ("throughput", "latency")


@dataclass(frozen=True)
class _Reading:
    work: tuple[object, ...]
    rates: Mapping[str, float]


def change_between(
    a: Iterable[Record], b: Iterable[Record], probes: Collection[str] = PROBE_LIMITS
) -> MachineChange | None:
    """The median over the readings around one side's trials against that around the other's.

    None when a side has no reading: nothing is known then.

    Args:
        a: The one side's.
        b: The other's.
        probes: What is compared, of `PROBE_LIMITS`.
    """
    return _compare([_readings(a), _readings(b)], probes)


def change_over_rounds(records: Iterable[Record]) -> MachineChange | None:
    """The medians over the readings of each round of repeats, highest against lowest.

    Timed trials only, since others have no rounds. None with fewer than two rounds.
    """
    rounds: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if record.trial.kind in _TIMED:
            rounds[record.trial.repeat].append(record)
    return _compare([_readings(members) for members in rounds.values()])


def moved_between(a: Iterable[Record], b: Iterable[Record]) -> tuple[str, ...]:
    """The probes whose medians on the two sides are further apart than their limits."""
    a, b = list(a), list(b)
    changes = [(name, change_between(a, b, (name,))) for name in PROBE_LIMITS]
    return tuple(name for name, change in changes if change is not None and change.changed)


def probe_of(record: Record, probe: str) -> float | None:
    """The probe around one trial, bytes/s: the geometric mean of before and after; None without readings."""
    rates = [one.rates[probe] for one in _readings([record]) if probe in one.rates]
    return statistics.geometric_mean(rates) if rates else None


def limits_text() -> str:
    """Both limits in words."""
    return " or ".join(f"{percent(limit, 0)} ({name})" for name, limit in PROBE_LIMITS.items())


def _compare(
    groups: Sequence[Sequence[_Reading]], probes: Collection[str] = PROBE_LIMITS
) -> MachineChange | None:
    """The probe that moved most in proportion to its limit."""
    known = [group for group in groups if group]
    if len(known) < 2:
        return None
    readings = [reading for group in known for reading in group]
    unlike = _unlike(readings)
    if unlike is not None:
        return MachineChange(None, None, None, None, None, len(readings), unlike)
    changes = []
    for name, limit in PROBE_LIMITS.items():
        if name not in probes:
            continue
        rates = [[one.rates[name] for one in group if name in one.rates] for group in known]
        medians = [statistics.median(values) for values in rates if values]
        if len(medians) > 1:
            low, high = min(medians), max(medians)
            changes.append(MachineChange(high / low - 1, limit, name, low, high, sum(map(len, rates))))
    return max(changes, key=lambda one: one.severity, default=None)


def _unlike(readings: Sequence[_Reading]) -> str | None:
    """Why the readings do not compare: the first difference in the probe's work."""
    for place, name in enumerate(_WORK.values()):
        values = dict.fromkeys(
            "not known" if one.work[place] is None else one.work[place] for one in readings
        )
        if len(values) > 1:
            return (
                "the probe did not do the same work throughout"
                f" ({name}: {joined([str(value) for value in values])})"
            )
    return None


def _readings(records: Iterable[Record]) -> list[_Reading]:
    """Those before and after each trial."""
    found = []
    for record in records:
        for moment in ("before", "after"):
            taken = (record.probe or {}).get(moment)
            if not isinstance(taken, Mapping):
                continue
            rates = {
                name: float(taken[field])
                for field, name in _FIELDS.items()
                if isinstance(taken.get(field), int | float) and taken[field] > 0
            }
            if rates:
                found.append(_Reading(tuple(taken.get(field) for field in _WORK), rates))
    return found

"""Is a new store slower than a base by more than is allowed? Pass, fail, or not to be told (pure).

A point passes when the one-sided 95 % bound of its slowdown is within what is allowed, and fails when it is
wholly beyond. All points have to pass, each at 5 %: a gate that passes errs in one of 20 cases at most,
however many points there are. One that fails is enough, so that those p-values are corrected by Holm.

Source: R. L. Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24 (1982)
(intersection-union test).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from inferometer.analysis.gate_rows import Gate, GateMetric, GatePoint, GateVerdict
from inferometer.analysis.grouping import in_order, setups
from inferometer.analysis.held import held
from inferometer.analysis.machines import machines_of
from inferometer.analysis.probe import change_between
from inferometer.analysis.rows import Machine, MachineChange
from inferometer.analysis.setup import Setup
from inferometer.analysis.wording import joined, model_names, plural
from inferometer.errors import ConfigError
from inferometer.records import Kind, Record
from inferometer.stats import Difference, holm, t_cdf, t_quantile, trimmed_difference

__all__ = ["LEAST_REPEATS", "gate", "repeats_wanted"]

LEAST_REPEATS = 5
"""From so many repeats on one reading far off is left out. Source: `inferometer.stats.trimmed_difference`."""

_SIGNIFICANT = 0.05
_POWER = 0.9
_MOST_REPEATS = 1000
_METRICS: Mapping[Kind, GateMetric] = {"throughput": "images_per_s", "latency": "latency_s"}
# Of a record's settings those that make another speed and may be what was changed. Not the engine's options
# and the model's file: they make another trial.
_SETTINGS = ("engine_version", "preprocess", "isolation", "measure", "output", "launch")


_Key = tuple[Kind, Setup]


@dataclass(frozen=True)
class _Side:
    """A setup's records in one store."""

    records: tuple[Record, ...]
    values: tuple[float, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(record.id for record in self.records)


def gate(base: Sequence[Record], new: Sequence[Record], max_slowdown: float) -> Gate:
    """Judge a store against another of the same study and machine.

    Args:
        base: Final records of the store that sets the pace.
        new: Of the one that is judged.
        max_slowdown: How much slower it may be (a fraction under 1).

    Raises:
        ConfigError: They come from different machines, or have no point in common.
    """
    _check_machines(base, new)
    ours = _sides(base)
    theirs = _matched(_sides(new), ours)
    known = {key: side for key, side in ours.items() if side.values}
    if not {_plain(key) for key in known} & {_plain(key) for key in theirs}:
        raise ConfigError("the two stores have no throughput or latency point in common: is it one study?")
    models = list(dict.fromkeys(setup.model for _, setup in known))
    order = sorted(known, key=lambda key: (key[0] == "latency", in_order(key[1], models)))
    limit = math.log1p(-max_slowdown)
    # What NEW holds under settings that BASE does not have.
    others = {key: side for key, side in theirs.items() if key not in ours}
    points = _corrected([
        _point(key, known[key], theirs[key], limit) if key in theirs else _absent(key, known[key], others)
        for key in order
    ], max_slowdown)  # fmt: skip
    shared = [key for key in known if key in theirs]
    wanted = [one.more_repeats for one in points if one.verdict == "inconclusive"]
    tells = bool(wanted) and None not in wanted
    return Gate(
        verdict=_verdict(points),
        max_slowdown=max_slowdown,
        points=points,
        names=model_names(models),
        differences=tuple(
            _unlike(
                _settings([record for key in shared for record in known[key].records]),
                _settings([record for key in shared for record in theirs[key].records]),
            )
        ),
        notes=_notes(ours, theirs),
        more_repeats=max((one for one in wanted if one is not None), default=None) if tells else None,
    )


def repeats_wanted(found: Difference, limit: float, repeats: int) -> int | None:
    """Repeats on each side with which nine in ten times the difference is told from the limit.

    None: more than 1000. It takes the differences and spreads that were seen as the true ones.

    Args:
        found: Of logarithms, from ``repeats`` repeats on each side.
        limit: What it is held against.
        repeats: The smaller number of both sides.

    Source: the usual sum of the two quantiles times the error; NIST/SEMATECH e-Handbook, 7.2.2.2.
    """
    distance = abs(found.value - limit)
    for count in range(2, _MOST_REPEATS + 1):
        df = 2.0 * (count - 1)
        reach = t_quantile(1 - _SIGNIFICANT, df) + t_quantile(_POWER, df)
        if distance >= reach * found.error * math.sqrt(repeats / count):
            return count
    return None


def _plain(key: _Key) -> _Key:
    """Without the settings that a store names where it holds several."""
    return key[0], replace(key[1], variant=())


def _matched(theirs: Mapping[_Key, _Side], ours: Mapping[_Key, _Side]) -> dict[_Key, _Side]:
    """NEW's points under BASE's keys: a setting that varies in one store alone makes no other point."""
    here, there = (Counter(map(_plain, side)) for side in (ours, theirs))
    alone = {_plain(key): key for key in ours if here[_plain(key)] == there[_plain(key)] == 1}
    return {alone.get(_plain(key), key): side for key, side in theirs.items()}


def _sides(records: Sequence[Record]) -> dict[_Key, _Side]:
    """By kind and setup; a store holds one machine."""
    index = {record.id: 0 for record in records}
    found = {}
    for kind, metric in _METRICS.items():
        chosen = [one for one in records if one.trial.kind == kind and one.status != "interrupted"]
        for setup, members in setups(chosen, index).items():
            values = [value for one in members if (value := _value(one, metric)) is not None]
            found[kind, setup] = _Side(tuple(members), tuple(values))
    return found


def _value(record: Record, metric: GateMetric) -> float | None:
    if record.status != "ok":
        return None
    if metric == "latency_s":
        return record.latency_s.p50 if record.latency_s else None
    return record.throughput.images_per_s if record.throughput else None


def _unjudged(key: _Key, base: _Side, new: _Side) -> GatePoint:
    return GatePoint(
        setup=key[1],
        metric=_METRICS[key[0]],
        verdict="inconclusive",
        reason=None,
        base=base.values,
        new=new.values,
        slowdown=None,
        bounds=None,
        p_slower=None,
        p_within=None,
        more_repeats=None,
        machine_change=None,
        base_ids=base.ids,
        new_ids=new.ids,
    )


def _absent(key: _Key, base: _Side, others: Mapping[_Key, _Side]) -> GatePoint:
    """A point that NEW does not have, or has under settings that BASE does not have."""
    point = _unjudged(key, base, _Side((), ()))
    found = [one for other, side in others.items() if _plain(other) == _plain(key) for one in side.records]
    if not found:
        return replace(point, verdict="fail", reason="NEW has no record of it: run the study to its end")
    unlike = _unlike(_settings(base.records), _settings(found))
    named = f": {joined(unlike)}" if unlike else ""
    return replace(point, reason=f"NEW has it under other settings alone{named}")


def _point(key: _Key, base: _Side, new: _Side, limit: float) -> GatePoint:
    point = _unjudged(key, base, new)
    if not new.values:
        return _without_values(point, new)
    change = change_between(_ok(base), _ok(new))
    point = replace(point, machine_change=change)
    before, after = ([math.log(value) for value in side] for side in (base.values, new.values))
    if key[0] == "latency":
        before, after = after, before  # the quicker call is the faster
    found = trimmed_difference(before, after)
    if found is None:
        ratio = math.exp(statistics.fmean(after) - statistics.fmean(before))
        least = min(len(base.values), len(new.values))
        return replace(point, slowdown=1 - ratio, reason="one repeat on a side supports no verdict",
                       more_repeats=LEAST_REPEATS - least)  # fmt: skip
    at_one_state = _held(key, base, new, change)
    every = (found, *at_one_state)
    point = replace(
        point,
        slowdown=-math.expm1(found.value),
        bounds=_bounds(every),
        p_slower=max(_p(limit - one.value, one) for one in every),
        p_within=max(_p(one.value - limit, one) for one in every),
    )
    lost = [one for one in new.records if one.status != "ok"]
    if lost and len(lost) > sum(one.status != "ok" for one in base.records):
        why = f"{lost[-1].status.replace('_', ' ')}: {lost[-1].reason}"
        of = f"{len(lost)} of {plural(len(new.records), 'repeat')} of NEW"
        return replace(point, verdict="fail", p_slower=None, reason=f"{of} did not end well; {why}")
    if len(new.records) < len(base.records):
        told = (
            f"NEW has {len(new.records)} of {plural(len(base.records), 'repeat')}: run the study to its end"
        )
        return replace(point, p_slower=None, reason=told)
    unlike = _unlike(_made_of(base.records), _made_of(new.records))
    if unlike:
        return replace(point, p_slower=None, reason=f"another trial in NEW: {joined(unlike)}")
    if change is not None and change.changed and not at_one_state:
        return replace(point, p_slower=None, reason="the machine changed between the two")
    repeats = min(len(base.values), len(new.values))
    wanted = repeats_wanted(found, limit, repeats)
    # One that has its repeats and yet was not told was unlucky: some more, rather than none.
    return replace(point, more_repeats=None if wanted is None else max(wanted - repeats, LEAST_REPEATS))


def _held(key: _Key, base: _Side, new: _Side, change: MachineChange | None) -> tuple[Difference, ...]:
    """As the trimmed difference, more is faster."""
    found = held(_ok(base), _ok(new), partial(_value, metric=_METRICS[key[0]]), change)
    return tuple(replace(one, value=-one.value) for one in found) if key[0] == "latency" else found


def _bounds(every: Sequence[Difference]) -> tuple[float, float]:
    """Of the slowdown, one-sided 95 % each: the widest."""
    halves = [t_quantile(1 - _SIGNIFICANT, one.df) * one.error if one.error else 0.0 for one in every]
    pairs = list(zip(every, halves, strict=True))
    high, low = max(one.value + half for one, half in pairs), min(one.value - half for one, half in pairs)
    return -math.expm1(high), -math.expm1(low)


def _without_values(point: GatePoint, new: _Side) -> GatePoint:
    last = new.records[-1]
    if last.status == "ok":  # too few calls for a median
        return replace(point, reason="NEW has too few calls for a median: measure longer (measure.max_s)")
    return replace(point, verdict="fail", reason=f"{last.status.replace('_', ' ')}: {last.reason}")


def _p(distance: float, found: Difference) -> float:
    """Of seeing so much on this side of the limit, if the truth were on the other."""
    if not found.error:
        return 0.0 if distance >= 0 else 1.0
    return t_cdf(-distance / found.error, found.df)


def _corrected(points: Sequence[GatePoint], allowed: float) -> tuple[GatePoint, ...]:
    """With the p-values that can make the gate fail corrected, and the verdicts that follow."""
    fair = iter(holm([one.p_slower for one in points if one.p_slower is not None]))
    return tuple(
        one if one.p_slower is None else _judged(replace(one, p_slower=next(fair)), allowed) for one in points
    )


def _judged(point: GatePoint, allowed: float) -> GatePoint:
    if point.p_slower is not None and point.p_slower < _SIGNIFICANT:
        return replace(point, verdict="fail", more_repeats=None)
    if point.p_within is not None and point.p_within < _SIGNIFICANT:
        return replace(point, verdict="pass", more_repeats=None)
    moved = point.machine_change is not None and point.machine_change.changed
    why = "the machine changed between the two, and " if moved else ""
    if point.bounds is not None and point.bounds[0] > allowed:
        why += "beyond what is allowed by itself, but one of so many points may be so by chance (Holm)"
    else:
        why += "the repeats scatter too much to tell"
    if point.more_repeats is None:
        why += f"; more than {_MOST_REPEATS} would be wanted"
    else:
        why += f"; about {point.more_repeats} more on each side would tell"
    return replace(point, reason=why)


def _verdict(points: Sequence[GatePoint]) -> GateVerdict:
    found = {one.verdict for one in points}
    if "fail" in found:
        return "fail"
    return "pass" if found == {"pass"} else "inconclusive"


def _ok(side: _Side) -> list[Record]:
    return [record for record in side.records if record.status == "ok"]


def _check_machines(base: Sequence[Record], new: Sequence[Record]) -> None:
    named: list[Machine] = []
    for name, records in (("BASE", base), ("NEW", new)):
        machines = machines_of(records)[0]
        if len(machines) > 1:
            raise ConfigError(f"{name} holds records of {plural(len(machines), 'machine')}: a gate wants one")
        named += machines
    if len(named) == 2 and named[0].key != named[1].key:
        titles = [one.title for one in named]
        where = f"{titles[0]} and {titles[1]}" if titles[0] != titles[1] else f"two machines like {titles[0]}"
        raise ConfigError(f"BASE and NEW were measured on {where}: a gate wants one and the same machine")


def _unlike(ours: Mapping[str, set[str]], theirs: Mapping[str, set[str]]) -> list[str]:
    """What differs; an option that one side does not name has its default there."""
    found = []
    for name in {**ours, **theirs}:
        unnamed = {"default"} if name.startswith("options.") else set()
        here, there = ours.get(name, unnamed), theirs.get(name, unnamed)
        if here and there and here != there:
            found.append(
                f"{name}: {' and '.join(sorted(here))} in BASE, {' and '.join(sorted(there))} in NEW"
            )
    return found


def _made_of(records: Sequence[Record]) -> dict[str, set[str]]:
    """What two trials must share for their speeds to be held against one another."""
    found: dict[str, set[str]] = {}
    for record in records:
        if record.model is not None:
            found.setdefault(f"{record.trial.model}'s file", set()).add(record.model.sha256[:12])
        for key, value in _flat("options", (record.config or {}).get("options")):
            found.setdefault(key, set()).add(value)
    return found


def _settings(records: Sequence[Record]) -> dict[str, set[str]]:
    """That, and what may be what was changed."""
    found = _made_of(records)
    for record in records:
        for name in _SETTINGS:
            for key, value in _flat(name, (record.config or {}).get(name)):
                found.setdefault(key, set()).add(value)
        for key, value in _flat("libraries", (record.environment or {}).get("libraries")):
            found.setdefault(key, set()).add(value)
    return found


def _flat(name: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for key, inner in value.items() for pair in _flat(f"{name}.{key}", inner)]
    return [] if value is None else [(name, str(value))]


def _notes(base: Mapping[_Key, _Side], new: Mapping[_Key, _Side]) -> tuple[str, ...]:
    found = []
    without = sum(not side.values for side in base.values())
    if without:
        found.append(
            f"{plural(without, 'point')} of BASE {'has' if without == 1 else 'have'} no figure: not judged"
        )
    only = len(new.keys() - base.keys())
    if only:
        found.append(f"{plural(only, 'point')} of NEW {'is' if only == 1 else 'are'} not in BASE: not judged")
    few = min((len(values) for side in (*base.values(), *new.values()) if (values := side.values)), default=0)
    if 1 < few < LEAST_REPEATS:
        found.append(
            f"{plural(few, 'repeat')} a side: from {LEAST_REPEATS} on one reading far off does no harm"
        )
    return tuple(found)

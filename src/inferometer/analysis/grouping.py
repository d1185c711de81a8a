"""Which records are repeats of one another: setups, and the settings that tell them apart."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inferometer.analysis.rows import Setup
from inferometer.records import Record

__all__ = [
    "PRECISION_ORDER",
    "common_settings",
    "comparable",
    "first_places",
    "in_order",
    "of_one_rank",
    "place_of",
    "setups",
]

PRECISION_ORDER = ("fp32", "tf32", "fp16", "bf16", "int8")

# What of a record's configuration makes it another trial; limits and paths do not.
_SETTINGS = (
    "engine_version", "options", "threads", "preprocess", "images", "isolation", "measure", "seed", "output",
)  # fmt: skip
# Settings that belong to a precision by nature: they never keep it from being compared with another.
_OF_PRECISION = ("calibration",)


def setups(records: Sequence[Record], machines: Mapping[str, int]) -> dict[Setup, list[Record]]:
    """Records by setup, in order of first appearance; repeats of one trial share a setup.

    Settings are named in a setup only where the records hold several for otherwise the same one, so
    that trials under different options, engine versions or model files are never pooled.

    Args:
        records: Of one kind of trial.
        machines: Index of the machine by record id.
    """
    settings = {record.id: _settings(record) for record in records}
    families: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    for record in records:
        trial = record.trial
        families[trial.model, trial.engine, trial.device, machines[record.id]].append(record)
    variants: dict[str, dict[str, str]] = defaultdict(dict)
    for family in families.values():
        by_precision: dict[str, list[Record]] = defaultdict(list)
        for record in family:
            by_precision[record.trial.precision].append(record)
        _name_what_varies(family, settings, variants, of_precision=False)
        for members in by_precision.values():
            _name_what_varies(members, settings, variants, of_precision=True)
    found: dict[Setup, list[Record]] = defaultdict(list)
    for record in records:
        trial = record.trial
        found[
            Setup(
                model=trial.model,
                engine=trial.engine,
                device=trial.device,
                precision=trial.precision,
                batch=trial.batch,
                machine=machines[record.id],
                variant=tuple(sorted(variants[record.id].items())),
                ranks=trial.ranks,
                place=trial.place,
            )
        ].append(record)
    return dict(found)


def in_order(setup: Setup, models: Sequence[str]) -> tuple[Any, ...]:
    """Sort key: the models as the study lists them, engine, device, settings, ranks, precision, batch."""
    return (
        setup.machine,
        models.index(setup.model),
        setup.engine,
        setup.device,
        common_settings(setup),
        setup.ranks,
        -1 if setup.place is None else setup.place,
        PRECISION_ORDER.index(setup.precision),
        setup.batch or 0,
        setup.variant,
    )


def comparable(setup: Setup, baseline: Setup) -> bool:
    """Whether the two differ in precision alone, so that their ratio is that of the precisions."""
    alike = all(
        getattr(setup, name) == getattr(baseline, name)
        for name in ("model", "engine", "device", "batch", "machine", "ranks", "place")
    )
    return alike and common_settings(setup) == common_settings(baseline)


def common_settings(setup: Setup) -> tuple[tuple[str, str], ...]:
    """A setup's settings without those that belong to its precision by nature."""
    return tuple(pair for pair in setup.variant if pair[0] not in _OF_PRECISION)


def place_of(setup: Setup) -> tuple[object, ...]:
    """What setups share that differ in precision, batch, ranks or settings alone."""
    return setup.model, setup.engine, setup.device, setup.machine


def first_places(setups: Iterable[Setup]) -> frozenset[Setup]:
    """Of several devices measured alone in the same way the first; all else as it is.

    The others tell the same again, on any machine.
    """
    known = list(setups)
    least: dict[Setup, int] = {}
    for one in known:
        if one.place is not None:
            alike = replace(one, place=None, machine=0)
            least[alike] = min(least.get(alike, one.place), one.place)
    return frozenset(
        one for one in known if one.place is None or one.place == least[replace(one, place=None, machine=0)]
    )


def of_one_rank(setups: Iterable[Setup]) -> frozenset[Setup]:
    """The `first_places` with the fewest ranks, where the setups differ in these: what one device does."""
    known = first_places(setups)
    fewest: dict[tuple[object, ...], int] = {}
    for one in known:
        fewest[place_of(one)] = min(fewest.get(place_of(one), one.ranks), one.ranks)
    return frozenset(one for one in known if one.ranks == fewest[place_of(one)])


def _name_what_varies(
    records: Sequence[Record],
    settings: Mapping[str, Mapping[str, str]],
    variants: Mapping[str, dict[str, str]],
    *,
    of_precision: bool,
) -> None:
    """Add to ``variants`` the settings of which the records hold several values.

    A trial that died early lacks some: what is not known makes no variant. An engine's option that was not
    given is known: it has its default.
    """
    names = {name for record in records for name in settings[record.id]}
    for name in sorted(name for name in names if (name in _OF_PRECISION) is of_precision):
        values = {record.id: settings[record.id].get(name, _not_given(name, record)) for record in records}
        if len({value for value in values.values() if value is not None}) > 1:
            for record in records:
                variants[record.id][name] = values[record.id] or "not known"


def _not_given(name: str, record: Record) -> str | None:
    """What a setting that a record does not name is known to be; None when it is not."""
    asked = name.startswith("options.") and isinstance((record.config or {}).get("options"), Mapping)
    return "default" if asked else None


def _settings(record: Record) -> dict[str, str]:
    """Everything beside the setup's own fields that makes this another trial, by dotted name."""
    trial, config = record.trial, record.config or {}
    found: dict[str, str] = {"copies": trial.copies, "input": trial.input}
    if record.model is not None:
        found["model file"] = record.model.sha256[:8]
    if record.calibration is not None:
        found["calibration"] = _calibration(record)
    for name in _SETTINGS:
        if name in config:
            _flatten(name, config[name], found)
    # What the options choose may have a version of its own: it tells trials of the same options apart.
    version, _, chosen = found.get("engine_version", "").partition(" with ")
    if chosen:
        found |= {"engine_version": version, "version of what the options choose": chosen}
    return found


def _calibration(record: Record) -> str:
    info = record.calibration
    if info is None:
        return "none"
    parts = [info.source, info.method, info.images and f"{info.images} images", (info.table_sha256 or "")[:8]]
    return " ".join(str(part) for part in parts if part)


def _flatten(name: str, value: Any, into: dict[str, str]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(f"{name}.{key}", inner, into)
    else:
        into[name] = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)

"""What was the case when a point was measured: fact by fact, with what is not known kept apart from equal."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inferometer.analysis.comparison.points import Point, Source, gpus_of
from inferometer.analysis.probe import probe_of
from inferometer.records import Record

__all__ = ["SETTLED", "Fact", "Facts", "facts_of", "is_cpu"]

Fact = str | float | None
Facts = Mapping[str, Fact]
"""By name; None: not known. A name that is not there does not apply (a CPU has no power limit of a GPU)."""

_ACCURACY = ("top1", "top5")

SETTLED = "settled."
"""Before the names of facts that stand in for an option of that name: no differences by themselves."""


def is_cpu(point: Point) -> bool:
    """Whether it ran on the host's own processor."""
    return point.device.lower().startswith("cpu")


def facts_of(point: Point, source: Source) -> Facts:
    """All facts that could move a point's value.

    Of a store they are read from the records behind the point: words that differ between repeats are listed
    side by side, of numbers it is the median. A study states few of them.
    """
    found: dict[str, Fact] = {
        "machine": _machine(point),
        "device": point.device,
        "engine": point.engine,
        "model": point.model,
        "precision": point.precision,
        "share of the MACs at the precision": point.mac_share,
    }
    if point.count is not None and point.metric not in _ACCURACY:
        found["devices at once"] = str(point.count)
        found["batch"] = None if point.batch is None else str(point.batch)
    if point.boundary is not None:
        found["power boundary"] = point.boundary
        found["meter"] = point.meter
    if source.study is not None:
        return found | _published(point, source)
    return found | _measured(point, source.of(point))


def _machine(point: Point) -> str | None:
    if point.machine_key is None:
        return point.machine
    return f"{point.machine} [{point.machine_key[:6]}]"


def _published(point: Point, source: Source) -> dict[str, Fact]:
    """Whatever a study's file does not tell is not known: that it was alike is likely, not said."""
    names = ["driver", "GPU clock, Hz", "power limit, W", "model file", "copies", "input", "preprocess"]
    names += ["isolation", "threads", "harness version", "machine probe, bytes/s", "load by others, cores"]
    names += ["memory copying probe, bytes/s"]
    if point.precision == "int8":
        names += ["calibration images", "calibration method", "calibration table"]
    study = source.study
    told = {"engine_version": study.engine if study else None}
    return {**dict.fromkeys(names), **told, **{f"settings.{name}": value for name, value in point.settings}}


def _measured(point: Point, records: Sequence[Record]) -> dict[str, Fact]:
    per_record = [_of_record(record, point) for record in records]
    names = dict.fromkeys(name for one in per_record for name in one)
    return {name: _merged(one[name] for one in per_record if name in one) for name in names}


def _merged(values: Iterable[Fact]) -> Fact:
    known = [value for value in values if value is not None]
    numbers = [value for value in known if isinstance(value, float)]
    if known and len(numbers) == len(known):
        return statistics.median(numbers)
    return " / ".join(dict.fromkeys(str(value) for value in known)) or None


def _of_record(record: Record, point: Point) -> dict[str, Fact]:
    config, session = record.config or {}, record.session or {}
    environment = record.environment or {}
    options = dict(config.get("options") or {})
    threads = session.get("threads", options.pop("threads", config.get("threads")))
    options.pop("threads", None)
    found: dict[str, Fact] = {
        "model file": record.model.sha256[:12] if record.model else None,
        "copies": record.trial.copies,
        "input": record.trial.input,
        "engine_version": _text(config.get("engine_version")),
        "threads": _text(threads),
        "isolation": _text(config.get("isolation")),
        "harness version": _text((environment.get("libraries") or {}).get("inferometer")),
        "record schema": str(record.schema_version),
        "kernel": _text((environment.get("system") or {}).get("kernel")),
        "load by others, cores": _number(((record.state or {}).get("load") or {}).get("busy_cores")),
        "machine probe, bytes/s": probe_of(record, "compute"),
        "memory copying probe, bytes/s": probe_of(record, "memory copying"),
    }
    for prefix, content in (("options", options), ("preprocess", config.get("preprocess"))):
        found |= _flat(prefix, content)
    # What an option came to, given or not: ``auto`` is one mode or the other.
    found |= {
        f"{SETTLED}{key}": str(value)
        for key, value in session.items()
        if isinstance(value, str | int | float) and value is not None
    }
    if point.metric not in _ACCURACY:
        found |= _flat("measure", config.get("measure"))
        found["CPU clock, Hz"] = _number(((record.state or {}).get("before") or {}).get("frequency_mean_hz"))
    if record.throughput is not None:
        found["calls in flight"] = str(record.throughput.in_flight)
    if record.accuracy is not None:
        found["images scored"] = str(record.accuracy.images)
        found["decoder"] = _text(record.accuracy.decoder)
    return found | _calibration(record) | (_of_cpu if is_cpu(point) else _of_gpu)(record)


def _calibration(record: Record) -> dict[str, Fact]:
    info = record.calibration
    if record.trial.precision != "int8":
        return {}
    if info is None:
        return dict.fromkeys(("calibration images", "calibration method", "calibration table"))
    return {
        "calibration images": f"{info.images} {info.source}" if info.images else info.source,
        "calibration method": info.method,
        "calibration table": info.table_sha256[:8] if info.table_sha256 else None,
    }


def _of_cpu(record: Record) -> dict[str, Fact]:
    environment = record.environment or {}
    cpu = environment.get("cpu") or {}
    return {
        "CPU": _text(cpu.get("model")),
        "cores usable": _text(environment.get("usable_cores")),
        "INT8 dot product in hardware (VNNI)": _text(cpu.get("int8_dot")),
    }


def _of_gpu(record: Record) -> dict[str, Fact]:
    gpus = gpus_of(record)
    drivers = dict.fromkeys(str(one["driver"]) for one in gpus if one.get("driver"))
    clocks = [sum(one.clock_hz) / 2 for one in record.power or () if one.clock_hz]
    return {
        "driver": " / ".join(drivers) or None,
        "GPU clock, Hz": clocks[0] if clocks else None,
        "power limit, W": _power_limit(record, gpus),
    }


def _power_limit(record: Record, gpus: Sequence[Mapping[str, Any]]) -> float | None:
    """As the meter of the trial read it, else of its GPUs; where theirs differ it may be that of another."""
    metered = [one.power_limit_w for one in record.power or () if one.power_limit_w]
    if metered:
        return float(metered[0])
    limits = {one.get("power_limit_w") or None for one in gpus}
    return _number(limits.pop()) if len(limits) == 1 else None


def _flat(prefix: str, content: object) -> dict[str, Fact]:
    """An engine's option that was not given, or a preset's field that says nothing, is no unknown."""
    if not isinstance(content, Mapping):
        return {prefix: None} if content is None and prefix != "options" else {}
    return {f"{prefix}.{key}": str(value) for key, value in content.items() if value is not None}


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else str(value)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None

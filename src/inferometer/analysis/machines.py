"""The machines that records come from: told apart, and described in words with reasons for gaps."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.analysis.rows import Fact, Machine
from inferometer.analysis.wording import bytes_text, joined, plural, significant
from inferometer.records import Record

__all__ = ["machines_of"]

_UNKNOWN = "the record does not say"


def machines_of(records: Sequence[Record]) -> tuple[tuple[Machine, ...], dict[str, int]]:
    """The machines in order of first appearance, and each record's index among them by id.

    A record without an environment (its worker died early) counts to the machine before it.
    """
    found: dict[str, list[Record]] = {}
    index: dict[str, int] = {}
    keys = [_key(record.environment) if record.environment else None for record in records]
    last = next((key for key in keys if key is not None), None)
    for record, key in zip(records, keys, strict=True):
        last = key if key is not None else last
        name = last if last is not None else "not known"
        found.setdefault(name, []).append(record)
        index[record.id] = list(found).index(name)
    return tuple(_machine(key, members) for key, members in found.items()), index


def _key(environment: Mapping[str, Any]) -> str:
    given = environment.get("machine_key")
    if given:
        return str(given)
    identity = [
        _at(environment, "cpu.model"),
        _at(environment, "server.board_name"),
        sorted(str(gpu.get("uuid")) for gpu in _gpus(environment)),
    ]
    return hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:16]


def _machine(key: str, records: Sequence[Record]) -> Machine:
    # The last one that tells most: libraries may have been installed in between.
    environment: Mapping[str, Any] = next((r.environment for r in reversed(records) if r.environment), {})
    reasons = environment.get("missing")
    reasons = reasons if isinstance(reasons, Mapping) else {}
    dot = _at(environment, "cpu.int8_dot")
    return Machine(
        key=key,
        title=_title(environment),
        facts=_facts(environment, reasons),
        trials=len(records),
        int8_dot=dot if isinstance(dot, bool) else None,
    )


def _title(environment: Mapping[str, Any]) -> str:
    memory = _memory(environment)
    parts = [
        _server(environment),
        _at(environment, "cpu.model"),
        _cores(environment),
        f"{memory} memory" if memory else None,
        *_gpu_names(environment),
    ]
    return ", ".join(str(part) for part in parts if part) or "a machine that is not known"


def _facts(environment: Mapping[str, Any], reasons: Mapping[str, Any]) -> tuple[Fact, ...]:
    def fact(name: str, value: object, field: str) -> Fact:
        if value not in (None, "", ()):
            return Fact(name, str(value))
        below = (key for key in reasons if key == field or key.startswith(f"{field}."))
        given = reasons.get(next(below, field))
        return Fact(name, None, str(given or _UNKNOWN))

    virtual = _at(environment, "system.virtual_machine")
    facts = [
        fact("Server", _server(environment), "server"),
        fact("CPU", _at(environment, "cpu.model"), "cpu.model"),
        fact("Cores", _cores(environment), "cpu.physical_cores"),
        fact("Instructions", _features(environment), "cpu.features"),
        fact("INT8 dot product in hardware", _yes_no(_at(environment, "cpu.int8_dot")), "cpu.int8_dot"),
        fact("Caches", _caches(environment), "cpu.caches"),
        fact("Clock governor", _listed(_at(environment, "cpu.governors")), "cpu.governors"),
        fact("Turbo", _yes_no(_at(environment, "cpu.turbo"), "on", "off"), "cpu.turbo"),
        fact("Memory", _memory(environment), "memory.total_bytes"),
        fact("GPUs", _listed(_gpu_names(environment)), "gpus"),
        fact("System", _system(environment), "system"),
        fact("Python", _at(environment, "system.python"), "system.python"),
        fact("Virtual machine", _yes_no(virtual), "system.virtual_machine"),
        fact("Libraries", _libraries(environment), "libraries"),
    ]
    quota = _at(environment, "cgroup.cpu_quota_cores")
    if isinstance(quota, int | float):  # absent is the rule: no quota is set
        facts.insert(3, Fact("CPU quota", f"{significant(quota)} cores"))
    return tuple(facts)


def _at(environment: Mapping[str, Any], path: str) -> Any:
    value: Any = environment
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _server(environment: Mapping[str, Any]) -> str | None:
    names = [_at(environment, f"server.{field}") for field in ("sys_vendor", "product_name")]
    return " ".join(str(name) for name in names if name) or None


def _cores(environment: Mapping[str, Any]) -> str | None:
    physical, logical = _at(environment, "cpu.physical_cores"), _at(environment, "cpu.logical_cores")
    usable = environment.get("usable_cores")
    parts = []
    if isinstance(physical, int):
        parts.append(plural(physical, "core"))
    if isinstance(logical, int) and logical != physical:
        parts.append(plural(logical, "thread"))
    if isinstance(usable, int) and usable != logical:
        parts.append(f"{usable} usable")
    return " / ".join(parts) or None


def _features(environment: Mapping[str, Any]) -> str | None:
    return _listed(_at(environment, "cpu.features"))


def _caches(environment: Mapping[str, Any]) -> str | None:
    caches = _at(environment, "cpu.caches")
    texts = []
    for cache in caches if isinstance(caches, list | tuple) else ():
        if isinstance(cache, Mapping) and isinstance(cache.get("size_bytes"), int | float):
            letter = {"data": "d", "instruction": "i"}.get(str(cache.get("kind")), "")
            times = cache.get("instances")
            copies = f"{times} x " if isinstance(times, int) and times > 1 else ""
            texts.append(f"L{cache.get('level')}{letter} {copies}{bytes_text(cache['size_bytes'])}")
    return ", ".join(texts) or None


def _memory(environment: Mapping[str, Any]) -> str | None:
    total = _at(environment, "memory.total_bytes")
    return bytes_text(total) if isinstance(total, int | float) else None


def _gpus(environment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    gpus = environment.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list | tuple) else []


def _gpu_names(environment: Mapping[str, Any]) -> list[str]:
    names = [str(gpu.get("name") or "a GPU without a name") for gpu in _gpus(environment)]
    number = Counter(names)
    return [f"{number[name]} x {name}" if number[name] > 1 else name for name in number]


def _system(environment: Mapping[str, Any]) -> str | None:
    name = [_at(environment, f"system.{field}") for field in ("os_name", "os_version")]
    kernel = _at(environment, "system.kernel")
    parts = [" ".join(str(part) for part in name if part), f"kernel {kernel}" if kernel else ""]
    return ", ".join(part for part in parts if part) or None


def _libraries(environment: Mapping[str, Any]) -> str | None:
    libraries = environment.get("libraries")
    if not isinstance(libraries, Mapping):
        return None
    return ", ".join(f"{name} {version}" for name, version in libraries.items() if version) or None


def _yes_no(value: object, yes: str = "yes", no: str = "no") -> str | None:
    return {True: yes, False: no}[value] if isinstance(value, bool) else None


def _listed(values: object) -> str | None:
    return joined([str(value) for value in values]) if isinstance(values, list | tuple) and values else None

"""In what two machines' inventories differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["differences"]

# What differs between any two machines, or from minute to minute.
_OWN = frozenset({"machine_key", "missing", "uuid", "available_bytes", "pci_bus_id", "serial", "container"})


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Each differing fact as dotted name and the two values in words; identifiers are left out."""
    ours, theirs = dict(_facts("", first)), dict(_facts("", second))
    return [
        (name, ours.get(name, "nothing"), theirs.get(name, "nothing"))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    ]


def _facts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _OWN:
                yield from _facts(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        for position, inner in enumerate(value):
            yield from _facts(f"{name}[{position}]", inner)
    else:
        yield name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

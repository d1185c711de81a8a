"""``inferometer inventory``: what this machine is, as every record says it."""

from __future__ import annotations

from typing import Any

from inferometer.cli.console import print_json, print_line
from inferometer.cli.options import JsonOption
from inferometer.environment.inventory import inventory

NAME = "inventory"


def command(as_json: JsonOption = False) -> int:
    """Show what this machine is.

    As every record says it; what is not known comes with its reason.
    """
    facts = inventory().model_dump(mode="json")
    if as_json:
        print_json(facts)
        return 0
    missing = facts.pop("missing", {})
    for name, value in _flat({key: value for key, value in facts.items() if key not in missing}):
        shown = value if value is not None else f"not known: {missing.get(name, 'it was not told')}"
        print_line(f"{name:36} {shown}")
    for name in facts.keys() & missing.keys():
        print_line(f"{name:36} not known: {missing[name]}")
    return 0


def _flat(facts: dict[str, Any] | list[Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted names and values; a list of plain values is one line, of mappings one block each."""
    rows: list[tuple[str, Any]] = []
    items = (
        facts.items() if isinstance(facts, dict) else ((str(place), item) for place, item in enumerate(facts))
    )
    for name, value in items:
        nested = isinstance(value, dict) or (
            isinstance(value, list) and any(isinstance(one, dict) for one in value)
        )
        if nested:
            rows += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            rows.append((prefix + name, ", ".join(str(item) for item in value) or "none"))
        else:
            rows.append((prefix + name, value))
    return rows

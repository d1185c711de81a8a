"""What every declared meter could read on this machine, asked of the meter itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from inferometer import registry
from inferometer.contracts import MeterStatus
from inferometer.errors import ConfigError, MeterError, MissingExtra, nearest

__all__ = ["MeterFacts", "meter_facts"]


@dataclass(frozen=True)
class MeterFacts:
    """One declared meter: what it could read, or the ``reason`` why it cannot be used at all."""

    name: str
    subjects: tuple[MeterStatus, ...]
    reason: str | None = None

    @property
    def available(self) -> bool:
        """Whether it reads something here."""
        return any(one.reason is None for one in self.subjects)

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name,
            "available": self.available,
            "reason": self.reason,
            "subjects": [asdict(one) for one in self.subjects],
        }


def meter_facts(name: str | None = None, options: Mapping[str, Any] | None = None) -> tuple[MeterFacts, ...]:
    """All declared meters, or the one called ``name`` with its options.

    Raises:
        ConfigError: No meter is called so, or an option does not fit.
    """
    names = registry.meter_names()
    if name is not None and name not in names:
        raise ConfigError(f"unknown meter {name!r}{nearest(name, names)}")
    return tuple(_facts(one, options or {}) for one in names if name in (None, one))


def _facts(name: str, options: Mapping[str, Any]) -> MeterFacts:
    try:
        return MeterFacts(name, tuple(registry.meter(name).status(options)))
    except (MissingExtra, MeterError) as error:
        return MeterFacts(name, (), str(error))

"""What every declared engine can do on this machine, asked of the engine itself.

An engine may be anyone's plug-in: what one of them raises is its own reason here, and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar

from inferometer import registry
from inferometer.contracts import Device, Engine, Variant
from inferometer.errors import ConfigError, InferometerError, nearest

__all__ = ["DeviceFacts", "EngineFacts", "VariantFacts", "engine_facts"]

T = TypeVar("T")


@dataclass(frozen=True)
class DeviceFacts:
    """One device of an engine, used in one way.

    ``precisions`` holds None for each that runs, else why it does not; it is None, with a ``reason``, when
    the engine does not tell.
    """

    name: str
    description: str
    uuid: str | None
    precisions: Mapping[str, str | None] | None
    reason: str | None = None


@dataclass(frozen=True)
class VariantFacts:
    """One way to use an engine: the options that choose it, and its devices, or the ``reason`` for none."""

    options: Mapping[str, Any]
    version: str | None
    reason: str | None
    devices: tuple[DeviceFacts, ...]

    @property
    def available(self) -> bool:
        """Whether it runs on some device of this machine."""
        return self.reason is None and bool(self.devices)


@dataclass(frozen=True)
class EngineFacts:
    """One declared engine. ``reason`` is why it cannot be used at all; ``computes`` None: not known."""

    name: str
    version: str | None
    computes: bool | None
    reason: str | None
    variants: tuple[VariantFacts, ...]

    @property
    def available(self) -> bool:
        """Whether some way to use it is there."""
        return self.reason is None and any(variant.available for variant in self.variants)

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON; options of other kinds are told as text."""
        return {
            "name": self.name,
            "version": self.version,
            "computes": self.computes,
            "available": self.available,
            "reason": self.reason,
            "variants": [
                {
                    "options": {str(key): _plain(value) for key, value in variant.options.items()},
                    "version": variant.version,
                    "available": variant.available,
                    "reason": variant.reason,
                    "devices": [vars(device) for device in variant.devices],
                }
                for variant in self.variants
            ],
        }


def engine_facts(name: str | None = None) -> tuple[EngineFacts, ...]:
    """Ask every declared engine, or the one of that name.

    Raises:
        ConfigError: No engine of that name is declared; the message offers the nearest.
    """
    known = registry.engine_names()
    if name is not None and name not in known:
        raise ConfigError(f"unknown engine {name!r}{nearest(name, known)}")
    return tuple(_facts(one) for one in (known if name is None else [name]))


def _facts(name: str) -> EngineFacts:
    engine, why = _asked(lambda: registry.engine(name))
    if engine is None:
        return EngineFacts(name, None, None, why, ())
    version, _ = _asked(lambda: str(engine.version))
    computes, _ = _asked(lambda: bool(engine.computes))
    devices, why = _asked(lambda: [_checked(device) for device in engine.devices()])
    if devices is None:
        return EngineFacts(name, version, computes, why, ())
    variants, why = _asked(lambda: [_variant(engine, variant, devices) for variant in _variants(engine)])
    if variants is None:
        return EngineFacts(name, version, computes, why, ())
    return EngineFacts(name, version, computes, None, tuple(variants))


def _variants(engine: Engine) -> Sequence[Variant]:
    """As the engine tells; one that knows of none is used in one way."""
    return (engine.variants() if hasattr(engine, "variants") else None) or [Variant({})]


def _variant(engine: Engine, variant: Variant, devices: Sequence[Device]) -> VariantFacts:
    options, version = dict(variant.options), variant.version and str(variant.version)
    if variant.reason is not None:
        return VariantFacts(options, version, str(variant.reason), ())
    if not devices:
        told, _ = _asked(lambda: engine.precisions("", options).get("fp32"))
        return VariantFacts(options, version, told or "finds no device on this machine", ())
    return VariantFacts(options, version, None, tuple(_device(engine, one, options) for one in devices))


def _device(engine: Engine, device: Device, options: Mapping[str, Any]) -> DeviceFacts:
    def told() -> dict[str, str | None]:
        return {
            str(name): None if reason is None else str(reason)
            for name, reason in engine.precisions(device.name, options).items()
        }

    precisions, why = _asked(told)
    return DeviceFacts(device.name, device.description, device.uuid, precisions, why)


def _checked(device: Device) -> Device:
    """With plain texts, whatever the plug-in gave."""
    return Device(str(device.name), str(device.description), device.uuid and str(device.uuid))


def _asked(question: Callable[[], T]) -> tuple[T | None, str | None]:
    """The answer, or why there is none, in one line."""
    try:
        return question(), None
    except InferometerError as error:
        why = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a plug-in of anyone's may raise anything)
        why = f"the plug-in is broken: {type(error).__name__}: {error}"
    return None, " ".join(why.split()).rstrip(" :")


def _plain(value: object) -> object:
    plain = value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
    return value if plain else str(value)

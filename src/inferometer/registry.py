"""The one plug-in look-up: engines and meters are entry points, the built-in ones too.

A plug-in is declared in its distribution's metadata under the group ``inferometer.engines`` or
``inferometer.meters``; its module is imported only when it is asked for by name. The form of QDQ that an
engine wants is data: the group ``inferometer.qdq_schemes`` gives it where the engine's library is absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any, cast

from inferometer.contracts import Engine, Meter, QdqScheme
from inferometer.errors import ConfigError, MissingExtra, nearest

__all__ = ["engine", "engine_names", "meter", "meter_names", "qdq_scheme"]

ENGINES = "inferometer.engines"
METERS = "inferometer.meters"
SCHEMES = "inferometer.qdq_schemes"


def engine_names() -> list[str]:
    """Names of all declared engines, sorted, whether or not their libraries are installed."""
    return sorted({point.name for point in metadata.entry_points(group=ENGINES)})


def engine(name: str) -> Engine:
    """Load one engine by name.

    Raises:
        ConfigError: No engine of that name is declared; the message offers the nearest.
        MissingExtra: The engine's library is not installed; the message names the extra.
    """
    return cast(Engine, _plug_in(ENGINES, "engine", name)())


def meter_names() -> list[str]:
    """Names of all declared meters, sorted, whether or not they can be used here."""
    return sorted({point.name for point in metadata.entry_points(group=METERS)})


def meter(name: str) -> Meter:
    """Load one meter by name.

    Raises:
        ConfigError: No meter of that name is declared; the message offers the nearest.
        MissingExtra: A package that its module imports is not installed; the message names the extra.
    """
    return cast(Meter, _plug_in(METERS, "meter", name)())


def qdq_scheme(name: str, device: str | None, options: Mapping[str, Any]) -> QdqScheme | None:
    """The QDQ form that an engine wants, without its library where it is declared as data.

    Args:
        name: Of the engine.
        device: None for its usual one.
        options: The engine's own.

    Returns:
        None for an engine that takes the float model as it is.

    Raises:
        ConfigError: No engine of that name is declared; the message offers the nearest.
        MissingExtra: The engine's library is not installed, and its form is not declared as data.
    """
    points = {point.name: point for point in metadata.entry_points(group=SCHEMES)}
    if name in points and name in engine_names():
        return cast("QdqScheme | None", _load(points[name])(device or "cpu", options))
    found = engine(name)
    devices = found.devices()
    return found.qdq_scheme(device or (devices[0].name if devices else "cpu"), options)


def _plug_in(group: str, kind: str, name: str) -> Any:
    points = {point.name: point for point in metadata.entry_points(group=group)}
    if name not in points:
        raise ConfigError(f"unknown {kind} {name!r}{nearest(name, points)}")
    return _load(points[name], kind)


def _load(point: metadata.EntryPoint, kind: str = "engine") -> Any:
    try:
        return point.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing == "inferometer":
            raise
        raise MissingExtra(
            f"{kind} {point.name!r} needs the package {missing!r}: {_how_to_install(point, missing)}"
        ) from error


def _how_to_install(point: metadata.EntryPoint, module: str) -> str:
    """The extra of the plug-in's own distribution that brings ``module``, as a pip command."""
    distribution = point.dist
    for requirement in (distribution.requires or []) if distribution else []:
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
        package = re.match(r"[A-Za-z0-9._-]+", requirement)
        if extra and package and package[0].lower().replace("-", "_") == module.lower():
            return f"pip install '{distribution.name}[{extra[1]}]'" if distribution else ""
    # Some packages are not called as their module is: the extra may be called as the plug-in.
    extras = distribution.metadata.get_all("Provides-Extra", []) if distribution else []
    if distribution and point.name.replace("_", "-") in extras:
        return f"pip install '{distribution.name}[{point.name.replace('_', '-')}]'"
    return f"pip install {module}"

"""The one plug-in look-up: engines are entry points, the built-in ones too.

A plug-in is declared in its distribution's metadata under the group ``inferometer.engines``; its
module is imported only when it is asked for by name.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any, cast

from inferometer.contracts import Engine
from inferometer.errors import ConfigError, MissingExtra, nearest

__all__ = ["engine", "engine_names"]

ENGINES = "inferometer.engines"


def engine_names() -> list[str]:
    """Names of all declared engines, sorted, whether or not their libraries are installed."""
    return sorted({point.name for point in metadata.entry_points(group=ENGINES)})


def engine(name: str) -> Engine:
    """Load one engine by name.

    Raises:
        ConfigError: No engine of that name is declared; the message offers the nearest.
        MissingExtra: The engine's library is not installed; the message names the extra.
    """
    points = {point.name: point for point in metadata.entry_points(group=ENGINES)}
    if name not in points:
        raise ConfigError(f"unknown engine {name!r}{nearest(name, points)}")
    return cast(Engine, _load(points[name])())


def _load(point: metadata.EntryPoint) -> Any:
    try:
        return point.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing == "inferometer":
            raise
        raise MissingExtra(
            f"engine {point.name!r} needs the package {missing!r}: {_how_to_install(point, missing)}"
        ) from error


def _how_to_install(point: metadata.EntryPoint, module: str) -> str:
    """The extra of the plug-in's own distribution that brings ``module``, as a pip command."""
    distribution = point.dist
    for requirement in (distribution.requires or []) if distribution else []:
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
        package = re.match(r"[A-Za-z0-9._-]+", requirement)
        if extra and package and package[0].lower().replace("-", "_") == module.lower():
            return f"pip install '{distribution.name}[{extra[1]}]'" if distribution else ""
    return f"pip install {module}"

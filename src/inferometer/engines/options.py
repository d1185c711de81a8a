"""Checking the options of an engine: names, whole numbers, words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from inferometer.errors import EngineError, nearest

__all__ = ["MOST", "copied", "only", "whole", "word"]

MOST = 4096
"""Of threads, and of requests in flight."""


def only(engine: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse options that the engine does not know.

    Raises:
        EngineError: There is one; the message offers the nearest.
    """
    for key in sorted(options.keys() - set(known)):
        raise EngineError(f"{engine}: unknown option {key!r}{nearest(key, known)}")


def whole(engine: str, options: Mapping[str, Any], key: str, least: int = 1, most: int = MOST) -> int | None:
    """A whole number among the options; None when absent.

    Raises:
        EngineError: It is none from ``least`` to ``most``.
    """
    value = options.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise EngineError(f"{engine}: {key}: wants a whole number from {least} to {most}: {value!r}")
    return value


def word(engine: str, options: Mapping[str, Any], key: str, known: Collection[str]) -> str | None:
    """A word among the options; None when absent.

    Raises:
        EngineError: It is none of those known; the message offers the nearest.
    """
    value = options.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or value not in known:
        raise EngineError(f"{engine}: {key}: {value!r} is not known{nearest(str(value), known)}")
    return value


def copied(engine: str, options: Mapping[str, Any]) -> bool:
    """Whether transfers between host and device are part of a call: the option ``copies``, by default.

    Raises:
        EngineError: It is neither ``included`` nor ``excluded``.
    """
    return word(engine, options, "copies", ("included", "excluded")) != "excluded"

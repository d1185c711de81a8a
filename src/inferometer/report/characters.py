"""Which characters of a name may stand where: names come from files, and may hold any."""

from __future__ import annotations

import re
from typing import Any

import vl_convert

__all__ = ["allowed", "one_line", "page_bytes", "png", "unturned"]

_OTHER = "\N{REPLACEMENT CHARACTER}"
# Source: W3C, Extensible Markup Language (XML) 1.0, production 2 (Char).
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAKS = re.compile("[\t\n\v\f\r\x85\u2028\u2029]+")
# What turns the direction of the text around it: a sentence with such a name would read otherwise.
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
# Control characters, which terminals obey; what turns the direction of all that follows; lone surrogates.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def allowed(value: Any) -> Any:
    """``value`` with every text in it, however deep, free of characters that XML 1.0 has no place for."""
    return _without(_NOT_XML, value)


def unturned(value: Any) -> Any:
    """``value`` with every text in it, however deep, free of what turns the direction of other text."""
    return _without(_TURNS, value)


def one_line(text: str) -> str:
    """``text`` for a terminal: breaks become spaces, and whatever else it would obey is replaced."""
    return _UNSEEN.sub(_OTHER, _BREAKS.sub(" ", text))


def page_bytes(page: str) -> bytes:
    """A page as UTF-8, `allowed` and `unturned`; its records are ASCII, and stay as they are."""
    return str(unturned(allowed(page))).encode("utf-8")


def png(specification: dict[str, Any], scale: float) -> bytes:
    """Draw a Vega-Lite specification, with ``scale`` device pixels per chart pixel; returns a PNG file.

    It is drawn by way of SVG, whose reader ends the whole process at a character that XML does not allow.
    """
    return bytes(vl_convert.vegalite_to_png(allowed(specification), scale=scale))


def _without(unwanted: re.Pattern[str], value: Any) -> Any:
    if isinstance(value, str):
        return unwanted.sub(_OTHER, value)
    if isinstance(value, dict):
        return {_without(unwanted, key): _without(unwanted, inner) for key, inner in value.items()}
    return [_without(unwanted, inner) for inner in value] if isinstance(value, list | tuple) else value

"""The keys of a chart on a page: a button for each of its series, in place of the legend of a picture."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

__all__ = ["Key", "keys_of", "series_buttons", "without_legends"]

_MIDDLE_X, _MIDDLE_Y = 13, 7  # of a button's drawing, pixels
_SHAPES: Mapping[str, str] = {
    "circle": "M9 7a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
    "square": "M9 3h8v8h-8Z",
    "diamond": "M13 2l5 5l-5 5l-5 -5Z",
    "triangle-up": "M13 2l5 9h-10Z",
    "triangle-down": "M13 12l5 -9h-10Z",
}


@dataclass(frozen=True)
class Key:
    """One series: the ``field`` of a chart's rows that has its ``name``, and how its marks look.

    ``dash`` is that of its line, pixels on and off; None: it has no line.
    """

    field: str
    name: str
    colour: str | None = None
    shape: str | None = None
    dash: tuple[int, ...] | None = None


def keys_of(specification: Mapping[str, Any]) -> dict[str, tuple[Key, ...]]:
    """The series of a chart, by the field that tells them apart; a field with one value has none.

    Args:
        specification: A Vega-Lite specification whose colours and shapes name their domains.
    """
    found: dict[tuple[str, str], Key] = {}
    for layer in _layers(specification):
        encoding = layer["encoding"]
        for channel in ("color", "shape"):
            about = encoding.get(channel) or {}
            scale = about.get("scale") or {}
            if not {"domain", "range"} <= scale.keys() or "field" not in about:
                continue
            for name, value in zip(scale["domain"], scale["range"], strict=True):
                key = found.get((about["field"], name), Key(about["field"], name))
                look: dict[str, Any] = {"colour": value} if channel == "color" else {"shape": value}
                if channel == "color" and (dash := _dash(layer, specification, about["field"], name)):
                    look["dash"] = dash
                found[about["field"], name] = replace(key, **look)
    fields = dict.fromkeys(field for field, _ in found)
    groups = {field: tuple(key for key in found.values() if key.field == field) for field in fields}
    return {field: keys for field, keys in groups.items() if len(keys) > 1}


def without_legends(specification: dict[str, Any]) -> dict[str, Any]:
    """The same without the legends of the series that have buttons."""
    keyed = keys_of(specification).keys()
    own = copy.deepcopy(specification)
    for layer in _layers(own):
        encoding = layer["encoding"]
        for channel in ("color", "shape", "stroke"):
            if encoding.get(channel, {}).get("field") in keyed:
                encoding[channel]["legend"] = None
    return own


def series_buttons(specification: Mapping[str, Any], of: str) -> str:
    """The buttons that show and hide the series of a chart; empty where there is but one.

    Args:
        specification: The chart's, with colours as the page writes them.
        of: The chart's title, for readers of the page aloud.
    """
    groups = keys_of(specification).items()
    return "".join(
        f"<div class='keys' role='group' aria-label='{escape(f'Series of {of}, by {field}')}'>"
        f"{''.join(map(_button, keys))}</div>"
        for field, keys in groups
    )


def _button(key: Key) -> str:
    return (
        f"<button type='button' aria-pressed='true' data-field='{escape(key.field)}'"
        f" data-name='{escape(key.name)}'>{_drawing(key)}{escape(key.name)}</button>"
    )


def _drawing(key: Key) -> str:
    """Line and mark as the chart has them; a square where it has neither."""
    colour = escape(key.colour or "var(--quiet)")
    parts = []
    if key.dash is not None:
        dashes = "" if key.dash == (1, 0) else f" stroke-dasharray='{' '.join(map(str, key.dash))}'"
        parts.append(f"<path d='M0 {_MIDDLE_Y}h{2 * _MIDDLE_X}' stroke='{colour}' stroke-width='2'{dashes}/>")
    if key.shape is not None or key.dash is None:
        parts.append(f"<path d='{_SHAPES[key.shape or 'square']}' fill='{colour}'/>")
    size = f"width='{2 * _MIDDLE_X}' height='{2 * _MIDDLE_Y}'"
    return f"<svg {size} aria-hidden='true'>{''.join(parts)}</svg>"


def _dash(
    layer: Mapping[str, Any], specification: Mapping[str, Any], field: str, name: str
) -> tuple[int, ...] | None:
    """The dash of a layer that is the line of this series alone."""
    mark, data = layer.get("mark"), layer.get("data", {}).get("name")
    if not isinstance(mark, Mapping) or mark.get("type") != "line" or "strokeDash" not in mark:
        return None
    rows = specification["datasets"].get(data, ())
    return tuple(mark["strokeDash"]) if {row.get(field) for row in rows} == {name} else None


def _layers(value: Any) -> Iterator[dict[str, Any]]:
    """Everything in a specification that has encodings."""
    if isinstance(value, list):
        for inner in value:
            yield from _layers(inner)
    elif isinstance(value, dict):
        if isinstance(value.get("encoding"), dict):
            yield value
        yield from _layers([inner for key, inner in value.items() if key != "datasets"])

"""Colours and type of charts and page: chosen once, light and dark, safe for colour-blind readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "DARK",
    "DASHES",
    "LIGHT",
    "PRECISION_COLOURS",
    "SHAPES",
    "chart_config",
    "css_variables",
    "with_variables",
]

# Okabe and Ito, "Color Universal Design" (2008); tf32 is their sky blue, darker, since that is too faint on
# white. A test holds all of them apart as eyes without red or green cones see them.
PRECISION_COLOURS: Mapping[str, str] = {
    "fp32": "#0072b2",
    "tf32": "#3c9cd9",
    "fp16": "#009e73",
    "bf16": "#cc79a7",
    "int8": "#d55e00",
}
"""One colour per precision, the same in every chart."""

SHAPES: Mapping[str, str] = {
    "fp32": "circle",
    "tf32": "diamond",
    "fp16": "triangle-up",
    "bf16": "triangle-down",
    "int8": "square",
}
"""One shape per precision: colour alone never tells two apart."""

DASHES: Mapping[str, list[int]] = {
    "fp32": [1, 0],
    "tf32": [6, 2],
    "fp16": [4, 2],
    "bf16": [2, 2],
    "int8": [8, 3],
}
"""One line style per precision, pixels on and off."""

LIGHT: Mapping[str, str] = {
    "ground": "#ffffff",
    "panel": "#f7f6f3",
    "ink": "#1b1c1e",
    "quiet": "#5c6066",
    "rule": "#dcdad4",
    "accent": "#0a5c8f",
    "good": "#00694d",
    "bad": "#a83f00",
    "reorder": "#5a31c9",
    "convert": "#5a3a00",
    "unknown": "#78743a",
    **PRECISION_COLOURS,
}
"""Every colour of charts and page by name, on white."""

DARK: Mapping[str, str] = {
    "ground": "#15171a",
    "panel": "#1d2024",
    "ink": "#e9e7e2",
    "quiet": "#a3a7ad",
    "rule": "#363a40",
    "accent": "#7cc3ee",
    "good": "#4fd1a5",
    "bad": "#ff9a5c",
    "reorder": "#8e5cff",
    "convert": "#f0e27a",
    "unknown": "#78643a",
    "fp32": "#5aaee0",
    "tf32": "#b9e2fb",
    "fp16": "#2fc79a",
    "bf16": "#d65cb0",
    "int8": "#f58a3c",
}
"""The same on a dark page."""

_FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"


def chart_config() -> dict[str, Any]:
    """The Vega-Lite configuration of every chart, in the light colours."""
    ink, quiet, rule = LIGHT["ink"], LIGHT["quiet"], LIGHT["rule"]
    return {
        "background": "transparent",
        "aria": False,  # the page names each chart and points to its table
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": quiet,
            "titleColor": quiet,
            "domainColor": rule,
            "tickColor": rule,
            "gridColor": rule,
            "gridOpacity": 0.7,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "tickSize": 4,
            "labelPadding": 4,
        },
        "axisX": {"labelFlush": False},
        "axisY": {"domain": False, "ticks": False, "minExtent": 38},  # so that panels line up
        "title": {
            "color": ink,
            "fontSize": 13,
            "fontWeight": "bold",
            "anchor": "start",
            "frame": "group",
            "offset": 10,
            "limit": 300,
        },
        "legend": {
            "orient": "top",
            "direction": "horizontal",
            "title": None,
            "labelColor": ink,
            "labelFontSize": 12,
            "symbolSize": 70,
            "symbolStrokeWidth": 2,
            "offset": 12,
            "columnPadding": 18,
        },
        "concat": {"spacing": 22},
        "text": {"color": quiet},
    }


def css_variables() -> tuple[str, str]:
    """The light and the dark colours as CSS declarations: ``--ink: #1b1c1e; ...``."""
    light, dark = (
        " ".join(f"--{name}: {value};" for name, value in colours.items()) for colours in (LIGHT, DARK)
    )
    return light, dark


def with_variables(specification: dict[str, Any]) -> dict[str, Any]:
    """A chart's specification with each colour as the CSS variable of that colour.

    The page's charts so follow the reader's light or dark setting, and print light, without being drawn anew.
    """
    names = {value: f"var(--{name})" for name, value in LIGHT.items()}

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: inner if _is_text(key, inner) else replaced(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [replaced(inner) for inner in value]
        return names.get(value, value) if isinstance(value, str) else value

    return {key: inner if _is_text(key, inner) else replaced(inner) for key, inner in specification.items()}


def _is_text(key: str, value: Any) -> bool:
    """Titles and data: a model may be called like a colour."""
    return key == "datasets" or (key == "title" and isinstance(value, str))

"""Versions of the libraries that results depend on. Source: the installed distributions' metadata."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

from inferometer.environment.facts import Reasons

__all__ = ["library_versions"]

_ALWAYS = (
    "inferometer",
    "numpy",
    "onnx",
    "onnxruntime",
    "openvino",
    "pillow",
    "tensorrt",
    "tensorrt-rtx",
    "torch",
)
# Distributions that bring the same module as a name above, listed only when they are installed.
_ALTERNATIVES = {
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-rocm"),
    "tensorrt": ("tensorrt-cu12", "tensorrt-cu13"),
    "tensorrt-rtx": (
        "tensorrt-rtx-cu12",
        "tensorrt-rtx-cu13",
        "tensorrt-rtx-cu12-bindings",
        "tensorrt-rtx-cu13-bindings",
    ),
}


def library_versions() -> tuple[dict[str, str | None], Reasons]:
    """Versions by distribution name, nothing being imported.

    Returns:
        The versions (``None``: not installed under that name), and the reason for each ``None``.
    """
    found: dict[str, str | None] = {name: _version(name) for name in _ALWAYS}
    reasons: Reasons = {}
    for name in _ALWAYS:
        others = {other: version for other in _ALTERNATIVES.get(name, ()) if (version := _version(other))}
        found |= others
        if found[name] is None:
            reasons[name] = f"not installed, but {', '.join(others)} is" if others else "not installed"
    return found | _plug_ins(), reasons


def _plug_ins() -> dict[str, str]:
    """onnxruntime's providers in packages of their own, by the names of their folders of metadata."""
    folders = [
        folder for place in sys.path for folder in Path(place or ".").glob("onnxruntime_ep_*.dist-info")
    ]
    names = [folder.name.removesuffix(".dist-info").split("-", 1) for folder in folders]
    return {name.replace("_", "-"): version for name, version in sorted(names)}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

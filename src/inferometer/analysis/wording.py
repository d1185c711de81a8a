"""Numbers and names as people read them: the one place where raw values become text.

Percent and milliseconds appear here alone; every function takes SI units and fractions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

__all__ = [
    "bytes_text",
    "compared",
    "count",
    "joined",
    "large",
    "milliseconds",
    "model_names",
    "p_value",
    "percent",
    "plural",
    "points",
    "range_text",
    "rate",
    "ratio",
    "ratio_range",
    "setting",
    "significant",
]

_FAMILIES = {
    "alexnet": "AlexNet",
    "googlenet": "GoogLeNet",
    "vgg16": "VGG-16",
    "vgg19": "VGG-19",
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "resnet152": "ResNet-152",
}


def significant(value: float, digits: int = 3) -> str:
    """``value`` with so many significant digits, never rounding away whole units: 1,234, 46.3, 0.0123."""
    return f"{value:,.{_decimals(value, digits)}f}"


def rate(images_per_s: float) -> str:
    """Images/s without the unit."""
    return significant(images_per_s)


def range_text(lo: float, hi: float, like: float, scale: float = 1.0) -> str:
    """``lo to hi``, times ``scale``, with as many decimals as ``like`` times ``scale`` gets."""
    decimals = _decimals(like * scale, 3)
    return f"{lo * scale:,.{decimals}f} to {hi * scale:,.{decimals}f}"


def ratio(value: float) -> str:
    """A factor: ``2.13×``."""
    return f"{value:.2f}×" if value < 100 else f"{value:,.0f}×"


def ratio_range(lo: float, hi: float) -> str:
    """The interval of a factor: ``2.05 to 2.21``."""
    return " to ".join(f"{value:.2f}" if value < 100 else f"{value:,.0f}" for value in (lo, hi))


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds, without the unit."""
    return significant(seconds * 1e3)


def percent(fraction: float, decimals: int = 1) -> str:
    """A fraction as percent: ``97.4 %``."""
    return f"{fraction * 100:z.{decimals}f} %"


def points(fraction: float, decimals: int = 2) -> str:
    """A difference of two fractions in percentage points, signed: ``-0.31``; a true minus sign."""
    text = f"{fraction * 100:+.{decimals}f}"
    return f"{0:.{decimals}f}" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def p_value(p: float) -> str:
    """``0.03``, ``0.004``, ``under 0.001``."""
    if p < 0.001:
        return "under 0.001"
    return f"{p:.3f}" if p < 0.01 else f"{p:.2f}"


def bytes_text(size: float) -> str:
    """Bytes in binary units: ``23.5 GiB``, ``32 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if size == int(size) else f"{significant(size)} {unit}"
        size /= 1024
    return f"{significant(size)} TiB"


def large(number: float) -> str:
    """A count in thousands, millions or (US) billions: ``25.6 M``, ``4.09 G``."""
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{significant(number / factor)} {letter}"
    return f"{number:,.0f}"


def count(number: int) -> str:
    """A whole number with its thousands apart."""
    return f"{number:,}"


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """``1 repeat``, ``3 repeats``."""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


def joined(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def setting(name: str, value: str) -> str:
    """One setting that tells rows apart: ``copies excluded``, ``images as input``."""
    if name == "input":
        return {"images": "images as input", "synthetic": "synthetic input"}.get(value, f"input {value}")
    return f"{name} {value}"


def compared(model: str, precision: str, base: str, base_precision: str) -> str:
    """``net INT8 against FP32``, or with the other model's name where it is another."""
    other = base_precision.upper() if base == model else f"{base} {base_precision.upper()}"
    return f"{model} {precision.upper()} against {other}"


def model_names(models: Iterable[str]) -> dict[str, str]:
    """A short name for each: the built-in networks' own spelling, and a path's last part where unique."""
    known = list(dict.fromkeys(models))
    stems = [model.rsplit("/", 1)[-1] for model in known]
    return {
        model: _FAMILIES.get(model, stem if stem and stems.count(stem) == 1 else model)
        for model, stem in zip(known, stems, strict=True)
    }


def _decimals(value: float, digits: int) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    # Rounding first, since 9.996 becomes 10.0 at three digits.
    rounded = float(f"{value:.{digits - 1}e}")
    return max(0, digits - 1 - math.floor(math.log10(abs(rounded))))

"""Does a ratio agree with what the accelerators' specifications let expect?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inferometer.analysis.comparison.points import Source
from inferometer.analysis.comparison.ratios import RatioRow

__all__ = ["agreement", "expected_per_watt"]

ROUNDING = 0.02
"""A ratio so far beyond the specifications still agrees (a fraction): both are rounded. Source: chosen."""

_PEAKS: Mapping[str, tuple[str, str]] = {
    "int8": ("int8_tops", "INT8 peak"),
    "fp32": ("fp32_tflops", "FP32 peak"),
}
_BANDWIDTH = "memory_bandwidth_gb_s"


def agreement(row: RatioRow, sources: Sequence[Source]) -> str | None:
    """In words; None where no published study gives the specifications of both devices.

    A rate is bound by arithmetic or by memory: a ratio between those of the peak and of the bandwidth, with
    as many devices as each side had, is what the specifications let expect.
    """
    if row.own.metric != "images_per_s" or row.ratio is None or row.per == "price":
        return None
    own, base = _specified(row.own.device, sources), _specified(row.base.device, sources)
    counts = (row.own.count or 1) / (row.base.count or 1)
    named = [_PEAKS[row.own.precision]] if row.own.precision in _PEAKS else []
    known: dict[str, float] = {}
    for key, words in (*named, (_BANDWIDTH, "memory bandwidth")):
        ours, theirs = own.get(key), base.get(key)
        if isinstance(ours, int | float) and isinstance(theirs, int | float) and theirs > 0:
            known[words] = ours / theirs * counts
    if own is base or not known or row.own.device == row.base.device:
        return None
    if len(known) == 1:
        words, value = next(iter(known.items()))
        return f"of {words} alone the specifications give {value:.2f}"
    listed = " and ".join(f"of {words} ({value:.2f})" for words, value in known.items())
    low, high = min(known.values()), max(known.values())
    if row.ratio < low * (1 - ROUNDING):
        return f"that is less than the specifications let expect, by the ratio {listed}"
    if row.ratio > high * (1 + ROUNDING):
        return f"that is more than the specifications let expect, by the ratio {listed}"
    return f"that agrees with the specifications, by the ratio {listed}"


def expected_per_watt(row: RatioRow, sources: Sequence[Source]) -> str | None:
    """The ratio of peak over TDP in words; None where the specifications of both do not give it."""
    if row.own.precision not in _PEAKS:
        return None
    key, words = _PEAKS[row.own.precision]
    ratios = []
    for device in (row.own.device, row.base.device):
        known = _specified(device, sources)
        peak, tdp = known.get(key), known.get("tdp_w")
        if not isinstance(peak, int | float) or not isinstance(tdp, int | float) or peak <= 0 or tdp <= 0:
            return None
        ratios.append(peak / tdp)
    return f"of {words} over TDP the specifications give {ratios[0] / ratios[1]:.2f}"


def _specified(device: str, sources: Sequence[Source]) -> Mapping[str, float | int | str | None]:
    """The first study's that gives any; a store's device name is no accelerator of a study."""
    for source in sources:
        if source.study is not None and device in source.study.accelerators:
            return source.study.accelerators[device]
    return {}

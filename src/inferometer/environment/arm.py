"""Names of Arm processors, which /proc/cpuinfo gives as numbers only.

Source: arch/arm64/include/asm/cputype.h of Linux (implementer and part fields of MIDR_EL1).
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["arm_model", "arm_vendor"]

_IMPLEMENTERS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x61: "Apple",
    0xC0: "Ampere",
}
_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x43, 0x0AF): "ThunderX2",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "Kunpeng-920",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1A",
}


def arm_vendor(entry: Mapping[str, str]) -> str | None:
    """The implementer of one /proc/cpuinfo entry; ``None`` when the entry has no implementer."""
    number = _number(entry.get("CPU implementer"))
    return None if number is None else _IMPLEMENTERS.get(number, f"implementer {number:#x}")


def arm_model(entry: Mapping[str, str]) -> str | None:
    """The core of one /proc/cpuinfo entry, such as ``Neoverse-N1`` or, unlisted, ``ARM part 0xd99``."""
    part = _number(entry.get("CPU part"))
    implementer = _number(entry.get("CPU implementer"))
    if part is None or implementer is None:
        return None
    return _PARTS.get((implementer, part), f"{arm_vendor(entry)} part {part:#x}")


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None

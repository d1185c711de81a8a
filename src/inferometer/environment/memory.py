"""Main memory. Source: /proc/meminfo (proc(5); its ``kB`` are 1024 bytes) and /sys/kernel/mm."""

from __future__ import annotations

import re
from pathlib import Path

from inferometer.environment.facts import ROOT, Absent, Facts, Reasons, gather, read_text

__all__ = ["MemoryFacts", "memory_facts"]

_THP = "sys/kernel/mm/transparent_hugepage/enabled"


class MemoryFacts(Facts):
    """Main memory; a field is ``None`` where the machine does not say.

    Attributes:
        total_bytes: Memory that the kernel manages.
        available_bytes: What new work can take without swapping, at this moment.
        swap_total_bytes: Swap space.
        huge_page_bytes: Size of one huge page of the pool.
        huge_pages_total: Pages in the pool.
        huge_pages_free: Pages of the pool not in use.
        transparent_huge_pages: ``always``, ``madvise`` or ``never``.
    """

    total_bytes: int | None
    available_bytes: int | None
    swap_total_bytes: int | None
    huge_page_bytes: int | None
    huge_pages_total: int | None
    huge_pages_free: int | None
    transparent_huge_pages: str | None


def memory_facts(root: Path = ROOT) -> tuple[MemoryFacts, Reasons]:
    """Read the memory's facts below ``root``; the reasons tell why a fact is ``None``."""
    table = read_text(root, "proc/meminfo")
    return gather(
        MemoryFacts,
        {
            "total_bytes": _row(table, "MemTotal"),
            "available_bytes": _row(table, "MemAvailable"),
            "swap_total_bytes": _row(table, "SwapTotal"),
            "huge_page_bytes": _row(table, "Hugepagesize"),
            "huge_pages_total": _row(table, "HugePages_Total"),
            "huge_pages_free": _row(table, "HugePages_Free"),
            "transparent_huge_pages": _transparent(root),
        },
    )


def _row(table: str | Absent, name: str) -> int | Absent:
    """One row: bytes when it is given in kB, otherwise its plain count."""
    if isinstance(table, Absent):
        return table
    found = re.search(rf"^{name}:\s+(\d+)( kB)?\s*$", table, re.MULTILINE)
    if not found:
        return Absent(f"/proc/meminfo has no row {name!r}")
    return int(found[1]) * (1024 if found[2] else 1)


def _transparent(root: Path) -> str | Absent:
    text = read_text(root, _THP)
    if isinstance(text, Absent):
        return text
    chosen = re.search(r"\[(\w+)\]", text)
    return chosen[1] if chosen else Absent(f"/{_THP} marks no choice")

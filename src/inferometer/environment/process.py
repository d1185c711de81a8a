"""This process: its largest resident size since a chosen moment, and giving freed memory back; and what tells
any process from all others."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from inferometer.environment.facts import ROOT, Absent, read_text

__all__ = ["peak_resident_bytes", "process_start", "release_memory", "start_peak"]

_RESET_PEAK = "5"  # Source: Linux's proc(5), /proc/[pid]/clear_refs: resets the peak resident set size


def start_peak(root: Path = ROOT) -> Absent | None:
    """Make ``peak_resident_bytes`` count from now on; ``Absent`` with the reason where that cannot be."""
    path = root / "proc/self/clear_refs"
    try:
        path.write_text(_RESET_PEAK)
    except OSError as error:
        return Absent(f"/proc/self/clear_refs cannot be written: {error.strerror}")
    return None


def peak_resident_bytes(root: Path = ROOT) -> int | Absent:
    """The largest resident size of this process since ``start_peak``, bytes.

    Source: Linux's proc(5), /proc/[pid]/status, VmHWM, in KiB.
    """
    text = read_text(root, "proc/self/status")
    if isinstance(text, Absent):
        return text
    found = re.search(r"^VmHWM:\s*(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else Absent("/proc/self/status has no line VmHWM")


def process_start(pid: int, root: Path = ROOT) -> str | None:
    """When a process started, to tell it from a later one of the same number; None: there is none.

    It names the boot and counts clock ticks from it: the time of day would change whenever the clock is set.

    Source: Linux's proc(5), /proc/[pid]/stat, field 22 (starttime); random(4), boot_id.
    """
    stat, boot = read_text(root, f"proc/{pid}/stat"), read_text(root, "proc/sys/kernel/random/boot_id")
    if isinstance(stat, Absent):
        return None
    fields = stat.rpartition(")")[2].split()  # from field 3 on: the name before them may hold anything
    return f"{'' if isinstance(boot, Absent) else boot} {fields[19]}"


def release_memory() -> None:
    """Give freed memory back to the system, where the C library keeps it: a parsed model's can be gigabytes.

    Source: glibc's malloc_trim(3); elsewhere nothing happens.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

"""This process: its largest resident size since a chosen moment, and giving freed memory back."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from inferometer.environment.facts import ROOT, Absent, read_text

__all__ = ["peak_resident_bytes", "release_memory", "start_peak"]

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


def release_memory() -> None:
    """Give freed memory back to the system, where the C library keeps it: a parsed model's can be gigabytes.

    Source: glibc's malloc_trim(3); elsewhere nothing happens.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

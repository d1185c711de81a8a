"""The memory figures of one trial."""

from __future__ import annotations

from inferometer.environment.facts import Absent
from inferometer.environment.process import peak_resident_bytes, start_peak
from inferometer.records import Memory

__all__ = ["PeakMemory"]


class PeakMemory:
    """Counts the largest resident size of the worker from its making to ``taken``."""

    def __init__(self) -> None:
        """Start counting."""
        self._failed = start_peak()

    def taken(self) -> tuple[Memory, dict[str, str]]:
        """The figures so far, and the reasons for absent ones."""
        found = self._failed or peak_resident_bytes()
        missing = {"memory.device_peak_bytes": "the device is the host"}
        if isinstance(found, Absent):
            missing["memory.host_peak_bytes"] = found.reason
        host = None if isinstance(found, Absent) else found
        return Memory(device_peak_bytes=None, host_peak_bytes=host), missing

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

    def taken(self, device: str, on_device: int | None) -> tuple[Memory, dict[str, str]]:
        """The figures so far, and the reasons for absent ones.

        Args:
            device: Where the session runs.
            on_device: Bytes, as the session tells.
        """
        found = self._failed or peak_resident_bytes()
        missing: dict[str, str] = {}
        if on_device is None:
            missing["memory.device_peak_bytes"] = (
                "the device is the host" if device == "cpu" else "the engine does not tell"
            )
        if isinstance(found, Absent):
            missing["memory.host_peak_bytes"] = found.reason
        host = None if isinstance(found, Absent) else found
        return Memory(device_peak_bytes=on_device, host_peak_bytes=host), missing

"""Why a GPU's clock is held back: the bits of NVML's clock event reasons, in plain words.

Data alone, so that records are read without the vendor's library.

Source: nvmlClocksEventReasons of nvml.h (nvmlClocksThrottleReasons before driver 535).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["APPLICATION_CLOCKS", "CLOCK_EVENTS", "IDLE", "POWER_CAP", "SLOWING", "named"]

IDLE = 0x1
"""Nothing runs on the GPU."""

APPLICATION_CLOCKS = 0x2
"""The clock is held where a user set it."""

POWER_CAP = 0x4
"""The GPU draws what its power limit allows: usual under full load, and no fault."""

_HARDWARE = 0x8
_SOFTWARE_THERMAL = 0x20
_HARDWARE_THERMAL = 0x40
_POWER_BRAKE = 0x80

SLOWING = _HARDWARE | _SOFTWARE_THERMAL | _HARDWARE_THERMAL | _POWER_BRAKE
"""The reasons that mean heat or hardware: figures measured under one are not those of the GPU at its best."""

CLOCK_EVENTS: Mapping[int, str] = MappingProxyType(
    {
        IDLE: "idle",
        APPLICATION_CLOCKS: "clock set by a user",
        POWER_CAP: "power limit reached",
        _HARDWARE: "slowed by hardware (heat, power brake or too much current)",
        0x10: "held to the clock of other GPUs (sync boost)",
        _SOFTWARE_THERMAL: "slowed by the driver for heat",
        _HARDWARE_THERMAL: "slowed by hardware for heat",
        _POWER_BRAKE: "slowed by the power brake (server or power supply)",
        0x100: "clock set for the display",
    }
)
"""Bit to plain words, lowest bit first."""


def named(bits: int) -> tuple[str, ...]:
    """The reasons that are set, lowest bit first.

    Args:
        bits: As NVML answers them; 0 for a clock that nothing holds back.

    Returns:
        Words of `CLOCK_EVENTS`; a bit that is not known there is named by its value.

    Raises:
        ValueError: ``bits`` is negative.
    """
    if bits < 0:
        raise ValueError(f"clock event reasons are not negative: {bits}")
    return tuple(
        CLOCK_EVENTS.get(1 << place, f"unknown reason {1 << place:#x}")
        for place in range(bits.bit_length())
        if bits >> place & 1
    )

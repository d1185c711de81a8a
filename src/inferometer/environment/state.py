"""What changes from moment to moment and bears on a measurement: clocks, heat, throttling, load.

Source: /sys/devices/system/cpu, /sys/class/hwmon and /sys/class/thermal (millidegrees), proc_loadavg(5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from inferometer.environment.cgroup import cpu_throttling
from inferometer.environment.cpu import cpu_entries
from inferometer.environment.facts import ROOT, Absent, Account, read_int, read_text, split
from inferometer.environment.load import CpuClock, cpu_clock
from inferometer.environment.memory import memory_facts

__all__ = ["State", "state"]

_CPU = "sys/devices/system/cpu"
# Sensor names of processors' own drivers; Source: Documentation/hwmon of Linux.
_CPU_SENSORS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal"})


class State(Account):
    """The machine at one moment; read before and after each trial.

    Attributes:
        frequency_mean_hz: Mean clock of the processors now.
        frequency_lowest_hz: Slowest processor.
        frequency_highest_hz: Fastest processor.
        cpu_temperature_c: Hottest processor sensor, degrees Celsius.
        core_throttles: Times that cores were slowed by heat, summed over processors, since start-up.
        package_throttles: The same for whole packages.
        cgroup_throttled_s: Time that the CPU quota held this control group back so far.
        cgroup_throttled_periods: Quota periods in which it did.
        load_1m: Load average over one minute (tasks running or in disk wait, Inferometer's own included).
        load_5m: Over five minutes.
        load_15m: Over fifteen minutes.
        memory_available_bytes: What new work can take without swapping.
        clock: Processor time used so far, for `load_between`.
        missing: Field to the reason why it is ``None``.
    """

    frequency_mean_hz: float | None
    frequency_lowest_hz: float | None
    frequency_highest_hz: float | None
    cpu_temperature_c: float | None
    core_throttles: int | None
    package_throttles: int | None
    cgroup_throttled_s: float | None
    cgroup_throttled_periods: int | None
    load_1m: float | None
    load_5m: float | None
    load_15m: float | None
    memory_available_bytes: int | None
    clock: CpuClock


def state(root: Path = ROOT) -> State:
    """Read the machine's state.

    Args:
        root: The file system that holds proc/ and sys/; processor time is always the running machine's.

    Returns:
        The state, each absent reading with its reason. It takes milliseconds and waits for nothing.
    """
    memory, memory_missing = memory_facts(root)
    values, missing = split(
        {
            **_spread(_clocks_hz(root), ("frequency_mean_hz", "frequency_lowest_hz", "frequency_highest_hz")),
            "cpu_temperature_c": _temperature_c(root),
            "core_throttles": _counter(root, "core_throttle_count", per_package=False),
            "package_throttles": _counter(root, "package_throttle_count", per_package=True),
            **_spread(cpu_throttling(root), ("cgroup_throttled_s", "cgroup_throttled_periods")),
            **_spread(_loads(root), ("load_1m", "load_5m", "load_15m")),
        }
    )
    if memory.available_bytes is None:
        missing["memory_available_bytes"] = memory_missing["available_bytes"]
    values["memory_available_bytes"] = memory.available_bytes
    return State.model_validate({**values, "clock": cpu_clock(), "missing": missing})


def _spread(readings: Sequence[float] | Absent, names: tuple[str, ...]) -> dict[str, float | Absent]:
    """Several fields that come from one source, and are absent together."""
    if isinstance(readings, Absent):
        return dict.fromkeys(names, readings)
    return dict(zip(names, readings, strict=True))


def _clocks_hz(root: Path) -> tuple[float, float, float] | Absent:
    """Mean, lowest and highest clock now: the driver's readings (kHz), else /proc/cpuinfo's (MHz)."""
    paths = (root / _CPU / "cpufreq").glob("policy[0-9]*/scaling_cur_freq")
    read = (read_int(root, path.relative_to(root).as_posix(), 1000) for path in paths)
    found = [float(hz) for hz in read if isinstance(hz, int)]
    if not found:
        entries = cpu_entries(root)
        shown = [] if isinstance(entries, Absent) else [entry.get("cpu MHz", "") for entry in entries]
        found = [float(mhz) * 1e6 for mhz in shown if re.fullmatch(r"\d+(\.\d+)?", mhz)]
    if not found:
        return Absent("neither cpufreq nor /proc/cpuinfo tells the clock")
    return fmean(found), min(found), max(found)


def _temperature_c(root: Path) -> float | Absent:
    sensors = [
        path
        for name in (root / "sys/class/hwmon").glob("hwmon[0-9]*/name")
        if read_text(root, name.relative_to(root).as_posix()) in _CPU_SENSORS
        for path in name.parent.glob("temp[0-9]*_input")
    ]
    if not sensors:
        sensors = [
            kind.parent / "temp"
            for kind in (root / "sys/class/thermal").glob("thermal_zone[0-9]*/type")
            if re.match(r"x86_pkg_temp|cpu", str(read_text(root, kind.relative_to(root).as_posix())))
        ]
    read = (read_int(root, path.relative_to(root).as_posix()) for path in sensors)
    millidegrees = [value for value in read if isinstance(value, int)]
    return max(millidegrees) / 1000 if millidegrees else Absent("no processor sensor is visible here")


def _counter(root: Path, name: str, *, per_package: bool) -> int | Absent:
    """Sum of a counter; one that every processor of a package repeats counts once per package."""
    groups: dict[str, int] = {}
    for path in (root / _CPU).glob(f"cpu[0-9]*/thermal_throttle/{name}"):
        cpu = path.parent.parent.relative_to(root).as_posix()
        count = read_int(root, f"{cpu}/thermal_throttle/{name}")
        package = read_text(root, f"{cpu}/topology/physical_package_id")
        if isinstance(count, int):
            key = str(package) if per_package else cpu
            groups[key] = max(groups.get(key, 0), count)
    return sum(groups.values()) if groups else Absent(f"/{_CPU}/cpu*/thermal_throttle/{name} is not there")


def _loads(root: Path) -> tuple[float, float, float] | Absent:
    text = read_text(root, "proc/loadavg")
    if isinstance(text, Absent):
        return text
    try:
        first, second, third = (float(word) for word in text.split()[:3])
    except ValueError:
        return Absent("/proc/loadavg does not hold three numbers")
    return first, second, third

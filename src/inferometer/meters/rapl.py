"""Energy counters of Intel and AMD processors, through Linux's powercap tree (RAPL).

A zone is told by what its file ``name`` says, never by its number (which is hexadecimal, and changes):

- ``package-N`` is a socket. Where the kernel sees several dies in one, each has a zone ``package-N-die-M``.
  On AMD and Hygon the counter is the socket's, and all dies repeat it (Zen 1; on Linux 6.10 and 6.11 also
  where the core complexes are taken for dies): one is read. On Intel (Cascade Lake AP) each die counts for
  itself: all are read, unless their counters turn out to be the same.
- ``dram`` is the memory of the package above it. ``psys`` is the platform, packages included.
- ``core`` and ``uncore`` are inside package, and the zones ``intel-rapl-mmio`` repeat it: neither is read.

Source: Documentation/power/powercap/powercap.rst and drivers/powercap/intel_rapl_common.c of Linux (names,
``rapl_msrs_are_pkg_scope``); Intel SDM volume 3B, Platform Specific Power Management Support.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferometer.contracts import Channel, MeterSession, MeterStatus
from inferometer.environment.cpu import cpu_entries
from inferometer.environment.facts import Absent
from inferometer.errors import ConfigError, MeterError, nearest

__all__ = ["RaplMeter"]

_TREE = "sys/class/powercap"
_PACKAGE, _DRAM, _PSYS = "CPU package", "DRAM", "platform (psys)"

_PERIOD_S = 0.1
# Source: Intel SDM, volume 3B: the energy status registers are updated about every millisecond. Not stated
# for psys, whose unit is a whole joule on some servers.
_STEP_S = 0.001
# More than one zone draws, so that energy between two readings is never taken for less than it may have been.
_CEILING_W = 1000.0
# The smallest range there is, for zones that do not tell theirs: 32 bits of AMD's 15.3 microjoules.
_SMALLEST_RANGE_UJ = 65_500_000_000
# A window fails at a gap of more than five periods; so many are withheld where energy is unknown.
_WITHHELD = 6

_READABLE = (
    "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj "
    "/sys/class/powercap/intel-rapl:*/max_energy_range_uj"
)
_PERMIT = (
    f"{_READABLE} (until the next start; to keep it, put the two lines "
    "'z /sys/class/powercap/intel-rapl:*/energy_uj 0444 - - -' and "
    "'z /sys/class/powercap/intel-rapl:*/max_energy_range_uj 0444 - - -' into /etc/tmpfiles.d/rapl.conf; "
    "in a container, do so on the host)"
)
_UNMASK = (
    "run on the host, or start the container with -v /sys/class/powercap:/sys/class/powercap:ro and "
    "--security-opt systempaths=unconfined (Docker) or --security-opt unmask=ALL (Podman)"
)


@dataclass(frozen=True)
class _Zone:
    """One zone to read; ``energy_uj`` at the time of the survey, or the ``fault`` that left none."""

    label: str
    folder: Path
    name: str
    boundary: str
    socket: str
    part: str
    range_uj: int | None
    energy_uj: int | None
    fault: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class _Survey:
    """The zones to read, those that are not and why, and those whose name cannot be had."""

    zones: tuple[_Zone, ...]
    passed_over: Mapping[str, str]
    nameless: Mapping[str, str]


class RaplMeter:
    """The meter ``rapl``: energy of processors, memory and platform, as far as the processor counts it."""

    name = "rapl"

    def __init__(self, root: Path = Path("/")) -> None:
        """Read below ``root``, the file system that holds sys/ and proc/; tests give a temporary tree."""
        self._root = root

    def status(self, options: Mapping[str, Any]) -> Sequence[MeterStatus]:
        """One entry per zone that it would read; a single one, called RAPL, where there is none."""
        _check(options)
        survey = _survey(self._root)
        if survey.nameless or not survey.zones:
            reason, remedy = _absence(self._root, survey)
            return (MeterStatus("RAPL", reason=reason, remedy=remedy),)
        return tuple(
            MeterStatus(
                _title(zone),
                reads=(f"{zone.boundary} energy",),
                reason=zone.fault,
                remedy=zone.remedy,
            )
            for zone in survey.zones
        )

    def open(self, options: Mapping[str, Any]) -> MeterSession:
        """Open all boundaries whose zones can all be read; a part of a boundary would be a wrong sum.

        The option ``devices`` is ignored; there are no others.

        Raises:
            ConfigError: An option is not known, or does not take its value.
            MeterError: There is no RAPL here, or a package cannot be read; the message says what to do.
        """
        _check(options)
        survey = _survey(self._root)
        if survey.nameless or not survey.zones:
            raise MeterError(_line("rapl", *_absence(self._root, survey)))
        faulty: dict[str, _Zone] = {}
        for zone in survey.zones:
            if zone.fault:
                faulty.setdefault(zone.boundary, zone)
        sound = tuple(zone for zone in survey.zones if zone.boundary not in faulty)
        if _PACKAGE in faulty or not sound:
            worst = faulty.get(_PACKAGE) or next(iter(faulty.values()))
            raise MeterError(_line(f"rapl: {_title(worst)}", worst.fault or "", worst.remedy))
        left_out = {
            zone.label: f"{zone.name}: {faulty[zone.boundary].fault}"
            for zone in survey.zones
            if zone.boundary in faulty
        }
        return _RaplSession(sound, {**survey.passed_over, **left_out})


class _RaplSession(MeterSession):
    """Reads one counter file per call.

    A counter that falls by what a wrap explains is unwrapped. Otherwise (it was reset, its range is not
    readable, or so much time passed that it may have wrapped unseen) the energy since the reading before is
    unknown: readings are withheld for six periods, so that a gap is recorded which fails every window
    that reaches across, and the channel then goes on from where it stood, so that energy never falls.
    """

    def __init__(self, zones: Sequence[_Zone], not_read: Mapping[str, str]) -> None:
        self._counters = tuple(_Counter(zone) for zone in zones)
        self.channels = tuple(_channel(zone) for zone in zones)
        self.facts = {
            "zones": {zone.label: zone.name for zone in zones},
            "max_energy_range_j": {
                zone.label: None if zone.range_uj is None else zone.range_uj / 1e6 for zone in zones
            },
            "not_read": dict(not_read),
        }

    def read(self, place: int) -> float:
        return self._counters[place].read()

    def close(self) -> None:
        """Nothing is held open."""


class _Counter:
    """One zone's counter, unwrapped; in microjoules, as the kernel counts."""

    def __init__(self, zone: _Zone) -> None:
        self._zone = zone
        self._range_uj = zone.range_uj
        self._last_uj = self._total_uj = zone.energy_uj or 0
        self._last_ns = time.monotonic_ns()
        self._withheld = self._resumes_ns = 0

    def read(self) -> float:
        """Energy in J; it never falls."""
        try:
            now_uj = _number(self._zone.folder / "energy_uj")
        except OSError as error:
            raise MeterError(f"rapl: {_title(self._zone)}: {_why(error)}") from error
        except ValueError as error:
            raise MeterError(f"rapl: {_title(self._zone)}: {error}") from error
        now_ns = time.monotonic_ns()
        last_uj, elapsed_s = self._last_uj, (now_ns - self._last_ns) / 1e9
        self._last_uj, self._last_ns = now_uj, now_ns
        gained_uj = _gained(last_uj, now_uj, elapsed_s, self._range_uj)
        if gained_uj is None:
            self._withheld = _WITHHELD - 1
            # In time as well: it may be read more often than its channel says.
            self._resumes_ns = now_ns + round(_WITHHELD * _period_s(self._zone) * 1e9)
            raise MeterError(
                f"rapl: {_title(self._zone)}: the counter went from {last_uj} to {now_uj} microjoules in "
                f"{elapsed_s:.3g} s, which no wrap explains for sure: the energy in between is unknown"
            )
        if self._withheld or now_ns < self._resumes_ns:
            self._withheld = max(0, self._withheld - 1)
            raise MeterError(f"rapl: {_title(self._zone)}: withheld after a gap of unknown energy")
        self._total_uj += gained_uj
        return self._total_uj / 1e6


def _gained(last_uj: int, now_uj: int, elapsed_s: float, range_uj: int | None) -> int | None:
    """Energy between two readings of a counter; None where it is unknown."""
    if elapsed_s > (range_uj or _SMALLEST_RANGE_UJ) / 1e6 / _CEILING_W:
        return None  # It may have gone once around unseen.
    if now_uj >= last_uj:
        return now_uj - last_uj
    if range_uj is None:
        return None
    around_uj = range_uj - last_uj + now_uj
    # A counter that fell because it was reset (as a sleep does) is mostly too far from its end for a wrap.
    return around_uj if 0 <= around_uj <= _CEILING_W * 1e6 * max(elapsed_s, 1.0) else None


def _period_s(zone: _Zone) -> float:
    """Faster than half a wrap."""
    return min(_PERIOD_S, (zone.range_uj or _SMALLEST_RANGE_UJ) / 1e6 / _CEILING_W / 2)


def _channel(zone: _Zone) -> Channel:
    return Channel(
        name=_title(zone),
        quantity="energy",
        boundary=zone.boundary,
        part=zone.part,
        semantics="counter of the processor, unwrapped",
        period_s=_period_s(zone),
        primary=True,
        step_s=None if zone.boundary == _PSYS else _STEP_S,
    )


def _title(zone: _Zone) -> str:
    return f"{zone.part} dram" if zone.boundary == _DRAM else zone.part


def _survey(root: Path) -> _Survey:
    tree = root / _TREE
    names: dict[str, str] = {}
    nameless: dict[str, str] = {}
    for label in sorted((path.name for path in tree.glob("intel-rapl:*")), key=_order):
        try:
            names[label] = (tree / label / "name").read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            nameless[label] = _why(error)
    zones: list[_Zone] = []
    passed_over: dict[str, str] = {}
    for label, name in names.items():
        place = _place(label, names)
        if place is None:
            inside = name in ("core", "uncore")
            passed_over[label] = f"{name}: " + ("inside package" if inside else "not a zone that is known")
        else:
            zones.append(_zone(tree, label, name, *place))
    kept, mirrors = _unmirrored(zones, _vendor(root))
    return _Survey(kept, passed_over | mirrors, nameless)


def _order(label: str) -> tuple[tuple[int, str], ...]:
    # Zones count in hexadecimal, without leading zeros.
    return tuple((len(number), number) for number in label.split(":"))


def _place(label: str, names: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Boundary, socket and part of a zone to read."""
    name = names[label]
    if package := re.fullmatch(r"(package-\d+)(-die-\d+)?", name):
        return _PACKAGE, package[1], name
    if re.fullmatch(r"psys(-\d+)?", name):
        return _PSYS, "platform", name
    if name == "dram":
        above = names.get(label.rpartition(":")[0], label)
        return _DRAM, re.sub(r"-die-\d+$", "", above), above
    return None


def _zone(tree: Path, label: str, name: str, boundary: str, socket: str, part: str) -> _Zone:
    folder = tree / label
    try:
        range_uj: int | None = _number(folder / "max_energy_range_uj") or None
    except (OSError, ValueError):
        range_uj = None
    energy_uj, fault, remedy = None, None, None
    try:
        energy_uj = _number(folder / "energy_uj")
    except PermissionError as error:
        fault, remedy = _why(error), _PERMIT
    except OSError as error:
        fault = _why(error)
    except ValueError as error:
        fault = str(error)
    return _Zone(label, folder, name, boundary, socket, part, range_uj, energy_uj, fault, remedy)


def _unmirrored(zones: Sequence[_Zone], vendor: str | None) -> tuple[tuple[_Zone, ...], dict[str, str]]:
    """Each counter once: the zones left, and the others with whose counter they repeat."""
    kept: list[_Zone] = []
    mirrors: dict[str, str] = {}
    for zone in zones:
        alike = [one for one in kept if (one.boundary, one.socket) == (zone.boundary, zone.socket)]
        # Source: rapl_msrs_are_pkg_scope in drivers/powercap/intel_rapl_common.c of Linux.
        by_socket = vendor in ("AuthenticAMD", "HygonGenuine")
        same = next((one for one in alike if by_socket or _same_counter(one, zone)), None)
        if same:
            mirrors[zone.label] = f"{zone.name}: repeats the counter of {same.label}"
            kept[kept.index(same)] = replace(same, part=_shared_part(same))
        else:
            taken = zone.part in {one.part for one in alike}
            kept.append(replace(zone, part=f"{zone.part} ({zone.label})") if taken else zone)
    return tuple(kept), mirrors


def _shared_part(zone: _Zone) -> str:
    return zone.part if zone.boundary == _PSYS else zone.socket


def _same_counter(one: _Zone, other: _Zone) -> bool:
    """Whether the second counter reads between two readings of the first, which different ones do not."""
    try:
        before, between, after = (_number(zone.folder / "energy_uj") for zone in (one, other, one))
    except (OSError, ValueError):
        return False
    # Counters that stand at 0 tell nothing.
    around = (one.range_uj or max(before, between, after)) + 1
    return after > 0 and (between - before) % around <= (after - before) % around


def _vendor(root: Path) -> str | None:
    entries = cpu_entries(root)
    return None if isinstance(entries, Absent) else entries[0].get("vendor_id")


def _absence(root: Path, survey: _Survey) -> tuple[str, str | None]:
    """Why there is no zone to read, and what to do about it."""
    if survey.nameless:
        label, why = next(iter(survey.nameless.items()))
        return f"RAPL is not visible here: /{_TREE}/{label} is listed, but its name: {why}", _UNMASK
    entries = cpu_entries(root)
    first = {} if isinstance(entries, Absent) else entries[0]
    if first and first.get("vendor_id") not in ("GenuineIntel", "AuthenticAMD", "HygonGenuine"):
        return "this processor has no RAPL: Intel's since Sandy Bridge and AMD's since Zen have it", None
    if "hypervisor" in first.get("flags", "").split():
        return (
            "RAPL is not visible here: this is a virtual machine, and its hypervisor does not show it",
            "run on the host, or use a meter outside the machine",
        )
    lack = "holds no zone of intel-rapl" if (root / _TREE).is_dir() else "is not there"
    return (
        f"RAPL is not visible here: /{_TREE} {lack}",
        f"sudo modprobe intel_rapl_msr; in a container {_UNMASK}",
    )


def _number(path: Path) -> int:
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{path.name} holds {text[:40]!r}, not a whole number")
    return int(text)


def _why(error: OSError) -> str:
    file = Path(str(error.filename)).name if error.filename else "the counter"
    if isinstance(error, PermissionError):
        return f"{file}: not permitted (root alone may read it since CVE-2020-8694)"
    return f"{file}: {error.strerror or error}"


def _line(subject: str, reason: str, remedy: str | None) -> str:
    return f"{subject}: {reason}" + (f"; remedy: {remedy}" if remedy else "")


def _check(options: Mapping[str, Any]) -> None:
    for key in sorted(options.keys() - {"devices"}):
        raise ConfigError(f"rapl: unknown option {key!r}{nearest(key, ('devices',))}")
    devices = options.get("devices", ())
    if not isinstance(devices, (list, tuple)) or not all(isinstance(one, str) for one in devices):
        raise ConfigError(f"rapl: devices: wants a list of UUIDs, got {devices!r}")

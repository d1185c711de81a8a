"""Where a Redfish service tells power: the walk from its chassis to the numbers, and reading one.

Source: DMTF DSP2046 and DSP8010 (schemas Chassis, PowerSupplyMetrics, Sensor, EnvironmentMetrics, Power).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from inferometer.errors import MeterError, nearest
from inferometer.meters.redfish_client import Document, Refused, look, path_of
from inferometer.meters.redfish_options import Settings, Which

__all__ = ["NoReading", "Source", "must_be_off", "sources_of", "watts_of"]

Get = Callable[[str], Document]

# Chassis of these types (ChassisType in schema Chassis) hold several servers or are a part of one.
_NOT_A_SERVER = frozenset(
    {"Rack", "Row", "Pod", "Zone", "Shelf", "Enclosure", "Drawer", "StorageEnclosure", "PowerStrip",
     "IPBasedDrive", "HeatExchanger", "ImmersionTank", "Sidecar", "Module", "Component", "Card", "Cartridge",
     "Expansion"}
)  # fmt: skip
_GONE = frozenset({"Absent", "Disabled", "UnavailableOffline"})
_INWARD = frozenset({"input", "in", "pin"})
_OUTWARD = frozenset({"output", "out", "pout"})
_NOT_DRAWN = frozenset(
    {"headroom", "limit", "cap", "budget", "capacity", "max", "min", "peak", "average", "avg"}
)


class NoReading(MeterError):
    """A place of a resource holds no number that can be power."""


@dataclass(frozen=True)
class Source:
    """One number in one resource: where it is and what it covers.

    ``state`` is where the resource tells its Status; ``system`` is what tells whether the server is on.
    """

    boundary: str
    part: str
    name: str
    path: str
    keys: tuple[str | int, ...]
    state: tuple[str | int, ...]
    system: str
    semantics: str
    gain_error: float | None = None


@dataclass(frozen=True)
class _Chassis:
    path: str
    document: Document

    @property
    def id(self) -> str:
        return str(self.document.get("Id") or _last(self.path))

    @property
    def noun(self) -> str:
        kind = self.document.get("ChassisType")
        return kind.lower() if kind in _NOT_A_SERVER else "server"

    @property
    def system(self) -> str:
        """What tells whether it is on: its first system, else the chassis itself."""
        return path_of(look(self.document, "Links", "ComputerSystems", 0)) or self.path

    def link(self, name: str) -> str | None:
        return path_of(self.document.get(name))

    def source(
        self, boundary: str, kind: str, path: str, keys: Sequence[str | int], part: str = ""
    ) -> Source:
        whole = f"{self.id} {part}".strip()
        return Source(
            boundary=boundary,
            part=whole,
            name=f"{kind} {whole}",
            path=path,
            keys=tuple(keys),
            state=("Status", "State"),
            system=self.system,
            semantics=f"{keys[0]} as the BMC tells it; averaging and rate not stated",
        )


def watts_of(get: Get, source: Source) -> float:
    """The number at ``source`` now, W.

    Raises:
        MeterError: The resource cannot be had.
        NoReading: It holds no number that can be power.
    """
    document = get(source.path)
    state = look(document, *source.state)
    if state in _GONE:
        raise NoReading(f"{source.name} gives no reading: its state is {state}")
    value = look(document, *source.keys)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        shown = "null" if value is None else repr(value)[:40]
        raise NoReading(f"{source.name} gives no reading: {source.keys[-1]} is {shown} in {source.path}")
    return float(value)


def must_be_off(get: Get, source: Source) -> None:
    """Check that a source of 0 W belongs to a system that is off.

    Raises:
        NoReading: It is on, or nothing tells.
    """
    state = look(get(source.system), "PowerState")
    if state != "Off":
        told = (
            f"while the system is {state}"
            if isinstance(state, str)
            else "and no word whether the system is on"
        )
        raise NoReading(f"{source.name} gives no reading that can be true: 0 W {told}")


def sources_of(get: Get, root: Document, settings: Settings) -> tuple[list[Source], dict[str, str]]:
    """The sources to read, and under ``CHASSIS: BOUNDARY`` why others are not."""
    passed_over: dict[str, str] = {}
    chassis = _chosen(get, root, settings.chassis)
    servers = [one for one in chassis if one.noun == "server"] if settings.chassis is None else chassis
    found = _of_all(get, root, servers, settings, passed_over)
    if not found and settings.chassis is None:
        found = _of_all(get, root, [one for one in chassis if one.noun != "server"], settings, passed_over)
    return found, passed_over


def _chosen(get: Get, root: Document, wanted: str | None) -> list[_Chassis]:
    path = path_of(root.get("Chassis")) or "/redfish/v1/Chassis"
    chassis = [_Chassis(place, document) for place, document in _members(get, path)]
    if wanted is None:
        return chassis
    chosen = [one for one in chassis if one.id == wanted]
    if not chosen:
        raise MeterError(f"there is no chassis {wanted!r}{nearest(wanted, [one.id for one in chassis])}")
    return chosen


def _of_all(
    get: Get, root: Document, chassis: Sequence[_Chassis], settings: Settings, passed_over: dict[str, str]
) -> list[Source]:
    by_chassis = {
        one.path.rstrip("/"): (one, _of_one(get, root, one, settings.sources, passed_over)) for one in chassis
    }
    kept: list[Source] = []
    for one, sources in by_chassis.values():
        around = _around(one, by_chassis)
        if sources and around:
            passed_over[one.id] = f"it is inside {around}, whose power covers it"
        else:
            kept += sources
    return kept


def _around(one: _Chassis, known: Mapping[str, tuple[_Chassis, list[Source]]]) -> str | None:
    """The chassis that it is in and that tells power of the same kind, at any depth."""
    seen: set[str] = set()
    while (outer := (path_of(look(one.document, "Links", "ContainedBy")) or "").rstrip("/")) in known:
        if outer in seen:
            return None
        seen.add(outer)
        one, sources = known[outer]
        if sources:
            return one.id
    return None


def _of_one(
    get: Get, root: Document, chassis: _Chassis, which: Which, passed_over: dict[str, str]
) -> list[Source]:
    """Those of the first place that has readings, or of all places."""
    kept: list[Source] = []
    for label, seek in _PLACES.items():
        try:
            sources = seek(get, root, chassis)
            if not any(watts_of(get, source) for source in sources):
                must_be_off(get, sources[0])
        except (NoReading, Refused) as error:
            passed_over[f"{chassis.id}: {label}"] = str(error)
            continue
        kept += [one for one in sources if one.path not in {other.path for other in kept}]
        if which == "preferred":
            break
    return kept


def _psu_inputs(get: Get, root: Document, chassis: _Chassis) -> list[Source]:
    """Of every supply that is there, or of none: a part of the sum would pass for the whole."""
    boundary = f"{chassis.noun} input (PSU sum)"
    subsystem = chassis.link("PowerSubsystem")
    collection = path_of(get(subsystem).get("PowerSupplies")) if subsystem else None
    supplies = [
        (place, supply)
        for place, supply in (_members(get, collection) if collection else ())
        if look(supply, "Status", "State") not in _GONE
    ]
    metered = [
        _excerpt(get, chassis.source(boundary, "psu input", path, ["InputPowerWatts"], _last(place)))
        for place, supply in supplies
        if (path := path_of(supply.get("Metrics")))
    ]
    told = [source for source in metered if source]
    if told and len(told) == len(supplies):
        return told
    sensors = [
        chassis.source(boundary, "psu input", path, ["Reading"], _last(path))
        for path, sensor in _power_sensors(get, root, chassis, "PowerSupply")
        if _is_input(sensor)
    ]
    if not sensors or (supplies and len(sensors) != len(supplies)):
        raise NoReading(f"{len(sensors)} sensors are known to be inputs, of {len(supplies) or 'no'} supplies")
    return [_with_accuracy(get, source) for source in sensors]


def _environment(get: Get, _: Document, chassis: _Chassis) -> list[Source]:
    path = chassis.link("EnvironmentMetrics")
    boundary = f"{chassis.noun} (EnvironmentMetrics)"
    source = _excerpt(get, chassis.source(boundary, "environment", path, ["PowerWatts"])) if path else None
    if source is None:
        raise NoReading("there is no PowerWatts")
    return [source]


def _power_control(_: Get, __: Document, chassis: _Chassis) -> list[Source]:
    path = chassis.link("Power")
    if path is None:
        raise NoReading("there is no Power resource")
    first = ("PowerControl", 0)
    boundary = f"{chassis.noun} (PowerControl)"
    source = chassis.source(boundary, "power control", path, [*first, "PowerConsumedWatts"])
    return [replace(source, state=(*first, "Status", "State"))]


def _system_board(get: Get, root: Document, chassis: _Chassis) -> list[Source]:
    sensors = _power_sensors(get, root, chassis, "SystemBoard")
    # Limits and reserves are told in watts too.
    sensors = [(path, sensor) for path, sensor in sensors if not _words(sensor) & _NOT_DRAWN]
    if len(sensors) != 1:
        raise NoReading(f"{len(sensors)} sensors tell its power, where one is wanted")
    path, _ = sensors[0]
    source = chassis.source("system board", "system board", path, ["Reading"], _last(path))
    return [_with_accuracy(get, source)]


_PLACES: Mapping[str, Callable[[Get, Document, _Chassis], list[Source]]] = {
    "PSU inputs": _psu_inputs,
    "EnvironmentMetrics": _environment,
    "PowerControl": _power_control,
    "system board": _system_board,
}
"""Where a chassis may tell its power, in order of preference."""


def _excerpt(get: Get, source: Source) -> Source | None:
    """A copy of a sensor's reading within another resource: itself, or the sensor that it names."""
    (name,) = source.keys
    excerpt = look(get(source.path), name)
    if look(excerpt, "Reading") is not None:
        return replace(source, keys=(name, "Reading"))
    sensor = path_of(look(excerpt, "DataSourceUri"))
    return _with_accuracy(get, replace(source, path=sensor, keys=("Reading",))) if sensor else None


def _with_accuracy(get: Get, sensor: Source) -> Source:
    percent = get(sensor.path).get("Accuracy")
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 < percent < 100:
        return sensor
    return replace(sensor, gain_error=percent / 100)


def _power_sensors(get: Get, root: Document, chassis: _Chassis, context: str) -> list[tuple[str, Document]]:
    """Sensors of power that is drawn, by place."""
    collection = chassis.link("Sensors")
    expand = look(root, "ProtocolFeaturesSupported", "ExpandQuery", "NoLinks") is True
    return [
        (path, sensor)
        for path, sensor in (_members(get, collection, expand) if collection else ())
        if sensor.get("ReadingType") == "Power"
        and sensor.get("PhysicalContext") == context
        and sensor.get("ReadingUnits") in (None, "W")
        and sensor.get("ReadingBasis") in (None, "Zero")
        and look(sensor, "Status", "State") not in _GONE
    ]


def _is_input(sensor: Document) -> bool:
    side = sensor.get("PhysicalSubContext")
    if side in ("Input", "Output"):
        return bool(side == "Input")
    # Where the schema's own property is absent (it is young), the name tells; in doubt it is not counted.
    words = _words(sensor)
    return bool(words & _INWARD) and not words & _OUTWARD


def _last(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def _words(sensor: Document) -> set[str]:
    text = f"{sensor.get('Id', '')} {sensor.get('Name', '')}"
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)}


def _members(get: Get, collection: str, expand: bool = False) -> Iterator[tuple[str, Document]]:
    """All members of a collection and their paths, page by page, in one request each where it can expand."""
    page: str | None = collection
    if expand:
        with suppress(Refused):
            get(collection + "?$expand=.")
            page = collection + "?$expand=."
    seen: set[str] = set()
    while page and page not in seen:
        seen.add(page)
        document = get(page)
        for member in document.get("Members") or ():
            path = path_of(member)
            if path:
                yield path, member if "Id" in member else get(path)
        page = path_of(document.get("Members@odata.nextLink"))

"""From a sampler's readings and the windows of one trial to its power results: one for each boundary."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inferometer import energy
from inferometer.clock_events import CLOCK_EVENTS, POWER_CAP, SLOWING, named
from inferometer.energy import WindowPower
from inferometer.meters.readings import Readings
from inferometer.records import BesideReading, ConditionShare, LoadWindow, PartPower, PowerFigure, PowerResult
from inferometer.store import arrays

__all__ = ["Idle", "Parts", "held", "lacking", "parts_for", "power_results", "trace_sidecar"]

_AROUND_NS = 1_000_000_000  # of readings before and after each window, kept with the record
_NAMES = ("load", "idle_before", "idle_after", "idle_loaded")
_SLOWS = SLOWING | POWER_CAP
Span = tuple[int, int]


@dataclass(frozen=True)
class Idle:
    """A time without a process on the devices: CLOCK_MONOTONIC ns.

    ``flag``: what to know of it, such as that power still fell.
    """

    span: Span
    flag: str | None = None


@dataclass(frozen=True)
class Parts:
    """The channels that one result adds up: their places, one per part, and those held beside them."""

    meter: str
    boundary: str
    places: tuple[int, ...]
    beside: tuple[tuple[int, ...], ...]


def parts_for(readings: Readings, device: str, where: Mapping[str, Collection[str]]) -> list[Parts]:
    """What counts for a trial on ``device``: its own accelerators' readings, and those of its whole hosts.

    Args:
        readings: Of the hosts that it ran on, and no others.
        device: The engine's name of it.
        where: By host, the UUIDs of its accelerators there, as far as the engine tells them.
    """
    own: set[str] = set()
    for host, uuids in where.items():
        boards = {
            one.channel.part
            for place, one in enumerate(readings.head.channels)
            if one.channel.of_device and readings.host_of(place) == host
        }
        if device != "cpu" and not uuids and len(boards) == 1:
            own |= boards  # the engine does not tell which it runs on, and there is but one
        own |= boards.intersection(uuids)
    found: dict[tuple[str, str], list[int]] = {}
    beside: dict[tuple[str, str], dict[str, list[int]]] = {}
    for place, one in enumerate(readings.head.channels):
        channel = one.channel
        if channel.quantity not in ("power", "energy") or (channel.of_device and channel.part not in own):
            continue
        key = (one.meter, channel.boundary)
        if channel.primary:
            found.setdefault(key, []).append(place)
        else:
            beside.setdefault(key, {}).setdefault(channel.semantics, []).append(place)
    return [
        Parts(*key, tuple(places), tuple(tuple(others) for others in beside.get(key, {}).values()))
        for key, places in found.items()
    ]


def lacking(readings: Readings, parts: Parts, where: Mapping[str, Collection[str]]) -> str | None:
    """Why the sum of parts is not all that a trial ran on; None: it is. Arguments as of `parts_for`."""
    channels = [readings.head.channels[place].channel for place in parts.places]
    named = [one.part for one in channels]
    twice = next((part for part in named if named.count(part) > 1), None)
    if twice is not None:
        return f"{twice} is read on several hosts: are they one machine?"
    for host, uuids in where.items():
        own = {
            part for place, part in zip(parts.places, named, strict=True) if readings.host_of(place) == host
        }
        if not own:
            return f"{host} shows none, and ranks ran there too"
        unread = sorted(set(uuids) - own) if channels[0].of_device else []
        if unread:
            return f"{', '.join(unread)} is not read, and the trial ran there too"
    return None


def held(readings: Readings, span: Span, devices: Collection[str] | None = None) -> str | None:
    """Why a span was not idle: processes on one of ``devices`` (None: on any) while no trial runs."""
    for place, one in enumerate(readings.head.channels):
        part = one.channel.part
        if one.channel.quantity != "processes" or (devices is not None and part not in devices):
            continue
        most = readings.finite(place, *span).max(initial=0)
        if most > 0:
            what = "a process holds" if most == 1 else f"{most:.0f} processes hold"
            return f"{what} {part} while it should be idle: end what else runs there"
    return None


def power_results(
    readings: Readings, chosen: Sequence[Parts], load: LoadWindow, before: Idle | None, after: Idle | None
) -> tuple[PowerResult, ...]:
    """The results of one trial.

    Args:
        readings: All so far, refreshed, of the hosts that it ran on.
        chosen: From `parts_for`.
        load: When the trial was under load, and loaded but idle.
        before: The bare idle before it; None: there was none.
        after: The bare idle after it.
    """
    return tuple(_result(readings, parts, load, before, after) for parts in chosen)


def trace_sidecar(readings: Readings, load: LoadWindow, idles: Iterable[Idle | None]) -> bytes:
    """All readings in and around a trial's windows, with their channels, as a NumPy archive."""
    first = load.idle_loaded[0] if load.idle_loaded else load.begin_ns
    spans = [(first, load.end_ns), *(idle.span for idle in idles if idle is not None)]
    kept = np.unique(
        np.concatenate([readings.between(begin - _AROUND_NS, end + _AROUND_NS) for begin, end in spans])
    )
    kept = kept[np.argsort(kept["begin_ns"], kind="stable")]
    channels = json.dumps([one.document() for one in readings.head.channels])
    columns = {name: kept[name] for name in ("channel", "begin_ns", "end_ns", "value")}
    return arrays(**columns, channels=np.array(channels))


def _result(
    readings: Readings, parts: Parts, load: LoadWindow, before: Idle | None, after: Idle | None
) -> PowerResult:
    channels = [readings.head.channels[place].channel for place in parts.places]
    # What held a device in one idle may have held it in the other, and in the load, as well. A whole host is
    # not idle either while one of its devices is held.
    devices = [one.part for one in channels] if channels[0].of_device else None
    idles = [one.span for one in (before, after) if one is not None]
    fault = next((why for span in idles if (why := held(readings, span, devices))), None)
    spans: dict[str, Span | None] = {
        "load": (load.begin_ns, load.end_ns),
        "idle_before": before.span if before and fault is None else None,
        "idle_after": after.span if after and fault is None else None,
        "idle_loaded": load.idle_loaded,
    }
    by_window, missing = _by_window(readings, parts, spans)
    sums = {
        name: energy.summed(found) if len(found) == len(parts.places) else None
        for name, found in by_window.items()
    }
    if fault is not None:
        missing |= {"idle_before": fault, "idle_after": fault}
    shared = _shared(readings, parts, (load.begin_ns, load.end_ns))
    if shared is not None:
        sums["load"], missing["load"] = None, shared
    said = {"idle_before": before.flag if before else None, "idle_after": after.flag if after else None}
    figures = {name: _figure(sums[name], said.get(name)) for name in _NAMES}
    fields: dict[str, object] = {
        "gain_error": max((one.gain_error for one in channels if one.gain_error is not None), default=None),
        "images_per_s": load.images_per_s,
        "idle_age_s": (load.begin_ns - before.span[1]) * 1e-9 if before else None,
        "facts": readings.facts(parts.meter),
        **figures,
        **_derived(sums, load, missing),
        **_conditions(readings, parts, (load.begin_ns, load.end_ns)),
    }
    fields["by_part"] = _by_part(readings, parts, by_window, sums)
    fields["beside"] = _beside(readings, parts, sums["load"], missing)
    return PowerResult.model_validate(
        {
            "meter": parts.meter,
            "boundary": parts.boundary,
            "parts": tuple(one.part for one in channels),
            "semantics": ", ".join(dict.fromkeys(one.semantics for one in channels)),
            **fields,
            "missing": missing,
        }
    )


def _by_window(
    readings: Readings, parts: Parts, spans: Mapping[str, Span | None]
) -> tuple[dict[str, list[WindowPower]], dict[str, str]]:
    """Each window's power of every part, or why some has none."""
    missing: dict[str, str] = {}
    faults = readings.faults(parts.meter)
    worst = max(faults, key=lambda text: faults[text], default=None)
    said = f" ({faults[worst]} readings failed: {worst})" if worst is not None else ""
    present = [name for name in _NAMES if spans[name] is not None]
    windows = [span for name in present if (span := spans[name]) is not None]
    by_window: dict[str, list[WindowPower]] = {name: [] for name in _NAMES}
    for place in parts.places:
        trace = readings.trace(place)
        for name, window, power in zip(present, windows, energy.measured(trace, windows), strict=True):
            if power is not None:
                by_window[name].append(power)
            else:
                part = readings.head.channels[place].channel.part
                fault = energy.audit(trace, window).fault or "the readings give no figure"
                missing.setdefault(name, f"{part}: {fault}{said}")
    for name in by_window:
        if spans[name] is None:
            missing.setdefault(name, "it was not measured")
    return by_window, missing


def _by_part(
    readings: Readings,
    parts: Parts,
    by_window: Mapping[str, Sequence[WindowPower]],
    sums: Mapping[str, WindowPower | None],
) -> tuple[PartPower, ...]:
    """Each of several parts by itself; of idle the mean of before and after, as in their sum."""
    load = by_window["load"] if sums["load"] is not None else ()
    idles = [by_window[name] for name in ("idle_before", "idle_after") if sums[name] is not None]
    found = []
    for number, place in enumerate(parts.places if len(parts.places) > 1 else ()):
        part = readings.head.channels[place].channel.part
        idle_w = [idle[number].mean_w for idle in idles]
        clocks = readings.places("clock", parts.meter, [part])
        window = load[number].window if load else None
        values = np.concatenate(
            [np.empty(0), *(readings.finite(one, *window) for one in clocks if window is not None)]
        )
        found.append(
            PartPower(
                part=part,
                load_w=load[number].mean_w if load else None,
                idle_bare_w=sum(idle_w) / len(idle_w) if idle_w else None,
                clock_hz=(float(values.min()), float(values.max())) if len(values) else None,
            )
        )
    return tuple(found)


def _shared(readings: Readings, parts: Parts, window: Span) -> str | None:
    """Why a load was not the trial's alone: more processes than its own on a device."""
    own = [readings.head.channels[place].channel.part for place in parts.places]
    for place in readings.places("processes", parts.meter, own):
        most = readings.finite(place, *window).max(initial=0)
        if most > 1:
            part = readings.head.channels[place].channel.part
            return f"{most:.0f} processes held {part} under load: end what else runs there"
    return None


def _derived(
    sums: Mapping[str, WindowPower | None], load: LoadWindow, missing: dict[str, str]
) -> dict[str, object]:
    """Watts and ratios; what cannot be told is left out, with its reason in ``missing``."""
    under, before, after, loaded = (sums[name] for name in _NAMES)
    fields: dict[str, object] = {
        "load_w": under.mean_w if under else None,
        "idle_loaded_w": loaded.mean_w if loaded else None,
        "images_per_s_per_load_w": load.images_per_s / under.mean_w if under and under.mean_w > 0 else None,
    }
    first = before or after
    if under is None or first is None:
        why = missing.get("load" if under is None else "idle_before", "it was not measured")
        what = "no power under load" if under is None else "no idle power"
        for name in ("net_w", "images_per_s_per_w", "j_per_image"):
            missing[name] = f"{what}: {why}"
        return fields
    net = energy.net_power(under, first, after if before else None)
    fields |= {
        "idle_bare_w": net.idle_w,
        "drift_w": net.drift_w,
        "net_w": net.net_w,
        "u_net_w": net.u_net_w,
        "net_ci95_w": net.ci95_w,
    }
    rate_u = load.u_images_per_s or 0.0
    if load.u_images_per_s is None:
        missing["u_images_per_s"] = (
            "the run had too few windows: the intervals hold the uncertainty of power alone"
        )
    found = energy.efficiency(load.images_per_s, rate_u, net.net_w, net.u_net_w, net.df)
    if not net.resolved or found is None:
        noise = f"net power of {net.net_w:.2f} W is within three times its uncertainty of {net.u_net_w:.2f} W"
        missing["images_per_s_per_w"] = missing["j_per_image"] = noise
        return fields
    return fields | {
        "images_per_s_per_w": found.images_per_s_per_w,
        "images_per_s_per_w_ci95": found.ci95_images_per_s_per_w,
        "j_per_image": found.j_per_image,
        "j_per_image_ci95": found.ci95_j_per_image,
    }


def _figure(power: WindowPower | None, flag: str | None) -> PowerFigure | None:
    if power is None:
        return None
    audit = power.audit
    return PowerFigure(
        begin_ns=power.window[0],
        end_ns=power.window[1],
        mean_w=power.mean_w,
        u_w=power.u_w,
        samples=audit.samples,
        distinct=audit.distinct,
        rate_hz=audit.rate_hz,
        largest_gap_s=audit.largest_gap_s,
        coverage=audit.coverage,
        correlation_s=power.correlation_s,
        flags=power.flags if flag is None else (*power.flags, flag),
    )


def _beside(
    readings: Readings, parts: Parts, load: WindowPower | None, missing: dict[str, str]
) -> tuple[BesideReading, ...]:
    """The other channels of the boundary, over the same window."""
    if load is None:
        return ()
    found = []
    for places in parts.beside:
        semantics = readings.head.channels[places[0]].channel.semantics
        traces = [readings.trace(place) for place in places]
        faults = [fault for trace in traces if (fault := energy.audit(trace, load.window).fault)]
        if faults or len(places) != len(parts.places):
            missing[f"beside {semantics}"] = faults[0] if faults else "it is not there for every part"
            continue
        watts = sum(energy.mean_w(trace, load.window) for trace in traces)
        excess = energy.agreement(load.mean_w, watts)
        found.append(BesideReading(semantics=semantics, load_w=watts, disagreement=excess))
    return tuple(found)


def _conditions(readings: Readings, parts: Parts, window: Span) -> dict[str, object]:
    """What the devices' states were in the load window."""
    own = [readings.head.channels[place].channel.part for place in parts.places]

    def spread(quantity: str) -> tuple[float, float] | None:
        places = readings.places(quantity, parts.meter, own)
        values = np.concatenate([np.empty(0), *(readings.finite(place, *window) for place in places)])
        return (float(values.min()), float(values.max())) if len(values) else None

    limit, states = spread("power_limit"), spread("performance_state")
    return {
        "temperature_c": spread("temperature"),
        "clock_hz": spread("clock"),
        "power_limit_w": limit[0] if limit else None,
        "performance_states": (int(states[0]), int(states[1])) if states else None,
        "conditions": _shares(readings, readings.places("clock_events", parts.meter, own), window),
    }


def _shares(readings: Readings, places: Sequence[int], window: Span) -> tuple[ConditionShare, ...]:
    """For which share of the window each clock event held; of several devices the largest.

    What slows is listed also where it never held: nothing at all is listed where nothing was read.
    """
    largest: dict[int, float] = {}
    for place in places:
        found = readings.values(place)
        found = found[np.isfinite(found["value"])]
        bits = found["value"].astype(np.int64)
        for bit in [1 << shift for shift in range(63)] if len(found) else []:
            held = (bits & bit) != 0
            if held.any() or (bit & _SLOWS and bit in CLOCK_EVENTS):
                share = energy.overlap_share(found["begin_ns"], held, window)
                largest[bit] = max(largest.get(bit, 0.0), share)
    return tuple(
        ConditionShare(name=named(bit)[0], share=share, slows=bool(bit & _SLOWS))
        for bit, share in sorted(largest.items())
        if share > 0 or bit & _SLOWS
    )

"""Energy, mean power and their uncertainty from readings with time stamps; power above idle (pure).

Times are int64 nanoseconds of CLOCK_MONOTONIC. A reading counts at the middle of its call. None is left out
of an integral: without the readings that equal the one before them the energy would be wrong. The meter's
gain error is no part of any uncertainty here, since it does not average out: it is stated beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferometer.energy_windows import (
    LEAST_BLOCKS,
    Floats,
    Readings,
    Trace,
    Window,
    satterthwaite,
    seconds_of,
    spreads,
)
from inferometer.stats import t_quantile

__all__ = [
    "Audit",
    "Efficiency",
    "NetPower",
    "Trace",
    "Window",
    "WindowPower",
    "agreement",
    "audit",
    "efficiency",
    "energy_j",
    "mean_w",
    "measured",
    "net_power",
    "overlap_share",
    "summed",
]

_GAP_PERIODS = 5.0
_COVERAGE = 0.95
# Time between neighbouring readings beyond this is not covered: one that is missing is still bridged.
_BRIDGED_PERIODS = 2.5
# So many correlation times make a window: with fewer, the estimate of the correlation time itself is poor.
_CORRELATION_TIMES = 6.0
_RESOLVED = 3.0


@dataclass(frozen=True)
class Audit:
    """Of the readings in and around a window.

    Attributes:
        samples: Readings within it, missing ones not counted.
        distinct: Runs of equal readings among these: 1 where all are the same.
        rate_hz: ``samples`` per second.
        largest_gap_s: Longest time between neighbouring readings that touches the window; from or to its
            edge, where there is no reading beyond that.
        coverage: Share of the window that is not in gaps (times over 2.5 periods between readings).
        fault: Why the readings cannot carry a figure, else None.
    """

    samples: int
    distinct: int
    rate_hz: float
    largest_gap_s: float
    coverage: float
    fault: str | None


@dataclass(frozen=True)
class WindowPower:
    """Mean power over a window.

    Attributes:
        window: Begin and end, ns.
        mean_w: Energy over time.
        u_w: Standard uncertainty (1 sigma) of the mean, W: the random part only.
        df: Its degrees of freedom; infinite where it does not rest on scatter.
        correlation_s: Correlation time of the power; None where nothing varied.
        flags: What a reader of the figure must know, in words.
        audit: Of the readings.
    """

    window: Window
    mean_w: float
    u_w: float
    df: float
    correlation_s: float | None
    flags: tuple[str, ...]
    audit: Audit


@dataclass(frozen=True)
class NetPower:
    """Power under load above idle.

    Attributes:
        load_w: Mean under load.
        idle_w: Mean of the idles (of the one before, where there is no other).
        drift_w: Idle after less idle before; None without an idle after.
        net_w: ``load_w - idle_w``.
        u_net_w: Standard uncertainty, the drift included.
        df: Its degrees of freedom.
        ci95_w: 95 % interval of ``net_w``.
        resolved: Whether ``net_w`` is over three times its uncertainty.
    """

    load_w: float
    idle_w: float
    drift_w: float | None
    net_w: float
    u_net_w: float
    df: float
    ci95_w: tuple[float, float]
    resolved: bool


@dataclass(frozen=True)
class Efficiency:
    """Images per joule both ways, each with a 95 % interval; the intervals are each other's reciprocals."""

    images_per_s_per_w: float
    j_per_image: float
    ci95_images_per_s_per_w: tuple[float, float]
    ci95_j_per_image: tuple[float, float]
    u_relative: float


def audit(trace: Trace, window: Window) -> Audit:
    """Judge whether the readings can carry a figure for ``window``; a fault is one line of words.

    Raises:
        ValueError: The window is empty.
    """
    seconds = seconds_of(window)
    readings = Readings(trace)
    at, values = readings.at_s, readings.values
    begin, end = readings.place_s(window[0]), readings.place_s(window[1])
    inside = values[(at >= begin) & (at <= end)]
    distinct = int(np.count_nonzero(np.diff(inside)) + 1) if inside.size else 0
    around = _around(at, begin, end)
    gaps, clipped = np.diff(around), np.diff(np.clip(around, begin, end))
    coverage = 1.0 - float(clipped[gaps > _BRIDGED_PERIODS * trace.period_s].sum()) / seconds
    largest = float(gaps.max())
    renewed = readings.renewals(seconds, inside.size)
    fault = _missing_edge(at, begin, end)
    if fault is None and largest > _GAP_PERIODS * trace.period_s * (1 + 1e-9):
        fault = f"no reading for {largest:.3g} s, over {_GAP_PERIODS:g} periods of {trace.period_s:g} s"
    if fault is None and coverage < _COVERAGE:
        fault = f"readings cover {coverage:.0%} of the window, {_COVERAGE:.0%} are needed"
    if fault is None and trace.kind == "energy" and np.any(np.diff(values[np.isin(at, around)]) < 0):
        fault = "the energy counter went backwards"
    if fault is None and renewed < LEAST_BLOCKS:
        shown = min(distinct, max(renewed, 1))
        fault = f"too few distinct readings: {shown} in {seconds:.3g} s, {LEAST_BLOCKS} are needed"
    return Audit(inside.size, distinct, inside.size / seconds, largest, coverage, fault)


def energy_j(trace: Trace, window: Window) -> float:
    """Energy in a window, J.

    Power is integrated by trapezoids between the middles of the calls, and interpolated at the edges; a
    counter is interpolated at the edges (each is late by up to one step). Two parts of a window sum to it.

    Raises:
        ValueError: The window is empty, or the readings do not span it.
    """
    seconds_of(window)
    readings = Readings(trace)
    begin, end = readings.place_s(window[0]), readings.place_s(window[1])
    missing = _missing_edge(readings.at_s, begin, end)
    if missing is not None:
        raise ValueError(missing)
    before, after = readings.energy_j(np.array([begin, end]))
    return float(after - before)


def mean_w(trace: Trace, window: Window) -> float:
    """Mean power in a window, W: `energy_j` over its duration.

    Raises:
        ValueError: As `energy_j`.
    """
    return energy_j(trace, window) / seconds_of(window)


def measured(trace: Trace, windows: Sequence[Window]) -> tuple[WindowPower | None, ...]:
    """Mean power of each window with its uncertainty; None where `audit` finds a fault.

    What the windows of one call tell about the correlation time is pooled (`energy_windows`). A counter's
    edges, and a power channel's resolution where readings scatter less than that, are added.

    Raises:
        ValueError: A window is empty.
    """
    readings = Readings(trace)
    audits = [audit(trace, window) for window in windows]
    sound = [i for i, each in enumerate(audits) if each.fault is None]
    series = [readings.series(windows[i], audits[i].samples) for i in sound]
    found: list[WindowPower | None] = [None] * len(windows)
    for i, spread in zip(sound, spreads(series), strict=True):
        mean, seconds = mean_w(trace, windows[i]), seconds_of(windows[i])
        fixed = readings.edge_variance(mean, seconds) + readings.resolution_variance(windows[i])
        u_w = math.sqrt(spread.variance + fixed)
        df = satterthwaite([(spread.variance, spread.df), (fixed, math.inf)])
        flags = _flags(spread.correlation_s, seconds, audits[i])
        found[i] = WindowPower(windows[i], mean, u_w, df, spread.correlation_s, flags, audits[i])
    return tuple(found)


def net_power(load: WindowPower, before: WindowPower, after: WindowPower | None) -> NetPower:
    """Power under load less the mean of both idles (of one, where there is no other).

    Where the idles differ by more than their own uncertainties explain, idle power during the load is known
    only to lie between them: a rectangular distribution of width |drift|, variance drift^2 / 12, taken as
    exactly known. What scatter alone explains of drift^2 is already in their uncertainties and taken off.

    Source: GUM (JCGM 100:2008) 4.3.7 for the rectangular distribution and G.4.1 for the degrees of freedom.
    """
    terms = [(load.u_w**2, load.df)]
    drift_w = None
    if after is None:
        idle_w = before.mean_w
        terms.append((before.u_w**2, before.df))
    else:
        idle_w, drift_w = (before.mean_w + after.mean_w) / 2, after.mean_w - before.mean_w
        scatter = before.u_w**2 + after.u_w**2
        terms += [(before.u_w**2 / 4, before.df), (after.u_w**2 / 4, after.df)]
        terms.append((max(drift_w**2 - scatter, 0.0) / 12, math.inf))
    net_w, u_w = load.mean_w - idle_w, math.sqrt(math.fsum(variance for variance, _ in terms))
    df = satterthwaite(terms)
    half = t_quantile(0.975, df) * u_w
    interval = (net_w - half, net_w + half)
    return NetPower(load.mean_w, idle_w, drift_w, net_w, u_w, df, interval, net_w > _RESOLVED * u_w)


def efficiency(
    images_per_s: float, u_images_per_s: float, power_w: float, u_power_w: float, df: float
) -> Efficiency | None:
    """Images/s per W and J per image, with 95 % intervals; both uncertainties are standard ones.

    ``df`` are the degrees of freedom of the power. None when the power is not over three times its
    uncertainty, and when either figure's interval reaches 0: the ratio then has no upper bound.

    Source: E. C. Fieller, "Some problems in interval estimation", Journal of the Royal Statistical Society B
    16 (1954), for independent numerator and denominator.
    """
    if not images_per_s > 0 or not power_w > _RESOLVED * u_power_w:
        return None
    t = t_quantile(0.975, max(df, 1.0))
    rate_low, power_low = images_per_s**2 - (t * u_images_per_s) ** 2, power_w**2 - (t * u_power_w) ** 2
    if rate_low <= 0 or power_low <= 0:
        return None
    product = power_w * images_per_s
    root = math.sqrt(max(product**2 - rate_low * power_low, 0.0))
    low, high = (product - root) / rate_low, (product + root) / rate_low
    u_relative = math.hypot(u_images_per_s / images_per_s, u_power_w / power_w)
    each = power_w / images_per_s
    return Efficiency(images_per_s / power_w, each, (1 / high, 1 / low), (low, high), u_relative)


def summed(parts: Sequence[WindowPower]) -> WindowPower:
    """Several devices' power over one window; uncertainties in quadrature, as devices vary independently.

    The audit is the worst of each figure, the correlation time the longest.

    Raises:
        ValueError: There are no parts, or their windows differ.
    """
    if not parts or any(part.window != parts[0].window for part in parts):
        raise ValueError("only parts over the same window add up")
    audits = [part.audit for part in parts]
    worst = Audit(
        min(each.samples for each in audits),
        min(each.distinct for each in audits),
        min(each.rate_hz for each in audits),
        max(each.largest_gap_s for each in audits),
        min(each.coverage for each in audits),
        next((each.fault for each in audits if each.fault is not None), None),
    )
    return WindowPower(
        parts[0].window,
        math.fsum(part.mean_w for part in parts),
        math.sqrt(math.fsum(part.u_w**2 for part in parts)),
        satterthwaite((part.u_w**2, part.df) for part in parts),
        max((part.correlation_s for part in parts if part.correlation_s is not None), default=None),
        tuple(dict.fromkeys(flag for part in parts for flag in part.flags)),
        worst,
    )


def overlap_share(
    begin_ns: npt.NDArray[np.int64], values_mask: npt.NDArray[np.bool_], window: Window
) -> float:
    """Share of the window during which a sampled condition held.

    Args:
        begin_ns: [n] int64, when it was sampled, ascending.
        values_mask: [n] bool, whether it held. Each stands until the next, the last for good; before the
            first it counts as not held.
        window: Begin and end, ns.

    Raises:
        ValueError: The window is empty, or the lengths differ.
    """
    seconds = seconds_of(window)
    if begin_ns.shape != values_mask.shape:
        raise ValueError("begin_ns and values_mask must have one length")
    if not begin_ns.size:
        return 0.0
    edges = np.clip(np.append(begin_ns, max(window[1], int(begin_ns[-1]))), *window)
    return float(np.diff(edges)[values_mask].sum()) / (seconds * 1e9)


def agreement(a_w: float, b_w: float) -> float:
    """How far integration ``b_w`` is from the counter ``a_w``, relative to the latter: (b - a) / a.

    Infinite where only ``a_w`` is 0, and 0 where both are.
    """
    if a_w == 0:
        return 0.0 if b_w == 0 else math.copysign(math.inf, b_w)
    return (b_w - a_w) / a_w


def _around(at_s: Floats, begin_s: float, end_s: float) -> Floats:
    """The readings in a window and one on either side of it; its edge stands in where there is none."""
    first = int(np.searchsorted(at_s, begin_s, "right")) - 1
    last = int(np.searchsorted(at_s, end_s, "left"))
    around = at_s[max(first, 0) : last + 1]
    around = around if first >= 0 else np.append(begin_s, around)
    return around if last < at_s.size else np.append(around, end_s)


def _missing_edge(at_s: Floats, begin_s: float, end_s: float) -> str | None:
    if at_s.size < 2:
        return f"{at_s.size} readings cannot span a window"
    if begin_s < at_s[0]:
        return f"readings begin {at_s[0] - begin_s:.3g} s after the window does"
    if end_s > at_s[-1]:
        return f"readings end {end_s - at_s[-1]:.3g} s before the window does"
    return None


def _flags(correlation_s: float | None, seconds: float, of: Audit) -> tuple[str, ...]:
    flags = []
    if correlation_s is not None and correlation_s * _CORRELATION_TIMES > seconds:
        flags.append(f"correlation time {correlation_s:.2g} s is too long for a window of {seconds:.3g} s")
    if of.distinct == 1:
        flags.append(f"all {of.samples} readings are the same")
    return tuple(flags)

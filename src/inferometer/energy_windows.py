"""A channel's readings, and how uncertain a window's mean power is as they resemble their neighbours (pure).

Consecutive readings of power are correlated, so their scatter divided by the root of their number is far
too narrow. Each window is cut into blocks, and the correlation time tau of an Ornstein-Uhlenbeck process,
averaged over such blocks, is judged by the restricted likelihood of the block means; each window has a mean
and a variance of its own. That likelihood is free of the bias that removing the mean gives (strong for
windows of few tau). Windows inform each other about tau as far as they agree. Under each tau on a grid, the
variance of the mean follows from the scatter of blocks of about two tau, corrected for the correlation that
is left between those; it is averaged over the grid by probability, so that not knowing tau widens the
interval as well.

Source: restricted likelihood of autoregressive series: W.-K. Cheang and G. C. Reinsel, "Bias reduction of
autoregressive estimates in time series regression model through restricted maximum likelihood", Journal of
the American Statistical Association 95 (2000). Flat prior in log tau. Expected scatter under correlation
and its degrees of freedom: G. E. P. Box, "Some theorems on quadratic forms applied in the study of analysis
of variance problems, I", Annals of Mathematical Statistics 25 (1954). The numbers below were chosen by
simulation (benchmarks/power/coverage.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "LEAST_BLOCKS",
    "Floats",
    "Readings",
    "Series",
    "Spread",
    "Trace",
    "Window",
    "satterthwaite",
    "seconds_of",
    "spreads",
]

Floats = npt.NDArray[np.float64]

Window = tuple[int, int]
"""Begin and end, ns of CLOCK_MONOTONIC."""

LEAST_BLOCKS = 5
"""With fewer, neither scatter nor correlation can be told."""

# More blocks than this would follow the readings' own noise rather than slow changes.
_MOST_BLOCKS = 24
_STEPS_PER_BLOCK = 4
_BLOCK_TAUS = 2.0
_COARSEST = 4
_GRID = 40
# Of a block: to block means, shorter correlation times are white noise.
_SHORTEST = 1 / 8
# Of a window: with longer ones an estimate is a guess, and is flagged.
_LONGEST = 1 / 4
# Standard deviations of ln tau between windows: much the same; within a factor of 3; nothing in common.
_UNLIKE = (0.1, 1.0, 3.0)
_LEAST_LEVELS = 5


@dataclass(frozen=True)
class Trace:
    """One channel's readings, in order of time.

    Attributes:
        kind: ``power`` in W, or ``energy``: cumulative J, unwrapped.
        begin_ns: [n] int64, before each call.
        end_ns: [n] int64, after it.
        values: [n] float64; NaN: there was no reading.
        period_s: How often it was asked.
        step_s: How often the source renews its value, where that is known.
        gain_error: Relative error of the meter's scale, where it is known; not used here.
    """

    kind: Literal["power", "energy"]
    begin_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    period_s: float
    step_s: float | None = None
    gain_error: float | None = None

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit, or that are out of order.

        Raises:
            ValueError: Lengths differ, times fall, a call ends before it begins, or a period is not positive.
        """
        if not self.begin_ns.shape == self.end_ns.shape == self.values.shape == (self.values.size,):
            raise ValueError("begin_ns, end_ns and values must be arrays of one dimension and one length")
        if not self.period_s > 0 or (self.step_s is not None and not self.step_s > 0):
            raise ValueError("period_s and step_s must be positive")
        if np.any(self.end_ns < self.begin_ns) or np.any(np.diff(_middles_ns(self)) < 0):
            raise ValueError("readings must be in order of time, each ending after it begins")


class Readings:
    """A trace's valid readings: ``values``, and ``at_s``, the middles of their calls from the first begin on.

    A float64 of seconds is good to 1 ns for 48 days.
    """

    def __init__(self, trace: Trace) -> None:
        """Leave out what is not finite; ``trace`` may be empty."""
        self.trace = trace
        valid = np.isfinite(trace.values)
        self._origin_ns = int(trace.begin_ns[0]) if trace.begin_ns.size else 0
        self.at_s: Floats = np.asarray((_middles_ns(trace)[valid] - self._origin_ns) * 1e-9, np.float64)
        self.values: Floats = trace.values[valid].astype(np.float64)
        changed = self.at_s[1:][np.diff(self.values) != 0]
        self._renewal_s = trace.step_s or self._renewed_every(changed)

    def place_s(self, moment_ns: int) -> float:
        """A moment of CLOCK_MONOTONIC on the scale of ``at_s``."""
        return (moment_ns - self._origin_ns) * 1e-9

    def renewals(self, seconds: float, samples: int) -> int:
        """How many readings in ``seconds`` the source can have renewed: repeats tell nothing new."""
        return min(samples, round(seconds / self._renewal_s)) if self._renewal_s > 0 else samples

    def energy_j(self, at_s: Floats, *, knots: bool = False) -> Floats:
        """Cumulative energy at moments within the readings; ``knots``: a counter at its changes alone."""
        times, values = self.at_s, self.values
        if self.trace.kind == "energy":
            if knots:
                keep = np.append(True, np.diff(values) != 0)
                times, values = times[keep], values[keep]
            return np.interp(at_s, times, values)
        steps = np.diff(times)
        sums = np.append(0.0, np.cumsum((values[1:] + values[:-1]) / 2 * steps))
        left = np.clip(np.searchsorted(times, at_s, "right") - 1, 0, times.size - 2)
        into = at_s - times[left]
        slope = np.diff(values)[left] / np.where(steps > 0, steps, 1.0)[left]
        return np.asarray(sums[left] + into * (values[left] + slope * into / 2), np.float64)

    def series(self, window: Window, samples: int) -> Series:
        """The window in blocks of one renewal at least; of a counter four, whose steps are noise else."""
        seconds, begin = seconds_of(window), self.place_s(window[0])
        renewals = self.renewals(seconds, samples)
        blocks = renewals // _STEPS_PER_BLOCK if self.trace.kind == "energy" else renewals
        blocks = min(max(blocks, LEAST_BLOCKS), _MOST_BLOCKS)
        # Between changes a counter stands still, which says nothing about the power.
        return Series(seconds, lambda moments: self.energy_j(begin + moments, knots=True), blocks)

    def edge_variance(self, mean: float, seconds: float) -> float:
        """W^2: at each edge a counter is late by up to one step, evenly spread; together two steps wide."""
        if self.trace.kind != "energy":
            return 0.0
        return 2 * (mean * self._renewal_s / seconds) ** 2 / 12

    def resolution_variance(self, window: Window) -> float:
        """W^2: the resolution's rectangular distribution, where scatter is too small to average it out.

        Source: B. Widrow and I. Kollar, Quantization Noise (2008): rounding errors average like noise once
        the scatter exceeds half a step.
        """
        levels = np.unique(self.values)
        # Few levels are the device's states (idle, load), not steps of the meter.
        if self.trace.kind != "power" or levels.size < _LEAST_LEVELS:
            return 0.0
        step = float(np.diff(levels).min())
        begin, end = self.place_s(window[0]), self.place_s(window[1])
        inside = self.values[(self.at_s >= begin) & (self.at_s <= end)]
        return step**2 / 12 if inside.std() <= step / 2 else 0.0

    def _renewed_every(self, changed_s: Floats) -> float:
        """Estimate from the times of change, s: short ones, since a value may be renewed to the same one."""
        if not self.at_s.size:
            return 0.0
        if changed_s.size <= _LEAST_LEVELS:
            return float(self.at_s[-1] - self.at_s[0]) / (changed_s.size + 1)
        polled = float(np.median(np.diff(self.at_s)))
        return max(float(np.quantile(np.diff(changed_s), 0.1)), polled)


@dataclass(frozen=True)
class Series:
    """One window: ``energy_j`` tells the joules from its begin up to each of some moments (s), ascending."""

    duration_s: float
    energy_j: Callable[[Floats], Floats]
    blocks: int

    def means_w(self, blocks: int) -> Floats:
        """Mean power, W, of so many equal blocks."""
        edges = np.linspace(0.0, self.duration_s, blocks + 1)
        return np.diff(self.energy_j(edges)) * (blocks / self.duration_s)


@dataclass(frozen=True)
class Spread:
    """Variance of a window's mean, W^2, its degrees of freedom, and the correlation time behind it, s.

    Where nothing varies, degrees of freedom are infinite and the correlation time is None. The latter is the
    median of what is likely, a quarter of the longest window at most.
    """

    variance: float
    df: float
    correlation_s: float | None


@dataclass(frozen=True)
class _Hypotheses:
    """What each correlation time of the grid means for a window of so many blocks.

    ``ratios`` are correlation times in blocks [G]; ``precision`` and ``log_det`` [G, m, m] and [G] make
    the restricted likelihood; ``coarse`` [G] is how many blocks to take the scatter of, ``factor`` [G] turns
    their variance into that of the mean, with ``df`` [G].
    """

    ratios: Floats
    precision: Floats
    log_det: Floats
    coarse: npt.NDArray[np.int64]
    factor: Floats
    df: Floats


def seconds_of(window: Window) -> float:
    """How long a window is.

    Raises:
        ValueError: It does not end after it begins.
    """
    if not window[1] > window[0]:
        raise ValueError(f"a window must end after it begins, got {window}")
    return (window[1] - window[0]) * 1e-9


def spreads(windows: Sequence[Series]) -> tuple[Spread, ...]:
    """Each window's spread, with what all of them tell of the correlation time."""
    means = [window.means_w(window.blocks) for window in windows]
    varying = [i for i, each in enumerate(means) if np.ptp(each) > 1e-9 * np.abs(each).max()]
    found = [Spread(0.0, math.inf, None)] * len(windows)
    if not varying:
        return tuple(found)
    judged = [_judge(windows[i], means[i]) for i in varying]
    times = np.geomspace(min(each[0][0] for each in judged), max(each[0][-1] for each in judged), _GRID)
    grid = np.log(times)
    # A window's own grid ends where its likelihood is flat: holding the end values is right.
    likelihoods = [np.interp(grid, np.log(own), likelihood) for own, likelihood, _, _ in judged]
    beliefs = _pooled(grid, likelihoods)
    for i, belief, (own, _, variance, df) in zip(varying, beliefs, judged, strict=True):
        at = np.log(own)
        correlation_s = float(times[np.searchsorted(np.cumsum(belief), 0.5)])
        found[i] = _average(belief, np.interp(grid, at, variance), np.interp(grid, at, df), correlation_s)
    return tuple(found)


def satterthwaite(terms: Iterable[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of independent variances, given as (variance, degrees of freedom).

    At least 1; infinite where all variances are 0.

    Source: F. E. Satterthwaite, "An approximate distribution of estimates of variance components",
    Biometrics Bulletin 2 (1946).
    """
    pairs = [(variance, df) for variance, df in terms if variance > 0]
    total = math.fsum(variance for variance, _ in pairs)
    # Shares, since the square of a tiny variance is 0.
    below = math.fsum((variance / total) ** 2 / df for variance, df in pairs)
    return max(1 / below, 1.0) if below > 0 else math.inf


def _judge(window: Series, means: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """For each correlation time (s): log-likelihood, variance of the window's mean, degrees of freedom."""
    table = _hypotheses(window.blocks)
    centred = means - means.mean()
    squares = (table.precision @ centred) @ centred
    likelihood = -0.5 * table.log_det - 0.5 * (window.blocks - 1) * np.log(squares)
    scatter = {int(k): float(window.means_w(int(k)).var(ddof=1)) for k in np.unique(table.coarse)}
    variance = np.array([scatter[int(k)] for k in table.coarse]) * table.factor
    return table.ratios * (window.duration_s / window.blocks), likelihood, variance, table.df


def _pooled(grid: Floats, likelihoods: Sequence[Floats]) -> list[Floats]:
    """Probability of each correlation time [G] for each window, given all of them.

    The windows' log correlation times scatter about a common one, normally, by an amount of which those of
    ``_UNLIKE`` are equally likely beforehand. Windows that agree so inform each other; others do not.
    """
    shapes = [np.exp(each - each.max()) for each in likelihoods]
    flat = np.ones(grid.size)
    beliefs = [np.zeros(grid.size) for _ in shapes]
    for spread in _UNLIKE:
        kernel = np.exp(-0.5 * (np.subtract.outer(grid, grid) / spread) ** 2)
        kernel /= kernel.sum(axis=1, keepdims=True)  # [common, own]
        agreeing = [kernel @ shape for shape in shapes]
        for i, shape in enumerate(shapes):
            others = np.prod([each for k, each in enumerate(agreeing) if k != i] or [flat], axis=0)
            beliefs[i] += shape * (others @ kernel)
    return [belief / belief.sum() for belief in beliefs]


def _average(belief: Floats, variance: Floats, df: Floats, correlation_s: float) -> Spread:
    """The mean variance, and the degrees of freedom that a variance of that relative scatter has."""
    mean = float(belief @ variance)
    if mean == 0:  # what varies repeats itself in every block
        return Spread(0.0, math.inf, None)
    relative = float(belief @ ((variance / mean) ** 2 * (1 + 2 / df))) - 1
    return Spread(mean, max(2 / relative, 1.0), correlation_s)


@lru_cache(maxsize=_MOST_BLOCKS)
def _hypotheses(blocks: int) -> _Hypotheses:
    ratios = np.geomspace(_SHORTEST, _LONGEST * blocks, _GRID)
    # Orthonormal contrasts: what is left of the block means when their mean is taken out.
    basis = np.linalg.qr(np.column_stack([np.ones(blocks), np.eye(blocks)[:, 1:]]))[0][:, 1:]
    inner = np.array([basis.T @ _correlation(blocks, ratio) @ basis for ratio in ratios])
    precision = basis @ np.linalg.inv(inner) @ basis.T
    coarse = np.clip(np.rint(blocks / (_BLOCK_TAUS * ratios)), min(_COARSEST, blocks), blocks).astype(
        np.int64
    )
    factors = [_factor(int(k), ratio * k / blocks) for k, ratio in zip(coarse, ratios, strict=True)]
    factor, df = np.array(factors).T
    return _Hypotheses(ratios, precision, np.linalg.slogdet(inner)[1], coarse, factor, df)


def _factor(blocks: int, ratio: float) -> tuple[float, float]:
    """Variance of the mean over the expected sample variance of the block means, and the latter's df."""
    correlation = _correlation(blocks, ratio)
    centred = correlation - correlation.mean(axis=0)
    trace = float(np.trace(centred))
    factor = float(correlation.mean()) * (blocks - 1) / trace
    return factor, trace**2 / float(np.sum(centred * centred.T))


def _correlation(blocks: int, ratio: float) -> Floats:
    """Correlation of block means [m, m] of an Ornstein-Uhlenbeck process, ``ratio`` = tau / block length.

    Source: exp(-|s - t| / tau) integrated over two blocks.
    """
    decay = math.exp(-1 / ratio)
    variance = 2 * ratio * (1 - ratio * (1 - decay))
    between = (ratio * (1 - decay)) ** 2
    lag = np.abs(np.subtract.outer(np.arange(blocks), np.arange(blocks)))
    return np.where(lag == 0, 1.0, between / variance * np.exp(-np.maximum(lag - 1, 0) / ratio))


def _middles_ns(trace: Trace) -> npt.NDArray[np.int64]:
    return trace.begin_ns + (trace.end_ns - trace.begin_ns) // 2

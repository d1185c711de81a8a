"""Intervals, ratios, percentiles and corrected p-values from raw measurements (pure).

Everything here is arithmetic on numbers already taken; nothing is rounded and nothing is assumed
where there are too few values: the answer is then None.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

__all__ = [
    "Difference",
    "Interval",
    "Ratio",
    "covariance_difference",
    "holm",
    "mean_interval",
    "median_interval",
    "percentile",
    "rate_interval",
    "ratio_interval",
    "share_upper",
    "t_cdf",
    "t_quantile",
    "trimmed_difference",
    "trimmed_mean",
]

_CONFIDENCE = 0.95
# Above this, Student's t differs from the normal distribution by less than 1e-6 at p = 0.9999.
_NORMAL_DF = 1e8
_MIN_WINDOWS = 5
_MAX_BATCHES = 10
# A percentile needs as many values beyond it; see ``percentile``.
_MIN_BEYOND = 5


@dataclass(frozen=True)
class Interval:
    """The mean of ``n`` values and a two-sided confidence interval ``lo..hi`` of it, in their unit."""

    mean: float
    lo: float
    hi: float
    n: int


@dataclass(frozen=True)
class Ratio:
    """The geometric mean of ``b`` over that of ``a``, with a 95 % interval ``lo..hi`` (no unit).

    ``p`` is the two-sided p-value of "the ratio is 1", ``df`` Welch's degrees of freedom (infinite
    when no side varies at all).
    """

    ratio: float
    lo: float
    hi: float
    p: float
    df: float


@dataclass(frozen=True)
class Difference:
    """A difference of two means, its standard error, and the degrees of freedom of that.

    ``error`` 0: no side varies at all.
    """

    value: float
    error: float
    df: float


def t_cdf(t: float, df: float) -> float:
    """P(T <= t) for Student's t with ``df`` > 0 degrees of freedom; ``df`` need not be whole.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.1 with 26.5.27:
    P(|T| <= t) is the regularised incomplete beta I_x(1/2, df/2) at x = t^2 / (df + t^2).
    """
    if not df > 0:
        raise ValueError(f"degrees of freedom must be positive, got {df}")
    if df > _NORMAL_DF:
        return statistics.NormalDist().cdf(t)
    square = t * t
    # Both tails are computed directly, so that neither suffers from 1 - x.
    if square <= df:
        half = _incomplete_beta(0.5, df / 2, square / (df + square)) / 2
        return 0.5 + math.copysign(half, t)
    tail = _incomplete_beta(df / 2, 0.5, df / (df + square)) / 2
    return 1 - tail if t > 0 else tail


@cache
def t_quantile(p: float, df: float) -> float:
    """The value that Student's t with ``df`` >= 1 (whole or not) stays under with probability ``p``.

    Accurate to 1e-6 of the value, or to 1e-6 where the value is under 1.

    Source: bisection on ``t_cdf``; tabled values, e.g. NIST/SEMATECH e-Handbook, 1.3.6.7.2.
    """
    if not 0 < p < 1:
        raise ValueError(f"a probability between 0 and 1 is wanted, got {p}")
    if not df >= 1:
        raise ValueError(f"at least one degree of freedom is wanted, got {df}")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < p:
        low, high = high, high * 2
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def mean_interval(values: Sequence[float], confidence: float = _CONFIDENCE) -> Interval | None:
    """The mean and its t interval, in the unit of the values; None with fewer than two of them.

    Source: mean +- t(n - 1) s / sqrt(n), s with n - 1 in the denominator (NIST/SEMATECH, 1.3.5.2).
    """
    n = len(values)
    if n < 2:
        return None
    mean = statistics.fmean(values)
    half = t_quantile((1 + confidence) / 2, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def rate_interval(images: int, seconds: float, windows: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of one run's rate, images/s, from its own windows; None with under five.

    The centre is ``images / seconds``. Neighbouring windows resemble each other, so they are first
    averaged in up to ten batches of consecutive windows (at least five), whose means are then taken
    as independent. It tells how steady this run was and nothing about another run.

    Args:
        images: Images in the timed part of the run.
        seconds: Its duration.
        windows: Images/s of its equal pieces, in order.

    Source: batch means, B. Schmeiser, "Batch size effects in the analysis of simulation output",
    Operations Research 30 (1982): 10 to 30 batches suffice, more add little.
    """
    if len(windows) < _MIN_WINDOWS or not seconds > 0:
        return None
    batches = max(_MIN_WINDOWS, min(_MAX_BATCHES, len(windows) // 2))
    means = [float(part.mean()) for part in np.array_split(np.asarray(windows, np.float64), batches)]
    spread = mean_interval(means)
    if spread is None:  # pragma: no cover - there are five batches at least
        return None
    rate, half = images / seconds, (spread.hi - spread.lo) / 2
    return max(rate - half, 0.0), rate + half


def ratio_interval(a: Sequence[float], b: Sequence[float]) -> Ratio | None:
    """How many times ``a`` is ``b``: both are repeats of a positive rate, in the same unit.

    None with fewer than two values on a side, or a value that is not positive.

    Source: B. L. Welch, "The generalization of Student's problem when several different population
    variances are involved", Biometrika 34 (1947), on natural logarithms, since a ratio of rates
    varies by factors.
    """
    if min(len(a), len(b)) < 2 or not min(*a, *b) > 0:
        return None
    log_a, log_b = [math.log(value) for value in a], [math.log(value) for value in b]
    difference = statistics.fmean(log_b) - statistics.fmean(log_a)
    square_a, square_b = statistics.variance(log_a) / len(a), statistics.variance(log_b) / len(b)
    error = math.sqrt(square_a + square_b)
    # Repeats equal to the last bit have no spread: the difference is then exact.
    if error < 1e-15:
        same = abs(difference) < 1e-15
        ratio = math.exp(difference)
        return Ratio(ratio, ratio, ratio, 1.0 if same else 0.0, math.inf)
    df = (square_a + square_b) ** 2 / (square_a**2 / (len(a) - 1) + square_b**2 / (len(b) - 1))
    df = max(df, 1.0)  # Welch's df is at least min(n) - 1; rounding may fall a hair short of it
    half = t_quantile((1 + _CONFIDENCE) / 2, df) * error
    p = min(2 * t_cdf(-abs(difference) / error, df), 1.0)
    return Ratio(math.exp(difference), math.exp(difference - half), math.exp(difference + half), p, df)


def trimmed_mean(values: Sequence[float], trim: float = 0.2) -> float:
    """The mean without a share ``trim`` of the values, rounded down, at each end."""
    return _trimmed(values, trim)[0] if len(values) > 1 else values[0]


def trimmed_difference(a: Sequence[float], b: Sequence[float], trim: float = 0.2) -> Difference | None:
    """The trimmed mean of ``b`` less that of ``a``; None with fewer than two values on a side.

    A share ``trim`` of the values, rounded down, is left out at each end of each side: with fewer than five
    values none is, and this is Welch's test. One reading far off, as a disturbed machine gives now and then,
    then neither moves the mean nor widens its error.

    Source: K. K. Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61 (1974).
    """
    if min(len(a), len(b)) < 2:
        return None
    (mean_a, square_a, left_a), (mean_b, square_b, left_b) = (_trimmed(side, trim) for side in (a, b))
    error = math.sqrt(square_a + square_b)
    if error < 1e-15:
        return Difference(mean_b - mean_a, 0.0, math.inf)
    df = (square_a + square_b) ** 2 / (square_a**2 / (left_a - 1) + square_b**2 / (left_b - 1))
    return Difference(mean_b - mean_a, error, max(df, 1.0))


def covariance_difference(
    a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]]
) -> Difference | None:
    """The mean of ``b`` less that of ``a`` where a covariate is equal: pairs of a value and its covariate.

    One slope is taken for both sides, from within each. None where the covariate does not vary within
    them, or there are fewer than four pairs in all.

    Source: W. G. Cochran, "Analysis of covariance: its nature and uses", Biometrics 13 (1957).
    """
    n = len(a) + len(b)
    if min(len(a), len(b)) < 1 or n < 4:
        return None
    (value_a, at_a), (value_b, at_b) = (
        (statistics.fmean(value for value, _ in side), statistics.fmean(at for _, at in side))
        for side in (a, b)
    )
    within = [(value - value_a, at - at_a) for value, at in a] + [
        (value - value_b, at - at_b) for value, at in b
    ]
    squares = sum(at * at for _, at in within)
    if squares < 1e-15:
        return None
    slope = sum(value * at for value, at in within) / squares
    left = sum((value - slope * at) ** 2 for value, at in within)
    df, apart = n - 3, at_b - at_a
    error = math.sqrt(left / df * (1 / len(a) + 1 / len(b) + apart**2 / squares))
    return Difference(value_b - value_a - slope * apart, error, float(df))


def _trimmed(values: Sequence[float], trim: float) -> tuple[float, float, int]:
    """The trimmed mean, the square of its standard error, and how many values are left."""
    ordered, n = sorted(values), len(values)
    cut = int(trim * n)
    left = n - 2 * cut
    inner = ordered[cut : n - cut]
    winsorised = [inner[0]] * cut + inner + [inner[-1]] * cut
    spread = (n - 1) * statistics.variance(winsorised)
    return statistics.fmean(inner), spread / (left * (left - 1)), left


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """The p-values, in their own order, corrected for how many there are.

    Calling different whatever stays under 0.05 errs in one family of 20 at most.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
    of Statistics 6 (1979).
    """
    corrected = [0.0] * len(p_values)
    floor = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = floor
    return tuple(corrected)


def share_upper(hits: int, of: int, confidence: float = _CONFIDENCE) -> float:
    """The exact one-sided upper bound of a share of which ``hits`` in ``of`` trials were seen (fractions).

    It is the share at which so few hits have a probability of 1 - ``confidence``.

    Source: C. J. Clopper, E. S. Pearson, Biometrika 26 (1934); Abramowitz and Stegun 26.5.24.
    """
    if hits >= of:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        few = 1 - _incomplete_beta(hits + 1, of - hits, middle)
        low, high = (middle, high) if few > 1 - confidence else (low, middle)
    return high


def percentile(sorted_values: Sequence[float], q: float) -> float | None:
    """The ``q`` quantile (0 < q < 1) of ascending values, in their unit, by nearest rank.

    Nearest rank: the value at place ceil(q n), so always one that was observed, and q of the values
    are at or under it. None unless at least five values are expected beyond it, n (1 - q) >= 5, and
    below it, n q >= 5: a p99 wants 500 values, a median 10.
    """
    if not 0 < q < 1:
        raise ValueError(f"a quantile between 0 and 1 is wanted, got {q}")
    n = len(sorted_values)
    # Rounded, since 50 * (1 - 0.9) is 4.999999999999999.
    if round(n * min(q, 1 - q), 9) < _MIN_BEYOND:
        return None
    return float(sorted_values[math.ceil(round(q * n, 9)) - 1])


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b).

    Source: continued fraction 26.5.8 of Abramowitz and Stegun, by W. J. Lentz's method (Applied
    Optics 15, 1976); DLMF 8.17.22.
    """
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    # The fraction converges fast only below the mean; above it the mirrored one does.
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _beta_fraction(a, b, x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    tiny, limit = 1e-300, 100_000
    c = 1.0
    d = 1 / _away_from_zero(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, limit):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d, tiny)
            c = _away_from_zero(1 + term / c, tiny)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            return value
    raise ArithmeticError(f"the incomplete beta function did not converge at {a}, {b}, {x}")


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a median by the sign test: order statistics; None with fewer than 6 values.

    Source: Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2: the widest pair of ranks
    (k, n + 1 - k) with P(X <= k - 1) <= 2.5 %, X binomial with n throws of a fair coin.
    """
    n, below, rank = len(values), 0, 0
    while (below := below + math.comb(n, rank)) <= 0.025 * 2**n:
        rank += 1
    ordered = sorted(values)
    return (ordered[rank - 1], ordered[n - rank]) if rank else None

"""Statistics against tabled and hand-computed values."""

import math
import random
import statistics

import pytest

from inferometer import stats


@pytest.mark.parametrize(
    ("p", "df", "value"),
    [  # NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 5, 2.5706),
        (0.975, 30, 2.0423),
        (0.95, 10, 1.8125),
        (0.999, 1, 318.3088),
        (0.9, 3, 1.6377),
        (0.025, 5, -2.5706),
    ],
)
def test_t_quantiles_are_the_tabled_ones(p, df, value):
    assert stats.t_quantile(p, df) == pytest.approx(value, abs=5.1e-5)


@pytest.mark.parametrize("p", [0.5001, 0.6, 0.75, 0.9, 0.975, 0.995, 0.9999])
def test_t_quantiles_are_exact_where_a_closed_form_exists(p):
    cauchy = math.tan(math.pi * (p - 0.5))
    assert stats.t_quantile(p, 1) == pytest.approx(cauchy, rel=1e-6, abs=1e-6)
    two = (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    assert stats.t_quantile(p, 2) == pytest.approx(two, rel=1e-6, abs=1e-6)
    assert stats.t_quantile(p, 1e9) == pytest.approx(statistics.NormalDist().inv_cdf(p), abs=1e-6)


def test_t_quantile_takes_welchs_fractional_degrees_of_freedom():
    # By Simpson's rule on the density, an oracle that knows nothing of the beta function.
    df = 2.7
    norm = math.gamma((df + 1) / 2) / math.sqrt(df * math.pi) / math.gamma(df / 2)
    t, n = stats.t_quantile(0.975, df), 20_000
    weights = [1 if i in (0, n) else 4 if i % 2 else 2 for i in range(n + 1)]
    area = sum(w * (1 + (t * i / n) ** 2 / df) ** (-(df + 1) / 2) for i, w in enumerate(weights))
    assert 0.5 + norm * area * t / n / 3 == pytest.approx(0.975, abs=1e-9)
    assert stats.t_quantile(0.975, 2) > t > stats.t_quantile(0.975, 3)


@pytest.mark.parametrize(("p", "df"), [(0, 3), (1, 3), (math.nan, 3), (0.9, 0.5), (0.9, math.nan)])
def test_t_quantile_refuses_what_has_no_answer(p, df):
    with pytest.raises(ValueError, match="wanted"):
        stats.t_quantile(p, df)


@pytest.mark.parametrize("df", [1, 3.3, 400, 1e6])
def test_t_cdf_is_the_inverse_in_both_tails(df):
    for p in (1e-6, 0.2, 0.5, 0.7, 1 - 1e-6):
        assert stats.t_cdf(stats.t_quantile(p, df), df) == pytest.approx(p, rel=1e-6)


def test_mean_interval_by_hand():
    # mean 100, s = 2, standard error 2 / sqrt(3), t = 4.302653
    found = stats.mean_interval([98.0, 100.0, 102.0])
    assert (found.mean, found.n) == (100.0, 3)
    assert found.hi - 100 == pytest.approx(4.302653 * 2 / math.sqrt(3), abs=1e-5)
    assert 100 - found.lo == pytest.approx(found.hi - 100)
    wide = stats.mean_interval([98.0, 100.0, 102.0], confidence=0.99)
    assert wide.hi - 100 == pytest.approx(9.924843 * 2 / math.sqrt(3), abs=1e-5)


def test_one_value_has_no_interval():
    assert stats.mean_interval([]) is None
    assert stats.mean_interval([3.0]) is None


def test_rate_interval_centres_on_total_over_total():
    # Five windows, each its own batch: s = sqrt(2.5), half-width 2.776445 * sqrt(2.5 / 5).
    lo, hi = stats.rate_interval(1000, 10.0, [98, 99, 100, 101, 102])
    assert (lo + hi) / 2 == pytest.approx(100.0)
    assert hi - 100 == pytest.approx(2.776445 * math.sqrt(0.5), abs=1e-5)


def test_rate_interval_averages_batches_first():
    # 20 windows in 10 batches of two whose means are all 100, so nothing is left of the alternation.
    assert stats.rate_interval(2000, 20.0, [90, 110] * 10) == pytest.approx((100.0, 100.0))
    # A slow swing survives the averaging: batch means 90 x 5, 110 x 5.
    lo, hi = stats.rate_interval(2000, 20.0, [90.0] * 10 + [110.0] * 10)
    s = math.sqrt(10 * 100 / 9)
    assert hi - lo == pytest.approx(2 * 2.262157 * s / math.sqrt(10), abs=1e-4)


def test_rate_interval_wants_five_windows():
    assert stats.rate_interval(400, 4.0, [100.0] * 4) is None
    assert stats.rate_interval(0, 0.0, [100.0] * 5) is None


def test_ratio_interval_by_hand():
    # Equal spreads and n: Welch is Student's with 4 degrees of freedom, on logarithms.
    step = math.log(1.01)
    a = [math.exp(-step), 1.0, math.exp(step)]
    b = [2 * value for value in a]
    found = stats.ratio_interval(a, b)
    half = 2.776445 * math.sqrt(2 * step**2 / 3)
    assert found.ratio == pytest.approx(2.0)
    assert found.df == pytest.approx(4.0)
    assert (found.lo, found.hi) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)), rel=1e-6)
    assert found.p < 1e-5
    swapped = stats.ratio_interval(b, a)
    assert (swapped.ratio, swapped.lo) == pytest.approx((0.5, 1 / found.hi))


def test_welch_degrees_of_freedom_and_p_value():
    # Logarithms 0, 1 against 0, 2, 4: variances 0.5 / 2 and 4 / 3, difference 1.5.
    found = stats.ratio_interval([1.0, math.e], [1.0, math.exp(2), math.exp(4)])
    va, vb = 0.25, 4 / 3
    df = (va + vb) ** 2 / (va**2 / 1 + vb**2 / 2)
    assert found.df == pytest.approx(df)
    assert found.ratio == pytest.approx(math.exp(1.5))
    t = 1.5 / math.sqrt(va + vb)
    assert found.p == pytest.approx(2 * (1 - stats.t_cdf(t, df)))
    assert found.lo < 1 < found.hi


def test_ratio_without_spread_is_exact():
    same = stats.ratio_interval([5.0, 5.0], [5.0, 5.0])
    assert (same.ratio, same.lo, same.hi, same.p) == (1.0, 1.0, 1.0, 1.0)
    double = stats.ratio_interval([5.0, 5.0], [10.0, 10.0])
    assert (double.lo, double.hi, double.p) == (pytest.approx(2.0), pytest.approx(2.0), 0.0)


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([1.0, 2.0], []), ([0.0, 1.0], [1.0, 2.0])])
def test_no_ratio_without_repeats_or_positive_rates(a, b):
    assert stats.ratio_interval(a, b) is None


def test_ratio_interval_covers_the_truth_as_often_as_it_says():
    random.seed(1)
    hits = 0
    for _ in range(1000):
        a = [math.exp(random.gauss(0, 0.02)) for _ in range(3)]
        b = [2 * math.exp(random.gauss(0, 0.05)) for _ in range(3)]
        found = stats.ratio_interval(a, b)
        hits += found.lo <= 2 <= found.hi
    assert 930 <= hits <= 985  # 950 expected; Welch is a little cautious with three values


def test_holm_by_hand():
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 and then never falling.
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert stats.holm([0.9, 0.8]) == (1.0, 1.0)
    assert stats.holm([]) == ()


def test_percentile_is_the_nearest_rank():
    values = [float(i) for i in range(1, 1001)]
    assert stats.percentile(values, 0.5) == 500.0
    assert stats.percentile(values, 0.9) == 900.0
    assert stats.percentile(values, 0.99) == 990.0
    assert stats.percentile(values[:11], 0.5) == 6.0


@pytest.mark.parametrize(("q", "least"), [(0.5, 10), (0.9, 50), (0.95, 100), (0.99, 500), (0.1, 50)])
def test_percentile_wants_five_values_beyond(q, least):
    values = [1.0] * least
    assert stats.percentile(values, q) == 1.0
    assert stats.percentile(values[1:], q) is None


def test_percentile_refuses_the_ends():
    with pytest.raises(ValueError, match="quantile"):
        stats.percentile([1.0] * 100, 1.0)


@pytest.mark.parametrize(("n", "ranks"), [(5, None), (6, (1, 6)), (10, (2, 9)), (12, (3, 10)), (20, (6, 15))])
def test_the_interval_of_a_median_lies_between_the_ranks_of_the_sign_test(
    n: int, ranks: tuple[int, int] | None
) -> None:
    # Source: tables of binomial confidence limits for the median, 95 %.
    values = random.Random(0).sample(range(1, n + 1), n)
    assert stats.median_interval([float(value) for value in values]) == ranks


def test_the_trimmed_difference_is_the_published_test() -> None:
    """By scipy 1.16: ``ttest_ind(b, a, equal_var=False, trim=0.2)``."""
    a, b = [10.1, 9.8, 10.3, 10.0, 14.0, 9.9, 10.2], [10.6, 10.4, 10.9, 10.5, 10.7]
    found = stats.trimmed_difference(a, b)
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert found.value / found.error == pytest.approx(3.9946773096848)
    assert found.df == pytest.approx(5.778940483976)


def test_with_fewer_than_five_values_nothing_is_trimmed() -> None:
    a, b = [1.0, 2.0, 4.0, 3.0], [2.0, 3.0, 7.0]
    found = stats.trimmed_difference(a, b)
    assert found is not None
    assert found.value == pytest.approx(1.5)
    assert found.error**2 == pytest.approx(statistics.variance(a) / 4 + statistics.variance(b) / 3)
    assert stats.trimmed_difference([1.0], b) is None
    assert stats.trimmed_difference([2.0, 2.0], [3.0, 3.0]) == stats.Difference(1.0, 0.0, math.inf)


@pytest.mark.parametrize(
    ("hits", "of", "bound"),
    [(0, 59, 1 - 0.05 ** (1 / 59)), (3, 3, 1.0), (1, 2, math.sqrt(0.95)), (10, 2000, 0.00846635)],
)
def test_the_exact_bound_of_a_share(hits: int, of: int, bound: float) -> None:
    """The last by scipy: ``beta.ppf(0.95, 11, 1990)``."""
    assert stats.share_upper(hits, of) == pytest.approx(bound, abs=1e-6)

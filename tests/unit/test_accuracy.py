import math
from fractions import Fraction

import numpy as np
import pytest

from inferometer.accuracy import (
    agreement,
    hits,
    mcnemar_p,
    paired_difference,
    score,
    tango_interval,
    top_k,
    wilson_interval,
)
from inferometer.errors import DataError

Z = 1.959963984540054


def outcomes(both, only_a, only_b, neither):
    """Two bool vectors with these counts, shuffled together."""
    a = np.repeat([True, True, False, False], [both, only_a, only_b, neither])
    b = np.repeat([True, False, True, False], [both, only_a, only_b, neither])
    places = np.random.default_rng(0).permutation(len(a))
    return a[places], b[places]


def test_top_k():
    logits = np.array([[0.1, 0.9, 0.5], [3.0, 1.0, 2.0]], dtype=np.float32)
    top = top_k(logits, 2)
    assert top.dtype == np.int64
    assert top.tolist() == [[1, 2], [0, 2]]


def test_ties_go_to_the_lower_class():
    assert top_k(np.array([[1.0, 2.0, 2.0, 1.0, 2.0]]), 4).tolist() == [[1, 2, 4, 0]]
    assert top_k(np.zeros((1, 1000), dtype=np.float16), 5).tolist() == [[0, 1, 2, 3, 4]]
    assert top_k(np.array([[np.inf, -np.inf, np.inf]]), 3).tolist() == [[0, 2, 1]]


def test_other_dtypes_and_shapes():
    assert top_k(np.array([[0, 255, 7]], dtype=np.uint8), 2).tolist() == [[1, 2]]
    assert top_k(np.array([[-128, 127, 7]], dtype=np.int8), 3).tolist() == [[1, 2, 0]]
    assert top_k(np.array([1.0, 3.0, 2.0]).reshape(1, 3, 1, 1), 1).tolist() == [[1]]
    assert top_k(np.zeros((0, 4)), 2).shape == (0, 2)


def test_outputs_that_cannot_be_ranked():
    logits = np.zeros((4, 3))
    logits[1, 2] = logits[3, 0] = np.nan
    with pytest.raises(DataError, match=r"NaN for 2 of 4 images \(first: number 1\)"):
        top_k(logits, 1)
    for k in (0, 4):
        with pytest.raises(DataError, match="of 3 classes"):
            top_k(np.zeros((2, 3)), k)
    for shape in ((3,), (1, 3, 2, 2)):
        with pytest.raises(DataError, match="no class scores"):
            top_k(np.zeros(shape), 1)


def test_score():
    top = np.array([[0, 1, 2, 3, 4], [1, 0, 2, 3, 4], [5, 6, 7, 8, 9], [4, 3, 2, 1, 0]])
    labels = np.array([0, 0, 0, 0])
    assert score(top, labels) == (0.25, 0.75)
    assert score(top[:, :4], labels) == (0.25, None)
    assert hits(top, labels, 2).tolist() == [True, True, False, False]
    with pytest.raises(DataError, match="no image"):
        score(top[:0], labels[:0])
    with pytest.raises(DataError, match="do not fit"):
        score(top, labels[:3])


def test_agreement():
    assert agreement(np.array([1, 2, 3, 4]), np.array([1, 2, 0, 4])) == 0.75
    with pytest.raises(DataError, match="no pairs"):
        agreement(np.array([1]), np.array([1, 2]))
    with pytest.raises(DataError, match="no image"):
        agreement(np.array([]), np.array([]))


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (0, 5), (1, 7), (3, 3), (3, 4), (12, 2), (30, 55)])
def test_mcnemar_against_the_binomial_table(only_a, only_b):
    throws = only_a + only_b
    # Two-sided by its definition: all outcomes that are no likelier than the one observed.
    ways = [math.comb(throws, heads) for heads in range(throws + 1)]
    expected = Fraction(sum(way for way in ways if way <= ways[only_a]), 2**throws)
    assert mcnemar_p(only_a, only_b) == mcnemar_p(only_b, only_a) == float(expected)


def test_mcnemar_published_and_large():
    assert mcnemar_p(1, 7) == 0.0703125  # Fagerland, Lydersen, Laake 2013: 0.0703
    z = (20_400 - 20_000 - 1) / math.sqrt(40_400)
    assert mcnemar_p(20_000, 20_400) == pytest.approx(math.erfc(z / math.sqrt(2)), rel=1e-3)
    assert 0 <= mcnemar_p(0, 3000) < 1e-300


def test_tango_published():
    # Fagerland, Lydersen, Laake 2014, airway hyper-responsiveness, 21 children: -0.517 to -0.026.
    assert tango_interval(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)


def score_by_brute_force(only_b, only_a, n, delta):
    """The score statistic with the restricted likelihood maximised numerically instead of in closed form."""
    same = n - only_a - only_b

    def log_likelihood(q):
        p = q + delta
        parts = ((only_b, p), (only_a, q), (same, 1 - p - q))
        return sum(count * math.log(max(chance, 1e-300)) for count, chance in parts if count)

    low, high = max(0.0, -delta), (1 - delta) / 2
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if log_likelihood(left) < log_likelihood(right):
            low = left
        else:
            high = right
    q = (low + high) / 2
    return (only_b - only_a - n * delta) / math.sqrt(n * (2 * q + delta - delta * delta))


@pytest.mark.parametrize(
    ("only_b", "only_a", "n"),
    [(7, 1, 21), (3, 5, 50), (0, 6, 40), (14, 9, 500), (1, 0, 10), (400, 380, 1000)],
)
def test_tango_bounds_are_where_the_score_is_1_96(only_b, only_a, n):
    low, high = tango_interval(only_b, only_a, n)
    assert -1 < low < (only_b - only_a) / n < high < 1
    assert score_by_brute_force(only_b, only_a, n, low) == pytest.approx(Z, abs=1e-4)
    assert score_by_brute_force(only_b, only_a, n, high) == pytest.approx(-Z, abs=1e-4)
    assert tango_interval(only_a, only_b, n) == pytest.approx((-high, -low), abs=1e-12)


def test_tango_at_the_edges():
    # No discordant pair: (delta n)^2 = z^2 n |delta| (1 - |delta|), so |delta| = z^2 / (n + z^2).
    edge = Z**2 / (10 + Z**2)
    assert tango_interval(0, 0, 10) == pytest.approx((-edge, edge), abs=1e-9)
    assert tango_interval(10, 0, 10)[1] == 1.0
    assert tango_interval(0, 10, 10)[0] == -1.0


@pytest.mark.parametrize(("p_b", "p_a"), [(0.1, 0.1), (0.2, 0.05), (0.05, 0.02), (0.3, 0.3)])
def test_tango_covers_the_truth(p_b, p_a):
    """Exact coverage: every possible outcome of 40 pairs, weighted by its probability."""
    n, covered = 40, 0.0
    for b in range(n + 1):
        for a in range(n + 1 - b):
            chance = math.comb(n, b) * math.comb(n - b, a) * p_b**b * p_a**a * (1 - p_a - p_b) ** (n - a - b)
            if chance > 1e-7:
                low, high = tango_interval(b, a, n)
                covered += chance * (low <= p_b - p_a <= high)
    assert 0.93 < covered < 0.99


def test_a_real_loss():
    found = paired_difference(*outcomes(850, 30, 12, 108))
    assert (found.n, found.only_a, found.only_b, found.delta) == (1000, 30, 12, -0.018)
    tail = Fraction(sum(math.comb(42, heads) for heads in range(13)), 2**41)
    assert found.p == float(tail)
    assert found.p < 0.01
    assert found.verdict == "a real loss"
    assert found.ci95[0] < -0.018 < found.ci95[1] < 0
    assert found.images_to_settle is None
    assert paired_difference(*outcomes(850, 12, 30, 108)).verdict == "a real gain"


def test_within_noise():
    found = paired_difference(*outcomes(430, 8, 4, 58))
    assert found.verdict == "within noise"
    assert found.ci95[0] < 0 < found.ci95[1]
    same = paired_difference(*outcomes(5, 0, 0, 5))
    assert (same.delta, same.p, same.verdict, same.images_to_settle) == (0.0, 1.0, "within noise", None)
    level = paired_difference(*outcomes(5, 3, 3, 5))
    assert (level.delta, level.p, level.images_to_settle) == (0.0, 1.0, None)


@pytest.mark.parametrize(
    ("only_a", "only_b", "n"), [(8, 4, 500), (30, 20, 500), (0, 1, 500), (5, 0, 100), (101, 99, 400)]
)
def test_images_to_settle_would_settle(only_a, only_b, n):
    found = paired_difference(*outcomes(n - only_a - only_b, only_a, only_b, 0))
    assert found.verdict == "within noise"
    assert found.images_to_settle is not None
    assert found.images_to_settle >= 1
    factor = (n + found.images_to_settle) / n
    assert mcnemar_p(math.floor(min(only_a, only_b) * factor), math.ceil(max(only_a, only_b) * factor)) < 0.05
    sparing = 0.7 * factor
    assert (
        mcnemar_p(math.ceil(min(only_a, only_b) * sparing), math.floor(max(only_a, only_b) * sparing)) > 0.05
    )


def test_a_significant_difference_has_an_interval_without_zero():
    for throws in range(1, 120):
        for heads in range(throws // 2 + 1):
            if mcnemar_p(heads, throws - heads) < 0.05:
                assert (throws - 2 * heads) / math.sqrt(throws) > Z  # Tango's score at 0
    for only_a, only_b in ((6, 0), (9, 1), (17, 6), (30, 14)):
        assert mcnemar_p(only_a, only_b) < 0.05
        assert tango_interval(only_b, only_a, 1000)[1] < 0


def test_pairs_must_be_pairs():
    with pytest.raises(DataError, match="no pairs of the same images"):
        paired_difference(np.array([True]), np.array([True, False]))
    with pytest.raises(DataError, match="no image to compare on"):
        paired_difference(np.array([], dtype=bool), np.array([], dtype=bool))


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_published(k, n, low, high):
    assert wilson_interval(k, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(n - k, n) == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_wilson_refuses_nonsense():
    for k, n in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(DataError, match="no accuracy"):
            wilson_interval(k, n)

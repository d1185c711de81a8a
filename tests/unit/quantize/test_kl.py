import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from inferometer.errors import CalibrationError
from inferometer.published import loader
from inferometer.quantize.histogram import BINS, count_magnitudes
from inferometer.quantize.kl import LEVELS, kl_divergences, kl_threshold, spread_levels


def divergence_by_hand(counts: list[int], i: int, levels: int) -> float:
    """The published words, bin by bin."""
    p = [float(count) for count in counts[:i]]
    p[-1] += sum(counts[i:])
    q = [0.0] * i
    for level in range(levels):
        bins = [j for j in range(i) if levels * j // i == level]
        filled = [j for j in bins if p[j] > 0]
        for j in filled:
            q[j] = sum(counts[k] for k in bins) / len(filled)
    total_p, total_q = sum(p), sum(q)
    if total_q == 0:
        return math.inf
    result = 0.0
    for a, b in zip(p, q, strict=True):
        if a > 0 and b == 0:
            return math.inf
        if a > 0:
            result += a / total_p * math.log((a / total_p) / (b / total_q))
    return result


def agree(found: float, expected: float) -> bool:
    return found == expected if math.isinf(expected) else abs(found - expected) < 1e-9


def test_worked_example_of_the_talk() -> None:
    p = np.array([1.0, 0, 2, 3, 5, 3, 1, 7])
    assert spread_levels(p, p, 2).tolist() == [2, 0, 2, 2, 4, 4, 4, 4]


def test_worked_example_and_sizes_are_those_of_the_published_data() -> None:
    text = (Path(loader.__file__).parent / "data" / "nvidia-2017-gtc-8bit-inference.yaml").read_text("utf-8")
    published = yaml.safe_load(text)["calibration_algorithm"]
    assert (published["histogram_bins"], published["quantized_levels"]) == (BINS, LEVELS)
    example = published["worked_example"]
    p = np.array(example["P"], float)
    assert spread_levels(p, p, example["levels"]).tolist() == example["Q"]


def test_a_bin_that_only_outliers_fill_shares_its_level_count() -> None:
    # Two bins a level; the last is empty without the outliers, non-empty with them: 6 spread over two bins.
    assert spread_levels(np.array([4.0, 2, 6, 9]), np.array([4.0, 2, 6, 0]), 2).tolist() == [3, 3, 3, 3]


def test_divergence_worked_out_on_paper() -> None:
    # Four bins, two levels. i=2: P=[1,7]/8, Q=[1,2]/3; i=3: levels {0,1},{2}: P=[1,2,5]/8, Q=[1.5,1.5,1]/4.
    found = kl_divergences(np.array([1, 2, 1, 4]), levels=2)
    two = 1 / 8 * math.log((1 / 8) / (1 / 3)) + 7 / 8 * math.log((7 / 8) / (2 / 3))
    three = (
        1 / 8 * math.log((1 / 8) / (1.5 / 4)) + 2 / 8 * math.log((2 / 8) / (1.5 / 4))
        + 5 / 8 * math.log((5 / 8) / (1 / 4))
    )  # fmt: skip
    assert found == pytest.approx([two, three], abs=1e-12)


def test_seeded_laplace_sample() -> None:
    values = np.abs(np.random.default_rng(0).laplace(size=200_000))
    top = float(values.max())
    counts = np.histogram(values, bins=2048, range=(0, top))[0]
    assert round(top, 3) == 13.498
    assert round(kl_threshold(counts, top).threshold, 3) == 10.041


def test_seeded_laplace_sample_through_our_own_histogram() -> None:
    values = np.abs(np.random.default_rng(0).laplace(size=200_000)).astype(np.float32)
    counts = count_magnitudes(values, float(values.max()), 2048)
    assert counts.sum() == 200_000
    assert round(kl_threshold(counts[:-1], float(values.max())).threshold, 3) == 10.041


def test_as_many_levels_as_bins_could_only_give_the_maximum_and_are_refused() -> None:
    # What onnxruntime does by default: 128 bins for 128 levels. Each bin is a level, so nothing is lost
    # by keeping all of them: Q is P, and the maximum, 13.498 here, always wins.
    values = np.abs(np.random.default_rng(0).laplace(size=200_000))
    counts = np.histogram(values, bins=128, range=(0, values.max()))[0]
    assert spread_levels(counts.astype(float), counts.astype(float), 128).tolist() == counts.tolist()
    with pytest.raises(CalibrationError, match="more than 128 bins, not 128: use 2048"):
        kl_threshold(counts, float(values.max()))


@pytest.mark.parametrize("kind", ["random", "sparse", "exponential", "outlier"])
def test_every_candidate_of_2048_bins_is_as_by_hand(kind: str) -> None:
    rng = np.random.default_rng(3)
    counts = {
        "random": rng.integers(0, 1000, 2048),
        "sparse": rng.integers(0, 50, 2048) * (rng.random(2048) < 0.02),
        "exponential": (1e5 * np.exp(-np.arange(2048) / 150)).astype(np.int64),
        "outlier": np.r_[rng.integers(1, 1000, 400), np.zeros(1647, np.int64), 3],
    }[kind]
    found = kl_divergences(counts)
    assert len(found) == 2048 - 128
    for i in [128, 129, 255, 256, 400, 401, 777, 1024, 2000, 2047]:
        assert agree(found[i - 128], divergence_by_hand(counts.tolist(), i, 128)), i


@settings(max_examples=150, deadline=None)
@given(hnp.arrays(np.int64, 24, elements=st.integers(0, 12) | st.just(0)), st.integers(2, 9))
def test_small_histograms_are_as_by_hand(counts: np.ndarray, levels: int) -> None:
    found = kl_divergences(counts, levels)
    expected = [divergence_by_hand(counts.tolist(), i, levels) for i in range(levels, 24)]
    assert all(agree(a, b) for a, b in zip(found, expected, strict=True))
    result = kl_threshold(counts, 2.4, levels)
    if result.divergence is None:
        assert result.threshold == 2.4
        assert min(expected) == math.inf
    else:
        assert result.threshold == pytest.approx((result.bins + 0.5) * 0.1)
        assert expected[result.bins - levels] <= min(expected) + 1e-9


@pytest.mark.parametrize("filled", [[], [2047]])
def test_nothing_to_choose_from_gives_the_maximum(filled: list[int]) -> None:
    # Empty; or a constant tensor: without its outliers every candidate is empty.
    counts = np.zeros(2048, np.int64)
    counts[filled] = 7
    result = kl_threshold(counts, 5.0)
    assert (result.threshold, result.bins, result.divergence) == (5.0, 2048, None)


def test_scaling_the_counts_changes_nothing() -> None:
    counts = np.random.default_rng(5).integers(0, 99, 2048)
    once, often = kl_threshold(counts, 1.0), kl_threshold(counts * 10**9, 1.0)
    assert once.bins == often.bins
    assert once.divergence == pytest.approx(often.divergence, rel=1e-9)


@pytest.mark.parametrize(
    ("counts", "word"), [(np.ones(128, np.int64), "128 bins"), (-np.ones(300, np.int64), "negative")]
)
def test_unusable_histograms_are_refused(counts: np.ndarray, word: str) -> None:
    with pytest.raises(CalibrationError, match=word):
        kl_threshold(counts, 1.0)

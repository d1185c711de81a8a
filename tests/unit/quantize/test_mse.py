import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from inferometer.quantize.histogram import count_magnitudes
from inferometer.quantize.mse import (
    SIGNED_STEPS,
    UNSIGNED_STEPS,
    expected_errors,
    levels_of,
    mse_threshold,
)


def error_of(values: np.ndarray, threshold: float, levels: int) -> float:
    """Quantizes every value and looks at what came of it."""
    step = threshold / levels
    quantized = np.minimum(np.round(values / step), levels) * step
    return float(np.mean((values - quantized) ** 2))


def spread(counts: np.ndarray, per_bin: int = 2000) -> np.ndarray:
    """Bins filled evenly: each of its values many times, in bin widths."""
    places = (np.arange(per_bin) + 0.5) / per_bin
    filled = np.repeat(np.arange(len(counts)), counts)
    return (filled[:, None] + places).reshape(-1)


def test_errors_worked_out_on_paper() -> None:
    # One value evenly in [1, 2), two levels. T = 1: all above, (x - 1)^2 averages 1/3. T = 2: steps of 1, so
    # the nearest level is half a step away at most: 1/12.
    assert expected_errors(np.array([0, 1]), 2) == pytest.approx([1 / 3, 1 / 12], rel=1e-12)
    # One level: T = 1 as before; T = 2 has the levels 0 and 2, and from 1 on 2 is nearer: 1/3.
    assert expected_errors(np.array([0, 1]), 1) == pytest.approx([1 / 3, 1 / 3], rel=1e-12)


@settings(max_examples=80, deadline=None)
@given(hnp.arrays(np.int64, 12, elements=st.integers(0, 4) | st.just(0)), st.integers(1, 9))
def test_small_histograms_are_as_by_quantizing(counts: np.ndarray, levels: int) -> None:
    if not counts.any():
        assert mse_threshold(counts, 3.0, levels) == 3
        return
    found = expected_errors(counts, levels)
    values = spread(counts)
    assert found == pytest.approx([error_of(values, edge, levels) for edge in range(1, 13)], rel=1e-3)
    edge = round(mse_threshold(counts, 12.0, levels))
    assert found[edge - 1] <= found.min() * (1 + 1e-8)


@pytest.mark.parametrize("levels", [SIGNED_STEPS, UNSIGNED_STEPS])
@pytest.mark.parametrize("kind", ["exponential", "outlier", "sparse"])
def test_2048_bins_are_as_by_quantizing(kind: str, levels: int) -> None:
    rng = np.random.default_rng(3)
    counts = {
        "exponential": (300 * np.exp(-np.arange(2048) / 150)).astype(np.int64),
        "outlier": np.r_[rng.integers(1, 20, 400), np.zeros(1647, np.int64), 3],
        "sparse": rng.integers(0, 50, 2048) * (rng.random(2048) < 0.02),
    }[kind]
    found = expected_errors(counts, levels)
    values = spread(counts, 200)
    for edge in [1, 63, 128, 255, 700, 1999, 2048]:
        assert found[edge - 1] == pytest.approx(error_of(values, edge, levels), rel=1e-3), edge


@pytest.mark.parametrize("levels", [SIGNED_STEPS, UNSIGNED_STEPS])
def test_no_threshold_serves_the_values_themselves_better(levels: int) -> None:
    values = np.abs(np.random.default_rng(0).laplace(size=200_000)).astype(np.float32)
    top = float(values.max())
    threshold = mse_threshold(count_magnitudes(values, top, 2048)[:-1], top, levels)
    assert 0.4 * top < threshold < 0.9 * top
    least = min(error_of(values, part * top, levels) for part in np.linspace(0.3, 1, 141))
    assert error_of(values, threshold, levels) <= least * 1.002


def test_more_levels_saturate_less() -> None:
    counts = (1e5 * np.exp(-np.arange(2048) / 150)).astype(np.int64)
    assert mse_threshold(counts, 1.0, SIGNED_STEPS) < mse_threshold(counts, 1.0, UNSIGNED_STEPS)


def test_levels_follow_from_the_sign() -> None:
    assert [levels_of(lo) for lo in (-1e-9, 0.0, 0.5)] == [127, 255, 255]


def test_a_few_values_keep_the_largest() -> None:
    grey = (np.random.default_rng(0).integers(0, 17, 10_000) / 16).astype(np.float32)
    for levels in (SIGNED_STEPS, UNSIGNED_STEPS):
        assert mse_threshold(count_magnitudes(grey, 1.0, 2048)[:-1], 1.0, levels) > 0.99


def test_a_tensor_of_one_value_keeps_it() -> None:
    # Both edges of the last bin are as far from its values: the larger is taken, which is the value.
    counts = np.zeros(2048, np.int64)
    counts[-1] = 7
    assert mse_threshold(counts, 3.0, SIGNED_STEPS) == 3


def test_many_counts_are_no_trouble() -> None:
    counts = np.random.default_rng(5).integers(0, 99, 2048)
    assert expected_errors(counts * 10**13, 127) == pytest.approx(expected_errors(counts, 127), rel=1e-9)

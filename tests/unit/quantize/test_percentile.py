import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from inferometer.errors import CalibrationError
from inferometer.quantize.histogram import count_magnitudes
from inferometer.quantize.percentile import PERCENTILE, percentile_threshold


def by_hand(counts: list[int], max_abs: float, percentile: float) -> float:
    """Walks through the bins and counts."""
    left = sum(counts) * (percentile / 100)
    for bin_, count in enumerate(counts):
        if count >= left:
            return (bin_ + left / count) * max_abs / len(counts)
        left -= count
    return max_abs


def test_percentiles_worked_out_on_paper() -> None:
    # Ten values in bins of width 2: nine of them end with the third bin, 95 % lie half way into the fourth.
    counts = np.array([4, 0, 5, 1])
    assert percentile_threshold(counts, 8.0, 50) == pytest.approx(4.4)
    assert percentile_threshold(counts, 8.0, 90) == 6
    assert percentile_threshold(counts, 8.0, 95) == 7
    assert percentile_threshold(counts, 8.0, 100) == 8


@pytest.mark.parametrize("percentile", [50, 99, 99.9, PERCENTILE, 99.999])
@pytest.mark.parametrize("kind", ["laplace", "normal", "uniform"])
def test_the_share_of_the_values_lies_below(kind: str, percentile: float) -> None:
    rng = np.random.default_rng(4)
    values = np.abs({"laplace": rng.laplace, "normal": rng.standard_normal, "uniform": rng.random}[kind](
        size=300_000
    )).astype(np.float32)  # fmt: skip
    top = float(values.max())
    found = percentile_threshold(count_magnitudes(values, top, 2048)[:-1], top, percentile)
    exact = float(np.quantile(values, percentile / 100, method="inverted_cdf"))
    assert abs(found - exact) <= top / 2048


def test_exact_zeros_do_not_count() -> None:
    values = np.abs(np.random.default_rng(5).standard_normal(100_000)).astype(np.float32)
    top = float(values.max())
    often = np.r_[values, np.zeros(900_000, np.float32)]
    alone, diluted = (count_magnitudes(x, top, 2048)[:-1] for x in (values, often))
    assert percentile_threshold(alone, top) == percentile_threshold(diluted, top)
    # As the module says: of all values, zeros among them, 99.999 % are 99.99 % of the others.
    all_values = float(np.quantile(often, 0.99999))
    assert abs(percentile_threshold(diluted, top, 99.99) - all_values) <= top / 2048


@settings(max_examples=150, deadline=None)
@given(
    hnp.arrays(np.int64, st.integers(1, 24), elements=st.integers(0, 12) | st.just(0)),
    st.floats(50, 99.9999),
)
def test_small_histograms_are_as_by_hand(counts: np.ndarray, percentile: float) -> None:
    expected = by_hand(counts.tolist(), 2.4, percentile) if counts.any() else 2.4
    found = percentile_threshold(counts, 2.4, percentile)
    assert found <= 2.4
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_tensor_of_one_value_keeps_it() -> None:
    counts = np.zeros(2048, np.int64)
    counts[-1] = 1000
    assert percentile_threshold(counts, 3.0) == pytest.approx(3, rel=1e-6)


def test_nothing_to_choose_from_gives_the_maximum() -> None:
    assert percentile_threshold(np.zeros(2048, np.int64), 5.0) == 5
    assert percentile_threshold(np.empty(0, np.int64), 5.0) == 5


@pytest.mark.parametrize("percentile", [0.9999, -1, 100.01, float("nan")])
def test_what_is_no_percentile_is_refused(percentile: float) -> None:
    with pytest.raises(CalibrationError, match=r"from 50 to 100, not .*: 99.99 is usual"):
        percentile_threshold(np.ones(2048, np.int64), 1.0, percentile)

import numpy as np
import pytest

from inferometer.errors import CalibrationError
from inferometer.quantize.histogram import count_magnitudes
from inferometer.quantize.kl import kl_threshold
from inferometer.quantize.methods import METHODS, method_named


def counts_of(values: np.ndarray) -> np.ndarray:
    return count_magnitudes(values.astype(np.float32), float(np.abs(values).max()), 2048)[:-1]


def test_methods_by_name() -> None:
    assert set(METHODS) >= {"kl", "minmax"}
    assert all(method.name == name for name, method in METHODS.items())
    with pytest.raises(CalibrationError, match="'minmx'; did you mean 'minmax'"):
        method_named("minmx")


def test_minmax_is_the_maximum() -> None:
    assert METHODS["minmax"].threshold(np.empty(0, np.int64), 2.5) == 2.5


def test_kl_of_a_distribution_is_the_published_search() -> None:
    values = np.random.default_rng(0).standard_normal(100_000)
    top = float(np.abs(values).max())
    found = METHODS["kl"].threshold(counts_of(values), top)
    assert found == kl_threshold(counts_of(values), top).threshold
    assert 0.5 * top < found < top


def test_kl_of_a_few_values_is_the_maximum() -> None:
    # Digits of 17 grey levels: the search alone would saturate at the lowest, with a divergence of 0.
    grey = np.random.default_rng(0).integers(0, 17, 10_000) / 16
    assert kl_threshold(counts_of(grey), 1.0).threshold == pytest.approx(129.5 / 2048)
    assert METHODS["kl"].threshold(counts_of(grey), 1.0) == 1.0


def test_kl_of_a_few_hundred_values_is_near_the_maximum() -> None:
    grey = np.random.default_rng(0).integers(0, 256, 100_000) / 255
    assert METHODS["kl"].threshold(counts_of(grey), 1.0) > 0.99

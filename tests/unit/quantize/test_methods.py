from typing import get_args

import numpy as np
import pytest
from pydantic import ValidationError

from inferometer.config import CalibrationSection
from inferometer.errors import CalibrationError
from inferometer.quantize.histogram import Range, count_magnitudes
from inferometer.quantize.kl import kl_threshold
from inferometer.quantize.methods import METHODS, method_named
from inferometer.quantize.mse import mse_threshold
from inferometer.quantize.percentile import LOWEST, percentile_threshold
from inferometer.trials.spec import CalibrationTask


def counts_of(values: np.ndarray) -> np.ndarray:
    return count_magnitudes(values.astype(np.float32), float(np.abs(values).max()), 2048)[:-1]


def range_of(values: np.ndarray) -> Range:
    return Range(float(values.min()), float(values.max()))


def test_methods_by_name() -> None:
    assert set(METHODS) == {"kl", "minmax", "percentile", "mse"}
    assert all(method.name == name for name, method in METHODS.items())
    assert [name for name, method in METHODS.items() if not method.needs_histogram] == ["minmax"]
    with pytest.raises(CalibrationError, match="'minmx'; did you mean 'minmax'"):
        method_named("minmx")


def test_minmax_is_the_maximum() -> None:
    assert METHODS["minmax"].threshold(np.empty(0, np.int64), Range(-2.5, 1)) == 2.5


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_threshold_is_within_the_range_and_the_same_each_time(name: str) -> None:
    values = np.random.default_rng(0).standard_normal(100_000)
    counts, found = counts_of(values), range_of(values)
    threshold = METHODS[name].threshold(counts, found)
    assert 0.5 * found.max_abs < threshold <= found.max_abs
    assert METHODS[name].threshold(counts.copy(), found) == threshold


def test_kl_of_a_distribution_is_the_published_search() -> None:
    values = np.random.default_rng(0).standard_normal(100_000)
    found = METHODS["kl"].threshold(counts_of(values), range_of(values))
    assert found == kl_threshold(counts_of(values), float(np.abs(values).max())).threshold


def test_kl_of_a_few_values_is_the_maximum() -> None:
    # Digits of 17 grey levels: the search alone would saturate at the lowest, with a divergence of 0.
    grey = np.random.default_rng(0).integers(0, 17, 10_000) / 16
    assert kl_threshold(counts_of(grey), 1.0).threshold == pytest.approx(129.5 / 2048)
    assert METHODS["kl"].threshold(counts_of(grey), Range(0, 1)) == 1.0


def test_kl_of_a_few_hundred_values_is_near_the_maximum() -> None:
    grey = np.random.default_rng(0).integers(0, 256, 100_000) / 255
    assert METHODS["kl"].threshold(counts_of(grey), Range(0, 1)) > 0.99


def test_mse_counts_the_levels_that_the_sign_leaves() -> None:
    values = np.random.default_rng(0).laplace(size=100_000)
    counts, top = counts_of(values), float(np.abs(values).max())
    assert METHODS["mse"].threshold(counts, Range(-top, 1)) == mse_threshold(counts, top, 127)
    assert METHODS["mse"].threshold(counts, Range(0, top)) == mse_threshold(counts, top, 255)
    assert mse_threshold(counts, top, 127) != mse_threshold(counts, top, 255)


def test_the_percentile_can_be_chosen_and_is_kept() -> None:
    values = np.random.default_rng(0).laplace(size=100_000)
    counts, found = counts_of(values), range_of(values)
    for given, kept in ((None, 99.99), (99.9, 99.9), (100, 100)):
        method = method_named("percentile", given)
        assert method.percentile == kept
        assert method.threshold(counts, found) == percentile_threshold(counts, found.max_abs, kept)
    assert [method_named(name).percentile for name in ("kl", "minmax", "mse")] == [None] * 3


@pytest.mark.parametrize(
    ("name", "percentile", "message"),
    [
        ("kl", 99.9, "'kl' takes no percentile"),
        ("percentile", 0.9999, "from 50 to 100, not 0.9999"),
        ("percentile", 101, "from 50 to 100, not 101"),
    ],
)
def test_a_percentile_that_does_not_fit_is_refused(name: str, percentile: float, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        method_named(name, percentile)


def test_a_study_may_name_all_methods() -> None:
    for section in (CalibrationSection, CalibrationTask):
        assert set(get_args(section.model_fields["method"].annotation)) == set(METHODS)


def test_a_study_gives_a_percentile_to_the_method_of_that_name_alone() -> None:
    assert CalibrationSection(data="x", method="percentile").percentile is None
    assert CalibrationSection(data="x", method="percentile", percentile=100).percentile == 100
    assert CalibrationSection(data="x", method="percentile", percentile=LOWEST).percentile == LOWEST
    with pytest.raises(ValidationError, match="greater than or equal to 50"):
        CalibrationSection(data="x", method="percentile", percentile=0.9999)
    with pytest.raises(ValidationError, match="the method mse takes no percentile: leave it out"):
        CalibrationSection(data="x", method="mse", percentile=99.9)

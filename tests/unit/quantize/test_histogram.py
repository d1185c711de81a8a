import importlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies
from hypothesis.extra.numpy import arrays

from inferometer.errors import CalibrationError
from inferometer.quantize import histogram
from inferometer.quantize.histogram import (
    VANISHING,
    HistogramCollector,
    Range,
    RangeCollector,
    count_magnitudes,
    count_plainly,
    first_bad_row,
    is_compiled,
)


def bins_by_hand(values: np.ndarray, top: float, bins: int) -> list[int]:
    scale = np.float32(bins / top)
    found = [0] * bins
    for value in values.reshape(-1):
        if value != 0:
            found[min(int(np.float32(abs(value)) * scale), bins - 1)] += 1
    return found


def test_bins_are_as_defined() -> None:
    values = np.array([0.0, 0.1, -0.24, 0.25, 0.5, -0.99, 1.0, -1.0, -0.0], np.float32)
    assert count_magnitudes(values, 1.0, 4).tolist() == [2, 1, 1, 3, 0]


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 150_000])
def test_bins_of_many_values_are_as_defined(size: int) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    top = float(np.abs(values).max())
    assert count_magnitudes(values, top, 2048)[:-1].tolist() == bins_by_hand(values, top, 2048)


def test_the_maximum_is_in_the_last_bin_and_what_lies_beyond_is_told_apart() -> None:
    for top in np.random.default_rng(2).uniform(1e-6, 1e6, 200).astype(np.float32):
        counts = count_magnitudes(np.array([top, -top, 2 * top], np.float32), float(top), 2048)
        assert (counts[-2], counts[-1]) == (2, 1)


def test_order_and_pieces_do_not_matter() -> None:
    rng = np.random.default_rng(7)
    values = np.maximum(rng.standard_normal(10_000), 0).astype(np.float32)
    whole, pieces = (HistogramCollector({"t": Range(0.0, float(values.max()))}) for _ in range(2))
    whole.add("t", values)
    for piece in np.split(rng.permutation(values).reshape(100, 100), 20):
        pieces.add("t", piece)
    assert (whole.counts("t") == pieces.counts("t")).all()
    assert whole.counts("t").sum() == np.count_nonzero(values)


def test_counts_handed_out_are_a_copy() -> None:
    collector = HistogramCollector({"t": Range(0.0, 1.0)})
    collector.counts("t")[:] = 5
    assert collector.counts("t").sum() == 0


def test_a_value_that_the_first_pass_did_not_meet_is_an_error() -> None:
    collector = HistogramCollector({"t": Range(-1.0, 1.0)})
    with pytest.raises(CalibrationError, match=r"'t'.*outside \[-1, 1\]"):
        collector.add("t", np.array([0.5, 1.5], np.float32))


def test_ranges_widen_and_negative_zero_is_zero() -> None:
    collector = RangeCollector()
    assert collector.add("t", np.array([[-0.0, -0.0]], np.float32))
    assert str(collector.ranges()["t"].hi) == "0.0"
    assert collector.add("t", np.array([[-3, 1]], np.float32))
    assert collector.add("t", np.array([[-1, 2]], np.float32))
    assert collector.add("t", np.empty((0, 2), np.float32))
    assert collector.ranges() == {"t": Range(-3.0, 2.0)}
    assert collector.ranges()["t"].max_abs == 3.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_told(bad: float) -> None:
    collector = RangeCollector()
    values = np.ones((4, 3), np.float32)
    values[2, 1] = bad
    assert not collector.add("t", values)
    assert collector.ranges() == {}
    assert first_bad_row(values) == 2


def test_a_tensor_of_vanishing_values_has_no_histogram() -> None:
    collector = HistogramCollector({"t": Range(0.0, VANISHING / 2)})
    collector.add("t", np.array([VANISHING / 2], np.float32))
    assert collector.counts("t").sum() == 0


FINITE = strategies.floats(-(2.0**99), 2.0**99, width=32)


@settings(deadline=None)  # the first call compiles
@given(arrays(np.float32, strategies.integers(1, 300), elements=FINITE))
def test_compiled_and_plain_counts_are_the_same(values: np.ndarray) -> None:
    if not is_compiled():
        pytest.skip("numba is not installed: there is one way to count")
    top = max(float(np.abs(values).max()) / 2, VANISHING)  # some values lie beyond
    assert count_magnitudes(values, top, 2048).tolist() == count_plainly(values, top, 2048).tolist()


@pytest.mark.parametrize("count", [count_magnitudes, count_plainly])
def test_what_is_no_number_counts_as_beyond(count) -> None:  # type: ignore[no-untyped-def]
    values = np.array([np.nan, np.inf, -np.inf, 0.5], np.float32)
    assert count(values, 1.0, 4).tolist() == [0, 0, 1, 0, 3]


def test_merged_collectors_hold_what_one_would() -> None:
    values = np.random.default_rng(3).standard_normal((4, 1000)).astype(np.float32)
    ranges, parts = RangeCollector(), [RangeCollector() for _ in range(4)]
    ranges.add("t", values)
    for part, rows in zip(parts, values, strict=True):
        part.add("t", rows)
    for part in parts[1:]:
        parts[0].merge(part)
    assert parts[0].ranges() == ranges.ranges()
    whole, first, second = (HistogramCollector(ranges.ranges()) for _ in range(3))
    whole.add("t", values)
    first.add("t", values[:1])
    second.add("t", values[1:])
    first.merge(second)
    assert (first.counts("t") == whole.counts("t")).all()


@pytest.mark.parametrize("fault", [ImportError("numba needs another NumPy"), SystemError("bad module")])
def test_a_numba_that_does_not_work_is_done_without(
    fault: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(name: str) -> None:
        raise fault

    monkeypatch.setattr(importlib, "import_module", broken)
    histogram._loaded.cache_clear()
    try:
        assert not is_compiled()
        assert count_magnitudes(np.array([1.0, -0.5], np.float32), 1.0, 4).tolist() == [0, 0, 1, 1, 0]
    finally:
        histogram._loaded.cache_clear()
    assert [str(fault) in record.message for record in caplog.records] == [True]

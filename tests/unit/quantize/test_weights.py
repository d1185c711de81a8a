import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from inferometer.errors import CalibrationError
from inferometer.quantize.weights import (
    BIAS_LIMIT,
    QuantizedWeight,
    least_scales,
    quantize_bias,
    quantize_weight,
)


def quantized(
    weight: np.ndarray, *, axis: int = 0, reduced: bool = False, per_channel: bool = True, least=None
) -> QuantizedWeight:  # type: ignore[no-untyped-def]
    return quantize_weight(
        np.asarray(weight, np.float32), "w", axis=axis, reduced=reduced, per_channel=per_channel, least=least
    )


def saturating_dot(x: np.ndarray, q: np.ndarray) -> int:
    """The dot product of uint8 and int8 as VPMADDUBSW makes it: pairs added in a saturating int16."""
    products = x.astype(np.int64) * q.astype(np.int64)
    return int(np.clip(products[0::2] + products[1::2], -(2**15), 2**15 - 1).sum())


def test_one_scale_per_output_channel() -> None:
    found = quantized([[1.27, -0.635, 0.005], [0.5, -2.54, 0.03]])
    assert found.values.tolist() == [[127, -64, 0], [25, -127, 2]]  # 63.5 rounds to even, 0.5 too
    assert found.scales.tolist() == [float(np.float32(0.01)), float(np.float32(0.02))]
    assert found.axis == 0


def test_the_axis_is_the_callers() -> None:
    weight = np.array([[1.0, 20.0], [2.0, 10.0]])
    found = quantized(weight, axis=1)
    assert found.values.tolist() == [[64, 127], [127, 64]]
    assert found.scales.tolist() == [float(np.float32(2 / 127)), float(np.float32(20 / 127))]


def test_one_scale_in_all() -> None:
    found = quantized([[1.0], [2.0]], per_channel=False)
    assert found.scales.shape == ()
    assert float(found.scales) == float(np.float32(2 / 127))
    assert found.values.tolist() == [[64], [127]]
    assert found.axis is None


def test_reduced_range_by_hand() -> None:
    # The largest two of one sign: 1 + 1, 1 + 0.27, 1 alone.
    found = quantized([[1, 1, -1], [1, 0.27, -1], [1, -1, -0.2]], reduced=True)
    assert found.values.tolist() == [[64, 64, -64], [100, 27, -100], [106, -106, -21]]


def test_a_zero_channel_has_scale_one() -> None:
    found = quantized([[0.0, 0.0], [1.0, 0.5]])
    assert found.scales.tolist() == [1.0, float(np.float32(1 / 127))]
    assert found.values[0].tolist() == [0, 0]


def test_a_zero_channel_with_a_bias_has_the_scale_of_the_bias() -> None:
    bias = np.array([3.0, 3.0], np.float32)
    found = quantized([[0.0, 0.0], [1.0, 0.5]], least=least_scales(bias, 0.5))
    scales = np.float32(0.5) * found.scales
    assert found.scales[1] == np.float32(1 / 127)
    assert quantize_bias(bias, scales)[0] == pytest.approx(BIAS_LIMIT, rel=1e-6)
    assert quantize_bias(bias, scales) * scales == pytest.approx(bias, rel=0.01)


@pytest.mark.parametrize("smallest", [1e-20, 1e-38, 1e-44])
def test_a_bias_beyond_int32_widens_the_scale_of_its_channel(smallest: float) -> None:
    bias = np.array([-7.0], np.float32)
    found = quantized([[smallest, smallest]], least=least_scales(bias, 0.01))
    whole = quantize_bias(bias, np.float32(0.01) * found.scales)
    assert whole[0] == pytest.approx(-BIAS_LIMIT, rel=1e-6)
    assert whole[0] * float(np.float32(0.01) * found.scales[0]) == pytest.approx(-7.0, rel=1e-6)


def test_bias_by_hand() -> None:
    assert quantize_bias(np.array([0.5, -0.26], np.float32), np.array([0.25, 0.1], np.float32)).tolist() == [
        2,
        -3,
    ]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_named(bad: float) -> None:
    with pytest.raises(CalibrationError, match="weight 'w' holds NaN"):
        quantized([[1.0, bad]])
    with pytest.raises(CalibrationError, match="weight 'w' holds NaN"):
        quantized([[1.0, bad]], reduced=True)


def test_eight_bits_saturate_without_a_dot_product_and_the_reduced_range_does_not() -> None:
    weight, x = np.full((1, 4), 0.1), np.full(4, 255)
    exact = quantized(weight).values[0]
    assert exact.tolist() == [127] * 4
    assert saturating_dot(x, exact) == 2 * 32767  # 4 * 255 * 127 = 129540 is meant
    reduced = quantized(weight, reduced=True).values[0]
    assert saturating_dot(x, reduced) == 4 * 255 * 64


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(np.float32, (3, 8), elements=st.floats(-4, 4, width=32)),
    hnp.arrays(np.int64, 8, elements=st.sampled_from([0, 1, 254, 255])),
    st.permutations(range(8)),
)
def test_the_reduced_range_never_saturates_whichever_weights_meet(weight, x, order) -> None:  # type: ignore[no-untyped-def]
    for row in quantized(weight, reduced=True).values:
        q = row[list(order)]
        assert saturating_dot(x, q) == int((x * q.astype(np.int64)).sum())


@given(hnp.arrays(np.float32, (4, 6), elements=st.floats(-100, 100, width=32)), st.booleans())
def test_rounding_is_within_half_a_step(weight: np.ndarray, reduced: bool) -> None:
    found = quantized(weight, reduced=reduced)
    error = np.abs(found.values * found.scales[:, None].astype(np.float64) - weight)
    assert (error <= 0.5001 * found.scales[:, None]).all()

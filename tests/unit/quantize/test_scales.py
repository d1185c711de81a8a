import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.errors import CalibrationError
from inferometer.quantize.layout import Layout, Passage
from inferometer.quantize.scales import activation_params, activation_range, ranges_of_tensors
from inferometer.quantize.table import TensorRange
from tests.unit.quantize.graphs import SYMMETRIC, scheme

LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}
finite = st.floats(-1e6, 1e6, width=32)


def of(lo: float, hi: float, threshold: float | None = None) -> TensorRange:
    return TensorRange(lo=lo, hi=hi, threshold=max(abs(lo), abs(hi)) if threshold is None else threshold)


def unclipped(value: float, scale: float, zero: int) -> int:
    """The integer before saturation, in float32 as QuantizeLinear computes it."""
    return int(np.rint(np.float32(value) / np.float32(scale))) + zero


@pytest.mark.parametrize(
    ("found", "scale", "zero"),
    [
        (of(0, 6), 6 / 255, 0),
        (of(0, 6, 5.1), 5.1 / 255, 0),
        (of(2, 6), 6 / 255, 0),  # widened to hold zero
        (of(-6, -2), 6 / 255, 255),
        # 127.5 steps are not whole: 127 below need 1 / 127 a step, 128 below need 1 / 127 above.
        (of(-1, 1), 1 / 127, 127),
        (of(-1, 254), 1.0, 1),
        (of(-0.001, 1), 1 / 254, 1),  # one step below zero at least, or -0.001 would be clipped
        (of(-8, 1, 4), 4 / 204, 204),
    ],
)
def test_asymmetric_by_hand(found: TensorRange, scale: float, zero: int) -> None:
    params = activation_params(found, scheme())
    assert (params.scale, params.zero_point) == (float(np.float32(scale)), zero)
    shifted = activation_params(found, scheme(activation_dtype="int8"))
    assert (shifted.scale, shifted.zero_point) == (params.scale, zero - 128)


def test_symmetric_by_hand() -> None:
    params = activation_params(of(-1, 3, 2.54), scheme(**SYMMETRIC))
    assert (params.scale, params.zero_point, params.dtype) == (float(np.float32(0.02)), 0, "int8")
    unsigned = activation_params(of(-1, 3, 2.54), scheme(activation_symmetric=True))
    assert (unsigned.scale, unsigned.zero_point) == (params.scale, 128)


@pytest.mark.parametrize("changes", [{}, {"activation_dtype": "int8"}, SYMMETRIC])
def test_a_tensor_of_zeros_is_exact(changes: dict) -> None:
    params = activation_params(of(0, 0), scheme(**changes))
    assert params.scale == 1.0
    assert params.zero_point == (-128 if changes == {"activation_dtype": "int8"} else 0)


FORMS = {
    "uint8 asymmetric": {},
    "int8 asymmetric": {"activation_dtype": "int8"},
    "int8 symmetric": SYMMETRIC,
    "uint8 symmetric": {"activation_symmetric": True},
}


@pytest.mark.parametrize("form", FORMS)
@given(
    finite, finite, st.floats(0.01, 1.0), st.lists(st.floats(0, 1), max_size=4)
)  # the extremes, T as a share of max |x|, places between the ends of the range
def test_no_value_inside_the_range_is_clipped(
    form: str, a: float, b: float, share: float, places: list[float]
) -> None:
    found = of(min(a, b), max(a, b), share * max(abs(a), abs(b)))
    wanted = scheme(**FORMS[form])
    params = activation_params(found, wanted)
    low, high = LIMITS[wanted.activation_dtype]
    assert low <= params.zero_point <= high
    start, end = activation_range(found)
    if wanted.activation_symmetric:
        start, end = -found.threshold, found.threshold
        low, high = params.zero_point - 127, params.zero_point + 127
    for place in (0.0, 1.0, *places):
        assert low <= unclipped(start + place * (end - start), params.scale, params.zero_point) <= high
    assert unclipped(0.0, params.scale, params.zero_point) == params.zero_point


@given(st.floats(2**-7, 1e6, width=32), st.floats(2**-7, 1e6, width=32))
def test_the_scale_wastes_at_most_one_step(below: float, above: float) -> None:
    params = activation_params(of(-below, above), scheme())
    assert params.scale * 253 <= (below + above) * (1 + 1e-6) or params.zero_point in (1, 254)


def layout(observed: tuple[str, ...], *passages: Passage) -> Layout:
    return Layout((), observed + tuple(passage.output for passage in passages), observed, passages)


def test_passages_hand_the_range_on() -> None:
    chain = layout(("a",), Passage("MaxPool", ("a",), "b"), Passage("Reshape", ("b",), "c"))
    found = ranges_of_tensors(chain, {"a": of(-1, 2, 1.5)}, mixed_signs=True)
    assert found == dict.fromkeys("abc", of(-1, 2, 1.5))


def test_what_lies_between_0_and_1_needs_no_range() -> None:
    gate = Layout(("s",), ("a", "gate", "flat"), ("a",), (Passage("Flatten", ("gate",), "flat"),), ("gate",))
    found = ranges_of_tensors(gate, {"a": of(-1, 2)}, mixed_signs=True)
    assert found == {"a": of(-1, 2), "gate": of(0, 1), "flat": of(0, 1)}
    params = activation_params(found["gate"], scheme())
    assert (params.scale, params.zero_point) == (float(np.float32(1 / 255)), 0)


def test_inputs_of_a_concat_share_the_widest_range() -> None:
    table = {"a": of(0, 2, 1.5), "b": of(0, 5, 1.0), "c": of(0, 9)}
    passages = (Passage("MaxPool", ("a",), "p"), Passage("Concat", ("p", "b"), "j"))
    found = ranges_of_tensors(layout(("a", "b", "c"), *passages), table, mixed_signs=False)
    assert found == {**dict.fromkeys("abpj", of(0, 5, 1.5)), "c": of(0, 9)}


def test_tensors_that_meet_in_several_concats_share_one_range() -> None:
    table = {"a": of(0, 1), "b": of(0, 2), "c": of(0, 3)}
    passages = (Passage("Concat", ("a", "b"), "ab"), Passage("Concat", ("ab", "c"), "abc"))
    found = ranges_of_tensors(layout(("a", "b", "c"), *passages), table, mixed_signs=False)
    assert found == dict.fromkeys(["a", "b", "c", "ab", "abc"], of(0, 3))


def test_a_concat_of_signed_and_unsigned_keeps_the_zero_point_of_each() -> None:
    table = {"relu": of(0, 2), "linear": of(-5, 1)}
    only = layout(("relu", "linear"), Passage("Concat", ("relu", "linear"), "j"))
    apart = ranges_of_tensors(only, table, mixed_signs=False)
    assert apart == {"relu": of(0, 2), "linear": of(-5, 1), "j": of(-5, 2, 5)}
    assert activation_params(apart["relu"], scheme()).zero_point == 0
    assert ranges_of_tensors(only, table, mixed_signs=True) == dict.fromkeys(
        ["relu", "linear", "j"], of(-5, 2, 5)
    )


def test_a_table_without_a_tensor_is_refused() -> None:
    with pytest.raises(
        CalibrationError, match=r"no range for tensor 'b' \(and 1 more\).*calibrate this model"
    ):
        ranges_of_tensors(layout(("a", "b", "c")), {"a": of(0, 1)}, mixed_signs=True)

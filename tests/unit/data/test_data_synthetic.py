import numpy as np
import pytest

from inferometer.contracts import TensorInfo
from inferometer.data.synthetic import check_range, synthetic_feeds
from inferometer.errors import ConfigError, DataError


def test_values_shapes_and_dtypes():
    inputs = [
        TensorInfo("a", (4, 3, 32, 32), "float32"),
        TensorInfo("h", (4, 3000), "float16"),
        TensorInfo("d", (4, 3000), "float64"),
        TensorInfo("u", (4, 3000), "uint8"),
        TensorInfo("s", (4, 3000), "int8"),
        TensorInfo("i", (4, 7), "int64"),
        TensorInfo("b", (), "bool"),
    ]
    feeds = synthetic_feeds(inputs, seed=1)
    assert {name: (array.shape, array.dtype.name) for name, array in feeds.items()} == {
        tensor.name: (tensor.shape, tensor.dtype) for tensor in inputs
    }
    for name in "ahd":
        values = feeds[name].astype(np.float64)
        assert abs(values.mean()) < 0.05
        assert abs(values.std() - 1) < 0.05
    assert (feeds["u"].min(), feeds["u"].max()) == (0, 255)
    assert (feeds["s"].min(), feeds["s"].max()) == (-128, 127)
    assert not feeds["i"].any()
    assert not feeds["b"].any()


def test_seeded_and_independent_of_other_inputs():
    a, b = TensorInfo("a", (2, 5), "float32"), TensorInfo("b", (2, 5), "float32")
    once = synthetic_feeds([a, b], seed=3)
    again = synthetic_feeds([a, b], seed=3)
    assert all(np.array_equal(once[name], again[name]) for name in "ab")
    assert np.array_equal(synthetic_feeds([a], seed=3)["a"], once["a"])
    assert not np.array_equal(once["a"], once["b"])
    assert not np.array_equal(synthetic_feeds([a], seed=4)["a"], once["a"])
    oracle = np.random.default_rng([3, 1]).standard_normal((2, 5), dtype=np.float32)
    assert np.array_equal(once["b"], oracle)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
def test_a_smaller_batch_begins_a_larger_one(dtype):
    small = synthetic_feeds([TensorInfo("a", (2, 3, 4), dtype)], seed=0)["a"]
    large = synthetic_feeds([TensorInfo("a", (None, 3, 4), dtype)], seed=0, batch=6)["a"]
    assert large.shape == (6, 3, 4)
    assert np.array_equal(large[:2], small)


def test_what_cannot_be_made():
    with pytest.raises(DataError, match=r"'a': dimension 2 of \[1, 3, None\] is open"):
        synthetic_feeds([TensorInfo("a", (1, 3, None), "float32")], seed=0)
    with pytest.raises(DataError, match="dimension 0"):
        synthetic_feeds([TensorInfo("a", (None, 3), "float32")], seed=0)
    for dtype in ("object", "str", "bfloat"):
        with pytest.raises(DataError, match=f"no synthetic input of dtype {dtype}"):
            synthetic_feeds([TensorInfo("a", (1,), dtype)], seed=0)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64"]
)
def test_a_range_is_filled_to_both_ends_and_not_left(dtype):
    low = 2 if dtype.startswith("u") else -3
    tensor = TensorInfo("a", (4000,), dtype)
    values = synthetic_feeds([tensor], 0, ranges={"a": (low, 5)})["a"]
    assert values.dtype == dtype
    assert values.min() >= low
    assert values.max() <= 5
    if np.dtype(dtype).kind == "f":
        assert abs(values.astype(np.float64).mean() - (low + 5) / 2) < 0.2
        assert abs(values.astype(np.float64).var() - (5 - low) ** 2 / 12) < 0.4
    else:
        assert set(values.tolist()) == set(range(low, 6))
    again = synthetic_feeds([TensorInfo("a", (None,), dtype)], 0, 10, {"a": (low, 5)})["a"]
    assert np.array_equal(values[:10], again)


def test_a_range_of_one_number_is_a_constant():
    inputs = [
        TensorInfo("a", (2, 2), "float32"),
        TensorInfo("i", (2,), "int64"),
        TensorInfo("b", (3,), "bool"),
    ]
    feeds = synthetic_feeds(inputs, 0, ranges={"a": (0.1, 0.1), "i": (7, 7), "b": (1, 1)})
    assert (feeds["a"] == np.float32(0.1)).all()
    assert feeds["i"].tolist() == [7, 7]
    assert feeds["b"].tolist() == [True] * 3


def test_a_range_leaves_the_other_inputs_as_they_are():
    inputs = [TensorInfo("a", (2, 2), "float32"), TensorInfo("b", (2, 2), "float32")]
    assert np.array_equal(
        synthetic_feeds(inputs, 0, ranges={"a": (0, 1)})["b"], synthetic_feeds(inputs, 0)["b"]
    )


@pytest.mark.parametrize(
    ("dtype", "limits", "words"),
    [
        ("uint8", (0, 256), "wider than uint8 holds, which is 0..255"),
        ("int8", (-129, 0), "wider than int8"),
        ("int64", (0, 2.0**63), "wider than int64"),
        ("bool", (0, 2), "wider than bool"),
        ("float16", (0, 70000), "wider than float16"),
        ("float32", (0, 1e39), "wider than float32"),
        ("int32", (0, 0.5), "wants whole numbers: the input is int32"),
        ("float32", (1, 0), "wants its lower end first"),
        ("float32", (float("nan"), 0), "wants its lower end first"),
    ],
)
def test_a_range_that_the_dtype_cannot_hold_is_refused(dtype, limits, words):
    with pytest.raises(ConfigError, match=words):
        synthetic_feeds([TensorInfo("a", (2,), dtype)], 0, ranges={"a": limits})
    with pytest.raises(ConfigError, match=words):
        check_range("a", dtype, limits)


def test_a_range_of_no_input_is_refused():
    with pytest.raises(ConfigError, match="'token', which is no input; did you mean 'tokens'"):
        synthetic_feeds([TensorInfo("tokens", (2,), "int64")], 0, ranges={"token": (0, 1)})

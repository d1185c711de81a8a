import numpy as np
import pytest

from inferometer.contracts import TensorInfo
from inferometer.data.synthetic import synthetic_feeds
from inferometer.errors import DataError


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

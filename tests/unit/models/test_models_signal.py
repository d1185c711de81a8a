"""How values behave in the seeded networks: the moments they are scaled by, and the networks themselves."""

import hashlib
import math

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from inferometer.models import build, network
from inferometer.models.networks.seeded import bell_integers, bias, filters
from inferometer.models.networks.signal import Signal

SMALL_NETWORKS = ["alexnet", "googlenet", "resnet50"]
BIG_NETWORKS = ["vgg16", "vgg19", "resnet101", "resnet152"]
ALL = [*SMALL_NETWORKS, *(pytest.param(name, marks=pytest.mark.slow) for name in BIG_NETWORKS)]


def test_moments_of_a_rectified_gaussian() -> None:
    # Source: mean 1/sqrt(2 pi), second moment 1/2.
    mean, variance = Signal(0.0, 4.0).relu().moments()
    assert mean == pytest.approx(2 / math.sqrt(2 * math.pi), rel=1e-3)
    assert variance == pytest.approx(4 * (0.5 - 1 / (2 * math.pi)), rel=1e-3)


@pytest.mark.parametrize(
    ("count", "mean"), [(2, 1 / math.sqrt(math.pi)), (4, 1.029375), (9, 1.485013)]
)  # expected largest of normal samples: Harter, Biometrika 48 (1961)
def test_moments_of_the_largest_of_several(count: int, mean: float) -> None:
    assert Signal(0.0, 1.0).max_pool(count).moments()[0] == pytest.approx(mean, rel=1e-3)


def test_moments_of_a_sum_add_up() -> None:
    total = Signal(1.0, 2.0).plus(Signal(3.0, 4.0))
    assert total.moments() == (4.0, 6.0)


def test_draws_are_sums_of_the_quarters_of_raw_words() -> None:
    words = np.random.PCG64(np.random.SeedSequence(7)).random_raw(5)
    expected = [sum((int(word) >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) - 131070 for word in words]
    assert bell_integers(np.random.PCG64(np.random.SeedSequence(7)), 5).tolist() == expected


def test_draws_are_nearly_gaussian() -> None:
    draws = bell_integers(np.random.PCG64(1), 400_000) / (65536 / math.sqrt(3))
    assert draws.mean() == pytest.approx(0, abs=0.01)
    assert draws.std() == pytest.approx(1, abs=0.005)
    assert np.mean(draws**4) == pytest.approx(2.7, abs=0.02)  # 3 - 1.2 / 4 of the Irwin-Hall distribution


def test_filters_are_centred_and_scaled() -> None:
    weights = filters(0, "w", (50, 64, 3, 3), 0.25, centred=True)
    assert weights.dtype == np.float32
    assert np.abs(weights.reshape(50, -1).mean(axis=1)).max() < 1e-6
    assert weights.std() == pytest.approx(0.25, rel=0.02)
    assert bias(0, "b", 20_000, 0.5).std() == pytest.approx(0.5, rel=0.02)


def test_the_values_do_not_depend_on_the_block_size(monkeypatch) -> None:
    whole = filters(0, "w", (40, 30), 1.0, centred=True)
    monkeypatch.setattr("inferometer.models.networks.seeded._BLOCK", 100)
    assert np.array_equal(whole, filters(0, "w", (40, 30), 1.0, centred=True))


def test_the_values_are_the_same_on_every_machine() -> None:
    # Written down once, so that another numpy, CPU or mathematics library which changes a bit is noticed.
    model = build("googlenet", 0)
    tensor = next(t for t in model.graph.initializer if t.name == "inception_3a/3x3.weight")
    assert hashlib.sha256(tensor.raw_data).hexdigest()[:16] == "e858b6a36e7ec705"


def _run_all(model: ModelProto, images: np.ndarray) -> dict[str, np.ndarray]:
    """Every node's output, without any optimisation."""
    ort = pytest.importorskip("onnxruntime")
    exposed = [node.output[0] for node in model.graph.node if node.output[0] != "logits"]
    for name in exposed:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, {"input": images}), strict=True))


def _in_half(model: ModelProto) -> None:
    """Make a float32 model a float16 one; onnxruntime rounds each tensor where the CPU has no kernel."""
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    for info in [*model.graph.input, *model.graph.output]:
        info.type.tensor_type.elem_type = TensorProto.FLOAT16


def _images(name: str, count: int) -> np.ndarray:
    size = network(name).input_size
    return np.random.default_rng(5).standard_normal((count, 3, size, size)).astype(np.float32)


@pytest.mark.parametrize("name", ALL)
def test_every_layer_is_in_range_and_outputs_vary(name: str) -> None:
    images = _images(name, 3)
    model = build(name)
    layers = _run_all(model, images)
    assert len(layers) == len(model.graph.node)
    outside = {key: float(v.std()) for key, v in layers.items() if not 0.1 <= v.std() <= 10}
    assert not outside
    logits = layers["logits"]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        # Half of what the weakest network shows; rounding to INT8 moves logits by a few percent.
        assert np.linalg.norm(logits[a] - logits[b]) > 0.1 * np.linalg.norm(logits[a])

    _in_half(model)
    half = _run_all_again(model, images.astype(np.float16))
    assert all(np.isfinite(value).all() for value in half.values())
    assert all(value.dtype == np.float16 for value in half.values())
    error = np.linalg.norm(half["logits"].astype(np.float32) - logits) / np.linalg.norm(logits)
    assert error < 0.05  # roundings are not blown up on their way through the network


def _run_all_again(model: ModelProto, images: np.ndarray) -> dict[str, np.ndarray]:
    del model.graph.output[1:]
    return _run_all(model, images)

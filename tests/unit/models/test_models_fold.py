"""Folding BatchNorm: same outputs, only where it is allowed, and honest counts."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from small_graphs import info, model, node, normal
from small_graphs import run_onnxruntime as run  # the reference fails on grouped ConvTranspose

from inferometer.models import describe, fold_batchnorm


def _statistics(channels: int, seed: int = 1, prefix: str = "bn") -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        f"{prefix}.scale": random.uniform(0.5, 2, channels).astype(np.float32),
        f"{prefix}.shift": random.normal(0, 1, channels).astype(np.float32),
        f"{prefix}.mean": random.normal(0, 1, channels).astype(np.float32),
        f"{prefix}.var": random.uniform(0.2, 3, channels).astype(np.float32),
    }


def _norm(source: str, target: str, prefix: str = "bn", **attributes: object) -> onnx.NodeProto:
    inputs = [source, *(f"{prefix}.{part}" for part in ("scale", "shift", "mean", "var"))]
    return node("BatchNormalization", inputs, [target], name=prefix, epsilon=1e-3, **attributes)


def _ops(target: onnx.ModelProto) -> list[str]:
    return [item.op_type for item in target.graph.node]


def _weights(target: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {item.name: numpy_helper.to_array(item) for item in target.graph.initializer}


def _check(original: onnx.ModelProto, x: np.ndarray, ops: list[str]) -> onnx.ModelProto:
    before = original.SerializeToString()
    folded = fold_batchnorm(original)
    assert original.SerializeToString() == before
    onnx.checker.check_model(folded, full_check=True)
    assert _ops(folded) == ops
    for expected, found in zip(run(original, x=x), run(folded, x=x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    return folded


def test_by_hand() -> None:
    weights = {
        "c.weight": np.full((1, 1, 1, 1), 3, np.float32),
        "bn.scale": np.array([2], np.float32),
        "bn.shift": np.array([5], np.float32),
        "bn.mean": np.array([7], np.float32),
        "bn.var": np.array([15.999], np.float32),
    }
    nodes = [node("Conv", ["x", "c.weight"], ["h"], name="c"), _norm("h", "y")]
    folded = fold_batchnorm(model(nodes, [info("x", [1, 1, 2, 2])], [info("y", [1, 1, 2, 2])], weights))
    # sqrt(15.999 + 0.001) = 4: scale 2 / 4, so 3 becomes 1.5 and the bias 5 - 7 / 2 = 1.5.
    assert _weights(folded) == {"c.weight": pytest.approx(1.5), "c.bias": pytest.approx(1.5)}
    assert folded.graph.node[0].output[0] == "y"


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution(has_bias: bool, groups: int) -> None:
    weights = {"w": normal(8, 4 // groups, 3, 3), **_statistics(8)}
    if has_bias:
        weights["b"] = normal(8, seed=9)
    conv = node("Conv", ["x", "w", *(["b"] if has_bias else [])], ["h"], group=groups)
    nodes = [conv, _norm("h", "n"), node("Relu", ["n"], ["y"])]
    original = model(nodes, [info("x", ["N", 4, 6, 6])], [info("y", ["N", 8, 4, 4])], weights)
    folded = _check(original, normal(2, 4, 6, 6), ["Conv", "Relu"])
    assert set(_weights(folded)) == {"w", "b" if has_bias else "w_bias"}
    before, after = describe(original), describe(folded)
    assert before.parameters == weights["w"].size + (24 if has_bias else 16)
    assert after.parameters == weights["w"].size + 8
    assert after.folded_parameters == (16 if has_bias else 8)
    assert after.published_parameters == before.parameters


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution(groups: int) -> None:
    weights = {"w": normal(4, 6 // groups, 3, 3), **_statistics(6)}
    nodes = [node("ConvTranspose", ["x", "w"], ["h"], group=groups, strides=[2, 2]), _norm("h", "y")]
    original = model(nodes, [info("x", ["N", 4, 5, 5])], [info("y", ["N", 6, 11, 11])], weights)
    _check(original, normal(2, 4, 5, 5), ["ConvTranspose"])


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_matrix_product(transposed: int, beta: float) -> None:
    weights = {"w": normal(*((7, 5) if transposed else (5, 7))), "b": normal(7, seed=3), **_statistics(7)}
    gemm = node("Gemm", ["x", "w", "b"], ["h"], transB=transposed, alpha=0.7, beta=beta)
    original = model([gemm, _norm("h", "y")], [info("x", ["N", 5])], [info("y", ["N", 7])], weights)
    _check(original, normal(3, 5), ["Gemm"])


def test_a_gemm_that_adds_a_matrix_is_left() -> None:
    weights = {"w": normal(5, 7), "b": normal(7, 7, seed=3), **_statistics(7)}
    nodes = [node("Gemm", ["x", "w", "b"], ["h"]), _norm("h", "y")]
    original = model(nodes, [info("x", [7, 5])], [info("y", [7, 7])], weights)
    _check(original, normal(7, 5), ["Gemm", "BatchNormalization"])


def test_a_shared_weight_is_copied() -> None:
    weights = {"w": normal(4, 4, 1, 1), **_statistics(4, 1, "p"), **_statistics(4, 2, "q")}
    nodes = [
        node("Conv", ["x", "w"], ["a"]), _norm("a", "b", "p"),
        node("Conv", ["b", "w"], ["c"]), _norm("c", "d", "q"),
        node("Conv", ["d", "w"], ["y"]),
    ]  # fmt: skip
    original = model(nodes, [info("x", ["N", 4, 3, 3])], [info("y", ["N", 4, 3, 3])], weights)
    folded = _check(original, normal(2, 4, 3, 3), ["Conv"] * 3)
    assert np.array_equal(_weights(folded)["w"], weights["w"])
    assert len({item.input[1] for item in folded.graph.node}) == 3
    assert describe(folded).published_parameters == describe(original).parameters == 16 + 16


def test_weights_in_constant_nodes() -> None:
    stored = {"w": normal(3, 2, 3, 3), **_statistics(3)}
    constants = [node("Constant", [], [k], value=numpy_helper.from_array(v, k)) for k, v in stored.items()]
    nodes = [*constants, node("Conv", ["x", "w"], ["h"]), _norm("h", "y")]
    original = model(nodes, [info("x", ["N", 2, 5, 5])], [info("y", ["N", 3, 3, 3])])
    _check(original, normal(2, 2, 5, 5), ["Conv"])


def test_initializers_listed_as_inputs() -> None:
    weights = {"w": normal(3, 2, 1, 1), **_statistics(3)}
    listed = [info("x", ["N", 2, 5, 5]), *(info(name, value.shape) for name, value in weights.items())]
    nodes = [node("Conv", ["x", "w"], ["h"]), _norm("h", "y")]
    original = model(nodes, listed, [info("y", ["N", 3, 5, 5])], weights, opset=9, ir=3)
    folded = fold_batchnorm(original)
    onnx.checker.check_model(folded, full_check=True)
    assert [item.name for item in folded.graph.input] == ["x", "w"]
    x = normal(2, 2, 5, 5)
    np.testing.assert_allclose(run(folded, x=x)[0], run(original, x=x)[0], rtol=2e-5, atol=2e-5)


def test_two_batchnorms_in_a_row() -> None:
    weights = {"w": normal(3, 2, 1, 1), **_statistics(3, 1, "p"), **_statistics(3, 2, "q")}
    nodes = [node("Conv", ["x", "w"], ["h"]), _norm("h", "i", "p"), _norm("i", "y", "q")]
    original = model(nodes, [info("x", ["N", 2, 5, 5])], [info("y", ["N", 3, 5, 5])], weights)
    folded = _check(original, normal(2, 2, 5, 5), ["Conv"])
    assert describe(folded).published_parameters == describe(original).parameters


@pytest.mark.parametrize(
    "why", ["read elsewhere", "an output", "training", "not stored", "negative variance"]
)
def test_what_is_left_alone(why: str) -> None:
    weights = {"w": normal(3, 2, 1, 1), **_statistics(3)}
    inputs, outputs = [info("x", ["N", 2, 5, 5])], [info("y", ["N", 3, 5, 5])]
    nodes = [node("Conv", ["x", "w"], ["h"]), _norm("h", "n"), node("Relu", ["n"], ["y"])]
    if why == "read elsewhere":
        nodes[-1] = node("Add", ["n", "h"], ["y"])
    elif why == "an output":
        outputs.append(info("h", ["N", 3, 5, 5]))
    elif why == "training":
        nodes[1].attribute.append(onnx.helper.make_attribute("training_mode", 1))
        nodes[1].output.extend(["new_mean", "new_var"])
    elif why == "not stored":
        inputs.append(info("bn.scale", [3]))
        del weights["bn.scale"]
    else:
        weights["bn.var"][1] = -1
    original = model(nodes, inputs, outputs, weights)
    folded = fold_batchnorm(original)
    assert folded == original


def test_a_batchnorm_after_something_else_is_left() -> None:
    nodes = [node("Relu", ["x"], ["h"]), _norm("h", "y")]
    original = model(nodes, [info("x", ["N", 3, 5, 5])], [info("y", ["N", 3, 5, 5])], _statistics(3))
    assert fold_batchnorm(original) == original


def test_half_precision_weights_stay_half() -> None:
    weights = {k: v.astype(np.float16) for k, v in {"w": normal(3, 2, 1, 1), **_statistics(3)}.items()}
    kind = onnx.TensorProto.FLOAT16
    nodes = [node("Conv", ["x", "w"], ["h"]), _norm("h", "y")]
    original = model(nodes, [info("x", [1, 2, 5, 5], kind)], [info("y", [1, 3, 5, 5], kind)], weights)
    assert {str(value.dtype) for value in _weights(fold_batchnorm(original)).values()} == {"float16"}


def test_facts_about_vanished_tensors_vanish() -> None:
    weights = {"w": normal(3, 2, 1, 1), **_statistics(3)}
    nodes = [node("Conv", ["x", "w"], ["h"]), _norm("h", "n"), node("Relu", ["n"], ["y"])]
    original = model(nodes, [info("x", [1, 2, 5, 5])], [info("y", [1, 3, 5, 5])], weights)
    original.graph.value_info.extend([info("h", [1, 3, 5, 5]), info("n", [1, 3, 5, 5])])
    folded = fold_batchnorm(original)
    assert [item.name for item in folded.graph.value_info] == ["n"]

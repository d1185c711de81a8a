"""Trained weights in the built-in networks: values, names, shapes, types."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from small_graphs import info, model, node, run
from trained_files import Tensors, miniature, onnx_file, resnet_tensors, safetensors_file

from inferometer.errors import ModelError
from inferometer.models import describe
from inferometer.models.networks import build, build_trained, examine_weights, export_trained

pytest.importorskip("safetensors", reason="the extra 'weights' is not installed")

NET = "resnet-mini"


@pytest.fixture(autouse=True)
def _miniature(monkeypatch: pytest.MonkeyPatch) -> None:
    miniature(monkeypatch)


@pytest.fixture
def tensors() -> Tensors:
    return resnet_tensors()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "w.safetensors"


def refused(file: Path, tensors: Tensors, **kinds: str) -> str:
    with pytest.raises(ModelError) as caught:
        build_trained(NET, safetensors_file(file, tensors, **kinds))
    text = str(caught.value)
    assert text.startswith(f"{file}: ")
    assert "\n" not in text
    return text


def unfolded(tensors: Tensors) -> onnx.ModelProto:
    """The network with its BatchNorms as nodes."""
    nodes, stored = [], {key: value for key, value in tensors.items() if "num_batches" not in key}

    def conv(x: str, layer: str, norm: str, **attributes: object) -> str:
        nodes.append(node("Conv", [x, f"{layer}.weight"], [layer], **attributes))
        parts = [f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
        nodes.append(node("BatchNormalization", [layer, *parts], [norm], epsilon=1e-5))
        return norm

    def relu(x: str) -> str:
        nodes.append(node("Relu", [x], [f"{x}.relu"]))
        return f"{x}.relu"

    x = relu(conv("input", "conv1", "bn1", strides=[2, 2], pads=[1] * 4))
    y = relu(conv(x, "layer1.0.conv1", "layer1.0.bn1", pads=[1] * 4))
    y = conv(y, "layer1.0.conv2", "layer1.0.bn2")
    x = conv(x, "layer1.0.downsample.0", "layer1.0.downsample.1")
    nodes.append(node("Add", [y, x], ["sum"]))
    nodes.append(node("GlobalAveragePool", [relu("sum")], ["average"]))
    nodes.append(node("Flatten", ["average"], ["flat"]))
    nodes.append(node("Gemm", ["flat", "fc.weight", "fc.bias"], ["logits"], transB=1))
    return model(nodes, [info("input", ["N", 3, 16, 16])], [info("logits", ["N", "K"])], stored)


def test_a_folded_network_computes_what_the_unfolded_one_does(file: Path, tensors: Tensors) -> None:
    images = np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype(np.float32)
    trained = build_trained(NET, safetensors_file(file, tensors))
    onnx.checker.check_model(trained.model)
    (wanted,) = run(unfolded(tensors), input=images)
    (found,) = run(trained.model, input=images)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted).max())
    assert trained.notes == ("folded BatchNorm into the convolutions",)


def test_the_file_says_where_its_weights_are_from(file: Path, tensors: Tensors, tmp_path: Path) -> None:
    digest = hashlib.sha256(safetensors_file(file, tensors).read_bytes()).hexdigest()
    assert export_trained(NET, file, tmp_path / "a.onnx") == ("folded BatchNorm into the convolutions",)
    summary = describe(tmp_path / "a.onnx")
    assert summary.metadata["inferometer.weights"] == f"file w.safetensors, sha256 {digest}"
    assert summary.metadata["inferometer.weights_notes"] == "folded BatchNorm into the convolutions"
    assert summary.metadata["inferometer.preprocess"] == "caffe"
    assert summary.folded_parameters == 26
    safetensors_file(file, tensors | {"fc.bias": tensors["fc.bias"] + 1})
    export_trained(NET, file, tmp_path / "b.onnx")
    assert describe(tmp_path / "b.onnx").sha256 != summary.sha256


def test_an_exported_file_gives_its_weights_back(file: Path, tensors: Tensors, tmp_path: Path) -> None:
    export_trained(NET, safetensors_file(file, tensors), tmp_path / "a.onnx")
    again = build_trained(NET, tmp_path / "a.onnx")
    assert again.model.graph == onnx.load(tmp_path / "a.onnx").graph
    assert again.notes == ()


def test_seeded_weights_come_through_unchanged(tmp_path: Path) -> None:
    own = build(NET, 3)
    stored = {part.name: numpy_helper.to_array(part) for part in own.graph.initializer}
    trained = build_trained(NET, safetensors_file(tmp_path / "own.safetensors", stored))
    assert trained.model.graph == own.graph


@pytest.mark.parametrize("classes", [1, 10, 1001])
def test_another_number_of_classes_is_taken_over(file: Path, classes: int) -> None:
    trained = build_trained(NET, safetensors_file(file, resnet_tensors(classes)))
    assert trained.notes[-1] == f"has {classes} classes, not 1000"
    assert describe(trained.model).outputs[0].shape == ("N", classes)
    images = np.zeros((1, 3, 16, 16), np.float32)
    assert run(trained.model, input=images)[0].shape == (1, classes)


def test_only_the_last_layer_may_differ(file: Path, tensors: Tensors) -> None:
    tensors["layer1.0.conv1.weight"] = tensors["layer1.0.conv1.weight"][:3]
    tensors["fc.bias"] = tensors["fc.bias"][:-1]
    text = refused(file, tensors)
    assert "2 of another shape" in text
    assert "layer1.0.conv1.weight: wants [4, 6, 3, 3], found [3, 6, 3, 3]" in text
    assert "fc.bias: wants [1000], found [999]" in text


def test_a_last_layer_with_other_inputs_is_of_another_shape(file: Path, tensors: Tensors) -> None:
    text = refused(file, tensors | {"fc.weight": np.zeros((10, 9), np.float32)})
    assert "fc.weight: wants [1000, 8], found [10, 9]" in text


def test_missing_and_surplus_tensors_are_named_up_to_five(file: Path, tensors: Tensors) -> None:
    kept = {name: value for name, value in tensors.items() if not name.startswith("layer1.0.bn")}
    text = refused(file, kept | {f"extra.{i}": np.zeros(1, np.float32) for i in range(2)})
    assert (
        "8 missing (layer1.0.bn1.weight, layer1.0.bn1.bias, layer1.0.bn1.running_mean, "
        "layer1.0.bn1.running_var, layer1.0.bn2.weight, and 3 more); 2 surplus (extra.0, extra.1);"
    ) in text
    assert f"inferometer models show {NET} --tensors" in text


@pytest.mark.parametrize(("kind", "loss"), [("float16", 1e-3), ("bfloat16", 1e-2), ("float64", 0.0)])
def test_other_floats_become_float32(file: Path, tensors: Tensors, kind: str, loss: float) -> None:
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    fc = tensors["fc.weight"]
    trained = build_trained(NET, safetensors_file(file, tensors | {"fc.weight": fc.astype(kind)}))
    assert trained.notes[0] == f"converted {kind} to float32"
    found = {part.name: part for part in trained.model.graph.initializer}["fc.weight"]
    np.testing.assert_allclose(numpy_helper.to_array(found), fc, rtol=loss, atol=loss * 1e-2)


def test_integers_are_no_weights(file: Path, tensors: Tensors) -> None:
    text = refused(file, tensors | {"fc.weight": np.zeros((1000, 8), np.int8)})
    assert "1 of a type that no weights have (fc.weight: I8)" in text


def test_types_that_numpy_does_not_know_are_no_weights(file: Path, tensors: Tensors) -> None:
    text = refused(file, tensors | {"fc.bias": np.zeros(1000, np.int8)}, fc__bias="F8_E4M3")
    assert "fc.bias: F8_E4M3" in text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["fc.bias", "layer1.0.conv2.weight", "bn1.running_mean"])
def test_what_is_no_number_is_refused(file: Path, tensors: Tensors, name: str, value: float) -> None:
    tensors[name].flat[-1] = value
    assert "holds NaN or infinite values" in refused(file, tensors)


def test_beyond_float32_is_refused(file: Path, tensors: Tensors) -> None:
    text = refused(file, tensors | {"fc.bias": np.full(1000, 1e300)})
    assert "fc.bias holds NaN or infinite values, or some beyond float32" in text


def test_a_negative_variance_is_refused(file: Path, tensors: Tensors) -> None:
    tensors["bn1.running_var"][2] = -1e-6
    assert "bn1.running_var holds a negative variance" in refused(file, tensors)


def test_examining_reads_no_values(file: Path, tensors: Tensors) -> None:
    tensors["fc.bias"][0] = np.nan
    assert examine_weights(NET, safetensors_file(file, tensors)) == (
        "folded BatchNorm into the convolutions",
    )


def test_a_file_of_another_built_in_network_is_told(file: Path, tmp_path: Path, tensors: Tensors) -> None:
    safetensors_file(file, tensors)
    with pytest.raises(ModelError, match=r"does not fit alexnet .*; it fits resnet-mini; "):
        examine_weights("alexnet", file)


ALEXNET = """
alexnet (float[1, 3, 16, 16] data_0) => (float[1, K] prob) {{
  c1 = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (data_0, conv1_w_0, conv1_b_0)
  r1 = Relu(c1)
  {order}
  c2 = Conv <group = {groups}, pads = [1, 1, 1, 1]> (p1, conv2_w_0, conv2_b_0)
  r2 = Relu(c2)
  flat = Reshape(r2, shape)
  f6 = Gemm <transB = 1> (flat, fc6_w_0, fc6_b_0)
  r6 = Relu(f6)
  d6 = Dropout(r6)
  logits = Gemm <transB = 1> (d6, fc8_w_0, fc8_b_0)
  prob = Softmax(logits)
}}
"""
LRN = "LRN <size = 5, alpha = 0.0001, beta = 0.75>"
POOL = "MaxPool <kernel_shape = [2, 2], strides = [2, 2]>"
NORM_FIRST = f"n1 = {LRN} (r1)\n  p1 = {POOL} (n1)"
POOL_FIRST = f"n1 = {POOL} (r1)\n  p1 = {LRN} (n1)"


def zoo(path: Path, order: str = NORM_FIRST, groups: int = 2) -> tuple[Path, Tensors]:
    own = {part.name: numpy_helper.to_array(part) for part in build("alexnet", 5).graph.initializer}
    stored = {name.replace(".weight", "_w_0").replace(".bias", "_b_0"): value for name, value in own.items()}
    stored["shape"] = np.array([1, 64], np.int64)
    return onnx_file(path, ALEXNET.format(order=order, groups=groups), stored), own


def test_names_of_the_onnx_model_zoo(tmp_path: Path) -> None:
    path, own = zoo(tmp_path / "zoo.onnx")
    trained = build_trained("alexnet", path)
    found = {part.name: numpy_helper.to_array(part) for part in trained.model.graph.initializer}
    assert found.keys() == own.keys()
    assert all(np.array_equal(found[name], own[name]) for name in own)
    assert trained.notes == ()


def test_another_network_with_the_same_tensors_is_told_by_its_nodes(tmp_path: Path) -> None:
    path, _ = zoo(tmp_path / "caffenet.onnx", POOL_FIRST)
    with pytest.raises(
        ModelError, match=r"is another network: it uses conv2_w_0 as .* behind MaxPool and LRN, "
    ):
        build_trained("alexnet", path)


def test_other_lrn_settings_are_another_network(tmp_path: Path) -> None:
    path, _ = zoo(tmp_path / "lrn.onnx", NORM_FIRST.replace("0.0001", "0.0002"))
    with pytest.raises(ModelError, match="is another network"):
        build_trained("alexnet", path)


def test_another_epsilon_is_another_network(tmp_path: Path, tensors: Tensors) -> None:
    exact = unfolded(tensors)
    onnx.save(exact, tmp_path / "a.onnx")
    assert "folded BatchNorm into the convolutions" in build_trained(NET, tmp_path / "a.onnx").notes
    for item in (attribute for one in exact.graph.node for attribute in one.attribute):
        if item.name == "epsilon":
            item.f = 1e-3
    onnx.save(exact, tmp_path / "b.onnx")
    with pytest.raises(ModelError, match=r"epsilon of 0\.001, that of resnet-mini has 1e-05"):
        build_trained(NET, tmp_path / "b.onnx")


def test_a_quantized_onnx_file_has_no_weights_to_give(tmp_path: Path) -> None:
    graph = "q (float[1] x) => (float[1] y) { a = QuantizeLinear(x, s)\n y = DequantizeLinear(a, s) }"
    path = onnx_file(tmp_path / "q.onnx", graph, {"s": np.array(0.5, np.float32)})
    with pytest.raises(ModelError, match="is quantized; weights are read from the float file"):
        build_trained("alexnet", path)

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from inferometer import registry
from inferometer.contracts import QdqScheme
from inferometer.errors import CalibrationError
from inferometer.quantize.graph import expose, is_quantized, observed_tensors, prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.layout import layout_of
from inferometer.quantize.scales import activation_params
from tests.unit.quantize.graphs import (
    MORE_NETS,
    NETS,
    Net,
    alexnet,
    curved,
    efficientnet,
    googlenet,
    images,
    mobilenet,
    mobilenet_v3,
    perceptron,
    resnet,
    run,
    scheme,
    table_of,
    unet,
)


def gated(kind: str) -> ModelProto:
    """A gate that some engines multiply in float, and a pool behind it whose result a convolution reads."""
    net = Net()
    x = net.relu(net.conv("input", "a", 3, 8), "a.relu")
    gate = net.conv(net.op("GlobalAveragePool", x, "se"), "se.conv", 8, 8, 1)
    x = net.op("Mul", [x, net.op("Sigmoid", gate, "gate")], "scaled")
    if kind == "global":
        x = net.op("GlobalAveragePool", x, "pool")
    elif kind == "average":
        x = net.op("AveragePool", x, "pool", kernel_shape=[2, 2], strides=[2, 2])
    else:
        x = net.pool(net.op("AveragePool", x, "average", kernel_shape=[2, 2]), "pool")
    net.op("Flatten", net.conv(x, "head", 8, 4, 1), "logits")
    return net.model()


def branches() -> ModelProto:
    """Pools in a row behind a Concat, one of whose inputs no layer gives."""
    net = Net()
    x = net.relu(net.conv("input", "a", 3, 8), "a.relu")
    y = net.op("Tanh", net.conv(x, "b", 8, 8), "b.tanh")
    x = net.op("Concat", [net.op("AveragePool", x, "p", kernel_shape=[1, 1]), y], "both", axis=1)
    x = net.op("GlobalAveragePool", net.op("AveragePool", x, "q", kernel_shape=[2, 2]), "gap")
    net.gemm(net.op("Flatten", x, "flat"), "logits", 16, 4)
    return net.model()


def squeezed() -> ModelProto:
    """A pool of what a Sigmoid gives: with the layer before in float, the pool's result needs a range."""
    net = Net()
    x = net.op("Sigmoid", net.conv("input", "a", 3, 8), "gate")
    net.gemm(net.op("Flatten", net.op("GlobalAveragePool", x, "gap"), "flat"), "logits", 8, 4)
    return net.model()


ALL_NETS = {
    **NETS, **MORE_NETS, "branches": branches, "squeezed": squeezed,
    **{f"gated {kind}": partial(gated, kind) for kind in ("global", "average", "both")},
}  # fmt: skip
SCHEMES = ["onnxruntime", "openvino", "tensorrt", "tensorrt_rtx", "torch"]


def scheme_of(engine: str) -> QdqScheme:
    found = registry.qdq_scheme(engine, None, {})
    assert found is not None
    return found


def ops(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def same_results(a: ModelProto, b: ModelProto, tolerance: float = 1e-5) -> None:
    x = images(3)
    assert np.abs(run(a, x) - run(b, x)).max() <= tolerance


@pytest.mark.parametrize("name", NETS)
def test_preparing_keeps_the_results_and_is_done_once(name: str) -> None:
    model = NETS[name]()
    before = model.SerializeToString()
    prepared = prepare(model)
    assert model.SerializeToString() == before
    assert prepare(prepared).SerializeToString() == prepared.SerializeToString()
    onnx.checker.check_model(prepared, full_check=True)
    same_results(model, prepared)


def test_batchnorm_is_folded_and_dropout_and_identity_go() -> None:
    net = Net()
    x = net.conv("input", "conv", 3, 8, bias=False)
    rng = np.random.default_rng(0)
    stats = [net.store(f"bn.{part}", rng.uniform(0.5, 2, 8)) for part in ("scale", "bias", "mean", "var")]
    x = net.op("Identity", net.op("BatchNormalization", [x, *stats], "bn"), "same")
    x = net.op("Dropout", net.relu(x, "relu"), "drop")
    net.conv(x, "logits", 8, 4)
    model = net.model()
    prepared = prepare(model)
    assert ops(prepared) == ["Conv", "Relu", "Conv"]
    assert len(prepared.graph.initializer) == 4
    same_results(model, prepared)


def padded_conv(pads: list[int], value: float = 0.0, readers: str = "Conv") -> ModelProto:
    net = Net()
    names = ["input", net.store("pads", pads, np.int64), net.store("value", value)]
    x = net.op("Pad", names, "padded")
    if readers == "Conv":
        net.conv(x, "logits", 3, 4, pads=[1, 0, 0, 1])
    else:
        net.pool(x, "logits")
    return net.model()


def test_zero_padding_is_merged_into_the_convolution() -> None:
    model = padded_conv([0, 0, 1, 2, 0, 0, 3, 4])
    prepared = prepare(model)
    assert ops(prepared) == ["Conv"]
    assert list(prepared.graph.node[0].attribute[-1].ints) == [2, 2, 3, 5]
    same_results(model, prepared)


@pytest.mark.parametrize(
    "model",
    [
        padded_conv([0, 0, 1, 1, 0, 0, 1, 1], value=0.5),
        padded_conv([0, 0, -1, 0, 0, 0, 0, 0]),
        padded_conv([0, 0, 1, 1, 0, 0, 1, 1], readers="MaxPool"),
    ],
)
def test_other_paddings_stay(model: ModelProto) -> None:
    if "Conv" not in ops(model):
        with pytest.raises(CalibrationError, match="nothing to quantize"):
            observed_tensors(prepare(model))
    assert "Pad" in ops(prepare(model))


def test_padding_of_nothing_goes_wherever_it_stands() -> None:
    assert ops(prepare(padded_conv([0] * 8, readers="MaxPool"))) == ["MaxPool"]


def test_constant_nodes_and_weights_that_are_moved_become_initializers() -> None:
    net = Net(image=(6,))
    weight = net.rng.normal(size=(4, 6)).astype(np.float32)
    constant = numpy_helper.from_array(weight, "anything")
    net.nodes.append(helper.make_node("Constant", [], ["w"], value=constant))
    net.op("Transpose", "w", "wt", perm=[1, 0])
    x = net.op("MatMul", ["input", "wt"], "product")
    net.op("Add", [net.store("bias", [1, 2, 3, 4]), x], "logits")
    prepared = prepare(net.model())
    assert ops(prepared) == ["Gemm"]
    stored = {item.name: numpy_helper.to_array(item) for item in prepared.graph.initializer}
    assert sorted(stored) == ["bias", "wt"]
    assert (stored["wt"] == weight.T).all()
    assert list(prepared.graph.node[0].input) == ["input", "wt", "bias"]


def test_gemm_takes_alpha_and_beta_into_its_constants() -> None:
    net = Net(image=(6,))
    weight, bias = net.store("w", net.rng.normal(size=(6, 4))), net.store("b", [1, 2, 3, 4])
    x = net.op("Gemm", ["input", weight, bias], "first", alpha=0.5, beta=3.0)
    net.op("Gemm", ["input", weight, bias], "second", alpha=2.0)
    net.op("Add", [x, "second"], "logits")
    model = net.model()
    prepared = prepare(model)
    assert not any(item.name in ("alpha", "beta") for node in prepared.graph.node for item in node.attribute)
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    assert np.abs(run(model, x) - run(prepared, x)).max() < 1e-5
    assert len(layout_of(prepared).layers) == 2


def test_an_old_model_is_raised_to_opset_13() -> None:
    net = Net(opset=9)
    x = net.op("Clip", net.conv("input", "conv", 3, 8), "clip", min=0.0, max=6.0)
    x = net.op("Dropout", x, "drop", ratio=0.5)
    net.conv(x, "logits", 8, 4)
    model = net.model()
    model.ir_version = 3
    for item in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(item.name, item.data_type, item.dims))
    prepared = prepare(model)
    assert prepared.opset_import[0].version == 13
    assert prepared.ir_version == 4
    assert [item.name for item in prepared.graph.input] == ["input"]
    assert ops(prepared) == ["Conv", "Clip", "Conv"]
    assert observed_tensors(prepared) == ("input", "clip")
    same_results(model, prepared)


def test_newer_versions_are_kept() -> None:
    model = resnet()
    assert (prepare(model).opset_import[0].version, prepare(model).ir_version) == (17, 8)


def test_an_opset_that_cannot_be_raised_is_refused() -> None:
    model = resnet()
    model.opset_import[0].version = 9
    model.graph.node.add(op_type="Unheard", input=["logits"], output=["more"])
    with pytest.raises(CalibrationError, match=r"opset 9 cannot be raised to 13.*export it again") as error:
        prepare(model)
    assert "\n" not in str(error.value)


def test_a_quantized_model_is_not_quantized_twice() -> None:
    net = Net()
    zero, scale = net.store("z", 0, np.uint8), net.store("s", 0.1)
    x = net.op("QuantizeLinear", ["input", scale, zero], "q")
    net.conv(net.op("DequantizeLinear", [x, scale, zero], "dq"), "logits", 3, 4)
    assert is_quantized(net.model())
    with pytest.raises(CalibrationError, match="already quantized"):
        prepare(net.model())


def test_control_flow_is_refused_by_name() -> None:
    net = Net()
    x = net.conv("input", "conv", 3, 4)
    branch = helper.make_graph(
        [helper.make_node("Identity", ["conv"], ["out"])], "branch", [],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
    )  # fmt: skip
    net.op("If", net.store("flag", True, bool), "logits", then_branch=branch, else_branch=branch)
    assert x == "conv"
    with pytest.raises(CalibrationError, match=r"'logits/If' \(If\) is control flow"):
        prepare(net.model())


def test_nodes_get_names_of_their_own() -> None:
    model = resnet()
    for node in model.graph.node[:4]:
        node.name = ""
    model.graph.node[5].name = model.graph.node[6].name = "same"
    names = [node.name for node in prepare(model).graph.node]
    assert len(set(names)) == len(names)
    assert "" not in names


def test_observed_tensors_of_each_network() -> None:
    assert observed_tensors(prepare(resnet())) == (
        "input", "stem.relu", "a1.relu", "a2", "a.relu", "b1.relu", "b.skip", "b2", "b.relu",
    )  # fmt: skip
    # Behind LRN pooling is done in float; "pool2", quantized for convolutions, is then pooled on integers.
    assert observed_tensors(prepare(googlenet())) == (
        "input", "relu1", "norm1", "relu2", "pool2", "one.relu", "three.reduce.relu", "three.relu",
        "proj.relu",
    )  # fmt: skip
    assert observed_tensors(prepare(alexnet())) == ("input", "relu1", "pool1", "relu2", "relu6")
    assert observed_tensors(prepare(mobilenet())) == (
        "input", "stem.relu6", "dw.relu6", "project", "expand.relu6", "dw2.relu6", "project2", "add",
    )  # fmt: skip


def test_layers_and_passages_of_googlenet() -> None:
    layout = layout_of(prepare(googlenet()))
    assert [name.split("/")[0] for name in layout.layers] == [
        "conv1", "conv2", "one", "three.reduce", "three", "proj", "logits",
    ]  # fmt: skip
    assert [(passage.op, passage.inputs, passage.output) for passage in layout.passages] == [
        ("MaxPool", ("relu1",), "pool1"),
        ("MaxPool", ("pool2",), "branch.pool"),
        ("Concat", ("one.relu", "three.relu", "proj.relu"), "concat"),
        ("MaxPool", ("concat",), "pool3"),
        ("GlobalAveragePool", ("pool3",), "gap"),
        ("Flatten", ("gap",), "flat"),
    ]


def test_an_activation_that_others_read_too_is_not_fused() -> None:
    net = Net()
    x = net.conv("input", "conv", 3, 4)
    net.op("Add", [net.op("Sigmoid", x, "gate"), net.relu(x, "relu")], "sum")
    net.op("GlobalAveragePool", net.conv("sum", "last", 4, 2), "logits")
    layout = layout_of(prepare(net.model()))
    assert layout.observed == ("input", "conv", "relu", "sum", "last")
    assert layout.unit == ("gate",)
    assert layout.layers == ("conv/Conv", "gate/Sigmoid", "sum/Add", "last/Conv")


def test_an_add_of_a_constant_or_of_floats_stays_in_float() -> None:
    net = Net()
    x = net.op("Add", [net.conv("input", "conv", 3, 4), net.store("shift", [[[1.0]]])], "shifted")
    x = net.op("Add", [net.op("Sigmoid", x, "s"), net.op("Tanh", x, "t")], "floats")
    net.op("GlobalAveragePool", net.conv(x, "last", 4, 2), "logits")
    layout = layout_of(prepare(net.model()))
    assert layout.layers == ("conv/Conv", "last/Conv")
    assert layout.observed == ("input", "conv", "floats", "last")


def test_a_convolution_that_gives_the_logits_stays_in_float() -> None:
    net = Net()
    x = net.relu(net.conv("input", "conv", 3, 4), "relu")
    net.op("Flatten", net.conv(x, "head", 4, 2), "logits")
    layout = layout_of(prepare(net.model()))
    assert (layout.layers, layout.observed) == (("conv/Conv",), ("input", "relu"))


def test_an_input_that_joins_a_concat_in_float_is_quantized_for_it() -> None:
    net = Net()
    x = net.op(
        "Concat",
        [net.relu(net.conv("input", "conv", 3, 4), "relu"), net.op("Tanh", "input", "tanh")],
        "c",
        axis=1,
    )
    net.op("GlobalAveragePool", net.conv(x, "last", 7, 2), "logits")
    assert observed_tensors(prepare(net.model())) == ("input", "relu", "tanh", "last")


@pytest.mark.parametrize("kind", ["dynamic weight", "matrix bias", "transposed input"])
def test_what_cannot_run_on_integers_stays_in_float(kind: str) -> None:
    net = Net(image=(4,))
    net.op("Gemm", ["input", net.store("w0", np.ones((4, 4)))], "first")
    second = ["first", net.store("w", np.ones((4, 4))), net.store("b", np.ones(4))]
    attributes = {}
    if kind == "dynamic weight":
        second[1] = net.op("MatMul", [net.op("Transpose", "first", "t", perm=[1, 0]), "first"], "square")
    elif kind == "matrix bias":
        second[2] = net.store("m", np.ones((4, 4)))
    else:
        attributes = {"transA": 1}
    x = net.op("Gemm", second, "second", **attributes)
    net.op("Cast", x, "logits", to=TensorProto.FLOAT)
    graph = helper.make_graph(
        net.nodes, "mini", [helper.make_tensor_value_info("input", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)], net.stored,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert layout_of(prepare(model)).layers == ("first/Gemm",)


def test_exposing_adds_outputs_and_no_input() -> None:
    prepared = prepare(resnet())
    exposed = expose(prepared, [*observed_tensors(prepared), "logits"])
    assert [item.name for item in exposed.graph.output] == [
        "logits", "stem.relu", "a1.relu", "a2", "a.relu", "b1.relu", "b.skip", "b2", "b.relu",
    ]  # fmt: skip
    assert [side.dim_value for side in exposed.graph.output[1].type.tensor_type.shape.dim][1:] == [16, 24, 24]
    onnx.checker.check_model(exposed, full_check=True)
    with pytest.raises(CalibrationError, match="no tensor 'nowhere'"):
        expose(prepared, ["nowhere"])


def test_a_scheme_chooses_the_operators() -> None:
    prepared = prepare(resnet())
    without = layout_of(prepared, scheme(quantized_ops=frozenset({"Conv"})))
    assert not [name for name in without.layers if "Add" in name or "Gemm" in name]
    left = layout_of(prepared, None, frozenset({"a1/Conv", "logits/Gemm"}))
    assert set(layout_of(prepared).layers) - set(left.layers) == {"a1/Conv", "logits/Gemm"}


@pytest.mark.parametrize("name", ALL_NETS)
def test_one_table_serves_every_engine_and_holds_no_more_than_they_need(name: str) -> None:
    prepared = prepare(ALL_NETS[name]())
    wanted = {tensor for engine in SCHEMES for tensor in layout_of(prepared, scheme_of(engine)).observed}
    assert set(observed_tensors(prepared)) == wanted
    table = table_of(prepared)
    for engine in SCHEMES:
        onnx.checker.check_model(insert_qdq(prepared, table, scheme_of(engine)), full_check=True)


@pytest.mark.parametrize("name", ALL_NETS)
def test_any_layer_can_stay_in_float_with_the_same_table(name: str) -> None:
    prepared = prepare(ALL_NETS[name]())
    table = table_of(prepared)
    for engine in ("onnxruntime", "openvino", "tensorrt"):
        layers = layout_of(prepared, scheme_of(engine)).layers
        for float_layers in [{layer} for layer in layers] + [set(layers[kept:]) for kept in range(1, 4)]:
            if float_layers < set(layers):
                insert_qdq(prepared, table, scheme_of(engine), float_layers=frozenset(float_layers))


def test_a_pool_that_no_layer_stands_before_takes_the_range_of_what_it_reads() -> None:
    model = gated("both")
    table = table_of(model)
    short = {name: found for name, found in table.tensors.items() if name not in ("average", "pool")}
    quantized = insert_qdq(model, table.model_copy(update={"tensors": short}), scheme_of("openvino"))
    scales = {item.name: numpy_helper.to_array(item) for item in quantized.graph.initializer}
    found = table.tensors["scaled"]
    assert scales["pool_scale"] == np.float32(activation_params(found, scheme_of("openvino")).scale)


def test_a_model_whose_only_layer_reads_a_sigmoid_needs_no_range() -> None:
    net = Net()
    net.conv(net.op("Sigmoid", "input", "gate"), "logits", 3, 4)
    assert observed_tensors(prepare(net.model())) == ()


def test_why_there_is_nothing_to_quantize_is_said() -> None:
    net = Net()
    net.op("GlobalAveragePool", net.relu(net.conv("input", "a", 3, 4), "relu"), "logits")
    prepared = prepare(net.model())
    with pytest.raises(CalibrationError, match="every layer, such as 'a/Conv', is to stay in float"):
        layout_of(prepared, None, frozenset({"a/Conv"}))
    net = Net()
    net.conv("input", "logits", 3, 4)
    with pytest.raises(CalibrationError, match="'logits/Conv' gives logits directly"):
        layout_of(prepare(net.model()), scheme_of("onnxruntime"))
    net = Net()
    net.op("Relu", "input", "logits")
    with pytest.raises(CalibrationError, match="no Conv, Gemm or MatMul has constant float32 weights"):
        observed_tensors(prepare(net.model()))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["a.weight", "a.bias"])
def test_weights_and_biases_that_are_not_finite_are_refused_before_calibration(name: str, bad: float) -> None:
    net = Net()
    net.op("GlobalAveragePool", net.relu(net.conv("input", "a", 3, 4), "relu"), "logits")
    spoil(net, name, bad)
    with pytest.raises(CalibrationError, match=f"weight or bias '{name}' holds NaN or infinite values"):
        prepare(net.model())


def test_other_stored_numbers_may_be_infinite_but_not_nan() -> None:
    net = Net()
    x = net.relu6(net.conv("input", "a", 3, 4), "clip")
    net.op("GlobalAveragePool", x, "logits")
    spoil(net, "clip.max", np.inf)
    assert layout_of(prepare(net.model())).layers == ("a/Conv",)
    spoil(net, "clip.max", np.nan)
    with pytest.raises(CalibrationError, match=r"initializer 'clip.max' holds NaN"):
        prepare(net.model())


def test_nan_is_named_as_the_file_names_it_and_found_in_constant_nodes() -> None:
    net = Net()
    parts = [net.store(f"bn.{part}", np.ones(4)) for part in ("scale", "bias", "mean", "var")]
    x = net.op("BatchNormalization", [net.conv("input", "a", 3, 4), *parts], "bn")
    net.op("GlobalAveragePool", net.relu(x, "relu"), "logits")
    spoil(net, "bn.mean", np.nan)
    with pytest.raises(CalibrationError, match=r"initializer 'bn.mean' holds NaN"):
        prepare(net.model())
    net = Net(image=(4,))
    turned = net.op("Transpose", net.store("stored", np.full((2, 4), np.nan)), "turned", perm=[1, 0])
    net.op("MatMul", ["input", turned], "logits")
    with pytest.raises(CalibrationError, match="initializer 'stored' holds NaN"):
        prepare(net.model())
    net = Net()
    value = numpy_helper.from_array(np.full((4, 3, 1, 1), np.inf, np.float32))
    net.nodes.append(helper.make_node("Constant", [], ["held"], value=value))
    net.op("Conv", ["input", "held"], "logits")
    with pytest.raises(CalibrationError, match="weight or bias 'held' holds NaN or infinite values"):
        prepare(net.model())


def spoil(net: Net, name: str, value: float) -> None:
    for item in net.stored:
        if item.name == name:
            array = numpy_helper.to_array(item).copy()
            array.reshape(-1)[-1] = value
            item.CopyFrom(numpy_helper.from_array(array, name))


def layers_and_tensors(model: ModelProto, engine: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    layout = layout_of(prepare(model), scheme_of(engine))
    return layout.layers, layout.tensors


def test_activations_are_fused_where_the_engine_computes_them_itself() -> None:
    layers, tensors = layers_and_tensors(efficientnet(), "openvino")
    assert not [name for name in layers if name.endswith(("/Mul", "/Sigmoid"))]
    assert tensors == (
        "input", "stem.silu", "expand.silu", "dw.silu", "se.gap", "se.fc1.relu", "se.scaled", "project",
        "add", "gap", "flat",
    )  # fmt: skip
    layers, tensors = layers_and_tensors(mobilenet_v3(), "tensorrt")
    assert "stem.hs" in tensors
    assert not {"stem", "se.fc2", "se.gate"} & set(tensors)
    assert layers_and_tensors(curved(), "openvino")[1][:4] == ("input", "stem.prelu", "average", "a.elu")


def test_onnxruntime_has_kernels_for_some_activations_alone() -> None:
    layers, tensors = layers_and_tensors(efficientnet(), "onnxruntime")
    assert {"stem.silu/Mul", "stem.silu.sigmoid/Sigmoid", "se.scaled/Mul"} <= set(layers)
    assert {"stem", "stem.silu.sigmoid", "stem.silu", "se.fc2", "se.gate"} <= set(tensors)
    layers, tensors = layers_and_tensors(mobilenet_v3(), "onnxruntime")
    assert {"stem.hs/HardSwish", "se.gate/HardSigmoid"} <= set(layers)
    layers, tensors = layers_and_tensors(curved(), "onnxruntime")
    assert not {"stem.prelu/PRelu", "a.elu/Elu"} & set(layers)
    assert tensors[:5] == ("input", "stem", "average", "a", "a.elu")  # PRelu is pooled in float


def test_a_sigmoid_needs_no_range() -> None:
    prepared = prepare(efficientnet())
    layout = layout_of(prepared)
    assert layout.unit == ("stem.silu.sigmoid", "expand.silu.sigmoid", "dw.silu.sigmoid", "se.gate")
    assert not set(layout.unit) & set(observed_tensors(prepared))


def test_a_gate_of_another_tensor_is_no_activation() -> None:
    net = Net()
    x, y = net.conv("input", "a", 3, 8), net.conv("input", "b", 3, 8)
    x = net.op("Mul", [x, net.op("Sigmoid", y, "gate")], "product")
    net.op("GlobalAveragePool", net.conv(x, "last", 8, 4), "logits")
    layout = layout_of(prepare(net.model()), scheme_of("openvino"))
    assert layout.tensors == ("input", "product")


@pytest.mark.parametrize("reader", ["none", "node", "output"])
def test_a_product_is_fused_when_nothing_else_reads_its_gate(reader: str) -> None:
    net = Net()
    x = net.conv("input", "a", 3, 8)
    gate = net.op("Sigmoid", x, "gate")
    x = net.op("Mul", [x, gate], "product")
    if reader == "node":
        x = net.op("Concat", [x, net.op("Tanh", gate, "tanh")], "both", axis=1)
    net.op("GlobalAveragePool", net.conv(x, "b", 16 if reader == "node" else 8, 4), "logits")
    model = net.model()
    if reader == "output":
        model.graph.output.append(helper.make_tensor_value_info("gate", TensorProto.FLOAT, None))
    rules = scheme(quantized_ops=frozenset({"Conv"}), fused_activations=frozenset({"Sigmoid"}))
    tensors = layout_of(prepare(model), rules).tensors
    assert ("a" in tensors) == (reader != "none")


@pytest.mark.parametrize("reader", ["none", "node", "output"])
def test_a_convolution_adds_the_other_input_when_nothing_else_reads_its_result(reader: str) -> None:
    net = Net()
    x = net.relu(net.conv("input", "a", 3, 8), "relu")
    y = net.conv(x, "b", 8, 8)
    x = net.op("Add", [x, y], "sum")
    if reader == "node":
        x = net.op("Concat", [x, net.op("Tanh", y, "tanh")], "both", axis=1)
    net.op("GlobalAveragePool", net.conv(x, "c", 16 if reader == "node" else 8, 4), "logits")
    model = net.model()
    if reader == "output":
        model.graph.output.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, None))
    tensors = layout_of(prepare(model), scheme_of("tensorrt")).tensors
    assert "relu" in tensors
    assert ("b" in tensors) == (reader != "none")


@pytest.mark.parametrize("kind", ["HardSigmoid", "HardSwish"])
def test_an_activation_without_a_kernel_of_its_own_that_is_an_output_stays_in_float(kind: str) -> None:
    net = Net()
    x = net.op(kind, net.conv("input", "a", 3, 8), "curve")
    net.op("GlobalAveragePool", net.conv(x, "b", 8, 4), "logits")
    model = net.model()
    assert f"curve/{kind}" in layout_of(prepare(model)).layers
    model.graph.output.append(helper.make_tensor_value_info("curve", TensorProto.FLOAT, ["N", 8, 24, 24]))
    assert f"curve/{kind}" not in layout_of(prepare(model)).layers
    quantized = insert_qdq(model, table_of(model), scheme())
    assert [item.name for item in quantized.graph.output] == ["logits", "curve"]
    onnx.checker.check_model(quantized, full_check=True)


def test_a_hard_sigmoid_that_falls_stays_in_float() -> None:
    net = Net()
    x = net.op("HardSigmoid", net.conv("input", "a", 3, 8), "curve", alpha=-0.2)
    net.op("GlobalAveragePool", net.conv(x, "b", 8, 4), "logits")
    assert "curve/HardSigmoid" not in layout_of(prepare(net.model())).layers


def test_a_residual_add_that_the_convolution_computes_quantizes_the_other_input_alone() -> None:
    _, tensors = layers_and_tensors(resnet(), "tensorrt")
    assert "a2" not in tensors
    # Two convolutions meet: the later one adds the result of the other.
    assert ("b2" in tensors, "b.skip" in tensors) == (False, True)
    assert {"a2", "b2", "b.skip"} <= set(layers_and_tensors(resnet(), "openvino")[1])
    float_conv = layout_of(prepare(resnet()), scheme_of("tensorrt"), frozenset({"a2/Conv"}))
    assert "a2" in float_conv.tensors


def test_what_only_float_operators_read_stays_in_float_where_kernels_give_floats() -> None:
    # A tensor that goes to LRN directly; the one before is pooled on integers, which moves fewer bytes.
    for engine, expected in (("openvino", False), ("tensorrt", False), ("onnxruntime", True)):
        _, tensors = layers_and_tensors(googlenet(), engine)
        assert {"relu1", "pool1"} <= set(tensors)
        assert ("relu2" in tensors) == expected


def test_logits_come_out_of_an_integer_convolution_where_its_kernel_gives_floats() -> None:
    assert "logits/Conv" in layers_and_tensors(unet(), "openvino")[0]
    assert "logits/Conv" not in layers_and_tensors(unet(), "onnxruntime")[0]
    for engine in SCHEMES:
        assert "logits" not in layers_and_tensors(unet(), engine)[1]


def test_a_transposed_convolution_of_one_group_runs_on_integers_where_there_is_a_kernel() -> None:
    assert "up/ConvTranspose" in layers_and_tensors(unet(), "tensorrt")[0]
    assert "up/ConvTranspose" in layers_and_tensors(unet(), "openvino")[0]
    assert "up/ConvTranspose" not in layers_and_tensors(unet(), "onnxruntime")[0]
    net = Net(image=(4, 6, 6))
    x = net.op("ConvTranspose", ["input", net.store("w", np.ones((4, 2, 2, 2)))], "grouped", group=2)
    net.conv(x, "logits", 4, 2)
    assert layers_and_tensors(net.model(), "openvino")[0] == ("logits/Conv",)


def test_a_model_that_only_some_engines_can_quantize_has_ranges_for_those() -> None:
    net = Net(image=(4, 6, 6))
    net.op("ConvTranspose", ["input", net.store("w", np.ones((4, 2, 2, 2)))], "logits")
    prepared = prepare(net.model())
    assert observed_tensors(prepared) == ("input",)
    assert layout_of(prepared, scheme_of("tensorrt")).layers == ("logits/ConvTranspose",)
    with pytest.raises(CalibrationError, match=r"nothing .* no integer kernel for ConvTranspose"):
        layout_of(prepared, scheme_of("onnxruntime"))


def test_products_of_matrices_run_on_integers_when_the_second_is_constant() -> None:
    layers, tensors = layers_and_tensors(perceptron(), "onnxruntime")
    assert layers == ("fc1/Gemm", "fc2/Gemm", "fc3/MatMul", "logits/Gemm")
    assert tensors == ("row", "fc1.relu", "fc2.relu", "flat")

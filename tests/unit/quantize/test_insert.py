from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

from inferometer import registry
from inferometer.contracts import QdqScheme
from inferometer.errors import CalibrationError
from inferometer.quantize.graph import prepare
from inferometer.quantize.insert import calibration_of, insert_qdq
from inferometer.quantize.note import NOTE_KEY
from tests.unit.quantize.graphs import (
    MORE_NETS,
    NETS,
    SYMMETRIC,
    Net,
    alexnet,
    googlenet,
    images,
    kernels,
    openvino_layers,
    ort_session,
    resnet,
    run,
    scheme,
    sqnr_db,
    table_of,
    unet,
)

MULTIPLYING = {"Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "Add"}


def stored(model: ModelProto) -> dict[str, np.ndarray]:
    return {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}


def node_named(model: ModelProto, name: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.name == name)


def by_output(model: ModelProto) -> dict[str, onnx.NodeProto]:
    return {name: node for node in model.graph.node for name in node.output}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "resnet",
            {
                "QLinearConv": 6,
                "QLinearAdd": 2,
                "QGemm": 1,
                "QLinearGlobalAveragePool": 1,
                "QuantizeLinear": 1,
            },
        ),
        (
            "googlenet",
            {"QLinearConv": 6, "QLinearConcat": 1, "QGemm": 1, "LRN": 2, "QLinearGlobalAveragePool": 1},
        ),
        ("alexnet", {"QLinearConv": 2, "QGemm": 2, "LRN": 1}),
        ("mobilenet", {"QLinearConv": 6, "QLinearAdd": 1, "QGemm": 1, "QLinearGlobalAveragePool": 1}),
    ],
)
def test_every_layer_becomes_an_integer_kernel(name: str, expected: dict[str, int], tmp_path: Path) -> None:
    model = NETS[name]()
    quantized = insert_qdq(model, table_of(model), scheme())
    onnx.checker.check_model(quantized, full_check=True)
    found = kernels(quantized, tmp_path)
    assert {op: found[op] for op in expected} == expected
    assert not MULTIPLYING & set(found)
    # Nothing is dequantized but for LRN.
    assert found["DequantizeLinear"] == found["LRN"]
    assert not {"Relu", "Clip"} & set(found)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(("changes", "floor_db"), [({}, 25.0), ({"weight_bits": 8}, 28.0), (SYMMETRIC, 24.0)])
def test_results_are_close_to_float(name: str, changes: dict, floor_db: float) -> None:
    model = NETS[name]()
    quantized = insert_qdq(model, table_of(model), scheme(**changes))
    # Without fusing, every node computes what ONNX says, so that 8-bit weights do not saturate here.
    exact, simulated = run(model, images(16, 2)), run(quantized, images(16, 2), fuse=False)
    assert sqnr_db(exact, simulated) > floor_db
    if not changes:
        assert sqnr_db(simulated, run(quantized, images(16, 2))) > 30


def scheme_of(engine: str) -> QdqScheme:
    found = registry.qdq_scheme(engine, None, {})
    assert found is not None
    return found


# What onnxruntime has no integer kernel for, and the logits of a convolution, which has none with floats.
FLOATS = {
    "mobilenet_v3": set(), "efficientnet": set(), "darknet": set(), "curved": {"PRelu", "Elu", "AveragePool"},
    "unet": {"Conv", "ConvTranspose"}, "perceptron": {"Elu", "MatMul", "FusedMatMul"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mobilenet_v3", {"QLinearConv": 6, "QLinearAdd": 6, "QLinearMul": 5, "QGemm": 2}),
        ("efficientnet", {"QLinearConv": 6, "QLinearSigmoid": 4, "QLinearMul": 4, "QLinearAdd": 1}),
        ("darknet", {"QLinearConv": 3, "QLinearLeakyRelu": 3, "QLinearAdd": 1}),
        ("curved", {"QLinearConv": 4, "QLinearConcat": 1}),
        ("unet", {"QLinearConv": 3, "QLinearConcat": 1, "NhwcMaxPool": 1}),
        ("perceptron", {"QGemm": 3, "MatMulIntegerToFloat": 1}),
    ],
)
def test_activations_and_gates_become_integer_kernels_of_onnxruntime(
    name: str, expected: dict[str, int], tmp_path: Path
) -> None:
    model = MORE_NETS[name]()
    found = kernels(insert_qdq(model, table_of(model), scheme_of("onnxruntime")), tmp_path)
    assert {op: found[op] for op in expected} == expected
    around = {"QuantizeLinear", "DequantizeLinear", "Transpose", "Flatten", "Reshape", "ReorderInput"}
    floats = {op for op in found if not op.startswith(("Q", "Nhwc", "MatMulInteger"))} - around
    assert floats - {"ReorderOutput"} == FLOATS[name]
    if not FLOATS[name]:  # the input is quantized, and that is all
        assert (found["QuantizeLinear"], found["DequantizeLinear"]) == (1, 0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet", {"Convolution": 6, "FullyConnected": 1, "Pooling": 1}),
        ("googlenet", {"Convolution": 6, "FullyConnected": 1, "Concatenation": 1}),
        ("alexnet", {"Convolution": 2, "FullyConnected": 2}),
        ("mobilenet", {"Convolution": 6, "FullyConnected": 1}),
        ("mobilenet_v3", {"Convolution": 6, "FullyConnected": 2}),
        ("efficientnet", {"Convolution": 6, "FullyConnected": 1}),
        ("darknet", {"Convolution": 3, "FullyConnected": 1}),
        ("curved", {"Convolution": 4, "Pooling": 1, "Concatenation": 1}),
        ("unet", {"Convolution": 4, "Deconvolution": 1, "Concatenation": 1, "Pooling": 1}),
        ("perceptron", {"FullyConnected": 4}),
    ],
)
def test_every_layer_becomes_an_integer_kernel_of_openvino(
    name: str, expected: dict[str, int], tmp_path: Path
) -> None:
    model = {**NETS, **MORE_NETS}[name]()
    found = openvino_layers(insert_qdq(model, table_of(model), scheme_of("openvino")), tmp_path)
    assert {op: found[op, "int8"] for op in expected} == expected
    # In float: the input on its way to integers, LRN with what stands around it (Eltwise dequantizes what it
    # reads), products without constants.
    left = {op for op, precision in found if precision != "int8"} - {"Reorder", "Reshape", "Subgraph"}
    assert left <= {
        "googlenet": {"Eltwise", "Lrn", "Pooling", "Softmax"}, "alexnet": {"Lrn", "Pooling"},
        "mobilenet_v3": {"Math"}, "perceptron": {"MatMul"},
    }.get(name, set())  # fmt: skip


@pytest.mark.parametrize("name", MORE_NETS)
@pytest.mark.parametrize(
    ("engine", "floor_db"),
    [("onnxruntime", 28.0), ("openvino", 28.0), ("tensorrt", 26.0), ("tensorrt_rtx", 26.0), ("torch", 26.0)],
)
def test_activations_keep_results_close_to_float(name: str, engine: str, floor_db: float) -> None:
    if name == "perceptron":
        floor_db = 18.0  # squares its activations, and with them their errors
    model = MORE_NETS[name]()
    quantized = insert_qdq(model, table_of(model), scheme_of(engine))
    assert sqnr_db(run(model, images(16, 2)), run(quantized, images(16, 2), fuse=False)) > floor_db


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("alpha", "beta"), [(1 / 6, 0.5), (0.2, 0.5), (2.0, 0.0), (0.5, -0.25)])
def test_a_hard_sigmoid_on_integers_is_right_to_half_a_step(alpha: float, beta: float, dtype: str) -> None:
    net = Net()
    x = net.op("HardSigmoid", net.conv("input", "conv", 3, 8), "gate", alpha=alpha, beta=beta)
    net.op("GlobalAveragePool", net.conv(x, "last", 8, 4), "logits")
    model = net.model()
    quantized = insert_qdq(model, table_of(model), scheme(activation_dtype=dtype))
    for name in ("conv", "gate_dequantized"):
        quantized.graph.output.append(helper.make_tensor_value_info(name, 1, None))
    _, conv, after = ort_session(quantized, fuse=False).run(None, {"input": images(8)})
    values, limits = stored(quantized), np.iinfo(dtype)
    step, zero = values["conv_scale"], values["conv_zero_point"].astype(int)
    before = (np.clip(np.rint(conv / step) + zero, limits.min, limits.max) - zero) * step
    exact = np.clip(alpha * before + beta, 0, 1)
    assert np.abs(after - exact).max() <= 0.5 / 255 + 1e-6
    assert exact.max() - exact.min() > 0.4


def test_a_hard_swish_is_its_input_times_the_gate() -> None:
    net = Net()
    x = net.op("HardSwish", net.conv("input", "conv", 3, 8), "swish")
    net.op("GlobalAveragePool", net.conv(x, "last", 8, 4), "logits")
    model = net.model()
    quantized = insert_qdq(model, table_of(model), scheme())
    for name in ("conv_dequantized", "swish"):
        quantized.graph.output.append(helper.make_tensor_value_info(name, 1, None))
    _, before, after = ort_session(quantized, fuse=False).run(None, {"input": images(8)})
    exact = before * np.clip(before / 6 + 0.5, 0, 1)
    assert (np.abs(after - exact) <= np.abs(before) * 0.5 / 255 + 1e-6).all()
    # Where no range begins with 0 there is nothing that would saturate there: in float.
    symmetric = insert_qdq(model, table_of(model), scheme(**SYMMETRIC))
    assert [node.op_type for node in symmetric.graph.node if "swish/" in node.name] == ["HardSwish"]


def test_a_transposed_convolution_has_its_output_channels_on_the_second_axis() -> None:
    model = unet()
    weight = stored(model)["up.weight"]
    quantized = insert_qdq(model, table_of(model), scheme_of("tensorrt"))
    values, producers = stored(quantized), by_output(quantized)
    assert values["up.weight_scale"] == pytest.approx(np.abs(weight).max(axis=(0, 2, 3)) / 127, rel=1e-6)
    assert helper.get_node_attr_value(producers["up.weight_dequantized"], "axis") == 1
    assert node_named(quantized, "up/ConvTranspose").input[2] == "up.bias"


def test_onnxruntime_keeps_a_transposed_convolution_in_float(tmp_path: Path) -> None:
    model = unet()
    quantized = insert_qdq(model, table_of(model), scheme_of("onnxruntime"))
    path = tmp_path / "optimized.onnx"
    ort_session(quantized, path)
    optimized = onnx.load(path)
    node = next(node for node in optimized.graph.node if node.op_type == "ConvTranspose")
    assert (stored(optimized)[node.input[1]] == stored(model)["up.weight"]).all()


def test_the_file_shrinks_fourfold() -> None:
    model = alexnet()
    quantized = insert_qdq(model, table_of(model), scheme())
    assert quantized.ByteSize() < 0.45 * model.ByteSize()  # 30 000 weights: names and nodes still count
    assert {str(value.dtype) for value in stored(quantized).values() if value.ndim > 1} == {"int8"}


def test_one_pair_per_tensor_none_before_an_activation_none_on_the_logits() -> None:
    model = resnet()
    table = table_of(model)
    quantized = insert_qdq(model, table, scheme())
    producers = by_output(quantized)
    counts = Counter(node.op_type for node in quantized.graph.node)
    tensors = [*table.tensors, "pool", "gap", "flat"]
    assert counts["QuantizeLinear"] == len(tensors)
    assert {node.input[0] for node in quantized.graph.node if node.op_type == "QuantizeLinear"} == set(
        tensors
    )
    for node in quantized.graph.node:
        if node.op_type == "Relu":
            assert producers[node.input[0]].op_type in ("Conv", "Add")
        if node.op_type in ("Conv", "Add", "Gemm", "MaxPool", "GlobalAveragePool", "Flatten"):
            assert {producers[name].op_type for name in node.input} == {"DequantizeLinear"}
    assert producers["logits"].op_type == "Gemm"
    values = stored(quantized)
    assert (
        values["pool_scale"] == values["stem.relu_scale"] == np.float32(table.tensors["stem.relu"].hi / 255)
    )
    assert values["stem.relu_zero_point"] == 0


def test_weights_are_symmetric_per_output_channel_whatever_the_layout() -> None:
    net = Net(image=(6,))
    wide = net.rng.normal(size=(6, 3)) * [1, 10, 100]
    tall = net.rng.normal(size=(3, 5)) * [1, 10, 100, 1000, 10000]
    x = net.gemm("input", "straight", 6, 3, trans_b=0)
    net.stored[0].CopyFrom(numpy_helper.from_array(wide.astype(np.float32), "straight.weight"))
    x = net.op("MatMul", [x, net.store("tall", tall)], "product")
    net.gemm(x, "logits", 5, 2)
    model = net.model()
    ranges = {name: {"lo": -3, "hi": 3, "threshold": 3} for name in ("input", "straight", "product")}
    table = table_of(resnet()).model_validate(
        {**table_of(resnet()).model_dump(by_alias=True), "tensors": ranges}
    )
    quantized = insert_qdq(model, table, scheme(weight_bits=8))
    values, producers = stored(quantized), by_output(quantized)
    for name, peaks in (("straight.weight", np.abs(wide).max(0)), ("tall", np.abs(tall).max(0))):
        assert values[f"{name}_scale"] == pytest.approx(peaks / 127, rel=1e-6)
        assert (np.abs(values[f"{name}_quantized"]).max(axis=0) == 127).all()
        assert helper.get_node_attr_value(producers[f"{name}_dequantized"], "axis") == 1
    assert values["logits.weight_scale"].shape == (2,)
    assert helper.get_node_attr_value(producers["logits.weight_dequantized"], "axis") == 0
    bias = numpy_helper.to_array(
        next(item for item in model.graph.initializer if item.name == "straight.bias")
    )
    steps = values["input_scale"] * values["straight.weight_scale"]
    assert values["straight.bias_scale"] == pytest.approx(steps)
    assert values["straight.bias_quantized"].dtype == np.int32
    assert (
        np.abs(values["straight.bias_quantized"] * steps.astype(np.float64) - bias).max()
        <= 0.51 * steps.max()
    )


@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm_and_matmul_run_on_integers(trans_b: int, tmp_path: Path) -> None:
    net = Net(image=(3, 4, 6))
    x = net.op("Reshape", ["input", net.store("shape", [0, 72], np.int64)], "rows")
    x = net.relu(net.gemm(x, "first", 72, 16, trans_b=trans_b), "relu")
    x = net.op("MatMul", [x, net.store("w", net.rng.normal(0, 0.25, (16, 8)))], "product")
    net.gemm(net.op("Tanh", x, "tanh"), "logits", 8, 4)
    model = net.model()
    x = np.random.default_rng(5).standard_normal((16, 3, 4, 6)).astype(np.float32)
    table = table_with(model, x)
    quantized = insert_qdq(model, table, scheme())
    found = kernels(quantized, tmp_path)
    assert found["QGemm"] == 2
    assert found["MatMulIntegerToFloat"] == 1
    assert not MULTIPLYING & set(found)
    assert sqnr_db(run(model, x), run(quantized, x)) > 25


def table_with(model: ModelProto, x: np.ndarray):  # type: ignore[no-untyped-def]
    from inferometer.quantize.calibrate import calibrate
    from inferometer.quantize.graph import expose, observed_tensors
    from tests.unit.quantize.graphs import OrtSession, batches_of

    prepared = prepare(model)
    names = observed_tensors(prepared)
    session = OrtSession(expose(prepared, names), len(x))
    return calibrate(
        session, batches_of(x, len(x)), names, method="minmax", model_sha256="0" * 64, source="synthetic"
    )


def test_the_symmetric_scheme_is_what_tensorrt_parses() -> None:
    model = googlenet()
    quantized = insert_qdq(model, table_of(model), scheme(**SYMMETRIC))
    values, producers = stored(quantized), by_output(quantized)
    for name, value in values.items():
        if name.endswith("zero_point"):
            assert value.dtype == np.int8
            assert not value.any()
    for node in quantized.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            assert node.input[2].endswith(".bias")
            assert values[node.input[2]].dtype == np.float32
            assert producers[node.input[1]].op_type == "DequantizeLinear"
    found = table_of(model).tensors
    assert values["input_scale"] == np.float32(found["input"].threshold / 127)
    shared = max(found[name].threshold for name in ("one.relu", "three.relu", "proj.relu"))
    for name in ("one.relu", "three.relu", "proj.relu", "concat", "pool3", "gap", "flat"):
        assert values[f"{name}_scale"] == np.float32(shared / 127)


def test_depthwise_weights_keep_eight_bits_and_nothing_saturates(tmp_path: Path) -> None:
    # The worst case: every weight and every input at its largest.
    for size in (3, 5):
        net = Net(image=(16, 12, 12))
        weight = net.store("w", np.full((16, 1, size, size), 0.5))
        x = net.op("Conv", ["input", weight], "dw", group=16, pads=[size // 2] * 4)
        net.conv(x, "last", 16, 4)
        net.op("GlobalAveragePool", "last", "logits")
        model = net.model()
        x = np.ones((2, 16, 12, 12), np.float32)
        quantized = insert_qdq(model, table_with(model, x), scheme())
        assert np.abs(stored(quantized)["w_quantized"]).max() == 127
        assert kernels(quantized, tmp_path)["QLinearConv"] == 2
        exposed = onnx.ModelProto.FromString(quantized.SerializeToString())
        exposed.graph.output.insert(0, helper.make_tensor_value_info("dw_dequantized", 1, None))
        assert run(exposed, x).max() == pytest.approx(size * size * 0.5, rel=1e-3)


def test_a_reduced_range_saturates_nowhere() -> None:
    # All inputs at 255 and all weights equal: with 8-bit weights kernels without VNNI lose half of the sum.
    net = Net(image=(32, 4, 4))
    x = net.op("Conv", ["input", net.store("w", np.full((8, 32, 1, 1), 0.1))], "conv")
    net.op("GlobalAveragePool", x, "pooled")
    net.gemm(net.op("Flatten", "pooled", "flat"), "logits", 8, 4)
    model = net.model()
    x = np.ones((2, 32, 4, 4), np.float32)
    quantized = insert_qdq(model, table_with(model, x), scheme())
    assert np.abs(stored(quantized)["w_quantized"]).max() == 64
    assert sqnr_db(run(model, x), run(quantized, x)) > 35


def test_the_note_in_the_file() -> None:
    model = resnet()
    table = table_of(model)
    quantized = insert_qdq(model, table, scheme(), float_layers=frozenset({"a1/Conv"}))
    note = calibration_of(onnx.ModelProto.FromString(quantized.SerializeToString()))
    assert note is not None
    assert note.table_sha256 == table.content_sha256()
    assert (note.method, note.source, note.images, note.scheme, note.weight_bits) == (
        "minmax",
        "images",
        24,
        "ort",
        7,
    )
    assert note.image_hashes == table.image_hashes
    assert note.float_layers == ("a1/Conv",)
    assert calibration_of(model) is None
    model.metadata_props.add(key=NOTE_KEY, value='{"method": 3}')
    with pytest.raises(CalibrationError, match=r"metadata 'inferometer.calibration' cannot be read"):
        calibration_of(model)


def test_layers_left_in_float(tmp_path: Path) -> None:
    model = resnet()
    quantized = insert_qdq(
        model, table_of(model), scheme(), float_layers=frozenset({"a1/Conv", "logits/Gemm"})
    )
    # Left to itself, onnxruntime quantizes a float weight between a DequantizeLinear and a QuantizeLinear.
    found = kernels(quantized, tmp_path, disabled_optimizers=["WeightBiasQuantization"])
    assert found["QLinearConv"] == 5
    assert found["FusedConv"] + found["Conv"] == 1
    assert node_named(quantized, "a1/Conv").input[1] == "a1.weight"
    with pytest.raises(CalibrationError, match="no quantized layer is named 'a9'"):
        insert_qdq(model, table_of(model), scheme(), float_layers=frozenset({"a9"}))


def test_a_scheme_that_passes_less_through_takes_the_ranges_of_the_inputs() -> None:
    model = resnet()
    rules = scheme(passthrough_ops=frozenset({"Flatten"}))
    quantized = insert_qdq(model, table_of(model), rules)
    values = stored(quantized)
    assert values["flat_scale"] == values["b.relu_scale"]
    assert by_output(quantized)["flat"].input[0] == "gap"
    assert sqnr_db(run(model, images(8)), run(quantized, images(8))) > 25


def test_a_weight_used_twice_is_stored_once_where_the_scales_agree() -> None:
    net = Net()
    weight = net.store("w", net.rng.normal(0, 0.2, (3, 3, 3, 3)))
    x = net.relu(net.op("Conv", ["input", weight], "one", pads=[1] * 4), "one.relu")
    x = net.relu(net.op("Conv", [x, weight], "two", pads=[1] * 4), "two.relu")
    net.op("GlobalAveragePool", x, "logits")
    model = net.model()
    quantized = insert_qdq(model, table_of(model), scheme())
    assert sum(value.dtype == np.int8 for value in stored(quantized).values() if value.ndim > 1) == 1
    assert sqnr_db(run(model, images(4)), run(quantized, images(4))) > 25


def shared_weight(bias: float) -> ModelProto:
    """Two convolutions of one weight; the second has a bias of ``bias`` in channel 1."""
    net = Net()
    weight = net.store("w", net.rng.normal(0, 0.2, (3, 3, 3, 3)))
    x = net.relu(net.op("Conv", ["input", weight], "one", pads=[1] * 4), "one.relu")
    names = [x, weight, net.store("two.bias", [0.0, bias, 0.0])]
    net.op("GlobalAveragePool", net.relu(net.op("Conv", names, "two", pads=[1] * 4), "two.relu"), "logits")
    return net.model()


def test_a_bias_too_large_for_its_integers_widens_the_scale_of_its_channel_alone() -> None:
    bias = 1e8
    model = shared_weight(bias)
    quantized = insert_qdq(model, table_of(model), scheme(weight_bits=8))
    values, producers = stored(quantized), by_output(quantized)
    one, two = (producers[node_named(quantized, f"{name}/Conv").input[1]].input for name in ("one", "two"))
    own = np.abs(stored(model)["w"]).max(axis=(1, 2, 3)) / 127
    assert values[one[1]] == pytest.approx(own, rel=1e-6)
    least = bias / (float(values["one.relu_scale"]) * 2**30)
    assert least > 2 * own[1]
    # One weight with two scales is stored twice, each with the integers of its own scale.
    assert values[two[1]] == pytest.approx([own[0], least, own[2]], rel=1e-6)
    for source, scale, _ in (one, two):
        steps = stored(model)["w"] / values[scale].reshape(-1, 1, 1, 1)
        assert (values[source] == np.rint(steps)).all()
    integers = values["two.bias_quantized"].tolist()
    assert (integers[0], integers[2]) == (0, 0)
    assert integers[1] == pytest.approx(2**30, rel=1e-6)


def test_an_intermediate_output_keeps_its_name_and_the_layer_its_kernel(tmp_path: Path) -> None:
    model = resnet()
    model.graph.output.append(helper.make_tensor_value_info("a.relu", 1, ["N", 16, 12, 12]))
    quantized = insert_qdq(model, table_of(model), scheme())
    onnx.checker.check_model(quantized, full_check=True)
    assert [item.name for item in quantized.graph.output] == ["logits", "a.relu"]
    assert by_output(quantized)["a.relu"].op_type == "DequantizeLinear"
    assert not MULTIPLYING & set(kernels(quantized, tmp_path))


def test_names_do_not_clash() -> None:
    model = resnet()
    for item in model.graph.initializer:
        if item.name == "a2.bias":
            item.name = "input_scale"
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            if name == "a2.bias":
                node.input[position] = "input_scale"
    quantized = insert_qdq(model, table_of(model), scheme(**SYMMETRIC))
    onnx.checker.check_model(quantized, full_check=True)
    assert sqnr_db(run(model, images(4)), run(quantized, images(4), fuse=False)) > 24


def test_versions_are_kept_and_the_model_is_left_alone() -> None:
    model = resnet()
    before = model.SerializeToString()
    quantized = insert_qdq(model, table_of(model), scheme())
    assert (quantized.ir_version, quantized.opset_import[0].version) == (model.ir_version, 17)
    assert model.SerializeToString() == before
    assert (
        insert_qdq(prepare(model), table_of(model), scheme()).SerializeToString()
        == quantized.SerializeToString()
    )


def test_a_zero_channel_and_dead_tensors_stay_finite(tmp_path: Path) -> None:
    model = resnet()
    for item in model.graph.initializer:
        value = numpy_helper.to_array(item).copy()
        if item.name in ("a1.weight", "a1.bias"):
            value[:] = 0  # a1.relu is zero for every image
        elif item.name == "b2.weight":
            value[3] = 0
        item.CopyFrom(numpy_helper.from_array(value, item.name))
    table = table_of(model)
    assert table.tensors["a1.relu"].threshold == 0
    quantized = insert_qdq(model, table, scheme())
    assert not MULTIPLYING & set(kernels(quantized, tmp_path))
    assert sqnr_db(run(model, images(8)), run(quantized, images(8))) > 25


def test_bad_tables_weights_and_models_are_refused() -> None:
    model = resnet()
    table = table_of(model)
    short = table.model_copy(update={"tensors": {"input": table.tensors["input"]}})
    with pytest.raises(CalibrationError, match=r"no range for tensor 'stem.relu'"):
        insert_qdq(model, short, scheme())
    with pytest.raises(CalibrationError, match="already quantized"):
        insert_qdq(insert_qdq(model, table, scheme()), table, scheme())
    for item in model.graph.initializer:
        if item.name == "a1.bias":
            item.CopyFrom(numpy_helper.from_array(np.full(16, np.nan, np.float32), item.name))
    with pytest.raises(CalibrationError, match=r"bias 'a1.bias' holds NaN"):
        insert_qdq(model, table, scheme())
    with pytest.raises(CalibrationError, match=r"bias 'a1.bias' holds NaN"):  # also where it stays in float
        insert_qdq(model, table, scheme(**SYMMETRIC))

"""What `describe` says of a model: counts worked out by hand, and foreign files as independent oracles."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_graphs import info, model, node, normal

from inferometer.models import LayerRow, describe, load, save, shapes_only

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def _row(target: onnx.ModelProto, name: str) -> LayerRow:
    return next(row for row in describe(target).layers if row.name == name)


def _one(
    operator: onnx.NodeProto,
    inputs: dict[str, list[int | str]],
    weights: dict[str, np.ndarray] | None = None,
    *,
    kind: int = TensorProto.FLOAT,
    out_kind: int = TensorProto.FLOAT,
    domains: tuple[str, ...] = (),
) -> LayerRow:
    """The row of a single node ``n`` whose output is ``y``."""
    entries = [info(name, shape, kind) for name, shape in inputs.items()]
    target = model([operator], entries, [info("y", [None], out_kind)], weights, domains=domains)
    target.graph.output[0].type.tensor_type.ClearField("shape")
    return describe(target).layers[-1]


# Expected MACs: output elements times the length of the sum behind each, written out.
@pytest.mark.parametrize(
    ("operator", "inputs", "weights", "macs", "parameters", "shape"),
    [
        (
            node("Conv", ["x", "w", "b"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]),
            {"x": ["N", 3, 8, 8]}, {"w": normal(5, 3, 3, 3), "b": normal(5)},
            5 * 4 * 4 * 27, 5 * 27 + 5, (1, 5, 4, 4),
        ),
        (
            node("Conv", ["x", "w"], ["y"], group=2),
            {"x": ["N", 4, 5, 5]}, {"w": normal(6, 2, 3, 3)},
            6 * 3 * 3 * 18, 6 * 18, (1, 6, 3, 3),
        ),
        (
            node("Conv", ["x", "w"], ["y"], group=4),
            {"x": ["N", 4, 5, 5]}, {"w": normal(4, 1, 3, 3)},
            4 * 3 * 3 * 9, 4 * 9, (1, 4, 3, 3),
        ),
        (
            node("Conv", ["x", "w"], ["y"]),
            {"x": ["N", 4, 9]}, {"w": normal(2, 4, 3)},
            2 * 7 * 12, 24, (1, 2, 7),
        ),
        (
            node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], group=2),
            {"x": ["N", 4, 5, 5]}, {"w": normal(4, 3, 2, 2)},
            4 * 5 * 5 * 3 * 4, 48, (1, 6, 10, 10),
        ),
        (
            node("Gemm", ["x", "w", "b"], ["y"], transB=1),
            {"x": ["N", 7]}, {"w": normal(3, 7), "b": normal(3)},
            21, 24, (1, 3),
        ),
        (
            node("Gemm", ["x", "w"], ["y"], transA=1),
            {"x": [7, 2]}, {"w": normal(7, 3)},
            None, 21, (2, 3),
        ),
        (
            node("MatMul", ["x", "w"], ["y"]),
            {"x": ["N", 6, 7]}, {"w": normal(7, 3)},
            6 * 3 * 7, 21, (1, 6, 3),
        ),
        (
            node("MatMul", ["x", "z"], ["y"]),
            {"x": ["N", 2, 6, 7], "z": ["N", 2, 7, 5]}, {},
            2 * 6 * 5 * 7, 0, (1, 2, 6, 5),
        ),
        (
            node("MatMul", ["x", "w"], ["y"]),
            {"x": ["N", 7]}, {"w": normal(7)},
            7, 7, (1,),
        ),
        (
            node("PRelu", ["x", "w"], ["y"]),
            {"x": ["N", 4, 2, 2]}, {"w": normal(4, 1, 1)},
            0, 4, (1, 4, 2, 2),
        ),
    ],
)  # fmt: skip
def test_single_operators(operator, inputs, weights, macs, parameters, shape) -> None:
    row = _one(operator, inputs, weights)
    assert (row.parameters, row.output_shape) == (parameters, shape)
    if macs is None:  # [7, 2] is a fixed batch of 7 here, and 2 x 3 x 7 does divide by it
        macs = 2 * 3 * 7 // 7
    assert row.macs == macs
    assert row.reason is None


def test_integer_operators_of_old_quantizers() -> None:
    weights = {"w": np.ones((5, 3, 3, 3), np.int8)}
    operator = node("ConvInteger", ["x", "w"], ["y"])
    kinds = {"kind": TensorProto.UINT8, "out_kind": TensorProto.INT32}
    row = _one(operator, {"x": ["N", 3, 8, 8]}, weights, **kinds)
    assert (row.macs, row.parameters, row.activation_bytes) == (5 * 36 * 27, 135, 5 * 36 * 4)


def test_totals_rows_and_facts() -> None:
    weights = {"w": normal(4, 3, 3, 3), "b": normal(4), "v": normal(4, 10), "unused": normal(1000)}
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["f", "v"], ["y"], name="fc"),
    ]
    target = model(nodes, [info("x", ["batch", 3, 6, 6])], [info("y", ["batch", 10])], weights)
    target.producer_name, target.producer_version = "someone", "1.2"
    helper.set_model_props(target, {"colour": "blue"})
    summary = describe(target)
    assert [row.name for row in summary.layers] == [
        "conv",
        "Relu_1",
        "GlobalAveragePool_2",
        "Flatten_3",
        "fc",
    ]
    assert [row.macs for row in summary.layers] == [4 * 16 * 27, 0, 0, 0, 40]
    assert [row.parameters for row in summary.layers] == [112, 0, 0, 0, 40]
    assert [row.activation_bytes for row in summary.layers] == [256, 256, 16, 16, 40]
    assert (summary.macs, summary.parameters, summary.activation_bytes) == (1768, 152, 584)
    assert (summary.path, summary.sha256, summary.reason, summary.folded_parameters) == (None,) * 4
    assert summary.published_parameters == 152
    assert (summary.producer, summary.opset, summary.opsets) == ("someone 1.2", 17, {"": 17})
    assert summary.metadata == {"colour": "blue"}
    assert summary.inputs[0].shape == ("batch", 3, 6, 6)


def test_a_fixed_batch_is_divided_out() -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], name="conv")]
    target = model(nodes, [info("x", [8, 3, 6, 6])], [info("y", [8, 4, 4, 4])], {"w": normal(4, 3, 3, 3)})
    summary = describe(target)
    assert (summary.batch, summary.macs, summary.activation_bytes) == (8, 4 * 16 * 27, 256)
    assert summary.layers[0].output_shape == (8, 4, 4, 4)


def test_macs_that_do_not_divide_by_the_batch_are_unknown() -> None:
    nodes = [node("Transpose", ["x"], ["t"]), node("MatMul", ["t", "x"], ["y"], name="gram")]
    summary = describe(model(nodes, [info("x", [2, 3])], [info("y", [3, 3])]))
    assert summary.macs == 9  # 3 x 3 x 2 of the whole batch of two
    nodes = [node("ReduceMean", ["x"], ["m"], axes=[0]), node("MatMul", ["m", "w"], ["y"], name="one")]
    summary = describe(model(nodes, [info("x", [2, 3])], [info("y", [1, 1])], {"w": normal(3, 1)}))
    assert summary.macs is None
    assert "'one'" in (summary.reason or "")
    assert "do not divide by the batch of 2" in (summary.reason or "")


def test_a_shared_weight_counts_once() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["h"], name="first"),
        node("MatMul", ["h", "w"], ["y"], name="second"),
    ]
    target = model(nodes, [info("x", ["N", 4])], [info("y", ["N", 4])], {"w": normal(4, 4)})
    assert [row.parameters for row in describe(target).layers] == [16, 0]
    assert describe(target).macs == 32


def test_settings_and_statistics_are_no_parameters() -> None:
    weights = {
        "w": normal(4, 3, 1, 1), "scale": normal(4), "shift": normal(4), "mean": normal(4),
        "var": normal(4) ** 2, "low": np.float32(0), "high": np.float32(6), "half": np.float32(0.5),
        "scales": np.array([1, 1, 2, 2], np.float32), "table": normal(1, 4, 1, 1),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("BatchNormalization", ["a", "scale", "shift", "mean", "var"], ["b"]),
        node("Clip", ["b", "low", "high"], ["c"]),
        node("Mul", ["c", "half"], ["d"]),
        node("Add", ["d", "table"], ["e"]),
        node("Resize", ["e", "", "scales"], ["y"]),
    ]
    target = model(nodes, [info("x", ["N", 3, 2, 2])], [info("y", ["N", 4, 4, 4])], weights)
    assert [row.parameters for row in describe(target).layers] == [12, 8, 0, 0, 4, 0]


def test_weights_from_constant_nodes_and_what_is_computed_from_them() -> None:
    stored = onnx.numpy_helper.from_array(normal(5, 4), "k")
    nodes = [
        node("Constant", [], ["k"], value=stored),
        node("Transpose", ["k"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["h"], name="fc"),
        node("Constant", [], ["s"], value_floats=[1.0, 2.0, 3.0, 4.0, 5.0]),
        node("Mul", ["h", "s"], ["y"], name="scale"),
    ]
    summary = describe(model(nodes, [info("x", ["N", 4])], [info("y", ["N", 5])]))
    assert [(row.name, row.parameters, row.macs) for row in summary.layers] == [
        ("fc", 20, 20),
        ("scale", 5, 0),
    ]


def test_paddings_that_are_put_together_in_the_graph() -> None:
    # What torch exports for F.pad: the pairs are reversed by Reshape, Slice, Transpose and Cast.
    weights = {
        "pairs": np.array([0, 1, 0, 1, 0, 0, 0, 0], np.int64), "to2": np.array([-1, 2], np.int64),
        "from": np.array([-1], np.int64), "to": np.array([-9], np.int64), "axis": np.array([0], np.int64),
        "step": np.array([-1], np.int64), "flat": np.array([-1], np.int64), "w": normal(2, 3, 3, 3),
    }  # fmt: skip
    nodes = [
        node("Reshape", ["pairs", "to2"], ["a"]),
        node("Slice", ["a", "from", "to", "axis", "step"], ["b"]),
        node("Transpose", ["b"], ["c"], perm=[1, 0]),
        node("Reshape", ["c", "flat"], ["d"]),
        node("Cast", ["d"], ["pads"], to=TensorProto.INT64),
        node("Pad", ["x", "pads"], ["p"], name="pad"),
        node("Conv", ["p", "w"], ["y"], name="conv", strides=[2, 2]),
    ]
    target = model(nodes, [info("x", ["N", 3, 8, 8])], [info("y", ["N", 2, 4, 4])], weights)
    assert _row(target, "pad").output_shape == (1, 3, 9, 9)
    assert _row(target, "conv").macs == 2 * 16 * 27


def test_a_reshape_from_the_shape_of_a_tensor() -> None:
    weights = {"zero": np.array(0, np.int64), "ax": np.array([0], np.int64), "rest": np.array([-1], np.int64)}
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "ax"], ["u"]),
        node("Concat", ["u", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["f"]),
        node("MatMul", ["f", "w"], ["y"], name="fc"),
    ]
    target = model(nodes, [info("x", ["N", 3, 2, 2])], [info("y", ["N", 5])], {**weights, "w": normal(12, 5)})
    assert _row(target, "fc").macs == 60


def test_an_unknown_shape_is_unknown_and_not_nought() -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], name="conv")]
    weights = {"w": normal(4, 3, 3, 3)}
    summary = describe(
        model(nodes, [info("x", ["N", 3, "H", "W"])], [info("y", ["N", 4, "H", "W"])], weights)
    )
    assert (summary.macs, summary.activation_bytes, summary.parameters) == (None, None, 108)
    assert summary.layers[0].reason == "the shape of 'y' is not known"
    assert summary.reason == "layer 'conv': the shape of 'y' is not known"


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (
            node("Einsum", ["x", "x"], ["y"], equation="nc,nd->ncd", name="n"),
            "MACs of operator Einsum are not",
        ),
        (
            node("Wonder", ["x"], ["y"], domain="my.ops", name="n"),
            "operator Wonder of domain my.ops is not known",
        ),
    ],
)
def test_operators_that_are_not_understood_are_unknown(operator: onnx.NodeProto, reason: str) -> None:
    row = _one(operator, {"x": ["N", 4]}, domains=("my.ops",))
    assert row.macs is None
    assert reason in (row.reason or "")


def _branch(output: str, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> onnx.GraphProto:
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    return helper.make_graph(nodes, output, [], [info(output, ["N", 4])], stored)


def test_graphs_inside_nodes() -> None:
    heavy = _branch("a", [node("MatMul", ["x", "w"], ["a"])], {"w": normal(4, 4)})
    light = _branch("b", [node("Mul", ["x", "v"], ["b"])], {"v": normal(4)})
    row = _one(node("If", ["c"], ["y"], then_branch=heavy, else_branch=light), {"x": ["N", 4], "c": [1]})
    assert (row.macs, row.parameters) == (None, 20)
    assert row.reason == "how often the graph inside If runs is not known"
    row = _one(node("If", ["c"], ["y"], then_branch=light, else_branch=light), {"x": ["N", 4], "c": [1]})
    assert row.macs == 0


def test_functions_of_the_file_are_looked_into() -> None:
    body = helper.make_function(
        "own", "Dense", ["a", "k"], ["o"], [node("MatMul", ["a", "k"], ["m"]), node("Relu", ["m"], ["o"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [node("Dense", ["x", "w"], ["y"], domain="own")]
    target = model(
        nodes,
        [info("x", ["N", 4])],
        [info("y", ["N", 5])],
        {"w": normal(4, 5)},
        domains=["own"],
        functions=[body],
    )
    assert [(row.op, row.macs) for row in describe(target).layers] == [("MatMul", 20), ("Relu", 0)]


def test_initializers_listed_as_inputs_are_no_inputs() -> None:
    weights = {"w": normal(4, 5)}
    entries = [info("w", [4, 5]), info("x", [1, 4])]
    target = model([node("MatMul", ["x", "w"], ["y"])], entries, [info("y", [1, 5])], weights, opset=9, ir=3)
    assert [item.name for item in describe(target).inputs] == ["x"]


def test_outputs_that_nobody_reads_take_no_memory() -> None:
    nodes = [node("Dropout", ["x"], ["y", "mask"])]
    summary = describe(model(nodes, [info("x", ["N", 4])], [info("y", ["N", 4])]))
    assert summary.activation_bytes == 16


def test_packed_types() -> None:
    nodes = [node("Identity", ["x"], ["y"])]
    kind = TensorProto.INT4
    target = model(nodes, [info("x", [1, 9], kind)], [info("y", [1, 9], kind)], opset=21, ir=10)
    summary = describe(target)
    assert summary.activation_bytes == 5  # nine half bytes
    assert summary.inputs[0].dtype == "int4"


# --- quantized models, as onnxruntime's own quantizer writes them ---------------------------------------


def _convolutional() -> onnx.ModelProto:
    weights = {
        "w1": normal(8, 3, 3, 3), "b1": normal(8), "w2": normal(8, 8, 3, 3, seed=1), "b2": normal(8, seed=2),
        "v": normal(10, 8), "c": normal(10),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["h1"], name="conv1", pads=[1, 1, 1, 1]),
        node("Relu", ["h1"], ["r1"], name="relu1"),
        node("Conv", ["r1", "w2", "b2"], ["h2"], name="conv2", pads=[1, 1, 1, 1]),
        node("Add", ["h2", "r1"], ["s"], name="add"),
        node("GlobalAveragePool", ["s"], ["p"], name="pool"),
        node("Flatten", ["p"], ["f"], name="flat"),
        node("Gemm", ["f", "v", "c"], ["y"], name="fc", transB=1),
    ]
    return model(nodes, [info("x", ["N", 3, 8, 8])], [info("y", ["N", 10])], weights)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of onnxruntime 1.18's quantizer with onnx 1.16
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_quantized_model_has_the_counts_of_the_float_one(
    form: str, per_channel: bool, tmp_path: Path
) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            self._left = [{"x": normal(1, 3, 8, 8, seed=seed)} for seed in (1, 2)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self._left.pop() if self._left else None

    save(_convolutional(), tmp_path / "float.onnx")
    quantization.quantize_static(
        tmp_path / "float.onnx", tmp_path / "int8.onnx", Reader(),
        quant_format=quantization.QuantFormat[form], per_channel=per_channel,
    )  # fmt: skip
    before, after = describe(tmp_path / "float.onnx"), describe(tmp_path / "int8.onnx")
    assert before.macs == 8 * 64 * 27 + 8 * 64 * 72 + 80
    assert before.parameters == 224 + 584 + 90
    assert (after.macs, after.parameters, after.reason) == (before.macs, before.parameters, None)
    assert (before.is_quantized, after.is_quantized) == (False, True)
    assert after.outputs[0].dtype == "float32"


# --- foreign files as oracles ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("light", "own"),
    [
        ("bvlc_alexnet", "alexnet"),
        ("inception_v1", "googlenet"),
        ("resnet50", "resnet50"),
        ("vgg19", "vgg19"),
    ],
)
def test_parameters_of_the_light_models(light: str, own: str) -> None:
    assert (
        describe(LIGHT / f"light_{light}.onnx").parameters == describe(shapes_only(own)).published_parameters
    )


@pytest.mark.parametrize("name", ["resnet50", "vgg19"])
def test_macs_of_the_light_models(name: str) -> None:
    foreign = [row.macs for row in describe(LIGHT / f"light_{name}.onnx").layers if row.macs]
    own = [row.macs for row in describe(shapes_only(name)).layers if row.macs]
    assert sorted(foreign) == sorted(own)


def test_macs_of_the_light_googlenet_once_its_pools_round_up() -> None:
    # The converter lost Caffe's rounding up: its sizes are 55, 27, 13, 6 and its last pool is padded to
    # make up for it. One row and column more at the end of each strided pool puts it right.
    target = load(LIGHT / "light_inception_v1.onnx")
    for item in target.graph.node:
        attributes = {a.name: a for a in item.attribute}
        if item.op_type == "MaxPool" and list(attributes["strides"].ints) == [2, 2]:
            del attributes["pads"].ints[:]
            attributes["pads"].ints.extend([0, 0, 1, 1])
        elif item.op_type == "AveragePool":
            del attributes["pads"].ints[:]
            attributes["pads"].ints.extend([0, 0, 0, 0])
    del target.graph.value_info[:]
    foreign = [row.macs for row in describe(target).layers if row.macs]
    assert foreign == [row.macs for row in describe(shapes_only("googlenet")).layers if row.macs]


def test_a_trained_network_from_torch() -> None:
    folder = os.environ.get("INFEROMETER_TEST_DATA")
    if not folder or not (Path(folder) / "models/efficientnet_lite0.onnx").is_file():
        pytest.skip("INFEROMETER_TEST_DATA names no folder with models/efficientnet_lite0.onnx")
    summary = describe(Path(folder) / "models/efficientnet_lite0.onnx")
    macs, parameters = _efficientnet_lite0()
    assert (summary.macs, summary.parameters) == (macs, parameters)
    assert (summary.opset, summary.reason, summary.is_quantized) == (17, None, False)


def _efficientnet_lite0() -> tuple[int, int]:
    """MACs and parameters from the architecture's table, BatchNorm folded.

    Source: Tan, Le, ICML 2019, table 1, without squeeze-and-excitation as in EfficientNet-Lite.
    """
    side, channels = 112, 32
    macs, parameters = 32 * 27 * side**2, 32 * 27 + 32
    # Kernel, stride, expansion, output channels, repeats.
    for kernel, stride, expansion, out, repeats in (
        (3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3), (5, 1, 6, 112, 3),
        (5, 2, 6, 192, 4), (3, 1, 6, 320, 1),
    ):  # fmt: skip
        for repeat in range(repeats):
            wide = channels * expansion
            if expansion > 1:
                macs += channels * wide * side**2
                parameters += channels * wide + wide
            side //= stride if repeat == 0 else 1
            macs += (wide * kernel**2 + wide * out) * side**2
            parameters += wide * kernel**2 + wide + wide * out + out
            channels = out
    macs += channels * 1280 * side**2 + 1280 * 1000
    return macs, parameters + channels * 1280 + 1280 + 1280 * 1000 + 1000

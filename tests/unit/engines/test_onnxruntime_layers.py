from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

from inferometer.contracts import ExecutedLayer
from inferometer.engines.onnxruntime.float16 import float16_form
from inferometer.engines.onnxruntime.layers import counts, executed_layer, own_names, role
from inferometer.engines.onnxruntime.openvino import (
    inner_kernels,
    inner_layers,
    inner_role,
    inner_times,
    macs_by_name,
)
from inferometer.errors import ModelError
from tests.contract.engines import CLASSIFIER_MACS, classifier, in_float64


def event(op: str, inputs: list[tuple[str, list[int]]], output: list[int], **more: Any) -> dict[str, Any]:
    return {
        "name": f"{op}_kernel_time",
        "args": {
            "op_name": op,
            "input_type_shape": [{dtype: shape} for dtype, shape in inputs],
            "output_type_shape": [{"float": output}],
            "output_size": "8",
            **more,
        },
    }


def test_a_compiled_node_is_one_layer_of_which_nothing_is_known() -> None:
    found = executed_layer(
        event("CUDAExecutionProvider_7", [("float", [1, 3])], [1, 2], provider="CUDAExecutionProvider")
    )
    assert (found.precision, found.macs, found.bytes) == ("unknown", None, 8)


@pytest.mark.parametrize(
    ("op", "inputs", "output", "precision", "macs"),
    [
        ("Conv", [("float", [2, 3, 8, 8]), ("float", [4, 3, 3, 3])], [2, 4, 6, 6], "fp32", 2 * 4 * 36 * 27),
        ("Conv", [("float16", [1, 3, 8, 8]), ("float16", [4, 3, 1, 1])], [1, 4, 8, 8], "fp16", 4 * 64 * 3),
        ("NhwcFusedConv", [("float", [1, 8, 8, 3]), ("float", [4, 3, 1, 1])], [1, 8, 8, 4], "fp32", 768),
        ("MatMul", [("bfloat16", [2, 5]), ("bfloat16", [5, 7])], [2, 7], "bf16", 70),
        ("QLinearConv", [("uint8", [1, 3, 8, 8]), ("int8", [4, 3, 1, 1])], [1, 4, 8, 8], "int8", 768),
        ("MatMulNBits", [("float", [2, 64]), ("uint8", [32, 2, 16])], [2, 32], "int8", None),
        ("MultiHeadAttention", [("float", [1, 5, 64])], [1, 5, 64], "fp32", None),
        ("Gemm", [("float", [0, 3]), ("float", [3, 2])], [0, 2], "fp32", 0),
        ("Relu", [("float", [2, 3])], [2, 3], "fp32", 0),
        ("DequantizeLinear", [("uint8", [2, 3])], [2, 3], "other", 0),
    ],
)
def test_macs_and_precision_follow_from_what_the_kernel_saw(
    op: str, inputs: list[tuple[str, list[int]]], output: list[int], precision: str, macs: int | None
) -> None:
    found = executed_layer(event(op, inputs, output))
    assert (found.precision, found.macs) == (precision, macs)


def test_floats_that_may_be_rounded_are_unknown_where_they_are_multiplied() -> None:
    product = event("MatMul", [("float", [2, 5]), ("float", [5, 7])], [2, 7])
    assert executed_layer(product, "unknown").precision == "unknown"
    assert executed_layer(event("Relu", [("float", [2, 5])], [2, 5]), "unknown").precision == "fp32"


def test_transposes_and_casts_of_the_model_are_its_own_work() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x) => (float[3, 2] y) {
      c = Constant<value = float {1}>()  t = Transpose(x)  h = Cast<to = 10>(t)  y = Cast<to = 1>(h)
    }"""
    model = parser.parse_model(text)
    model.graph.node[3].name = "back"
    own = own_names(model)
    # Without its constant, the graph's numbers begin at 0; with it, at 1.
    assert {"Transpose_0", "Transpose_1", "Cast_1", "Cast_2", "back"} <= own
    assert role("Transpose_1", "Transpose", own) == "compute"
    assert role("back", "Cast", own) == "compute"
    assert role("InsertedPrecisionFreeCast_x", "Cast", own) == "reorder"
    assert role("Transpose_9", "Transpose", own) == "reorder"
    assert role("x", "ReorderOutput", own) == "reorder"
    assert role("x", "MemcpyToHost", own) == "reorder"
    assert role("x", "DequantizeLinear", own) == "quantize"
    assert role("x", "Conv", own) == "compute"


def test_kernels_are_counted_by_what_they_multiply() -> None:
    layers = [
        ExecutedLayer("a", "QLinearConv", "int8", 10, None),
        ExecutedLayer("b", "Conv", "fp32", 10, None),
        ExecutedLayer("c", "FullyConnected", "int8", 10, None),
        ExecutedLayer("d", "QuantizeLinear", "fp32", 0, None),
        ExecutedLayer("e", "QLinearAdd", "int8", 0, None),
    ]
    assert counts(layers) == {"integer_kernels": 2, "float_kernels": 1, "quantize_nodes": 1}


def kernel(
    name: str, kind: str, runs_as: str, call: int = 1, ts: int = 0, dur: int = 5, status: str = "EXECUTED"
) -> dict[str, Any]:
    return {
        "cat": "Kernel",
        "name": f"OV::{name}",
        "ts": ts,
        "dur": dur,
        "args": {
            "ov_node_type": kind,
            "ov_exec_type": runs_as,
            "ov_status": status,
            "ort_correlation_id": str(call),
        },
    }


CONVOLUTIONS = [
    kernel("c1/WithoutBiases", "Convolution", "brgconv_avx512_I8"),
    kernel("c2/WithoutBiases", "GroupConvolution", "brgconv_avx512_dw_bf16"),
    kernel("c3", "Convolution", "brgconv_avx512_1x1_f32"),
    kernel("logits/WithoutBiases/DequantizationMultiply", "FullyConnectedQuantizedLegacy", "gemm_mlas_f32"),
    kernel("input_abcd_acdb_c1/WithoutBiases", "Reorder", "jit_uni_f32"),
]


def node(op: str, ts: int) -> dict[str, Any]:
    return {"ts": ts, "args": {"op_name": op, "provider": "AProvider"}}


def test_kernels_inside_belong_to_the_compiled_node_that_began_with_them() -> None:
    nodes = [node("AProvider_0", 10), node("Relu", 14), node("AProvider_1", 20), node("AProvider_0", 30)]
    trace = [
        kernel("a", "Convolution", "x_f32", call=1, ts=10),
        kernel("b", "Convolution", "x_f32", call=1, ts=15),
        kernel("c", "Convolution", "x_f32", call=1, ts=15, status="NOT_RUN"),
        kernel("d", "Convolution", "x_f32", call=2, ts=21),
        kernel("a", "Convolution", "x_f32", call=3, ts=30),
    ]
    assert inner_kernels(trace, nodes) == {0: trace[:2], 2: trace[3:4], 3: trace[4:]}
    assert inner_kernels(trace, nodes[1:2]) == {}


def test_times_inside_are_those_of_all_calls_but_the_first() -> None:
    # Each is the mean so far: 100 once, then 10 and 16.
    calls = {
        1: [kernel("a", "Convolution", "x_f32", dur=100), kernel("b", "Reorder", "x_f32", dur=7)],
        2: [kernel("a", "Convolution", "x_f32", dur=55)],
        3: [kernel("a", "Convolution", "x_f32", dur=42), kernel("c", "Reorder", "x_f32", dur=1)],
    }
    found = {name: (kind, role, round(seconds * 1e6, 6)) for name, kind, role, seconds in inner_times(calls)}
    assert found == {"a": ("Convolution", "compute", 13.0), "c": ("Reorder", "reorder", 1.5)}
    (alone,) = inner_times({2: calls[2]})
    assert alone[3] == pytest.approx(55e-6)


def test_kernels_inside_have_the_macs_of_the_nodes_they_are_called_after() -> None:
    macs = macs_by_name(classifier(), 2)
    assert macs is not None
    assert macs[""] == 2 * CLASSIFIER_MACS
    layers = inner_layers(CONVOLUTIONS, macs, 0)
    assert sum(layer.macs or 0 for layer in layers) == 2 * CLASSIFIER_MACS
    assert layers[1].macs == 2 * 8 * 8 * 12 * 9
    assert [layer.precision for layer in layers] == ["int8", "bf16", "fp32", "fp32", "fp32"]
    assert layers[0].name == "c1/WithoutBiases"


@pytest.mark.parametrize(
    ("kernels", "elsewhere"), [(CONVOLUTIONS[1:], 0), (CONVOLUTIONS, 1), (CONVOLUTIONS, None)]
)
def test_macs_that_do_not_add_up_are_not_told(kernels: list[dict[str, Any]], elsewhere: int | None) -> None:
    layers = inner_layers(kernels, macs_by_name(classifier(), 2), elsewhere)
    assert {layer.macs for layer in layers} == {None}
    assert {layer.macs for layer in inner_layers(kernels, None, elsewhere)} == {None}


def test_macs_of_a_fixed_batch_are_not_multiplied_again() -> None:
    model = classifier()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    macs = macs_by_name(model, 2)
    assert macs is not None
    assert macs[""] == 2 * CLASSIFIER_MACS


@pytest.mark.parametrize(
    ("name", "kind", "runs_as", "expected"),
    [
        ("x_quantized_QuantizeLinear", "FakeQuantize", "jit_f32", "quantize"),
        ("x_dequantized_DequantizeLinear/duplicated", "Multiply", "jit_f32", "quantize"),
        ("x_quantized_QuantizeLinear_abcd_acdb_c", "Reorder", "jit_I8", "reorder"),
        ("Convert_12", "Convert", "ref_I8", "quantize"),
        ("Convert_13", "Convert", "ref_f32", "reorder"),
        ("c", "Convolution", "brg_I8", "compute"),
    ],
)
def test_kernels_inside_have_a_role(name: str, kind: str, runs_as: str, expected: str) -> None:
    assert inner_role(kernel(name, kind, runs_as)) == expected


def test_a_model_in_float16_keeps_its_inputs_outputs_and_nearly_its_results(tmp_path: Path) -> None:
    import onnxruntime

    path = tmp_path / "m.onnx"
    onnx.save(classifier(), path)
    content = float16_form(path)
    assert content is not None
    converted = onnx.load_from_string(content)
    assert {tensor.data_type for tensor in converted.graph.initializer} == {TensorProto.FLOAT16}
    feeds = {"input": np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)}
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    found = session.run(None, feeds)[0]
    expected = in_float64(classifier(), feeds)
    assert found.dtype == np.float32
    # Weights of 11 bits: far more than float32's error, far less than a wrong layout's.
    assert 1e-6 < np.abs(found - expected).max() / np.abs(expected).max() < 1e-2


def test_weights_beyond_float16_are_cut_off_large_tensors_and_small(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 600] x) => (float[N, 600] z) { y = Mul(x, large)  z = Mul(y, small) }"""
    model = parser.parse_model(text)
    for name, size in (("large", 600), ("small", 1)):
        values = np.full(size, 1e6, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, tmp_path / "m.onnx")
    content = float16_form(tmp_path / "m.onnx")
    assert content is not None
    for tensor in onnx.load_from_string(content).graph.initializer:
        assert set(onnx.numpy_helper.to_array(tensor).tolist()) == {65504.0}


def test_a_file_in_float16_is_taken_as_it_is(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((3, 2), np.float16), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["N", 2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "half.onnx")
    assert float16_form(tmp_path / "half.onnx") is None
    with pytest.raises(ModelError, match="absent"):
        float16_form(tmp_path / "absent.onnx")

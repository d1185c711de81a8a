"""Layers as TensorRT's inspector gives them, and its errors: the library is not needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from inferometer.engines.tensorrt.layers import executed_layers, layer_times, layers_of
from inferometer.engines.tensorrt.log import failure, one_line
from inferometer.errors import EngineError, OutOfMemory, Unsupported


def tensor(kind: str, shape: Sequence[int] = (2, 4, 8, 8)) -> dict[str, Any]:
    return {"Name": "t", "Dimensions": list(shape), "Format/Datatype": kind}


def layer(name: str, *nodes: str, kind: str = "CaskConvolution", **more: Any) -> dict[str, Any]:
    told = {
        "Name": name, "LayerType": kind, "Inputs": [tensor("Row major linear FP32")],
        "Outputs": [tensor("Row major linear FP32")],
        "Metadata": "\x1f".join(f"[ONNX Layer: {node}]" for node in nodes),
    }  # fmt: skip
    return {**told, **more}


HALF = [tensor("Channel major FP16 format where channel % 8 == 0")]
INTEGERS = [tensor("Thirty-two wide channel vectorized row major Int8 format")]


@pytest.mark.parametrize(
    ("tactic", "inputs", "tf32", "precision"),
    [
        (
            "sm80_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128",
            None,
            True,
            "tf32",
        ),
        ("ampere_scudnn_128x64_relu_xregs_large_nn_v1", None, True, "fp32"),
        ("", None, False, "fp32"),
        ("", None, True, None),
        ("sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw", INTEGERS + HALF, False, "int8"),
        ("sm80_xmma_fprop_implicit_gemm_interleaved_i8f32_i8i32_f32_nchw", INTEGERS, False, "int8"),
        ("sm80_xmma_gemm_f16f16_f16f16_f16_nn", None, False, "fp16"),
        ("ampere_h16816cudnn_256x64_ldg8_relu", None, False, "fp16"),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn", None, False, "bf16"),
        ("", HALF, True, "fp16"),
        ("", [tensor("Half"), tensor("Bool"), tensor("Int64")], False, "fp16"),
        ("", [tensor("BFloat16")], False, "bf16"),
        ("", INTEGERS, False, "int8"),
        ("", INTEGERS + HALF, False, None),
        ("", [tensor("N/A due to dynamic shapes")], False, None),
    ],
)
def test_arithmetic_follows_from_the_kernel_and_else_from_what_it_takes(
    tactic: str, inputs: Any, tf32: bool, precision: str | None
) -> None:
    told = layer("c", "conv", TacticName=tactic, **({} if inputs is None else {"Inputs": inputs}))
    (found,) = executed_layers([told], {"conv": 100}, tf32)
    assert found.precision == (precision or "other")
    assert found.macs == (100 if precision else None)


def test_integers_times_floats_are_of_no_known_arithmetic() -> None:
    weights = {"Type": "Half", "Count": 9}
    (found,) = executed_layers([layer("c", "conv", Inputs=INTEGERS, Weights=weights)], {"conv": 1}, False)
    assert (found.precision, found.macs) == ("other", None)


MACS = {"conv": 100, "relu": 0, "fc": 20}


def test_each_node_counts_in_the_layer_that_computes_it() -> None:
    layers = [
        layer("Reformatting CopyNode for Input Tensor 0 to conv", "conv", kind="Reformat"),
        layer("conv + relu", "conv", "relu"),
        layer("relu again", "relu"),
        layer("__myl_fc", "fc", kind="gemm", Outputs=[tensor("Half", (2, 10))]),
    ]
    found = executed_layers(layers, MACS, tf32=False)
    assert [one.macs for one in found] == [0, 100, 0, 20]
    assert [one.op for one in found] == ["Reformat", "CaskConvolution", "CaskConvolution", "gemm"]
    assert [one.bytes for one in found] == [2 * 4 * 64 * 4] * 3 + [2 * 10 * 2]


@pytest.mark.parametrize(
    "layers",
    [
        [layer("conv", "conv")],
        [layer("conv", "conv"), layer("conv again", "conv"), layer("fc", "fc")],
        [layer("conv", "conv"), layer("fc")],
    ],
    ids=["a node is missing", "a node is in two layers", "no metadata"],
)
def test_multiplies_are_none_throughout_where_they_do_not_add_up(layers: list[Any]) -> None:
    assert {one.macs for one in executed_layers(layers, MACS, tf32=False)} == {None}
    assert {one.macs for one in executed_layers(layers, None, tf32=False)} == {None}


def test_functions_of_the_file_are_left_out_of_a_nodes_name() -> None:
    told = layer("c", Metadata="[ONNX Layer: conv | outer (block) | more (net)]\x1f[ONNX Layer: relu]")
    assert [one.macs for one in executed_layers([told], {"conv": 7, "relu": 0}, False)] == [7]


def test_layers_are_read_from_the_inspectors_words_and_names_alone_are_none() -> None:
    assert layers_of(json.dumps({"Layers": [layer("c", "conv")], "Bindings": []}))[0]["Name"] == "c"
    bare = json.dumps({"Layers": [layer("c", "conv", "relu")]}).replace("\\u001f", "\x1f")
    assert "[ONNX Layer: conv]\x1f[ONNX Layer: relu]" in bare
    assert executed_layers(layers_of(bare), {"conv": 3, "relu": 0}, False)[0].macs == 3
    assert layers_of(json.dumps({"Layers": ["conv + relu"]})) == []
    assert layers_of("no JSON") == []
    assert layers_of("") == []


def test_times_say_what_each_layer_is_for() -> None:
    ops = {"conv": "Conv", "q": "QuantizeLinear", "dq": "DequantizeLinear", "turn": "Transpose"}
    layers = [
        layer("conv", "conv", "q"),
        layer("q", "q", "dq", kind="kgen"),
        layer("scale", kind="Reformat", Origin="QDQ"),
        layer("Reformatting CopyNode for Output Tensor 0 to conv", kind="Reformat"),
        layer("nothing", kind="NoOp"),
        layer("cast", "inferometer_cast_input", kind="kgen"),
        layer("turn", "turn", kind="kgen"),
    ]
    times = {told["Name"]: 1e-3 * (at + 1) for at, told in enumerate(layers)} | {"unlisted": 1.0}
    found = layer_times(times, layers, ops)
    assert [one.role for one in found] == [
        "compute", "quantize", "quantize", "reorder", "reorder", "reorder", "compute", "compute",
    ]  # fmt: skip
    assert [one.seconds for one in found] == list(times.values())
    assert (found[-1].name, found[-1].op) == ("unlisted", "unknown")


@pytest.mark.parametrize(
    ("errors", "kind", "said"),
    [
        (["Error Code 2: OutOfMemory (Requested size was 8 bytes.)", "later"], OutOfMemory,
         "out of memory in trt: OutOfMemory (Requested size was 8 bytes.)"),
        (["a", "IContext::enqueueV3: Error Code 1: Cuda Runtime (In f at /a.cpp:9 (cudaError 2: x))"],
         OutOfMemory, "out of memory in trt: Cuda Runtime (cudaError 2: x)"),
        (["The engine cannot run on this GPU, which has compute capability 9.0."], Unsupported,
         "trt: The engine cannot run on this GPU, which has compute capability 9.0."),
        (["The engine plan file is generated on an incompatible device, expecting compute 8.6"],
         Unsupported,
         "trt: The engine plan file is generated on an incompatible device, expecting compute 8.6"),
        (["CUDA initialization failure with error: 35"], Unsupported,
         "trt finds no usable GPU: CUDA initialization failure with error: 35"),
        (["Error Code 10: Internal Error (Could not find any implementation for node c.)"], Unsupported,
         "trt has no kernel for it: Internal Error (Could not find any implementation for node c.)"),
        (["first", "ModelImporter.cpp:151: ERROR: last\nof all"], EngineError,
         "trt could not build: last of all"),
        ([], EngineError, "trt could not build: it gave no reason"),
    ],
)  # fmt: skip
def test_what_is_logged_becomes_the_right_error(errors: list[str], kind: type[Exception], said: str) -> None:
    error = failure("m.onnx", "trt", "build", errors)
    assert type(error) is kind
    assert str(error) == f"m.onnx: {said}"


def test_long_errors_are_cut() -> None:
    assert len(one_line("word " * 1000)) == 404

"""Models made fp16 and bf16 for TensorRT: every float inside has the type, and the results stay near."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper, parser

from inferometer.engines.tensorrt.types import Half, narrowed
from inferometer.errors import Unsupported
from inferometer.models.shapes import infer_facts
from tests.contract.engines import classifier
from tests.unit.quantize.graphs import MORE_NETS, NETS

KINDS: list[Half] = ["fp16", "bf16"]
ELEMENTS = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
NETWORKS = {"classifier": classifier, **NETS, **MORE_NETS}


def model_of(text: str, opset: int = 17, **stored: Any) -> ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    for name, values in stored.items():
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


def floats_left(model: ModelProto) -> set[str]:
    """Float32 tensors that are neither inputs nor outputs of the model."""
    outside = {info.name for info in (*model.graph.input, *model.graph.output)}
    facts = infer_facts(model, "m")
    return {name for name, found in facts.items() if found.data_type == TensorProto.FLOAT} - outside


def run(model: ModelProto, feeds: dict[str, Any]) -> list[Any]:
    ort = pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.mark.parametrize("name", NETWORKS)
def test_fp16_is_near_the_model_in_float32_and_float_nowhere_inside(name: str) -> None:
    model = NETWORKS[name]()
    before = model.SerializeToString()
    half = narrowed(model, "fp16", name)
    assert model.SerializeToString() == before
    onnx.checker.check_model(half.model, full_check=True)
    assert (floats_left(half.model), half.saturated) == (set(), ())
    (info,) = model.graph.input
    sides = [side.dim_value or 2 for side in info.type.tensor_type.shape.dim]
    feeds = {info.name: np.random.default_rng(0).standard_normal(sides).astype(np.float32)}
    for wanted, found in zip(run(model, feeds), run(half.model, feeds), strict=True):
        assert found.dtype == np.float32
        assert 0 < np.abs(wanted - found).max() <= 1e-2 * np.abs(wanted).max()


@pytest.mark.parametrize("name", NETWORKS)
def test_bf16_names_the_type_everywhere_inside(name: str) -> None:
    half = narrowed(NETWORKS[name](), "bf16", name).model
    kinds = {tensor.data_type for tensor in half.graph.initializer} - {TensorProto.INT64}
    assert kinds == {TensorProto.BFLOAT16}
    casts = [node for node in half.graph.node if node.name.startswith("inferometer_cast")]
    wide = sum(node.op_type == "HardSwish" for node in half.graph.node)
    assert len(casts) == 2 + 2 * wide


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_rounded_to_the_nearest_and_halfway_to_even(kind: Half) -> None:
    step = 2.0 ** {"fp16": -10, "bf16": -7}[kind]
    given = [1 + step / 2, 1 + 3 * step / 2, 1 + step / 2 + 1e-6, -1 - step / 4, np.inf, -np.inf, np.nan, 0]
    wanted = [1, 1 + 2 * step, 1 + step, -1, np.inf, -np.inf, np.nan, 0]
    model = model_of("g (float[8] x) => (float[8] y) { y=Add(x,w) }", w=np.array(given, np.float32))
    half = narrowed(model, kind, "m")
    raw = half.model.graph.initializer[0].raw_data
    if kind == "fp16":
        found = np.frombuffer(raw, np.float16).astype(np.float32)
    else:
        found = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))
    assert half.saturated == ()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_beyond_the_range_are_set_to_its_end_and_said(kind: Half) -> None:
    largest = float(np.finfo(np.float32).max)
    model = model_of("g (float[2] x) => (float[2] y) { a=Add(x,w) y=Add(a,v) }",
                     w=np.array([-largest, 1], np.float32), v=np.array([2, 3], np.float32))  # fmt: skip
    half = narrowed(model, kind, "m")
    assert half.saturated == ("w",)
    raw = half.model.graph.initializer[0].raw_data
    assert raw[:2] == {"fp16": b"\xff\xfb", "bf16": b"\x7f\xff"}[kind]  # -65504; -(2 - 2^-7) 2^127


def test_what_wants_float32_by_definition_gets_it() -> None:
    model = model_of(
        'g (float[1,1,2,2] x) => (float[1,1,4,4] y) { r=Relu(x) u=Resize<mode="nearest">(r,,s) y=Relu(u) }',
        s=np.array([1, 1, 2, 2], np.float32),
    )
    half = narrowed(model, "fp16", "m").model
    assert [(one.name, one.data_type) for one in half.graph.initializer] == [("s_float32", TensorProto.FLOAT)]
    feeds = {"x": np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)}
    np.testing.assert_array_equal(run(half, feeds)[0], run(model, feeds)[0])


def test_constants_conversions_and_filled_tensors_follow() -> None:
    model = model_of(
        "g (float[N,3] x, int64[N,3] i) => (float[N,3] y) {"
        "c=Constant<value_float=0.5>() d=Constant<value_floats=[1.0,2.0,3.0]>() f=Cast<to=1>(i) k=Shape(x)"
        "z=ConstantOfShape(k) o=ConstantOfShape<value=float[1]{2}>(k) y=Sum(x,c,d,f,z,o) }"
    )
    half = narrowed(model, "fp16", "m").model
    onnx.checker.check_model(half, full_check=True)
    assert floats_left(half) == set()
    feeds = {"x": np.ones((2, 3), np.float32), "i": np.ones((2, 3), np.int64)}
    np.testing.assert_array_equal(run(half, feeds)[0], np.array([[5.5, 6.5, 7.5]] * 2, np.float32))


def test_names_of_inputs_and_outputs_stay_however_they_are_used() -> None:
    model = model_of(
        "g (float[N,3] x) => (float[N,3] x_fp16, float[N,3] z, int64[2] n)"
        "{ x_fp16=Relu(x) z=Add(x_fp16,w) n=Shape(z) }", w=np.ones(3, np.float32),
    )  # fmt: skip
    half = narrowed(model, "fp16", "m").model
    assert [info.name for info in half.graph.output] == ["x_fp16", "z", "n"]
    found = run(half, {"x": np.array([[-1, 0, 2]], np.float32)})
    np.testing.assert_array_equal(found[0], [[0, 0, 2]])
    np.testing.assert_array_equal(found[1], [[1, 1, 3]])
    assert {array.dtype for array in found[:2]} == {np.dtype(np.float32)}


def test_quantized_weights_and_zero_points_stay_integers() -> None:
    model = model_of(
        "g (float[N,3] x) => (float[N,3] y) { q=QuantizeLinear(x,s,z) d=DequantizeLinear(q,s,z) y=Relu(d) }",
        19, s=np.array(0.5, np.float32), z=np.array(0, np.int8),
    )  # fmt: skip
    half = narrowed(model, "fp16", "m").model
    onnx.checker.check_model(half, full_check=True)
    kinds = {one.name: one.data_type for one in half.graph.initializer}
    assert kinds == {"s": TensorProto.FLOAT16, "z": TensorProto.INT8}


def test_graphs_inside_nodes_are_refused(tmp_path: Path) -> None:
    model = model_of(
        "g (bool c, float[2] x) => (float[2] y) { y=If(c)<then_branch=t () => (float[2] a) { a=Relu(x) },"
        "else_branch=e () => (float[2] b) { b=Neg(x) }> }"
    )
    with pytest.raises(
        Unsupported, match=r"m\.onnx: a model with graphs inside nodes \(If\) is not made bf16"
    ):
        narrowed(model, "bf16", "m.onnx")


def test_a_weight_as_output_is_refused() -> None:
    model = model_of("g (float[2] x) => (float[2] y, float[2] w) { y=Add(x,w) }", w=np.ones(2, np.float32))
    with pytest.raises(Unsupported, match="output 'w' is a stored tensor: it is not made fp16"):
        narrowed(model, "fp16", "m")

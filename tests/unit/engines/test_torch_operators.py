"""Each operator, in each form that the engine maps, computes what onnxruntime does; others are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from inferometer import registry
from inferometer.engines.torch.node import BUILDERS
from inferometer.errors import Unsupported
from tests.contract.engines import in_float64

Array = np.ndarray


def built(
    text: str, opset: int = 17, weights: dict[str, Any] | None = None, out: str = "y"
) -> onnx.ModelProto:
    """``text`` is the graph's inputs in brackets and then its nodes; the output's shape is left open."""
    inputs, body = text.replace("<>", "").split(")", 1)
    kind = {"i": "int64", "b": "bool"}.get(out[1:], "float")
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g {inputs}) => ({kind}[] {out}) {{ {body} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for name, values in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
    return model


def fed(model: onnx.ModelProto, batch: int, seed: int = 0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [side.dim_value or batch for side in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "f":
            feeds[info.name] = (2 * generator.standard_normal(shape)).astype(dtype)
        else:
            feeds[info.name] = generator.integers(0 if dtype.kind == "u" else -9, 9, shape).astype(dtype)
    return feeds


def results(
    model: onnx.ModelProto, folder: Path, feeds: dict[str, Array], batch: int, engine: str
) -> dict[str, Array]:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with registry.engine(engine).load(path, "cpu", "fp32", batch, {"threads": 1}) as session:
        return session.infer(feeds)


def agrees(model: onnx.ModelProto, folder: Path, batch: int = 2, tolerance: float = 1e-5) -> None:
    feeds = fed(model, batch)
    wanted = results(model, folder, feeds, batch, "onnxruntime")
    found = results(model, folder, feeds, batch, "torch")
    for name, values in wanted.items():
        assert found[name].shape == values.shape
        assert found[name].dtype == values.dtype
        scale = max(1.0, float(np.abs(values[np.isfinite(values)]).max(initial=0)))
        np.testing.assert_allclose(found[name], values, rtol=tolerance, atol=tolerance * scale)


def normal(*shape: int, seed: int = 7) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


UNARY = [
    "Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "Identity", "Neg", "Reciprocal", "Relu",
    "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tanh", "Elu", "Selu", "Celu", "LeakyRelu",
    "HardSigmoid", "Dropout", "GlobalAveragePool", "GlobalMaxPool", "Flatten", "Transpose",
]  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_an_operator_of_one_operand(op: str, tmp_path: Path) -> None:
    agrees(built(f"(float[N,3,4,5] x) y = {op}(x)"), tmp_path)


@pytest.mark.parametrize("op", ["Sqrt", "Log"])
def test_an_operator_of_one_positive_operand(op: str, tmp_path: Path) -> None:
    agrees(built(f"(float[N,3,4] x) a = Abs(x) y = {op}(a)"), tmp_path)


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("y = Elu<alpha = 0.5>(x)", 17),
        ("y = Celu<alpha = 2.0>(x)", 17),
        ("y = Selu<alpha = 1.5, gamma = 1.25>(x)", 17),
        ("y = LeakyRelu<alpha = 0.3>(x)", 17),
        ("y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)", 17),
        ("y = HardSigmoid<alpha = 0.3, beta = 0.25>(x)", 17),
        ("y = Gelu(x)", 20),
        ('y = Gelu<approximate = "tanh">(x)', 20),
        ("y = Mish(x)", 18),
        ("y = Clip<min = -0.5, max = 0.75>(x)", 10),
        ("y = Clip<max = 0.75>(x)", 6),
        ("y = Clip(x, low, high)", 11),
        ("y = Clip(x, , high)", 13),
        ("y = Clip(x, low)", 13),
        ("y = Clip(x)", 13),
        ("y = Pow(x, two)", 13),
        ("y = PRelu(x, slopes)", 16),
        ("y = PRelu(x, slopes)", 7),
        ("y = LRN<size = 3>(x)", 13),
        ("y = LRN<size = 3, alpha = 0.5, beta = 0.6, bias = 2.0>(x)", 13),
        ("y = LRN<size = 5, alpha = 0.1>(x)", 13),
        ("y = BatchNormalization<epsilon = 0.01>(x, scale, shift, mean, variance)", 15),
        ("y = BatchNormalization(x, scale, shift, mean, variance)", 9),
        ("y = InstanceNormalization<epsilon = 0.01>(x, scale, shift)", 17),
        ("y = LayerNormalization(x, row, row)", 17),
        ("y = LayerNormalization<axis = -2>(x, plane)", 17),
        ("y = Flatten<axis = 2>(x)", 13),
        ("y = Flatten<axis = -1>(x)", 13),
        ("y = Flatten<axis = 0>(x)", 9),
        ("y = Reshape(x, shape)", 14),
        ("y = Transpose<perm = [0, 2, 3, 1]>(x)", 13),
        ("y = Unsqueeze(x, at)", 13),
        ("y = Unsqueeze<axes = [1, 5]>(x)", 11),
        ("y = Concat<axis = 1>(x, x)", 13),
        ("y = Concat<axis = -1>(x, x, x)", 11),
        ("y = Slice(x, from, to, on, by)", 13),
        ("y = Slice(x, from, to)", 10),
        ("y = Slice<starts = [1, -3], ends = [3, 1000], axes = [1, 3]>(x)", 9),
        ("y = Gather<axis = 1>(x, picked)", 13),
        ("y = Gather<axis = -1>(x, one)", 13),
        ("a, b = Split<axis = 1, split = [1, 2]>(x) y = Concat<axis = 1>(b, a)", 11),
        ("a, b = Split<axis = 1>(x, sizes) y = Concat<axis = 1>(b, a)", 13),
        ("a, b = Split<axis = 3, num_outputs = 2>(x) y = Concat<axis = 3>(b, a)", 18),
        ("a, b = Split<axis = 2>(x) y = Add(b, a)", 13),
        ("y = Pad<pads = [0, 0, 1, 2, 0, 0, 3, 0], value = 1.5>(x)", 10),
        ("y = Pad(x, pads, half)", 13),
        ("y = Pad(x, cut)", 13),
        ("y = Pad(x, two_pads, half, on_axes)", 18),
        ("y = Expand(x, wide)", 13),
        ("y = Tile(x, repeats)", 13),
        ("y = Resize(x, , twice)", 13),
        ('y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">'
         "(x, , twice)", 13),
        ('y = Resize<mode = "linear">(x, , twice)', 13),
        ('y = Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(x, , , sizes4)', 13),
        ('y = Resize<mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel">(x, , , sizes4)',
         13),
        ('y = Upsample<mode = "nearest">(x, twice)', 9),
        ('y = Upsample<mode = "nearest", scales = [1.0, 1.0, 3.0, 2.0]>(x)', 7),
    ],
)  # fmt: skip
def test_an_operator_with_attributes(text: str, opset: int, tmp_path: Path) -> None:
    weights: dict[str, Any] = {
        "low": np.float32(-0.5), "high": np.float32(0.75), "two": np.float32(2), "half": np.float32(0.5),
        "slopes": normal(3, 1, 1), "scale": normal(3), "shift": normal(3, seed=1), "mean": normal(3, seed=2),
        "variance": np.abs(normal(3, seed=3)) + 0.1, "row": normal(5), "plane": normal(4, 5),
        "shape": ints(0, -1, 10), "at": ints(0, -1), "from": ints(1, 0, -3), "to": ints(3, 3, 1000),
        "on": ints(1, 2, 3), "by": ints(1, 2, 2), "picked": np.array([[2, 0], [-1, 1]], np.int64),
        "one": np.array(-2, np.int64), "sizes": ints(2, 1), "pads": ints(0, 1, 0, 2, 0, 0, 1, 0),
        "cut": ints(0, 0, -1, 0, 0, 0, 1, -2), "two_pads": ints(1, 0, 0, 2), "on_axes": ints(-1, 2),
        "wide": ints(2, 1, 3, 1, 1), "repeats": ints(1, 2, 1, 3), "sizes4": ints(2, 3, 7, 9),
        "twice": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    used = {name: value for name, value in weights.items() if name in text}
    agrees(built(f"(float[N,3,4,5] x) {text}", opset, used), tmp_path)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [None, 1, 2, -1])
@pytest.mark.parametrize("opset", [9, 11, 13])
def test_softmax_means_what_the_files_opset_says(
    op: str, axis: int | None, opset: int, tmp_path: Path
) -> None:
    if opset == 9 and axis == -1:
        pytest.skip("operator sets before 11 have no negative axes")
    attribute = "" if axis is None else f"<axis = {axis}>"
    agrees(built(f"(float[N,3,4] x) y = {op}{attribute}(x)", opset), tmp_path)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"])
def test_operands_broadcast(op: str, tmp_path: Path) -> None:
    agrees(built(f"(float[N,3,4] x, float[N,1,4] z) y = {op}(x, z)"), tmp_path)
    agrees(built(f"(float[N,3,4] x) y = {op}(x, w)", weights={"w": normal(3, 1)}), tmp_path)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
def test_whole_numbers_are_computed_as_such(op: str, tmp_path: Path) -> None:
    given = {"w": ints(3, -2, 7)}
    agrees(built(f"(int64[N,3] x) yi = {op}(x, w)", weights=given, out="yi"), tmp_path)


@pytest.mark.parametrize("op", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
def test_comparisons_choose(op: str, tmp_path: Path) -> None:
    agrees(built(f"(float[N,3] x, float[N,3] z) c = {op}(x, z) n = Not(c) y = Where(n, x, z)"), tmp_path)


@pytest.mark.parametrize("attribute", ["", "<broadcast = 1, axis = 1>", "<broadcast = 1>"])
def test_operands_broadcast_as_before_operator_set_7(attribute: str, tmp_path: Path) -> None:
    shape = {"": (2, 3, 4), "<broadcast = 1, axis = 1>": (3,), "<broadcast = 1>": (3, 4)}[attribute]
    w = normal(*shape)
    x = normal(2, 3, 4, seed=1)
    wanted = x + (w.reshape(3, 1) if shape == (3,) else w)
    model = built(f"(float[N,3,4] x) y = Add{attribute}(x, w)", 6, {"w": w})
    np.testing.assert_array_equal(results(model, tmp_path, {"x": x}, 2, "torch")["y"], wanted)


@pytest.mark.parametrize(
    "op", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare",
           "ReduceLogSumExp"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("attributes", "operand", "opset"),
    [
        ("axes = [2, 3]", "", 11),
        ("axes = [-1], keepdims = 0", "", 11),
        ("keepdims = 1", "", 11),
        ("keepdims = 0", ", on", 18),
    ],
)
def test_reductions(op: str, attributes: str, operand: str, opset: int, tmp_path: Path) -> None:
    weights = {"on": ints(1, -1)} if operand else {}
    agrees(built(f"(float[N,3,4,5] x) y = {op}<{attributes}>(x{operand})", opset, weights), tmp_path)


@pytest.mark.parametrize(
    "attributes",
    ["", "transB = 1", "transA = 1", "alpha = 0.5, beta = 2.0", "alpha = 0.5, beta = 0.0, transB = 1"],
)
@pytest.mark.parametrize("bias", [None, (4,), (1, 4), (3, 1), ()])
def test_gemm(attributes: str, bias: tuple[int, ...] | None, tmp_path: Path) -> None:
    weights = {"w": normal(4, 3) if "transB" in attributes else normal(3, 4)}
    if bias is not None:
        weights["b"] = normal(*bias) if bias else np.array(0.5, np.float32)
    operand = "" if bias is None else ", b"
    agrees(built(f"(float[3,3] x) y = Gemm<{attributes}>(x, w{operand})", 13, weights), tmp_path, 3)
    shape = ",".join(map(str, weights["w"].shape))
    text = f"(float[3,3] x, float[{shape}] w) y = Gemm<{attributes}>(x, w{operand})"
    agrees(built(text, 13, {name: one for name, one in weights.items() if name == "b"}), tmp_path, 3)


@pytest.mark.parametrize(
    "text",
    [
        "(float[N,3] x) y = MatMul(x, w)",
        "(float[N,5,3] x) y = MatMul(x, w)",
        "(float[N,3,4] x, float[N,4,2] z) y = MatMul(x, z)",
        "(float[N,3] x) y = MatMul(x, v)",
        "(float[N,3] x) t = Transpose(u) y = MatMul(x, t)",
    ],
)
def test_matrix_products(text: str, tmp_path: Path) -> None:
    weights = {"w": normal(3, 4), "v": normal(3), "u": normal(4, 3)}
    used = {name: one for name, one in weights.items() if f", {name})" in text or f"({name})" in text}
    agrees(built(text, weights=used), tmp_path)


@pytest.mark.parametrize("attributes", ["axis = 1", "axis = 1, keepdims = 0", "axis = -1"])
def test_the_place_of_the_largest(attributes: str, tmp_path: Path) -> None:
    model = built(f"(int64[N,5] x) f = Cast<to = 1>(x) yi = ArgMax<{attributes}>(f)", 13, out="yi")
    agrees(model, tmp_path, 8)


@pytest.mark.parametrize(
    "text",
    [
        "(float[N,3] x) i = Cast<to = 7>(x) y = Cast<to = 1>(i)",
        "(float[N,3] x) b = Cast<to = 9>(x) y = Cast<to = 1>(b)",
        "(uint8[N,3] x) y = Cast<to = 1>(x)",
        "(float[N,1,3,1] x) y = Squeeze(x)",
        "(float[N,1,3,1] x) y = Squeeze<axes = [-1]>(x)",
        "(float[N,3,4,4] x) s = Shape(x) t = Gather(s, zero) u = Unsqueeze<axes = [0]>(t) "
        "v = Concat<axis = 0>(u, rest) y = Reshape(x, v)",
    ],
)  # fmt: skip
def test_casts_and_computed_shapes(text: str, tmp_path: Path) -> None:
    weights = {"zero": np.array(0, np.int64), "rest": ints(-1)} if "rest" in text else {}
    agrees(built(text, 11, weights), tmp_path, 3)


PADS = st.lists(st.integers(0, 3), min_size=4, max_size=4)
PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))
WINDOWS = st.fixed_dictionaries(
    {
        "size": st.tuples(st.integers(5, 12), st.integers(5, 12)),
        "kernel": PAIR, "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "dilations": st.tuples(st.integers(1, 2), st.integers(1, 2)),
        "pads": PADS, "auto": st.sampled_from([None, None, "SAME_UPPER", "SAME_LOWER", "VALID"]),
        "ceil": st.booleans(), "include": st.booleans(),
    }
)  # fmt: skip
FEW = settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip


def spelled(window: dict[str, Any], *names: str) -> str:
    """The attributes of a window; ``names`` are those besides kernel and strides."""
    found = {"kernel_shape": list(window["kernel"]), "strides": list(window["strides"])}
    if "dilations" in names:
        found["dilations"] = list(window["dilations"])
    if window["auto"]:
        found["auto_pad"] = f'"{window["auto"]}"'  # type: ignore[assignment]
    else:
        # Padding as wide as the kernel may hold a whole window, which each runtime treats its own way.
        wide = (window["kernel"][0] - 1, window["kernel"][1] - 1)
        pads = [min(pad, wide[place % 2]) for place, pad in enumerate(window["pads"])]
        found["pads"] = pads
    if "ceil_mode" in names:
        ceil = window["ceil"] and window["auto"] in (None, "VALID")
        found["ceil_mode"] = int(ceil)  # type: ignore[assignment]
    if "count_include_pad" in names:
        found["count_include_pad"] = int(window["include"])  # type: ignore[assignment]
    return ", ".join(f"{name} = {value}" for name, value in found.items())


def no_window_behind(window: dict[str, Any]) -> bool:
    """Whether each window begins before the image's end, also where sizes round up; others are refused."""
    pads = window["pads"]
    for axis, (size, kernel, stride, dilation) in enumerate(
        zip(window["size"], window["kernel"], window["strides"], window["dilations"], strict=True)
    ):
        wide = 0 if window["auto"] else kernel - 1
        begin, end = min(pads[axis], wide), min(pads[axis + 2], wide)
        last = -(-(size + begin + end - (kernel - 1) * dilation - 1) // stride) * stride
        if last >= size + begin:
            return False
    return True


@given(window=WINDOWS, groups=st.sampled_from([1, 2, 4]), bias=st.booleans())
@FEW
def test_convolutions(window: dict[str, Any], groups: int, bias: bool, tmp_path: Path) -> None:
    height, width = window["size"]
    weights = {"w": normal(8, 4 // groups, *window["kernel"])}
    if bias:
        weights["b"] = normal(8)
    if window["auto"] in ("SAME_UPPER", "SAME_LOWER"):
        window = window | {"dilations": (1, 1)}  # onnxruntime's paddings leave dilations out
    attributes = spelled(window, "dilations")
    operands = "x, w, b" if bias else "x, w"
    text = f"(float[N,4,{height},{width}] x) y = Conv<group = {groups}, {attributes}>({operands})"
    agrees(built(text, weights=weights), tmp_path)


@given(window=WINDOWS)
@FEW
def test_largest_of_windows(window: dict[str, Any], tmp_path: Path) -> None:
    height, width = window["size"]
    if window["auto"]:
        # onnxruntime's paddings leave dilations out, and may come out negative.
        assume(all(step <= side for step, side in zip(window["strides"], window["kernel"], strict=True)))
        window = window | {"dilations": (1, 1)}
    assume(not window["ceil"] or no_window_behind(window))
    attributes = spelled(window, "dilations", "ceil_mode")
    agrees(built(f"(float[N,2,{height},{width}] x) y = MaxPool<{attributes}>(x)", 12), tmp_path)


@given(window=WINDOWS)
@FEW
def test_means_of_windows(window: dict[str, Any], tmp_path: Path) -> None:
    height, width = window["size"]
    if window["auto"]:
        assume(all(step <= side for step, side in zip(window["strides"], window["kernel"], strict=True)))
    assume(not window["ceil"] or no_window_behind(window | {"dilations": (1, 1)}))
    attributes = spelled(window, "ceil_mode", "count_include_pad")
    agrees(built(f"(float[N,2,{height},{width}] x) y = AveragePool<{attributes}>(x)", 19), tmp_path)


@pytest.mark.parametrize("rank", [1, 3])
def test_windows_of_other_ranks(rank: int, tmp_path: Path) -> None:
    sides, ones, threes = ",".join(["9"] * rank), [1] * rank, [3] * rank
    text = (
        f"(float[N,2,{sides}] x) c = Conv<pads = {ones * 2}>(x, w) "
        f"m = MaxPool<kernel_shape = {threes}, strides = {[2] * rank}, pads = {ones + [0] * rank}>(c) "
        f"y = AveragePool<kernel_shape = {threes}, pads = {ones + [0] * rank}>(m)"
    )
    agrees(built(text, weights={"w": normal(4, 2, *threes)}), tmp_path)


@pytest.mark.parametrize(
    "attributes",
    ["", "strides = [2, 3]", "strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]", "group = 2",
     "dilations = [2, 1]"],
)  # fmt: skip
def test_transposed_convolutions(attributes: str, tmp_path: Path) -> None:
    weights = {"w": normal(4, 3, 3, 3), "b": normal(6 if "group" in attributes else 3)}
    agrees(built(f"(float[N,4,5,6] x) y = ConvTranspose<{attributes}>(x, w, b)", weights=weights), tmp_path)


@pytest.mark.parametrize("layer", ["Conv", "ConvTranspose", "Gemm"])
def test_a_batchnorm_behind_a_layer_is_folded(layer: str, tmp_path: Path) -> None:
    weights = {
        "w": {"Conv": normal(3, 2, 3, 3), "ConvTranspose": normal(2, 3, 3, 3), "Gemm": normal(2, 3)}[layer],
        "s": normal(3, seed=1), "t": normal(3, seed=2), "m": normal(3, seed=3),
        "v": np.abs(normal(3, seed=4)) + 0.1,
    }  # fmt: skip
    shape = "N,2" if layer == "Gemm" else "N,2,6,6"
    text = f"(float[{shape}] x) a = {layer}(x, w) n = BatchNormalization(a, s, t, m, v) y = Relu(n)"
    model = built(text, weights=weights)
    agrees(model, tmp_path)
    with registry.engine("torch").load(tmp_path / "model.onnx", "cpu", "fp32", 2, {"threads": 1}) as session:
        assert [item.op for item in session.executed()] == [layer, "Relu"]


@pytest.mark.parametrize(
    ("text", "opset", "reason"),
    [
        ("a, m = MaxPool<kernel_shape = [2, 2]>(x) b = Cast<to = 1>(m) y = Add(a, b)", 12,
         "its output 'm' is not mapped"),
        ("y = MaxPool<kernel_shape = [1, 1], strides = [2, 3], pads = [0, 0, 0, 0], ceil_mode = 1>(x)", 12,
         r"its windows give \[2, 2\] values, ONNX's shape inference \[3, 2\]"),
        ('y = MaxPool<kernel_shape = [2, 2], dilations = [2, 1], auto_pad = "SAME_UPPER">(x)', 12,
         "auto_pad SAME with dilations"),
        ('y = AveragePool<kernel_shape = [2, 1], strides = [1, 2], auto_pad = "SAME_LOWER">(x)', 12,
         "auto_pad SAME with windows smaller than their strides"),
        ("y, a, b, c, d = BatchNormalization(x, s, s, s, s)", 8, "its output 'a' is not mapped"),
        ("y = AveragePool<kernel_shape = [2, 2], dilations = [2, 2]>(x)", 19, r"dilations \[2, 2\]"),
        ('y = Pad<mode = "reflect">(x, pads)', 13, "mode reflect"),
        ('y = Resize<mode = "cubic">(x, , twice)', 13, "mode cubic with half_pixel"),
        ('y = Resize<mode = "nearest">(x, , half)', 13, "nearest with half_pixel"),
        ("y = Slice(x, from, to, on, back)", 13, "it goes backwards"),
        ("y = Dropout<ratio = 0.5>(x)", 6, "it is in training mode"),
        ("y = ReduceMean<axes = [2], keepdims = 1, odd = 1>(x)", 11, "its attribute 'odd' is not mapped"),
        ("a = Cast<to = 2>(x) y = Cast<to = 1>(a)", 13, "it casts floats to uint8"),
        ("y = Reshape(x, shape)", 13, "its input 1 is computed in each call"),
    ],
)  # fmt: skip
def test_a_form_that_is_not_mapped_is_refused_with_the_node(
    text: str, opset: int, reason: str, tmp_path: Path
) -> None:
    weights = {
        "pads": ints(0, 0, 1, 1, 0, 0, 1, 1), "twice": np.array([1, 1, 2, 2], np.float32),
        "half": np.array([1, 1, 0.5, 0.5], np.float32), "from": ints(-1), "to": ints(-4), "on": ints(2),
        "back": ints(-1), "s": normal(3),
    }  # fmt: skip
    used = {name: one for name, one in weights.items() if re.search(rf"\b{name}\b", text)}
    extra = ", int64[4] shape" if "shape)" in text else ""
    model = built(f"(float[N,3,4,4] x{extra}) {text}", opset, used)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    if "odd" in text:
        pytest.skip("onnx's own check refuses it first")
    with pytest.raises(Unsupported, match=rf"model\.onnx: not mapped: node '\w+_\d' \(\w+\): {reason}"):
        registry.engine("torch").load(path, "cpu", "fp32", 1, {"threads": 1})


def test_all_unknown_operators_are_named_at_once(tmp_path: Path) -> None:
    model = built("(float[N,3] x) a = Hardmax(x) b = Det(c3) y = Add(a, b)", weights={"c3": normal(3, 3)})
    model.graph.node[0].name = "odd one"
    onnx.save(model, tmp_path / "model.onnx")
    wanted = r"does not map the operators: Det \(node 'Det_1'\), Hardmax \(node 'odd one'\)"
    with pytest.raises(Unsupported, match=wanted):
        registry.engine("torch").load(tmp_path / "model.onnx", "cpu", "fp32", 1, {"threads": 1})


def test_the_table_names_operators_of_onnx_alone() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert known >= BUILDERS.keys()
    for name, (_, attributes) in BUILDERS.items():
        versions = [
            one for one in onnx.defs.get_all_schemas_with_history() if one.name == name and not one.domain
        ]
        there = set().union(*(one.attributes for one in versions))
        assert attributes <= there | {"consumed_inputs", "axis", "broadcast"}, name


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("a, m = MaxPool<kernel_shape = [2, 2]>(x) y = Relu(a)", 12),
        ("a, m = Dropout<ratio = 0.5>(x) y = Relu(a)", 8),
        ("a, y, c = Split<axis = 1, split = [1, 1, 1]>(x)", 11),
        ('y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "VALID", ceil_mode = 1>(x)', 12),
        ("s = Shape<start = 1, end = -1>(x) c = Cast<to = 1>(s) q = ReduceSum(c) y = Mul(x, q)", 15),
    ],
)
def test_outputs_that_nobody_reads_and_sizes_that_round_up(text: str, opset: int, tmp_path: Path) -> None:
    agrees(built(f"(float[N,3,6,6] x) {text}", opset), tmp_path)


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        # The second node's label, made of its operator and place, is the third's name.
        ("r = Relu(x) a = Gemm(r, w) y = Gemm<transB = 1, alpha = 2.0>(a, w)", {"w": normal(3, 3)}),
        ("r = Relu(x) a = Gather<axis = 1>(r, i) b = Gather<axis = 1>(a, j) y = Add(a, b)",
         {"i": ints(0, 1), "j": ints(1, 0)}),
        ("r = Relu(x) a = Gather<axis = 1>(r, i) y = Add(a, w)", {"i": ints(2, 0), "w": normal(1)}),
    ],
)  # fmt: skip
def test_names_that_resemble_those_made_here_collide_with_none(
    text: str, weights: dict[str, Any], tmp_path: Path
) -> None:
    model = built(f"(float[N,3] x) {text}", weights=weights)
    model.graph.node[2].name = f"{model.graph.node[1].op_type}_1"
    if text.endswith("Add(a, w)"):
        model.graph.node[2].name, stored = "sum", "0@Gather_1"
        model.graph.initializer[1].name = model.graph.node[2].input[1] = stored
    agrees(model, tmp_path)
    with registry.engine("torch").load(tmp_path / "model.onnx", "cpu", "fp32", 2, {"threads": 1}) as session:
        names = [layer.name for layer in session.executed()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_lrn_of_an_even_size_reaches_one_channel_further_behind(size: int, tmp_path: Path) -> None:
    model = built(f"(float[N,6,2,2] x) y = LRN<size = {size}, alpha = 0.5, bias = 2.0>(x)", 13)
    feeds = fed(model, 2)
    wanted = in_float64(model, feeds)
    np.testing.assert_allclose(results(model, tmp_path, feeds, 2, "torch")["y"], wanted, rtol=1e-5)

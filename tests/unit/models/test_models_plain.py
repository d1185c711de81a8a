"""The same model in plainer words, in a higher opset, and what is said of its numbers."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_graphs import info, model, node, normal, run, run_onnxruntime

from inferometer.errors import CalibrationError, ModelError
from inferometer.models import describe
from inferometer.models.form import float_type, form_of
from inferometer.models.opset import opset_of, upgrade
from inferometer.models.plain import has_halves, plain, to_float32
from inferometer.quantize.graph import prepare

SCALES = {"s": np.array([1, 1, 2, 3], np.float32)}
HALF, BRAIN = TensorProto.FLOAT16, TensorProto.BFLOAT16


@pytest.mark.parametrize("coordinates", [False, True])
def test_sparse_weights_become_dense_ones(coordinates: bool) -> None:
    sparse = model([node("MatMul", ["x", "w"], ["y"])], [info("x", ["N", 4])], [info("y", ["N", 3])])
    values = numpy_helper.from_array(np.array([1.5, -2.0], np.float32), "w")
    places = np.array([[0, 1], [3, 0]] if coordinates else [1, 9], np.int64)
    sparse.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(places, "places"), [4, 3])
    )
    dense = plain(sparse)
    assert not dense.graph.sparse_initializer
    wanted = np.zeros((4, 3), np.float32)
    wanted[0, 1], wanted[3, 0] = 1.5, -2
    np.testing.assert_array_equal(numpy_helper.to_array(dense.graph.initializer[0]), wanted)


def _half(kind: int) -> onnx.ModelProto:
    """Everything where a type may stand: weights, constants, conversions, fillings, an inner graph."""

    def stored(name: str, values: np.ndarray) -> onnx.TensorProto:
        return helper.make_tensor(name, kind, values.shape, values.ravel())

    inner = helper.make_graph(
        [node("Constant", [], ["k"], value=stored("", np.array([0.5]))), node("Mul", ["h", "k"], ["z"])],
        "then", [], [info("z", ["N", 3], kind)],
    )  # fmt: skip
    other = helper.make_graph([node("Identity", ["h"], ["z2"])], "else", [], [info("z2", ["N", 3], kind)])
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("ConstantOfShape", ["shape"], ["f"], value=stored("", np.array([0.25]))),
        node("Add", ["m", "f"], ["a"]),
        node("Cast", ["a"], ["wide"], to=TensorProto.FLOAT),
        node("Cast", ["wide"], ["h"], to=kind),
        node("If", ["yes"], ["y"], then_branch=inner, else_branch=other),
    ]
    found = model(nodes, [info("x", ["N", 4], kind)], [info("y", ["N", 3], kind)],
                  {"shape": np.array([1, 3], np.int64), "yes": np.bool_(True)})  # fmt: skip
    found.graph.initializer.append(stored("w", np.arange(12).reshape(4, 3) / 8))
    return found


@pytest.mark.parametrize("kind", [HALF, BRAIN])
def test_halves_become_float32_everywhere(kind: int) -> None:
    half = _half(kind)
    assert has_halves(half)
    wide = to_float32(half)
    onnx.checker.check_model(wide, full_check=True)
    assert not has_halves(wide)
    assert [item.type.tensor_type.elem_type for item in (*wide.graph.input, *wide.graph.output)] == [1, 1]
    x = normal(5, 4)
    wanted = (x @ (np.arange(12, dtype=np.float32).reshape(4, 3) / 8) + 0.25) * 0.5
    np.testing.assert_allclose(run_onnxruntime(wide, x=x)[0], wanted, rtol=1e-5, atol=1e-6)


def test_an_operator_that_stays_half_is_refused() -> None:
    odd = model(
        [node("Cast", ["x"], ["h"], to=HALF), node("Cast", ["h"], ["y"], to=TensorProto.FLOAT)],
        [info("x", ["N", 4])], [info("y", ["N", 4])],
    )  # fmt: skip
    assert not has_halves(to_float32(odd))
    body = helper.make_function(
        "org.example",
        "Halve",
        ["a"],
        ["b"],
        [node("Cast", ["a"], ["b"], to=HALF)],
        [helper.make_opsetid("", 17)],
    )
    kept = model(
        [node("Halve", ["x"], ["h"], domain="org.example"), node("Cast", ["h"], ["y"], to=TensorProto.FLOAT)],
        [info("x", ["N", 4])], [info("y", ["N", 4])], domains=["org.example"], functions=[body],
    )  # fmt: skip
    with pytest.raises(ModelError, match="'h' stays FLOAT16"):
        to_float32(kept)
    assert not has_halves(to_float32(plain(kept)))


@pytest.mark.parametrize(
    ("op", "attributes", "opset", "weights", "shapes"),
    [
        ("Upsample", {"mode": "linear"}, 9, SCALES, ([1, 2, 3, 3], [1, 2, 6, 9])),
        ("Upsample", {"mode": "nearest"}, 9, SCALES, ([1, 2, 3, 3], [1, 2, 6, 9])),
        ("Upsample", {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 3.0]}, 7, {},
         ([1, 2, 3, 3], [1, 2, 6, 9])),
        ("Resize", {"mode": "linear"}, 10, SCALES, ([1, 2, 3, 3], [1, 2, 6, 9])),
        ("Resize", {"mode": "nearest"}, 10, SCALES, ([1, 2, 3, 3], [1, 2, 6, 9])),
        ("Resize", {"mode": "nearest"}, 10, {"s": np.array([1, 1, 0.5, 0.5], np.float32)},
         ([1, 2, 4, 4], [1, 2, 2, 2])),
        ("AveragePool", {"kernel_shape": [3], "pads": [1, 1], "count_include_pad": 1}, 7, {},
         ([1, 2, 5], [1, 2, 5])),
        ("MaxPool", {"kernel_shape": [2], "strides": [2]}, 7, {}, ([1, 2, 5], [1, 2, 2])),
        ("DepthToSpace", {"blocksize": 2}, 7, {}, ([1, 8, 2, 2], [1, 2, 4, 4])),
        ("Flatten", {}, 7, {}, ([2, 3, 4], [2, 12])),
        ("Transpose", {"perm": [1, 0]}, 7, {}, ([2, 3], [3, 2])),
        ("LpNormalization", {"axis": 1}, 7, {}, ([2, 3], [2, 3])),
        ("Softmax", {"axis": 1}, 11, {}, ([2, 3, 4], [2, 3, 4])),
        ("LogSoftmax", {}, 11, {}, ([2, 3, 4], [2, 3, 4])),
        ("Hardmax", {"axis": 2}, 11, {}, ([2, 3, 4], [2, 3, 4])),
        ("Slice", {"axes": [1], "starts": [1], "ends": [9]}, 9, {}, ([2, 4], [2, 3])),
        ("Pad", {"pads": [0, 1, 0, 2], "value": 3.0}, 7, {}, ([2, 4], [2, 7])),
        ("ReduceMax", {"axes": [1], "keepdims": 0}, 11, {}, ([2, 4], [2])),
        ("Clip", {"min": -0.5, "max": 0.5}, 7, {}, ([2, 4], [2, 4])),
    ],
)  # fmt: skip
def test_an_operator_means_the_same_in_the_newest_opset(
    op: str, attributes: dict, opset: int, weights: dict, shapes: tuple
) -> None:
    nodes = [node(op, ["x", *weights], ["y"], **attributes)]
    old = model(nodes, [info("x", shapes[0])], [info("y", shapes[1])], weights, opset=opset)
    raised, failures = upgrade(old, 21)
    assert failures == []
    assert (opset_of(old), opset_of(raised)) == (opset, 21)
    x = normal(*shapes[0])
    np.testing.assert_allclose(run_onnxruntime(raised, x=x)[0], run_onnxruntime(old, x=x)[0], rtol=1e-6)


def test_group_normalization_is_not_raised_to_another_meaning() -> None:
    weights = {"a": np.array([1, 2], np.float32), "b": np.array([0, 3], np.float32)}
    nodes = [node("GroupNormalization", ["x", "a", "b"], ["y"], num_groups=2, name="norm")]
    old = model(nodes, [info("x", [2, 4, 3])], [info("y", [2, 4, 3])], weights, opset=18)
    kept, failures = upgrade(old, 21)
    assert kept == old
    assert [line.split(":")[0] for line in failures] == ["node 'norm' (GroupNormalization)"]
    assert upgrade(old, 20)[1] == []


def test_what_cannot_be_raised_is_named() -> None:
    weights = {"a": np.ones(4, np.float32)}
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("BatchNormalization", ["h", "a", "a", "a", "a"], ["y"], spatial=0, name="norm"),
    ]
    old = model(nodes, [info("x", ["N", 4])], [info("y", ["N", 4])], weights, opset=7)
    kept, failures = upgrade(old, 13)
    assert kept == old
    assert failures == ["node 'norm' (BatchNormalization): Attribute spatial must have value 1"]
    with pytest.raises(
        CalibrationError, match=r"opset 7 cannot be raised to 13.*'norm' \(BatchNormalization\)"
    ):
        prepare(old)


def test_raising_inlines_functions_and_keeps_what_is_high_enough() -> None:
    body = helper.make_function(
        "org.example", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 12)]
    )
    nodes = [node("Twice", ["x"], ["y"], domain="org.example")]
    old = model(nodes, [info("x", ["N", 4])], [info("y", ["N", 4])], opset=12, domains=["org.example"],
                functions=[body])  # fmt: skip
    raised, failures = upgrade(old, 17)
    assert (failures, len(raised.functions), opset_of(raised)) == ([], 0, 17)
    x = normal(2, 4)
    np.testing.assert_array_equal(run(raised, x=x)[0], x + x)
    assert upgrade(old, 12) == (old, [])


def _of(op: str, inputs: list[str], domain: str = "", **attributes: object) -> onnx.ModelProto:
    nodes = [node("Relu", ["x"], ["h"]), node(op, ["h", *inputs], ["y"], domain=domain, **attributes)]
    return model(
        nodes, [info("x", ["N", 4])], [info("y", None)], {"w": normal(4, 3)}, domains=[domain] * bool(domain)
    )


@pytest.mark.parametrize(
    ("op", "domain", "form"),
    [
        ("MatMul", "", "float"),
        ("DequantizeLinear", "", "weights"),
        ("MatMulNBits", "com.microsoft", "weights"),
        ("MatMulNBits", "org.example", "float"),
        ("QuantizeLinear", "", "qdq"),
        ("QLinearConv", "", "qoperator"),
        ("QLinearAdd", "com.microsoft", "qoperator"),
        ("MatMulInteger", "", "qoperator"),
        ("DynamicQuantizeLinear", "", "dynamic"),
        ("DynamicQuantizeMatMul", "com.microsoft", "dynamic"),
    ],
)
def test_the_form_follows_from_the_operators(op: str, domain: str, form: str) -> None:
    assert form_of(_of(op, ["w"], domain)) == form


def test_a_form_inside_a_function_counts() -> None:
    body = helper.make_function(
        "org.example", "Q", ["a", "s"], ["b"], [node("QuantizeLinear", ["a", "s"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    assert form_of(model([node("Q", ["x", "w"], ["y"], domain="org.example")], [info("x", [4])],
                         [info("y", [4], TensorProto.UINT8)], {"w": np.float32(1)}, domains=["org.example"],
                         functions=[body])) == "qdq"  # fmt: skip


def test_the_type_of_the_floats() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        found = model([node("Relu", ["x"], ["y"])], [info("x", ["N", 4])], [info("y", ["N", 4])],
                      {"w": normal(3).astype(dtype), "scalar": np.float32(1)})  # fmt: skip
        assert float_type(found) == np.dtype(dtype).name
    found.graph.initializer.append(numpy_helper.from_array(normal(3), "v"))
    assert float_type(found) == "mixed"
    assert (
        float_type(model([node("Relu", ["x"], ["y"])], [info("x", [4], HALF)], [info("y", [4], HALF)]))
        == "float16"
    )
    tokens = model([node("Abs", ["x"], ["y"])], [info("x", [4], 7)], [info("y", [4], 7)])
    assert float_type(tokens) is None
    assert describe(_half(BRAIN)).float_type == "bfloat16"

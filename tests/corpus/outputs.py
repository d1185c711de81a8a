"""Models that differ in what they return, and in what is inside."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.corpus.building import conv_net, info, model, node, normal, register
from tests.corpus.inputs import ints

INT64 = TensorProto.INT64


# What a classifier returns


@register(quantized=None)
def softmax_of_1001_classes() -> ModelProto:
    return conv_net(classes=1001, last=[node("Softmax", ["logits"], ["y"])])


@register(quantized=None)
def logits_and_features() -> ModelProto:
    return conv_net(
        last=[node("Identity", ["logits"], ["scores"])],
        outputs=[info("scores", ["N", 10]), info("f", ["N", 8])],
    )


@register(quantized=None)
def labels_and_scores() -> ModelProto:
    last = [
        node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
        node("Softmax", ["logits"], ["scores"]),
    ]
    return conv_net(last=last, outputs=[info("label", ["N"], INT64), info("scores", ["N", 10])])


@register(quantized=None)
def labels_alone() -> ModelProto:
    last = [node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0)]
    return conv_net(last=last, outputs=[info("label", ["N"], INT64)])


_NAMES = [f"class {number}" for number in range(10)]


@register(skipped=("name",), openvino="LabelEncoder")
def names_as_labels() -> ModelProto:
    last = [
        node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
        node("LabelEncoder", ["label"], ["name"], domain="ai.onnx.ml", keys_int64s=list(range(10)),
             values_strings=_NAMES),
        node("Softmax", ["logits"], ["scores"]),
    ]  # fmt: skip
    found = conv_net(last=last, outputs=[info("name", ["N"], TensorProto.STRING), info("scores", ["N", 10])])
    found.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
    return found


@register(skipped=("maps",), openvino="value_info type: maps", reference=False)
def scores_as_maps() -> ModelProto:
    """As scikit-learn's classifiers are written unless told otherwise."""
    value = helper.make_map_type_proto(
        TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    maps = helper.make_value_info("maps", helper.make_sequence_type_proto(value))
    last = [
        node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
        node("Softmax", ["logits"], ["scores"]),
        node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_strings=_NAMES),
    ]
    found = conv_net(last=last, outputs=[info("label", ["N"], INT64), maps])
    found.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return found


@register(skipped=("parts",), openvino="Sequence")
def a_sequence_beside_a_tensor() -> ModelProto:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    nodes = [node("Relu", ["x"], ["y"]), node("SplitToSequence", ["x"], ["parts"], axis=1)]
    return model(nodes, [info("x", ["N", 3])], [helper.make_value_info("parts", kind), info("y", ["N", 3])])


@register(skipped=("name",), openvino="LabelEncoder", reference=False)
def nothing_but_names() -> ModelProto:
    nodes = [
        node("ArgMax", ["x"], ["label"], axis=1, keepdims=0),
        node("LabelEncoder", ["label"], ["name"], domain="ai.onnx.ml", keys_int64s=[0], values_strings=["a"]),
    ]
    return model(nodes, [info("x", ["N", 3])], [info("name", ["N"], TensorProto.STRING)],
                 domains={"ai.onnx.ml": 2})  # fmt: skip


# What is no classifier


@register(quantized=None)
def segmentation() -> ModelProto:
    weights = {
        "w": normal(6, 3, 3, 3),
        "v": normal(4, 6, 1, 1, seed=1),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "v"], ["s"]),
        node(
            "Resize", ["s", "", "scales"], ["y"], mode="linear", coordinate_transformation_mode="half_pixel"
        ),
    ]
    return model(nodes, [info("x", ["N", 3, 8, 8])], [info("y", ["N", 4, 8, 8])], weights)


@register(rowwise=("boxes",))
def detection_with_suppression() -> ModelProto:
    """How many boxes are left depends on the values."""
    weights = {
        "w": normal(4, 12, seed=1), "shape": ints(0, 4, 4), "v": normal(4, 12, seed=2), "most": ints(2),
        "iou": np.array([0.5], np.float32), "least": np.array([0.0], np.float32),
    }  # fmt: skip
    weights |= {"w": normal(12, 16, seed=1), "v": normal(12, 12, seed=2), "classes": ints(0, 3, 4)}
    nodes = [
        node("MatMul", ["x", "w"], ["b"]),
        node("Reshape", ["b", "shape"], ["boxes"]),
        node("MatMul", ["x", "v"], ["s"]),
        node("Reshape", ["s", "classes"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["kept"]),
    ]
    return model(
        nodes, [info("x", ["N", 12])], [info("kept", ["M", 3], INT64), info("boxes", ["N", 4, 4])], weights
    )


@register(rowwise=("y",))
def places_that_depend_on_the_values() -> ModelProto:
    nodes = [node("NonZero", ["x"], ["places"]), node("Relu", ["x"], ["y"])]
    return model(nodes, [info("x", ["N", 3])], [info("places", [2, None], INT64), info("y", ["N", 3])])


@register()
def embeddings() -> ModelProto:
    return conv_net(classes=16, last=[node("LpNormalization", ["logits"], ["y"], axis=1, p=2)])


@register()
def an_lstm() -> ModelProto:
    weights = {
        "w": normal(1, 16, 3), "r": normal(1, 16, 4, seed=1), "axis": ints(0), "v": normal(4, 2, seed=2),
    }  # fmt: skip
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("LSTM", ["t", "w", "r"], ["all", "last"], hidden_size=4),
        node("Squeeze", ["last", "axis"], ["s"]),
        node("MatMul", ["s", "v"], ["y"]),
    ]
    return model(nodes, [info("x", ["N", 5, 3])], [info("y", ["N", 2])], weights)


# What is inside


@register(quantized="control flow", rows=False)
def a_branch() -> ModelProto:
    def body(op: str) -> object:
        return helper.make_graph([node(op, ["x"], ["z"])], op, [], [info("z", ["N", 3])])

    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=body("Relu"), else_branch=body("Neg")),
    ]
    return model(nodes, [info("x", ["N", 3])], [info("y", ["N", 3])], {"zero": np.float32(0)})


@register(quantized="control flow")
def a_loop() -> ModelProto:
    body = helper.make_graph(
        [
            node("MatMul", ["before", "w"], ["m"]),
            node("Tanh", ["m"], ["after"]),
            node("Identity", ["go"], ["on"]),
        ],
        "body",
        [info("step", [], INT64), info("go", [], TensorProto.BOOL), info("before", ["N", 3])],
        [info("on", [], TensorProto.BOOL), info("after", ["N", 3])],
    )
    nodes = [node("Loop", ["times", "yes", "x"], ["y"], body=body)]
    weights = {"times": np.int64(3), "yes": np.bool_(True), "w": normal(3, 3)}
    return model(nodes, [info("x", ["N", 3])], [info("y", ["N", 3])], weights)


@register(onnxruntime="does not know an operator", openvino="does not know an operator")
def an_operator_of_another_domain() -> ModelProto:
    nodes = [node("Frobnicate", ["x"], ["y"], domain="org.example")]
    return model(nodes, [info("x", ["N", 3])], [info("y", ["N", 3])], domains={"org.example": 1})


@register(reference=False)
def a_contributed_operator() -> ModelProto:
    nodes = [node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft", alpha=0.5)]
    weights = {"w": normal(3, 4)}
    return model(nodes, [info("x", ["N", 3])], [info("y", ["N", 4])], weights, domains={"com.microsoft": 1})


@register(quantized=None)
def functions_of_its_own() -> ModelProto:
    twice = helper.make_function(
        "org.example", "Layer", ["a", "k"], ["c"],
        [node("MatMul", ["a", "k"], ["b"]), node("Relu", ["b"], ["c"])], [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        node("Layer", ["x", "w"], ["h"], domain="org.example"),
        node("Layer", ["h", "v"], ["y"], domain="org.example"),
    ]
    weights = {"w": normal(3, 6), "v": normal(6, 2, seed=1)}
    return model(nodes, [info("x", ["N", 3])], [info("y", ["N", 2])], weights, domains={"org.example": 1},
                 functions=[twice])  # fmt: skip


@register(openvino="sparse weights, such as 'w'", reference=False, quantized=None)
def a_sparse_weight() -> ModelProto:
    found = model([node("MatMul", ["x", "w"], ["y"])], [info("x", ["N", 4])], [info("y", ["N", 3])])
    values = numpy_helper.from_array(np.array([1.5, -2.0], np.float32), "w")
    found.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(ints(1, 9), "w_places"), [4, 3])
    )
    return found


# Already quantized


def _qdq(name: str, source: str, kind: np.dtype) -> list[object]:
    return [
        node("QuantizeLinear", [source, f"{name}s", f"{name}z"], [f"{name}q"]),
        node("DequantizeLinear", [f"{name}q", f"{name}s", f"{name}z"], [name]),
    ]


@register(quantized="already quantized", reference=False, described={"form": "qdq", "is_quantized": True})
def quantized_as_qdq() -> ModelProto:
    weights = {
        "as": np.float32(0.05), "az": np.uint8(128), "wz": np.zeros(4, np.int8),
        "wq": np.arange(-54, 54).reshape(4, 3, 3, 3).astype(np.int8), "ws": np.full(4, 0.01, np.float32),
        "bs": np.float32(0.1), "bz": np.uint8(0),
    }  # fmt: skip
    nodes = [
        *_qdq("a", "x", np.uint8),
        node("DequantizeLinear", ["wq", "ws", "wz"], ["w"], axis=0),
        node("Conv", ["a", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        *_qdq("b", "r", np.uint8),
        node("GlobalAveragePool", ["b"], ["g"]),
        node("Flatten", ["g"], ["y"]),
    ]
    return model(nodes, [info("x", ["N", 3, 6, 6])], [info("y", ["N", 4])], weights)


@register(quantized="already quantized", tolerance=0.06, reference=False, described={"form": "qoperator"})
def quantized_as_operators() -> ModelProto:
    weights = {
        "xs": np.float32(0.05), "xz": np.uint8(128),
        "w": np.arange(-54, 54).reshape(4, 3, 3, 3).astype(np.int8),
        "ws": np.float32(0.01), "wz": np.int8(0), "ys": np.float32(0.1), "yz": np.uint8(100),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["c"]),
        node("DequantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    return model(nodes, [info("x", ["N", 3, 6, 6])], [info("y", ["N", 4, 4, 4])], weights)


@register(quantized="already quantized", tolerance=0.02, rows=False, described={"form": "dynamic"})
def quantized_while_it_runs() -> ModelProto:
    """Dynamic quantization chooses one range for all rows of a call: results depend on the batch."""
    weights = {"w": np.arange(-6, 6).reshape(4, 3).astype(np.int8), "wz": np.int8(0), "ws": np.float32(0.1)}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "wz"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["both"]),
        node("Mul", ["f", "both"], ["y"]),
    ]
    return model(nodes, [info("x", ["N", 4])], [info("y", ["N", 3])], weights)


@register(quantized="already quantized", described={"form": "weights"})
def weights_of_four_bits() -> ModelProto:
    packed = helper.make_tensor("wq", TensorProto.INT4, [4, 3], [v % 16 - 8 for v in range(12)])
    weights = {"wq": packed, "ws": np.float32(0.25)}
    nodes = [node("DequantizeLinear", ["wq", "ws"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    return model(nodes, [info("x", ["N", 4])], [info("y", ["N", 3])], weights, opset=21, ir=10)


@register(quantized="already quantized", described={"form": "weights"})
def weights_of_float8() -> ModelProto:
    packed = helper.make_tensor("wq", TensorProto.FLOAT8E4M3FN, [4, 3], [v / 4 for v in range(12)])
    weights = {"wq": packed, "ws": np.float32(0.25)}
    nodes = [node("DequantizeLinear", ["wq", "ws"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    return model(nodes, [info("x", ["N", 4])], [info("y", ["N", 3])], weights, opset=21, ir=10)


@register(quantized=None, tolerance=0.01, described={"float_type": "float16"})
def float16_inside_alone() -> ModelProto:
    """As converters write it that keep the types of inputs and outputs."""
    half = TensorProto.FLOAT16
    found = conv_net(kind=half, dtype=np.float16)
    found.graph.node[0].input[0] = "x16"
    found.graph.node[-1].output[0] = "y16"
    found.graph.node.insert(0, node("Cast", ["x"], ["x16"], to=half))
    found.graph.node.append(node("Cast", ["y16"], ["y"], to=TensorProto.FLOAT))
    for item in (*found.graph.input, *found.graph.output):
        item.type.tensor_type.elem_type = TensorProto.FLOAT
    return found


@register(
    quantized=None, tolerance=0.05, onnxruntime="no kernel for it", described={"float_type": "bfloat16"},
)  # fmt: skip
def bfloat16_inside() -> ModelProto:
    weights = {"w": helper.make_tensor("w", TensorProto.BFLOAT16, [4, 3], [v / 4 for v in range(12)])}
    nodes = [
        node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        node("MatMul", ["b", "w"], ["m"]),
        node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
    ]
    return model(nodes, [info("x", ["N", 4])], [info("y", ["N", 3])], weights)

"""Models that differ in what is fed to them, and in their batch."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tests.corpus.building import conv_net, info, model, node, normal, register

INT64 = TensorProto.INT64


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@register(quantized=None)
def a_classifier() -> ModelProto:
    return conv_net()


# Names


@register(quantized=None)
def names_with_dots_slashes_and_colons() -> ModelProto:
    return conv_net(source="serving_default/images.v1:0", result="StatefulPartitionedCall/head:0")


@register(quantized=None)
def names_with_spaces_and_other_alphabets() -> ModelProto:
    return conv_net(source=" Bild 1 (größe)", result="类别 概率")


@register()
def names_of_digits_and_signs() -> ModelProto:
    return model(
        [node("Add", ["0", "-"], ["1"])], [info("0", ["N", 3]), info("-", ["N", 3])], [info("1", ["N", 3])]
    )


# Types


@register(quantized=None, tolerance=0.01, described={"float_type": "float16"})
def float16_throughout() -> ModelProto:
    return conv_net(kind=TensorProto.FLOAT16, dtype=np.float16)


@register(quantized="float64", described={"float_type": "float64"})
def float64_throughout() -> ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Tanh", ["h"], ["y"])]
    weights = {"w": normal(4, 5, dtype=np.float64)}
    kind = TensorProto.DOUBLE
    return model(nodes, [info("x", ["N", 4], kind)], [info("y", ["N", 5], kind)], weights)


@register()
def bytes_in_nhwc() -> ModelProto:
    nodes = [
        node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        node("Div", ["f", "by"], ["d"]),
        node("Transpose", ["d"], ["t"], perm=[0, 3, 1, 2]),
        node("Conv", ["t", "w"], ["c"]),
        node("GlobalMaxPool", ["c"], ["p"]),
        node("Flatten", ["p"], ["y"]),
    ]
    weights = {"by": np.float32(255), "w": normal(5, 3, 3, 3)}
    return model(nodes, [info("x", ["N", 8, 8, 3], TensorProto.UINT8)], [info("y", ["N", 5])], weights)


def _cast_and_sum(kind: int) -> ModelProto:
    nodes = [node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), node("MatMul", ["f", "w"], ["y"])]
    return model(nodes, [info("x", ["N", 4], kind)], [info("y", ["N", 3])], {"w": normal(4, 3)})


@register()
def int8_input() -> ModelProto:
    return _cast_and_sum(TensorProto.INT8)


@register(ranges={"x": (-300, 300)})
def int16_input() -> ModelProto:
    return _cast_and_sum(TensorProto.INT16)


@register(ranges={"x": (0, 60000)})
def uint16_input() -> ModelProto:
    return _cast_and_sum(TensorProto.UINT16)


@register(ranges={"x": (-70000, 70000)})
def int32_input() -> ModelProto:
    return _cast_and_sum(TensorProto.INT32)


@register(ranges={"x": (0, 70000)})
def uint32_input() -> ModelProto:
    return _cast_and_sum(TensorProto.UINT32)


@register(ranges={"x": (0, 70000)})
def uint64_input() -> ModelProto:
    return _cast_and_sum(TensorProto.UINT64)


@register(ranges={"tokens": (0, 19)}, shapes={"tokens": (7,)})
def tokens_and_an_embedding() -> ModelProto:
    nodes = [
        node("Gather", ["table", "tokens"], ["e"]),
        node("ReduceMean", ["e"], ["m"], axes=[1], keepdims=0),
        node("Gemm", ["m", "w"], ["y"]),
    ]
    weights = {"table": normal(20, 6), "w": normal(6, 4, seed=1)}
    return model(nodes, [info("tokens", ["N", "T"], INT64)], [info("y", ["N", 4])], weights)


@register(ranges={"mask": (0, 1)})
def a_mask_of_bool() -> ModelProto:
    inputs = [info("x", ["N", 5]), info("mask", ["N", 5], TensorProto.BOOL)]
    return model([node("Where", ["mask", "x", "zero"], ["y"])], inputs, [info("y", ["N", 5])],
                 {"zero": np.float32(0)})  # fmt: skip


# How many there are, and of which form


@register(quantized=None)
def an_image_and_a_table() -> ModelProto:
    nodes = [
        node("Conv", ["image", "w"], ["c"]),
        node("GlobalAveragePool", ["c"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Concat", ["f", "facts"], ["j"], axis=1),
        node("Gemm", ["j", "v"], ["y"]),
    ]
    weights = {"w": normal(4, 3, 3, 3), "v": normal(9, 3, seed=1)}
    inputs = [info("image", ["N", 3, 8, 8]), info("facts", ["N", 5])]
    return model(nodes, inputs, [info("y", ["N", 3])], weights)


@register()
def a_scalar_beside_the_images() -> ModelProto:
    return model(
        [node("Mul", ["x", "factor"], ["y"])],
        [info("x", ["N", 4]), info("factor", [])],
        [info("y", ["N", 4])],
    )


@register()
def a_scalar_first() -> ModelProto:
    return model(
        [node("Mul", ["x", "factor"], ["y"])],
        [info("factor", []), info("x", ["N", 4])],
        [info("y", ["N", 4])],
    )


@register(ranges={"sizes": (1, 1)})
def a_list_of_settings_beside_the_images() -> ModelProto:
    """``sizes`` has one axis, whose length has nothing to do with the batch."""
    nodes = [node("Cast", ["sizes"], ["f"], to=TensorProto.FLOAT), node("Mul", ["x", "f"], ["y"])]
    return model(nodes, [info("x", ["N", 3]), info("sizes", [3], INT64)], [info("y", ["N", 3])])


@register()
def an_input_that_nothing_reads() -> ModelProto:
    return model(
        [node("Relu", ["x"], ["y"])], [info("x", ["N", 3]), info("idle", ["N", 2])], [info("y", ["N", 3])]
    )


@register(onnxruntime=r"'x' holds strings", openvino=r"'x' holds strings", batches=(1,))
def strings_as_input() -> ModelProto:
    nodes = [node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["a"], values_int64s=[1])]
    return model(nodes, [info("x", ["N", 1], TensorProto.STRING)], [info("y", ["N", 1], INT64)],
                 domains={"ai.onnx.ml": 2})  # fmt: skip


@register(onnxruntime="'x' is a sequence", openvino="'x' is a sequence", batch="no batch axis", batches=(1,))
def a_sequence_as_input() -> ModelProto:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 3]))
    nodes = [node("ConcatFromSequence", ["x"], ["y"], axis=0)]
    return model(nodes, [helper.make_value_info("x", kind)], [info("y", [None, 3])])


@register(onnxruntime="'x' is optional", openvino="'x' is optional", batch="no batch axis", batches=(1,))
def an_optional_input() -> ModelProto:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 3]))
    nodes = [node("OptionalGetElement", ["x"], ["y"])]
    return model(nodes, [helper.make_value_info("x", kind)], [info("y", ["N", 3])], opset=18)


@register(reference=False)
def initializers_among_the_inputs() -> ModelProto:
    """As files of IR version 3 must."""
    found = conv_net(opset=8, ir=3)
    for tensor in found.graph.initializer:
        found.graph.input.append(info(tensor.name, list(tensor.dims)))
    return found


# Batch


@register(quantized=None)
def a_batch_without_a_name() -> ModelProto:
    return conv_net(None)


@register()
def other_names_of_the_batch_by_input() -> ModelProto:
    inputs = [info("a", ["batch_a", 3]), info("b", ["batch_b", 3])]
    return model([node("Add", ["a", "b"], ["y"])], inputs, [info("y", ["batch_y", 3])])


@register()
def a_batch_written_as_a_formula() -> ModelProto:
    """Two views of each image, by a file that calls the rows of the output ``2*N``."""
    weights = {"split": ints(0, 2, 3), "join": ints(-1, 3)}
    nodes = [
        node("Reshape", ["x", "split"], ["s"]),
        node("Reshape", ["s", "join"], ["y"]),
    ]
    return model(nodes, [info("x", ["N", 6])], [info("y", ["2*N", 3])], weights)


@register(quantized=None)
def made_for_one_image() -> ModelProto:
    return conv_net(1)


@register(quantized=None)
def made_for_four_images() -> ModelProto:
    return conv_net(4)


@register()
def a_flattening_made_for_one_image() -> ModelProto:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Reshape", ["c", "flat"], ["f"]),
        node("MatMul", ["f", "v"], ["y"]),
    ]
    weights = {"w": normal(4, 3, 3, 3), "flat": ints(1, -1), "v": normal(64, 3, seed=1)}
    return model(nodes, [info("x", [1, 3, 6, 6])], [info("y", [1, 3])], weights)


@register()
def a_token_expanded_for_one_image() -> ModelProto:
    weights = {"token": normal(1, 4), "shape": ints(2, 1, 4)}
    nodes = [node("Expand", ["token", "shape"], ["t"]), node("Concat", ["t", "x"], ["y"], axis=1)]
    return model(nodes, [info("x", [2, 3, 4])], [info("y", [2, 4, 4])], weights)


@register()
def an_upsampling_to_sizes() -> ModelProto:
    nodes = [node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")]
    return model(nodes, [info("x", [1, 3, 4, 4])], [info("y", [1, 3, 8, 8])], {"sizes": ints(1, 3, 8, 8)})


@register()
def a_state_of_zeros_for_one_image() -> ModelProto:
    """As LSTMs begin: the shape of the state has the batch in it."""
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])
    nodes = [
        node("ConstantOfShape", ["shape"], ["state"], value=zero),
        node("Concat", ["state", "x"], ["y"], axis=1),
    ]
    return model(nodes, [info("x", [1, 3])], [info("y", [1, 5])], {"shape": ints(1, 2)})


@register()
def a_token_tiled_for_two_images() -> ModelProto:
    weights = {"token": normal(1, 1, 4), "times": ints(2, 1, 1)}
    nodes = [node("Tile", ["token", "times"], ["t"]), node("Concat", ["t", "x"], ["y"], axis=1)]
    return model(nodes, [info("x", [2, 3, 4])], [info("y", [2, 4, 4])], weights)


@register(batch="changes the length of axis 0", batches=(2,))
def a_slice_as_long_as_the_batch() -> ModelProto:
    weights = {"from": ints(0), "to": ints(2), "axis": ints(0)}
    nodes = [node("Slice", ["x", "from", "to", "axis"], ["s"]), node("Relu", ["s"], ["y"])]
    return model(nodes, [info("x", [2, 3])], [info("y", [2, 3])], weights)


@register(batch="'ReduceMean_0'.*reduces along axis 0", batches=(1,))
def a_sum_over_the_batch() -> ModelProto:
    """Each result depends on all rows: made for one, it must not be given more."""
    nodes = [
        node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
        node("Sub", ["x", "m"], ["y"]),
    ]
    return model(nodes, [info("x", [1, 3])], [info("y", [1, 3])])


@register(batch="'RNN_0'.*steps along axis 0", batches=(5,))
def a_sequence_first_rnn() -> ModelProto:
    """[T, N, C]: the first axis is time."""
    weights = {"w": normal(1, 4, 3), "r": normal(1, 4, 4, seed=1)}
    nodes = [
        node("RNN", ["x", "w", "r"], ["all", "last"], hidden_size=4),
        node("Squeeze", ["last", "axis"], ["y"]),
    ]
    weights["axis"] = ints(0)
    return model(nodes, [info("x", [5, 2, 3])], [info("y", [2, 4])], weights)


@register(shapes={"x": (3, 12, 10)})
def open_height_and_width() -> ModelProto:
    weights = {"w": normal(4, 3, 3, 3)}
    nodes = [node("Conv", ["x", "w"], ["c"], strides=[2, 2]), node("Relu", ["c"], ["y"])]
    return model(nodes, [info("x", ["N", 3, "H", "W"])], [info("y", ["N", 4, "h", "w2"])], weights)


@register(shapes={"x": (3, 12, 10)})
def nothing_known_but_the_rank() -> ModelProto:
    nodes = [node("GlobalAveragePool", ["x"], ["g"]), node("Flatten", ["g"], ["y"])]
    return model(nodes, [info("x", [None, None, None, None])], [info("y", [None, None])])


@register(shapes={"x": (3,)})
def not_even_the_rank_known() -> ModelProto:
    return model([node("Relu", ["x"], ["y"])], [info("x", None)], [info("y", None)])

"""Shapes and element types of every tensor of a graph, for one image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from inferometer.errors import ModelError
from inferometer.models.constants import evaluate_constants
from inferometer.models.files import one_line
from inferometer.models.graph import attribute, element_bits, outline, true_inputs

__all__ = [
    "TensorFacts",
    "batch_of",
    "batch_position",
    "dimensions",
    "dtype_name",
    "full_shape",
    "infer_facts",
    "with_batch_of_one",
]

_QOPERATOR_DOMAIN = "com.microsoft"

# Operators of onnxruntime's own domain in which it writes quantized models, and which onnx's inference does
# not know: the positions of the inputs whose shapes broadcast to the output's.
_ELEMENTWISE = {
    "QLinearAdd": (0, 3),
    "QLinearMul": (0, 3),
    "QLinearSigmoid": (0,),
    "QLinearLeakyRelu": (0,),
    "QLinearSoftmax": (0,),
    "QuantizeLinear": (0,),
    "DequantizeLinear": (0,),
    "Gelu": (0,),
}


@dataclass(frozen=True)
class TensorFacts:
    """Element type (an onnx TensorProto.DataType, 0 if unknown) and shape of a tensor."""

    data_type: int
    shape: tuple[int | None, ...] | None

    @property
    def full_shape(self) -> tuple[int, ...] | None:
        """The shape if each side of it is known."""
        if self.shape is None:
            return None
        sides = tuple(side for side in self.shape if side is not None)
        return sides if len(sides) == len(self.shape) else None

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the tensor, packed; None when type or shape are unknown."""
        bits, shape = element_bits(self.data_type), self.full_shape
        return None if bits is None or shape is None else (math.prod(shape) * bits + 7) // 8


def full_shape(name: str, facts: Mapping[str, TensorFacts]) -> tuple[int, ...] | None:
    """The shape of a tensor if each side of it is known."""
    found = facts.get(name)
    return None if found is None else found.full_shape


def dimensions(info: ValueInfoProto) -> tuple[int | str | None, ...] | None:
    """Dimensions of a tensor: a number, a symbol or None each; None for a tensor of unknown rank."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(
        (side.dim_value if side.dim_value >= 0 else None)  # some exporters write -1 for an open axis
        if side.HasField("dim_value")
        else (side.dim_param or None)
        for side in tensor.shape.dim
    )


def dtype_name(data_type: int) -> str | None:
    """The numpy name of an element type, ``float32`` for example; None for undefined ones."""
    name = TensorProto.DataType.Name(data_type)
    special = {"UNDEFINED": None, "FLOAT": "float32", "DOUBLE": "float64", "STRING": "object"}
    # ml_dtypes, where numpy has the small types from, spells them like this.
    return special.get(name, name.lower().replace("float8e", "float8_e").replace("float4e", "float4_e"))


def batch_position(shapes: Sequence[Sequence[object] | None]) -> int | None:
    """Which input's leading axis is the batch: the first with two axes or more, or else the first with one.

    A scalar has none, and a list beside images (a threshold for each class, say) is rarely one.

    Args:
        shapes: Of the inputs, in order; None for an unknown rank.

    Returns:
        Its position; None when no input has an axis.
    """
    ranks = [len(shape or ()) for shape in shapes]
    many = [position for position, rank in enumerate(ranks) if rank > 1]
    one = [position for position, rank in enumerate(ranks) if rank == 1]
    return next(iter([*many, *one]), None)


def batch_of(model: ModelProto) -> int | None:
    """The batch that a model's inputs are fixed to; None when it is open or there is none."""
    shapes = [dimensions(info) for info in true_inputs(model.graph)]
    position = batch_position(shapes)
    shape = None if position is None else shapes[position]
    return shape[0] if shape and isinstance(shape[0], int) else None


def with_batch_of_one(model: ModelProto) -> ModelProto:
    """A copy without large weights in which an open batch is 1; a fixed batch stays as it is.

    Open leading axes of all inputs are taken for the batch; their symbols are replaced wherever they occur.
    """
    copy = outline(model)
    inputs = true_inputs(copy.graph)
    leading = [shape[0] for shape in map(dimensions, inputs) if shape]
    symbols = {side for side in leading if isinstance(side, str)}
    for info in [*copy.graph.input, *copy.graph.output, *copy.graph.value_info]:
        for side in info.type.tensor_type.shape.dim:
            if side.HasField("dim_param") and side.dim_param in symbols:
                side.dim_value = 1
    for info in inputs:
        shape = dimensions(info)
        if shape and shape[0] is None:
            info.type.tensor_type.shape.dim[0].dim_value = 1
    return copy


def infer_facts(model: ModelProto, label: str) -> dict[str, TensorFacts]:
    """Infer the element type and shape of every tensor as far as they can be told.

    Args:
        model: The model; left as it is.
        label: How to call it in an error.

    Raises:
        ModelError: The graph contradicts itself so that inference gives up.
    """
    work = outline(model)
    work.ir_version = max(work.ir_version, 4)  # before 4, initializers count only when listed as inputs
    evaluate_constants(work, {})
    foreign = _take_foreign(work)
    while True:
        try:
            graph = shape_inference.infer_shapes(work, data_prop=True).graph
        except (shape_inference.InferenceError, onnx.checker.ValidationError, ValueError) as error:
            raise ModelError(f"{label}: the shapes do not fit together: {one_line(error)}") from error
        facts = {item.name: TensorFacts(item.data_type, tuple(item.dims)) for item in graph.initializer}
        for info in [*graph.input, *graph.output, *graph.value_info]:
            facts.setdefault(info.name, _facts(info))
        # What has become known may make more known: each round ends at least one node's obscurity.
        evaluated = evaluate_constants(work, {name: item.shape for name, item in facts.items()})
        if not _add_foreign(work, foreign, facts) and not evaluated:
            return facts


def _facts(info: ValueInfoProto) -> TensorFacts:
    shape = dimensions(info)
    numbers = None if shape is None else tuple(side if isinstance(side, int) else None for side in shape)
    return TensorFacts(info.type.tensor_type.elem_type, numbers)


def _take_foreign(model: ModelProto) -> list[NodeProto]:
    """Take out the nodes of onnxruntime's own domain: some versions of onnx infer nothing behind them."""
    graph, taken = model.graph, []
    for index in reversed(range(len(graph.node))):
        if graph.node[index].domain == _QOPERATOR_DOMAIN:
            taken.append(NodeProto.FromString(graph.node[index].SerializeToString()))
            del graph.node[index]
    return taken[::-1]


def _add_foreign(model: ModelProto, foreign: list[NodeProto], facts: dict[str, TensorFacts]) -> bool:
    """Declare as inputs the outputs of foreign nodes that have become inferable, and drop those nodes."""
    added = False
    for node in list(foreign):
        found = _foreign_facts(node, facts)
        if found is not None:
            model.graph.input.append(
                helper.make_tensor_value_info(node.output[0], found.data_type, found.shape)
            )
            foreign.remove(node)
            added = True
    return added


def _foreign_facts(node: NodeProto, facts: dict[str, TensorFacts]) -> TensorFacts | None:
    """Element type and shape of a foreign operator's output; None while its inputs are unknown."""
    op = node.op_type
    if op == "QLinearConcat":  # scale, zero point, then (tensor, scale, zero point) for each part
        return _concatenated(node, [facts.get(name) for name in node.input[2::3]])
    shape = full_shape(node.input[0], facts)
    if shape is None:
        return None
    data = facts[node.input[0]]
    if op in _ELEMENTWISE:
        operands = [full_shape(node.input[index], facts) for index in _ELEMENTWISE[op]]
        kinds = {"QuantizeLinear": TensorProto.UINT8, "DequantizeLinear": TensorProto.FLOAT}
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return None
        return TensorFacts(kinds.get(op, data.data_type), np.broadcast_shapes(*known))
    if op == "QLinearGlobalAveragePool":
        last = bool(attribute(node, "channels_last", 0))
        ones = [1] * (len(shape) - 2)
        return TensorFacts(data.data_type, (shape[0], *ones, shape[-1]) if last else (*shape[:2], *ones))
    if op == "QGemm":
        weight = full_shape(node.input[3], facts)
        if weight is None:
            return None
        # Without an output scale the product stays in float.
        quantized = len(node.input) > 7 and bool(node.input[7])
        side = weight[0 if attribute(node, "transB", 0) else 1]
        rows = shape[1 if attribute(node, "transA", 0) else 0]
        return TensorFacts(data.data_type if quantized else TensorProto.FLOAT, (rows, side))
    return None


def _concatenated(node: NodeProto, parts: list[TensorFacts | None]) -> TensorFacts | None:
    shapes = [part.shape for part in parts if part is not None and part.shape is not None]
    first = parts[0] if parts else None
    if first is None or len(shapes) < len(parts):
        return None
    axis = attribute(node, "axis", 0)
    along = [shape[axis] for shape in shapes]
    known = [side for side in along if side is not None]
    joined = list(shapes[0])
    joined[axis] = sum(known) if len(known) == len(along) else None
    return TensorFacts(first.data_type, tuple(joined))

"""Working out the small values that a graph computes before any image arrives: shapes, axes, paddings.

Exporters write paddings and target shapes as chains of nodes (torch's ``F.pad`` takes ten); onnx's shape
inference does not follow all of them, and stops at the first Pad or Reshape whose operand it cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from inferometer.models.graph import SMALL, add_initializer, constant_tensors, is_standard

__all__ = ["evaluate_constants"]

# Operators that move or combine integers; anything else is left to shape inference.
_EVALUATED = frozenset(
    {
        "Add", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Floor", "Gather",
        "Identity", "Max", "Min", "Mod", "Mul", "Neg", "Range", "ReduceProd", "Reshape", "Slice", "Split",
        "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip


def evaluate_constants(
    model: ModelProto,
    shapes: Mapping[str, tuple[int | None, ...] | None],
    *,
    integers_only: bool = False,
) -> bool:
    """Replace nodes whose result is known and small by initializers, in place.

    Args:
        model: The model.
        shapes: Shapes known so far, for the nodes that return the shape of a tensor.
        integers_only: Whether to leave nodes that return anything but integers.

    Returns:
        Whether a node was replaced.
    """
    graph = model.graph
    opsets = {item.domain: item.version for item in model.opset_import}
    values = {
        name: numpy_helper.to_array(tensor)
        for name, tensor in constant_tensors(graph).items()
        if math.prod(tensor.dims) <= SMALL and _has_value(tensor)
    }
    replaced = []
    for index, node in enumerate(graph.node):
        results = _evaluate(node, values, shapes, opsets)
        if results is None or (integers_only and any(item.dtype.kind not in "iu" for item in results)):
            continue
        replaced.append(index)
        for name, value in zip(node.output, results, strict=True):
            values[name] = value
            add_initializer(model, name, value)
    for index in reversed(replaced):
        del graph.node[index]
    return bool(replaced)


def _evaluate(
    node: NodeProto,
    values: dict[str, NDArray[np.generic]],
    shapes: Mapping[str, tuple[int | None, ...] | None],
    opsets: dict[str, int],
) -> list[NDArray[np.generic]] | None:
    """The outputs of a node, or None when they are not known, not small, or not worth knowing."""
    if not is_standard(node.domain):
        return None
    if node.op_type == "Shape" and not node.attribute:
        return _shape_of(shapes.get(node.input[0]))
    if node.op_type not in _EVALUATED or not all(name in values for name in node.input if name):
        return None
    if node.op_type in ("ConstantOfShape", "Expand", "Tile") and _large(node, values):
        return None
    feeds = {name: values[name] for name in node.input if name}
    entry = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    graph = helper.make_graph(
        [node], "one", entry, [helper.make_empty_tensor_value_info(n) for n in node.output]
    )
    try:
        results = ReferenceEvaluator(graph, opsets=opsets).run(None, feeds)
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError):
        return None  # not a way to reject a graph: its shapes simply stay unknown, and the summary says so
    arrays = [np.asarray(result) for result in results if result is not None]
    usable = len(arrays) == len(node.output) and all(array.size <= SMALL for array in arrays)
    return arrays if usable else None


def _shape_of(shape: tuple[int | None, ...] | None) -> list[NDArray[np.generic]] | None:
    sides = None if shape is None else [side for side in shape if side is not None]
    if shape is None or sides is None or len(sides) < len(shape):
        return None
    return [np.array(sides, np.int64)]


def _large(node: NodeProto, values: dict[str, NDArray[np.generic]]) -> bool:
    """Whether an operator that makes big tensors out of small ones is about to do so."""
    factor = math.prod(int(side) for side in values[node.input[-1]].ravel())
    return factor > SMALL


def _has_value(tensor: TensorProto) -> bool:
    """Whether the tensor's value is in memory: not in another file, and not left out."""
    fields = ("raw_data", "int64_data", "int32_data", "float_data", "double_data", "uint64_data")
    return math.prod(tensor.dims) == 0 or any(len(getattr(tensor, field)) for field in fields)

"""Which tensors of a graph cannot be negative, whatever its input holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from inferometer.models.graph import attribute, is_standard

__all__ = ["non_negative_tensors"]

# Whatever they read.
_ALWAYS = frozenset({"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus"})

# When their first input is not negative; the others say only where, how much or in which shape.
_KEEP_FIRST = frozenset(
    {"AveragePool", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GlobalAveragePool",
     "GlobalMaxPool", "Identity", "MaxPool", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Reshape",
     "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)  # fmt: skip

# When no input is negative.
_KEEP_ALL = frozenset({"Add", "Concat", "Div", "Mean", "Min", "Mul", "Sum"})

Known = Callable[[str], bool]


def non_negative_tensors(model: ModelProto) -> frozenset[str]:
    """Names of the tensors that the graph proves to be zero or above for every input.

    Proven are those behind a Relu, Sigmoid, Softmax and the like and behind a Clip from 0 or above, and what
    pooling, Concat, reshapes, sums and products make of them. A tensor that is left out may still never be
    negative. Stored tensors count too: a sum with a constant needs their sign.

    Args:
        model: A prepared model: constants stored, nodes in the order of execution.

    Source: ONNX operator definitions.
    """
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    signs: dict[str, bool] = {}

    def known(name: str) -> bool:
        if name not in signs:
            signs[name] = name in stored and _is_non_negative(stored[name])
        return signs[name]

    for node in model.graph.node:
        proven = is_standard(node.domain) and _keeps_above_zero(node, known, stored)
        signs.update((name, proven) for name in node.output)
    return frozenset(name for name, proven in signs.items() if proven and name)


def _keeps_above_zero(node: NodeProto, known: Known, stored: Mapping[str, TensorProto]) -> bool:
    """Whether no output of ``node`` can be negative."""
    op = node.op_type
    if op == "Clip":
        return _clips_at_zero(node, known, stored)
    if op == "Max":
        return any(known(name) for name in node.input)
    if op == "Mul" and node.input[0] == node.input[1]:
        return True
    if op == "Pad":
        value = node.input[2] if len(node.input) > 2 else ""
        return known(node.input[0]) and (not value or known(value))
    if op == "Resize":
        # Cubic weights are partly negative.
        return known(node.input[0]) and attribute(node, "mode", b"nearest") != b"cubic"
    if op == "LRN":
        divides = attribute(node, "alpha", 1e-4) >= 0 and attribute(node, "bias", 1.0) > 0
        return divides and known(node.input[0])
    if op in _KEEP_FIRST:
        return known(node.input[0])
    return op in _ALWAYS or (op in _KEEP_ALL and all(known(name) for name in node.input))


def _clips_at_zero(node: NodeProto, known: Known, stored: Mapping[str, TensorProto]) -> bool:
    """Clip is min(max(x, lowest), highest), and so the highest decides when the two cross."""
    lowest, highest = (node.input[at] if len(node.input) > at else "" for at in (1, 2))
    from_zero = known(node.input[0]) or (lowest in stored and known(lowest))
    return from_zero and (not highest or known(highest))


def _is_non_negative(tensor: TensorProto) -> bool:
    values = numpy_helper.to_array(tensor)
    return values.dtype.kind in "fiu" and bool((values >= np.zeros((), values.dtype)).all())

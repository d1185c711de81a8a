"""Multiply-accumulates of one node, from its shapes.

Counted are convolutions and matrix products, as publications do; a bias, an activation, a pooling or a
normalisation counts nothing. An operator that multiplies matrices in a way not covered here is unknown, and
never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from onnx import NodeProto

from inferometer.models.graph import all_nodes, attribute, is_standard, subgraphs
from inferometer.models.shapes import TensorFacts, full_shape

__all__ = ["node_macs"]

_Facts = dict[str, TensorFacts]

# Standard operators that multiply and accumulate, whose count depends on more than is worked out here.
_NOT_COUNTED = frozenset(
    {"Attention", "DeformConv", "Det", "DFT", "Einsum", "GRU", "LSTM", "LinearAttention", "RNN", "STFT"}
)

# Operators of onnxruntime's own domain without matrix products.
_FOREIGN_WITHOUT = frozenset(
    {
        "BiasGelu", "DequantizeLinear", "FastGelu", "Gelu", "QLinearAdd", "QLinearAveragePool",
        "QLinearConcat", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid",
        "QLinearSoftmax", "QuantizeLinear", "QuickGelu", "SkipLayerNormalization",
    }
)  # fmt: skip


class _Unknown(Exception):
    """A shape that is needed is not known; the message says which."""


def node_macs(node: NodeProto, facts: _Facts) -> tuple[int | None, str | None]:
    """Count the multiply-accumulates of a node.

    Args:
        node: The node.
        facts: Shapes of the graph's tensors, by name.

    Returns:
        The count and None, or None and the reason why it is unknown.
    """
    counts = _COUNTED if is_standard(node.domain) else _FOREIGN if node.domain == "com.microsoft" else {}
    if node.op_type in counts:
        try:
            return counts[node.op_type](node, facts), None
        except _Unknown as error:
            return None, str(error)
    if not is_standard(node.domain) and node.op_type not in _FOREIGN_WITHOUT:
        return None, f"operator {node.op_type} of domain {node.domain} is not known"
    if is_standard(node.domain) and node.op_type in _NOT_COUNTED:
        return None, f"MACs of operator {node.op_type} are not counted"
    if any(_multiplies(inner) for body in subgraphs(node) for inner in all_nodes(body)):
        return None, f"how often the graph inside {node.op_type} runs is not known"
    return 0, None


def _multiplies(node: NodeProto) -> bool:
    return not is_standard(node.domain) or node.op_type in _COUNTED or node.op_type in _NOT_COUNTED


def _known(name: str, facts: _Facts) -> tuple[int, ...]:
    shape = full_shape(name, facts)
    if shape is None:
        raise _Unknown(f"the shape of {name!r} is not known")
    return shape


def _conv(weight: int) -> Callable[[NodeProto, _Facts], int]:
    def count(node: NodeProto, facts: _Facts) -> int:
        """Each output element sums over (channels / groups) x kernel; the weight has just that shape."""
        output = _known(node.output[0], facts)
        return math.prod(output) * math.prod(_known(node.input[weight], facts)[1:])

    return count


def _conv_transpose(node: NodeProto, facts: _Facts) -> int:
    """Each input element is spread over (output channels / groups) x kernel."""
    source = _known(node.input[0], facts)
    return math.prod(source) * math.prod(_known(node.input[1], facts)[1:])


def _matmul(left: int, right: int) -> Callable[[NodeProto, _Facts], int]:
    def count(node: NodeProto, facts: _Facts) -> int:
        """Each output element sums over the last axis of the left factor, batched or not."""
        inner = _known(node.input[left], facts)[-1]
        _known(node.input[right], facts)
        return math.prod(_known(node.output[0], facts)) * inner

    return count


def _gemm(node: NodeProto, facts: _Facts) -> int:
    left = _known(node.input[0], facts)
    inner = left[0 if attribute(node, "transA", 0) else 1]
    return math.prod(_known(node.output[0], facts)) * inner


_COUNTED: dict[str, Callable[[NodeProto, _Facts], int]] = {
    "Conv": _conv(1),
    "ConvInteger": _conv(1),
    "QLinearConv": _conv(3),
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul(0, 1),
    "MatMulInteger": _matmul(0, 1),
    "QLinearMatMul": _matmul(0, 3),
}

_FOREIGN: dict[str, Callable[[NodeProto, _Facts], int]] = {
    "FusedConv": _conv(1),
    "FusedGemm": _gemm,
    "QGemm": _gemm,
    "QLinearConv": _conv(3),
}

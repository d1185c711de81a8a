"""Which stored values are trained parameters, and which node uses each first.

A parameter is an element of a stored floating-point tensor, or of an integer one that stands for a quantized
weight. Values that steer an operator are none, although they are stored alike: the tables below say which
inputs they are. A scalar (rank 0) is none either: exporters write constants of formulas so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from inferometer.models.graph import attribute, constant_tensors, is_standard, subgraphs

__all__ = ["NodeUse", "parameter_uses"]

_FLOATING = frozenset(
    number for name, number in TensorProto.DataType.items() if name.startswith(("FLOAT", "DOUBLE", "BFLOAT"))
)

# Inputs that are settings or statistics.
_SETTINGS: dict[str, frozenset[int]] = {
    op: frozenset(inputs)
    for op, inputs in {
        "BatchNormalization": (3, 4),  # running mean and variance: statistics, not trained
        "Clip": (1, 2),
        "DequantizeLinear": (1, 2),
        "Dropout": (1, 2),
        "OneHot": (1, 2),
        "Pad": (1, 2, 3),
        "QGemm": (1, 2, 4, 5, 7, 8),
        "QLinearAdd": (1, 2, 4, 5, 6, 7),
        "QLinearConv": (1, 2, 4, 5, 6, 7),
        "QLinearMatMul": (1, 2, 4, 5, 6, 7),
        "QLinearMul": (1, 2, 4, 5, 6, 7),
        "QuantizeLinear": (1, 2),
        "Range": (0, 1, 2),
        "Resize": (1, 2, 3),
        "Upsample": (1,),
    }.items()
}

# Operators of onnxruntime's own domain all of whose further inputs are scales and zero points.
_ALL_SETTINGS = frozenset(
    {"QLinearAveragePool", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearSigmoid",
     "QLinearSoftmax"}
)  # fmt: skip

# Inputs at which a stored integer tensor is a quantized weight or bias.
_QUANTIZED: dict[str, frozenset[int]] = {
    "ConvInteger": frozenset({1}),
    "DequantizeLinear": frozenset({0}),
    "MatMulInteger": frozenset({0, 1}),
    "QGemm": frozenset({3, 6}),
    "QLinearAdd": frozenset({0, 3}),
    "QLinearConv": frozenset({3, 8}),
    "QLinearMatMul": frozenset({0, 3}),
    "QLinearMul": frozenset({0, 3}),
}


@dataclass(frozen=True)
class NodeUse:
    """What a node is to the count.

    Attributes:
        constant: It computes from stored values alone, so that it runs once, before any image.
        parameters: Parameters that it is the first to use; those of a constant node are its consumers'.
    """

    constant: bool
    parameters: int


@dataclass(frozen=True)
class _Stored:
    key: str
    elements: int
    counts: bool  # whether it is a parameter wherever it is used, or only as a quantized weight


_Scope = dict[str, frozenset[_Stored]]


def parameter_uses(graph: GraphProto) -> list[NodeUse]:
    """For each node of a graph, in order: whether it is constant, and how many parameters it uses first."""
    seen: set[str] = set()
    uses = []
    for constant, stored in _walk(graph, {}, "")[0]:
        fresh = {} if constant else {item.key: item.elements for item in stored if item.key not in seen}
        seen.update(fresh)
        uses.append(NodeUse(constant, sum(fresh.values())))
    return uses


def _walk(
    graph: GraphProto, outer: _Scope, where: str
) -> tuple[list[tuple[bool, frozenset[_Stored]]], frozenset[_Stored]]:
    """Follow stored values through a graph: per node (constant?, parameters in use), and those in outputs."""
    tensors = constant_tensors(graph)
    scope = {**outer, **{name: _of_tensor(f"{where}{name}", tensor) for name, tensor in tensors.items()}}
    found = []
    for index, node in enumerate(graph.node):
        inner: frozenset[_Stored] = frozenset()
        bodies = list(subgraphs(node))
        for number, body in enumerate(bodies):
            rows, left = _walk(body, scope, f"{where}{index}.{number}/")
            inner = inner.union(left, *(used for _, used in rows))
        used = inner | _used(node, scope)
        constant = not bodies and all(name in scope for name in node.input if name)
        constant = constant and (bool(node.input) or node.op_type == "Constant")
        if constant and node.op_type != "Constant":
            made = _filled(node, tensors, where) if node.op_type == "ConstantOfShape" else used
            scope.update(dict.fromkeys(node.output, made))
        found.append((constant, used))
    return found, frozenset().union(*(scope.get(item.name, frozenset()) for item in graph.output))


def _used(node: NodeProto, scope: _Scope) -> frozenset[_Stored]:
    """The parameters among a node's direct inputs."""
    op = node.op_type
    settings = _SETTINGS.get(op, frozenset())
    used: set[_Stored] = set()
    for index, name in enumerate(node.input):
        if index in settings or (op in _ALL_SETTINGS and not is_standard(node.domain)):
            continue
        for stored in scope.get(name, ()):
            if stored.counts:
                used.add(stored)
            elif index in _QUANTIZED.get(op, ()):
                used.add(replace(stored, counts=True))
    return frozenset(used)


def _of_tensor(key: str, tensor: TensorProto) -> frozenset[_Stored]:
    floating = tensor.data_type in _FLOATING and len(tensor.dims) > 0
    return frozenset({_Stored(key, math.prod(tensor.dims), floating)})


def _filled(node: NodeProto, tensors: dict[str, TensorProto], where: str) -> frozenset[_Stored]:
    """A weight written as ConstantOfShape, as the light test models of the onnx package do."""
    shape = tensors.get(node.input[0])
    value = attribute(node, "value", None)
    if shape is None or (value is not None and value.data_type not in _FLOATING):
        return frozenset()
    sides = [int(side) for side in numpy_helper.to_array(shape)]
    return frozenset({_Stored(f"{where}{node.output[0]}", math.prod(sides), len(sides) > 0)})

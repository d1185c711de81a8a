"""Looking things up in an ONNX graph: nodes, attributes, constants, consumers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

__all__ = [
    "SMALL",
    "add_initializer",
    "all_nodes",
    "all_tensors",
    "attribute",
    "constant_tensors",
    "consumer_counts",
    "element_bits",
    "is_standard",
    "node_label",
    "outline",
    "subgraphs",
    "true_inputs",
    "unused_name",
]

SMALL = 1024
"""Elements up to which a stored tensor may be a shape or the like, whose values shape inference needs."""


def is_standard(domain: str) -> bool:
    """Whether a node's or operator set's domain is that of standard ONNX."""
    return domain in ("", "ai.onnx")


def node_label(node: NodeProto, index: int) -> str:
    """The node's name, or one made of its operator and position, for nodes without."""
    return node.name or f"{node.op_type}_{index}"


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    """The value of a node's attribute, or ``default`` when the node has none of that name."""
    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default


def true_inputs(graph: GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs a caller feeds. Old files (IR version 3) list their initializers among the inputs too."""
    stored = {tensor.name for tensor in graph.initializer}
    return [item for item in graph.input if item.name not in stored]


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs inside a node (the bodies of If, Loop and Scan)."""
    for item in node.attribute:
        if item.type == AttributeProto.GRAPH:
            yield item.g
        elif item.type == AttributeProto.GRAPHS:
            yield from item.graphs


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Every node of a graph, with those of graphs inside nodes."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every stored tensor of a model, initializers and attributes, also in graphs inside nodes."""

    def of(graph: GraphProto) -> Iterator[TensorProto]:
        yield from graph.initializer
        for node in graph.node:
            for item in node.attribute:
                if item.type == AttributeProto.TENSOR:
                    yield item.t
                elif item.type == AttributeProto.TENSORS:
                    yield from item.tensors
            for inner in subgraphs(node):
                yield from of(inner)

    yield from of(model.graph)


def constant_tensors(graph: GraphProto) -> dict[str, TensorProto]:
    """Tensors with a stored value, by name: initializers and the outputs of Constant nodes.

    An initializer that is also listed as an input is taken for a constant, although a caller could override
    it: the files that list them so (IR version 3) mean weights.
    """
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and is_standard(node.domain):
            tensor = _constant_value(node)
            if tensor is not None:
                found[node.output[0]] = tensor
    return found


def _constant_value(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant node; None for strings and sparse values, which hold no weights here."""
    item = node.attribute[0]
    value = helper.get_attribute_value(item)
    if item.name == "value":
        tensor: TensorProto = value
        return tensor
    kinds = {
        "value_float": TensorProto.FLOAT,
        "value_floats": TensorProto.FLOAT,
        "value_int": TensorProto.INT64,
        "value_ints": TensorProto.INT64,
    }
    if item.name not in kinds:
        return None
    many = item.name.endswith("s")
    values = list(value) if many else [value]
    return helper.make_tensor(node.output[0], kinds[item.name], [len(values)] if many else [], values)


def add_initializer(model: ModelProto, name: str, values: NDArray[np.generic]) -> TensorProto:
    """Store a new tensor in a model and return it there.

    Up to IR version 3 initializers must be listed among the inputs as well; from 4 on they need not be, and
    files of version 3 are valid under 4, so the version is raised.
    """
    model.ir_version = max(model.ir_version, 4)
    stored: TensorProto = model.graph.initializer.add()
    stored.CopyFrom(numpy_helper.from_array(values, name))
    return stored


def consumer_counts(graph: GraphProto) -> Counter[str]:
    """How often each tensor is read: by nodes, by graphs inside nodes, and as an output of the graph."""
    counts = Counter(name for node in all_nodes(graph) for name in node.input if name)
    counts.update(item.name for item in graph.output)
    for node in all_nodes(graph):
        for inner in subgraphs(node):
            counts.update(item.name for item in inner.output)
    return counts


def unused_name(wanted: str, taken: set[str]) -> str:
    """``wanted``, or with the first number appended that makes it new; the result is added to ``taken``."""
    name, number = wanted, 1
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


def element_bits(data_type: int) -> int | None:
    """Bits of one element when packed; None for strings and undefined types."""
    name = TensorProto.DataType.Name(data_type)
    if name in ("UNDEFINED", "STRING"):
        return None
    for bits in (2, 4):  # INT4, UINT4, FLOAT4E2M1, INT2, UINT2: numpy spends a whole byte on them
        if name.startswith((f"INT{bits}", f"UINT{bits}", f"FLOAT{bits}")):
            return bits
    # By name, because older versions of onnx map the types that numpy has not to larger ones.
    if name.startswith("FLOAT8"):
        return 8
    if name == "BFLOAT16":
        return 16
    return int(np.dtype(helper.tensor_dtype_to_np_dtype(data_type)).itemsize) * 8


def outline(model: ModelProto) -> ModelProto:
    """A copy without the values of large initializers: enough for shapes, and light for any size of model."""
    copy = ModelProto()
    copy.ir_version = model.ir_version
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    copy.metadata_props.extend(model.metadata_props)
    source, target = model.graph, copy.graph
    target.name = source.name
    target.node.extend(source.node)
    target.input.extend(source.input)
    target.output.extend(source.output)
    target.value_info.extend(source.value_info)
    target.sparse_initializer.extend(source.sparse_initializer)
    for tensor in source.initializer:
        if math.prod(tensor.dims) <= SMALL:
            target.initializer.add().CopyFrom(tensor)
        else:
            target.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    return copy

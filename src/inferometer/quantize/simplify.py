"""Rewriting a float graph so that nothing stands between a layer and its quantized input.

Exporters leave paddings, shape arithmetic and identities in a graph that engines fold away in float, but
no longer once a QuantizeLinear stands between. Every step here keeps the values that the graph computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from inferometer.models.constants import evaluate_constants
from inferometer.models.graph import attribute, constant_tensors, consumer_counts, is_standard, unused_name
from inferometer.models.shapes import infer_facts

__all__ = ["drop_unused", "simplify"]

# What exporters leave between a stored weight and the layer that reads it.
_WEIGHT_OPS = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

_DROPPED = frozenset({"Dropout", "Identity"})

Array = npt.NDArray[np.generic]


def simplify(model: ModelProto) -> None:
    """Simplify ``model`` in place: constants folded, identities and paddings merged, Gemm in its plain form.

    Args:
        model: An inference graph without control flow, at opset 13 or higher.
    """
    graph = model.graph
    _constants_to_initializers(graph)
    evaluate_constants(model, {})
    _fold_weights(model)
    _drop_identities(graph)
    _merge_pads(graph)
    _bias_into_gemm(model)
    _plain_gemm(graph)
    drop_unused(graph)


def drop_unused(graph: GraphProto) -> None:
    """Remove initializers that nothing reads, in place."""
    used = consumer_counts(graph)
    for position in reversed(range(len(graph.initializer))):
        if not used[graph.initializer[position].name]:
            del graph.initializer[position]


def _constants_to_initializers(graph: GraphProto) -> None:
    values = constant_tensors(graph)
    kept: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "Constant" and is_standard(node.domain) and node.output[0] in values:
            stored = graph.initializer.add()
            stored.CopyFrom(values[node.output[0]])
            stored.name = node.output[0]
        else:
            kept.append(node)
    _replace(graph.node, kept)


def _fold_weights(model: ModelProto) -> None:
    """Compute what only moves stored weights; one pass, since nodes are in topological order."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    kept: list[NodeProto] = []
    for node in graph.node:
        names = [name for name in node.input if name]
        moves = node.op_type in _WEIGHT_OPS and is_standard(node.domain) and bool(names)
        result = _computed(node, constants, model) if moves and all(n in constants for n in names) else None
        if result is None:
            kept.append(node)
            continue
        added = graph.initializer.add()
        added.CopyFrom(result)
        constants[added.name] = added
    _replace(graph.node, kept)


def _computed(node: NodeProto, constants: dict[str, TensorProto], model: ModelProto) -> TensorProto | None:
    feeds = {name: numpy_helper.to_array(constants[name]) for name in node.input if name}
    inputs = [
        helper.make_tensor_value_info(name, constants[name].data_type, list(constants[name].dims))
        for name in feeds
    ]
    output = helper.make_tensor_value_info(node.output[0], TensorProto.UNDEFINED, None)
    single = helper.make_model(
        helper.make_graph([node], "constant", inputs, [output]),
        opset_imports=[item for item in model.opset_import if is_standard(item.domain)],
    )
    try:
        values = [np.asarray(value) for value in ReferenceEvaluator(single).run(None, feeds)]
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        # The node stays: the engine computes it, or says what is wrong with it.
        return None
    return numpy_helper.from_array(values[0], node.output[0])


def _drop_identities(graph: GraphProto) -> None:
    """Remove Identity and inference Dropout, unless one side must keep its name."""
    outputs = {item.name for item in graph.output}
    used = consumer_counts(graph)
    alias: dict[str, str] = {}
    kept: list[NodeProto] = []
    for node in graph.node:
        for position, name in enumerate(node.input):
            node.input[position] = alias.get(name, name)
        mask_used = len(node.output) > 1 and bool(node.output[1]) and used[node.output[1]] > 0
        training = len(node.input) > 2 and bool(node.input[2])
        drops = node.op_type in _DROPPED and is_standard(node.domain) and not mask_used and not training
        if drops and node.output[0] not in outputs:
            alias[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    _replace(graph.node, kept)


def _merge_pads(graph: GraphProto) -> None:
    """Merge zero padding of the image's borders into the convolution that alone reads it."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {item.name for item in graph.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    kept: list[NodeProto] = []
    for node in graph.node:
        pads = _zero_pads(node, constants)
        readers_here = readers.get(node.output[0], []) if pads is not None else []
        if pads is None or node.output[0] in outputs or not readers_here:
            kept.append(node)
            continue
        wanted = any(pads)
        if wanted and not all(_takes_pads(reader, node.output[0], pads) for reader in readers_here):
            kept.append(node)
            continue
        for reader in readers_here:
            for position, name in enumerate(reader.input):
                if name == node.output[0]:
                    reader.input[position] = node.input[0]
            if wanted:
                _add_pads(reader, pads)
            readers.setdefault(node.input[0], []).append(reader)
    _replace(graph.node, kept)


def _zero_pads(node: NodeProto, constants: dict[str, TensorProto]) -> list[int] | None:
    """Constant paddings with zero, begins and then ends per axis; None when the node is no such thing."""
    if (
        node.op_type != "Pad"
        or not is_standard(node.domain)
        or attribute(node, "mode", b"constant") != b"constant"
    ):
        return None
    names = [*node.input, "", "", ""]
    if names[1] not in constants or names[3] or (names[2] and names[2] not in constants):
        return None
    if names[2] and np.any(numpy_helper.to_array(constants[names[2]]) != 0):
        return None
    pads = [int(pad) for pad in numpy_helper.to_array(constants[names[1]]).reshape(-1)]
    return pads if min(pads, default=0) >= 0 else None


def _takes_pads(node: NodeProto, tensor: str, pads: list[int]) -> bool:
    axes = len(pads) // 2
    spatial_only = not any(pads[:2]) and not any(pads[axes : axes + 2])
    explicit = attribute(node, "auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
    is_conv = node.op_type == "Conv" and is_standard(node.domain) and node.input[0] == tensor
    return is_conv and spatial_only and explicit


def _add_pads(node: NodeProto, pads: list[int]) -> None:
    axes = len(pads) // 2
    extra = pads[2:axes] + pads[axes + 2 :]
    own = attribute(node, "pads", [0] * len(extra))
    kept = [item for item in node.attribute if item.name not in ("pads", "auto_pad")]
    summed = [int(a + b) for a, b in zip(own, extra, strict=True)]
    _replace(node.attribute, [*kept, helper.make_attribute("pads", summed)])


def _bias_into_gemm(model: ModelProto) -> None:
    """Write MatMul of a matrix, then Add of a constant row, as one Gemm.

    Engines do so themselves in float, and no longer when the MatMul's inputs are dequantized.
    """
    graph = model.graph
    products = _matrix_products(model)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    kept: list[NodeProto] = []
    gone: set[str] = set()
    for node in graph.node:
        pair = _product_and_bias(node, products, constants)
        if pair is None:
            kept.append(node)
            continue
        product, bias = pair
        gone.add(product.output[0])
        inputs = [*product.input, bias]
        kept.append(helper.make_node("Gemm", inputs, list(node.output), name=product.name or node.name))
    _replace(graph.node, [node for node in kept if not gone.intersection(node.output)])


def _matrix_products(model: ModelProto) -> dict[str, NodeProto]:
    """By output: the MatMul of a matrix with a constant one whose result one node alone reads."""
    facts, used = infer_facts(model, "the model"), consumer_counts(model.graph)
    constants = {tensor.name for tensor in model.graph.initializer}

    def is_matrix(name: str) -> bool:
        return name in facts and len(facts[name].shape or ()) == 2

    return {
        node.output[0]: node
        for node in model.graph.node
        if node.op_type == "MatMul"
        and is_standard(node.domain)
        and node.input[1] in constants
        and is_matrix(node.input[0])
        and is_matrix(node.input[1])
        and used[node.output[0]] == 1
    }


def _product_and_bias(
    node: NodeProto, products: dict[str, NodeProto], constants: dict[str, TensorProto]
) -> tuple[NodeProto, str] | None:
    if node.op_type != "Add" or not is_standard(node.domain):
        return None
    for tensor, bias in (tuple(node.input), tuple(reversed(node.input))):
        if tensor in products and bias in constants:
            columns = constants[products[tensor].input[1]].dims[1]
            if list(constants[bias].dims) in ([columns], [1, columns]):
                return products[tensor], bias
    return None


def _plain_gemm(graph: GraphProto) -> None:
    """Move a Gemm's alpha and beta into its constant weight and bias: integer kernels know only 1."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    taken = set(constants) | {name for node in graph.node for name in (*node.input, *node.output)}
    for node in graph.node:
        if node.op_type != "Gemm" or not is_standard(node.domain):
            continue
        for position, name in ((1, "alpha"), (2, "beta")):
            factor = float(attribute(node, name, 1.0))
            present = position < len(node.input) and node.input[position] in constants
            if factor == 1.0 or not present:
                continue
            source = constants[node.input[position]]
            value = numpy_helper.to_array(source)
            scaled = (value.astype(np.float64) * factor).astype(value.dtype)
            node.input[position] = unused_name(f"{source.name}_times_{name}", taken)
            graph.initializer.append(numpy_helper.from_array(scaled, node.input[position]))
            _replace(node.attribute, [item for item in node.attribute if item.name != name])


def _replace(field: Any, items: Iterable[Any]) -> None:
    """Set a repeated protobuf field to ``items``, which may be its own."""
    copies = []
    for item in items:
        copies.append(type(item)())
        copies[-1].CopyFrom(item)
    del field[:]
    field.extend(copies)

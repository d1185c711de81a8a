"""The same model in plainer words: without functions of its own, sparse weights, and halves of floats."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto, ModelProto, SparseTensorProto, TensorProto, TypeProto, inliner, numpy_helper

from inferometer.errors import ModelError
from inferometer.models.graph import all_nodes, all_tensors, subgraphs
from inferometer.models.shapes import infer_facts, with_batch_of_one

__all__ = ["has_halves", "plain", "to_float32"]

_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})

# Attributes that hold an element type. Source: the operators of onnx 1.23 (Cast, EyeLike, HannWindow, ...).
_TYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision"}
)


def plain(model: ModelProto) -> ModelProto:
    """The model with its own functions inlined, and sparse weights stored like any others.

    Itself when it has neither, else a copy.
    """
    if not model.functions and not any(graph.sparse_initializer for graph in _graphs(model.graph)):
        return model
    if model.functions:
        flat: ModelProto = inliner.inline_local_functions(model)
    else:
        flat = ModelProto()
        flat.CopyFrom(model)
    for graph in _graphs(flat.graph):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse))
        del graph.sparse_initializer[:]
    return flat


def _dense(sparse: SparseTensorProto) -> TensorProto:
    """Source: the places are either flat, [values], or one row of coordinates a value, [values, axes]."""
    values, places = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        dense.reshape(-1)[places] = values
    else:
        dense[tuple(places.T)] = values
    return numpy_helper.from_array(dense, sparse.values.name)


def has_halves(model: ModelProto) -> bool:
    """Whether any stored tensor, input or conversion is float16 or bfloat16."""
    types = {tensor.data_type for tensor in all_tensors(model)}
    types |= {item.type.tensor_type.elem_type for item in (*model.graph.input, *model.graph.output)}
    types |= {item.i for node in all_nodes(model.graph) for item in node.attribute if item.name == "to"}
    return bool(types & _HALVES)


def to_float32(model: ModelProto) -> ModelProto:
    """A copy that computes in float32 wherever the model computes in float16 or bfloat16.

    Stored values stay the same numbers, since float32 holds all of either type; results differ by the
    rounding that no longer happens. Inputs and outputs become float32 too.

    Args:
        model: The model, without functions of its own (see `plain`).

    Raises:
        ModelError: An operator gives one of these types whatever its inputs are.
    """
    wide = ModelProto()
    wide.CopyFrom(model)
    for tensor in all_tensors(wide):
        if tensor.data_type in _HALVES:
            values = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for node in all_nodes(wide.graph):
        for item in node.attribute:
            if item.name in _TYPE_ATTRIBUTES and item.i in _HALVES:
                item.i = TensorProto.FLOAT
    for graph in _graphs(wide.graph):
        del graph.value_info[:]  # inferred again where they are needed
        for info in (*graph.input, *graph.output):
            _widen(info.type)
    for name, facts in infer_facts(with_batch_of_one(wide), "the model in float32").items():
        if facts.data_type in _HALVES:
            kind = TensorProto.DataType.Name(facts.data_type)
            raise ModelError(
                f"tensor {name!r} stays {kind} when the model is made float32: export it in float32"
            )
    return wide


def _widen(kind: TypeProto) -> None:
    if kind.HasField("tensor_type") and kind.tensor_type.elem_type in _HALVES:
        kind.tensor_type.elem_type = TensorProto.FLOAT
    elif kind.HasField("sequence_type"):
        _widen(kind.sequence_type.elem_type)
    elif kind.HasField("optional_type"):
        _widen(kind.optional_type.elem_type)


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)

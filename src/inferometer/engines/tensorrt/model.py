"""The ONNX file as TensorRT is given it: one batch, each node with a name of its own.

The names come back in what the engine tells of its layers, which is how multiply-accumulates are told.
Nothing here imports TensorRT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, TensorProto

from inferometer.errors import ModelError, Unsupported
from inferometer.models.files import load
from inferometer.models.graph import node_label, subgraphs, true_inputs, unused_name
from inferometer.models.macs import node_macs
from inferometer.models.plain import plain
from inferometer.models.shapes import batch_position, dimensions, infer_facts

__all__ = ["Readied", "readied"]

_UNKNOWN = re.compile(r"No Op registered for (\S+)")
_SEPARATORS = re.compile(r"[\[\]|\x00-\x1f]")  # what the lists of names in a layer's metadata are built with


@dataclass(frozen=True)
class Readied:
    """A file read for one batch.

    Attributes:
        model: All shapes of inputs fixed.
        inputs: Shapes of the inputs by name, in the order of the file.
        outputs: Names, in the order of the file.
        ops: The operator of each node by the node's name.
        macs: Multiply-accumulates of a call by the node's name; None when those of one cannot be told.
    """

    model: ModelProto
    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    ops: Mapping[str, str]
    macs: Mapping[str, int] | None


def readied(path: Path, batch: int, engine: str) -> Readied:
    """Read a file and fix its batch.

    Args:
        path: The file.
        batch: For each open first axis of an input.
        engine: The engine's name, for errors.

    Raises:
        ModelError: The file is no valid model.
        Unsupported: Its batch is fixed at another number, another axis is open, an input is no array of
            numbers, or standard ONNX has no such operator.
    """
    try:
        model = plain(load(path))
    except ModelError as error:
        unknown = _UNKNOWN.search(str(error))
        if unknown:
            raise Unsupported(f"{path}: {engine} does not know the operator {unknown[1]}") from error
        raise
    shapes = _fixed(model, path, batch)
    _named(model)
    return Readied(
        model,
        shapes,
        tuple(info.name for info in model.graph.output),
        {node.name: node.op_type for node in model.graph.node},
        _macs(model, path),
    )


def _fixed(model: ModelProto, path: Path, batch: int) -> dict[str, tuple[int, ...]]:
    """Write the batch into the inputs and return their shapes."""
    inputs = true_inputs(model.graph)
    for info in inputs:
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type" or info.type.tensor_type.elem_type == TensorProto.STRING:
            raise Unsupported(
                f"{path}: input {info.name!r} is no array of numbers, and nothing here can feed it"
            )
        if dimensions(info) is None:
            raise Unsupported(f"{path}: input {info.name!r} has no known rank: give its shape")
    found = [dimensions(info) or () for info in inputs]
    position = batch_position(found)
    fixed = None if position is None else found[position][0]
    if isinstance(fixed, int) and fixed != batch:
        raise Unsupported(f"{path}: its batch is fixed at {fixed}, asked for {batch}")
    shapes = {}
    for info, sides in zip(inputs, found, strict=True):
        given = (
            batch if axis == 0 and not isinstance(side, int) else side for axis, side in enumerate(sides)
        )
        shape = tuple(side for side in given if isinstance(side, int))
        if len(shape) != len(sides):
            raise Unsupported(f"{path}: input {info.name!r} leaves an axis besides the batch open: fix it")
        for axis, length in zip(info.type.tensor_type.shape.dim, shape, strict=True):
            axis.dim_value = length
        shapes[info.name] = shape
    del model.graph.value_info[:]  # of the open batch
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    return shapes


def _named(model: ModelProto) -> None:
    """Give each node a name that no other has, and no character that separates names."""
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        node.name = unused_name(_SEPARATORS.sub("_", node_label(node, index)), taken)


def _macs(model: ModelProto, path: Path) -> dict[str, int] | None:
    try:
        facts = infer_facts(model, str(path))
    except ModelError:
        return None  # the parser, which has the last word, may see it otherwise
    found = {}
    for node in model.graph.node:
        macs, _ = node_macs(node, facts)
        if macs is None or any(True for _ in subgraphs(node)):
            return None
        found[node.name] = macs
    return found

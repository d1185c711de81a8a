"""Nodes that have a model's batch in a constant, and what it is to be at another batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from inferometer.models.graph import add_initializer, attribute, constant_tensors, is_standard, unused_name
from inferometer.models.parameters import parameter_uses
from inferometer.models.shapes import TensorFacts, full_shape

__all__ = ["Target", "compute", "rewrite", "symbolic_shape", "targets_of"]

# Which input holds the target shape; of Tile, how often each axis is repeated.
_SHAPE_INPUT = {"Reshape": 1, "Expand": 1, "Resize": 3, "Tile": 1, "ConstantOfShape": 0}
_OF_CONSTANTS = frozenset({"Tile", "ConstantOfShape"})  # treated only where they make a stored value larger

_Facts = dict[str, TensorFacts]


@dataclass(frozen=True)
class Target:
    """A node whose constant target shape has the batch in front.

    Attributes:
        index: Position of the node in the graph.
        rows: The leading entry for each image.
        rest: The other entries.
        constant: Whether the node makes a stored value larger, which may also do as it is, by broadcasting.
    """

    index: int
    rows: int
    rest: tuple[int, ...]
    constant: bool

    def at(self, batch: int) -> tuple[int, ...]:
        """The target shape at a batch."""
        return (self.rows * batch, *self.rest)


def targets_of(model: ModelProto, old: int) -> list[Target]:
    """The nodes with a constant target shape that starts with the batch, or a multiple of it."""
    graph = model.graph
    tensors = constant_tensors(graph)
    constant = set(tensors)
    found = []
    for index, (node, use) in enumerate(zip(graph.node, parameter_uses(graph), strict=True)):
        if use.constant:
            constant.update(node.output)
        position = _SHAPE_INPUT.get(node.op_type, -1) if is_standard(node.domain) else -1
        stored = tensors.get(node.input[position]) if 0 <= position < len(node.input) else None
        from_constant = use.constant or (len(node.input) > 0 and node.input[0] in constant)
        fits = from_constant == (node.op_type in _OF_CONSTANTS) or node.op_type == "Expand"
        if stored is None or not fits:
            continue
        shape = tuple(int(side) for side in numpy_helper.to_array(stored).ravel())
        # A multiple of a batch of 1 says nothing, and with a -1 the multiple need not be the batch's.
        multiple = old > 1 and -1 not in shape
        if shape and (shape[0] == old or (multiple and shape[0] > 0 and shape[0] % old == 0)):
            found.append(Target(index, shape[0] // old, shape[1:], use.constant))
    return found


def symbolic_shape(model: ModelProto, target: Target, facts: list[_Facts]) -> tuple[int, ...] | None:
    """The target shape for any batch: 0 copies the input's leading axis, -1 is what remains.

    None where it must be computed from the batch while the model runs.
    """
    node = model.graph.node[target.index]
    rest = target.rest
    before = [full_shape(node.input[0], item) for item in facts]
    after = [full_shape(node.output[0], item) for item in facts]
    same_front = all(a and b and a[0] == b[0] for a, b in zip(before, after, strict=True))
    if node.op_type == "Expand" and same_front:
        return (1, *rest)
    if node.op_type != "Reshape":
        return None
    if same_front and not attribute(node, "allowzero", 0):
        return (0, *rest)
    if -1 not in rest:
        return (-1, *rest)
    sizes = {None if item is None else item[1:] for item in after}
    fixed = sizes.pop()
    return None if sizes or fixed is None else (-1, *fixed)


def rewrite(model: ModelProto, shapes: Mapping[int, tuple[int, ...]]) -> None:
    """Give nodes, by position, a target shape of their own; the old constant may serve other nodes too."""
    graph = model.graph
    taken = _names(model)
    for index, shape in shapes.items():
        node = graph.node[index]
        position = _SHAPE_INPUT[node.op_type]
        name = unused_name(f"{node.input[position]}_batch", taken)
        add_initializer(model, name, np.array(shape, np.int64))
        node.input[position] = name


def compute(model: ModelProto, source: str, targets: Mapping[int, Target]) -> None:
    """Give nodes, by position, a target shape that is put together from the batch of the input ``source``."""
    if not targets:
        return
    graph = model.graph
    taken = _names(model)
    batch, images, first = (unused_name(f"batch_{part}", taken) for part in ("shape", "length", "axis"))
    add_initializer(model, first, np.array([0], np.int64))
    made = [
        helper.make_node("Shape", [source], [batch], name=unused_name("batch_shape", taken)),
        helper.make_node("Gather", [batch, first], [images], name=unused_name("batch_length", taken)),
    ]
    for index, target in targets.items():
        node = graph.node[index]
        position = _SHAPE_INPUT[node.op_type]
        stem = f"{node.input[position]}_batch"
        rows, all_rows, rest, shape = (
            unused_name(f"{stem}_{part}", taken) for part in ("rows", "times_rows", "rest", "shape")
        )
        add_initializer(model, rows, np.array([target.rows], np.int64))
        add_initializer(model, rest, np.array(target.rest, np.int64))
        made += [
            helper.make_node("Mul", [images, rows], [all_rows], name=all_rows),
            helper.make_node("Concat", [all_rows, rest], [shape], name=shape, axis=0),
        ]
        node.input[position] = shape
    kept = list(graph.node)
    del graph.node[:]
    graph.node.extend([*made, *kept])


def _names(model: ModelProto) -> set[str]:
    """Every name of a tensor or node that is taken."""
    graph = model.graph
    taken = {name for node in graph.node for name in (*node.output, node.name)}
    return taken | {item.name for item in [*graph.initializer, *graph.input]}

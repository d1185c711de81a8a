"""Giving a model another batch, or a symbolic one.

The batch is the leading axis of the first input. Exporters that were given one image often wrote its batch
into the constants of Reshape, Expand and Resize as well. Where it is plain what such a constant means it is
rewritten; otherwise the model is refused, because a wrong guess would mix images without any engine
complaining. Every change is checked by inferring all shapes at two other batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from logging import getLogger

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, numpy_helper

from inferometer.errors import ConfigError, ModelError
from inferometer.models.constants import evaluate_constants
from inferometer.models.graph import (
    add_initializer,
    attribute,
    constant_tensors,
    is_standard,
    node_label,
    outline,
    true_inputs,
    unused_name,
)
from inferometer.models.parameters import parameter_uses
from inferometer.models.shapes import TensorFacts, dimensions, full_shape, infer_facts

__all__ = ["set_batch"]

_log = getLogger(__name__)

_SYMBOL = "N"
_PROBES = (2, 3)  # coprime, so that no fixed size is a multiple of both in the way that the batch is
_SHAPE_INPUT = {"Reshape": 1, "Expand": 1, "Resize": 3}  # which input holds the target shape

_Facts = dict[str, TensorFacts]
_Batch = int | str | None


@dataclass(frozen=True)
class _Target:
    """A node whose constant target shape has the batch in front.

    Attributes:
        index: Position of the node in the graph.
        rows: The leading entry for each image.
        rest: The other entries.
        constant: Whether the node expands a stored value, which may also do as it is, by broadcasting.
    """

    index: int
    rows: int
    rest: tuple[int, ...]
    constant: bool

    def at(self, batch: int) -> tuple[int, ...]:
        """The target shape at a batch."""
        return (self.rows * batch, *self.rest)


def set_batch(model: ModelProto, batch: int | None) -> ModelProto:
    """A new model with another batch.

    Args:
        model: The model; left as it is.
        batch: Images per call, at least 1; None for a symbolic batch (named ``N`` where it has no name yet).

    Raises:
        ConfigError: The batch is less than 1.
        ModelError: The model has no batch axis, or carries its batch in a place that cannot be rewritten
            safely; the message names it.
    """
    if batch is not None and batch < 1:
        raise ConfigError(f"batch {batch} is less than 1; give a whole number from 1")
    copy = ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    old = _leading(copy)
    if batch == old and batch is not None:
        return copy
    if isinstance(old, int):
        # Target shapes are often put together from several constants.
        evaluate_constants(copy, {}, integers_only=True)
        facts, targets = _probed_fixed(copy, old)
    else:
        facts, targets = _probed(copy, old, [])
    if batch is not None:
        new: int | str = batch
        shapes = {target.index: target.at(batch) for target in targets}
    else:
        new = old if isinstance(old, str) else _free_symbol(copy)
        shapes = {target.index: _symbolic_shape(copy, target, facts) for target in targets}
    _rewrite(copy, shapes)
    _relabel_inputs(copy, old, new)
    _relabel_outputs(copy, old, new, facts)
    return copy


def _leading(model: ModelProto) -> _Batch:
    """The batch as it stands: a number, a symbol, or None for an axis without either."""
    inputs = true_inputs(model.graph)
    shape = dimensions(inputs[0]) if inputs else None
    if not shape:
        name = inputs[0].name if inputs else "(none)"
        raise ModelError(f"the model's first input {name!r} has no batch axis; it cannot be re-batched")
    return shape[0]


def _relabel_inputs(model: ModelProto, old: _Batch, new: int | str) -> None:
    """Write the batch into the inputs that have it in front; a symbol is replaced wherever it occurs.

    Of further inputs those with one axis keep it: it is as likely a list of settings as of images.
    """
    for position, info in enumerate(true_inputs(model.graph)):
        sides = dimensions(info) or ()
        for axis, size in enumerate(sides):
            in_front = axis == 0 and (position == 0 or len(sides) > 1)
            if size == old and (in_front or isinstance(old, str)):
                _write(info, axis, new)


def _relabel_outputs(model: ModelProto, old: _Batch, new: int | str, facts: list[_Facts]) -> None:
    """Write the batch into the outputs that follow it."""
    for info in model.graph.output:
        for axis, size in enumerate(dimensions(info) or ()):
            if size == old and (axis == 0 or isinstance(old, str)) and _grows(info.name, facts):
                _write(info, axis, new)


def _write(info: ValueInfoProto, axis: int, size: int | str) -> None:
    side = info.type.tensor_type.shape.dim[axis]
    if isinstance(size, int):
        side.dim_value = size
    else:
        side.dim_param = size


def _free_symbol(model: ModelProto) -> str:
    """``N``, or a name like it when the model calls another axis so."""
    infos = [*model.graph.input, *model.graph.output]
    used = {side for info in infos for side in dimensions(info) or () if isinstance(side, str)}
    return unused_name(_SYMBOL, used)


def _targets(model: ModelProto, old: int) -> list[_Target]:
    """The nodes with a constant target shape that starts with the batch, or a multiple of it."""
    graph = model.graph
    tensors = constant_tensors(graph)
    constant = set(tensors)
    found = []
    for index, (node, use) in enumerate(zip(graph.node, parameter_uses(graph), strict=True)):
        if use.constant:
            constant.update(node.output)
        position = _SHAPE_INPUT.get(node.op_type, 0) if is_standard(node.domain) else 0
        stored = tensors.get(node.input[position]) if 0 < position < len(node.input) else None
        if stored is None or (node.op_type != "Expand" and node.input[0] in constant):
            continue
        shape = tuple(int(side) for side in numpy_helper.to_array(stored).ravel())
        # A multiple of a batch of 1 says nothing, and with a -1 the multiple need not be the batch's.
        multiple = old > 1 and -1 not in shape
        if shape and (shape[0] == old or (multiple and shape[0] > 0 and shape[0] % old == 0)):
            found.append(_Target(index, shape[0] // old, shape[1:], use.constant))
    return found


def _symbolic_shape(model: ModelProto, target: _Target, facts: list[_Facts]) -> tuple[int, ...]:
    """The target shape for any batch: 0 copies the input's leading axis, -1 is what remains."""
    node = model.graph.node[target.index]
    label = node_label(node, target.index)
    rest = target.rest
    before = [full_shape(node.input[0], item) for item in facts]
    after = [full_shape(node.output[0], item) for item in facts]
    same_front = all(a and b and a[0] == b[0] for a, b in zip(before, after, strict=True))
    if node.op_type == "Expand" and same_front:
        return (1, *rest)
    if node.op_type != "Reshape":
        raise ModelError(
            f"node {label!r} ({node.op_type}) has the batch in its target shape, where it must be a number; "
            "set a fixed batch, or export the model with a symbolic one"
        )
    if same_front and not attribute(node, "allowzero", 0):
        return (0, *rest)
    if -1 not in rest:
        return (-1, *rest)
    sizes = {None if item is None else item[1:] for item in after}
    fixed = sizes.pop()
    if sizes or fixed is None:
        raise _unsafe(label, "its target shape cannot be written for any batch")
    return (-1, *fixed)


def _rewrite(model: ModelProto, shapes: Mapping[int, tuple[int, ...]]) -> None:
    """Give nodes, by position, a target shape of their own; the old constant may serve other nodes too."""
    graph = model.graph
    taken = {name for node in graph.node for name in node.output}
    taken |= {item.name for item in [*graph.initializer, *graph.input]}
    for index, shape in shapes.items():
        node = graph.node[index]
        position = _SHAPE_INPUT[node.op_type]
        name = unused_name(f"{node.input[position]}_batch", taken)
        add_initializer(model, name, np.array(shape, np.int64))
        node.input[position] = name


def _probed_fixed(model: ModelProto, old: int) -> tuple[list[_Facts], list[_Target]]:
    """`_probed` with the fewest targets that do: stored values are expanded only if it is needed."""
    targets = _targets(model, old)
    needed = [target for target in targets if not target.constant]
    if len(needed) < len(targets):
        try:
            return _probed(model, old, needed)
        except ModelError as error:
            _log.debug("expanding stored values to the batch, because without: %s", error)
    return _probed(model, old, targets)


def _probed(model: ModelProto, old: _Batch, targets: list[_Target]) -> tuple[list[_Facts], list[_Target]]:
    """Check the model at two other batches; return the shapes there and the targets that hold the batch."""
    nodes = model.graph.node
    while True:
        facts = [_facts_at(model, old, targets, probe) for probe in _PROBES]
        # A tensor that does not grow with the batch keeps its constant, although that starts with the number.
        kept = [item for item in targets if item.constant or _grows(nodes[item.index].input[0], facts)]
        if len(kept) == len(targets):
            break
        targets = kept
    if isinstance(old, int):
        for index, node in enumerate(nodes):
            if node.op_type == "Reshape" and is_standard(node.domain):
                _check_reshape(node_label(node, index), node, facts)
    for info in model.graph.output:
        _check_output(model, info, old, facts)
    return facts, targets


def _facts_at(model: ModelProto, old: _Batch, targets: list[_Target], batch: int) -> _Facts:
    trial = outline(model)
    _rewrite(trial, {target.index: target.at(batch) for target in targets})
    _relabel_inputs(trial, old, batch)
    for info in trial.graph.output:
        info.type.tensor_type.ClearField("shape")  # inference would believe it
    return infer_facts(trial, f"the model with batch {batch}")


def _check_reshape(label: str, node: NodeProto, facts: list[_Facts]) -> None:
    """A reshaping must keep all elements, and the images one after another along the leading axis."""
    if not _grows(node.input[0], facts):
        return
    rows = set()
    for probe, item in zip(_PROBES, facts, strict=True):
        before, after = full_shape(node.input[0], item), full_shape(node.output[0], item)
        if before is None or after is None:
            raise _unsafe(label, "its shape cannot be told")
        if math.prod(before) != math.prod(after):
            raise _unsafe(label, f"its target shape {list(after)} is fixed to another batch")
        rows.add((before[0] / probe, after[0] / probe) if before and after else (0.5, 0.5))
    if len(rows) > 1 or not all(count.is_integer() for count in rows.pop()):
        raise _unsafe(label, "it has the batch elsewhere than on the leading axis")


def _check_output(model: ModelProto, info: ValueInfoProto, old: _Batch, facts: list[_Facts]) -> None:
    """An output must have the batch in front where it has it now, and its other axes as they are."""
    declared = dimensions(info)
    if not _grows(info.name, facts) and declared is not None:
        return
    for probe, item in zip(_PROBES, facts, strict=True):
        found = item[info.name].shape if info.name in item else None
        if not found or found[0] is None:
            if isinstance(old, str) and declared and declared[0] == old:
                continue  # beyond inference, but the file promises that it follows the symbol
            raise _unsafe(_first_unknown(model, item), f"its output's shape cannot be told at batch {probe}")
        wanted = [probe, *(declared or found)[1:]]
        pairs = list(zip(wanted, found, strict=False))
        if len(wanted) != len(found) or any(isinstance(w, int) and f not in (None, w) for w, f in pairs):
            raise ModelError(
                f"output {info.name!r} would have the shape {list(found)} at batch {probe} instead of "
                f"{wanted}: the model is made for one batch; export it with another or a symbolic one"
            )


def _first_unknown(model: ModelProto, facts: _Facts) -> str:
    """The label of the first node whose output's shape is not known although its inputs' are."""
    for index, node in enumerate(model.graph.node):
        inputs = [name for name in node.input if name]
        if full_shape(node.output[0], facts) is None and all(
            full_shape(name, facts) is not None for name in inputs
        ):
            return node_label(node, index)
    return str(model.graph.output[0].name)


def _grows(name: str, facts: list[_Facts]) -> bool:
    """Whether a tensor has more elements at a larger batch; an unknown one is taken to."""
    shapes = [full_shape(name, item) for item in facts]
    return len({None if shape is None else math.prod(shape) for shape in shapes}) > 1 or None in shapes


def _unsafe(label: str, why: str) -> ModelError:
    return ModelError(
        f"node {label!r} cannot be re-batched safely: {why}; export the model with the batch that is wanted"
    )

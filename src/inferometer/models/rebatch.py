"""Giving a model another batch, or a symbolic one.

The batch is the leading axis of the first input that has two axes or more. Exporters that were given one
image often wrote its batch into the constants of Reshape, Expand, Resize, Tile and ConstantOfShape as well.
Where it is plain what such a constant means it is rewritten; otherwise the model is refused, because a wrong
guess would mix images without any engine complaining. Every change is checked by inferring all shapes at two
other batches, and a file made for one batch by following that axis through the graph as well (`rows`).
"""

from __future__ import annotations

import math
from logging import getLogger

from onnx import ModelProto, NodeProto, ValueInfoProto, inliner, numpy_helper

from inferometer.errors import ConfigError, ModelError
from inferometer.models.constants import evaluate_constants
from inferometer.models.graph import (
    constant_tensors,
    is_standard,
    node_label,
    outline,
    true_inputs,
    unused_name,
)
from inferometer.models.rows import mixing
from inferometer.models.shapes import TensorFacts, batch_position, dimensions, full_shape, infer_facts
from inferometer.models.targets import Target, compute, rewrite, symbolic_shape, targets_of

__all__ = ["ImagesJoined", "set_batch"]

_log = getLogger(__name__)

_SYMBOL = "N"
_PROBES = (2, 3)  # coprime, so that no fixed size is a multiple of both in the way that the batch is
_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}  # inputs with initial states

_Facts = dict[str, TensorFacts]
_Batch = int | str | None


class ImagesJoined(ModelError):
    """The model computes along the batch: what it makes of an image depends on the others."""


def set_batch(model: ModelProto, batch: int | None) -> ModelProto:
    """A new model with another batch.

    In a model without a fixed batch each input's open leading axis is one. Functions of the file's own are
    inlined where its batch is fixed.

    Args:
        model: The model; left as it is.
        batch: Images per call, at least 1; None for a symbolic batch (named ``N`` where it has no name yet).

    Raises:
        ConfigError: The batch is less than 1.
        ModelError: The model has no batch axis, carries its batch in a place that cannot be rewritten
            safely, or joins the images of a batch; the message names the node.
    """
    if batch is not None and batch < 1:
        raise ConfigError(f"batch {batch} is less than 1; give a whole number from 1")
    copy = ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    main = _main_input(copy)
    old = (dimensions(main) or (None,))[0]
    if batch == old and batch is not None:
        return copy
    if isinstance(old, int):
        return _from_fixed(copy, old, batch)
    facts, _ = _probed(copy, old, [])
    new = batch if batch is not None else old if isinstance(old, str) else _free_symbol(copy)
    _relabel_inputs(copy, old, new)
    _relabel_outputs(copy, old, new, facts)
    return copy


def _from_fixed(model: ModelProto, old: int, batch: int | None) -> ModelProto:
    """The model, whose batch is the number ``old``, at another; it is changed in place where that does."""
    if model.functions:
        model = inliner.inline_local_functions(model)
    _forget_zero_states(model)
    # Target shapes are often put together from several constants.
    evaluate_constants(model, {}, integers_only=True)
    facts, targets = _probed_fixed(model, old)
    if batch is not None:
        rewrite(model, {target.index: target.at(batch) for target in targets})
    else:
        shapes = {target.index: symbolic_shape(model, target, facts) for target in targets}
        computed = {target.index: target for target in targets if shapes[target.index] is None}
        rewrite(model, {index: shape for index, shape in shapes.items() if shape is not None})
        compute(model, _main_input(model).name, computed)
    new = batch if batch is not None else _free_symbol(model)
    _relabel_inputs(model, old, new)
    _relabel_outputs(model, old, new, facts)
    return model


def _main_input(model: ModelProto) -> ValueInfoProto:
    """The input whose leading axis is the batch; leading lengths of 0, by which some mean an open one, go."""
    inputs = true_inputs(model.graph)
    shapes = [dimensions(info) for info in inputs]
    position = batch_position(shapes)
    if position is None:
        name = inputs[0].name if inputs else "(none)"
        raise ModelError(f"the model's first input {name!r} has no batch axis; it cannot be re-batched")
    for info in (*inputs, *model.graph.output):
        sides = info.type.tensor_type.shape.dim
        if sides and sides[0].HasField("dim_value") and sides[0].dim_value < 1:
            sides[0].Clear()
    return inputs[position]


def _forget_zero_states(model: ModelProto) -> None:
    """Leave out initial states that are stored zeros: they are what is taken without, at any batch."""
    tensors = constant_tensors(model.graph)
    for node in model.graph.node:
        for position in _STATES.get(node.op_type, ()) if is_standard(node.domain) else ():
            stored = tensors.get(node.input[position]) if position < len(node.input) else None
            if stored is not None and not numpy_helper.to_array(stored).any():
                node.input[position] = ""


def _relabel_inputs(model: ModelProto, old: _Batch, new: int | str) -> None:
    """Write the batch into the inputs that have it in front; a symbol is replaced wherever it occurs.

    Of further inputs those with one axis keep a fixed length: a list of settings is as likely as of images.
    A number takes the place of every other open leading axis too, under whatever name.
    """
    inputs = true_inputs(model.graph)
    main = batch_position([dimensions(info) for info in inputs])
    renamed = {old} if isinstance(old, str) else set()
    if isinstance(new, int) and not isinstance(old, int):
        renamed |= {side for info in inputs for side in (dimensions(info) or ())[:1] if isinstance(side, str)}
    for position, info in enumerate(inputs):
        sides = dimensions(info) or ()
        for axis, size in enumerate(sides):
            in_front = axis == 0 and (position == main or len(sides) > 1)
            opened = axis == 0 and size is None and (old is None or isinstance(new, int))
            if opened or (in_front and size == old) or (isinstance(size, str) and size in renamed):
                _write(info, axis, new)


def _relabel_outputs(model: ModelProto, old: _Batch, new: int | str, facts: list[_Facts]) -> None:
    """Write the batch into the outputs that follow it; forget formulas of its old name."""
    for info in model.graph.output:
        for axis, size in enumerate(dimensions(info) or ()):
            if size == old and (axis == 0 or isinstance(old, str)) and _grows(info.name, facts):
                _write(info, axis, new)
            elif isinstance(size, str) and isinstance(new, int) and size != old:
                known = facts[0].get(info.name), facts[1].get(info.name)
                lengths = {item.shape[axis] if item and item.shape else None for item in known}
                if len(lengths) > 1:
                    info.type.tensor_type.shape.dim[axis].Clear()


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


def _probed_fixed(model: ModelProto, old: int) -> tuple[list[_Facts], list[Target]]:
    """`_probed` with the fewest targets that do: stored values are expanded only if it is needed."""
    targets = targets_of(model, old)
    needed = [target for target in targets if not target.constant]
    if len(needed) < len(targets):
        try:
            return _probed(model, old, needed)
        except ModelError as error:
            _log.debug("expanding stored values to the batch, because without: %s", error)
    return _probed(model, old, targets)


def _probed(model: ModelProto, old: _Batch, targets: list[Target]) -> tuple[list[_Facts], list[Target]]:
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
        _check_images(model, facts)
    for info in model.graph.output:
        _check_output(model, info, old, facts)
    if isinstance(old, int) and not any(_grows(info.name, facts) for info in model.graph.output):
        raise ModelError(
            f"no output follows the leading axis of input {_main_input(model).name!r}: it is no batch, or "
            "the model joins the images of one; it runs as it is alone"
        )
    return facts, targets


def _check_images(model: ModelProto, facts: list[_Facts]) -> None:
    """Each image must be treated by itself in every node."""
    constants = constant_tensors(model.graph)
    opset = next((item.version for item in model.opset_import if is_standard(item.domain)), 1)
    for index, node in enumerate(model.graph.node):
        label = node_label(node, index)
        if node.op_type == "Reshape" and is_standard(node.domain):
            _check_reshape(label, node, facts)
        reason = mixing(node, facts, _PROBES, constants, opset)
        if reason is not None:
            raise ImagesJoined(str(_unsafe(label, reason)))


def _facts_at(model: ModelProto, old: _Batch, targets: list[Target], batch: int) -> _Facts:
    trial = outline(model)
    rewrite(trial, {target.index: target.at(batch) for target in targets})
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
    """An output must have the batch in front where it has it now, and its other axes as they are.

    Of a model with an open batch only outputs that the file declares to begin with it are looked at.
    """
    declared = dimensions(info)
    if not isinstance(old, int) and (not declared or declared[0] != old or old is None):
        return
    if not _grows(info.name, facts) and declared is not None:
        return
    for probe, item in zip(_PROBES, facts, strict=True):
        found = item[info.name].shape if info.name in item else None
        if not found or found[0] is None:
            if isinstance(old, str):
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

"""Fixing the open axes of a model's inputs: those besides the batch, such as height and width."""

from __future__ import annotations

import re
from collections.abc import Mapping

from onnx import ModelProto, TensorShapeProto, ValueInfoProto

from inferometer.errors import ConfigError, ModelError, nearest
from inferometer.models.graph import outline, true_inputs
from inferometer.models.shapes import dimensions, infer_facts

__all__ = ["fix_shapes"]


def fix_shapes(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> ModelProto:
    """A new model in which open axes of inputs have a length.

    A symbol is replaced by its length wherever it occurs, in other inputs and in outputs too; the first axis
    of each input, which is the batch, stays as it is, even when it bears the same symbol. Open axes of
    outputs whose length follows get it. An axis that has the wanted length already may be named as well.

    Args:
        model: The model; left as it is.
        shapes: By input, the lengths of all its axes but the first.

    Raises:
        ConfigError: There is no such input, or a length contradicts the file or another length.
        ModelError: With these lengths the graph's shapes do not fit together, or an output is empty.
    """
    fixed = ModelProto()
    fixed.CopyFrom(model)
    inputs = {info.name: info for info in true_inputs(fixed.graph)}
    symbols: dict[str, tuple[int, str]] = {}
    for name, lengths in shapes.items():
        if name not in inputs:
            raise ConfigError(f"a shape is given for {name!r}, which is no input{nearest(name, inputs)}")
        _fix(inputs[name], lengths, symbols)
    lengths_of = {symbol: length for symbol, (length, _) in symbols.items()}
    batches = {_symbol(side) for info in inputs.values() for side in _axes(info)[:1]}
    for info in inputs.values():
        _replace(_axes(info)[1:], lengths_of)
    del fixed.graph.value_info[:]  # of the open model; engines infer them again
    known = {symbol: length for symbol, length in lengths_of.items() if symbol not in batches}
    for info in fixed.graph.output:
        _replace(_axes(info), known)
        _forget(_axes(info), set(lengths_of))
    _complete_outputs(fixed)
    return fixed


def _fix(info: ValueInfoProto, lengths: tuple[int, ...], symbols: dict[str, tuple[int, str]]) -> None:
    """Write the lengths into one input; what its symbols stand for is added to ``symbols``."""
    wanted = f"input {info.name!r}: the shape {list(lengths)} (without the batch)"
    if not info.type.HasField("tensor_type"):
        raise ConfigError(f"{wanted} cannot be set: it is no tensor")
    if any(length < 1 for length in lengths):
        raise ConfigError(f"{wanted} has a length below 1")
    if not info.type.tensor_type.HasField("shape"):
        for _ in range(len(lengths) + 1):
            info.type.tensor_type.shape.dim.add()
    found = dimensions(info) or ()
    if len(found) != len(lengths) + 1:
        many = f"{len(found) - 1} axes besides the batch" if found else "no axes"
        raise ConfigError(f"{wanted} does not fit: the model has {many}, {_spelled(found)}")
    for side, length in zip(_axes(info)[1:], lengths, strict=True):
        if side.HasField("dim_value") and side.dim_value != length:
            raise ConfigError(f"{wanted} does not fit: the model is fixed to {_spelled(found)}")
        symbol = _symbol(side)
        before, whose = symbols.setdefault(symbol, (length, info.name)) if symbol else (length, "")
        if before != length:
            raise ConfigError(
                f"{wanted} contradicts itself or that of {whose!r}: the model calls two axes {symbol!r}, "
                f"which cannot be both {before} and {length}"
            )
        side.dim_value = length


def _axes(info: ValueInfoProto) -> list[TensorShapeProto.Dimension]:
    return list(info.type.tensor_type.shape.dim)


def _symbol(side: TensorShapeProto.Dimension) -> str:
    return str(side.dim_param) if side.HasField("dim_param") else ""


def _spelled(found: tuple[int | str | None, ...]) -> str:
    return "[" + ", ".join("?" if side is None else str(side) for side in found) + "]"


def _replace(sides: list[TensorShapeProto.Dimension], lengths: Mapping[str, int]) -> None:
    for side in sides:
        if _symbol(side) in lengths:
            side.dim_value = lengths[_symbol(side)]


def _forget(sides: list[TensorShapeProto.Dimension], symbols: set[str]) -> None:
    """Open the axes that are written as a formula of a symbol that is no longer there, such as ``H/2``."""
    for side in sides:
        text = _symbol(side)
        if text and text not in symbols and symbols & set(re.findall(r"\w+", text)):
            side.Clear()


def _complete_outputs(model: ModelProto) -> None:
    """Write into the outputs' open axes what their lengths have become."""
    trial = outline(model)
    for info in trial.graph.output:
        info.type.tensor_type.ClearField("shape")  # inference would believe it
    facts = infer_facts(trial, "the model with these shapes")
    for info in model.graph.output:
        found = facts[info.name].shape if info.name in facts else None
        if found is None:
            continue
        if any(length is not None and length < 1 for length in found):
            raise ModelError(
                f"with these shapes output {info.name!r} is empty, {list(found)}: give larger ones"
            )
        if not info.type.tensor_type.HasField("shape"):
            for _ in found:
                info.type.tensor_type.shape.dim.add()
        declared = dimensions(info) or ()
        pairs = list(zip(declared, found, strict=False))
        if len(declared) != len(found) or any(
            isinstance(side, int) and length not in (None, side) for side, length in pairs
        ):
            raise ModelError(
                f"with these shapes output {info.name!r} is {_spelled(found)}, where the file says "
                f"{_spelled(declared)}: they do not fit together"
            )
        for side, length in zip(_axes(info), found, strict=False):
            if length is not None and not side.HasField("dim_value"):
                side.dim_value = length

"""Inputs and outputs of a model as ONNX Runtime describes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from inferometer.contracts import TensorInfo
from inferometer.errors import Unsupported
from inferometer.models.shapes import batch_position, dimensions

__all__ = ["DTYPES", "inputs_of", "outputs_of", "settled_outputs"]

# Source: the tensor type strings of ONNX Runtime's NodeArg.type, and NumPy's names of the same types.
DTYPES = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64",
    "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(uint16)": "uint16",
    "tensor(int16)": "int16", "tensor(uint32)": "uint32", "tensor(int32)": "int32",
    "tensor(uint64)": "uint64", "tensor(int64)": "int64", "tensor(bool)": "bool",
}  # fmt: skip
"""NumPy's names of the types that tensors may have."""


def inputs_of(nodes: Sequence[Any], batch: int, model: Path) -> tuple[TensorInfo, ...]:
    """The inputs, of the vendor's NodeArgs.

    Raises:
        Unsupported: One is no array of numbers of known rank, or the batch is fixed and not ``batch``.
    """
    for node in nodes:
        if node.type not in DTYPES:
            raise Unsupported(f"{model}: input {node.name!r} {_kind(node.type)}")
        if any(isinstance(size, int) and size < 0 for size in node.shape[1:]):
            raise Unsupported(f"{model}: input {node.name!r} has a negative length in {node.shape}")
    if any(not node.shape for node in nodes):
        _refuse_unknown_ranks(nodes, model)
    position = batch_position([node.shape for node in nodes])
    if position is not None and isinstance(nodes[position].shape[0], int):
        fixed = nodes[position].shape[0]
        if fixed != batch and fixed != -1:
            raise Unsupported(f"{model}: its batch is fixed at {fixed}, asked for {batch}")
    return tuple(_info(node, batch, {node.shape[0] if node.shape else None}) for node in nodes)


def outputs_of(session: onnxruntime.InferenceSession, batch: int) -> tuple[TensorInfo, ...]:
    """The outputs that are arrays of numbers."""
    leading = {node.shape[0] for node in session.get_inputs() if node.shape}
    return tuple(_info(node, batch, leading) for node in session.get_outputs() if node.type in DTYPES)


def settled_outputs(session: onnxruntime.InferenceSession) -> frozenset[str]:
    """The outputs whose shape follows from the inputs' shapes alone, by the runtime's own inference.

    One without axes is left out: its rank may be unknown.
    """
    known = {size for node in session.get_inputs() for size in node.shape if isinstance(size, str)}
    return frozenset(
        node.name
        for node in session.get_outputs()
        if node.type in DTYPES
        and node.shape
        and all((isinstance(size, int) and size >= 0) or size in known for size in node.shape)
    )


def _kind(text: str) -> str:
    """What an input is that no array of numbers can be fed to."""
    if text == "tensor(string)":
        return "holds strings, which nothing here can feed: give a model that takes arrays of numbers"
    for start, kind in (("seq", "a sequence"), ("map", "a map"), ("optional", "optional")):
        if text.startswith(start):
            return (
                f"is {kind} ({text}), which nothing here can feed: give a model that takes arrays of numbers"
            )
    return f"has the type {text}, which cannot be fed here"


def _refuse_unknown_ranks(nodes: Sequence[Any], model: Path) -> None:
    """The runtime shows an unknown rank as it does a scalar; only the file tells them apart."""
    described = {info.name: info for info in onnx.load(str(model), load_external_data=False).graph.input}
    for node in nodes:
        if not node.shape and node.name in described and dimensions(described[node.name]) is None:
            raise Unsupported(f"{model}: input {node.name!r} has no known rank: give its shape")


def _info(node: Any, batch: int, leading: Collection[object]) -> TensorInfo:
    """A vendor's NodeArg; a first dimension that is open and among ``leading`` is the batch."""
    shape = [size if isinstance(size, int) and size >= 0 else None for size in node.shape]
    if shape and shape[0] is None and node.shape[0] in leading:
        shape[0] = batch
    return TensorInfo(node.name, tuple(shape), DTYPES[node.type])

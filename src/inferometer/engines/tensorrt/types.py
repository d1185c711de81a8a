"""A model of float32 that computes in fp16 or bf16: networks of TensorRT take their types from the file.

Inputs and outputs keep the types of the file: conversions are put behind the ones and before the others.
Nothing here imports TensorRT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from inferometer.errors import Unsupported
from inferometer.models.graph import all_tensors, attribute, is_standard, subgraphs, true_inputs, unused_name
from inferometer.models.opset import opset_of
from inferometer.models.plain import plain
from inferometer.models.shapes import infer_facts
from inferometer.records import Precision

__all__ = ["PUT_IN", "Half", "Narrowed", "check_types", "narrowed"]

Half = Literal["fp16", "bf16"]

PUT_IN = "inferometer_cast"
"""How the names of the conversions that are put in begin."""

_ELEMENT: dict[str, int] = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}

# Largest finite numbers: (2 - 2^-10) 2^15 and (2 - 2^-7) 2^127. Source: IEEE 754 binary16; bfloat16 is the
# upper half of binary32.
_LARGEST = {"fp16": 65504.0, "bf16": float(np.uint32(0x7F7F0000).view(np.float32))}

_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")

# Their scales may be halves from opset 19 on; TensorRT's parser takes them so in any.
_QUANTIZING = ("QuantizeLinear", "DequantizeLinear")

# Source: what the parser of TensorRT-RTX 1.7.1 says of files in bf16.
_NOT_IN_BF16 = ("HardSwish",)


@dataclass(frozen=True)
class Narrowed:
    """The converted model, and the weights with a number beyond the type's range, set to its end."""

    model: ModelProto
    saturated: tuple[str, ...]


def check_types(model: ModelProto, precision: Precision, label: str) -> None:
    """Refuse a model whose own weights of 16 bits are not those of the precision.

    Raises:
        Unsupported: It would not run as asked, since a network's types are those of the file.
    """
    own = _ELEMENT.get(precision)
    for tensor in all_tensors(model):
        if precision != "int8" and tensor.dims and tensor.data_type in set(_ELEMENT.values()) - {own}:
            kind = next(kind for kind, element in _ELEMENT.items() if element == tensor.data_type)
            raise Unsupported(
                f"{label}: weight {tensor.name!r} is {kind}, so it would not run in {precision}: "
                f"ask for {kind}, or export it in float32"
            )


def narrowed(model: ModelProto, kind: Half, label: str) -> Narrowed:
    """The model with every float32 tensor inside it, weights included, in a type of 16 bits.

    Where an operator wants float32 by its definition (the scales of Resize), or has no form for the type and
    multiplies nothing (HardSwish in bf16), it gets float32. Numbers are rounded to the nearest, and
    halfway to even. Tensors of other types stay as they are.

    Args:
        model: The model, its weights in memory; left as it is.
        kind: The type.
        label: How to call the model in an error.

    Raises:
        Unsupported: It has graphs inside nodes, a tensor whose type cannot be told, or a weight as output.
        ModelError: The graph contradicts itself.
    """
    flat = ModelProto()
    flat.CopyFrom(plain(model))
    for node in flat.graph.node:
        if any(True for _ in subgraphs(node)):
            raise Unsupported(
                f"{label}: a model with graphs inside nodes ({node.op_type}) is not made {kind} here: "
                f"export it in {kind}"
            )
    return _Narrowing(flat, kind, label).run()


class _Narrowing:
    """The work on one model, node by node in the order of the graph."""

    def __init__(self, model: ModelProto, kind: Half, label: str) -> None:
        self._graph, self._kind, self._label = model.graph, kind, label
        self._model, self._element = model, _ELEMENT[kind]
        self._facts = infer_facts(model, label)
        self._opset = opset_of(model) or 1
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
        self._taken |= set(self._stored) | {info.name for info in (*model.graph.input, *model.graph.output)}
        self._taken |= {node.name for node in model.graph.node}
        self._wide: dict[str, str] = {}  # float32 forms of tensors that are halves under their own name
        self._renamed: dict[str, str] = {}  # names of halves whose own name must stay float32
        self._saturated: list[str] = []
        self._nodes: list[NodeProto] = []

    def run(self) -> Narrowed:
        inputs = {info.name for info in true_inputs(self._graph) if self._is_float(info.name)}
        outputs = {info.name for info in self._graph.output if self._is_float(info.name)}
        for name in sorted(outputs & self._stored.keys()):
            raise Unsupported(
                f"{self._label}: output {name!r} is a stored tensor: it is not made {self._kind}"
            )
        for name in sorted(inputs):
            self._renamed[name] = unused_name(f"{name}_{self._kind}", self._taken)
            self._convert(name, self._renamed[name], self._element)
        for name in sorted(outputs - inputs):
            self._renamed[name] = unused_name(f"{name}_{self._kind}", self._taken)
        for node in list(self._graph.node):
            self._node(node)
        for name in sorted(outputs - inputs):
            self._convert(self._renamed[name], name, TensorProto.FLOAT)
        self._store()
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        del self._graph.value_info[:]  # of the model in float32
        return Narrowed(self._model, tuple(self._saturated))

    def _is_float(self, name: str) -> bool:
        facts = self._facts.get(name)
        if facts is None or not facts.data_type:
            raise Unsupported(
                f"{self._label}: the type of tensor {name!r} cannot be told, so not made {self._kind}"
            )
        return facts.data_type == TensorProto.FLOAT

    def _convert(self, source: str, target: str, element: int) -> None:
        name = unused_name(f"{PUT_IN}_{source}", self._taken)
        self._nodes.append(helper.make_node("Cast", [source], [target], name=name, to=element))

    def _node(self, node: NodeProto) -> None:
        """Take over one node: its attributes, the names of its inputs and of its outputs."""
        floats = [bool(name) and self._is_float(name) for name in (*node.input, *node.output)]
        inputs, outputs = floats[: len(node.input)], floats[len(node.input) :]
        for position, name in enumerate(node.input):
            if inputs[position]:
                halves = self._takes_halves(node, position, "inputs")
                node.input[position] = self._renamed.get(name, name) if halves else self._float32(name)
        if any(outputs):
            self._attributes(node)
        self._nodes.append(node)
        for position, name in enumerate(node.output):
            if not outputs[position]:
                continue
            half = self._renamed.get(name, name)
            if self._takes_halves(node, position, "outputs"):
                node.output[position] = half
            else:
                node.output[position] = wide = unused_name(f"{name}_float32", self._taken)
                self._wide[name] = wide
                self._convert(wide, half, self._element)

    def _attributes(self, node: NodeProto) -> None:
        """Element types and values that a node with float32 results names."""
        if node.op_type == "Constant":
            tensor = next((item.t for item in node.attribute if item.name == "value"), None)
            if tensor is None:
                floats = attribute(node, "value_floats", None)
                values = np.array(attribute(node, "value_float", 0.0) if floats is None else floats)
                tensor = numpy_helper.from_array(values.astype(np.float32))
            half = helper.make_attribute("value", self._halved(tensor, node.output[0]))
            del node.attribute[:]
            node.attribute.append(half)
        elif node.op_type == "ConstantOfShape":
            default = numpy_helper.from_array(np.zeros(1, np.float32), "value")
            half = helper.make_attribute(
                "value", self._halved(attribute(node, "value", default), node.output[0])
            )
            del node.attribute[:]
            node.attribute.append(half)
        for item in node.attribute:
            if item.name in _TYPE_ATTRIBUTES and item.i == TensorProto.FLOAT:
                item.i = self._element

    def _float32(self, name: str) -> str:
        """The tensor in float32, for an operator that wants it so."""
        if name not in self._wide:
            if name not in self._stored and name in {info.name for info in true_inputs(self._graph)}:
                return name
            self._wide[name] = unused_name(f"{name}_float32", self._taken)
            if name not in self._stored:
                self._convert(self._renamed.get(name, name), self._wide[name], TensorProto.FLOAT)
        return self._wide[name]

    def _store(self) -> None:
        """Weights in the new type, and those of them that some operator wants in float32 in that one too."""
        read = {name for node in self._nodes for name in node.input}
        kept: list[TensorProto] = []
        for name, tensor in self._stored.items():
            if tensor.data_type != TensorProto.FLOAT:
                kept.append(tensor)
                continue
            if name in self._wide:
                copy = TensorProto()
                copy.CopyFrom(tensor)
                copy.name = self._wide[name]
                kept.append(copy)
            if name in read:
                kept.append(self._halved(tensor, name))
        listed = [info for info in self._graph.input if info.name not in self._stored]
        copies = [TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del self._graph.initializer[:], self._graph.input[:]
        self._graph.initializer.extend(copies)
        self._graph.input.extend(listed)  # old files list weights among the inputs, with their type
        self._model.ir_version = max(self._model.ir_version, 4)

    def _halved(self, tensor: TensorProto, name: str) -> TensorProto:
        values = numpy_helper.to_array(tensor)
        bits, beyond = _rounded(values, self._kind)
        if beyond:
            self._saturated.append(name)
        return helper.make_tensor(tensor.name or name, self._element, tensor.dims, bits.tobytes(), raw=True)

    def _takes_halves(self, node: NodeProto, position: int, side: Literal["inputs", "outputs"]) -> bool:
        """Whether an operator's definition lets this input or output be of 16 bits.

        Asked for float16, which the definitions have had from the start: those of bfloat16 came late, and
        TensorRT's parser does not wait for them.
        """
        if not is_standard(node.domain) or node.op_type in _QUANTIZING:
            return True
        if self._kind == "bf16" and node.op_type in _NOT_IN_BF16:
            return False
        try:
            schema = onnx.defs.get_schema(node.op_type, self._opset, "")
        except onnx.defs.SchemaError:
            return True
        return any("float16" in kind for kind in _formal(getattr(schema, side), position).types)


def _formal(parameters: Any, position: int) -> Any:
    """The definition's parameter at a position; the last one may stand for many."""
    return parameters[min(position, len(parameters) - 1)]


def _rounded(values: npt.NDArray[np.float32], kind: Half) -> tuple[npt.NDArray[Any], bool]:
    """Bits of the nearest numbers of a type, and whether a finite number was beyond its range."""
    finite = np.isfinite(values)
    limit = _LARGEST[kind]
    within = np.where(finite, np.clip(values, -limit, limit), values).astype(np.float32)
    beyond = bool(np.any(within[finite] != values[finite]))
    if kind == "fp16":
        return within.astype(np.float16), beyond
    bits = within.view(np.uint32)
    upper = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(within), np.uint16(0x7FC0), upper), beyond

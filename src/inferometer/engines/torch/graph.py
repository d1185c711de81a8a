"""An ONNX file as a list of steps that PyTorch runs: constants worked out, BatchNorm folded, shapes known."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from inferometer.contracts import TensorInfo
from inferometer.engines.torch import operators, shaping, windows
from inferometer.engines.torch.node import BUILDERS, TORCH_DTYPES, Node, Operation, Unmapped
from inferometer.errors import Unsupported, nearest
from inferometer.models.constants import evaluate_constants
from inferometer.models.files import load
from inferometer.models.fold import fold_batchnorm
from inferometer.models.graph import (
    all_nodes,
    constant_tensors,
    consumer_counts,
    is_standard,
    node_label,
    true_inputs,
    unused_name,
)
from inferometer.models.macs import node_macs
from inferometer.models.opset import opset_of
from inferometer.models.plain import plain
from inferometer.models.shapes import TensorFacts, batch_position, dimensions, dtype_name, infer_facts

__all__ = ["Program", "Step", "build_program", "infos", "read", "with_batch"]

# Modules whose import fills the table of operators.
_TABLES = (operators, shaping, windows)

_NEWEST_OPSET = 28
_SHOWN = 8  # faults in one message


@dataclass(frozen=True)
class Step:
    """One node as it runs.

    Attributes:
        name: The node's name in the file, made different from those of all other steps.
        op: Its operator.
        operation: What it computes.
        inputs: Names of the tensors that `operation.function` takes, in order.
        outputs: Names of what it gives; "" for an output that nobody reads.
        macs: Multiply-accumulates of one call; None when they cannot be told.
        sizes: Elements of each output.
        dtype: The type that it computes in.
        fallback: For a step that stands for several: those, for when it does not work.
    """

    name: str
    op: str
    operation: Operation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    macs: int | None
    sizes: tuple[int, ...]
    dtype: torch.dtype
    fallback: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Program:
    """The steps of one model at one batch, in an order in which they can run.

    Attributes:
        inputs: What a caller feeds.
        outputs: What is handed out.
        steps: All that runs in each call.
        stored: Values of tensors that do not depend on the feeds; floats in float32.
        keep_float32: Names among them that stay float32 where halves are computed.
        largest: Elements of the largest tensor.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    steps: tuple[Step, ...]
    stored: Mapping[str, torch.Tensor]
    keep_float32: frozenset[str] = field(default_factory=frozenset)
    largest: int = 0


def read(path: Path) -> ModelProto:
    """The file, without functions of its own.

    Raises:
        ModelError: It is missing, broken or no ONNX.
        Unsupported: An operator set or an input is of a kind that is not mapped.
    """
    model = plain(load(path))
    opset = opset_of(model)
    if opset is None or opset > _NEWEST_OPSET:
        raise Unsupported(f"{path}: operator set {opset}: this engine knows them up to {_NEWEST_OPSET}")
    for info in true_inputs(model.graph):
        _check_input(info, path)
    return model


def _check_input(info: ValueInfoProto, path: Path) -> None:
    kind = info.type.tensor_type.elem_type if info.type.HasField("tensor_type") else 0
    if kind not in TORCH_DTYPES or kind == TensorProto.BFLOAT16:
        what = dtype_name(kind) if kind else info.type.WhichOneof("value")
        raise Unsupported(f"{path}: input {info.name!r} is {what}, which nothing here can feed")
    sides = dimensions(info)
    if sides is None:
        raise Unsupported(f"{path}: input {info.name!r} has no known rank: give its shape")
    if not all(isinstance(side, int) for side in sides[1:]):
        raise Unsupported(
            f"{path}: input {info.name!r} leaves a size beside the batch open: this engine wants all of them "
            f"(--input-shape {info.name}=... without the batch)"
        )


def with_batch(model: ModelProto, batch: int, path: Path) -> ModelProto:
    """A copy in which each open leading axis of an input is ``batch``.

    Raises:
        Unsupported: The file's batch is fixed at another number.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    inputs = true_inputs(copy.graph)
    shapes = [dimensions(info) or () for info in inputs]
    position = batch_position(shapes)
    fixed = None if position is None else shapes[position][0]
    if isinstance(fixed, int) and fixed not in (0, batch):
        raise Unsupported(f"{path}: its batch is fixed at {fixed}, asked for {batch}")
    for info, shape in zip(inputs, shapes, strict=True):
        if shape and (not isinstance(shape[0], int) or shape[0] == 0):
            info.type.tensor_type.shape.dim[0].dim_value = batch
    # What the file says of other tensors holds for its own batch, if at all.
    del copy.graph.value_info[:]
    known = {info.name: info.type for info in inputs}
    for tensor in copy.graph.initializer:
        known[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for info in copy.graph.output:
        if info.name in known:
            info.type.CopyFrom(known[info.name])
        else:
            info.type.tensor_type.ClearField("shape")
    return copy


def infos(model: ModelProto, path: Path) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """The inputs and outputs of a model whose batch is set.

    Raises:
        Unsupported: An output is no array of numbers.
    """
    facts = infer_facts(model, str(path))
    given = tuple(_info(info, facts) for info in true_inputs(model.graph))
    for info in model.graph.output:
        if info.name not in facts or facts[info.name].data_type not in TORCH_DTYPES:
            raise Unsupported(f"{path}: output {info.name!r} is no array that this engine can make")
    return given, tuple(_info(info, facts) for info in model.graph.output)


def _info(info: ValueInfoProto, facts: Mapping[str, TensorFacts]) -> TensorInfo:
    found = facts[info.name]
    name = dtype_name(found.data_type)
    # NumPy has no bfloat16 of its own.
    return TensorInfo(info.name, found.shape or (), "float32" if name in (None, "bfloat16") else str(name))


def build_program(model: ModelProto, compute: torch.dtype, path: Path) -> Program:
    """The steps of a model whose batch is set; see `with_batch`.

    Args:
        model: From `read`, with its batch.
        compute: The type of all floats that are computed.
        path: For messages.

    Raises:
        ModelError: Its shapes do not fit together.
        Unsupported: It has operators, or forms of them, that are not mapped; all are named.
    """
    given, results = infos(model, path)
    work = fold_batchnorm(_evaluated(model, path))
    return _Building(work, infer_facts(work, str(path)), compute, path).program(given, results)


def _evaluated(model: ModelProto, path: Path) -> ModelProto:
    """A copy without the nodes whose small results follow from shapes and constants."""
    work = ModelProto()
    work.CopyFrom(model)
    while True:
        shapes = {name: item.shape for name, item in infer_facts(work, str(path)).items()}
        if not evaluate_constants(work, shapes):
            return work


class _Building:
    """One pass over the nodes, which are in an order in which they can run."""

    def __init__(
        self, model: ModelProto, facts: Mapping[str, TensorFacts], compute: torch.dtype, path: Path
    ) -> None:
        self._graph: GraphProto = model.graph
        self._opset = opset_of(model) or 1
        self._facts, self._compute, self._path = facts, compute, path
        self._stored = {
            name: _tensor(item)
            for name, item in constant_tensors(model.graph).items()
            if item.data_type in TORCH_DTYPES
        }
        self._made = {info.name for info in true_inputs(model.graph)}
        self._keep: set[str] = set()
        self._wide: dict[str, str] = {}  # by a stored tensor's name, that under which it stays float32
        self._reads = consumer_counts(model.graph)
        _forget_unread(model.graph, self._reads)
        self._taken = {*facts, *self._stored, *self._made, *self._reads}
        self._taken.update(name for node in all_nodes(model.graph) for name in node.output)

    def program(self, given: tuple[TensorInfo, ...], results: tuple[TensorInfo, ...]) -> Program:
        steps: list[Step] = []
        unknown: Counter[str] = Counter()
        example: dict[str, str] = {}
        faults: list[str] = []
        for node, label in zip(self._graph.node, _labels(self._graph), strict=True):
            if node.op_type == "Constant" and is_standard(node.domain):
                continue
            if not is_standard(node.domain) or node.op_type not in BUILDERS:
                op = node.op_type if is_standard(node.domain) else f"{node.domain}.{node.op_type}"
                unknown[op] += 1
                example.setdefault(op, label)
                continue
            if unknown:
                continue  # what depends on an unknown one could not be told from what is wrong itself
            try:
                step = self._step(node, label)
            except Unmapped as error:
                faults.append(f"node {label!r} ({node.op_type}): {error}")
                continue
            if step is not None:
                steps.append(step)
        self._refuse(unknown, example, faults)
        self._check_outputs(results)
        largest = max(math.prod(fact.full_shape or (1,)) for fact in self._facts.values())
        return Program(
            given, results, _in_place(steps, self._reads), self._stored, frozenset(self._keep), largest
        )

    def _step(self, node: NodeProto, label: str) -> Step | None:
        """The node's step; None when its result is a constant, which is then among the stored."""
        operation = self._operation(node, self._compute)
        names = [node.input[place] for place in operation.inputs]
        for name in names:
            if name not in self._stored and name not in self._made:
                raise Unmapped(f"its input {name!r} is of a type that is not mapped")
        if all(name in self._stored for name in names):
            self._compute_now(node, names)
            return None
        for place, tensor in operation.constants.items():
            names[operation.inputs.index(place)] = self._add(f"{node.input[place]}@{label}", tensor)
        names += [self._add(f"{place}@{label}", extra) for place, extra in enumerate(operation.extras)]
        if operation.keep_float32:
            names = [self._kept(name) for name in names]
        macs = node_macs(node, dict(self._facts))[0]
        shapes = [self._facts[name].full_shape if name in self._facts else None for name in node.output]
        sizes = tuple(math.prod(shape) if shape is not None else 0 for shape in shapes)
        if any(shape is None for shape, name in zip(shapes, node.output, strict=True) if name):
            raise Unmapped("the shape of its output cannot be told before a call")
        self._made.update(name for name in node.output if name)
        return Step(
            label, node.op_type, operation, tuple(names), tuple(node.output), macs, sizes, self._dtype(node)
        )

    def _dtype(self, node: NodeProto) -> torch.dtype:
        """What the node computes in: its input's type, and of a conversion the output's."""
        name = node.output[0]
        for candidate in node.input[:1]:
            name = candidate if candidate in self._facts else name
        kind = TORCH_DTYPES.get(self._facts[name].data_type, self._compute)
        return self._compute if kind.is_floating_point else kind

    def _operation(self, node: NodeProto, compute: torch.dtype) -> Operation:
        builder, known = BUILDERS[node.op_type]
        for item in node.attribute:
            if item.name not in known:
                raise Unmapped(f"its attribute {item.name!r} is not mapped{nearest(item.name, known)}")
        return builder(Node(node, self._opset, self._facts, self._stored, compute))

    def _compute_now(self, node: NodeProto, names: Sequence[str]) -> None:
        operation = self._operation(node, torch.float32)
        operands = [
            operation.constants.get(place, self._stored[name])
            for place, name in zip(operation.inputs, names, strict=True)
        ]
        with torch.no_grad():
            result = operation.function(*operands, *operation.extras)
        several = result if isinstance(result, tuple) else (result,)
        for name, tensor in zip(node.output, several, strict=False):
            if name:
                self._stored[name] = tensor.contiguous()

    def _add(self, wanted: str, tensor: torch.Tensor) -> str:
        """Store a tensor under a name that no other of the graph has."""
        name = unused_name(wanted, self._taken)
        self._stored[name] = tensor
        return name

    def _kept(self, name: str) -> str:
        """A stored tensor under a name of its own, since others may want it in halves."""
        if name not in self._stored:
            return name
        if name not in self._wide:
            self._wide[name] = self._add(f"{name}@float32", self._stored[name])
            self._keep.add(self._wide[name])
        return self._wide[name]

    def _refuse(self, unknown: Counter[str], example: Mapping[str, str], faults: Sequence[str]) -> None:
        if unknown:
            named = ", ".join(f"{op} (node {example[op]!r})" for op in sorted(unknown))
            raise Unsupported(f"{self._path}: this engine does not map the operators: {named}")
        if faults:
            more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
            raise Unsupported(f"{self._path}: not mapped: {'; '.join(faults[:_SHOWN])}{more}")

    def _check_outputs(self, results: Sequence[TensorInfo]) -> None:
        for result in results:
            if result.name not in self._made and result.name not in self._stored:
                raise Unsupported(f"{self._path}: output {result.name!r} is made by no node")


def _forget_unread(graph: GraphProto, reads: Mapping[str, int]) -> None:
    """Take the names of outputs beside the first that nobody reads, in place.

    Not of BatchNormalization, which is in training mode for having them up to operator set 13.
    """
    for node in graph.node:
        for place in range(1, len(node.output)):
            if not reads[node.output[place]] and node.op_type != "BatchNormalization":
                node.output[place] = ""


def _labels(graph: GraphProto) -> list[str]:
    """A name for each node, no two alike; nodes with a name of their own keep it, the first of several."""
    taken = {node.name for node in graph.node if node.name}
    seen: set[str] = set()
    labels = []
    for index, node in enumerate(graph.node):
        own = bool(node.name) and node.name not in seen
        seen.add(node.name)
        labels.append(node.name if own else unused_name(node_label(node, index), taken))
    return labels


_OVERWRITING: dict[str, Any] = {
    "Relu": torch.relu_, "HardSwish": functools.partial(torch.nn.functional.hardswish, inplace=True),
    "Sigmoid": torch.sigmoid_,
}  # fmt: skip


def _in_place(steps: Sequence[Step], reads: Mapping[str, int]) -> tuple[Step, ...]:
    """Let an activation write over what it alone reads, which spares memory traffic."""
    made = {name: step for step in steps for name in step.outputs}
    changed = []
    for step in steps:
        source = made.get(step.inputs[0]) if step.inputs else None
        if (
            step.op in _OVERWRITING
            and source is not None
            and source.operation.fresh
            and reads[step.inputs[0]] == 1
        ):
            operation = replace(step.operation, function=_OVERWRITING[step.op], fresh=True)
            changed.append(replace(step, operation=operation))
        else:
            changed.append(step)
    return tuple(changed)


def _tensor(item: TensorProto) -> torch.Tensor:
    """A stored value; floats of any kind as float32."""
    values = numpy_helper.to_array(item)
    if TORCH_DTYPES[item.data_type].is_floating_point:
        values = values.astype(np.float32, copy=False)
    return torch.from_numpy(np.require(values, requirements=("C", "W")))

"""Which layers of a prepared graph run on integers, and which tensors are quantized for them.

Quantized are the inputs of Conv, Gemm and MatMul with constant weights and of elementwise operators behind
them (residual Add); and their outputs behind a fused activation, once per tensor, since an engine takes
DequantizeLinear, layer, activation and QuantizeLinear together for one integer kernel. Where kernels give
floats as well, an output is quantized only if a quantized layer reads it. Logits stay in float; what gives
logits directly, and has no kernel that gives floats, stays in float itself. Pooling, Concat and reshapes
pass their input's scale through.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto

from inferometer.contracts import ADDING_SCHEME, FUSING_SCHEME, QdqScheme
from inferometer.errors import CalibrationError, NothingToQuantize
from inferometer.models.graph import attribute, is_standard
from inferometer.models.shapes import infer_facts

__all__ = [
    "GATES",
    "WEIGHTED_OPS",
    "Layout",
    "Passage",
    "channel_axis",
    "layout_of",
    "passages_of",
    "ranges_needed",
]

# Between a layer and the model's output: they change no ranking of classes, or only the shape.
_FINAL_OPS = frozenset(
    {"Cast", "Dropout", "Flatten", "Identity", "LogSoftmax", "Reshape", "Sigmoid", "Softmax", "Squeeze",
     "Transpose", "Unsqueeze"}
)  # fmt: skip

# Pass their input's scale through, but make new values: done on integers only where a layer reads the result.
_AVERAGES = frozenset({"AveragePool", "GlobalAveragePool"})

WEIGHTED_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Layers that multiply by stored weights."""

# The operator rules of the built-in engines beside `ADDING_SCHEME`; None for the contract's defaults.
_OTHER_RULES: tuple[QdqScheme | None, ...] = (None, FUSING_SCHEME)

# An activation that is the product of its input with this function of it: Swish (SiLU) and HardSwish.
GATES = frozenset({"Sigmoid", "HardSigmoid"})
"""Operators that give 0 to 1, by which activations are multiplied."""


@dataclass(frozen=True)
class Passage:
    """One node that passes scales through: its operator, the tensors it reads, the one it writes."""

    op: str
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Layout:
    """What is quantized in one prepared graph.

    Attributes:
        layers: Names of the nodes that run on integers, in graph order.
        tensors: Tensors that are quantized, in graph order.
        observed: Those of them whose range must be found on images, in graph order.
        unit: Those of them that lie between 0 and 1 whatever the images (Sigmoid), in graph order.
        passages: The nodes that pass a scale from quantized tensors to a quantized tensor, in graph order.
    """

    layers: tuple[str, ...]
    tensors: tuple[str, ...]
    observed: tuple[str, ...]
    passages: tuple[Passage, ...]
    unit: tuple[str, ...] = ()


def layout_of(
    model: ModelProto, scheme: QdqScheme | None = None, float_layers: frozenset[str] = frozenset()
) -> Layout:
    """Decide what is quantized.

    Args:
        model: A prepared model.
        scheme: Its operator rules; None for the contract's defaults, which the calibration observes.
        float_layers: Names of nodes that are to stay in float.

    Raises:
        CalibrationError: No layer can be quantized.
    """
    graph = _Graph(model, scheme)
    layers = graph.layers(float_layers)
    if not layers:
        raise NothingToQuantize(f"there is nothing to quantize: {graph.why_none(float_layers)}")
    wanted: set[str] = set()
    for node in layers.values():
        wanted.update(graph.layer_inputs(node, layers))
        if not graph.gives_floats(node):
            wanted.add(graph.settled(node))
    graph.extend(wanted, {graph.settled(node) for node in layers.values()})
    passages = tuple(
        passage for passage in graph.passages() if wanted.issuperset((passage.output, *passage.inputs))
    )
    tensors = tuple(name for name in graph.order() if name in wanted)
    unit = tuple(name for name in tensors if graph.is_unit(name))
    known = {passage.output for passage in passages}.union(unit)
    return Layout(
        layers=tuple(layers),
        tensors=tensors,
        observed=tuple(name for name in tensors if name not in known),
        passages=passages,
        unit=unit,
    )


def ranges_needed(model: ModelProto) -> tuple[str, ...]:
    """The tensors that need a range for one engine or another, in graph order.

    Engines differ in which layers they fuse, and in which results stay in float: what passes a scale through
    for one of them has a range of its own for another, where the node before it stays in float.

    Args:
        model: A prepared model.

    Raises:
        CalibrationError: No engine has a layer that can be quantized.
    """
    named = set(layout_of(model, ADDING_SCHEME).observed)  # its kernels are the widest: no layer, no engine
    for rules in _OTHER_RULES:
        with suppress(CalibrationError):  # only engines with further kernels have a layer
            named.update(layout_of(model, rules).observed)
    return tuple(name for name in _Graph(model, None).order() if name in named)


def passages_of(model: ModelProto) -> tuple[tuple[Passage, ...], tuple[str, ...]]:
    """All nodes that could pass a scale through under the contract's default rules, in graph order.

    Args:
        model: A prepared model.

    Returns:
        The nodes, and the tensors that lie between 0 and 1 whatever the images.
    """
    graph = _Graph(model, None)
    return tuple(graph.passages()), tuple(name for name in graph.order() if graph.is_unit(name))


class _Graph:
    """Look-ups in one prepared graph, under one set of operator rules."""

    def __init__(self, model: ModelProto, scheme: QdqScheme | None) -> None:
        self._rules = scheme or QdqScheme
        self._from_zero = scheme is None or not scheme.activation_symmetric
        self._model = model
        self._facts = infer_facts(model, "the model")
        self._constants = {tensor.name for tensor in model.graph.initializer}
        self._outputs = {item.name for item in model.graph.output}
        self._readers: dict[str, list[NodeProto]] = {}
        self._producers: dict[str, NodeProto] = {}
        for node in model.graph.node:
            self._producers.update((name, node) for name in node.output)
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def order(self) -> Iterator[str]:
        """Inputs, then what nodes write."""
        yield from (item.name for item in self._model.graph.input)
        for node in self._model.graph.node:
            yield from node.output

    def layers(self, float_layers: frozenset[str]) -> dict[str, NodeProto]:
        """The nodes that run on integers, by name, in graph order."""
        found: dict[str, NodeProto] = {}
        integer: set[str] = set()
        passed = {passage.output: passage.inputs for passage in self.passages()}
        for node in self._model.graph.node:
            if not integer.isdisjoint(passed.get(node.output[0], ())):
                integer.add(node.output[0])
            if (
                node.op_type not in self._rules.quantized_ops
                or not is_standard(node.domain)
                or node.name in float_layers
            ):
                continue
            fits = (
                self._has_constant_weight(node)
                if node.op_type in WEIGHTED_OPS
                else self._joins(node, integer)
            )
            if fits and (self.gives_floats(node) or not self._is_logits(self.settled(node))):
                found[node.name] = node
                integer.add(self.settled(node))
        return found

    def why_none(self, float_layers: frozenset[str]) -> str:
        """Why no node runs on integers, for a message that goes on with it."""
        weighted = [
            node
            for node in self._model.graph.node
            if node.op_type in WEIGHTED_OPS and is_standard(node.domain) and self._has_constant_weight(node)
        ]
        if not weighted:
            return "no Conv, Gemm or MatMul has constant float32 weights"
        for node in weighted:
            if node.name in float_layers:
                return f"every layer, such as {node.name!r}, is to stay in float; leave one out of that list"
        node = weighted[0]
        if node.op_type not in self._rules.quantized_ops:
            return f"{node.name!r} has weights, but this engine has no integer kernel for {node.op_type}"
        return (
            f"{node.name!r} gives logits directly, which stay in float, and this engine's integer kernel "
            f"for {node.op_type} gives no floats"
        )

    def gives_floats(self, node: NodeProto) -> bool:
        """Whether the result of a layer need not be quantized."""
        return node.op_type in self._rules.float_output_ops

    def layer_inputs(self, node: NodeProto, layers: Collection[str]) -> tuple[str, ...]:
        """The activations that are quantized for a layer, given the names of all ``layers``."""
        if node.op_type in WEIGHTED_OPS:
            return (node.input[0],)
        if node.op_type != "Add" or not self._rules.fused_sum:
            return tuple(node.input)
        own = [name for name in node.input if self._adds_itself(name, layers)]
        # The Conv that comes last adds what is there by then.
        last = max(own, key=list(self._producers).index, default=None)
        return tuple(name for name in node.input if name != last)

    def _adds_itself(self, name: str, layers: Collection[str]) -> bool:
        """Whether ``name`` is the bare result of a quantized Conv that one node alone reads."""
        node = self._producers.get(name)
        return (
            node is not None
            and node.op_type == "Conv"
            and node.name in layers
            and len(self._readers[name]) == 1
            and name not in self._outputs
        )

    def settled(self, node: NodeProto) -> str:
        """The output of a layer behind the activation that engines fuse with it."""
        output = str(node.output[0])
        readers = self._readers.get(output, [])
        if output in self._outputs or not all(is_standard(reader.domain) for reader in readers):
            return output
        if len(readers) == 1:
            reader = readers[0]
            fuses = (
                reader.op_type in self._rules.fused_activations
                and reader.input[0] == output
                and all(name in self._constants for name in reader.input[1:] if name)
            )
            return str(reader.output[0]) if fuses else output
        return self._gated(output, readers) or output

    def _gated(self, output: str, readers: list[NodeProto]) -> str | None:
        """The product of ``output`` with its own Sigmoid or HardSigmoid, when that is all that reads it."""
        gates = [reader for reader in readers if reader.op_type in GATES & self._rules.fused_activations]
        products = [reader for reader in readers if reader.op_type == "Mul"]
        if len(readers) != 2 or not gates or not products:
            return None
        gate, product = gates[0].output[0], products[0]
        single = len(self._readers.get(gate, [])) == 1 and gate not in self._outputs
        return str(product.output[0]) if single and set(product.input) == {output, gate} else None

    def extend(self, wanted: set[str], results: Set[str]) -> None:
        """Carry quantization on through the nodes that pass scales, from the start of the graph to its end.

        Moving bytes is cheaper than moving floats, so they work on integers where their input is quantized
        already, or is one of the ``results`` of layers that a layer reads again behind them, or MaxPool
        reads. What comes in float (from LRN, say) is pooled in float and quantized behind. A Concat works on
        integers as soon as one input does and a layer reads its output: then the others are quantized.
        """
        passages = list(self.passages())
        read = set(wanted)
        for passage in reversed(passages):
            if passage.output in read:
                read.update(passage.inputs)
        for passage in passages:
            near = not wanted.isdisjoint(passage.inputs) or not results.isdisjoint(passage.inputs)
            values_stay = passage.op not in _AVERAGES and not self._is_logits(passage.output)
            pools = passage.op == "MaxPool" and values_stay and near
            if (passage.output in read and near) or pools:
                wanted.update((passage.output, *passage.inputs))
            elif values_stay and wanted.issuperset(passage.inputs):
                wanted.add(passage.output)

    def passages(self) -> Iterator[Passage]:
        """All nodes that could pass a scale through, in graph order."""
        for node in self._model.graph.node:
            if node.op_type not in self._rules.passthrough_ops or not is_standard(node.domain):
                continue
            inputs = tuple(node.input) if node.op_type == "Concat" else (node.input[0],)
            second = [name for name in node.output[1:] if name in self._readers or name in self._outputs]
            if not second and all(self._is_activation(name) for name in (*inputs, node.output[0])):
                yield Passage(node.op_type, inputs, node.output[0])

    def _has_constant_weight(self, node: NodeProto) -> bool:
        if node.input[1] not in self._constants or not self._is_float(node.input[1]):
            return False
        shape = self._facts[node.input[1]].shape or ()
        axis = channel_axis(node)
        if "Conv" in node.op_type:
            # A group of a ConvTranspose has channels of its own on the axis of all groups: no axis has all.
            plain = len(shape) > 2 and (node.op_type == "Conv" or attribute(node, "group", 1) == 1)
        else:
            plain = len(shape) == 2 and _is_plain(node)
        return plain and self._is_activation(node.input[0]) and self._bias_fits(node, shape[axis])

    def _bias_fits(self, node: NodeProto, channels: int | None) -> bool:
        """Whether there is no bias, or a constant one per channel."""
        if len(node.input) < 3 or not node.input[2]:
            return True
        known = self._facts.get(node.input[2])
        constant = node.input[2] in self._constants and self._is_float(node.input[2])
        sides = known.shape if known and known.shape is not None else (None,)
        return constant and None not in sides and math.prod(s or 0 for s in sides) in (1, channels)

    def is_unit(self, name: str) -> bool:
        """Whether ``name`` is what a Sigmoid or HardSigmoid gives."""
        node = self._producers.get(name)
        return node is not None and node.op_type in GATES and is_standard(node.domain)

    def _joins(self, node: NodeProto, integer: set[str]) -> bool:
        """Whether an elementwise operator reads activations alone, at least one out of a quantized layer."""
        if node.op_type in ("HardSigmoid", "HardSwish"):
            # What is below 0 saturates there: only a range that begins with 0 does this.
            rises = node.op_type == "HardSwish" or attribute(node, "alpha", 0.2) > 0
            if not self._from_zero or not rises or node.output[0] in self._outputs:
                return False
        return all(self._is_activation(name) for name in node.input) and not integer.isdisjoint(node.input)

    def _is_activation(self, name: str) -> bool:
        return name not in self._constants and self._is_float(name)

    def _is_float(self, name: str) -> bool:
        known = self._facts.get(name)
        return known is not None and known.data_type == TensorProto.FLOAT

    def _is_logits(self, name: str) -> bool:
        readers = self._readers.get(name, [])
        if not readers:
            return True
        return name not in self._outputs and all(
            node.op_type in _FINAL_OPS and self._is_logits(node.output[0]) for node in readers
        )


def channel_axis(node: NodeProto) -> int:
    """The output channels' axis in a weight.

    Conv [M, C, kH, kW], ConvTranspose [C, M, kH, kW], MatMul and Gemm [K, N], or [N, K] when transposed.
    """
    if node.op_type == "Conv":
        return 0
    return 0 if node.op_type == "Gemm" and attribute(node, "transB", 0) else 1


def _is_plain(node: NodeProto) -> bool:
    """Whether a Gemm or MatMul is the bare product, with at most its second factor transposed."""
    biased = len(node.input) > 2 and bool(node.input[2])
    return (
        not attribute(node, "transA", 0)
        and attribute(node, "alpha", 1.0) == 1.0
        and (not biased or attribute(node, "beta", 1.0) == 1.0)
    )

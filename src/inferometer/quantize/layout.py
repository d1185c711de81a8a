"""Which layers of a prepared graph run on integers, and which tensors are quantized for them.

Quantized are the inputs of Conv, Gemm and MatMul with constant weights and of residual Add; and their outputs
behind a fused activation, once per tensor, since an engine takes DequantizeLinear, layer, activation and
QuantizeLinear together for one integer kernel. Gemm and MatMul also give floats, so their output is
quantized only where a quantized layer reads it. Logits stay in float; a Conv or Add that gives logits
directly stays in float itself. Pooling, Concat and reshapes pass their input's scale through.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto

from inferometer.contracts import QdqScheme
from inferometer.errors import CalibrationError
from inferometer.models.graph import attribute, is_standard
from inferometer.models.shapes import infer_facts

__all__ = ["Layout", "Passage", "channel_axis", "layout_of"]

# Between a layer and the model's output: they change no ranking of classes, or only the shape.
_FINAL_OPS = frozenset(
    {"Cast", "Dropout", "Flatten", "Identity", "LogSoftmax", "Reshape", "Sigmoid", "Softmax", "Squeeze",
     "Transpose", "Unsqueeze"}
)  # fmt: skip

# Pass their input's scale through, but make new values: done on integers only where a layer reads the result.
_AVERAGES = frozenset({"AveragePool", "GlobalAveragePool"})

# Integer kernels of these give floats as well, so that their output may stay in float.
_FLOAT_OUTPUT_OPS = frozenset({"Gemm", "MatMul"})

_WEIGHTED_OPS = frozenset({"Conv", "Gemm", "MatMul"})


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
        observed: Those of them whose range does not follow from another's, in graph order.
        passages: The nodes that pass a scale from quantized tensors to a quantized tensor, in graph order.
    """

    layers: tuple[str, ...]
    tensors: tuple[str, ...]
    observed: tuple[str, ...]
    passages: tuple[Passage, ...]


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
        raise CalibrationError(
            "there is nothing to quantize: no Conv, Gemm or MatMul has constant float32 weights"
        )
    wanted: set[str] = set()
    for node in layers.values():
        wanted.update(graph.layer_inputs(node))
        if node.op_type not in _FLOAT_OUTPUT_OPS:
            wanted.add(graph.settled(node))
    graph.extend(wanted)
    passages = tuple(
        passage for passage in graph.passages() if wanted.issuperset((passage.output, *passage.inputs))
    )
    passed = {passage.output for passage in passages}
    tensors = tuple(name for name in graph.order() if name in wanted)
    return Layout(
        layers=tuple(layers),
        tensors=tensors,
        observed=tuple(name for name in tensors if name not in passed),
        passages=passages,
    )


class _Graph:
    """Look-ups in one prepared graph, under one set of operator rules."""

    def __init__(self, model: ModelProto, scheme: QdqScheme | None) -> None:
        rules = scheme or QdqScheme
        self._quantized_ops = rules.quantized_ops
        self._passthrough_ops = rules.passthrough_ops
        self._fused = rules.fused_activations
        self._model = model
        self._facts = infer_facts(model, "the model")
        self._constants = {tensor.name for tensor in model.graph.initializer}
        self._outputs = {item.name for item in model.graph.output}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in model.graph.node:
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
                node.op_type not in self._quantized_ops
                or not is_standard(node.domain)
                or node.name in float_layers
            ):
                continue
            fits = (
                self._has_constant_weight(node)
                if node.op_type in _WEIGHTED_OPS
                else self._joins(node, integer)
            )
            if fits and (node.op_type in _FLOAT_OUTPUT_OPS or not self._is_logits(self.settled(node))):
                found[node.name] = node
                integer.add(self.settled(node))
        return found

    def layer_inputs(self, node: NodeProto) -> tuple[str, ...]:
        """The activations that a layer reads."""
        return (node.input[0],) if node.op_type in _WEIGHTED_OPS else tuple(node.input)

    def settled(self, node: NodeProto) -> str:
        """The output of a layer behind the activation that engines fuse with it."""
        output = str(node.output[0])
        readers = self._readers.get(output, [])
        if len(readers) != 1 or output in self._outputs:
            return output
        reader = readers[0]
        fuses = (
            reader.op_type in self._fused
            and is_standard(reader.domain)
            and reader.input[0] == output
            and all(name in self._constants for name in reader.input[1:] if name)
        )
        return str(reader.output[0]) if fuses else output

    def extend(self, wanted: set[str]) -> None:
        """Carry quantization on through the nodes that pass scales, from the start of the graph to its end.

        Moving bytes is cheaper than moving floats, so they work on integers where their input is quantized
        already; what comes in float (from LRN, say) is pooled in float and quantized behind. A Concat works
        on integers as soon as one input does and a layer reads its output: then the others are quantized.
        """
        passages = list(self.passages())
        read = set(wanted)
        for passage in reversed(passages):
            if passage.output in read:
                read.update(passage.inputs)
        for passage in passages:
            values_stay = passage.op not in _AVERAGES and not self._is_logits(passage.output)
            if passage.output in read and not wanted.isdisjoint(passage.inputs):
                wanted.update((passage.output, *passage.inputs))
            elif values_stay and wanted.issuperset(passage.inputs):
                wanted.add(passage.output)

    def passages(self) -> Iterator[Passage]:
        """All nodes that could pass a scale through, in graph order."""
        for node in self._model.graph.node:
            if node.op_type not in self._passthrough_ops or not is_standard(node.domain):
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
        plain = len(shape) > 2 if node.op_type == "Conv" else len(shape) == 2 and _is_plain(node)
        return plain and self._is_activation(node.input[0]) and self._bias_fits(node, shape[axis])

    def _bias_fits(self, node: NodeProto, channels: int | None) -> bool:
        """Whether there is no bias, or a constant one per channel."""
        if len(node.input) < 3 or not node.input[2]:
            return True
        known = self._facts.get(node.input[2])
        constant = node.input[2] in self._constants and self._is_float(node.input[2])
        sides = known.shape if known and known.shape is not None else (None,)
        return constant and None not in sides and math.prod(s or 0 for s in sides) in (1, channels)

    def _joins(self, node: NodeProto, integer: set[str]) -> bool:
        """Whether an Add joins two activations, at least one of them out of a quantized layer."""
        return (
            len(node.input) == 2
            and all(self._is_activation(name) for name in node.input)
            and not integer.isdisjoint(node.input)
        )

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
    """The output channels' axis in a weight: [M, C, kH, kW], [K, N], or [N, K] when transposed."""
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

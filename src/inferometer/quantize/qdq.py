"""Reading a QDQ model beside the float model it was made from: ours, or another quantizer's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from inferometer.contracts import FUSIBLE_ACTIVATIONS, QdqScheme, Session
from inferometer.errors import CalibrationError
from inferometer.models.graph import attribute, constant_tensors
from inferometer.quantize.layout import GATES, WEIGHTED_OPS, layout_of
from inferometer.quantize.scales import QParams

__all__ = ["Dequantized", "OpenSession", "Pair", "QdqReader", "logits_of"]

OpenSession = Callable[[ModelProto], AbstractContextManager[Session]]
"""Opens a float or a QDQ model on an engine, at the batch of the images that it will be fed."""

_PROBABILITY_OPS = frozenset({"LogSoftmax", "Sigmoid", "Softmax"})

_RESHAPING_OPS = frozenset({"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})

_ELEMENTWISE_OPS = QdqScheme.quantized_ops - WEIGHTED_OPS


@dataclass(frozen=True)
class Pair:
    """QuantizeLinear and DequantizeLinear of one activation.

    Attributes:
        tensor: Its name in the float model.
        quantize: Reads the activation.
        dequantize: The first node that reads what ``quantize`` writes.
        params: The one scale and zero point.
    """

    tensor: str
    quantize: NodeProto
    dequantize: NodeProto
    params: QParams

    @property
    def source(self) -> str:
        """The tensor of the QDQ model that is quantized."""
        return str(self.quantize.input[0])

    @property
    def output(self) -> str:
        """The tensor of the QDQ model as later layers see it."""
        return str(self.dequantize.output[0])


@dataclass(frozen=True)
class Dequantized:
    """A stored tensor of integers: real value = scale (q - zero point).

    Attributes:
        values: Any shape, integers.
        scales: ``[] float32``, or ``[channels] float32`` along ``axis``.
        zeros: Zero points, int64 of the shape of ``scales``.
        axis: Of the channels.
    """

    values: npt.NDArray[np.integer]
    scales: npt.NDArray[np.float32]
    zeros: npt.NDArray[np.int64]
    axis: int

    def real(self) -> npt.NDArray[np.float32]:
        """The values that the integers stand for, of the shape of ``values``."""
        shape = [1] * self.values.ndim
        if self.scales.size > 1:
            shape[self.axis] = -1
        steps = self.values.astype(np.float32) - self.zeros.reshape(shape).astype(np.float32)
        return np.asarray(steps * self.scales.reshape(shape), np.float32)


class QdqReader:
    """Look-ups in one QDQ model, by the names of the float model that it was made from.

    Attributes:
        constants: Stored tensors of the QDQ model, by name.
        nodes: Its nodes, by name.
        names: All of its tensors that are computed or fed.
        pairs: Its quantized activations, by the float model's name.
    """

    def __init__(self, prepared: ModelProto, quantized: ModelProto) -> None:
        """Read both models; they are left as they were.

        Args:
            prepared: The float model, prepared.
            quantized: A QDQ model made from it.
        """
        self.model = quantized
        self.constants = constant_tensors(quantized.graph)
        self.nodes = {node.name: node for node in quantized.graph.node}
        self.names = {name for node in quantized.graph.node for name in node.output}
        self.names.update(item.name for item in quantized.graph.input)
        self._producers = {name: node for node in quantized.graph.node for name in node.output}
        self._float = prepared
        self._makers = {name: node for node in prepared.graph.node for name in node.output}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in prepared.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self.pairs = self._pairs(set(self._makers) | {item.name for item in prepared.graph.input})

    def layers(self) -> list[NodeProto]:
        """The float model's nodes that could run on integers, or do so in the QDQ model, in graph order."""
        try:
            usual = set(layout_of(self._float).layers)
        except CalibrationError:  # only the QDQ model's own quantizer knows a layer
            usual = set()
        nodes = self._float.graph.node
        return [node for node in nodes if node.name in usual or self.runs_on_integers(node)]

    def runs_on_integers(self, node: NodeProto) -> bool:
        """Whether a node of the float model has the form in the QDQ model that integer kernels replace.

        A layer with weights reads integer ones. An elementwise one reads quantized tensors, or adds to the
        result of a Conv that runs on integers, and gives a quantized one.
        """
        there = self.nodes.get(node.name)
        if there is None or there.op_type != node.op_type:
            return False
        if node.op_type in WEIGHTED_OPS:
            return all(self.dequantizer(name) is not None for name in there.input[:2])
        if node.op_type not in _ELEMENTWISE_OPS or self.settled(node) not in self.pairs:
            return False
        integer = [self.dequantizer(name) is not None for name in there.input]
        if node.op_type == "Add" and any(integer):
            integer = [
                known or self._is_summed(name) for known, name in zip(integer, there.input, strict=True)
            ]
        return all(integer)

    def settled(self, node: NodeProto) -> str:
        """What a layer of the float model computes, behind the activation that is fused with it.

        It is the first quantized tensor there; the layer's own output where neither is quantized. An
        activation that the QDQ model lacks, because saturation has its effect, is taken for fused.
        """
        output = str(node.output[0])
        behind = self._activated(output)
        if behind is None or (output in self.pairs and behind in self.names):
            return output
        return behind if output in self.pairs or behind in self.pairs else output

    def counterpart(self, tensor: str, unactivated: str | None = None) -> str | None:
        """What takes the place of a float model's tensor: dequantized where it is quantized.

        Args:
            tensor: Behind a layer and its activation.
            unactivated: What the layer itself writes; it stands for ``tensor`` in a QDQ model that lacks the
                activation.

        Returns:
            A tensor of the QDQ model; None when nothing there has that name.
        """
        if tensor in self.pairs:
            return self.pairs[tensor].output
        if tensor in self.names:
            return tensor
        return self.pairs[unactivated].output if unactivated in self.pairs else None

    def dequantizer(self, tensor: str) -> NodeProto | None:
        """The DequantizeLinear that writes ``tensor``; None when something else does."""
        node = self._producers.get(tensor)
        return node if node is not None and node.op_type == "DequantizeLinear" else None

    def quantizer(self, dequantize: NodeProto) -> NodeProto | None:
        """The QuantizeLinear whose result ``dequantize`` reads; None when that is stored."""
        node = self._producers.get(dequantize.input[0])
        return node if node is not None and node.op_type == "QuantizeLinear" else None

    def stored(self, tensor: str) -> Dequantized | None:
        """The integers behind a dequantized weight or bias; None when ``tensor`` is none."""
        node = self.dequantizer(tensor)
        if node is None or node.input[0] not in self.constants:
            return None
        values = numpy_helper.to_array(self.constants[node.input[0]])
        scales = self._array(node.input[1]).astype(np.float32)
        has_zero = len(node.input) > 2 and bool(node.input[2])
        zeros = self._array(node.input[2]).astype(np.int64) if has_zero else np.zeros(scales.shape, np.int64)
        return Dequantized(values, scales, zeros, int(attribute(node, "axis", 1)))

    def _is_summed(self, tensor: str) -> bool:
        """Whether a Conv that runs on integers writes ``tensor``: some engines add within its kernel."""
        maker = self._makers.get(tensor)
        return maker is not None and maker.op_type == "Conv" and self.runs_on_integers(maker)

    def _activated(self, tensor: str) -> str | None:
        """What the one activation that reads ``tensor`` writes; None when something else reads it too."""
        readers = self._readers.get(tensor, [])
        if len(readers) == 1 and readers[0].op_type in FUSIBLE_ACTIVATIONS:
            return str(readers[0].output[0]) if readers[0].input[0] == tensor else None
        gates = [str(node.output[0]) for node in readers if node.op_type in GATES]
        products = [node for node in readers if node.op_type == "Mul"]
        if len(readers) == 2 and gates and products and set(products[0].input) == {tensor, gates[0]}:
            return str(products[0].output[0])
        return None

    def _pairs(self, known: set[str]) -> dict[str, Pair]:
        readers: dict[str, NodeProto] = {}
        for node in self.model.graph.node:
            if node.op_type == "DequantizeLinear":
                readers.setdefault(node.input[0], node)
        found: dict[str, Pair] = {}
        for node in self.model.graph.node:
            if node.op_type != "QuantizeLinear" or node.input[0] in self.constants:
                continue
            dequantize, params = readers.get(node.output[0]), self._params(node)
            if dequantize is None or params is None:
                continue
            # An output of the model keeps its name behind the pair.
            name = node.input[0] if node.input[0] in known else dequantize.output[0]
            if name in known:
                found.setdefault(name, Pair(name, node, dequantize, params))
        return found

    def _params(self, quantize: NodeProto) -> QParams | None:
        """Scale and zero point; None when they are many or not stored."""
        if any(name and name not in self.constants for name in quantize.input[1:3]):
            return None
        scale = self._array(quantize.input[1])
        has_zero = len(quantize.input) > 2 and bool(quantize.input[2])
        zero = self._array(quantize.input[2]) if has_zero else np.zeros((), np.uint8)
        if scale.size != 1 or zero.size != 1 or zero.dtype.kind not in "iu":
            return None
        return QParams(float(scale.reshape(())), int(zero.reshape(())), str(zero.dtype))

    def _array(self, name: str) -> npt.NDArray[np.generic]:
        if name not in self.constants:
            raise CalibrationError(
                f"the QDQ model computes the scale or zero point {name!r}: export it with stored ones"
            )
        stored: TensorProto = self.constants[name]
        return np.asarray(numpy_helper.to_array(stored))


def logits_of(model: ModelProto, output: str | None = None) -> str:
    """The tensor of class scores that turns into probabilities, or the output itself.

    Noise is compared before the Softmax, which hides that of all classes but the likely ones.

    Args:
        model: A float model.
        output: Name of the output to follow; None when there is only one.

    Raises:
        CalibrationError: There is no such output, or there are several and none was named.
    """
    names = [item.name for item in model.graph.output]
    if output is None and len(names) > 1:
        raise CalibrationError(f"which output are the class scores? The model has {', '.join(names)}")
    if output is not None and output not in names:
        raise CalibrationError(f"there is no output {output!r}; the model has {', '.join(names)}")
    producers = {name: node for node in model.graph.node for name in node.output}
    found = tensor = output or names[0]
    while tensor in producers and producers[tensor].op_type in _PROBABILITY_OPS | _RESHAPING_OPS:
        node = producers[tensor]
        tensor = str(node.input[0])
        if node.op_type in _PROBABILITY_OPS:
            found = tensor
    return found

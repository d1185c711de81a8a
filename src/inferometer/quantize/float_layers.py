"""Keeping layers in float inside a QDQ model, also where an engine would quantize them on its own.

ONNX Runtime rewrites a Conv, ConvTranspose or Gemm that stands in float between DequantizeLinear and
QuantizeLinear: its weight becomes int8 with one scale in all, its bias int32. So a layer that was left in
float for the sake of accuracy loses more than if it had been quantized per channel. It does so only
where a single scale dequantizes the layer's input. Here each channel gets one, all of them equal: every value
stays the same bit for bit, and the layer stays as it is.

Source: onnxruntime, optimizer WeightBiasQuantization (pull requests 22969 and 25673).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from inferometer.models.graph import attribute, unused_name

__all__ = ["keep_in_float"]

_REWRITTEN = frozenset({"Conv", "ConvTranspose", "Gemm"})


def keep_in_float(model: ModelProto, layers: Collection[str]) -> None:
    """Let float layers of a QDQ model read their input through one scale per channel, in place.

    Only those that read a dequantized tensor and that ONNX Runtime would rewrite are changed. A layer with a
    single input channel cannot be told apart like this and is left alone.

    Args:
        model: A QDQ model whose scales are stored, as `insert_qdq` writes it.
        layers: Names of the nodes that are to stay in float.
    """
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    producers = {name: node for node in graph.node for name in node.output}
    taken = set(stored) | set(producers) | {node.name for node in graph.node}
    nodes: list[NodeProto] = []
    for node in graph.node:
        source = producers.get(node.input[0]) if node.name in layers and node.op_type in _REWRITTEN else None
        if source is not None and source.op_type == "DequantizeLinear" and node.input[1] in stored:
            channels = _input_channels(node, stored[node.input[1]])
            if channels > 1:
                nodes.append(_per_channel(model, source, stored, channels, taken))
                node.input[0] = nodes[-1].output[0]
        nodes.append(node)
    read = {name for node in nodes for name in node.input} | {item.name for item in graph.output}
    kept = [node for node in nodes if node.op_type != "DequantizeLinear" or node.output[0] in read]
    copies = [NodeProto.FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(copies)


def _per_channel(
    model: ModelProto, source: NodeProto, stored: dict[str, TensorProto], channels: int, taken: set[str]
) -> NodeProto:
    """``source`` again, with its scale and zero point repeated for every channel."""
    node = NodeProto()
    node.CopyFrom(source)
    node.name = unused_name(f"{source.name}_per_channel", taken)
    node.output[0] = unused_name(f"{source.output[0]}_per_channel", taken)
    for position, name in enumerate(source.input):
        if position and name:
            values = np.full(channels, numpy_helper.to_array(stored[name]).reshape(()))
            node.input[position] = unused_name(f"{name}_per_channel", taken)
            model.graph.initializer.append(numpy_helper.from_array(values, node.input[position]))
    node.attribute.append(helper.make_attribute("axis", 1))
    return node


def _input_channels(node: NodeProto, weight: TensorProto) -> int:
    """The length of axis 1 of a layer's input."""
    if node.op_type == "Conv":
        return int(weight.dims[1]) * int(attribute(node, "group", 1))
    if node.op_type == "ConvTranspose":
        return int(weight.dims[0])
    return int(weight.dims[1 if attribute(node, "transB", 0) else 0])

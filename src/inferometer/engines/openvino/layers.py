"""What an OpenVINO model runs, layer by layer: its compiled form is a graph again, of kernels.

Nothing here imports OpenVINO: graphs are handed in. The model as read is a graph of operators
(``Convolution``, ``MatMul``, ...), the compiled one of layers, with their kind, precision and origin noted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.contracts import ExecutedLayer

__all__ = ["executed_layers", "note"]

# What a layer's note on its precision says of the arithmetic.
_RAN_IN = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
_INTEGERS = ("u8", "i8")

# Operators and layers that multiply and accumulate.
_CONVOLUTIONS = {"Convolution", "GroupConvolution"}
_TRANSPOSED = {"ConvolutionBackpropData", "GroupConvolutionBackpropData", "Deconvolution"}
_PRODUCTS = {"MatMul", "FullyConnected"}
_MULTIPLYING = _CONVOLUTIONS | _TRANSPOSED | _PRODUCTS
# Operators that do so in a number of steps that is not worked out here.
_NOT_COUNTED = {
    "BinaryConvolution", "DeformableConvolution", "Einsum", "GRUCell", "GRUSequence", "If", "LSTMCell",
    "LSTMSequence", "Loop", "RNNCell", "RNNSequence", "ScaledDotProductAttention", "TensorIterator",
}  # fmt: skip

_Shape = tuple[int, ...]


def executed_layers(compiled: Any, read: Any) -> tuple[ExecutedLayer, ...]:
    """The layers that run in each call; those computed once, on constants alone, are left out.

    MACs follow from the shapes that each layer works on. If they do not add up to those of the model as it
    was read, they are None throughout: some layer then multiplies in a way that is not known here.

    Args:
        compiled: The runtime graph of the compiled model.
        read: The model from which it was compiled, with its batch set.
    """
    operators = _operator_macs(read)
    layers: list[ExecutedLayer] = []
    constant: set[str] = set()
    for node in compiled.get_ordered_ops():
        name, kind = node.get_friendly_name(), note(node, "layerType")
        sources = {port.get_source_output().get_node().get_friendly_name() for port in node.inputs()}
        if kind == "Const" or (sources and sources <= constant):
            constant.add(name)
        elif kind not in ("Input", "Output"):
            macs = _layer_macs(node, kind, operators or {})
            layers.append(ExecutedLayer(name, kind, _precision(node, kind), macs, _bytes(node.outputs())))
    if operators is not None and sum(layer.macs or 0 for layer in layers) == sum(operators.values()):
        return tuple(layers)
    return tuple(ExecutedLayer(layer.name, layer.op, layer.precision, None, layer.bytes) for layer in layers)


def _operator_macs(read: Any) -> dict[str, int] | None:
    """MACs of each multiplying operator by its name; None if those of one cannot be told."""
    found: dict[str, int] = {}
    for node in read.get_ordered_ops():
        kind = node.get_type_name()
        macs = None if kind in _NOT_COUNTED else _macs(node, kind)
        if macs is None:
            return None
        if kind in _MULTIPLYING:
            found[node.get_friendly_name()] = macs
    return found


def _layer_macs(node: Any, kind: str, operators: Mapping[str, int]) -> int | None:
    """By the layer's shapes; where those do not tell, by the names of the operators whose work it does."""
    named = sum(operators.get(origin, 0) for origin in note(node, "originalLayersNames").split(","))
    if kind not in _MULTIPLYING:
        return named
    further = [_shape(port) for port in node.inputs()[2:]]
    result = _shape(node.output(0))
    weight = next((shape for shape in further if shape and result and len(shape) == len(result) + 1), None)
    if kind == "Convolution" and weight and result:
        # A depthwise convolution behind it is part of it: the result is of that one, the name is not.
        return named + math.prod(result) * _per_element(weight, len(result))
    return _macs(node, kind)


def _macs(node: Any, kind: str) -> int | None:
    """Multiply-accumulates by shapes: 0 for what does not multiply, None where a shape is not known."""
    if kind not in _MULTIPLYING:
        return 0
    given, weight = ([_shape(port) for port in node.inputs()] + [None, None])[:2]
    result = _shape(node.output(0))
    if given is None or weight is None or result is None:
        return None
    if kind in _PRODUCTS:
        return _product(given, result)
    if kind in _TRANSPOSED:
        return math.prod(given) * _per_element(weight, len(given))
    return math.prod(result) * _per_element(weight, len(result))


def _per_element(weight: _Shape, rank: int) -> int:
    """Products that each element on the undivided side of a convolution takes part in.

    That side's axis leads the weight ``[channels, others, *kernel]``; one axis more is that of the groups.
    """
    return math.prod(weight[1 if len(weight) == rank else 2 :])


def _product(given: _Shape, result: _Shape) -> int:
    """Each element sums over the first factor's inner side: what its rows leave, transposed or not."""
    if len(given) < 2 or len(result) < 2:
        return math.prod(result) * given[-1]
    return math.prod(result) * (given[-2] * given[-1] // result[-2])


def _precision(node: Any, kind: str) -> str:
    """That of the arithmetic; a product of integers has integers on both sides.

    What makes floats of integers without multiplying them, such as a dequantization, computes in floats.
    """
    noted = note(node, "runtimePrecision")
    if noted not in _INTEGERS:
        return _RAN_IN.get(noted, "other")
    if kind not in _MULTIPLYING:
        return _RAN_IN.get(node.output(0).get_element_type().get_type_name(), "int8")
    factors = [port.get_element_type().get_type_name() for port in node.inputs()[:2]]
    return "int8" if set(factors) <= set(_INTEGERS) else "other"


def _bytes(ports: Sequence[Any]) -> int | None:
    """Bytes that the outputs take; None where a shape is not known."""
    bits = 0
    for port in ports:
        shape = _shape(port)
        if shape is None:
            return None
        bits += math.prod(shape) * port.get_element_type().bitwidth
    return bits // 8


def _shape(port: Any) -> _Shape | None:
    return tuple(port.get_shape()) if port.get_partial_shape().is_static else None


def note(node: Any, key: str) -> str:
    """What a layer's runtime information says under ``key``; empty where it says nothing."""
    info = node.get_rt_info()
    return str(info[key].astype(str)) if key in info else ""

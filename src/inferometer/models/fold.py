"""Folding BatchNormalization into the convolution or matrix product before it.

At inference a BatchNorm is ``(x - mean) * s + beta`` with ``s = gamma / sqrt(variance + epsilon)``: one scale
and shift per channel, which the layer before can take over exactly: ``W' = W * s``,
``b' = (b - mean) * s + beta``. It is computed in float64 and rounded once.
Source: Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
inference", CVPR 2018, section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from inferometer.models.graph import (
    add_initializer,
    attribute,
    constant_tensors,
    consumer_counts,
    is_standard,
    unused_name,
)
from inferometer.models.parameters import parameter_uses
from inferometer.models.summary import FOLDED_KEY, folded_parameters

__all__ = ["fold_batchnorm", "scale_and_shift"]

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Affine:
    """A BatchNorm at inference: ``x * scale + shift``, one of each per channel."""

    scale: _Array
    shift: _Array


def fold_batchnorm(model: ModelProto) -> ModelProto:
    """A new model in which every BatchNormalization that can be is folded into the layer before it.

    Folded are those whose statistics are stored, that follow a Conv, ConvTranspose or Gemm with stored
    weights, and are the only reader of its output. Others stay as they are. The layer keeps its name and
    takes over the name of the BatchNorm's output. A weight that other nodes use too is copied; weights that
    nothing uses any more are dropped. How many parameters went is added to the metadata entry
    ``inferometer.folded_parameters``.

    Args:
        model: The model; left as it is.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    folding = _Folding(copy)
    producers = {name: node for node in copy.graph.node for name in node.output if name}
    norms = [node for node in copy.graph.node if node.op_type == "BatchNormalization"]
    for norm in norms:
        layer = producers.get(norm.input[0])
        if layer is not None and is_standard(norm.domain):
            folding.fold(layer, norm)
            producers[layer.output[0]] = layer
    folding.clean_up()
    return copy


class _Folding:
    """The state of one pass over a graph: who reads what, and which names are spent."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._graph = model.graph
        self._constants = constant_tensors(model.graph)
        self._reads = consumer_counts(model.graph)
        self._taken = {name for node in model.graph.node for name in node.output}
        self._taken |= {item.name for item in [*model.graph.initializer, *model.graph.input]}
        self._spent: set[str] = set()
        self._parameters_before = _parameters(model)

    def fold(self, layer: NodeProto, norm: NodeProto) -> None:
        """Fold a BatchNorm into the layer before it if that is possible."""
        affine = _affine(norm, self._constants)
        if affine is None or self._reads[norm.input[0]] != 1:
            return
        folded = _folded_weights(layer, affine, self._constants)
        if folded is None:
            return
        old = [*layer.input[1:], *norm.input]
        self._spent.update(old)
        names = self._store_weights(layer, *folded)
        del layer.input[1:]
        layer.input.extend(names)
        layer.output[0] = norm.output[0]
        if layer.op_type == "Gemm":
            _set_float(layer, "beta", 1.0)
        self._graph.node.remove(norm)
        self._reads.subtract(old)
        self._reads.update(names)

    def _store_weights(self, layer: NodeProto, weight: _Array, bias: _Array) -> list[str]:
        name = layer.input[1]
        dtype = numpy_helper.to_array(self._constants[name]).dtype
        if _has_bias(layer):
            stored_bias = self._store(layer.input[2], bias.astype(dtype))
        else:
            stem = name.removesuffix(".weight")
            wanted = f"{stem}.bias" if stem != name else f"{name}_bias"
            stored_bias = self._store_new(wanted, bias.astype(dtype))
        return [self._store(name, weight.astype(dtype)), stored_bias]

    def _store(self, name: str, values: NDArray[np.generic]) -> str:
        """Replace a tensor, or store a new one when other nodes read the old value; return its name."""
        stored = next((tensor for tensor in self._graph.initializer if tensor.name == name), None)
        if stored is None or self._reads[name] != 1:
            return self._store_new(name, values)
        stored.CopyFrom(numpy_helper.from_array(values, name))
        return name

    def _store_new(self, wanted: str, values: NDArray[np.generic]) -> str:
        name = unused_name(wanted, self._taken)
        self._constants[name] = add_initializer(self._model, name, values)
        return name

    def clean_up(self) -> None:
        """Remove constants that only folded nodes read and facts about vanished tensors; note the count."""
        gone = {name for name in self._spent if name and not self._reads[name]}
        for items in (self._graph.initializer, self._graph.input, self._graph.value_info):
            for index in reversed(range(len(items))):
                if items[index].name in gone:
                    del items[index]
        for index in reversed(range(len(self._graph.node))):
            node = self._graph.node[index]
            if node.op_type == "Constant" and node.output[0] in gone:
                del self._graph.node[index]
        removed = self._parameters_before - _parameters(self._model)
        if removed:
            metadata = {item.key: item.value for item in self._model.metadata_props}
            metadata[FOLDED_KEY] = str(removed + (folded_parameters(metadata) or 0))
            helper.set_model_props(self._model, metadata)


def scale_and_shift(
    gamma: _Array, beta: _Array, mean: _Array, variance: _Array, epsilon: float
) -> tuple[_Array, _Array]:
    """What a BatchNorm does to each channel: ``s`` and ``beta - mean * s``, ``[channels] float64``."""
    scale = gamma / np.sqrt(variance + epsilon)
    return scale, beta - mean * scale


def _affine(norm: NodeProto, constants: dict[str, TensorProto]) -> _Affine | None:
    """The scale and shift of a BatchNorm; None in training mode, without stored statistics, or not finite."""
    training = attribute(norm, "training_mode", 0) or any(norm.output[1:])
    if training or not all(name in constants for name in norm.input[1:]):
        return None
    gamma, beta, mean, variance = (_float64(constants[name]) for name in norm.input[1:])
    with np.errstate(invalid="ignore", divide="ignore"):
        scale, shift = scale_and_shift(gamma, beta, mean, variance, attribute(norm, "epsilon", 1e-5))
    return _Affine(scale, shift) if np.isfinite(scale).all() and np.isfinite(shift).all() else None


def _folded_weights(
    layer: NodeProto, affine: _Affine, constants: dict[str, TensorProto]
) -> tuple[_Array, _Array] | None:
    """Weight and bias of the layer with the BatchNorm in it; None if it is not a layer that can take one."""
    if not is_standard(layer.domain) or layer.op_type not in ("Conv", "ConvTranspose", "Gemm"):
        return None
    if not all(name in constants for name in layer.input[1:] if name):
        return None
    weight = _float64(constants[layer.input[1]])
    bias = _float64(constants[layer.input[2]]) if _has_bias(layer) else np.zeros(1)
    if layer.op_type == "Gemm":
        bias = bias * attribute(layer, "beta", 1.0)
    outputs = affine.scale.size
    if bias.size not in (1, outputs) or (bias.ndim > 1 and bias.shape[-1] != bias.size):
        return None  # a Gemm may add a whole matrix, which no vector can replace
    scaled = _scaled(layer, weight, affine.scale)
    if scaled is None:
        return None
    return scaled, np.broadcast_to(bias.reshape(-1), (outputs,)) * affine.scale + affine.shift


def _scaled(layer: NodeProto, weight: _Array, scale: _Array) -> _Array | None:
    """The weight with each output channel scaled; None if the channels do not correspond."""
    if layer.op_type == "ConvTranspose":  # [inputs, outputs / groups, ...], the groups along the inputs
        groups = int(attribute(layer, "group", 1))
        if weight.shape[1] * groups != scale.size:
            return None
        parts = weight.reshape(groups, -1, *weight.shape[1:])
        factor = scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
        return (parts * factor).reshape(weight.shape)
    axis = 1 if layer.op_type == "Gemm" and not attribute(layer, "transB", 0) else 0
    if weight.shape[axis] != scale.size:
        return None
    factor = scale.reshape([-1 if side == axis else 1 for side in range(weight.ndim)])
    return weight * factor


def _has_bias(layer: NodeProto) -> bool:
    return len(layer.input) > 2 and bool(layer.input[2])


def _set_float(node: NodeProto, name: str, value: float) -> None:
    kept = [item for item in node.attribute if item.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def _float64(tensor: TensorProto) -> _Array:
    return numpy_helper.to_array(tensor).astype(np.float64)


def _parameters(model: ModelProto) -> int:
    return sum(use.parameters for use in parameter_uses(model.graph))

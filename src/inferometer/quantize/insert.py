"""The one QDQ inserter, driven by an engine's scheme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from inferometer.contracts import QdqScheme
from inferometer.errors import CalibrationError
from inferometer.models.graph import attribute, unused_name
from inferometer.quantize.float_layers import keep_in_float
from inferometer.quantize.graph import prepare
from inferometer.quantize.layout import Layout, channel_axis, layout_of, passages_of
from inferometer.quantize.note import CalibrationNote, attach_note, calibration_of
from inferometer.quantize.scales import UNIT, QParams, activation_params, ranges_of_tensors
from inferometer.quantize.simplify import drop_unused
from inferometer.quantize.table import CalibrationTable, TensorRange
from inferometer.quantize.weights import QuantizedWeight, least_scales, quantize_bias, quantize_weight

__all__ = ["CalibrationNote", "calibration_of", "insert_qdq"]


def insert_qdq(
    model: ModelProto,
    table: CalibrationTable,
    scheme: QdqScheme,
    *,
    float_layers: frozenset[str] = frozenset(),
    biases_corrected: bool = False,
) -> ModelProto:
    """Write a float model as QDQ in the form that an engine wants.

    Args:
        model: The float model, prepared or not; it is left as it was.
        table: Its calibration table.
        scheme: The engine's form of QDQ on the device.
        float_layers: Names of nodes of the prepared model that stay in float.
        biases_corrected: Whether ``model`` comes from `shift_biases`: kept in the file's note.

    Returns:
        The quantized model: weights stored as int8, the calibration noted in its metadata.

    Raises:
        CalibrationError: The model is quantized already or has nothing to quantize, the table lacks a
            tensor, a weight is not finite, or ``float_layers`` names no layer of the model.
    """
    prepared = prepare(model)
    whole = layout_of(prepared, scheme)
    usual = _usual(prepared) or whole
    unknown = float_layers.difference(whole.layers, usual.layers)
    if unknown:
        raise CalibrationError(
            f"no quantized layer is named {sorted(unknown)[0]!r}, so it cannot stay in float"
        )
    layout = layout_of(prepared, scheme, float_layers) if float_layers else whole
    ranges = _ranges(prepared, layout, table.tensors, scheme.activation_symmetric)
    _Writer(prepared, layout, ranges, scheme).write()
    if scheme.bias == "int32":  # ONNX Runtime's form: it alone would quantize layers between others by itself
        keep_in_float(prepared, {node.name for node in prepared.graph.node}.difference(layout.layers))
    attach_note(prepared, table, scheme, float_layers, biases_corrected)
    return prepared


def _usual(prepared: ModelProto) -> Layout | None:
    """The layout under the contract's default rules, which calibration observes; None without any layer."""
    try:
        return layout_of(prepared)
    except CalibrationError:
        return None


def _ranges(
    prepared: ModelProto,
    layout: Layout,
    table: Mapping[str, TensorRange],
    mixed: bool,
) -> dict[str, TensorRange]:
    """Ranges under ``layout``.

    Where the table lacks one, since the scheme or a layer in float passes less through than calibration
    expected, what could pass a scale through takes the widest range of its inputs.
    """
    if set(layout.observed) <= set(table):
        return ranges_of_tensors(layout, table, mixed_signs=mixed)
    passages, units = passages_of(prepared)
    known: dict[str, TensorRange] = {**dict.fromkeys(units, UNIT), **table}
    for passage in passages:
        if passage.output not in known and known.keys() >= set(passage.inputs):
            alone = Layout((), (passage.output,), passage.inputs, (passage,))
            known |= ranges_of_tensors(alone, known, mixed_signs=mixed)
    return ranges_of_tensors(layout, known, mixed_signs=mixed)


@dataclass(frozen=True)
class _Quantized:
    """A quantized tensor, the name of its zero point, and its parameters."""

    tensor: str
    zero_point: str
    params: QParams


class _Writer:
    """Rewrites one prepared model in place."""

    def __init__(
        self, model: ModelProto, layout: Layout, ranges: Mapping[str, TensorRange], scheme: QdqScheme
    ) -> None:
        self._graph = model.graph
        self._layout = layout
        self._scheme = scheme
        self._params = {name: activation_params(found, scheme) for name, found in ranges.items()}
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._outputs = {item.name for item in model.graph.output}
        self._inputs = {item.name for item in model.graph.input}
        self._taken = set(self._constants) | self._inputs
        self._taken.update(name for node in model.graph.node for name in (node.name, *node.output))
        self._nodes: list[NodeProto] = []
        self._dequantized: dict[str, str] = {}
        self._quantized: dict[str, _Quantized] = {}  # by the dequantized tensor
        self._weights: dict[tuple[str, int, bytes], tuple[QuantizedWeight, str]] = {}

    def write(self) -> None:
        layers = set(self._layout.layers)
        integer = layers | {passage.output for passage in self._layout.passages}
        nodes = list(self._graph.node)
        for name in self._layout.tensors:
            if name in self._inputs:
                self._pair(name, name, self._new(f"{name}_dequantized"), self._params[name])
        for node in nodes:
            on_integers = node.name in layers or node.output[0] in integer
            if node.name in layers and len(node.input) > 1 and node.input[1] in self._constants:
                self._weigh(node)
            self._rewire(node, on_integers)
            if node.name in layers and node.op_type in ("HardSigmoid", "HardSwish"):
                self._saturate(node)
            else:
                self._nodes.append(node)
            for position, name in enumerate(node.output):
                if name in self._params and name not in self._dequantized:
                    self._after(node, position, name)
        copies = [NodeProto.FromString(node.SerializeToString()) for node in self._nodes]
        del self._graph.node[:]
        self._graph.node.extend(copies)
        del self._graph.value_info[:]
        drop_unused(self._graph)

    def _rewire(self, node: NodeProto, on_integers: bool) -> None:
        for position, name in enumerate(node.input):
            # What is computed in float from the model's own input reads the input itself.
            if name in self._dequantized and (on_integers or name not in self._inputs):
                node.input[position] = self._dequantized[name]

    def _after(self, node: NodeProto, position: int, name: str) -> None:
        """Quantize what ``node`` writes; an output of the model keeps its name, behind the pair."""
        if name in self._outputs:
            node.output[position] = self._new(f"{name}_float")
            self._pair(name, node.output[position], name, self._params[name])
        else:
            self._pair(name, name, self._new(f"{name}_dequantized"), self._params[name])

    def _saturate(self, node: NodeProto) -> None:
        """HardSigmoid by a sum that saturates at 0 and 1, HardSwish as its product with that.

        clip(alpha x + beta, 0, 1) is the sum of beta and of x dequantized with alpha times its scale,
        quantized over [0, 1]. Integer kernels know sums and products, and neither of these activations.

        Source: ONNX operators HardSigmoid and HardSwish (alpha 1/6, beta 1/2).
        """
        swish = node.op_type == "HardSwish"
        alpha = 1 / 6 if swish else float(attribute(node, "alpha", 0.2))
        beta = 0.5 if swish else float(attribute(node, "beta", 0.5))
        name, known = node.output[0], self._quantized[node.input[0]]
        gate = self._new(f"{name}_gate") if swish else name
        slope = self._store(f"{gate}_slope", np.float32(alpha * known.params.scale))
        scaled = self._new(f"{gate}_scaled")
        self._add("DequantizeLinear", [known.tensor, slope, known.zero_point], scaled)
        total = self._add("Add", [scaled, self._constant(f"{gate}_shift", beta)], self._new(f"{gate}_total"))
        target = self._new(f"{gate}_dequantized")
        self._pair(gate, total, target, activation_params(UNIT, self._scheme))
        if swish:
            # Not by the name of the HardSwish: it has another operator and another input.
            product = self._new(f"{name}_Mul")
            self._nodes.append(helper.make_node("Mul", [node.input[0], target], [name], name=product))

    def _constant(self, name: str, value: float) -> str:
        """One number, dequantized from the integer next to the zero point, or at it."""
        lowest = np.iinfo(self._scheme.activation_dtype).min
        integer = np.dtype(self._scheme.activation_dtype).type
        source = self._store(f"{name}_quantized", integer(lowest + (value > 0)))
        scale = self._store(f"{name}_scale", np.float32(abs(value) or 1.0))
        zero = self._store(f"{name}_zero_point", integer(lowest + (value < 0)))
        return self._add("DequantizeLinear", [source, scale, zero], self._new(f"{name}_dequantized"))

    def _pair(self, name: str, source: str, target: str, params: QParams) -> None:
        """QuantizeLinear and DequantizeLinear from ``source`` to ``target``, which stands for ``name``."""
        scale = self._store(f"{name}_scale", np.float32(params.scale))
        zero = self._store(f"{name}_zero_point", np.dtype(params.dtype).type(params.zero_point))
        middle = self._new(f"{name}_quantized")
        self._add("QuantizeLinear", [source, scale, zero], middle)
        self._add("DequantizeLinear", [middle, scale, zero], target)
        self._dequantized[name] = target
        self._quantized[target] = _Quantized(middle, zero, params)

    def _weigh(self, node: NodeProto) -> None:
        """Replace a layer's weight, and its bias when the scheme says so, by dequantized integers."""
        input_scale = self._params[node.input[0]].scale
        axis = channel_axis(node)
        name = node.input[1]
        channels = self._constants[name].dims[axis]
        bias = self._bias(node, channels) if self._scheme.bias == "int32" else None
        least = None if bias is None else least_scales(bias, input_scale)
        reduced = self._scheme.weight_bits == 7 and not _is_depthwise(node, self._constants[name])
        weight, node.input[1] = self._weight(name, axis, reduced, least)
        if bias is None:
            return
        scales = (np.float32(input_scale) * weight.scales).astype(np.float32)
        source = self._store(f"{node.input[2]}_quantized", quantize_bias(bias, scales))
        scale = self._store(f"{node.input[2]}_scale", scales)
        node.input[2] = self._add(
            "DequantizeLinear", [source, scale], self._new(f"{node.input[2]}_dequantized"),
            axis=None if weight.axis is None else 0,
        )  # fmt: skip

    def _weight(
        self, name: str, axis: int, reduced: bool, least: npt.NDArray[np.float64] | None
    ) -> tuple[QuantizedWeight, str]:
        """The integers of a weight and the tensor that dequantizes them; shared where the scales agree."""
        values = numpy_helper.to_array(self._constants[name])
        weight = quantize_weight(
            values, name, axis=axis, reduced=reduced, per_channel=self._scheme.weight_per_channel, least=least
        )  # fmt: skip
        key = (name, axis, weight.scales.tobytes())
        if key not in self._weights:
            source = self._store(f"{name}_quantized", weight.values)
            scale = self._store(f"{name}_scale", weight.scales)
            zero = self._store(f"{name}_zero_point", np.zeros(weight.scales.shape, np.int8))
            target = self._add(
                "DequantizeLinear", [source, scale, zero], self._new(f"{name}_dequantized"), axis=weight.axis
            )
            self._weights[key] = (weight, target)
        return self._weights[key]

    def _bias(self, node: NodeProto, channels: int) -> npt.NDArray[np.float32] | None:
        """A layer's bias as one value per channel; None when it has none, or one of another form."""
        if len(node.input) < 3 or not node.input[2]:
            return None
        bias = numpy_helper.to_array(self._constants[node.input[2]])
        if bias.size not in (1, channels) or bias.dtype != np.float32:
            return None
        return np.broadcast_to(bias.reshape(-1), (channels,))

    def _add(self, op: str, inputs: list[str], output: str, axis: int | None = None) -> str:
        node = helper.make_node(op, inputs, [output], name=self._new(f"{output}_{op}"))
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
        self._nodes.append(node)
        return output

    def _store(self, name: str, value: npt.NDArray[np.generic] | np.generic) -> str:
        stored: TensorProto = numpy_helper.from_array(np.asarray(value), self._new(name))
        self._graph.initializer.append(stored)
        return stored.name

    def _new(self, name: str) -> str:
        return unused_name(name, self._taken)


def _is_depthwise(node: NodeProto, weight: TensorProto) -> bool:
    """Whether each output channel has one input channel of its own.

    Its products are then added per channel, never in pairs of neighbours, so nothing saturates in int16.
    """
    return node.op_type == "Conv" and weight.dims[1] == 1 and attribute(node, "group", 1) == weight.dims[0]

"""From a float model to one that can be calibrated: prepared, its layout known, its tensors exposed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from inferometer.errors import CalibrationError, ModelError
from inferometer.models.fold import fold_batchnorm
from inferometer.models.form import form_of
from inferometer.models.graph import subgraphs, unused_name
from inferometer.models.opset import opset_of, upgrade
from inferometer.models.plain import has_halves, plain, to_float32
from inferometer.models.shapes import infer_facts
from inferometer.quantize.layout import WEIGHTED_OPS, ranges_needed
from inferometer.quantize.simplify import simplify

__all__ = ["LOWEST_OPSET", "expose", "is_quantized", "observed_tensors", "prepare"]

LOWEST_OPSET = 13
"""The first opset whose DequantizeLinear has an axis: one scale per output channel."""

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})


def is_quantized(model: ModelProto) -> bool:
    """Whether the model already holds quantized operators."""
    return form_of(model) != "float"


def prepare(model: ModelProto) -> ModelProto:
    """The float model in the form that is observed and quantized. The input is left as it was.

    BatchNorm is folded into the convolutions, constants are folded, identities and paddings merged, every
    node has a name of its own, float16 and bfloat16 are float32 (inputs and outputs too), functions of the
    file's own are inlined, and the opset is 13 at least. The IR version stays, unless it is so old (below 4)
    that weights must be inputs. Preparing twice changes nothing more.

    Raises:
        CalibrationError: The model is already quantized, has control flow, its opset cannot be raised, it
            computes in float64, or a stored number that it reads is NaN, or an infinite weight or bias.
    """
    if is_quantized(model):
        raise CalibrationError(
            "the model is already quantized (it holds QuantizeLinear or integer operators): "
            "use it as it is, or give the float model"
        )
    for node in model.graph.node:
        if any(True for _ in subgraphs(node)):
            raise CalibrationError(
                f"node {node.name or node.output[0]!r} ({node.op_type}) is control flow, whose inside cannot "
                f"be calibrated: export the model without {node.op_type}"
            )
    _numbers_are_finite(model)  # by the names of the file
    prepared = fold_batchnorm(_in_float32(_with_opset(model)))  # always a copy
    _weights_are_constants(prepared)
    simplify(prepared)
    _name_nodes(prepared)
    _numbers_are_finite(prepared)  # what Constant nodes held until now as well
    return prepared


def observed_tensors(model: ModelProto) -> tuple[str, ...]:
    """The tensors whose ranges calibration must find for the schemes of all built-in engines, in graph order.

    Args:
        model: A prepared model.

    Raises:
        CalibrationError: There is nothing to quantize.
    """
    return ranges_needed(model)


def expose(model: ModelProto, names: Iterable[str]) -> ModelProto:
    """A copy of ``model`` in which the tensors ``names`` are outputs too.

    Graph inputs among them are left out: their values are what is fed.

    Raises:
        CalibrationError: The graph has no such tensor.
    """
    exposed = ModelProto()
    exposed.CopyFrom(model)
    present = {item.name for item in (*exposed.graph.output, *exposed.graph.input)}
    made = {name for node in exposed.graph.node for name in node.output}
    known = infer_facts(model, "the model")
    for name in names:
        if name in present:
            continue
        if name not in made:
            raise CalibrationError(f"the model has no tensor {name!r}: the table or list is another model's")
        kind = known.get(name)
        exposed.graph.output.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, kind.shape if kind else None)
        )
        present.add(name)
    return exposed


def _with_opset(model: ModelProto) -> ModelProto:
    """The model itself, or a converted copy when its opset is below ``LOWEST_OPSET``."""
    if (opset_of(model) or LOWEST_OPSET) >= LOWEST_OPSET:
        return model  # uncopied: folding copies it
    raised, failures = upgrade(model, LOWEST_OPSET)
    if failures:
        raise CalibrationError(
            f"the model's opset {opset_of(model)} cannot be raised to {LOWEST_OPSET}, which INT8 needs: "
            f"{'; '.join(failures)}; export it again with opset {LOWEST_OPSET} or higher"
        )
    return raised


def _in_float32(model: ModelProto) -> ModelProto:
    """The model without functions and sparse weights, and with float32 in place of halves of it.

    Raises:
        CalibrationError: It computes in float64, or cannot be made float32.
    """
    flat = plain(model)
    kinds = {tensor.data_type for tensor in flat.graph.initializer if len(tensor.dims)}
    kinds |= {info.type.tensor_type.elem_type for info in flat.graph.input}
    if TensorProto.DOUBLE in kinds:
        raise CalibrationError("the model computes in float64, which has no INT8 form: export it in float32")
    try:
        return to_float32(flat) if has_halves(flat) else flat
    except ModelError as error:
        raise CalibrationError(str(error)) from error


def _weights_are_constants(model: ModelProto) -> None:
    """Take initializers out of the inputs, where they could be overridden and so would never be folded."""
    stored = {tensor.name for tensor in model.graph.initializer}
    for position in reversed(range(len(model.graph.input))):
        if model.graph.input[position].name in stored:
            del model.graph.input[position]
    model.ir_version = max(model.ir_version, 4)


def _numbers_are_finite(model: ModelProto) -> None:
    """Refuse NaN in what nodes read, and infinite weights and biases: calibration would blame the images."""
    read = {name for node in model.graph.node for name in node.input}
    weights = {name for node in model.graph.node if node.op_type in WEIGHTED_OPS for name in node.input[1:]}
    for tensor in model.graph.initializer:
        if tensor.name not in read or tensor.data_type not in _FLOATS:
            continue
        values = numpy_helper.to_array(tensor)
        # Elsewhere infinity may mean something: no bound of a Clip, a masked place in an Add.
        if tensor.name in weights and not np.isfinite(values).all():
            raise CalibrationError(
                f"weight or bias {tensor.name!r} holds NaN or infinite values: mend the model"
            )
        if np.isnan(values).any():
            raise CalibrationError(f"initializer {tensor.name!r} holds NaN: mend the model")


def _name_nodes(model: ModelProto) -> None:
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        node.name = unused_name(node.name or f"{node.op_type}_{index}", taken)

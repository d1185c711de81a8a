"""In which numbers a model is written: its floats, and whether and how it is quantized."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto

from inferometer.models.graph import all_nodes, all_tensors, is_standard, true_inputs
from inferometer.models.shapes import dtype_name
from inferometer.models.summary import Form

__all__ = ["FORM_WORDS", "float_type", "form_of"]

FORM_WORDS: dict[Form, str] = {
    "float": "not quantized",
    "qdq": "quantized: pairs of QuantizeLinear and DequantizeLinear",
    "qoperator": "quantized: operators on integers",
    "dynamic": "quantized, the ranges of activations taken anew in each call",
    "weights": "weights quantized, computed in floats",
}
"""What each form means, for a reader."""

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})

# Operators on integers, of standard ONNX and of onnxruntime's own domain; those there begin with QLinear too.
_ON_INTEGERS = frozenset({"ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "QGemm", "QAttention"})
_DYNAMIC = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
_WEIGHTS = frozenset({"DequantizeLinear", "MatMulNBits", "MatMulBnb4", "GatherBlockQuantized"})


def form_of(model: ModelProto) -> Form:
    """How a model is quantized, by its operators; those inside its own functions count as well."""
    nodes = [*all_nodes(model.graph), *(node for function in model.functions for node in function.node)]
    ops = {node.op_type for node in nodes if _known(node)}
    if ops & _DYNAMIC:
        return "dynamic"
    if ops & _ON_INTEGERS or any(op.startswith("QLinear") for op in ops):
        return "qoperator"
    if "QuantizeLinear" in ops:
        return "qdq"
    return "weights" if ops & _WEIGHTS else "float"


def float_type(model: ModelProto) -> str | None:
    """The numpy name of the type of a model's floating-point weights.

    Of a model without any, that of its floating-point inputs. ``mixed`` when there are several, None when
    there are none at all. Scalars do not count: exporters keep constants of formulas in float32.
    """
    kinds = {tensor.data_type for tensor in all_tensors(model) if len(tensor.dims)} & _FLOATS
    if not kinds:
        kinds = {info.type.tensor_type.elem_type for info in true_inputs(model.graph)} & _FLOATS
    return "mixed" if len(kinds) > 1 else dtype_name(kinds.pop()) if kinds else None


def _known(node: NodeProto) -> bool:
    return is_standard(node.domain) or node.domain == "com.microsoft"

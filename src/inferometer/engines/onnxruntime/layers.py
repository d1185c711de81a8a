"""What ONNX Runtime's profile says of a kernel: name, role, precision of the arithmetic, MACs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from onnx import ModelProto

from inferometer.contracts import ExecutedLayer, Role

__all__ = ["Counts", "Event", "counts", "executed_layer", "is_opaque", "layer_name", "own_names", "role"]

# Operators that multiply and accumulate; of the others only the time counts.
_INTEGER_OPS = {
    "QLinearConv", "QGemm", "QLinearMatMul", "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
}  # fmt: skip
_FLOAT_OPS = {
    "Conv", "FusedConv", "NhwcConv", "NhwcFusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul",
    "ConvTranspose",
}  # fmt: skip
_MAC_OPS = _INTEGER_OPS | _FLOAT_OPS
# Operators that do so in a number of steps that is not worked out here.
_NOT_COUNTED = {
    "Attention", "ConvTransposeWithDynamicPads", "DFT", "DecoderAttention", "DecoderMaskedMultiHeadAttention",
    "DeformConv", "DynamicQuantizeLSTM", "Einsum", "GRU", "GroupQueryAttention", "LSTM", "LinearAttention",
    "MatMulBnb4", "MatMulFpQ4", "MatMulNBits", "MoE", "MultiHeadAttention", "PackedAttention",
    "PackedMultiHeadAttention", "QAttention", "QMoE", "RNN", "STFT", "SparseToDenseMatMul",
}  # fmt: skip

_QUANTIZING = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
# Operators that the runtime alone puts in, and those that a model may have as well.
_REORDERING = {"ReorderInput", "ReorderOutput", "MemcpyToHost", "MemcpyFromHost"}
_REORDERING_TOO = {"Transpose", "Cast"}

Counts = dict[str, int]
Event = Mapping[str, Any]


def layer_name(event: Event) -> str:
    """The name of the kernel of one event of the profile."""
    return str(event["name"]).removesuffix("_kernel_time")


def is_opaque(event: Event) -> bool:
    """Whether the kernel is a part of the model that a provider has compiled as a whole.

    Such a node's operator is called by its provider's name and a number.
    """
    arguments = event["args"]
    provider = str(arguments.get("provider", ""))
    return bool(provider) and str(arguments["op_name"]).startswith(provider)


def executed_layer(event: Event, floats: str = "fp32") -> ExecutedLayer:
    """What ran, by one event of the profile with the shapes and dtypes that the kernel saw.

    Args:
        event: The event.
        floats: What float32 is multiplied in, where that may be another precision.
    """
    arguments = event["args"]
    inputs = [_typed_shape(item) for item in arguments["input_type_shape"]]
    outputs = [_typed_shape(item) for item in arguments["output_type_shape"]]
    op = arguments["op_name"]
    size = int(arguments.get("output_size", 0)) or None
    if is_opaque(event):
        return ExecutedLayer(layer_name(event), op, "unknown", None, size)
    dtypes = [dtype for dtype, _ in inputs]
    integer = any(dtype in ("uint8", "int8") for dtype in dtypes) and op not in _QUANTIZING
    as_named = {"float": floats if op in _MAC_OPS else "fp32", "float16": "fp16", "bfloat16": "bf16"}
    precision = "int8" if integer else as_named.get(dtypes[0] if dtypes else "", "other")
    return ExecutedLayer(layer_name(event), op, precision, _macs(op, inputs, outputs), size)


def role(name: str, op: str, own: Collection[str]) -> Role:
    """What a kernel is for; ``own`` are the names of the model's own nodes (see `own_names`)."""
    if op in _QUANTIZING:
        return "quantize"
    if op in _REORDERING or (op in _REORDERING_TOO and name not in own):
        return "reorder"
    return "compute"


def own_names(model: ModelProto) -> frozenset[str]:
    """The names that ONNX Runtime gives to kernels of a model's own nodes.

    A node without a name is called by its operator and number; constants may or may not be counted.
    """
    names: set[str] = set()
    counted = 0
    for index, node in enumerate(model.graph.node):
        names |= {node.name} if node.name else {f"{node.op_type}_{at}" for at in (index, counted)}
        counted += node.op_type != "Constant"
    return frozenset(names)


def counts(layers: Sequence[ExecutedLayer]) -> Counts:
    """How many kernels multiply integers, how many floats, and how many only change between the two."""
    multiplying = [layer for layer in layers if layer.macs or layer.op in _MAC_OPS]
    integers = sum(layer.precision == "int8" for layer in multiplying)
    return {
        "integer_kernels": integers,
        "float_kernels": len(multiplying) - integers,
        "quantize_nodes": sum(layer.op in (*_QUANTIZING, "FakeQuantize") for layer in layers),
    }


def _typed_shape(item: Mapping[str, Sequence[int]]) -> tuple[str, tuple[int, ...]]:
    dtype, shape = next(iter(item.items()))
    return dtype, tuple(shape)


def _macs(
    op: str,
    inputs: Sequence[tuple[str, tuple[int, ...]]],
    outputs: Sequence[tuple[str, tuple[int, ...]]],
) -> int | None:
    """Multiply-accumulates of one kernel call: outputs times the length of each dot product."""
    if op in _NOT_COUNTED:
        return None
    if op not in _MAC_OPS:
        return 0  # exactly: this kernel multiplies and accumulates nothing that counts as a MAC
    matrices = [shape for _, shape in inputs if len(shape) >= 2]
    if not matrices or not outputs:
        return None
    first, result = matrices[0], outputs[0][1]
    if 0 in result:
        return 0
    if "Conv" not in op:
        depth = (
            math.prod(first) // result[0] if "Gemm" in op else first[-1]
        )  # Gemm may transpose its first input
        return math.prod(result) * depth
    if len(matrices) < 2:
        return None
    if op == "ConvTranspose":
        return math.prod(first) * math.prod(matrices[1][1:])
    return math.prod(result) * math.prod(matrices[1][1:])

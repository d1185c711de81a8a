"""What ONNX Runtime's profile says of a kernel: its name, the precision of its arithmetic, its MACs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.contracts import ExecutedLayer

__all__ = ["executed_layer", "layer_name"]

# Operators that multiply and accumulate; of the others only the time counts.
_MAC_OPS = {
    "Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "ConvTranspose",
    "QLinearConv", "QGemm", "QLinearMatMul", "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
}  # fmt: skip


def layer_name(event: Mapping[str, Any]) -> str:
    """The name of the kernel of one event of the profile."""
    return str(event["name"]).removesuffix("_kernel_time")


def executed_layer(event: Mapping[str, Any]) -> ExecutedLayer:
    """What ran, by one event of the profile with the shapes and dtypes that the kernel saw."""
    arguments = event["args"]
    inputs = [_typed_shape(item) for item in arguments["input_type_shape"]]
    outputs = [_typed_shape(item) for item in arguments["output_type_shape"]]
    op = arguments["op_name"]
    dtypes = [dtype for dtype, _ in inputs]
    integer = any(dtype in ("uint8", "int8") for dtype in dtypes) and op not in (
        "DequantizeLinear",
        "QuantizeLinear",
    )
    precision = (
        "int8" if integer else {"float": "fp32", "float16": "fp16"}.get(dtypes[0] if dtypes else "", "other")
    )
    return ExecutedLayer(
        layer_name(event),
        op,
        precision,
        _macs(op, inputs, outputs),
        int(arguments.get("output_size", 0)) or None,
    )


def _typed_shape(item: Mapping[str, Sequence[int]]) -> tuple[str, tuple[int, ...]]:
    dtype, shape = next(iter(item.items()))
    return dtype, tuple(shape)


def _macs(
    op: str,
    inputs: Sequence[tuple[str, tuple[int, ...]]],
    outputs: Sequence[tuple[str, tuple[int, ...]]],
) -> int | None:
    """Multiply-accumulates of one kernel call: outputs times the length of each dot product."""
    if op not in _MAC_OPS:
        return 0  # exactly: this kernel multiplies and accumulates nothing that counts as a MAC
    matrices = [shape for _, shape in inputs if len(shape) >= 2]
    if not matrices or not outputs:
        return None
    first, result = matrices[0], outputs[0][1]
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

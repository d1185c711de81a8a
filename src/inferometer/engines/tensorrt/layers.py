"""What an engine of TensorRT tells of its layers, read from its inspector's JSON.

A layer is a kernel after fusing. It names the nodes of the ONNX file that it computes, so their
multiply-accumulates are known; its arithmetic follows from the kernel's name and the types it takes.
Nothing here imports TensorRT.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.contracts import ExecutedLayer, LayerTime, Role
from inferometer.engines.tensorrt.types import PUT_IN

__all__ = ["executed_layers", "layer_times", "layers_of"]

_Layer = Mapping[str, Any]

# Source: processMetadata of onnx-tensorrt; a layer of several nodes has one such part for each.
_ORIGIN = re.compile(r"\[ONNX Layer: ([^\]|]*?)(?: \|[^\]]*)?\]")

# Words for element types in "Format/Datatype", such as "Row major linear FP32" and "Half", and their bytes.
# Source: the layer files of NVIDIA's TensorRT Engine Explorer.
_TYPES = (
    (re.compile(r"\bBF16\b|\bBFloat16\b", re.IGNORECASE), "bf16", 2),
    (re.compile(r"\bFP16\b|\bHalf\b|\bFloat16\b", re.IGNORECASE), "fp16", 2),
    (re.compile(r"\bFP32\b|\bFloat\b", re.IGNORECASE), "fp32", 4),
    (re.compile(r"\bInt8\b", re.IGNORECASE), "int8", 1),
    (re.compile(r"\bFP8\b", re.IGNORECASE), "fp8", 1),
    (re.compile(r"\bInt64\b", re.IGNORECASE), "int64", 8),
    (re.compile(r"\bInt32\b", re.IGNORECASE), "int32", 4),
    (re.compile(r"\bU?Int8\b|\bBool\b", re.IGNORECASE), "uint8", 1),
)

# Kernels spell the types of both factors: "..._i8i8_i8i32_f32_...", "..._f32f32_tf32f32_f32_...".
_KERNELS = (
    (re.compile(r"tf32"), "tf32"),
    (re.compile(r"(^|_)i8(i8|f32|f16)?_|i8816|imma"), "int8"),
    (re.compile(r"bf16"), "bf16"),
    (re.compile(r"(^|_)f16(f16|f32)?_|h(16816|1688|884)|hmma"), "fp16"),
    (re.compile(r"(^|_)f32f32_f32f32_|scudnn|sgemm"), "fp32"),
)

_ARITHMETIC = ("fp32", "fp16", "bf16", "int8", "fp8")
_QUANTIZING = {"QuantizeLinear", "DequantizeLinear"}
_MOVING = ("Reformat", "NoOp")


def layers_of(text: str) -> list[_Layer]:
    """The layers of an inspector's answer; those of which it gives but the name are left out."""
    try:
        found = json.loads(text, strict=False)  # names are separated by a bare control character
    except ValueError:
        return []
    layers = found.get("Layers", []) if isinstance(found, dict) else []
    return [layer for layer in layers if isinstance(layer, dict) and "Name" in layer]


def executed_layers(
    layers: Sequence[_Layer], macs: Mapping[str, int] | None, tf32: bool
) -> tuple[ExecutedLayer, ...]:
    """What runs in a call.

    Args:
        layers: Of the inspector.
        macs: Multiply-accumulates by node of the file; None when not known.
        tf32: Whether products of float32 may be computed in TF32.

    Returns:
        Its layers. All have ``macs`` None unless each multiplying node belongs to exactly one of them, and
        the arithmetic of each of those is known: a sum over precisions is right, or there is none.
    """
    counts = _counted(layers, macs)
    precisions = [_precision(layer, tf32) for layer in layers]
    if counts is not None and any(
        count and precision is None for count, precision in zip(counts, precisions, strict=True)
    ):
        counts = None
    return tuple(
        ExecutedLayer(
            str(layer["Name"]),
            _op(layer),
            precision or "other",
            counts[at] if counts else None,
            _bytes(layer),
        )
        for at, (layer, precision) in enumerate(zip(layers, precisions, strict=True))
    )


def layer_times(
    times: Mapping[str, float], layers: Sequence[_Layer], ops: Mapping[str, str]
) -> tuple[LayerTime, ...]:
    """Seconds per layer with what each is for.

    Args:
        times: Seconds by the layer's name.
        layers: Of the inspector.
        ops: Operators of the file's nodes.
    """
    known = {str(layer["Name"]): layer for layer in layers}
    return tuple(
        LayerTime(name, _op(known.get(name, {})), seconds, _role(name, known.get(name, {}), ops))
        for name, seconds in times.items()
    )


def _counted(layers: Sequence[_Layer], macs: Mapping[str, int] | None) -> list[int] | None:
    """Multiply-accumulates of each layer; None when a node's go to no layer, or could go to several."""
    if macs is None:
        return None
    places = defaultdict(list)
    for at, layer in enumerate(layers):
        for origin in dict.fromkeys(_origins(layer)):
            if macs.get(origin):
                places[origin].append(at)
    counts = [0] * len(layers)
    for name, count in macs.items():
        if not count:
            continue
        computing = [at for at in places[name] if _op(layers[at]) not in _MOVING]
        if len(computing) != 1:
            return None
        counts[computing[0]] += count
    return counts


def _origins(layer: _Layer) -> list[str]:
    return _ORIGIN.findall(str(layer.get("Metadata", "")))


def _op(layer: _Layer) -> str:
    return str(layer.get("LayerType", "unknown"))


def _precision(layer: _Layer, tf32: bool) -> str | None:
    """That of the arithmetic; None when it cannot be told.

    Where TF32 is allowed, the type float32 does not tell; the name of the kernel does.
    """
    tactic = str(layer.get("TacticName", "")).lower()
    by_kernel = next((precision for words, precision in _KERNELS if words.search(tactic)), None)
    if by_kernel is not None:
        return by_kernel
    kinds = {kind for kind in map(_kind, layer.get("Inputs", ())) if kind in _ARITHMETIC}
    weights = layer.get("Weights")
    if isinstance(weights, dict) and weights.get("Count"):
        kinds |= {kind for kind in [_word(str(weights.get("Type", "")))] if kind in _ARITHMETIC}
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    return None if kind == "fp32" and tf32 else kind


def _kind(tensor: Mapping[str, Any]) -> str | None:
    return _word(str(tensor.get("Format/Datatype", tensor.get("Datatype", ""))))


def _word(text: str) -> str | None:
    return next((kind for words, kind, _ in _TYPES if words.search(text)), None)


def _bytes(layer: _Layer) -> int | None:
    """Bytes of its outputs; None where a shape or type is not told."""
    total = 0
    sizes = {kind: size for _, kind, size in _TYPES}
    for tensor in layer.get("Outputs", ()):
        shape, kind = tensor.get("Dimensions"), _kind(tensor)
        if kind is None or not isinstance(shape, list) or any(side < 0 for side in shape):
            return None
        total += math.prod(shape) * sizes[kind]
    return total if "Outputs" in layer else None


def _role(name: str, layer: _Layer, ops: Mapping[str, str]) -> Role:
    """What a layer is for: by the nodes it computes, and by its kind where it computes none."""
    origins = _origins(layer)
    kinds = {ops.get(origin, "") for origin in origins if not origin.startswith(PUT_IN)}
    if layer.get("Origin") == "QDQ" or (kinds and kinds <= _QUANTIZING):
        return "quantize"
    if _op(layer) in _MOVING or name.startswith("Reformatting CopyNode") or (origins and not kinds):
        return "reorder"
    return "compute"

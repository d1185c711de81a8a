"""The QDQ form that each engine wants: data alone, so that a model can be quantized for an engine elsewhere.

Nothing here imports a vendor's library. A form may depend on the CPU of this machine, where the file is
written; then ``reason`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from inferometer.contracts import ADDING_SCHEME, FUSING_SCHEME, QdqScheme
from inferometer.engines.openvino.devices import is_cpu, kind_of
from inferometer.environment.cpu import cpu_facts
from inferometer.errors import Unsupported

__all__ = ["onnxruntime", "openvino", "tensorrt", "tensorrt_rtx", "torch"]

_SATURATES = "without VNNI 8-bit products would saturate in int16"


def onnxruntime(device: str, options: Mapping[str, Any]) -> QdqScheme:
    """That of the execution provider: OpenVINO's and TensorRT's are those of the engines of that name.

    Of the CPU's provider: uint8 asymmetric activations, int8 weights per channel, int32 bias; the contract's
    own operator rules. A layer becomes an integer kernel only if each of its tensors is quantized, its bias
    in int32 as well. Relu and Clip vanish in the range of the QuantizeLinear behind them; LeakyRelu, Sigmoid
    and products have kernels of their own (``QLinearLeakyRelu``, ``QLinearSigmoid``, ``QLinearMul``). There
    is none for ConvTranspose, PRelu, Elu and LRN, which stay in float.

    Without an 8-bit dot product (VNNI), AVX2 and AVX512 kernels add two u8 x s8 products in a saturating
    int16, so weights keep 7 bits there.

    Source: the kernels that onnxruntime 1.32 registers; onnxruntime's documentation, "Quantize ONNX models",
    section on U8S8 saturation; the kernels in onnxruntime-gpu 1.31's CUDA library.

    Raises:
        Unsupported: The provider runs no integers: CUDA's has neither QLinearConv nor ConvInteger, and would
            compute in float between the conversions. Or its form is not known.
    """
    provider = str(options.get("provider") or ("cuda" if device.startswith("cuda") else "cpu"))
    if provider in _OF_PROVIDERS:
        return _OF_PROVIDERS[provider](device, options)
    if provider != "cpu":
        known = " and ".join(["cpu", *_OF_PROVIDERS])
        raise Unsupported(
            f"onnxruntime: the provider {provider} runs no form of int8 that is known here: {known} do"
        )
    bits, reason = _weight_bits()
    return QdqScheme(
        name="onnxruntime-cpu",
        activation_dtype="uint8",
        activation_symmetric=False,
        weight_bits=bits,
        weight_per_channel=True,
        bias="int32",
        reason=reason,
    )


def openvino(device: str, options: Mapping[str, Any]) -> QdqScheme:
    """uint8 asymmetric activations, int8 weights per channel, bias left in float.

    Layers compute the activation behind them in float before they round, whichever it is, and give floats
    where nothing quantized follows; products of two activations (gates) are no faster on integers. Both
    inputs of a residual Add are quantized: only then does the convolution before it add the other input.

    Without an 8-bit dot product (VNNI), kernels of x86 add two u8 x s8 products in a saturating int16, so
    weights keep 7 bits there.

    Source: the runtime graphs and times of OpenVINO 2026.4; saturation measured with oneDNN's
    ONEDNN_MAX_CPU_ISA at SSE41, AVX2 and AVX512_CORE, where 64 products of 255 and 127 add up to 32 x 32767;
    at AVX2_VNNI and AVX512_CORE_VNNI to their true sum.
    """
    bits, reason = _weight_bits() if is_cpu(device) else (8, None)
    name = f"openvino-{kind_of(device).lower()}"
    return replace(FUSING_SCHEME, name=name, weight_bits=bits, reason=reason)


def tensorrt(device: str, options: Mapping[str, Any]) -> QdqScheme:
    """int8 symmetric activations with zero point 0, int8 weights per channel, bias left in float.

    A zero point other than 0 and a dequantized int32 bias do not parse. Of the two inputs of a residual Add
    only the skip connection is quantized, since the convolution before the Add computes it.

    Source: NVIDIA TensorRT documentation, "Working with Quantized Types", the recommendations on where to
    place Q/DQ layers.
    """
    return _symmetric("tensorrt")


def tensorrt_rtx(device: str, options: Mapping[str, Any]) -> QdqScheme:
    """As for ``tensorrt``: the two share their parser of ONNX.

    Source: the messages of TensorRT-RTX 1.7.1 on files of other forms.
    """
    return _symmetric("tensorrt-rtx")


def torch(device: str, options: Mapping[str, Any]) -> QdqScheme:
    """int8 symmetric activations with zero point 0, int8 weights per channel, bias left in float.

    Products of int8 tensors add up in int32 and are scaled in float, where bias and activation are applied.
    """
    return _symmetric("torch")


# Forms by the word for an execution provider of onnxruntime.
_OF_PROVIDERS = {"openvino": openvino, "tensorrt": tensorrt, "nv-tensorrt-rtx": tensorrt_rtx}


def _symmetric(name: str) -> QdqScheme:
    return replace(ADDING_SCHEME, name=name)


def _weight_bits() -> tuple[Literal[7, 8], str | None]:
    """How many bits weights keep beside uint8 activations on this CPU, and why not 8."""
    facts, _ = cpu_facts()
    x86 = facts.architecture in ("x86_64", "AMD64", "i686")
    return (7, _SATURATES) if x86 and not facts.int8_dot else (8, None)

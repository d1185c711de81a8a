"""ONNX Runtime's execution providers by plain words: which there are, what they can, how they are set."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnxruntime

from inferometer.contracts import Device, Variant
from inferometer.engines.onnxruntime.errors import vendor
from inferometer.engines.onnxruntime.gpus import cuda_gpus
from inferometer.engines.onnxruntime.plugins import Plugin, ep_name, places, plugins, registered
from inferometer.environment.cpu import cpu_facts
from inferometer.errors import EngineError, Unsupported, nearest
from inferometer.records import Precision

__all__ = [
    "COMPILING",
    "Provider",
    "found_devices",
    "provider_of",
    "provider_variants",
    "refusals",
    "settings",
    "settle_tf32",
]

COMPILING = ("tensorrt", "openvino", "nv-tensorrt-rtx")
"""Providers that compile parts of a model and show each as one node."""

# Source: the providers' names in onnxruntime (``get_all_providers``).
_BUILT_IN = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "nv-tensorrt-rtx": "NvTensorRTRTXExecutionProvider",
}
# The package that brings each. The first two are builds of onnxruntime itself and take its place.
_PACKAGES = {
    "cuda": "'onnxruntime-gpu[cuda,cudnn]' in place of onnxruntime",
    "tensorrt": "'onnxruntime-gpu[cuda,cudnn]' in place of onnxruntime, and tensorrt",
    "openvino": "onnxruntime-ep-openvino",
    "nv-tensorrt-rtx": "onnxruntime-ep-nv-tensorrt-rtx-cu13",
    "webgpu": "onnxruntime-ep-webgpu",
}
_OF_NVIDIA = ("cuda", "tensorrt", "nv-tensorrt-rtx")
_ALL: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16", "int8")

_NO_TF32 = "tf32 is a format of NVIDIA GPUs"
_NO_KERNELS = "ONNX Runtime's CPU provider has no {} kernels for convolutions: it would compute in fp32"
_TYPES_OF_FILE = "ONNX Runtime computes in the types of the file, and has no converter to {}"
# Source: the kernels in onnxruntime-gpu 1.31's CUDA library: QuantizeLinear and DequantizeLinear, but neither
# QLinearConv nor ConvInteger; and onnxruntime's issues 12229 and 24807.
_NO_INTEGERS = (
    "ONNX Runtime's CUDA provider has no integer kernels for convolutions: it would quantize, dequantize and "
    "compute in float; the provider tensorrt runs int8"
)
_UNTOLD = "how the provider {} is told to compute in {} is not known here"
_UNLISTED = "the provider openvino lists no {} for this device"
# Source: OpenVINO's property OPTIMIZATION_CAPABILITIES.
_CAPABILITIES: dict[Precision, str] = {"fp16": "FP16", "bf16": "BF16", "int8": "INT8"}
# What floating-point layers compute in, those of an int8 model without QDQ too. It is said each time: left
# alone, OpenVINO takes bf16 wherever the CPU can.
_OPENVINO_FLOATS: dict[Precision, str] = {"fp32": "f32", "int8": "f32", "bf16": "bf16", "fp16": "f16"}


@dataclass(frozen=True)
class Provider:
    """One execution provider.

    Attributes:
        word: What the option ``provider`` calls it.
        name: What ONNX Runtime calls it.
        plugin: The package that brings it; None when it is built in.
    """

    word: str
    name: str
    plugin: Plugin | None = None


def provider_of(device: str, options: Mapping[str, Any]) -> Provider:
    """The provider that options and device mean.

    Raises:
        EngineError: There is none of that name.
        Unsupported: Its package does not load.
    """
    word = options.get("provider")
    if word is None:
        word = "cuda" if device.startswith("cuda") else "cpu"
    known = {*_BUILT_IN, *_PACKAGES, *plugins()}
    if not isinstance(word, str) or word not in known:
        raise EngineError(f"onnxruntime: provider: {word!r} is not known{nearest(str(word), known)}")
    plugin = plugins().get(word)
    return Provider(word, ep_name(plugin) if plugin else _BUILT_IN.get(word, word), plugin)


def found_devices() -> list[Device]:
    """The CPU, then what the built-in providers and the plug-ins find beside it.

    Plug-ins are loaded for that only where ONNX Runtime itself finds a device beside the CPU.
    """
    gpus = {gpu.name: gpu for gpu in cuda_gpus()}
    found = {"cpu": Device("cpu", cpu_facts()[0].model or "CPU of unknown model")}
    if {_BUILT_IN["cuda"], _BUILT_IN["tensorrt"]} & set(onnxruntime.get_available_providers()):
        found |= gpus
    for plugin in plugins().values() if _more_than_a_cpu() else ():
        try:
            named = places(registered(plugin))
        except Unsupported:
            continue  # `provider_variants` says why
        for name, device in named.items():
            about = f"{device.device.vendor} {name.split(':')[0].upper()}"
            found.setdefault(name, gpus.get(name, Device(name, about)))
    return list(found.values())


def provider_variants() -> list[Variant]:
    """One for each provider beside the CPU's, with how to get it where it is not to be had."""
    found = []
    for word in dict.fromkeys([*_PACKAGES, *plugins()]):
        plugin = plugins().get(word)
        try:
            provider = provider_of("", {"provider": word})
            reason = None if _places(provider) else f"the provider {word} finds no device here"
        except Unsupported as error:
            reason = str(error)
        found.append(Variant({"provider": word}, reason, plugin.version if plugin else None))
    return found


def refusals(provider: Provider, device: str) -> dict[Precision, str | None]:
    """Every precision with None when the provider runs it on the device, else the reason why not."""
    try:
        there = _places(provider)
    except Unsupported as error:
        return dict.fromkeys(_ALL, str(error))
    if device not in there:
        where = f"runs on {' and '.join(there)}" if there else "finds no device here"
        return dict.fromkeys(_ALL, f"the provider {provider.word} {where}, asked for {device!r}")
    return _by_word(provider, there[device])


def settings(
    provider: Provider, device: str, precision: Precision, threads: int, in_flight: int, profiled: bool
) -> dict[str, str]:
    """The provider's own options.

    Args:
        provider: The provider.
        device: One of its devices.
        precision: One that `refusals` allows.
        threads: In all.
        in_flight: How many requests share them.
        profiled: Whether times of the parts of compiled nodes are wanted.
    """
    number = device.partition(":")[2] or "0"
    if provider.word == "openvino":
        config = {
            "INFERENCE_PRECISION_HINT": _OPENVINO_FLOATS[precision],
            "INFERENCE_NUM_THREADS": str(threads),
            "NUM_STREAMS": "1" if profiled else str(in_flight),
        }
        if profiled and provider.plugin:
            config["PERF_COUNT"] = "YES"
        kind = "CPU" if device == "cpu" else device.split(":")[0].upper()
        if kind != "CPU":
            del config["INFERENCE_NUM_THREADS"]
        found = {"load_config": json.dumps({kind: config})}
        return found if provider.plugin else {"device_type": kind, **found}
    # The device of a plug-in is chosen by the vendor's object for it.
    place = {} if provider.plugin else {"device_id": number}
    if provider.word == "cuda":
        return {**place, "use_tf32": "1" if precision == "tf32" else "0"}
    if provider.plugin:
        return {}
    if provider.word == "tensorrt":
        asked = {f"trt_{name}_enable": "1" if precision == name else "0" for name in ("fp16", "bf16", "int8")}
        return {**place, **asked}
    return place if provider.word == "nv-tensorrt-rtx" else {}


# Which of the two a process has settled on: the libraries may read the variable once.
_tf32_settled: list[Precision] = []


def settle_tf32(provider: Provider, precision: Precision) -> None:
    """See to it that fp32 is not computed in tf32, nor tf32 in fp32.

    TensorRT allows tf32 unless ``NVIDIA_TF32_OVERRIDE`` is 0, and its providers have no option for it.

    Source: NVIDIA's TensorRT documentation on TF32: 0 overrides what programs set in NVIDIA's libraries.

    Raises:
        Unsupported: The environment, or an earlier session of this process, says otherwise.
    """
    if provider.word not in _OF_NVIDIA or precision not in ("fp32", "tf32"):
        return
    forced = os.environ.get("NVIDIA_TF32_OVERRIDE")
    if forced is not None and (forced == "0") != (precision == "fp32"):
        raise Unsupported(
            f"onnxruntime: NVIDIA_TF32_OVERRIDE={forced} rules {precision} out in this process: "
            f"measure it in a process of its own, without the variable"
        )
    if provider.word != "cuda":
        if [other for other in _tf32_settled if other != precision]:
            raise Unsupported(
                f"onnxruntime: this process has run the provider {provider.word} in another of fp32 and tf32 "
                f"than {precision}: measure it in a process of its own"
            )
        _tf32_settled.append(precision)
        if precision == "fp32":
            os.environ["NVIDIA_TF32_OVERRIDE"] = "0"


def _more_than_a_cpu() -> bool:
    listed = vendor.get_hardware_devices() if hasattr(vendor, "get_hardware_devices") else ()
    return any(not str(device.type).endswith("CPU") for device in listed)


def _places(provider: Provider) -> dict[str, Any]:
    """The devices that a provider runs on by name, those of plug-ins with the vendor's object.

    Raises:
        Unsupported: The provider is not to be had here, and the message says how to get it; or this
            onnxruntime does not tell which nodes a provider takes: others could compute in its name.
    """
    if provider.word != "cpu" and not hasattr(vendor.InferenceSession, "get_provider_graph_assignment_info"):
        raise Unsupported(
            f"onnxruntime {onnxruntime.__version__} does not tell which nodes {provider.name} takes: "
            f"pip install -U 'onnxruntime>=1.24'"
        )
    if provider.plugin:
        return places(registered(provider.plugin))
    if provider.name not in onnxruntime.get_available_providers():
        raise Unsupported(
            f"the provider {provider.word} is not installed: pip install {_PACKAGES[provider.word]}"
        )
    if provider.word in _OF_NVIDIA:
        return dict.fromkeys(gpu.name for gpu in cuda_gpus())
    return {"cpu": None}


def _by_word(provider: Provider, device: Any) -> dict[Precision, str | None]:
    if provider.word == "openvino":
        return _of_openvino(device)
    untold: dict[Precision, str | None] = {
        precision: _UNTOLD.format(provider.word, precision) for precision in _ALL
    }
    bf16 = _TYPES_OF_FILE.format("bf16")
    tables: dict[str, dict[Precision, str | None]] = {
        "cpu": {
            "fp32": None,
            "tf32": _NO_TF32,
            "fp16": _NO_KERNELS.format("fp16"),
            "bf16": _NO_KERNELS.format("bf16"),
            "int8": None,
        },
        "cuda": {"fp32": None, "tf32": None, "fp16": None, "bf16": bf16, "int8": _NO_INTEGERS},
        "tensorrt": dict.fromkeys(_ALL),
        "nv-tensorrt-rtx": {**dict.fromkeys(_ALL), "bf16": bf16},
        "webgpu": {**untold, "fp32": None, "tf32": _NO_TF32, "fp16": None},
    }
    return tables.get(provider.word, {**untold, "fp32": None})


def _of_openvino(device: Any) -> dict[Precision, str | None]:
    """By what OpenVINO lists for the device; the built-in provider does not show it: fp32 and int8 alone."""
    listed = "INT8" if device is None else str(device.ep_metadata.get("OPTIMIZATION_CAPABILITIES", ""))
    found: dict[Precision, str | None] = {"fp32": None, "tf32": _NO_TF32}
    for precision, capability in _CAPABILITIES.items():
        found[precision] = None if capability in listed.split() else _UNLISTED.format(precision)
    return found

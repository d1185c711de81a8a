"""What OpenVINO is told for a session, and what it settled on.

Nothing here imports OpenVINO: its core and its compiled model are handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferometer.engines.openvino.devices import FLOATS, int8_float, is_cpu, properties
from inferometer.engines.options import copied, only, whole, word
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import Unsupported
from inferometer.records import Precision

__all__ = ["config_of", "float_option", "settled"]

_OPTIONS = ("threads", "hint", "in_flight", "streams", "float", "copies")
_WAYS = ("throughput", "latency")
# Left alone, OpenVINO computes in bf16 wherever a CPU can, and in f16 on GPUs; so it is said each time.
_ARITHMETIC: dict[Precision, str] = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}

# Our words for what a compiled model says of itself, and OpenVINO's property.
_SETTLED = {
    "execution_devices": "EXECUTION_DEVICES",
    "inference_precision": "INFERENCE_PRECISION_HINT",
    "performance_hint": "PERFORMANCE_HINT",
    "execution_mode": "EXECUTION_MODE_HINT",
    "requests": "OPTIMAL_NUMBER_OF_INFER_REQUESTS",
    "streams": "NUM_STREAMS",
    "threads": "INFERENCE_NUM_THREADS",
    "cpu_pinning": "ENABLE_CPU_PINNING",
    "hyper_threading": "ENABLE_HYPER_THREADING",
    "core_type": "SCHEDULING_CORE_TYPE",
    "denormals_flushed": "CPU_DENORMALS_OPTIMIZATION",
    "dynamic_quantization_group_size": "DYNAMIC_QUANTIZATION_GROUP_SIZE",
    "runtime_requirements": "RUNTIME_REQUIREMENTS",
}


def config_of(core: Any, name: str, precision: Precision, options: Mapping[str, Any]) -> dict[str, Any]:
    """The properties to compile with: those alone that the device's plug-in lists.

    Args:
        core: OpenVINO's.
        name: OpenVINO's name of the device.
        precision: One that the device can run.
        options: See ``OpenVinoEngine.load``.

    Raises:
        EngineError: An option, or its value, is not known.
        Unsupported: The device has nothing of what an option asks for.
    """
    only("openvino", options, _OPTIONS)
    if not copied("openvino", options) and not is_cpu(name):
        raise Unsupported(
            f"openvino on {name}: a call spans its transfers, they are not told apart: leave copies included"
        )
    known = properties(core, name)
    threads, in_flight, streams = (
        whole("openvino", options, key) for key in ("threads", "in_flight", "streams")
    )
    float_ = int8_float(core, name, float_option(options))
    config: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": _ARITHMETIC.get(precision, float_),
        "PERFORMANCE_HINT": (word("openvino", options, "hint", _WAYS) or "throughput").upper(),
        "INFERENCE_NUM_THREADS": threads or usable_cores(),
    }
    if threads is not None and not is_cpu(name):
        config["COMPILATION_NUM_THREADS"] = threads
    if precision != "int8":
        # Left alone, it may round to 8 bits what meets compressed weights.
        config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    if in_flight == 1:
        config["PERFORMANCE_HINT"] = "LATENCY"
    elif in_flight is not None:
        config["PERFORMANCE_HINT_NUM_REQUESTS"] = in_flight
    if streams is not None:
        if "NUM_STREAMS" not in known:
            raise Unsupported(f"openvino on {name}: streams: the device has none to set")
        if in_flight != 1:  # one request alone would be left with one stream's part of the threads
            config["NUM_STREAMS"] = streams
    config["NPU_BYPASS_UMD_CACHING"] = True  # the driver would keep what it compiled
    config = {key: value for key, value in config.items() if key in known}
    if not is_cpu(name):
        # The core's own: at the throughput hint it would gather requests to batches of another size.
        config["ALLOW_AUTO_BATCHING"] = False
    return config


def float_option(options: Mapping[str, Any]) -> str | None:
    """The option ``float``, checked."""
    return word("openvino", options, "float", FLOATS)


def settled(compiled: Any) -> dict[str, Any]:
    """What a compiled model says of how it runs, in plain values; what it does not list is left out."""
    listed = compiled.get_property("SUPPORTED_PROPERTIES")
    return {ours: _plain(compiled.get_property(name)) for ours, name in _SETTLED.items() if name in listed}


def _plain(value: Any) -> Any:
    """A property as JSON holds it; OpenVINO's enumerations and element types by their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "get_type_name"):
        return str(value.get_type_name())
    return str(getattr(value, "name", value))

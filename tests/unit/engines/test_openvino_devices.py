"""OpenVINO's devices by a core that lists GPUs and an NPU: its library is not needed."""

from __future__ import annotations

from typing import Any

import pytest

from inferometer.contracts import Device
from inferometer.engines.openvino.devices import int8_float, listed, precisions, vendor_name
from inferometer.engines.openvino.options import config_of, settled
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import EngineError, Unsupported

HINTS = ("INFERENCE_PRECISION_HINT", "PERFORMANCE_HINT", "PERFORMANCE_HINT_NUM_REQUESTS", "NUM_STREAMS")
CPU = {
    "FULL_DEVICE_NAME": "A CPU ",
    "OPTIMIZATION_CAPABILITIES": ["FP32", "INT8", "BIN"],
    "SUPPORTED_PROPERTIES": [*HINTS, "INFERENCE_NUM_THREADS", "DYNAMIC_QUANTIZATION_GROUP_SIZE"],
}
GPU = {
    "FULL_DEVICE_NAME": "A GPU (dGPU)",
    "DEVICE_UUID": "8680a0560800000003000000",
    "OPTIMIZATION_CAPABILITIES": ["FP32", "BIN", "FP16", "INT8", "GPU_HW_MATMUL"],
    "SUPPORTED_PROPERTIES": [
        *HINTS, "DEVICE_UUID", "COMPILATION_NUM_THREADS", "DYNAMIC_QUANTIZATION_GROUP_SIZE",
    ],
}  # fmt: skip
NPU = {
    "FULL_DEVICE_NAME": "",
    "OPTIMIZATION_CAPABILITIES": ["FP16", "INT8"],
    "SUPPORTED_PROPERTIES": [*HINTS[:3], "NPU_BYPASS_UMD_CACHING"],
}


class Core:
    """As openvino.Core, with devices of a machine that has more than this one."""

    def __init__(self, **devices: dict[str, Any]) -> None:
        self.devices = {name.replace("_", "."): found for name, found in devices.items()}

    @property
    def available_devices(self) -> list[str]:
        return list(self.devices)

    def get_property(self, device: str, name: str) -> Any:
        return self.devices[device][name]


MANY = Core(GPU_0=GPU, GPU_1=GPU, NPU=NPU, CPU=CPU)


def test_devices_have_our_names_and_the_cpu_is_first() -> None:
    uuid = "8680a0560800000003000000"
    assert listed(MANY) == [
        Device("cpu", "A CPU"),
        Device("gpu:0", "A GPU (dGPU)", uuid),
        Device("gpu:1", "A GPU (dGPU)", uuid),
        Device("npu", "NPU of unknown model"),
    ]
    assert [device.name for device in listed(Core(CPU=CPU, GPU=GPU))] == ["cpu", "gpu"]


@pytest.mark.parametrize(
    ("device", "name"), [("cpu", "CPU"), ("gpu:0", "GPU.0"), ("gpu:1", "GPU.1"), ("npu", "NPU")]
)
def test_names_lead_back_to_openvinos(device: str, name: str) -> None:
    assert vendor_name(MANY, device) == name


@pytest.mark.parametrize(
    ("core", "device", "message"),
    [
        (MANY, "gpu:2", "there is no device 'gpu:2'; did you mean 'gpu:1'"),
        (MANY, "GPU.0", "there is no device 'GPU.0'; known are cpu, gpu:0, gpu:1, npu"),
        (Core(CPU=CPU, GPU=GPU), "gpu:0", "there is no device 'gpu:0'; did you mean 'gpu'"),
        (Core(CPU=CPU), "cuda:0", "there is no device 'cuda:0'; known are cpu"),
    ],
)
def test_devices_that_are_not_listed_are_refused(core: Core, device: str, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        vendor_name(core, device)


def test_precisions_are_those_that_the_device_lists() -> None:
    cpu, gpu, npu = (precisions(MANY, name, None) for name in ("CPU", "GPU.0", "NPU"))
    assert {name for name, reason in cpu.items() if reason is None} == {"fp32", "int8"}
    assert cpu["bf16"] == "OpenVINO lists no bf16 for this CPU: at best it would emulate it"
    assert {name for name, reason in gpu.items() if reason is None} == {"fp32", "fp16", "int8"}
    assert gpu["bf16"] == "OpenVINO lists no bf16 for this GPU"
    assert {name for name, reason in npu.items() if reason is None} == {"fp16", "int8"}
    assert npu["fp32"] == "OpenVINO lists no fp32 for this NPU"


def test_int8_needs_the_float_arithmetic_that_is_asked_for() -> None:
    assert precisions(MANY, "CPU", "bf16")["int8"] == (
        "float: bf16: OpenVINO lists no bf16 for this CPU: at best it would emulate it"
    )
    assert precisions(MANY, "GPU.0", "f16")["int8"] is None
    assert [int8_float(MANY, name, None) for name in ("CPU", "GPU.0", "NPU")] == ["f32", "f32", "f16"]


def test_a_plug_in_that_cannot_be_told_the_arithmetic_runs_nothing() -> None:
    silent = Core(NPU=NPU | {"SUPPORTED_PROPERTIES": ["PERFORMANCE_HINT"]})
    reasons = precisions(silent, "NPU", None)
    assert None not in reasons.values()
    assert "takes no INFERENCE_PRECISION_HINT" in str(reasons["fp16"])


def test_only_what_the_plug_in_lists_is_set() -> None:
    assert config_of(MANY, "CPU", "fp32", {"threads": 3}) == {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "THROUGHPUT",
        "INFERENCE_NUM_THREADS": 3,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }
    assert config_of(MANY, "GPU.0", "int8", {"threads": 3, "in_flight": 4, "float": "f16"}) == {
        "INFERENCE_PRECISION_HINT": "f16",
        "PERFORMANCE_HINT": "THROUGHPUT",
        "PERFORMANCE_HINT_NUM_REQUESTS": 4,
        "COMPILATION_NUM_THREADS": 3,
        "ALLOW_AUTO_BATCHING": False,
    }
    assert config_of(MANY, "NPU", "int8", {"in_flight": 1}) == {
        "INFERENCE_PRECISION_HINT": "f16",
        "PERFORMANCE_HINT": "LATENCY",
        "NPU_BYPASS_UMD_CACHING": True,
        "ALLOW_AUTO_BATCHING": False,
    }
    assert config_of(MANY, "CPU", "int8", {})["INFERENCE_NUM_THREADS"] == usable_cores()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_float_option_says_nothing_of_other_precisions(precision: Any) -> None:
    arithmetic = config_of(MANY, "GPU.0", precision, {"float": "bf16"})["INFERENCE_PRECISION_HINT"]
    assert arithmetic == {"fp32": "f32", "fp16": "f16"}[precision]


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("GPU.0", {"copies": "excluded"}, Unsupported, "a call spans its transfers"),
        ("CPU", {"copies": "some"}, EngineError, "copies: 'some' is not known; known are excluded, included"),
        ("CPU", {"float": "fp16"}, EngineError, "float: 'fp16' is not known; did you mean 'f16'"),
        ("CPU", {"streams": True}, EngineError, "streams: wants a whole number from 1 to 4096: True"),
        ("NPU", {"streams": 2}, Unsupported, "streams: the device has none to set"),
        ("CPU", {"stream": 2}, EngineError, "unknown option 'stream'; did you mean 'streams'"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(
    name: str, options: dict[str, Any], error: type[EngineError], message: str
) -> None:
    with pytest.raises(error, match=message):
        config_of(MANY, name, "int8", options)


def test_copies_change_nothing_on_the_cpu() -> None:
    usual = config_of(MANY, "CPU", "fp32", {})
    assert all(config_of(MANY, "CPU", "fp32", {"copies": way}) == usual for way in ("included", "excluded"))
    assert config_of(MANY, "GPU.1", "fp32", {"copies": "included"})


def test_what_was_settled_is_plain_and_only_what_is_listed() -> None:
    class Named:
        name = "ANY_CORE"

    class Type:
        def get_type_name(self) -> str:
            return "bf16"

    class Compiled:
        values = {  # noqa: RUF012
            "INFERENCE_PRECISION_HINT": Type(), "NUM_STREAMS": 2, "ENABLE_CPU_PINNING": False,
            "SCHEDULING_CORE_TYPE": Named(), "EXECUTION_DEVICES": ["GPU.0"], "LOG_LEVEL": 3,
        }  # fmt: skip

        def get_property(self, name: str) -> Any:
            return list(self.values) if name == "SUPPORTED_PROPERTIES" else self.values[name]

    assert settled(Compiled()) == {
        "execution_devices": ["GPU.0"],
        "inference_precision": "bf16",
        "streams": 2,
        "cpu_pinning": False,
        "core_type": "ANY_CORE",
    }

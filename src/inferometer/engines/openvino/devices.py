"""OpenVINO's devices under our names, and what each says that it can compute.

OpenVINO's ``CPU``, ``GPU``, ``GPU.0`` and ``NPU`` are our ``cpu``, ``gpu``, ``gpu:0`` and ``npu``: lower
case, with ``:`` before the number. A number is there exactly where OpenVINO lists one: with a single GPU it
lists ``GPU``, with two ``GPU.0`` and ``GPU.1``.

Nothing here imports OpenVINO: its core is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferometer.contracts import Device
from inferometer.errors import Unsupported, nearest
from inferometer.records import Precision

__all__ = ["FLOATS", "int8_float", "is_cpu", "kind_of", "listed", "precisions", "properties", "vendor_name"]

# What the arithmetic of floating-point layers is called: its sign among a device's capabilities.
FLOATS = {"f32": "FP32", "bf16": "BF16", "f16": "FP16"}
_NAMES: dict[str, Precision] = {"f32": "fp32", "bf16": "bf16", "f16": "fp16"}
_INSTEAD = {"fp16": ": it would run another", "bf16": ": at best it would emulate it"}


def listed(core: Any) -> list[Device]:
    """The devices that OpenVINO finds, the CPU first: every machine has it."""
    return [_device(core, name) for name in _found(core).values()]


def vendor_name(core: Any, device: str) -> str:
    """OpenVINO's name of one of our devices.

    Raises:
        Unsupported: There is no such device; the message offers the nearest.
    """
    found = _found(core)
    if device not in found:
        raise Unsupported(f"openvino: there is no device {device!r}{nearest(device, found)}")
    return found[device]


def kind_of(name: str) -> str:
    """``CPU``, ``GPU``, ``NPU`` of either form of a device's name."""
    return name.replace(":", ".").split(".")[0].upper()


def is_cpu(name: str) -> bool:
    """Whether the device is the host itself."""
    return kind_of(name) == "CPU"


def properties(core: Any, name: str) -> frozenset[str]:
    """The properties that a device's plug-in knows; ``name`` is OpenVINO's."""
    return frozenset(core.get_property(name, "SUPPORTED_PROPERTIES"))


def precisions(core: Any, name: str, asked: str | None) -> dict[Precision, str | None]:
    """Each precision with None where the device lists it, else the reason why not.

    Args:
        core: OpenVINO's.
        name: OpenVINO's name of the device.
        asked: The arithmetic asked for in float layers at int8, a key of ``FLOATS``; None for the usual one.
    """
    kind, can = kind_of(name), _capabilities(core, name)
    found: dict[Precision, str | None] = {"tf32": "tf32 is a format of NVIDIA GPUs"}
    if "INFERENCE_PRECISION_HINT" not in properties(core, name):
        reason = f"OpenVINO's plug-in for this {kind} takes no INFERENCE_PRECISION_HINT, so it chooses itself"
        return found | dict.fromkeys(("fp32", "fp16", "bf16", "int8"), reason)
    for float_, sign in FLOATS.items():
        wanted = _NAMES[float_]
        unlisted = f"OpenVINO lists no {wanted} for this {kind}"
        found[wanted] = (
            None if sign in can else unlisted + (_INSTEAD.get(wanted, "") if kind == "CPU" else "")
        )
    found["int8"] = None if "INT8" in can else f"OpenVINO lists no int8 for this {kind}"
    rest = int8_float(core, name, asked)
    if found["int8"] is None and found[_NAMES[rest]] is not None:
        found["int8"] = f"float: {rest}: {found[_NAMES[rest]]}"
    return found


def int8_float(core: Any, name: str, asked: str | None) -> str:
    """The arithmetic of float layers at int8: as asked, else f32, or f16 on a device without it."""
    can = _capabilities(core, name)
    return asked or ("f32" if "FP32" in can or "FP16" not in can else "f16")


def _found(core: Any) -> Mapping[str, str]:
    """OpenVINO's names by ours."""
    names = sorted(core.available_devices, key=lambda name: not is_cpu(name))
    return {name.lower().replace(".", ":"): name for name in names}


def _device(core: Any, name: str) -> Device:
    described = str(core.get_property(name, "FULL_DEVICE_NAME")).strip()
    uuid = str(core.get_property(name, "DEVICE_UUID")) if "DEVICE_UUID" in properties(core, name) else None
    return Device(
        name.lower().replace(".", ":"), described or f"{kind_of(name)} of unknown model", uuid or None
    )


def _capabilities(core: Any, name: str) -> frozenset[str]:
    return frozenset(core.get_property(name, "OPTIMIZATION_CAPABILITIES"))

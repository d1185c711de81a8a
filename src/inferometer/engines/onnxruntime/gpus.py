"""NVIDIA's GPUs as CUDA counts them, by the driver itself: ONNX Runtime's ``device_id`` is that number.

Source: the CUDA Driver API reference (``cuDeviceGet``, ``cuDeviceGetName``, ``cuDeviceGetUuid``).
"""

from __future__ import annotations

import ctypes
import functools
import uuid

from inferometer.contracts import Device

__all__ = ["cuda_gpus"]

_DRIVER = "libcuda.so.1"


@functools.cache
def cuda_gpus() -> tuple[Device, ...]:
    """The GPUs that CUDA shows to this process, as ``cuda:0`` and so on; empty without a driver or GPU."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return tuple(_gpu(driver, index) for index in range(count.value))


def _gpu(driver: ctypes.CDLL, index: int) -> Device:
    handle, name, board = ctypes.c_int(), ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    if driver.cuDeviceGet(ctypes.byref(handle), index):
        return Device(f"cuda:{index}", "GPU of unknown model")
    named = not driver.cuDeviceGetName(name, len(name), handle)
    known = not driver.cuDeviceGetUuid(ctypes.byref(board), handle)
    return Device(
        f"cuda:{index}",
        name.value.decode(errors="replace") if named else "GPU of unknown model",
        f"GPU-{uuid.UUID(bytes=bytes(board))}" if known else None,
    )

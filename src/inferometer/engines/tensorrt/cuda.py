"""What an engine of NVIDIA's needs of CUDA's runtime: devices, memory, streams and graphs.

The runtime's Python binding (package ``cuda-bindings``) is handed in; each of its functions returns a status
and then its results.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.contracts import Device
from inferometer.errors import EngineError, OutOfMemory

__all__ = ["Cuda", "Gpu", "pinned"]

# Source: the CUDA runtime's enumeration cudaError.
_NO_MEMORY = 2

_NO_DRIVER = 35  # Source: driver_types.h, cudaErrorInsufficientDriver: also where there is none at all


@dataclass(frozen=True)
class Gpu:
    """One device as CUDA numbers it; ``capability`` is (major, minor)."""

    index: int
    name: str
    uuid: str | None
    capability: tuple[int, int]

    @property
    def device(self) -> Device:
        """As engines list it."""
        return Device(f"cuda:{self.index}", self.name, self.uuid)


@dataclass(frozen=True)
class Cuda:
    """CUDA's runtime; a status other than success is an error that begins with ``label``."""

    runtime: Any
    label: str = "CUDA"

    def named(self, label: str) -> Cuda:
        """The same runtime, whose errors speak of ``label``."""
        return Cuda(self.runtime, label)

    def call(self, function: str, *arguments: Any) -> Any:
        """What a function of the runtime returns: nothing, a value or a tuple of them.

        Raises:
            OutOfMemory: The device, or the host's memory that it can reach, has none left.
            EngineError: Any other status than success.
        """
        status, *values = getattr(self.runtime, function)(*arguments)
        self.check(status, function)
        return values[0] if len(values) == 1 else tuple(values)

    def check(self, status: Any, function: str) -> None:
        """Raise what a status stands for.

        Raises:
            OutOfMemory: As `call`.
            EngineError: As `call`.
        """
        if int(status) == 0:
            return
        self.runtime.cudaGetLastError()  # or a later call, of whomever, would report it once more
        said = f"{self.label}: {function} of CUDA failed: {self.said(status)}"
        raise OutOfMemory(said) if int(status) == _NO_MEMORY else EngineError(said)

    def said(self, status: Any) -> str:
        """CUDA's own words for a status."""
        _, text = self.runtime.cudaGetErrorString(status)
        return f"{_text(text)} (error {int(status)})"

    def gpus(self) -> tuple[tuple[Gpu, ...], str | None]:
        """The devices, and why there are none."""
        status, count = self.runtime.cudaGetDeviceCount()
        if int(status) == _NO_DRIVER:
            return (), "CUDA finds no driver of NVIDIA's, or one that is too old for this library"
        if int(status) != 0:
            return (), f"CUDA shows no GPU: {self.said(status)}"
        if not count:
            return (), "CUDA shows no GPU"
        return tuple(self._gpu(index) for index in range(count)), None

    def _gpu(self, index: int) -> Gpu:
        facts = self.call("cudaGetDeviceProperties", index)
        capability = (int(facts.major), int(facts.minor))
        return Gpu(index, _text(facts.name), _uuid(bytes(facts.uuid.bytes)), capability)

    def driver(self) -> str:
        """The newest CUDA that the driver serves, ``13.0`` for example.

        Source: cudaDriverGetVersion counts 1000 times the major and 10 times the minor version.
        """
        number = int(self.call("cudaDriverGetVersion"))
        return f"{number // 1000}.{number % 1000 // 10}"

    def free_bytes(self) -> int:
        """Free memory of the current device."""
        return int(self.call("cudaMemGetInfo")[0])

    def copy(self, target: int, source: int, size: int, direction: str, stream: Any) -> None:
        """Copy ``size`` bytes in a stream; ``direction`` is ``HostToDevice`` or ``DeviceToHost``."""
        kind = getattr(self.runtime.cudaMemcpyKind, f"cudaMemcpy{direction}")
        self.call("cudaMemcpyAsync", target, source, size, kind, stream)


def pinned(address: int, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """Memory of the host at an address as an array."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * max(size, 1)).from_address(address))
    return raw[:size].view(dtype).reshape(shape)


def _text(value: bytes | str) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return text.split("\0")[0].strip()


def _uuid(raw: bytes) -> str | None:
    """As NVML spells it."""
    digits = raw[:16].hex()
    if not digits.strip("0"):
        return None
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

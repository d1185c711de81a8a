"""NVIDIA GPUs through NVML (package nvidia-ml-py), when it is there.

The vendor's library is imported inside one function: an inventory is taken on machines without it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inferometer.environment.facts import Absent, Facts, Reasons, gather, under

__all__ = ["GpuFacts", "gpu_facts"]


class GpuFacts(Facts):
    """One GPU; a field is ``None`` where its driver does not answer.

    Attributes:
        index: NVML's index, which is not CUDA's: match devices by UUID or bus id.
        name: Product name.
        uuid: The board's identifier.
        pci_bus_id: ``domain:bus:device.function``.
        memory_bytes: Memory of the board.
        driver: Driver version.
        power_limit_w: The limit that is enforced now.
        mig_mode: Whether the board is split into instances (MIG).
    """

    index: int
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    memory_bytes: int | None
    driver: str | None
    power_limit_w: float | None
    mig_mode: bool | None


def gpu_facts() -> tuple[tuple[GpuFacts, ...], Reasons]:
    """All GPUs that NVML shows.

    Returns:
        The GPUs by index, and reasons under ``INDEX.FIELD``; with no GPU, one reason under the empty name.
    """
    try:
        import pynvml
    except ImportError:
        return (), {"": "the package nvidia-ml-py is not installed: pip install 'inferometer[nvml]'"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return (), {"": f"NVML does not start: {error}"}
    try:
        return _all_gpus(pynvml)
    except pynvml.NVMLError as error:
        return (), {"": f"NVML does not list the GPUs: {error}"}
    finally:
        pynvml.nvmlShutdown()


def _all_gpus(nvml: Any) -> tuple[tuple[GpuFacts, ...], Reasons]:
    gpus: list[GpuFacts] = []
    reasons: Reasons = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu, missing = _one_gpu(nvml, index)
        gpus.append(gpu)
        reasons |= under(str(index), missing)
    return tuple(gpus), reasons if gpus else {"": "NVML starts but shows no GPU"}


def _one_gpu(nvml: Any, index: int) -> tuple[GpuFacts, Reasons]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(question: Callable[[], object]) -> object:
        # Each board answers some questions only, so each is asked on its own.
        try:
            return question()
        except nvml.NVMLError as error:
            return Absent(f"NVML: {error}")

    return gather(
        GpuFacts,
        {
            "index": index,
            "name": ask(lambda: _text(nvml.nvmlDeviceGetName(handle))),
            "uuid": ask(lambda: _text(nvml.nvmlDeviceGetUUID(handle))),
            "pci_bus_id": ask(lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
            "memory_bytes": ask(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
            "driver": ask(lambda: _text(nvml.nvmlSystemGetDriverVersion())),
            # NVML counts milliwatts.
            "power_limit_w": ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
            # A pair: the mode now, and the one after the next reset.
            "mig_mode": ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE),
        },
    )


def _text(value: str | bytes) -> str:
    # Bindings before 11.515 answer bytes.
    return value.decode() if isinstance(value, bytes) else value

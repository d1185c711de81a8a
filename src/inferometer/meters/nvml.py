"""Power of NVIDIA GPUs by their own sensors, through NVML (package nvidia-ml-py).

Boards of the A100's and H100's kind look at their power a quarter of the time only: windows of at least
5 s and several repeats even that out. The sensors' scale is off by about 5 %, which nothing evens out
(`nvml_gpu.GAIN_ERROR`). Source: arXiv 2312.02741.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pynvml

from inferometer.contracts import Channel, MeterSession, MeterStatus
from inferometer.errors import ConfigError, brief, nearest
from inferometer.meters.nvml_gpu import Board, Line, Refused, Wired, board, wire

__all__ = ["NvmlMeter", "NvmlSession"]

_OPTIONS = ("devices",)


class NvmlMeter:
    """NVIDIA GPUs.

    The option ``devices`` is a list of UUIDs, of their beginnings where one GPU alone has it, or of PCI bus
    ids. Absent: the GPUs that CUDA_VISIBLE_DEVICES leaves. Whole numbers in that variable count in CUDA's
    order, which is NVML's (that of PCI bus ids) if CUDA_DEVICE_ORDER is PCI_BUS_ID or the GPUs are all
    alike; elsewhere they do not tell which GPU is meant, unless they name all, and are refused.
    """

    @property
    def name(self) -> str:
        """The entry-point name."""
        return "nvml"

    def status(self, options: Mapping[str, Any]) -> Sequence[MeterStatus]:
        """One entry per GPU that is asked for, or one for NVML itself when it shows none.

        Raises:
            ConfigError: An option is not known, or does not take its value.
        """
        devices = _devices(options)
        try:
            with ExitStack() as stack:
                return [_status(gpu) for gpu in _started(stack, devices)]
        except Refused as error:
            return [MeterStatus("NVML", reason=error.reason, remedy=error.remedy)]

    def open(self, options: Mapping[str, Any]) -> NvmlSession:
        """Start NVML and try what each GPU answers.

        Where ``devices`` is absent, GPUs that cannot be measured are left out as long as one can.

        Raises:
            ConfigError: An option is not known, or does not take its value.
            MeterError: There is no driver or GPU, or a GPU must not be measured (MIG, vGPU).
        """
        devices = _devices(options)
        with ExitStack() as stack:
            wired, left_out = _wire_all(_started(stack, devices), named=devices is not None)
            facts: dict[str, Any] = {
                "driver": _driver(),
                "gpus": {uuid: found.facts for uuid, found in wired.items()},
            }
            if left_out:
                facts["left_out"] = left_out
            lines = [line for found in wired.values() for line in found.lines]
            return NvmlSession(lines, facts, stack.pop_all().close)


class NvmlSession(MeterSession):
    """Open channels of one or more GPUs."""

    def __init__(self, lines: Sequence[Line], facts: Mapping[str, Any], close: Callable[[], None]) -> None:
        """Take what `NvmlMeter.open` found; ``close`` lets go of NVML."""
        self.channels: tuple[Channel, ...] = tuple(line.channel for line in lines)
        self.facts = facts
        self._reads = [line.read for line in lines]
        self._close = close

    def read(self, place: int) -> float:
        """One reading, in SI units.

        Raises:
            MeterError: The GPU gives none this time, or is lost.
        """
        return self._reads[place]()

    def close(self) -> None:
        """Let go of NVML."""
        self._close()


def _devices(options: Mapping[str, Any]) -> list[str] | None:
    for key in sorted(options.keys() - set(_OPTIONS)):
        raise ConfigError(f"nvml: unknown option {key!r}{nearest(key, _OPTIONS)}")
    devices = options.get("devices")
    if devices is None:
        return None
    if not isinstance(devices, list | tuple) or not devices:
        raise ConfigError(f"nvml: devices: wants a list of GPUs' UUIDs or PCI bus ids: {devices!r}")
    for device in devices:
        if not isinstance(device, str) or not device.strip():
            raise ConfigError(
                f"nvml: devices: wants UUIDs or PCI bus ids (nvidia-smi -L tells the UUIDs): {device!r}"
            )
    return [device.strip() for device in devices]


def _started(stack: ExitStack, devices: Sequence[str] | None) -> list[Board]:
    """Start NVML until ``stack`` closes; the GPUs that are asked for.

    Raises:
        ConfigError: A beginning of a UUID fits several.
        Refused: There is no driver, no GPU, or not that GPU.
    """
    try:
        pynvml.nvmlInit()
        stack.callback(_stop)
        boards = [board(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise _no_start(error) from error
    if not boards:
        raise Refused("it starts but shows no GPU", "in a container, start it with --gpus all")
    return _visible(boards, os.environ) if devices is None else _asked(boards, devices)


def _stop() -> None:
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def _no_start(error: pynvml.NVMLError) -> Refused:
    known = {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
            "the driver's library libnvidia-ml.so.1 is not here",
            "install NVIDIA's driver, or start the container with --gpus all",
        ),
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: ("NVIDIA's driver is not loaded", "sudo modprobe nvidia"),
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "the driver's library and its kernel module are of different versions",
            "restart the machine",
        ),
    }
    return Refused(
        *known.get(error.value, (f"it does not start: {brief(error)}", "see what nvidia-smi says"))
    )


def _asked(boards: Sequence[Board], devices: Sequence[str]) -> list[Board]:
    """The GPUs named by the option, each once, in its order."""
    found: dict[int, Board] = {}
    for device in devices:
        _no_instance(device)
        fits = [gpu for gpu in boards if _begins(gpu, device) or (gpu.pci and gpu.pci == _pci(device))]
        if len(fits) > 1:
            raise ConfigError(f"nvml: devices: {device!r} fits {len(fits)} GPUs: give more of the UUID")
        if not fits:
            raise Refused(
                f"there is no GPU {device!r}", f"there are {', '.join(gpu.subject for gpu in boards)}"
            )
        found[fits[0].index] = fits[0]
    return list(found.values())


def _visible(boards: Sequence[Board], environment: Mapping[str, str]) -> list[Board]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, all if it is not set.

    Source: CUDA C++ Programming Guide, environment variables: what follows an entry that names no GPU is
    hidden.
    """
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(boards)
    found: dict[int, Board] = {}
    counted = False
    for word in (part.strip() for part in text.split(",")):
        _no_instance(word)
        by_number = re.fullmatch(r"[0-9]+", word) is not None
        fits = [gpu for gpu in boards if (gpu.index == int(word) if by_number else _begins(gpu, word))]
        if len(fits) != 1:
            break
        counted |= by_number
        found[fits[0].index] = fits[0]
    if not found:
        raise Refused(
            f"CUDA_VISIBLE_DEVICES={text!r} hides every GPU", "unset it, or name GPUs by the option 'devices'"
        )
    alike = len({gpu.name for gpu in boards}) == 1
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if counted and len(found) < len(boards) and not (alike or by_bus):
        raise Refused(
            f"CUDA_VISIBLE_DEVICES={text!r} does not tell which of several unlike GPUs is meant,"
            " since CUDA counts them in an order of its own",
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or give UUIDs instead of numbers",
        )
    return list(found.values())


def _no_instance(device: str) -> None:
    if device.upper().startswith("MIG-"):
        raise Refused(
            f"{device!r} is a MIG instance, and power is that of the whole board",
            "switch MIG off and measure the whole GPU",
        )


def _begins(gpu: Board, text: str) -> bool:
    return bool(text) and gpu.uuid.lower().startswith(text.lower())


def _pci(text: str) -> tuple[int, int, int] | None:
    """Domain, bus and device of a bus id such as ``0000:3B:00.0`` (any number of zeros ahead)."""
    match = re.fullmatch(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.0)?", text.lower())
    return (int(match[1] or "0", 16), int(match[2], 16), int(match[3], 16)) if match else None


def _wire_all(boards: Sequence[Board], *, named: bool) -> tuple[dict[str, Wired], dict[str, str]]:
    """What the GPUs answer by UUID, and the reasons by name for those that are left out."""
    wired: dict[str, Wired] = {}
    refusals: dict[str, Refused] = {}
    for gpu in boards:
        try:
            wired[gpu.uuid] = wire(gpu)
        except Refused as refusal:
            if named:
                raise
            refusals[gpu.subject] = refusal
    if not wired:
        raise next(iter(refusals.values()))
    return wired, {subject: refusal.reason for subject, refusal in refusals.items()}


def _driver() -> str | None:
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def _status(gpu: Board) -> MeterStatus:
    try:
        channels = [line.channel for line in wire(gpu).lines]
    except Refused as error:
        return MeterStatus(gpu.subject, reason=error.reason, remedy=error.remedy)
    return MeterStatus(gpu.subject, reads=tuple(_in_words(channel) for channel in channels))


def _in_words(channel: Channel) -> str:
    if channel.quantity == "energy":
        return "energy counter"
    if channel.quantity == "power" and channel.semantics == "instantaneous":
        return "instantaneous power"
    if channel.quantity == "power":
        return f"power ({channel.semantics})"
    return channel.quantity.replace("_", " ")

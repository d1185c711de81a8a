"""One GPU through NVML: whether its board's power can be measured, what it answers, and how that is read.

Every question is tried once when the meter opens, rather than looked up by architecture: what a driver
answers differs within one. What it does not answer is left out, with its words for the record.

Source: NVML API Reference Guide; periods and steps as measured on an H200 (driver 580.159), where a call to
the energy counter takes 3 ms, any other 0.01 ms, and power and energy have a new value every 0.1 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from inferometer.contracts import Channel, Quantity
from inferometer.errors import MeterError

__all__ = ["GAIN_ERROR", "Board", "Line", "Refused", "Wired", "board", "wire"]

POWER_PERIOD_S = 0.1
"""Between readings of power: as often as the value changes."""

ENERGY_PERIOD_S = 1.0
"""Between readings of the energy counter, whose call is dear; nothing is lost between two of them."""

CONDITION_PERIOD_S = 1.0
"""Between readings of temperature, clock, clock events and performance state."""

SLOW_PERIOD_S = 2.0
"""Between readings of the power limit and the number of processes, which seldom change."""

GAIN_ERROR = 0.05
"""Relative error of the board's own sensors. Source: arXiv 2312.02741."""

_POWER_INSTANT = 186
"""NVML_FI_DEV_POWER_INSTANT, in mW. Source: nvml.h."""

_SCOPE_GPU, _SCOPE_MODULE = 0, 1
"""NVML_POWER_SCOPE_GPU, NVML_POWER_SCOPE_MODULE. Source: nvml.h."""

_UNKNOWN_STATE = 32
"""NVML_PSTATE_UNKNOWN. Source: nvml.h."""

_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""Member of nvmlValue_t by nvmlValueType_t. Source: nvml.h."""

_STEPS_S = {(9, 0): 0.1}
"""How often power and energy change, by compute capability, where it was measured."""

_MODULES = ("GH200", "GB200")
"""Products whose energy counter covers the module: GPU and CPU together."""

_GPU, _MODULE = "GPU board", "GPU module"

Ask = Callable[[Any], float]
"""Asks a GPU (NVML's handle) for a value in SI units; NVMLError or MeterError if there is none."""


class Refused(MeterError):
    """Why there is nothing to measure, and what to do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        """Keep both; ``str`` joins them."""
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        """One line."""
        return f"NVML: {self.reason}; {self.remedy}"


@dataclass(frozen=True)
class Board:
    """One GPU as NVML lists it.

    Attributes:
        index: NVML's, which is the order of PCI bus ids and not CUDA's unless CUDA is told so.
        handle: NVML's, None for a GPU that does not answer.
        name: Product name.
        uuid: ``GPU-...``.
        pci: Domain, bus and device on the PCI bus.
        capability: CUDA's compute capability, where the driver tells.
        refusal: Why its power must not be measured here, if so.
    """

    index: int
    handle: Any
    name: str
    uuid: str
    pci: tuple[int, int, int] | None
    capability: tuple[int, int] | None
    refusal: Refused | None

    @property
    def subject(self) -> str:
        """Its name and UUID, for messages."""
        return f"{self.name} {self.uuid}".strip()


@dataclass(frozen=True)
class Line:
    """A channel, and the function that reads it; it raises MeterError when there is no reading."""

    channel: Channel
    read: Callable[[], float]


@dataclass(frozen=True)
class Wired:
    """What one GPU answers: its lines, and for the record which call each rests on and what it lacks."""

    lines: tuple[Line, ...]
    facts: dict[str, Any]


@dataclass(frozen=True)
class _Source:
    """One way to a quantity: NVML's call for the record, and what its value is."""

    call: str
    semantics: str
    boundary: str
    ask: Ask


_Question = tuple[Quantity, float, Sequence[_Source]]
"""What to ask, how often, and the ways to it in order of preference."""


def board(index: int) -> Board:
    """Look at a GPU.

    Args:
        index: NVML's.

    Returns:
        The GPU; one that does not answer, is split (MIG) or shared (vGPU) has a refusal.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        pci = pynvml.nvmlDeviceGetPciInfo(handle)
        capability = _told("nvmlDeviceGetCudaComputeCapability", handle)
        return Board(
            index=index,
            handle=handle,
            name=str(pynvml.nvmlDeviceGetName(handle)),
            uuid=uuid,
            pci=(int(pci.domain), int(pci.bus), int(pci.device)),
            capability=capability and (int(capability[0]), int(capability[1])),
            refusal=_split(handle, uuid) or _shared(handle),
        )
    except pynvml.NVMLError as error:
        refusal = Refused(f"GPU {index} does not answer: {error}", _remedy(error))
        return Board(index, None, f"GPU {index}", "", None, None, refusal)


def wire(gpu: Board) -> Wired:
    """Try every question on a GPU, and keep those that it answers.

    Energy rests on the board's counter, else on instantaneous power, else on what nvmlDeviceGetPowerUsage
    gives. Power is read beside a counter too: the one checks the other.

    Raises:
        Refused: It must not be measured, or it tells neither energy nor power.
    """
    if gpu.refusal:
        raise gpu.refusal
    calls: dict[str, str] = {}
    absent: dict[str, str] = {}
    lines: list[Line] = []
    for quantity, period_s, sources in _questions(gpu):
        source = _first(gpu, sources, quantity, absent)
        if source:
            calls[quantity] = source.call
            lines.append(_line(gpu, quantity, period_s, source, lines))
    if not calls.keys() & {"energy", "power"}:
        told = "; ".join(f"{quantity}: {absent[quantity]}" for quantity in ("energy", "power"))
        raise Refused(
            f"{gpu.subject} tells neither energy nor power ({told})",
            "measure at the server's inlet (redfish, ipmi) instead",
        )
    facts = {"name": gpu.name, "index": gpu.index, "calls": calls, "absent": absent}
    if gpu.pci:
        facts["pci_bus_id"] = "{:08X}:{:02X}:{:02X}.0".format(*gpu.pci)
    if gpu.capability:
        facts["compute_capability"] = "{}.{}".format(*gpu.capability)
    return Wired(tuple(lines), facts)


def _questions(gpu: Board) -> Sequence[_Question]:
    boundary = _MODULE if any(word in gpu.name for word in _MODULES) else _GPU
    scopes = [(_SCOPE_GPU, _GPU)]
    if boundary == _MODULE:
        # Beside a counter of the whole module, power of the whole module, where there is any.
        scopes.insert(0, (_SCOPE_MODULE, _MODULE))
    power = [
        _Source(f"field {_POWER_INSTANT}, scope {scope}", "instantaneous", covers, _instant_power(scope))
        for scope, covers in scopes
    ]
    usage = "nvmlDeviceGetPowerUsage"
    power.append(_Source(usage, _usage_semantics(gpu.capability), _GPU, _positive(usage)))
    counter = "nvmlDeviceGetTotalEnergyConsumption"
    energy = _Source(counter, "counter since driver load", boundary, _positive(counter))
    return (("energy", ENERGY_PERIOD_S, [energy]), ("power", POWER_PERIOD_S, power), *_CONDITIONS)


def _first(gpu: Board, sources: Sequence[_Source], quantity: str, absent: dict[str, str]) -> _Source | None:
    """The first source that answers; if none does, ``absent`` gets the reasons."""
    reasons = []
    for source in sources:
        try:
            source.ask(gpu.handle)
        except (pynvml.NVMLError, MeterError) as error:
            reasons.append(f"{source.call}: {error}")
        else:
            return source
    absent[quantity] = "; ".join(reasons)
    return None


def _line(gpu: Board, quantity: Quantity, period_s: float, source: _Source, before: Sequence[Line]) -> Line:
    electric = quantity in ("energy", "power")
    # Power is primary where no counter covers the same.
    primary = electric and all(line.channel.boundary != source.boundary for line in before)
    channel = Channel(
        name=f"{quantity.replace('_', ' ')} {gpu.uuid}",
        quantity=quantity,
        boundary=source.boundary,
        part=gpu.uuid,
        semantics=source.semantics,
        period_s=period_s,
        primary=primary,
        step_s=_STEPS_S.get(gpu.capability) if electric and gpu.capability else None,
        gain_error=GAIN_ERROR if electric else None,
        of_device=True,
    )

    def read() -> float:
        try:
            return source.ask(gpu.handle)
        except pynvml.NVMLError as error:
            raise MeterError(f"NVML: no {channel.name}: {error}; {_remedy(error)}") from error
        except MeterError as error:
            raise MeterError(f"NVML: no {channel.name}: {error}") from error

    return Line(channel, _Rising(read, channel.name) if quantity == "energy" else read)


class _Rising:
    """Readings of a counter that must not fall: after a fall the energy in between is not known."""

    def __init__(self, read: Callable[[], float], name: str) -> None:
        self._read = read
        self._name = name
        self._highest = -math.inf
        self._fell = False

    def __call__(self) -> float:
        value = self._read()
        self._fell |= value < self._highest
        if self._fell:
            raise MeterError(
                f"NVML: {self._name} went back: the GPU was reset or its driver reloaded; measure again"
            )
        self._highest = value
        return value


def _positive(call: str) -> Ask:
    """A question answered in mJ or mW: in J or W."""
    return lambda handle: _thousandths(_call(call, handle))


def _instant_power(scope: int) -> Ask:
    def ask(handle: Any) -> float:
        answer = pynvml.nvmlDeviceGetFieldValues(handle, [(_POWER_INSTANT, scope)])[0]
        # The call as a whole succeeds even where a field has no value.
        if answer.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(answer.nvmlReturn)
        member = _MEMBERS.get(answer.valueType, "")
        if not hasattr(answer.value, member):
            raise MeterError(f"the value has the unknown type {answer.valueType}")
        return _thousandths(getattr(answer.value, member))

    return ask


def _thousandths(value: float) -> float:
    # A board that answers at all draws power, and has since its driver was loaded: 0 is no measurement.
    if not 0 < value < math.inf:
        raise MeterError(f"it answers {value}")
    return value / 1000


def _usage_semantics(capability: tuple[int, int] | None) -> str:
    """What nvmlDeviceGetPowerUsage gives. Source: its documentation in nvml.h; GA100 has capability 8.0."""
    if capability is None:
        return "instantaneous or average over 1 s: the driver does not tell the architecture"
    return "average over 1 s" if capability > (8, 0) else "instantaneous"


def _split(handle: Any, uuid: str) -> Refused | None:
    modes = _told("nvmlDeviceGetMigMode", handle)
    if not modes or modes[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return None
    return Refused(
        f"{uuid} is split into MIG instances, and its power is that of the whole board",
        f"switch MIG off: sudo nvidia-smi -i {uuid} -mig 0",
    )


def _shared(handle: Any) -> Refused | None:
    kinds = {
        pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU: "this is a virtual GPU (vGPU)",
        pynvml.NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU: "the GPU is shared by virtual GPUs (vGPU)",
        pynvml.NVML_GPU_VIRTUALIZATION_MODE_HOST_VSGA: "the GPU is shared by virtual machines (vSGA)",
    }
    kind = kinds.get(_told("nvmlDeviceGetVirtualizationMode", handle))
    if not kind:
        return None
    return Refused(
        f"{kind}, and its power is that of the whole board",
        "use the GPU without virtualization, or pass the whole of it through to one machine",
    )


def _told(call: str, handle: Any) -> Any:
    """An answer, or None from a driver or GPU that does not know the question."""
    try:
        return _call(call, handle)
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return None
        raise


def _call(call: str, *arguments: Any) -> Any:
    """Call by name: older drivers and older packages lack some functions, newer ones drop others."""
    function = getattr(pynvml, call, None)
    if function is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return function(*arguments)


def _remedy(error: pynvml.NVMLError) -> str:
    if error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
        return "look for Xid messages in dmesg, then reset the GPU or restart the machine"
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return "run as a user who may open /dev/nvidia*"
    return "see whether nvidia-smi -q shows it"


def _known_state(state: int) -> float:
    if state == _UNKNOWN_STATE:
        raise MeterError("it answers that the state is unknown")
    return float(state)


def _condition(
    quantity: Quantity,
    period_s: float,
    semantics: str,
    convert: Callable[[Any], float],
    *calls: Sequence[Any],
) -> _Question:
    """A question that is one call (its name, then arguments), and what makes an SI unit of its answer."""

    def ask(call: Sequence[Any]) -> Ask:
        return lambda handle: float(convert(_call(call[0], handle, *call[1:])))

    return quantity, period_s, [_Source(call[0], semantics, _GPU, ask(call)) for call in calls]


# Second calls are those of older drivers.
_CONDITIONS = (
    _condition("temperature", CONDITION_PERIOD_S, "instantaneous", float,
               ("nvmlDeviceGetTemperatureV", pynvml.NVML_TEMPERATURE_GPU),
               ("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)),
    _condition("clock", CONDITION_PERIOD_S, "SM clock", lambda mhz: mhz * 1e6,
               ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM)),
    _condition("clock_events", CONDITION_PERIOD_S, "bits of NVML's clock event reasons", float,
               ("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",)),
    _condition("performance_state", CONDITION_PERIOD_S, "0 the fastest", _known_state,
               ("nvmlDeviceGetPerformanceState",)),
    _condition("power_limit", SLOW_PERIOD_S, "enforced limit", lambda milliwatts: milliwatts / 1000,
               ("nvmlDeviceGetEnforcedPowerLimit",)),
    _condition("processes", SLOW_PERIOD_S, "compute processes", len,
               ("nvmlDeviceGetComputeRunningProcesses_v3",), ("nvmlDeviceGetComputeRunningProcesses_v2",)),
)  # fmt: skip

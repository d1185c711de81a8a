"""What an engine is, and a session; what a meter is, and its channels: types only.

An engine is a stateless description of a vendor's runtime; a session is a model loaded on one
device at one precision and batch. A new engine is one file with these two classes and one
entry-point line. ``measure`` owns the loop and the clock: a session never times anything.

A meter is a source of power or energy readings. It is opened in the sampler process, which owns the
schedule and the time stamps: a meter only reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from inferometer.errors import EngineError
from inferometer.records import Precision

__all__ = [
    "ADDING_SCHEME",
    "FUSIBLE_ACTIVATIONS",
    "FUSING_SCHEME",
    "Channel",
    "Device",
    "Engine",
    "ExecutedLayer",
    "Feeds",
    "LayerTime",
    "Meter",
    "MeterSession",
    "MeterStatus",
    "QdqScheme",
    "Quantity",
    "Role",
    "Sample",
    "Session",
    "TensorInfo",
    "Variant",
]

Feeds = Mapping[str, npt.NDArray[Any]]

Role = Literal["compute", "reorder", "quantize"]
"""What a layer of a runtime is for: the model's own work, another memory layout or element type of the same
values (reorders, transposes and casts that the runtime puts in), or changing between floats and integers."""

Quantity = Literal[
    "power", "energy", "temperature", "clock", "power_limit", "clock_events", "performance_state", "processes"
]
"""What a meter's channel tells: power in W; energy in J, cumulative; temperature in degrees Celsius; a clock
in Hz; the power limit in W; why clocks are held back, as the bits of NVML's clock event reasons; the
performance state, 0 the fastest; how many processes hold the device."""

FUSIBLE_ACTIVATIONS = frozenset(
    {"Relu", "Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "PRelu", "Sigmoid"}
)
"""Activations that some engine computes within the layer before them."""


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a session: its name, full shape (the batch included) and NumPy dtype.

    A dimension that is not known before a run is None.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True)
class Device:
    """One place where a session runs: ``cpu``, ``cuda:0``; ``uuid`` for GPUs."""

    name: str
    description: str
    uuid: str | None = None


@dataclass(frozen=True)
class ExecutedLayer:
    """What really ran for one layer, read back from the runtime.

    ``precision`` is that of the arithmetic; ``macs`` (multiply-accumulates, whole batch) and ``bytes``
    (outputs written, whole batch) are None where the runtime does not tell.
    """

    name: str
    op: str
    precision: str
    macs: int | None
    bytes: int | None


@dataclass(frozen=True)
class LayerTime:
    """Seconds that one layer took in one call, by the runtime's own profile (a separate untimed pass).

    ``name`` and ``op`` are those of `ExecutedLayer` where the runtime calls them the same in both.
    """

    name: str
    op: str
    seconds: float
    role: Role = "compute"


@dataclass(frozen=True)
class Variant:
    """One way to use an engine: the options that choose it, and why it is not available (None: it is).

    ``version`` is that of what the options choose, where it has one of its own.
    """

    options: Mapping[str, Any]
    reason: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class QdqScheme:
    """The form of QDQ that an engine wants on a device. Data alone: needs no vendor library.

    Attributes:
        name: For messages and records, e.g. ``onnxruntime-cpu``.
        activation_dtype: ``uint8`` (asymmetric unless ``activation_symmetric``) or ``int8``.
        activation_symmetric: Zero point 0 and scale T / 127.
        weight_bits: 8, or 7 where 8-bit products saturate (u8 x s8 without VNNI).
        weight_per_channel: One scale per output channel.
        bias: ``int32`` (DequantizeLinear on an int32 initializer) or ``float`` (left alone).
        quantized_ops: Operators whose inputs are quantized and which run on integers.
        passthrough_ops: Operators that pass their input's scale through to their output.
        fused_activations: Operators that the engine fuses behind a quantized one: no QDQ between them.
            ``Sigmoid`` and ``HardSigmoid`` stand for their product with their own input as well.
        float_output_ops: Those of ``quantized_ops`` whose integer kernels give floats too: their output is
            quantized only where a quantized operator reads it.
        fused_sum: Whether a Conv adds the other input of an Add behind it itself: its own result is not
            quantized in between.
        reason: Why this form, when it depends on the machine (kept in the record).

    The operator rules' defaults are those of onnxruntime's CPU kernels.
    """

    name: str
    activation_dtype: Literal["uint8", "int8"]
    activation_symmetric: bool
    weight_bits: Literal[7, 8]
    weight_per_channel: bool
    bias: Literal["int32", "float"]
    quantized_ops: frozenset[str] = frozenset(
        {"Conv", "Gemm", "MatMul", "Add", "Mul", "HardSigmoid", "HardSwish", "LeakyRelu", "Sigmoid"}
    )
    passthrough_ops: frozenset[str] = frozenset(
        {"MaxPool", "AveragePool", "GlobalAveragePool", "Concat", "Reshape", "Flatten", "Transpose",
         "Squeeze", "Unsqueeze", "Dropout", "Identity"}
    )  # fmt: skip
    fused_activations: frozenset[str] = frozenset({"Relu", "Clip"})
    float_output_ops: frozenset[str] = frozenset({"Gemm", "MatMul"})
    fused_sum: bool = False
    reason: str | None = None


_FUSING_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Add"})

FUSING_SCHEME = QdqScheme(
    name="fusing",
    activation_dtype="uint8",
    activation_symmetric=False,
    weight_bits=8,
    weight_per_channel=True,
    bias="float",
    quantized_ops=_FUSING_OPS,
    fused_activations=FUSIBLE_ACTIVATIONS,
    float_output_ops=_FUSING_OPS,
)
"""Where kernels give floats as well and compute activations themselves, little else runs on integers."""

ADDING_SCHEME = replace(
    FUSING_SCHEME, name="adding", activation_dtype="int8", activation_symmetric=True, fused_sum=True
)
"""The same with zero point 0, and with a residual Add that the convolution before it computes."""


class Session(ABC):
    """A model loaded by an engine on one device, at one precision and batch. A context manager.

    ``in_flight`` requests can be under way at once, one per slot. For each slot: ``prepare`` the
    feeds (checked here, once), then ``submit`` and ``wait`` in turn as often as wanted. Different slots may
    be driven from different threads at once, each slot from one.

    ``settled`` says what the runtime settled on, for the record: plain values under the runtime's own words,
    such as ``{"threads": 2, "streams": 1, "inference_precision": "f32"}``. ``compile_s`` is the part of
    loading that went into compiling, where that is known apart; 0 when a cached form was taken. ``ordered``
    says that calls go through one queue, so that they are done in the order of submission: one thread then
    drives all slots.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    in_flight: int = 1
    settled: Mapping[str, Any] = MappingProxyType({})
    compile_s: float | None = None
    ordered: bool = False

    def prepare(self, slot: int, feeds: Feeds) -> None:
        """Check ``feeds`` against ``inputs`` and place them for ``slot``.

        Raises:
            EngineError: A feed is missing, surplus, of the wrong shape or dtype.
        """
        if not 0 <= slot < self.in_flight:
            raise EngineError(f"slot {slot} does not exist: this session has {self.in_flight}")
        _check_feeds(self.inputs, feeds)
        self._prepare(slot, feeds)

    def infer(self, feeds: Feeds) -> dict[str, npt.NDArray[Any]]:
        """One checked call on slot 0; returns all outputs by name, as ``results`` does."""
        self.prepare(0, feeds)
        self.submit(0)
        self.wait(0)
        return self.results(0)

    @abstractmethod
    def _prepare(self, slot: int, feeds: Feeds) -> None:
        """Place already checked feeds where ``submit(slot)`` finds them."""

    @abstractmethod
    def submit(self, slot: int) -> None:
        """Start one inference on the slot's feeds; may return before it is done."""

    @abstractmethod
    def wait(self, slot: int) -> None:
        """Return when the slot's inference is done and its outputs are readable."""

    @abstractmethod
    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """The slot's outputs by name, after ``wait``; later calls do not change these arrays."""

    def view(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """As ``results``, but the slot's next ``submit`` may overwrite the arrays: spares copying them."""
        return self.results(slot)

    @abstractmethod
    def executed(self) -> tuple[ExecutedLayer, ...]:
        """What ran at which precision; empty when the engine cannot tell. Runs a separate pass."""

    @abstractmethod
    def profile(self) -> tuple[LayerTime, ...]:
        """Seconds per layer from a separate pass; empty when the engine has no profiler."""

    def device_peak_bytes(self) -> int | None:
        """Largest memory of the device so far that this session took; None when it runs in the host's."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Free the device. Called once, by the context manager."""

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        self.close()


class Engine(Protocol):
    """What executes a model. Never falls back silently: what it cannot do it refuses."""

    @property
    def name(self) -> str:
        """The entry-point name."""

    @property
    def version(self) -> str:
        """The runtime's version, part of every trial's identity."""

    @property
    def computes(self) -> bool:
        """Whether outputs mean anything; False for an engine that only measures the harness."""

    def devices(self) -> Sequence[Device]:
        """The devices of this machine that the engine can use, best first."""

    def variants(self) -> Sequence[Variant]:
        """The ways to use it that are worth listing, the usual one (no options) first."""

    def precisions(self, device: str, options: Mapping[str, Any]) -> Mapping[Precision, str | None]:
        """Every precision with None when supported, else the reason why not."""

    def check(self, device: str, options: Mapping[str, Any]) -> None:
        """Refuse options before anything runs, without a model.

        Raises:
            Unsupported: The device has nothing of what an option asks for.
            EngineError: An option is not known, or does not take its value.
        """

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme | None:
        """The QDQ form it wants for ``int8``; None when it takes the float model as it is."""

    def load(
        self, model: Path, device: str, precision: Precision, batch: int, options: Mapping[str, Any]
    ) -> Session:
        """Load a model.

        Three options are every engine's: ``threads`` (int or absent) bounds the CPU threads in all;
        ``in_flight`` (int or absent) is how many requests the caller will keep under way, each from a thread
        of its own; the session's ``in_flight`` says how many slots it gives. Absent: what is best for
        throughput. 1 means latency counts. ``copies`` (``included`` if absent, or ``excluded``) says whether
        ``submit`` to ``wait`` spans the transfers between host and device; where the device is the host there
        are none, and it changes nothing.

        Raises:
            ModelError: The file is no valid model.
            Unsupported: The engine cannot run this model, device or precision.
            OutOfMemory: Memory ran out.
            EngineError: Anything else that the engine reports, or an unknown option.
        """


@dataclass(frozen=True)
class Channel:
    """One series of readings that a meter gives.

    Attributes:
        name: Unique within the meter: ``energy GPU-1f..``, ``package-0``.
        quantity: What it tells.
        boundary: What a power or energy figure covers, in words that readings of one kind share:
            ``GPU board``, ``CPU package``, ``DRAM``, ``server input``. Only figures of one boundary add up.
        part: Which of these it is: a GPU's UUID, ``package-0``, a power supply's name.
        semantics: How a value comes about, for the record: ``counter since driver load``,
            ``instantaneous``, ``average over 1 s``.
        period_s: How often to read it, unless the study says otherwise.
        primary: Whether figures of its boundary and part rest on it; a channel of power or energy that is
            not primary is held beside the primary one.
        step_s: How often its value changes, where that is known.
        gain_error: Relative error of the meter's scale, which subtraction does not cancel (a fraction, about
            95 % of meters within), where the source states one.
        of_device: Whether ``part`` is the UUID of an accelerator: only those that a trial runs on count.
        pushed: Whether readings arrive by themselves (`MeterSession.arrived`), with time stamps of their own.
    """

    name: str
    quantity: Quantity
    boundary: str
    part: str
    semantics: str
    period_s: float
    primary: bool = False
    step_s: float | None = None
    gain_error: float | None = None
    of_device: bool = False
    pushed: bool = False


@dataclass(frozen=True)
class Sample:
    """One reading of a pushed channel, as `MeterSession.arrived` gives it.

    Attributes:
        place: Of its channel among ``MeterSession.channels``.
        begin_ns: CLOCK_MONOTONIC; with ``end_ns`` what the value is true of, the same for a moment.
        end_ns: At or after ``begin_ns``.
        value: In the channel's unit; NaN where the source gave none.
    """

    place: int
    begin_ns: int
    end_ns: int
    value: float


@dataclass(frozen=True)
class MeterStatus:
    """One thing that a meter could read on this machine.

    ``reason`` None: it is available. Otherwise it says why not, and ``remedy`` what to do about it, such as
    the exact command that grants a permission. ``reads`` says what it reads there.
    """

    subject: str
    reads: tuple[str, ...] = ()
    reason: str | None = None
    remedy: str | None = None


class MeterSession(ABC):
    """An open meter; used by one thread of the sampler process. A context manager.

    ``facts`` are plain values for the record: the driver's version, whether TLS was verified. No secrets.
    """

    channels: tuple[Channel, ...]
    facts: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def read(self, place: int) -> float:
        """One reading of ``channels[place]``, in SI units; never of a pushed channel.

        Energy never falls: a counter that wraps is unwrapped here, where the previous value is known.

        Raises:
            MeterError: There is no reading this time; the sampler keeps that as a gap, and asks again.
        """

    def arrived(self) -> Sequence[Sample]:
        """Readings of pushed channels that came since the last call, in order of time within a channel.

        Raises:
            MeterError: The source cannot be read this time.
        """
        return ()

    @abstractmethod
    def close(self) -> None:
        """Let go of the source (end its session); called once. Must not raise."""

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        self.close()


class Meter(Protocol):
    """A source of power or energy readings. Stateless; the vendor's library is imported where it is used."""

    @property
    def name(self) -> str:
        """The entry-point name."""

    def status(self, options: Mapping[str, Any]) -> Sequence[MeterStatus]:
        """What it could read on this machine, and why not; never raises for what the machine lacks.

        Quick: a meter that needs an address says so when ``options`` give none.

        Raises:
            ConfigError: An option is not known, or does not take its value.
        """

    def open(self, options: Mapping[str, Any]) -> MeterSession:
        """Open it for reading.

        One option is every meter's and may be ignored: ``devices``, a list of GPUs' UUIDs that are of
        interest (absent: all). Secrets are never options: an option names the environment variable or
        the file that holds one.

        Raises:
            ConfigError: An option is not known, or does not take its value.
            MissingExtra: A package is not installed; the message names the extra.
            MeterError: It is absent, not permitted, or does not answer; the message says what to do.
        """


def _check_feeds(inputs: Sequence[TensorInfo], feeds: Feeds) -> None:
    wanted = {tensor.name: tensor for tensor in inputs}
    faults = [f"input {name!r} is missing" for name in wanted if name not in feeds]
    faults += [f"{name!r} is not an input" for name in feeds if name not in wanted]
    for name in wanted.keys() & feeds.keys():
        tensor, array = wanted[name], feeds[name]
        fits = len(array.shape) == len(tensor.shape) and all(
            want is None or want == got for want, got in zip(tensor.shape, array.shape, strict=True)
        )
        if not fits:
            faults.append(f"input {name!r} wants shape {list(tensor.shape)}, got {list(array.shape)}")
        if array.dtype != np.dtype(tensor.dtype):
            faults.append(f"input {name!r} wants {tensor.dtype}, got {array.dtype}")
    if faults:
        raise EngineError("wrong feeds: " + "; ".join(sorted(faults)))

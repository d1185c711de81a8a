"""ONNX Runtime on the CPU.

What ran is read back from the runtime's own profile, of a separate session: kernels of the fused
graph with the shapes and dtypes they saw, so a layer counts as ``int8`` only if an integer kernel ran.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as vendor

from inferometer.contracts import (
    Device,
    ExecutedLayer,
    Feeds,
    LayerTime,
    QdqScheme,
    Session,
    TensorInfo,
    Variant,
)
from inferometer.engines import schemes
from inferometer.engines.onnxruntime_layers import executed_layer, layer_name
from inferometer.environment.cgroup import usable_cores
from inferometer.environment.cpu import cpu_facts
from inferometer.errors import EngineError, ModelError, OutOfMemory, Unsupported, nearest
from inferometer.models.shapes import batch_position, dimensions
from inferometer.records import Precision

__all__ = ["OnnxRuntimeEngine"]

_NO_KERNELS = "ONNX Runtime's CPU provider has no {} kernels for convolutions: it would compute in fp32"
_PRECISIONS: dict[Precision, str | None] = {
    "fp32": None,
    "tf32": "tf32 is a format of NVIDIA GPUs",
    "fp16": _NO_KERNELS.format("fp16"),
    "bf16": _NO_KERNELS.format("bf16"),
    "int8": None,
}

# Source: the tensor type strings of ONNX Runtime's NodeArg.type, and NumPy's names of the same types.
_DTYPES = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64",
    "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(uint16)": "uint16",
    "tensor(int16)": "int16", "tensor(uint32)": "uint32", "tensor(int32)": "int32",
    "tensor(uint64)": "uint64", "tensor(int64)": "int64", "tensor(bool)": "bool",
}  # fmt: skip

_MAX_THREADS = 4096


class OnnxRuntimeEngine:
    """The CPU execution provider of ``onnxruntime``."""

    name = "onnxruntime"
    version = str(onnxruntime.__version__)
    computes = True

    def devices(self) -> list[Device]:
        """The CPU."""
        return [Device("cpu", cpu_facts()[0].model or "CPU of unknown model")]

    def variants(self) -> list[Variant]:
        """One."""
        return [Variant({})]

    def precisions(self, device: str, options: Mapping[str, Any]) -> dict[Precision, str | None]:
        """fp32 and int8; the others with the reason why not."""
        return dict(_PRECISIONS)

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme:
        """uint8 asymmetric activations; see ``schemes``."""
        return schemes.onnxruntime(device, options)

    def load(
        self, model: Path, device: str, precision: Precision, batch: int, options: Mapping[str, Any]
    ) -> Session:
        """Load a model.

        The option ``threads`` is the number of threads in all; ``in_flight`` requests (1 if absent) share
        them, each computed by the thread that submits it.
        """
        for key in options.keys() - {"threads", "in_flight", "copies"}:
            raise EngineError(f"onnxruntime: unknown option {key!r}{nearest(key, ['threads'])}")
        if device != "cpu":
            raise Unsupported(f"onnxruntime: there is no device {device!r}{nearest(device, ['cpu'])}")
        reason = _PRECISIONS[precision]
        if reason is not None:
            raise Unsupported(f"onnxruntime on {device} cannot run {precision}: {reason}")
        threads, in_flight = _number(options, "threads", usable_cores()), _number(options, "in_flight", 1)
        return OnnxRuntimeSession(model, batch, threads, in_flight, exact=precision != "int8")


def _number(options: Mapping[str, Any], name: str, default: int) -> int:
    value = options.get(name) or default
    if not isinstance(value, int) or not 1 <= value <= _MAX_THREADS:
        raise EngineError(f"onnxruntime: {name}: wants a whole number from 1 to {_MAX_THREADS}: {value!r}")
    return value


class OnnxRuntimeSession(Session):
    """One ``InferenceSession``; calls are synchronous, in the thread that submits them.

    Outputs that are no arrays of numbers (strings, maps, sequences) are computed in each call as well, but
    not handed out: ``skipped`` says why, by name.
    """

    def __init__(
        self, model: Path, batch: int, threads: int, in_flight: int = 1, *, exact: bool = False
    ) -> None:
        """Load ``model``; ``threads`` compute, shared by ``in_flight`` requests.

        ``exact``: activations that meet weights of a few bits are not rounded to 8 bits.
        """
        self._model, self._threads, self._batch, self._exact = model, threads, batch, exact
        self.in_flight = in_flight
        options = _options(max(1, threads // in_flight), exact)
        if in_flight > 1:
            # Threads that wait by spinning would keep the cores from the callers.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = _open(model, options)
        self.inputs = _inputs(self._session.get_inputs(), batch, model)
        results = self._session.get_outputs()
        leading = {node.shape[0] for node in self._session.get_inputs() if node.shape}
        self.outputs = tuple(_info(node, batch, leading) for node in results if node.type in _DTYPES)
        self.skipped = {
            node.name: f"it is no array of numbers but {node.type}"
            for node in results
            if node.type not in _DTYPES
        }
        settled = _settled(self._session)
        self._names = [node.name for node in results]
        usable = frozenset(tensor.name for tensor in self.outputs)
        self._slots = [_Slot(self._session, self._names, usable, settled) for _ in range(in_flight)]

    @property
    def raw(self) -> onnxruntime.InferenceSession:
        """The vendor's session, for measuring it without Inferometer."""
        return self._session

    def _prepare(self, slot: int, feeds: Feeds) -> None:
        with _vendor_errors(self._model):
            self._slots[slot].feed(feeds)

    def submit(self, slot: int) -> None:
        """Run the call; it is done on return."""
        try:
            self._slots[slot].run()
        except _VENDOR_ERRORS as error:
            raise _mapped(error, self._model) from error

    def wait(self, slot: int) -> None:
        """Nothing is left to wait for after ``submit``."""

    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """Copies of the outputs of the slot's last call."""
        return {name: values.copy() for name, values in self.view(slot).items()}

    def view(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """The outputs of the slot's last call where the runtime wrote them."""
        return self._slots[slot].outputs()

    def executed(self) -> tuple[ExecutedLayer, ...]:
        """The kernels of one call, from the profile of a session of its own.

        That session neither packs weights in advance nor blocks channels: packed weights are missing
        from the profile, blocked channels are padded, and the MACs follow from both shapes. Which
        precision runs depends on neither.
        """
        return tuple(executed_layer(event) for event in self._events(packed=False)[0])

    def profile(self) -> tuple[LayerTime, ...]:
        """Seconds per kernel, in a session of its own.

        The median of up to three calls within half a second, after one that warms up.
        """
        times: dict[str, list[float]] = {}
        ops: dict[str, str] = {}
        for call in self._events(calls=4, enough_s=0.5)[1:]:
            for event in call:
                name = layer_name(event)
                times.setdefault(name, []).append(event["dur"] * 1e-6)  # the trace is in microseconds
                ops[name] = event["args"]["op_name"]
        return tuple(LayerTime(name, ops[name], float(np.median(all_s))) for name, all_s in times.items())

    def close(self) -> None:
        """Free the session."""
        self._slots = []
        del self._session

    def _events(
        self, calls: int = 1, enough_s: float = 0.0, packed: bool = True
    ) -> list[list[dict[str, Any]]]:
        """Kernel events by call, of a new session: ``calls`` calls, the third and later in ``enough_s``."""
        with tempfile.TemporaryDirectory(prefix="inferometer-profile-") as folder:
            options = _options(self._threads, self._exact)
            options.enable_profiling = True
            options.add_session_config_entry("session.disable_prepacking", "0" if packed else "1")
            options.profile_file_prefix = str(Path(folder) / "trace")
            session = _open(self._model, options, () if packed else ("NchwcTransformer",))
            with _vendor_errors(self._model):
                begin, done = time.monotonic(), 0
                while done < min(calls, 2) or (done < calls and time.monotonic() - begin < enough_s):
                    session.run(self._names, self._slots[0].feeds)
                    done += 1
            trace = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        kernels = [
            event for event in trace if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
        ]
        per_call = len(kernels) // done
        return [kernels[start : start + per_call] for start in range(0, len(kernels), per_call)]


class _Slot:
    """One request: its feeds, and outputs that every call writes to the same place.

    Fresh memory for large outputs would cost more than many a layer (page faults). The first call gets it
    all the same: it shows the shapes.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        names: Sequence[str],
        usable: Collection[str],
        settled: Collection[str],
    ) -> None:
        self._session, self._names, self._usable, self._settled = session, names, usable, settled
        self._binding = session.io_binding()
        self._places: dict[str, npt.NDArray[Any]] = {}
        self.feeds: Feeds = {}

    def feed(self, feeds: Feeds) -> None:
        self.feeds = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        for name, array in self.feeds.items():
            self._binding.bind_cpu_input(name, array)

    def run(self) -> None:
        for name in self._names:
            if name not in self._places:
                self._binding.bind_output(name)  # again: the runtime would write to where it did before
        self._session.run_with_iobinding(self._binding)
        if not self._places and self._settled:
            for name, value in zip(self._names, self._binding.get_outputs(), strict=True):
                if name in self._settled:
                    self._place(name, value.numpy())

    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        if len(self._places) == len(self._usable):
            return dict(self._places)
        values = self._binding.get_outputs()
        return {
            name: self._places[name] if name in self._places else value.numpy()
            for name, value in zip(self._names, values, strict=True)
            if name in self._usable
        }

    def _place(self, name: str, values: npt.NDArray[Any]) -> None:
        self._places[name] = place = np.array(values, order="C")
        self._binding.bind_output(name, "cpu", 0, place.dtype, place.shape, place.ctypes.data)


# Whatever the vendor's module raises, and what its binding lets through from C++ and NumPy.
_VENDOR_ERRORS: tuple[type[Exception], ...] = (
    *(kind for kind in vars(vendor).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    MemoryError,
    RuntimeError,
    ValueError,
)


@contextlib.contextmanager
def _vendor_errors(model: Path) -> Iterator[None]:
    try:
        yield
    except _VENDOR_ERRORS as error:
        raise _mapped(error, model) from error


def _mapped(error: BaseException, model: Path) -> EngineError | ModelError:
    """The one table from the vendor's errors to ours."""
    text = " ".join(str(error).split())
    short = text if len(text) <= 400 else text[:400] + " ..."
    memory_words = ("Failed to allocate memory", "bad_alloc", "bad allocation", "Cannot allocate memory")
    if isinstance(error, MemoryError) or any(word in text for word in memory_words):
        return OutOfMemory(f"{model}: out of memory in onnxruntime: {short or type(error).__name__}")
    if isinstance(error, vendor.NotImplemented):
        return Unsupported(f"{model}: onnxruntime has no kernel for it: {short}")
    strange = ("is not a registered function/op", "No Op registered for", "opset")
    if isinstance(error, vendor.Fail | vendor.InvalidGraph) and any(word in text for word in strange):
        return Unsupported(f"{model}: onnxruntime does not know an operator or opset of it: {short}")
    if isinstance(error, vendor.NoSuchFile):
        return ModelError(f"{model}: no such file")
    broken = (vendor.InvalidGraph, vendor.InvalidProtobuf, vendor.NoModel)
    if isinstance(error, broken) or "failed:Invalid model" in text:
        return ModelError(f"{model}: onnxruntime cannot read it: {short}")
    return EngineError(f"{model}: onnxruntime failed: {short}")


def _options(threads: int, exact: bool) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Source: onnxruntime_session_options_config_keys.h: 1 is float32, 4 (its default) rounds inputs to int8.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1" if exact else "4")
    options.log_severity_level = 4  # errors arrive as exceptions; the log would only repeat them
    return options


def _open(
    model: Path, options: onnxruntime.SessionOptions, without: Sequence[str] = ()
) -> onnxruntime.InferenceSession:
    """Load a model, ``without`` the named graph optimizers."""
    if not model.is_file():
        raise ModelError(f"{model}: no such file")
    with _vendor_errors(model):
        return onnxruntime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"], disabled_optimizers=list(without)
        )


def _inputs(nodes: Sequence[Any], batch: int, model: Path) -> tuple[TensorInfo, ...]:
    """The inputs, of the vendor's NodeArgs; the batch must be open or ``batch``."""
    for node in nodes:
        if node.type not in _DTYPES:
            raise Unsupported(f"{model}: input {node.name!r} {_kind(node.type)}")
        if any(isinstance(size, int) and size < 0 for size in node.shape[1:]):
            raise Unsupported(f"{model}: input {node.name!r} has a negative length in {node.shape}")
    if any(not node.shape for node in nodes):
        _refuse_unknown_ranks(nodes, model)
    position = batch_position([node.shape for node in nodes])
    if position is not None and isinstance(nodes[position].shape[0], int):
        fixed = nodes[position].shape[0]
        if fixed != batch and fixed != -1:
            raise Unsupported(f"{model}: its batch is fixed at {fixed}, asked for {batch}")
    return tuple(_info(node, batch, {node.shape[0] if node.shape else None}) for node in nodes)


def _kind(text: str) -> str:
    """What an input is that no array of numbers can be fed to."""
    if text == "tensor(string)":
        return "holds strings, which nothing here can feed: give a model that takes arrays of numbers"
    for start, kind in (("seq", "a sequence"), ("map", "a map"), ("optional", "optional")):
        if text.startswith(start):
            return (
                f"is {kind} ({text}), which nothing here can feed: give a model that takes arrays of numbers"
            )
    return f"has the type {text}, which cannot be fed here"


def _refuse_unknown_ranks(nodes: Sequence[Any], model: Path) -> None:
    """The runtime shows an unknown rank as it does a scalar; only the file tells them apart."""
    described = {info.name: info for info in onnx.load(str(model), load_external_data=False).graph.input}
    for node in nodes:
        if not node.shape and node.name in described and dimensions(described[node.name]) is None:
            raise Unsupported(f"{model}: input {node.name!r} has no known rank: give its shape")


def _info(node: Any, batch: int, leading: Collection[object]) -> TensorInfo:
    """A vendor's NodeArg; a first dimension that is open and among ``leading`` is the batch."""
    shape = [size if isinstance(size, int) and size >= 0 else None for size in node.shape]
    if shape and shape[0] is None and node.shape[0] in leading:
        shape[0] = batch
    return TensorInfo(node.name, tuple(shape), _DTYPES[node.type])


def _settled(session: onnxruntime.InferenceSession) -> frozenset[str]:
    """The outputs whose shape follows from the inputs' shapes alone, by the runtime's own inference.

    One without axes is left out: its rank may be unknown.
    """
    known = {size for node in session.get_inputs() for size in node.shape if isinstance(size, str)}
    return frozenset(
        node.name
        for node in session.get_outputs()
        if node.type in _DTYPES
        and node.shape
        and all((isinstance(size, int) and size >= 0) or size in known for size in node.shape)
    )

"""ONNX Runtime on the CPU.

What ran is read back from the runtime's own profile, of a separate session: kernels of the fused
graph with the shapes and dtypes they saw, so a layer counts as ``int8`` only if an integer kernel ran.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as vendor

from inferometer.contracts import Device, ExecutedLayer, Feeds, LayerTime, QdqScheme, Session, TensorInfo
from inferometer.engines import schemes
from inferometer.environment.cgroup import usable_cores
from inferometer.environment.cpu import cpu_facts
from inferometer.errors import EngineError, ModelError, OutOfMemory, Unsupported, nearest
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
    "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(int32)": "int32",
    "tensor(int64)": "int64", "tensor(bool)": "bool",
}  # fmt: skip

# Operators that multiply and accumulate; of the others only the time counts.
_MAC_OPS = {
    "Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "ConvTranspose",
    "QLinearConv", "QGemm", "QLinearMatMul", "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
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
        for key in options.keys() - {"threads", "in_flight"}:
            raise EngineError(f"onnxruntime: unknown option {key!r}{nearest(key, ['threads'])}")
        if device != "cpu":
            raise Unsupported(f"onnxruntime: there is no device {device!r}{nearest(device, ['cpu'])}")
        reason = _PRECISIONS[precision]
        if reason is not None:
            raise Unsupported(f"onnxruntime on {device} cannot run {precision}: {reason}")
        threads, in_flight = _number(options, "threads", usable_cores()), _number(options, "in_flight", 1)
        return OnnxRuntimeSession(model, batch, threads, in_flight)


def _number(options: Mapping[str, Any], name: str, default: int) -> int:
    value = options.get(name) or default
    if not isinstance(value, int) or not 1 <= value <= _MAX_THREADS:
        raise EngineError(f"onnxruntime: {name}: wants a whole number from 1 to {_MAX_THREADS}: {value!r}")
    return value


class OnnxRuntimeSession(Session):
    """One ``InferenceSession``; calls are synchronous, in the thread that submits them."""

    def __init__(self, model: Path, batch: int, threads: int, in_flight: int = 1) -> None:
        """Load ``model``; ``threads`` compute, shared by ``in_flight`` requests."""
        self._model, self._threads, self._batch = model, threads, batch
        self.in_flight = in_flight
        options = _options(max(1, threads // in_flight))
        if in_flight > 1:
            # Threads that wait by spinning would keep the cores from the callers.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = _open(model, options)
        self.inputs = tuple(_info(node, batch, model) for node in self._session.get_inputs())
        self.outputs = tuple(_info(node, batch, None) for node in self._session.get_outputs())
        settled = _settled(self._session)
        self._slots = [_Slot(self._session, self.outputs, settled) for _ in range(in_flight)]
        self._names = [tensor.name for tensor in self.outputs]

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
        return tuple(_executed(event) for event in self._events(packed=False)[0])

    def profile(self) -> tuple[LayerTime, ...]:
        """Seconds per kernel, in a session of its own.

        The median of up to three calls within half a second, after one that warms up.
        """
        times: dict[str, list[float]] = {}
        ops: dict[str, str] = {}
        for call in self._events(calls=4, enough_s=0.5)[1:]:
            for event in call:
                name = _layer_name(event)
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
            options = _options(self._threads)
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
        self, session: onnxruntime.InferenceSession, outputs: Sequence[TensorInfo], settled: Collection[str]
    ) -> None:
        self._session, self._settled = session, settled
        self._names = [tensor.name for tensor in outputs]
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
        if len(self._places) == len(self._names):
            return dict(self._places)
        values = self._binding.get_outputs()
        return {
            name: self._places[name] if name in self._places else value.numpy()
            for name, value in zip(self._names, values, strict=True)
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


def _options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
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


def _info(node: Any, batch: int, checked: Path | None) -> TensorInfo:
    """A vendor's NodeArg; for inputs (``checked``) the first dimension must be free or ``batch``."""
    shape = [size if isinstance(size, int) else None for size in node.shape]
    if checked is not None and shape and shape[0] is not None and shape[0] != batch:
        raise Unsupported(f"{checked}: its batch is fixed at {shape[0]}, asked for {batch}")
    if shape and shape[0] is None:
        shape[0] = batch
    if node.type not in _DTYPES:
        raise Unsupported(f"tensor {node.name!r} has the type {node.type}, which cannot be fed here")
    return TensorInfo(node.name, tuple(shape), _DTYPES[node.type])


def _settled(session: onnxruntime.InferenceSession) -> frozenset[str]:
    """The outputs whose shape follows from the inputs' shapes alone, by the runtime's own inference."""
    known = {size for node in session.get_inputs() for size in node.shape if isinstance(size, str)}
    return frozenset(
        node.name
        for node in session.get_outputs()
        if all(isinstance(size, int) or size in known for size in node.shape)
    )


def _layer_name(event: Mapping[str, Any]) -> str:
    return str(event["name"]).removesuffix("_kernel_time")


def _executed(event: Mapping[str, Any]) -> ExecutedLayer:
    arguments = event["args"]
    inputs = [_typed_shape(item) for item in arguments["input_type_shape"]]
    outputs = [_typed_shape(item) for item in arguments["output_type_shape"]]
    op = arguments["op_name"]
    dtypes = [dtype for dtype, _ in inputs]
    integer = any(dtype in ("uint8", "int8") for dtype in dtypes) and op not in (
        "DequantizeLinear",
        "QuantizeLinear",
    )
    precision = (
        "int8" if integer else {"float": "fp32", "float16": "fp16"}.get(dtypes[0] if dtypes else "", "other")
    )
    return ExecutedLayer(
        _layer_name(event),
        op,
        precision,
        _macs(op, inputs, outputs),
        int(arguments.get("output_size", 0)) or None,
    )


def _typed_shape(item: Mapping[str, Sequence[int]]) -> tuple[str, tuple[int, ...]]:
    dtype, shape = next(iter(item.items()))
    return dtype, tuple(shape)


def _macs(
    op: str,
    inputs: Sequence[tuple[str, tuple[int, ...]]],
    outputs: Sequence[tuple[str, tuple[int, ...]]],
) -> int | None:
    """Multiply-accumulates of one kernel call: outputs times the length of each dot product."""
    if op not in _MAC_OPS:
        return 0  # exactly: this kernel multiplies and accumulates nothing that counts as a MAC
    matrices = [shape for _, shape in inputs if len(shape) >= 2]
    if not matrices or not outputs:
        return None
    first, result = matrices[0], outputs[0][1]
    if "Conv" not in op:
        depth = (
            math.prod(first) // result[0] if "Gemm" in op else first[-1]
        )  # Gemm may transpose its first input
        return math.prod(result) * depth
    if len(matrices) < 2:
        return None
    if op == "ConvTranspose":
        return math.prod(first) * math.prod(matrices[1][1:])
    return math.prod(result) * math.prod(matrices[1][1:])

"""OpenVINO on the CPU.

What ran is read back from the compiled model's runtime graph: the layers after fusing, with the
element types that their kernels take, so a layer counts as ``int8`` only if an integer kernel ran.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

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
from inferometer.engines.openvino_layers import executed_layers
from inferometer.engines.openvino_reading import misread, readable, unreadable, without_functions
from inferometer.environment.cgroup import usable_cores
from inferometer.environment.cpu import cpu_facts
from inferometer.errors import EngineError, InferometerError, ModelError, OutOfMemory, Unsupported, nearest
from inferometer.models.files import save
from inferometer.models.shapes import batch_position
from inferometer.records import Precision


@contextlib.contextmanager
def _no_telemetry() -> Iterator[None]:
    """Make the import of ``openvino_telemetry`` fail meanwhile.

    Importing openvino imports its model converter, which reports that import to Google Analytics and leaves
    an identifier in ``~/intel``. Without the telemetry package it takes a stub of its own that does nothing.

    Source: openvino/tools/ovc/__init__.py and telemetry_utils.py of the package.
    """
    name, absent = "openvino_telemetry", object()
    before: Any = sys.modules.get(name, absent)
    sys.modules[name] = None  # type: ignore[assignment]  # how Python spells: this import fails
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not absent:
            sys.modules[name] = before


with _no_telemetry():
    import openvino
    from openvino import _pyopenvino as vendor

__all__ = ["OpenVinoEngine"]

# What the arithmetic of floating-point layers is set to, at int8 of those without QDQ. It is said each time:
# left alone, OpenVINO computes in bf16 wherever the CPU can.
_FLOATS: dict[Precision, str] = {"fp32": "f32", "int8": "f32", "bf16": "bf16", "fp16": "f16"}

# OpenVINO's names of element types, and NumPy's names of the same.
_DTYPES = {
    "f32": "float32", "f16": "float16", "f64": "float64", "u8": "uint8", "i8": "int8", "u16": "uint16",
    "i16": "int16", "u32": "uint32", "i32": "int32", "u64": "uint64", "i64": "int64", "boolean": "bool",
}  # fmt: skip

_UNLISTED = "OpenVINO lists no {} for this CPU"

_OPTIONS = ("threads", "hint", "in_flight", "copies")
_WAYS = ("throughput", "latency")
_MAX_THREADS = 4096
_READER_BYTES = 8 * 1024**2  # what the reader needs besides weights, generously


class OpenVinoEngine:
    """OpenVINO's CPU plug-in."""

    name = "openvino"
    version = str(openvino.__version__)
    computes = True

    def devices(self) -> list[Device]:
        """The CPU."""
        return [Device("cpu", cpu_facts()[0].model or "CPU of unknown model")]

    def variants(self) -> list[Variant]:
        """One."""
        return [Variant({})]

    def precisions(self, device: str, options: Mapping[str, Any]) -> dict[Precision, str | None]:
        """fp32 and int8; bf16 and fp16 where OpenVINO lists them for this CPU."""
        listed = _capabilities()
        return {
            "fp32": None,
            "tf32": "tf32 is a format of NVIDIA GPUs",
            "fp16": None if "FP16" in listed else _UNLISTED.format("fp16") + ": it would run another",
            "bf16": None if "BF16" in listed else _UNLISTED.format("bf16") + ": at best it would emulate it",
            "int8": None if "INT8" in listed else _UNLISTED.format("int8"),
        }

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme:
        """uint8 asymmetric activations; see ``schemes``."""
        return schemes.openvino(device, options)

    def load(
        self, model: Path, device: str, precision: Precision, batch: int, options: Mapping[str, Any]
    ) -> Session:
        """Load a model.

        Options: ``threads`` bounds the threads of all requests together; there are never more than cores.
        ``hint`` is ``throughput`` (several requests at once, each on some of the threads) or ``latency``
        (one, on all of them). ``in_flight`` 1 always means ``latency``, and more bounds the requests at once.
        """
        for key in sorted(options.keys() - set(_OPTIONS)):
            raise EngineError(f"openvino: unknown option {key!r}{nearest(key, _OPTIONS)}")
        if device != "cpu":
            raise Unsupported(f"openvino: there is no device {device!r}{nearest(device, ['cpu'])}")
        reason = self.precisions(device, options)[precision]
        if reason is not None:
            raise Unsupported(f"openvino on {device} cannot run {precision}: {reason}")
        hint = options.get("hint") or "throughput"
        if hint not in _WAYS:
            raise EngineError(f"openvino: hint: {hint!r} is not known{nearest(str(hint), _WAYS)}")
        config = {
            "INFERENCE_PRECISION_HINT": _FLOATS[precision],
            "INFERENCE_NUM_THREADS": _count(options, "threads") or usable_cores(),
            "PERFORMANCE_HINT": hint.upper(),
        }
        if precision != "int8":
            # Left alone, it may round to 8 bits what meets compressed weights.
            config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
        in_flight = _count(options, "in_flight")
        if in_flight == 1:
            config["PERFORMANCE_HINT"] = "LATENCY"
        elif in_flight is not None:
            config["PERFORMANCE_HINT_NUM_REQUESTS"] = in_flight
        return OpenVinoSession(model, batch, config)


class OpenVinoSession(Session):
    """One compiled model, and an infer request for each slot.

    Outputs that are no arrays of numbers are not handed out: ``skipped`` says why, by name.
    """

    def __init__(self, model: Path, batch: int, config: Mapping[str, Any]) -> None:
        """Read ``model``, set its batch, and compile it with OpenVINO's own ``config``."""
        self._model, self._config = model, dict(config)
        self._network = _read(model, batch)  # kept: the compiled model shares its weights
        self._compiled = _compile(self._network, self._config, model)
        for port in self._compiled.inputs:
            if _kind(port) not in _DTYPES:
                raise Unsupported(
                    f"{model}: input {_name(port)!r} is {_kind(port)}, which nothing here can feed"
                )
        self.inputs = tuple(_info(port) for port in self._compiled.inputs)
        ports = list(enumerate(self._compiled.outputs))
        self._places = {_name(port): place for place, port in ports if _kind(port) in _DTYPES}
        self.outputs = tuple(_info(port) for _, port in ports if _kind(port) in _DTYPES)
        self.skipped = {
            _name(port): f"it is no array of numbers but {_kind(port)}"
            for _, port in ports
            if _kind(port) not in _DTYPES
        }
        with _vendor_errors(model):
            if config["PERFORMANCE_HINT"] == "THROUGHPUT":
                self.in_flight = int(self._compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
            self._requests = [self._compiled.create_infer_request() for _ in range(self.in_flight)]
        self._feeds: list[Feeds] = [{} for _ in self._requests]

    @property
    def raw(self) -> openvino.CompiledModel:
        """The vendor's compiled model, for measuring it without Inferometer."""
        return self._compiled

    def _prepare(self, slot: int, feeds: Feeds) -> None:
        # The request reads these arrays where they are, so they must live as long as it may.
        self._feeds[slot] = {
            name: np.require(array, requirements=("C", "W")) for name, array in feeds.items()
        }
        with _vendor_errors(self._model):
            self._place(self._requests[slot], self._feeds[slot])

    def submit(self, slot: int) -> None:
        """Start the slot's request."""
        try:
            self._requests[slot].start_async()
        except _VENDOR_ERRORS as error:
            raise _mapped(error, self._model) from error

    def wait(self, slot: int) -> None:
        """Return when the slot's request is done."""
        try:
            self._requests[slot].wait()
        except _VENDOR_ERRORS as error:
            raise _mapped(error, self._model) from error

    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """Copies of the slot's outputs."""
        return {name: values.copy() for name, values in self.view(slot).items()}

    def view(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """The slot's outputs where the request wrote them, and will write its next ones."""
        with _vendor_errors(self._model):
            request = self._requests[slot]
            return {name: request.get_output_tensor(place).data for name, place in self._places.items()}

    def executed(self) -> tuple[ExecutedLayer, ...]:
        """The layers of the compiled model that run in each call; see ``openvino_layers``."""
        with _vendor_errors(self._model):
            return executed_layers(self._compiled.get_runtime_model(), self._network)

    def profile(self) -> tuple[LayerTime, ...]:
        """Seconds per layer of one request alone, in a session of its own that counts them.

        The median of up to three calls within half a second, after one that warms up.
        """
        compiled = _compile(self._network, {**self._config, "PERF_COUNT": True}, self._model)
        times: dict[tuple[str, str], list[float]] = {}
        with _vendor_errors(self._model):
            request = compiled.create_infer_request()
            self._place(request, self._feeds[0])
            begin, done = time.monotonic(), 0
            while done < 2 or (done < 4 and time.monotonic() - begin < 0.5):
                request.infer()
                done += 1
                for part in request.profiling_info if done > 1 else ():
                    if part.status == openvino.ProfilingInfo.Status.EXECUTED:
                        key = (str(part.node_name), str(part.node_type))
                        times.setdefault(key, []).append(part.real_time.total_seconds())
        return tuple(LayerTime(name, op, float(np.median(all_s))) for (name, op), all_s in times.items())

    def close(self) -> None:
        """Free the requests and the compiled model."""
        self._requests.clear()
        self._feeds.clear()
        del self._compiled, self._network

    def _place(self, request: Any, feeds: Feeds) -> None:
        for position, tensor in enumerate(self.inputs):
            if tensor.name in feeds:
                shared = openvino.Tensor(feeds[tensor.name], shared_memory=True)
                request.set_input_tensor(position, shared)


# Whatever the vendor's module raises, and what its binding lets through from C++ and NumPy.
_VENDOR_ERRORS: tuple[type[Exception], ...] = (
    *(kind for kind in vars(vendor).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    MemoryError,
    RuntimeError,
    ValueError,
)

# Where in its own source an error arose, which OpenVINO says before and between what is wrong.
_WHERE = re.compile(
    r"Exception from \S+:\d+:|Check '.*?' failed at \S+:\d+:|FrontEnd API failed with \w+:", re.DOTALL
)


@contextlib.contextmanager
def _vendor_errors(model: Path, *, reading: bool = False) -> Iterator[None]:
    try:
        yield
    except _VENDOR_ERRORS as error:
        raise _mapped(error, model, reading=reading) from error


def _mapped(error: BaseException, model: Path, *, reading: bool = False) -> InferometerError:
    """The one table from the vendor's errors to ours; ``reading`` is when the file is at fault."""
    text = " ".join(_WHERE.sub("", str(error)).split())
    short = text if len(text) <= 400 else text[:400] + " ..."
    memory_words = (
        "bad_alloc", "bad allocation", "can't alloc", "Cannot allocate", "Failed to allocate",
        "out of memory",
    )  # fmt: skip
    if isinstance(error, MemoryError) or any(word in text for word in memory_words):
        return OutOfMemory(f"{model}: out of memory in openvino: {short or type(error).__name__}")
    strange = ("No conversion rule found", "not supported", "Unsupported ")
    if isinstance(error, vendor.NotImplementedFailure) or any(word in text for word in strange):
        return Unsupported(f"{model}: openvino does not know an operator or form of it: {short}")
    if "could not create a primitive" in text:
        return Unsupported(f"{model}: openvino has no kernel for it: {short}")
    if reading:
        return ModelError(f"{model}: openvino cannot read it: {short}")
    return EngineError(f"{model}: openvino failed: {short}")


def _count(options: Mapping[str, Any], key: str) -> int | None:
    """A whole number among the options; None when absent."""
    value = options.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or not 1 <= value <= _MAX_THREADS:
        raise EngineError(f"openvino: {key}: wants a whole number from 1 to {_MAX_THREADS}: {value!r}")
    return value


@functools.cache
def _core() -> openvino.Core:
    """One for the process, as OpenVINO wants it: each would load its plug-ins again."""
    return openvino.Core()


def _frontend(model: Path) -> Any:
    """The reader of ONNX files; ``Core.read_model`` would try all its readers on a broken one."""
    with _vendor_errors(model):
        return _frontends().load_by_framework("onnx")


@functools.cache
def _frontends() -> Any:
    return openvino.frontend.FrontEndManager()


def _capabilities() -> Sequence[str]:
    return tuple(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))


def _read(model: Path, batch: int) -> Any:
    """The model with each open first dimension of an input set to ``batch``."""
    if not model.is_file():
        raise ModelError(f"{model}: no such file")
    # The reader holds the file and a copy of its weights, and crashes where memory ends while it copies.
    with _vendor_errors(model, reading=True):
        np.empty(2 * model.stat().st_size + _READER_BYTES, np.uint8)
    network = _converted(model)
    if not network.outputs:
        raise ModelError(f"{model}: openvino finds no output in it")
    shapes = [port.get_partial_shape() for port in network.inputs]
    for port, shape in zip(network.inputs, shapes, strict=True):
        if shape.rank.is_dynamic:
            raise Unsupported(f"{model}: input {port.get_any_name()!r} has no known rank: give its shape")
    position = batch_position(shapes)
    fixed = None if position is None or shapes[position][0].is_dynamic else shapes[position][0].get_length()
    if fixed not in (None, batch):
        raise Unsupported(f"{model}: its batch is fixed at {fixed}, asked for {batch}")
    for shape in shapes:
        if len(shape) and shape[0].is_dynamic:
            shape[0] = batch
    with _vendor_errors(model):
        network.reshape(dict(zip(network.inputs, shapes, strict=True)))
    return network


def _converted(model: Path) -> Any:
    """The file as OpenVINO's own graph; written in other words first where its reader needs that."""
    try:
        network = _from_file(model, model)
    except (ModelError, Unsupported) as error:
        flat = without_functions(model) if isinstance(error, Unsupported) else None
        if flat is None:
            reason = unreadable(model)
            raise (Unsupported(f"{model}: {reason}") if reason else error) from error
        return _rewritten(flat, model)
    return _rewritten(readable(model), model) if misread(model, network) else network


def _from_file(path: Path, named: Path) -> Any:
    """What the reader makes of ``path``; errors speak of ``named``."""
    frontend = _frontend(named)
    with _vendor_errors(named, reading=True):
        return frontend.convert(frontend.load(str(path)))


def _rewritten(content: ModelProto, model: Path) -> Any:
    with tempfile.TemporaryDirectory(prefix="inferometer-openvino-") as folder:
        path = Path(folder) / model.name
        save(content, path)
        return _from_file(path, model)


def _compile(network: Any, config: Mapping[str, Any], model: Path) -> openvino.CompiledModel:
    """Compile for the CPU; refuses when OpenVINO settles on another arithmetic than it was told."""
    with _vendor_errors(model):
        compiled = _core().compile_model(network, "CPU", dict(config))
        settled = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    if settled != config["INFERENCE_PRECISION_HINT"]:
        raise Unsupported(f"{model}: openvino would run {settled}, not {config['INFERENCE_PRECISION_HINT']}")
    return compiled


def _name(port: Any) -> str:
    """The name in the ONNX file, which OpenVINO's node carries."""
    known, own = port.get_names(), port.get_node().get_friendly_name().removesuffix("/sink_port_0")
    return str(own if own in known else port.get_any_name())


def _info(port: Any) -> TensorInfo:
    """An input, or an output that can be handed out; one of unknown rank looks like a scalar."""
    shape = port.get_partial_shape()
    sides = (
        ()
        if shape.rank.is_dynamic
        else tuple(side.get_length() if side.is_static else None for side in shape)
    )
    return TensorInfo(_name(port), sides, _DTYPES[_kind(port)])


def _kind(port: Any) -> str:
    return str(port.get_element_type().get_type_name())

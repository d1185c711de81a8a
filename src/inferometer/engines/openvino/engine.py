"""OpenVINO on the CPU, and on the GPUs and NPUs that it finds.

What ran is read back from the compiled model's runtime graph: the layers after fusing, with the
element types that their kernels take, so a layer counts as ``int8`` only if an integer kernel ran.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
from inferometer.engines.openvino import devices
from inferometer.engines.openvino.layers import executed_layers, note
from inferometer.engines.openvino.network import compiled, network
from inferometer.engines.openvino.options import config_of, float_option, settled
from inferometer.engines.openvino.roles import joined, roles
from inferometer.engines.openvino.vendor import VENDOR_ERRORS, core, mapped, openvino, vendor_errors
from inferometer.errors import Unsupported
from inferometer.records import Precision

__all__ = ["OpenVinoEngine", "OpenVinoSession"]

# OpenVINO's names of element types, and NumPy's names of the same.
_DTYPES = {
    "f32": "float32", "f16": "float16", "f64": "float64", "u8": "uint8", "i8": "int8", "u16": "uint16",
    "i16": "int16", "u32": "uint32", "i32": "int32", "u64": "uint64", "i64": "int64", "boolean": "bool",
}  # fmt: skip


class OpenVinoEngine:
    """OpenVINO's plug-ins for devices."""

    name = "openvino"
    version = str(openvino.__version__)
    computes = True

    def devices(self) -> list[Device]:
        """What OpenVINO finds, the CPU first; see ``openvino_devices`` for the names."""
        with vendor_errors(Path("openvino's devices")):
            return devices.listed(core())

    def variants(self) -> list[Variant]:
        """One: what its options choose is the same library."""
        return [Variant({}, version=self.version)]

    def precisions(self, device: str, options: Mapping[str, Any]) -> dict[Precision, str | None]:
        """Those that OpenVINO lists for the device; the option ``float`` must be among them for int8.

        Raises:
            Unsupported: There is no such device.
            EngineError: The option ``float`` is not known.
        """
        with vendor_errors(Path("openvino's devices")):
            name = devices.vendor_name(core(), device)
            return devices.precisions(core(), name, float_option(options))

    def check(self, device: str, options: Mapping[str, Any]) -> None:
        """Refuse what `load` would refuse of them.

        Raises:
            Unsupported: There is no such device, or it has nothing of what an option asks for.
            EngineError: An option is not known, or does not take its value.
        """
        with vendor_errors(Path("openvino's devices")):
            config_of(core(), devices.vendor_name(core(), device), "fp32", options)

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
        ``streams`` sets how many requests are computed at once, each on its part of the threads, instead of
        what the hint finds; with ``in_flight`` 1 there is one all the same. ``float`` is the arithmetic, at
        int8, of the layers that are not quantized: ``f32`` (the default; ``f16`` on a device without it),
        ``bf16`` or ``f16``; it says nothing of other precisions. ``copies`` may be ``excluded`` on the CPU
        alone: elsewhere a call spans its transfers.

        Raises:
            ModelError: The file is no valid model.
            Unsupported: There is no such device, it cannot run this precision, model or option.
            OutOfMemory: Memory ran out.
            EngineError: Anything else that OpenVINO reports, or an unknown option.
        """
        reason = self.precisions(device, options)[precision]
        with vendor_errors(model):
            name = devices.vendor_name(core(), device)
            config = config_of(core(), name, precision, options)
        if reason is not None:
            raise Unsupported(f"openvino on {device} cannot run {precision}: {reason}")
        return OpenVinoSession(model, batch, config, name)


class OpenVinoSession(Session):
    """One compiled model, and an infer request for each slot.

    Outputs that are no arrays of numbers are not handed out: ``skipped`` says why, by name.
    """

    def __init__(self, model: Path, batch: int, config: Mapping[str, Any], device: str = "CPU") -> None:
        """Read ``model``, set its batch, compile it; ``config`` and the name of ``device`` are OpenVINO's."""
        self._model, self._config, self._device = model, dict(config), device
        self._network = network(model, batch)  # kept: the compiled model shares its weights
        begin = time.monotonic()
        self._compiled = compiled(self._network, device, self._config, model)
        self.compile_s = time.monotonic() - begin
        self._describe()
        with vendor_errors(model):
            self.settled = settled(self._compiled)
            if config.get("PERFORMANCE_HINT") == "THROUGHPUT":
                best = int(self._compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
                self.in_flight = min(best, config.get("PERFORMANCE_HINT_NUM_REQUESTS", best))
            self._requests = [self._compiled.create_infer_request() for _ in range(self.in_flight)]
        self._feeds: list[Feeds] = [{} for _ in self._requests]

    def _describe(self) -> None:
        for port in self._compiled.inputs:
            if _kind(port) not in _DTYPES:
                raise Unsupported(
                    f"{self._model}: input {_name(port)!r} is {_kind(port)}, which nothing here can feed"
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

    @property
    def raw(self) -> openvino.CompiledModel:
        """The vendor's compiled model, for measuring it without Inferometer."""
        return self._compiled

    def _prepare(self, slot: int, feeds: Feeds) -> None:
        # The request reads these arrays where they are, so they must live as long as it may.
        self._feeds[slot] = {
            name: np.require(array, requirements=("C", "W")) for name, array in feeds.items()
        }
        with vendor_errors(self._model):
            self._place(self._requests[slot], self._feeds[slot])

    def submit(self, slot: int) -> None:
        """Start the slot's request."""
        try:
            self._requests[slot].start_async()
        except VENDOR_ERRORS as error:
            raise mapped(error, self._model) from error

    def wait(self, slot: int) -> None:
        """Return when the slot's request is done."""
        try:
            self._requests[slot].wait()
        except VENDOR_ERRORS as error:
            raise mapped(error, self._model) from error

    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """Copies of the slot's outputs."""
        return {name: values.copy() for name, values in self.view(slot).items()}

    def view(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """The slot's outputs where the request wrote them, and will write its next ones."""
        with vendor_errors(self._model):
            request = self._requests[slot]
            return {name: request.get_output_tensor(place).data for name, place in self._places.items()}

    def executed(self) -> tuple[ExecutedLayer, ...]:
        """The layers of the compiled model that run in each call; see ``openvino_layers``."""
        graph = self._graph()
        if graph is None:
            return ()
        with vendor_errors(self._model):
            return executed_layers(graph, self._network)

    def profile(self) -> tuple[LayerTime, ...]:
        """Seconds per layer of one request alone, in a session of its own that counts them.

        The median of up to three calls within half a second, after one that warms up. Names are those of
        ``executed``; layers that take no time, or nothing but hand inputs and outputs over, are not there.
        """
        timed = compiled(self._network, self._device, {**self._config, "PERF_COUNT": True}, self._model)
        times: dict[str, list[float]] = defaultdict(list)
        ops: dict[str, str] = {}
        with vendor_errors(self._model):
            request = timed.create_infer_request()
            self._place(request, self._feeds[0])
            begin, done = time.monotonic(), 0
            while done < 2 or (done < 4 and time.monotonic() - begin < 0.5):
                request.infer()
                done += 1
                for name, op, seconds in _times(request) if done > 1 else ():
                    times[name].append(seconds)
                    ops[name] = op
        return self._named(timed, {name: float(np.median(all_s)) for name, all_s in times.items()}, ops)

    def _named(
        self, timed: Any, seconds: Mapping[str, float], ops: Mapping[str, str]
    ) -> tuple[LayerTime, ...]:
        graph = self._graph()
        if graph is None:
            return tuple(LayerTime(name, ops[name], spent) for name, spent in seconds.items())
        with vendor_errors(self._model):
            names = joined(timed.get_runtime_model(), graph)
            role_of = roles(graph, self._network)
            kinds = {node.get_friendly_name(): note(node, "layerType") for node in graph.get_ordered_ops()}
        found = []
        for name, spent in seconds.items():
            ours = names.get(name, name)
            kind = kinds.get(ours) or ops[name]
            if kind not in ("Input", "Output"):
                found.append(LayerTime(ours, kind, spent, role_of.get(ours, "compute")))
        return tuple(found)

    def _graph(self) -> Any:
        """The runtime graph; None where a plug-in other than the CPU's gives none, or an empty one."""
        try:
            graph = self._compiled.get_runtime_model()
            told = any(note(node, "layerType") for node in graph.get_ordered_ops())
        except VENDOR_ERRORS as error:
            if devices.is_cpu(self._device):
                raise mapped(error, self._model) from error
            return None
        return graph if told else None

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


def _times(request: Any) -> list[tuple[str, str, float]]:
    """Name, operator and seconds of each layer of a request's last call; those of one name added up."""
    spent: dict[str, float] = defaultdict(float)
    ops: dict[str, str] = {}
    for part in request.profiling_info:
        if part.status == openvino.ProfilingInfo.Status.EXECUTED:
            name = str(part.node_name)
            spent[name] += part.real_time.total_seconds()
            ops[name] = str(part.node_type)
    return [(name, ops[name], seconds) for name, seconds in spent.items()]


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

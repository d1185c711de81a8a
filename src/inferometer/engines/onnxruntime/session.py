"""A model loaded by ONNX Runtime, on any provider.

What ran is read back from the runtime's own profile, of a separate session: kernels of the fused graph with
the shapes and dtypes they saw, so a layer counts as ``int8`` only if an integer kernel ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from inferometer.contracts import ExecutedLayer, Feeds, LayerTime, Role, Session
from inferometer.engines.onnxruntime.errors import VENDOR_ERRORS, mapped, vendor_errors
from inferometer.engines.onnxruntime.layers import counts, executed_layer, layer_name, own_names, role
from inferometer.engines.onnxruntime.opening import Opening, assignment, open_session, session_options
from inferometer.engines.onnxruntime.openvino import inner_layers, inner_times, macs_by_name
from inferometer.engines.onnxruntime.profile import BLOCKED, Kernels, kernels_of, plain_kernels_of
from inferometer.engines.onnxruntime.slots import DeviceSlot, HostSlot, Slot
from inferometer.engines.onnxruntime.tensors import DTYPES, inputs_of, outputs_of, settled_outputs
from inferometer.errors import ModelError
from inferometer.models.files import load

__all__ = ["OnnxRuntimeSession"]


class OnnxRuntimeSession(Session):
    """One ``InferenceSession``; calls are synchronous, in the thread that submits them.

    Outputs that are no arrays of numbers (strings, maps, sequences) are computed in each call as well, but
    not handed out: ``skipped`` says why, by name.
    """

    def __init__(self, opening: Opening, batch: int) -> None:
        """Load the model; its threads are shared by its requests.

        Raises:
            InferometerError: As `open_session`, `assignment` and `inputs_of` do.
        """
        self._opening, self._model, self._batch = opening, opening.model, batch
        self.in_flight = opening.in_flight
        threads = max(1, opening.threads // opening.in_flight)
        options = session_options(opening, threads)
        if opening.in_flight > 1:
            # Threads that wait by spinning would keep the cores from the callers.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = open_session(opening, options)
        self.inputs = inputs_of(self._session.get_inputs(), batch, self._model)
        self.outputs = outputs_of(self._session, batch)
        results = self._session.get_outputs()
        self.skipped = {
            node.name: f"it is no array of numbers but {node.type}"
            for node in results
            if node.type not in DTYPES
        }
        self._names = [node.name for node in results]
        self._slots = self._new_slots()
        self._plain_names: Mapping[str, str] | None = None
        self._settled = self._settle(threads)
        self.settled = self._settled

    @property
    def raw(self) -> onnxruntime.InferenceSession:
        """The vendor's session, for measuring it without Inferometer."""
        return self._session

    def _prepare(self, slot: int, feeds: Feeds) -> None:
        with vendor_errors(self._model):
            self._slots[slot].feed(feeds)

    def submit(self, slot: int) -> None:
        """Run the call; it is done on return."""
        try:
            self._slots[slot].run()
        except VENDOR_ERRORS as error:
            raise mapped(error, self._model) from error

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

        What a provider has compiled is one layer of unknown precision, unless its own kernels are told.
        Afterwards ``settled`` counts the kernels on integers and floats among those that multiply.
        """
        kernels, self._plain_names = plain_kernels_of(self._opening, self._names, self._slots[0].feeds)
        # With tf32 allowed, the libraries choose for each kernel whether to take it.
        floats = "unknown" if self._opening.precision == "tf32" else "fp32"
        layers = [
            executed_layer(event, floats)
            for place, event in enumerate(kernels.nodes)
            if place not in kernels.inside
        ]
        layers += self._inside(kernels, layers)
        if "unknown" not in {layer.precision for layer in layers}:
            self._settled |= counts(layers)
        return tuple(layers)

    def profile(self) -> tuple[LayerTime, ...]:
        """Seconds per kernel, in a session of its own; empty on a GPU, where the profile times the launches.

        The median of up to three calls within half a second, after one that warms up.
        """
        if self._opening.device != "cpu":
            return ()
        if self._plain_names is None:
            _, self._plain_names = plain_kernels_of(self._opening, self._names, self._slots[0].feeds)
        calls = kernels_of(self._opening, self._names, self._slots[0].feeds, calls=4, enough_s=0.5)
        own = self._look_up(calls[0])
        times: dict[str, list[float]] = {}
        kinds: dict[str, tuple[str, Role]] = {}
        for kernels in calls[1:]:
            spent: dict[str, float] = {}
            for name, op, purpose, seconds in self._timed(calls, kernels, own):
                spent[name] = spent.get(name, 0.0) + seconds
                kinds[name] = (op, purpose)
            for name, seconds in spent.items():
                times.setdefault(name, []).append(seconds)
        return tuple(
            LayerTime(name, kinds[name][0], float(np.median(all_s)), kinds[name][1])
            for name, all_s in times.items()
        )

    def close(self) -> None:
        """Free the session."""
        self._slots = []
        del self._session

    def _new_slots(self) -> list[Slot]:
        usable = frozenset(tensor.name for tensor in self.outputs)
        settled, device = settled_outputs(self._session), self._opening.device
        if device != "cpu" and not self._opening.copies:
            index = int(device.partition(":")[2])
            return [
                DeviceSlot(self._session, self._names, usable, settled, index) for _ in range(self.in_flight)
            ]
        return [HostSlot(self._session, self._names, usable, settled) for _ in range(self.in_flight)]

    def _settle(self, threads: int) -> dict[str, Any]:
        opening = self._opening
        found: dict[str, Any] = {
            "provider": opening.provider.name,
            "threads": threads * opening.in_flight,
            "intra_op_num_threads": threads,
            "graph_optimization_level": "ORT_ENABLE_ALL",
            "available_providers": list(onnxruntime.get_available_providers()),
            "build": str(onnxruntime.get_build_info()),
            **assignment(self._session, opening),
        }
        if opening.provider.plugin is not None:
            found["plugin"] = f"{opening.provider.plugin.package} {opening.provider.plugin.version}"
        own = self._session.get_provider_options().get(opening.provider.name)
        if opening.provider.word != "cpu" and own:
            found["provider_options"] = dict(own)
        if opening.device != "cpu":
            found["host_memory"] = "pageable" if opening.copies else "not used: inputs and outputs are bound"
        if opening.content is not None:
            found["model"] = "float16, by onnxruntime.transformers.float16"
        return found

    def _inside(self, kernels: Kernels, others: list[ExecutedLayer]) -> tuple[ExecutedLayer, ...]:
        events = [event for inside in kernels.inside.values() for event in inside]
        if not events:
            return ()
        try:
            macs = macs_by_name(load(self._model, weights=False), self._batch)
        except ModelError:
            macs = None
        counted = [layer.macs for layer in others]
        elsewhere = None if None in counted else sum(count or 0 for count in counted)
        return inner_layers(events, macs, elsewhere)

    def _timed(
        self, calls: Sequence[Kernels], kernels: Kernels, own: frozenset[str]
    ) -> list[tuple[str, str, Role, float]]:
        """Name, operator, role and seconds of each of ``kernels``; the traces are in microseconds.

        Of those inside a compiled node only their means over all calls are known.
        """
        plain = self._plain_names or {}
        found: list[tuple[str, str, Role, float]] = []
        for place, event in enumerate(kernels.nodes):
            inside = {
                number: call.inside[place] for number, call in enumerate(calls, 1) if place in call.inside
            }
            if inside:
                found += inner_times(inside)
            else:
                name, op = layer_name(event), str(event["args"]["op_name"])
                found.append((plain.get(name, name), op, role(name, op, own), event["dur"] * 1e-6))
        return found

    def _look_up(self, kernels: Kernels) -> frozenset[str]:
        """The names of the model's own nodes, from the file, if any kernel needs them.

        Those that their results still lack are added to the names of kernels on blocked channels.
        """
        plain = dict(self._plain_names or {})
        blocked = {name for event in kernels.nodes if (name := layer_name(event)).endswith(BLOCKED)}
        ops = {str(event["args"]["op_name"]) for event in kernels.nodes}
        if not ops & {"Cast", "Transpose"} and blocked <= plain.keys():
            return frozenset()
        try:
            model = load(self._model, weights=False)
        except ModelError:
            return frozenset()
        for node in model.graph.node:
            for result in node.output if node.name else ():
                plain.setdefault(result + BLOCKED, node.name)
        self._plain_names = plain
        return own_names(model)

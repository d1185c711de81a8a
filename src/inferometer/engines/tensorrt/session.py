"""A plan on a GPU: an engine and its slots, what the vendor tells of them, and their memory.

The vendor's module and CUDA's runtime are handed in.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.contracts import ExecutedLayer, Feeds, LayerTime, Session, TensorInfo
from inferometer.engines.tensorrt.build import VENDOR_ERRORS
from inferometer.engines.tensorrt.layers import executed_layers, layer_times, layers_of
from inferometer.engines.tensorrt.slot import Loaded, Slot, new_context
from inferometer.errors import EngineError, Unsupported

__all__ = ["TensorRtSession", "deserialized"]

# TensorRT's names of element types, and NumPy's of the same.
_DTYPES = {
    "FLOAT": "float32", "HALF": "float16", "INT8": "int8", "INT32": "int32", "INT64": "int64",
    "BOOL": "bool", "UINT8": "uint8",
}  # fmt: skip


def deserialized(loaded: Loaded, plan: bytes) -> Any:
    """The engine of a plan, with the runtime that must outlive it.

    Raises:
        Unsupported: It cannot run on this GPU.
        OutOfMemory: Memory ran out.
        EngineError: It is of another version, damaged, or the vendor says otherwise.
    """
    loaded.log.take()
    try:
        runtime = loaded.vendor.Runtime(loaded.log)
        engine = runtime.deserialize_cuda_engine(plan)
    except VENDOR_ERRORS as error:
        raise loaded.failed(f"load its plan ({type(error).__name__})") from error
    if engine is None:
        raise loaded.failed("load its plan")
    return engine, runtime


class TensorRtSession(Session):
    """One engine on one GPU, which takes the slots in turn."""

    ordered = True

    def __init__(
        self, loaded: Loaded, engine: Any, in_flight: int, *, copies: bool, graphs: bool,
        settled: Mapping[str, Any], compile_s: float, free_bytes: int,
    ) -> None:  # fmt: skip
        """Make the contexts and buffers.

        Args:
            loaded: The file, the vendor and the rest.
            engine: Of `deserialized`.
            in_flight: Slots.
            copies: Whether a call transfers its inputs and outputs.
            graphs: Whether to try CUDA graphs.
            settled: What is known of the build.
            compile_s: Seconds of the build; 0 when the plan was kept.
            free_bytes: Free memory of the GPU before the engine was there.
        """
        self._loaded, self._engine, self._copies = loaded, engine, copies
        self._free_before, self._peak = free_bytes, 0
        self.in_flight, self.compile_s = in_flight, compile_s
        self._stack, self._slots = ExitStack(), list[Slot]()
        try:
            self._describe()
            for _ in range(in_flight):
                slot = Slot(loaded, self._raw, self.inputs, self.outputs, self._stack, copies)
                self._slots.append(slot)
            refused = next(filter(None, [slot.record(graphs) for slot in self._slots]), None)
            for slot in self._slots if refused else ():
                slot.forget_graph()  # all alike, or they would not be comparable
            self._watch()
        except BaseException:
            self.close()
            raise
        self.settled = {
            **settled,
            "cuda_graph": refused is None,
            **({"cuda_graph_refused": refused} if refused else {}),
            "streams": in_flight,
            "copies": "included" if copies else "excluded",
            "context_bytes": int(self._raw.device_memory_size_v2),
        }

    @property
    def _raw(self) -> Any:
        return self._engine[0]

    def _describe(self) -> None:
        """Say what goes in and comes out, in the order of the file."""
        found: dict[str, TensorInfo] = {}
        for position in range(self._raw.num_io_tensors):
            name = self._raw.get_tensor_name(position)
            kind = self._raw.get_tensor_dtype(name).name
            if kind not in _DTYPES:
                raise Unsupported(
                    f"{self._loaded.label}: tensor {name!r} is {kind}, which nothing here can handle"
                )
            if self._raw.is_shape_inference_io(name):
                raise Unsupported(
                    f"{self._loaded.label}: tensor {name!r} decides shapes, which are fixed here"
                )
            found[name] = TensorInfo(name, tuple(self._raw.get_tensor_shape(name)), _DTYPES[kind])
        missing = [
            name for name in (*self._loaded.file.inputs, *self._loaded.file.outputs) if name not in found
        ]
        if missing:
            raise EngineError(f"{self._loaded.label}: {self._loaded.name} left out the tensor {missing[0]!r}")
        self.inputs = tuple(found[name] for name in self._loaded.file.inputs)
        self.outputs = tuple(found[name] for name in self._loaded.file.outputs)

    def _prepare(self, slot: int, feeds: Feeds) -> None:
        self._slots[slot].feed(feeds)

    def submit(self, slot: int) -> None:
        """Launch the slot's graph, or put its transfers and its inference into the slot's stream."""
        self._slots[slot].start()

    def wait(self, slot: int) -> None:
        """Return when the slot's stream is done."""
        self._slots[slot].finish()

    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """Copies of the slot's outputs."""
        return {name: values.copy() for name, values in self.view(slot).items()}

    def view(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        """The slot's outputs in the host's memory, where the next call's will be."""
        return self._slots[slot].fetched()

    def executed(self) -> tuple[ExecutedLayer, ...]:
        """The layers by the engine's inspector; see ``tensorrt_layers``."""
        return executed_layers(self._layers(), self._loaded.file.macs, self._loaded.tf32)

    def profile(self) -> tuple[LayerTime, ...]:
        """Seconds per layer by TensorRT's profiler, in a context of its own without a CUDA graph.

        The median of up to three calls within half a second, after one that warms up.
        """
        loaded = self._loaded
        context = new_context(loaded, self._raw)
        calls = _profiler(loaded.vendor)()
        self._slots[0].bind(context)
        context.profiler = calls
        self._slots[0].send()
        begin, done = time.monotonic(), 0
        while done < 2 or (done < 4 and time.monotonic() - begin < 0.5):
            self._slots[0].enqueue(context)
            self._slots[0].finish()
            done += 1
            if done == 1:
                calls.seconds.clear()
        self._watch()
        medians = {name: float(np.median(all_s)) for name, all_s in calls.seconds.items()}
        return layer_times(medians, self._layers(), loaded.file.ops)

    def device_peak_bytes(self) -> int:
        """How much less memory the GPU had free than before loading, at its fullest after loading or since.

        What other processes took meanwhile counts as well; CUDA's own context, made before, does not.
        """
        self._watch()
        return self._peak

    def close(self) -> None:
        """Free the contexts, buffers, streams and the engine."""
        self._slots = []
        self._stack.close()
        self._engine = None

    def _watch(self) -> None:
        cuda = self._loaded.cuda
        cuda.call("cudaSetDevice", self._loaded.device)
        self._peak = max(self._peak, self._free_before - cuda.free_bytes())

    def _layers(self) -> Sequence[Mapping[str, Any]]:
        inspector = self._raw.create_engine_inspector()
        if inspector is None:
            return []
        text = inspector.get_engine_information(self._loaded.vendor.LayerInformationFormat.JSON)
        return layers_of(str(text or ""))


@functools.cache
def _profiler(vendor: Any) -> Any:
    class Times(vendor.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            vendor.IProfiler.__init__(self)
            self.seconds: dict[str, list[float]] = {}

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.seconds.setdefault(layer_name, []).append(ms / 1000)

    return Times

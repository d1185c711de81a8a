"""One request of a session: where its inputs lie, and where its outputs are written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime

from inferometer.contracts import Feeds

__all__ = ["DeviceSlot", "HostSlot", "Slot"]


class Slot(Protocol):
    """One request."""

    feeds: Feeds

    def feed(self, feeds: Feeds) -> None:
        """Place the inputs."""

    def run(self) -> None:
        """Compute; done on return."""

    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """The outputs of the last run by name."""


class HostSlot:
    """Inputs and outputs lie in host memory; on a GPU each run copies them there and back.

    Every run writes outputs to the same place: fresh memory for large outputs would cost more than many a
    layer (page faults). The first run gets it all the same: it shows the shapes.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        names: Sequence[str],
        usable: Collection[str],
        settled: Collection[str],
    ) -> None:
        """For outputs ``names``, of which ``usable`` are arrays and ``settled`` keep their shape."""
        self._session, self._names, self._usable, self._settled = session, names, usable, settled
        self._binding = session.io_binding()
        self._places: dict[str, npt.NDArray[Any]] = {}
        self.feeds: Feeds = {}

    def feed(self, feeds: Feeds) -> None:
        """Place the inputs."""
        self.feeds = {name: np.asarray(array, order="C") for name, array in feeds.items()}
        for name, array in self.feeds.items():
            self._binding.bind_cpu_input(name, array)

    def run(self) -> None:
        """Compute; done on return."""
        for name in self._names:
            if name not in self._places:
                self._binding.bind_output(name)  # again: the runtime would write to where it did before
        self._session.run_with_iobinding(self._binding)
        if not self._places and self._settled:
            for name, value in zip(self._names, self._binding.get_outputs(), strict=True):
                if name in self._settled:
                    self._place(name, value.numpy())

    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """The outputs of the last run by name."""
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


class DeviceSlot:
    """Inputs are put onto the GPU once, and outputs stay there until they are asked for.

    Source: ONNX Runtime's documentation, "I/O Binding".
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        names: Sequence[str],
        usable: Collection[str],
        settled: Collection[str],
        index: int,
    ) -> None:
        """As for `HostSlot`, on the GPU that CUDA calls ``index``."""
        self._session, self._names, self._usable, self._settled = session, names, usable, settled
        self._index = index
        self._binding = session.io_binding()
        self._kept: set[str] = set()
        self.feeds: Feeds = {}

    def feed(self, feeds: Feeds) -> None:
        """Copy the inputs to the device."""
        self.feeds = {name: np.asarray(array, order="C") for name, array in feeds.items()}
        for name, array in self.feeds.items():
            value = onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", self._index)
            self._binding.bind_ortvalue_input(name, value)
        self._binding.synchronize_inputs()

    def run(self) -> None:
        """Compute; done on return."""
        for name in self._names:
            if name not in self._kept:
                place = ("cuda", self._index) if name in self._usable else ("cpu", 0)
                self._binding.bind_output(name, *place)
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()
        if not self._kept and self._settled:
            for name, value in zip(self._names, self._binding.get_outputs(), strict=True):
                if name in self._settled:
                    self._binding.bind_ortvalue_output(name, value)
                    self._kept.add(name)

    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """Copies of the outputs of the last run by name."""
        values = self._binding.get_outputs()
        return {
            name: value.numpy()
            for name, value in zip(self._names, values, strict=True)
            if name in self._usable
        }

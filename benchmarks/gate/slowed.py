"""The plug-in engine ``slowed``: onnxruntime with some per cent of every call's time added, as it waits.

INFEROMETER_SLOWED holds the share by which the speed falls: 0.1 makes each call last 1/0.9 of its time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.contracts import ExecutedLayer, Feeds, LayerTime, Session
from inferometer.engines.onnxruntime.engine import OnnxRuntimeEngine
from inferometer.records import Precision

__all__ = ["SlowedEngine"]


class SlowedEngine(OnnxRuntimeEngine):
    """ONNX Runtime's CPU provider, slower."""

    name = "slowed"

    def load(
        self, model: Path, device: str, precision: Precision, batch: int, options: Mapping[str, Any]
    ) -> Session:
        """As onnxruntime does."""
        return _SlowedSession(super().load(model, device, precision, batch, options))


class _SlowedSession(Session):
    def __init__(self, inner: Session) -> None:
        self._inner = inner
        self._more = 1 / (1 - float(os.environ.get("INFEROMETER_SLOWED", "0"))) - 1
        self._begun = [0.0] * inner.in_flight
        self.inputs, self.outputs, self.in_flight = inner.inputs, inner.outputs, inner.in_flight
        self.settled, self.compile_s, self.ordered = inner.settled, inner.compile_s, inner.ordered

    def _prepare(self, slot: int, feeds: Feeds) -> None:
        self._inner.prepare(slot, feeds)

    def submit(self, slot: int) -> None:
        self._begun[slot] = time.perf_counter()
        self._inner.submit(slot)

    def wait(self, slot: int) -> None:
        self._inner.wait(slot)
        now = time.perf_counter()
        end = now + (now - self._begun[slot]) * self._more
        while time.perf_counter() < end:
            pass

    def results(self, slot: int) -> dict[str, np.ndarray[Any, Any]]:
        return self._inner.results(slot)

    def executed(self) -> tuple[ExecutedLayer, ...]:
        return self._inner.executed()

    def profile(self) -> tuple[LayerTime, ...]:
        return self._inner.profile()

    def close(self) -> None:
        self._inner.close()

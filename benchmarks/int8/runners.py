"""The engines on which quantized files are scored and timed, by their own interfaces alone.

Both in float32 where a layer is left in float: OpenVINO would take bfloat16 on CPUs that have it, and so
compare another thing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

ENGINES = ("onnxruntime", "openvino")


class Runner(Protocol):
    """A loaded file."""

    def logits(self, images: np.ndarray) -> np.ndarray:
        """[N, classes] for [N, C, H, W] float32."""

    def rate(self, images: np.ndarray, seconds: float) -> float:
        """Images/s over at least ``seconds`` and one call; nothing is done with the results."""


class OnnxRuntime:
    """The CPU provider, its default threads."""

    def __init__(self, file: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name

    def logits(self, images: np.ndarray) -> np.ndarray:
        return np.asarray(self._session.run(None, {self._input: images})[0])

    def rate(self, images: np.ndarray, seconds: float) -> float:
        feed = {self._input: images}
        begin, calls = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - begin) < seconds or not calls:
            self._session.run(None, feed)
            calls += 1
        return calls * len(images) / elapsed


class OpenVino:
    """The CPU device, with as many requests at once as its throughput hint finds best."""

    def __init__(self, file: Path) -> None:
        import openvino

        settings = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": "f32"}
        self._model = openvino.Core().compile_model(str(file), "CPU", settings)
        self._queue: Any = openvino.AsyncInferQueue(self._model)

    def logits(self, images: np.ndarray) -> np.ndarray:
        return np.array(self._model([images])[0])

    def rate(self, images: np.ndarray, seconds: float) -> float:
        begin, calls = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds or calls < len(self._queue):
            self._queue.start_async([images], share_inputs=True)
            calls += 1
        self._queue.wait_all()
        return calls * len(images) / (time.perf_counter() - begin)


def open_file(file: Path, engine: str) -> Runner:
    """Load an ONNX file, or OpenVINO's own form."""
    return OnnxRuntime(file) if engine == "onnxruntime" else OpenVino(file)

"""ONNX Runtime's provider for CUDA on a GPU: what every session must do, and what is its alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

import onnxruntime

from inferometer import registry
from inferometer.contracts import Engine, Session
from inferometer.errors import Unsupported
from tests.contract.engines import CLASSIFIER_MACS, EngineContract, classifier, in_float64

pytestmark = pytest.mark.gpu

CUDA = "CUDAExecutionProvider"


class TestCuda(EngineContract):
    name = "onnxruntime"
    leak_bytes = 64 * 1024**2

    @pytest.fixture(autouse=True)
    def _on_a_gpu(self) -> None:
        if CUDA not in onnxruntime.get_available_providers():
            pytest.skip(f"this onnxruntime has no {CUDA}: pip install onnxruntime-gpu")
        if "cuda:0" not in [device.name for device in registry.engine("onnxruntime").devices()]:
            pytest.skip("there is no GPU that CUDA shows")

    def open(self, engine: Engine, path: Path, batch: int = 2, **options: Any) -> Session:
        return engine.load(path, "cuda:0", "fp32", batch, {"threads": 1, **options})

    def test_every_precision_is_supported_or_refused_with_a_reason(self, engine: Engine, path: Path) -> None:
        for precision, reason in engine.precisions("cuda:0", {}).items():
            if reason is not None:
                with pytest.raises(Unsupported, match=precision):
                    engine.load(path, "cuda:0", precision, 1, {})

    @pytest.mark.parametrize("copies", ["included", "excluded"])
    def test_results_do_not_depend_on_where_inputs_and_outputs_lie(
        self, engine: Engine, path: Path, copies: str
    ) -> None:
        with self.open(engine, path, copies=copies) as session:
            for seed in range(3):
                found = session.infer(self.feeds(2, seed))["logits"]
                expected = in_float64(classifier(), self.feeds(2, seed))
                assert np.abs(found - expected).max() <= self.tolerance * np.abs(expected).max()

    def test_fp16_runs_in_float16(self, engine: Engine, path: Path) -> None:
        with engine.load(path, "cuda:0", "fp16", 2, {"threads": 1}) as session:
            session.prepare(0, self.feeds(2))
            layers = session.executed()
            assert "float16" in session.settled["model"]
        assert {layer.precision for layer in layers if layer.macs} == {"fp16"}
        assert sum(layer.macs or 0 for layer in layers) == 2 * CLASSIFIER_MACS

    def test_the_session_says_what_ran_where(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path) as session:
            settled = session.settled
            assert session.profile() == ()
        assert settled["provider"] == CUDA
        assert settled["nodes"][CUDA] > 0
        assert settled["provider_options"]["use_tf32"] == "0"

    def test_int8_is_refused(self, engine: Engine, path: Path) -> None:
        with pytest.raises(Unsupported, match="no integer kernels"):
            engine.load(path, "cuda:0", "int8", 2, {})

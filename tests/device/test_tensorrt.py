"""TensorRT and TensorRT-RTX on a GPU: what every session must do, and what is theirs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from inferometer import registry
from inferometer.contracts import Engine
from inferometer.errors import EngineError, Unsupported
from inferometer.models.files import save
from inferometer.quantize.insert import insert_qdq
from tests.contract.engines import CLASSIFIER_MACS, EngineContract, classifier, in_float64
from tests.unit.quantize.graphs import resnet, table_of

pytestmark = pytest.mark.gpu


def usable(name: str, path: Path, folder: Path) -> Engine:
    """The engine, or a skipped test with the reason why there is none here."""
    try:
        engine = registry.engine(name)
    except EngineError as error:
        pytest.skip(str(error))
    if not engine.devices():
        pytest.skip(f"{name}: {engine.precisions('', {})['fp32']}")
    try:
        engine.load(path, engine.devices()[0].name, "fp32", 2, {"cache": str(folder)}).close()
    except Unsupported as error:
        pytest.skip(str(error))
    return engine


class OnGpu(EngineContract):
    # Products are added in another order than in float64: 1e-5 holds for fp32, as on other engines.
    leak_bytes: ClassVar[int] = 64 * 1024**2

    @pytest.fixture
    def engine(self, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return usable(self.name, path, tmp_path / "plans")

    # Spacing of the numbers beside 1, some of which add up over four layers.
    @pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 2e-2), ("fp16", 2e-2), ("bf16", 1e-1)])
    def test_other_precisions_are_near_and_not_fp32(
        self, engine: Engine, path: Path, precision: Any, tolerance: float
    ) -> None:
        device = engine.devices()[0].name
        reason = engine.precisions(device, {})[precision]
        if reason is not None:
            pytest.skip(reason)
        feeds = self.feeds(2)
        expected = in_float64(classifier(), feeds)
        with engine.load(path, device, precision, 2, {}) as session:
            found = session.infer(feeds)["logits"]
            ran = {layer.precision: layer.macs for layer in session.executed() if layer.macs}
        assert found.dtype == np.float32
        assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()
        assert not ran or sum(ran.values()) <= 2 * CLASSIFIER_MACS
        assert precision == "tf32" or "fp32" not in ran

    def test_int8_runs_on_integers(self, engine: Engine, tmp_path: Path) -> None:
        model, path = resnet(), tmp_path / "quantized.onnx"
        device = engine.devices()[0].name
        scheme = engine.qdq_scheme(device, {})
        assert scheme is not None
        save(insert_qdq(model, table_of(model), scheme), path)
        (info,) = model.graph.input
        shape = [side.dim_value or 2 for side in info.type.tensor_type.shape.dim]
        with engine.load(path, device, "int8", 2, {}) as session:
            session.infer({info.name: np.zeros(shape, np.float32)})
            ran = {layer.precision for layer in session.executed() if layer.macs}
            roles = {layer.role for layer in session.profile()}
        assert not ran or "int8" in ran
        assert "compute" in roles

    def test_transfers_are_included_or_not_and_results_the_same(self, engine: Engine, path: Path) -> None:
        found = []
        for options in ({}, {"copies": "excluded"}, {"cuda_graph": False}):
            with self.open(engine, path, **options) as session:
                found.append(session.infer(self.feeds(2))["logits"])
                assert session.device_peak_bytes() >= 0
                assert session.settled["cuda_graph"] is not ("cuda_graph" in options)
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(found[0], found[2])

    def test_a_kept_plan_takes_no_compiling(self, engine: Engine, path: Path) -> None:
        for from_cache in (False, True):
            with self.open(engine, path) as session:
                assert session.settled["from_cache"] is from_cache
                assert (session.compile_s == 0) is from_cache


class TestTensorRt(OnGpu):
    name: ClassVar[str] = "tensorrt"


class TestTensorRtRtx(OnGpu):
    name: ClassVar[str] = "tensorrt_rtx"

"""The provider ``openvino``, of the package onnxruntime-ep-openvino, under the engine's contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
pytest.importorskip("onnxruntime_ep_openvino", reason="the package onnxruntime-ep-openvino is not installed")

from inferometer.contracts import Engine, Session
from inferometer.engines import schemes
from inferometer.engines.onnxruntime.providers import provider_variants
from inferometer.errors import EngineError, Unsupported
from tests.contract.engines import CLASSIFIER_MACS, EngineContract, classifier
from tests.contract.qdq import with_qdq

PROVIDER = "OpenVINOExecutionProvider"
OPTIONS = {"threads": 1, "provider": "openvino"}
# The plug-in takes the processors of some makers alone.
NONE_HERE = next(one.reason for one in provider_variants() if one.options == {"provider": "openvino"})
pytestmark = pytest.mark.skipif(NONE_HERE is not None, reason=str(NONE_HERE))
# It has no kernel for FastGelu of onnxruntime's own domain, so that one stays on the CPU's provider.
SPLIT = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
g (float[2, 4] input) => (float[2, 4] y) {
  a = Mul(input, input)  b = com.microsoft.FastGelu(a)  y = Relu(b)
}"""
FOREIGN = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
g (float[2, 4] input) => (float[2, 4] y) { y = com.microsoft.FastGelu(input) }"""


def saved(text: str, path: Path) -> Path:
    model = parser.parse_model(text)
    for node in model.graph.node:
        node.name = f"the_{node.op_type}"
    onnx.save(model, path)
    return path


class TestOpenVinoProvider(EngineContract):
    name = "onnxruntime"

    def open(self, engine: Engine, path: Path, batch: int = 2, **options: Any) -> Session:
        return engine.load(path, "cpu", "fp32", batch, {**OPTIONS, **options})

    def test_every_precision_is_supported_or_refused_with_a_reason(self, engine: Engine, path: Path) -> None:
        supported = engine.precisions("cpu", OPTIONS)
        assert supported["fp32"] is None
        assert supported["int8"] is None
        for precision, reason in supported.items():
            if reason is not None:
                with pytest.raises(Unsupported, match=precision):
                    engine.load(path, "cpu", precision, 1, OPTIONS)

    @pytest.mark.parametrize("precision", ["bf16", "fp16"])
    def test_a_precision_that_the_device_lists_is_what_runs(
        self, engine: Engine, path: Path, precision: Any
    ) -> None:
        if engine.precisions("cpu", OPTIONS)[precision] is not None:
            pytest.skip(f"OpenVINO lists no {precision} for this CPU")
        with engine.load(path, "cpu", precision, 2, OPTIONS) as session:
            session.prepare(0, self.feeds(2))
            layers = session.executed()
        assert {layer.precision for layer in layers if layer.macs} == {precision}
        assert sum(layer.macs or 0 for layer in layers) == 2 * CLASSIFIER_MACS

    def test_a_model_in_its_own_form_of_int8_runs_on_integers(
        self, engine: Engine, path: Path, tmp_path: Path
    ) -> None:
        scheme = engine.qdq_scheme("cpu", OPTIONS)
        assert scheme == schemes.openvino("cpu", {})
        assert scheme is not None
        quantized = with_qdq(path, tmp_path / "int8.onnx", scheme)
        with engine.load(quantized, "cpu", "int8", 2, OPTIONS) as session:
            session.prepare(0, self.feeds(2))
            layers, times = session.executed(), session.profile()
            settled = dict(session.settled)
        assert sum(layer.macs or 0 for layer in layers) == 2 * CLASSIFIER_MACS
        assert {layer.precision for layer in layers if layer.macs} == {"int8"}
        assert (settled["integer_kernels"], settled["float_kernels"]) == (4, 0)
        assert settled["quantize_nodes"] >= 1
        roles = {layer.role for layer in times}
        assert roles == {"compute", "quantize", "reorder"}

    def test_the_session_says_what_it_settled_on(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path, threads=2, in_flight=2) as session:
            settled = session.settled
        assert settled["provider"] == PROVIDER
        assert settled["plugin"].startswith("onnxruntime-ep-openvino ")
        assert settled["nodes"] == {PROVIDER: len(classifier().graph.node)}
        assert settled["fallback"] == []
        assert (settled["threads"], settled["intra_op_num_threads"]) == (2, 1)
        assert '"NUM_STREAMS": "2"' in settled["provider_options"]["load_config"]
        assert '"INFERENCE_PRECISION_HINT": "f32"' in settled["provider_options"]["load_config"]

    def test_the_same_names_stand_in_both_readings(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path) as session:
            session.prepare(0, self.feeds(2))
            layers, times = session.executed(), session.profile()
        # A kernel that takes less than a microsecond is left out of the times.
        assert {(time.name, time.op) for time in times} <= {(layer.name, layer.op) for layer in layers}
        assert {layer.name for layer in layers if layer.macs} & {time.name for time in times}
        assert {time.op for time in times if time.role == "reorder"} == {"Reorder"}

    def test_nodes_that_it_does_not_take_are_named_and_timed(self, engine: Engine, tmp_path: Path) -> None:
        path = saved(SPLIT, tmp_path / "split.onnx")
        x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
        with self.open(engine, path) as session:
            assert session.settled["nodes"] == {PROVIDER: 2, "CPUExecutionProvider": 1}
            assert session.settled["fallback"] == ["the_FastGelu (FastGelu)"]
            result = session.infer({"input": x})["y"]
            assert "FastGelu" in {layer.op for layer in session.executed()}
            assert "FastGelu" in {layer.op for layer in session.profile()}
        with engine.load(path, "cpu", "fp32", 2, {"threads": 1}) as session:
            np.testing.assert_allclose(result, session.infer({"input": x})["y"], rtol=1e-4, atol=1e-5)

    def test_a_model_of_which_it_takes_nothing_is_refused(self, engine: Engine, tmp_path: Path) -> None:
        path = saved(FOREIGN, tmp_path / "foreign.onnx")
        with pytest.raises(Unsupported, match="takes none of its 1 nodes, such as the_FastGelu"):
            self.open(engine, path)

    def test_it_is_listed_with_the_version_of_its_package(self, engine: Engine) -> None:
        found = {variant.options.get("provider"): variant for variant in engine.variants()}
        assert found["openvino"].reason is None
        assert found["openvino"].version

    def test_a_gpu_that_it_has_not_got_is_refused(self, engine: Engine, path: Path) -> None:
        assert "runs on cpu" in str(engine.precisions("cuda:7", OPTIONS)["fp32"])
        with pytest.raises(EngineError, match="there is no device 'cuda:7'"):
            engine.load(path, "cuda:7", "fp32", 1, OPTIONS)

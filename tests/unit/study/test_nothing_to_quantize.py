"""INT8 of a model without any layer that has integer kernels: a result, not a fault."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from inferometer.config import Study, parse
from inferometer.study.run import run_study
from tests.unit.cli.command import inferometer
from tests.unit.study.watcher import Remembering

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")


@pytest.fixture
def pooling(tmp_path: Path) -> Path:
    """One maximum over windows: no weights, and nothing to multiply."""
    shape = ["N", 3, 8, 8]
    graph = helper.make_graph(
        [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])],
        "pooling",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3, 4, 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "pooling.onnx"
    onnx.save(model, path)
    return path


def test_its_trials_are_unsupported_with_the_reason(pooling: Path, tmp_path: Path) -> None:
    content = {
        "models": [str(pooling)],
        "precisions": ["fp32", "int8"],
        "batches": [1],
        "repeats": 1,
        "kinds": ["throughput"],
        "measure": {"max_s": 0.05, "warmup_max_s": 0.05},
    }
    outcome = run_study(parse(Study, content, "test"), tmp_path / "out", Remembering())
    found = {(one.trial.kind, one.trial.precision): one for one in outcome.records}
    assert {key: one.status for key, one in found.items()} == {
        ("calibration", "fp32"): "unsupported",
        ("throughput", "fp32"): "ok",
        ("throughput", "int8"): "unsupported",
    }
    reason = found["throughput", "int8"].reason
    assert reason is not None
    assert reason.startswith("pooling has no INT8 form: there is nothing to quantize: ")


def test_calibrating_it_alone_is_still_an_error(
    pooling: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
    images = ["--data", tmp_path, "--preprocess", "raw", "--images", 1]
    ended = inferometer(capsys, "calibrate", pooling, *images, "--out", tmp_path / "int8.onnx")
    assert ended.code == 6
    assert "there is nothing to quantize" in ended.err

"""Engines that this version writes files for and does not run."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import onnx
import pytest

from inferometer import registry
from inferometer.errors import Unsupported
from inferometer.models.files import file_sha256
from inferometer.records import Precision
from tests.unit.quantize.graphs import resnet, table_of

ENGINES = ["tensorrt", "tensorrt_rtx", "torch"]

# A process in which none of the vendors' libraries can be imported.
WITHOUT = (
    "import sys\n"
    "for name in ('tensorrt', 'tensorrt_rtx', 'tensorrt_rtx_bindings', 'torch'): sys.modules[name] = None\n"
    "from inferometer.__main__ import main\n"
    "main()\n"
)


@pytest.mark.parametrize("name", ENGINES)
def test_nothing_runs_and_the_reason_says_what_does_work(name: str) -> None:
    engine = registry.engine(name)
    assert engine.name == name
    assert list(engine.devices()) == []
    reasons = engine.precisions("cuda:0", {})
    assert set(reasons) == set(get_args(Precision))
    assert all(reason and f"calibrate --engine {name}" in reason for reason in reasons.values())
    with pytest.raises(Unsupported, match=rf"^{name}: this version writes INT8 files .* cannot run it yet"):
        engine.load(Path("any.onnx"), "cuda:0", "int8", 1, {})


@pytest.mark.parametrize("name", ENGINES)
def test_calibrate_writes_its_files_without_the_vendors_library(name: str, tmp_path: Path) -> None:
    model, table, out = tmp_path / "m.onnx", tmp_path / "t.json", tmp_path / "q.onnx"
    onnx.save(resnet(), model)
    table_of(resnet()).model_copy(update={"model_sha256": file_sha256(model)}).save(table)
    command = ["calibrate", str(model), "--table", str(table), "--engine", name, "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    zeros = [item for item in onnx.load(out).graph.initializer if item.name.endswith("zero_point")]
    assert {item.data_type for item in zeros} == {onnx.TensorProto.INT8}

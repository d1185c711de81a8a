"""An engine's form of INT8 files is data: they are written where its library is not."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from inferometer.models.files import file_sha256
from tests.unit.quantize.graphs import resnet, table_of

ENGINES = ["tensorrt", "tensorrt_rtx", "torch"]

# A process in which none of the vendors' libraries can be imported.
WITHOUT = (
    "import sys\n"
    "names = ['tensorrt', 'tensorrt_bindings', 'tensorrt_rtx', 'tensorrt_rtx_bindings', 'cuda', 'torch']\n"
    "for name in names: sys.modules[name] = None\n"
    "from inferometer.__main__ import main\n"
    "main()\n"
)


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

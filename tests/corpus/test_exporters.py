"""Files of PyTorch, scikit-learn, Keras, TensorFlow and PaddlePaddle give what the framework gives."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

from inferometer import registry
from inferometer.errors import InferometerError, MissingExtra, ModelError
from inferometer.models import describe, load, save, set_batch
from inferometer.quantize.graph import observed_tensors, prepare

# What an exporter needs beside its framework; those with None are run by `make test-all` in environments of
# their own, since they want other versions of onnx or protobuf, and leave their models in the environment.
NEEDED: dict[str, tuple[str, ...] | None] = {
    "torch": ("torch", "onnxscript"),
    "sklearn": ("sklearn", "skl2onnx"),
    "keras": ("keras", "torch", "onnxscript"),
    "tensorflow": None,
    "paddle": None,
}
NETWORKS = ("convolutions", "upsampling", "attention", "recurrent")
WAYS = ("traced-N", "traced-1", "captured-N", "captured-4")
MODELS = [
    *(("torch", f"{network}-{way}") for network in NETWORKS for way in WAYS),
    *(("sklearn", name) for name in ("logistic-maps", "logistic-arrays", "forest-words", "regression")),
    ("keras", "keras-torch"),
    *(("tensorflow", name) for name in ("bytes-any", "bytes-one", "keras-tensorflow")),
    *(("paddle", name) for name in ("paddle-any", "paddle-one")),
]
TOLERANCE = 2e-4

# Made for one batch, which they have between other axes too: they run at that one alone.
AT_ONE_BATCH = {
    "attention-traced-1": "'/mix/.*cannot be re-batched safely",
    "attention-captured-4": "'node_view_1' cannot be re-batched safely",
    "recurrent-captured-4": "'node_Reshape_[0-9]+'.*the batch elsewhere than on the leading axis",
}


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models by framework, filled as they are asked for."""
    return {"": tmp_path_factory.mktemp("exported")}


def folder_of(framework: str, exported: dict[str, Path]) -> Path:
    if framework not in exported:
        needed = NEEDED[framework]
        if needed is None:
            exported[framework] = Path(sys.prefix) / "exported" / framework
        else:
            for module in needed:
                if importlib.util.find_spec(module) is None:
                    pytest.skip(f"{module} is not installed: no model of {framework}'s exporter here")
            exported[framework] = exported[""] / framework
            environment = {**os.environ, "KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
            script = Path(__file__).with_name("export.py")
            done = subprocess.run(
                [sys.executable, str(script), framework, str(exported[framework])],
                capture_output=True, text=True, check=False, env=environment,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-2000:]
    if not exported[framework].is_dir():
        pytest.skip(f"the models of {framework}'s exporter are made by `make test-all`, where it installs")
    return exported[framework]


@pytest.fixture(params=MODELS, ids=lambda item: "-".join(item))
def files(request: pytest.FixtureRequest, exported: dict[str, Path]) -> tuple[Path, list[np.ndarray], list]:
    """The model, what is fed to it, and what its framework gives."""
    framework, name = request.param
    path = folder_of(framework, exported) / f"{name}.onnx"
    arrays = np.load(path.with_suffix(".npz"))
    fed = [arrays[f"in{number}"] for number in range(len(arrays.files)) if f"in{number}" in arrays]
    given = [arrays[f"out{number}"] for number in range(len(arrays.files)) if f"out{number}" in arrays]
    return path, fed, given


def run(path: Path, engine: str, batch: int, fed: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs that are arrays, in the file's order."""
    try:
        chosen = registry.engine(engine)
    except MissingExtra as error:
        pytest.skip(str(error))
    with chosen.load(path, "cpu", "fp32", batch, {"threads": 1}) as session:
        names = [tensor.name for tensor in session.inputs]
        found = session.infer(dict(zip(names, fed, strict=True)))
        return [found[tensor.name] for tensor in session.outputs]


def same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(found) >= len(wanted)
    for one, expected in zip(found, wanted, strict=False):
        assert one.shape == expected.shape
        scale = max(1.0, float(np.abs(expected).max()))
        assert np.abs(one.astype(np.float64) - expected).max() <= TOLERANCE * scale


def test_any_batch_gives_what_the_framework_gives(files: tuple, tmp_path: Path) -> None:
    path, fed, given = files
    summary = describe(path)
    assert [item.dtype for item in summary.inputs] == [array.dtype.name for array in fed]
    free = tmp_path / "free.onnx"
    if path.stem in AT_ONE_BATCH:
        with pytest.raises(ModelError, match=AT_ONE_BATCH[path.stem]):
            set_batch(load(path), None)
        return
    save(set_batch(load(path), None), free)
    for engine in ("onnxruntime", "openvino"):
        if engine == "openvino" and path.parent.name == "sklearn":
            with pytest.raises(InferometerError, match="openvino"):
                run(free, engine, 4, fed)
            continue
        same(run(free, engine, 4, fed), given)
        for row in range(4):
            rows = [array[row : row + 1] for array in fed]
            same(run(free, engine, 1, rows), [array[row : row + 1] for array in given])


def test_the_file_runs_as_it_is(files: tuple) -> None:
    path, fed, given = files
    batch = describe(path).batch or 4
    same(run(path, "onnxruntime", batch, [array[:batch] for array in fed]), [a[:batch] for a in given])


def test_what_is_prepared_for_int8_gives_the_same(files: tuple, tmp_path: Path) -> None:
    path, fed, given = files
    if path.parent.name == "sklearn":
        pytest.skip("no layers to quantize")
    prepared = tmp_path / "prepared.onnx"
    save(prepare(load(path)), prepared)
    assert len(observed_tensors(load(prepared))) > 0
    batch = describe(prepared).batch or 4
    same(run(prepared, "onnxruntime", batch, [array[:batch] for array in fed]), [a[:batch] for a in given])

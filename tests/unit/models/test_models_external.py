"""Models whose weights are in other files: read, described, changed and written whole, or refused."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from small_graphs import info, model, node, normal, run

from inferometer.errors import ModelError, StoreError
from inferometer.models import describe, external, file_sha256, files, load, save, set_batch


def _net() -> onnx.ModelProto:
    weights = {"w": normal(64, 32), "shape": np.array([1, -1], np.int64), "v": normal(32, 32, seed=1)}
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Reshape", ["h", "shape"], ["f"]),
        node("MatMul", ["f", "v"], ["y"]),
    ]
    return model(nodes, [info("x", [1, 64])], [info("y", [1, 32])], weights)


def _written(path: Path, *, one_file: bool = True, location: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(
        _net(), path, save_as_external_data=True, all_tensors_to_one_file=one_file, size_threshold=0,
        location=location,
    )  # fmt: skip
    return path


def _same(path: Path) -> None:
    x = normal(1, 64, seed=5)
    np.testing.assert_array_equal(run(load(path), x=x)[0], run(_net(), x=x)[0])


@pytest.mark.parametrize(("one_file", "location"), [(True, "m.data"), (False, None)])
def test_data_in_one_file_or_several(tmp_path: Path, one_file: bool, location: str | None) -> None:
    path = _written(tmp_path / "m.onnx", one_file=one_file, location=location)
    assert len(list(tmp_path.iterdir())) == (2 if one_file else 4)
    _same(path)
    summary = describe(path)
    assert summary.parameters == 64 * 32 + 32 * 32
    assert [row.output_shape for row in summary.layers] == [(1, 32)] * 3  # a shape in another file is read


def test_data_in_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    path = _written(tmp_path / "m.onnx", location="weights/m.data")
    _same(path)
    before = file_sha256(path)
    content = bytearray((tmp_path / "weights/m.data").read_bytes())
    content[0] ^= 1
    (tmp_path / "weights/m.data").write_bytes(content)
    assert file_sha256(path) != before


def _refused(path: Path, words: str) -> None:
    for read in (load, describe):
        with pytest.raises(ModelError, match=words) as caught:
            read(path)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(str(path))


def test_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path / "inner" / "m.onnx", location="m.data")
    (tmp_path / "inner" / "m.data").rename(tmp_path / "m.data")
    parsed = onnx.load(path, load_external_data=False)
    for name in ("../m.data", str(tmp_path / "m.data")):
        for tensor in parsed.graph.initializer:
            next(item for item in tensor.external_data if item.key == "location").value = name
        path.write_bytes(parsed.SerializeToString())
        _refused(path, "not a valid ONNX model.*(m.data|path)")


def test_data_behind_a_link_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """As caches of downloads keep files; onnx follows no link to data."""
    path = _written(tmp_path / "kept" / "m.onnx", location="m.data")
    (tmp_path / "seen").mkdir()
    for name in ("m.onnx", "m.data"):
        (tmp_path / "seen" / name).symlink_to(tmp_path / "kept" / name)
    _same(path)
    _refused(tmp_path / "seen" / "m.onnx", "symbolic link; name the model where it really lies")


def test_data_that_is_missing_or_too_short(tmp_path: Path) -> None:
    path = _written(tmp_path / "m.onnx", location="m.data")
    whole = (tmp_path / "m.data").read_bytes()
    (tmp_path / "m.data").write_bytes(whole[:-8])
    _refused(path, "truncated: tensor 'v' has|v.*(exceeds|external data)")
    (tmp_path / "m.data").unlink()
    _refused(path, "m.data")


def test_a_model_read_without_its_weights_is_changed_and_written_with_them(tmp_path: Path) -> None:
    path = _written(tmp_path / "m.onnx", location="m.data")
    light = load(path, weights=False)
    assert {t.name for t in light.graph.initializer if t.data_location == TensorProto.EXTERNAL} == {"w"}
    out = tmp_path / "elsewhere" / "free.onnx"
    save(set_batch(light, None), out, source=path)
    loaded = load(out)
    x = normal(3, 64, seed=5)
    rows = [run(_net(), x=x[[row]])[0] for row in range(3)]
    np.testing.assert_allclose(run(loaded, x=x)[0], np.concatenate(rows), rtol=1e-4, atol=1e-4)
    assert describe(out).batch is None
    with pytest.raises(ModelError, match="'w' is in another file: read the model with its weights"):
        save(light, tmp_path / "n.onnx")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["elsewhere", "m.data", "m.onnx"]


@pytest.fixture
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if protobuf held 4 KB."""
    monkeypatch.setattr(files, "LARGEST_MESSAGE", 4096)


@pytest.mark.usefixtures("_small_limit")
def test_a_model_over_the_limit_is_written_with_a_data_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(_net(), path)
    (data,) = set(tmp_path.iterdir()) - {path}
    assert data.name.startswith("m.onnx.")
    assert path.stat().st_size < 1024
    parsed = onnx.load(path, load_external_data=False)
    offsets = [int(e.value) for t in parsed.graph.initializer for e in t.external_data if e.key == "offset"]
    assert [offset % 4096 for offset in offsets] == [0, 0]
    onnx.checker.check_model(str(path), full_check=True)
    _same(path)

    other = _net()
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(normal(64, 32, seed=9), "w"))
    save(other, path)  # in its place, with data of its own; the old data goes last
    assert len(list(tmp_path.iterdir())) == 2
    assert not data.exists()
    save(load(path), path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("_small_limit")
@pytest.mark.parametrize("at", [0, 1])  # the data, the model
def test_a_write_that_fails_leaves_the_old_model_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    path = tmp_path / "m.onnx"
    save(_net(), path)
    before = {item: item.read_bytes() for item in tmp_path.iterdir()}
    other = _net()
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(normal(64, 32, seed=9), "w"))
    calls, real = [], os.fsync

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > at:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        save(other, path)
    assert {item: item.read_bytes() for item in tmp_path.iterdir()} == before
    monkeypatch.undo()
    _same(path)


def test_the_bytes_in_memory_are_counted() -> None:
    assert external.bytes_inside(_net()) == (64 * 32 + 32 * 32) * 4 + 16


@pytest.mark.slow
def test_a_model_of_more_than_two_gigabytes_is_described_and_changed_in_little_memory(tmp_path: Path) -> None:
    rows, columns = 2048, 300_000  # 2.4 GB of zeros, which take no place on the disk
    weights = {"start": normal(1, 1), "shape": np.array([1, -1], np.int64)}
    nodes = [node("Reshape", ["x", "shape"], ["f"]), node("MatMul", ["f", "w"], ["y"])]
    big = model(nodes, [info("x", [1, rows])], [info("y", [1, columns])], weights)
    tensor = big.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[rows, columns])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="big.data")
    path = tmp_path / "big.onnx"
    path.write_bytes(big.SerializeToString())
    (tmp_path / "big.data").touch()
    os.truncate(tmp_path / "big.data", rows * columns * 4)
    code = f"""
        import json
        from pathlib import Path
        from inferometer.models import describe, load, set_batch
        summary = describe(Path({str(path)!r}))
        free = set_batch(load(Path({str(path)!r}), weights=False), None)
        # Not ru_maxrss, which a new process inherits from the one that started it.
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
        symbol = free.graph.input[0].type.tensor_type.shape.dim[0].dim_param
        print(summary.parameters, summary.macs, len(summary.sha256), symbol, peak)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    parameters, macs, digits, symbol, peak = done.stdout.split()
    assert (int(parameters), int(macs), int(digits), symbol) == (rows * columns, rows * columns, 64, "N")
    assert int(peak) < 500 * 2**20

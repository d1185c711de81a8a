"""Every unusable file is one clear ModelError; a failed write leaves nothing behind."""

import hashlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_graphs import info, model, node, normal

from inferometer.errors import ModelError, StoreError
from inferometer.models import describe, file_sha256, load, save


def _good() -> onnx.ModelProto:
    weights = {"w": normal(4, 3, 3, 3), "b": normal(4)}
    nodes = [node("Conv", ["x", "w", "b"], ["h"]), node("Relu", ["h"], ["y"])]
    return model(nodes, [info("x", ["N", 3, 8, 8])], [info("y", ["N", 4, 6, 6])], weights)


def _refused(path: Path, *parts: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(path)
    message = str(caught.value)
    assert caught.value.exit_code == 3
    assert "\n" not in message
    assert message.startswith(str(path))
    for part in parts:
        assert part in message


def test_a_good_file_is_loaded(tmp_path: Path) -> None:
    save(_good(), tmp_path / "m.onnx")
    assert load(tmp_path / "m.onnx") == _good()


def test_missing_and_folder(tmp_path: Path) -> None:
    _refused(tmp_path / "none.onnx", "no such file")
    _refused(tmp_path, "a folder")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty (0 bytes)"),
        (b"hello, this is no model\n" * 40, "not an ONNX file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "a PNG image"),
        (b"\xff\xd8\xff\xe0" + bytes(200), "a JPEG image"),
        (b"PK\x03\x04" + bytes(200), "a ZIP archive or a PyTorch checkpoint"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
        (bytes(500), "not an ONNX file"),
        (bytes(range(256)) * 4, "not an ONNX file"),
    ],
    ids=["empty", "text", "png", "jpeg", "zip", "lfs", "zeros", "bytes"],
)
def test_what_is_not_onnx(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    _refused(path, words)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole = _good().SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        _refused(path)


def test_a_file_cut_in_its_weights_is_called_truncated(tmp_path: Path) -> None:
    whole = _good().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(whole[: len(whole) // 2])
    _refused(tmp_path / "m.onnx", "truncated or damaged after")


def test_no_graph(tmp_path: Path) -> None:
    empty = onnx.ModelProto(ir_version=8)
    (tmp_path / "m.onnx").write_bytes(empty.SerializeToString())
    _refused(tmp_path / "m.onnx", "holds no graph")


def test_unsupported_versions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    future = _good()
    future.opset_import[0].version = 99
    path.write_bytes(future.SerializeToString())
    _refused(path, "unsupported opset 99", "upgrade onnx")
    future = _good()
    future.ir_version = 98
    path.write_bytes(future.SerializeToString())
    _refused(path, "unsupported IR version 98", "upgrade onnx")


def test_invalid_graphs_say_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    unknown = model([node("Frobnicate", ["x"], ["y"])], [info("x", [1])], [info("y", [1])])
    path.write_bytes(unknown.SerializeToString())
    _refused(path, "not a valid ONNX model", "Frobnicate")
    dangling = model([node("Relu", ["nowhere"], ["y"])], [info("x", [1])], [info("y", [1])])
    path.write_bytes(dangling.SerializeToString())
    _refused(path, "nowhere")


def _with_external_data(folder: Path) -> Path:
    path = folder / "m.onnx"
    onnx.save(_good(), path, save_as_external_data=True, location="m.bin", size_threshold=0)
    return path


def test_external_data_is_read_hashed_and_missed(tmp_path: Path) -> None:
    path = _with_external_data(tmp_path)
    loaded = load(path)
    assert onnx.numpy_helper.to_array(loaded.graph.initializer[0]).shape == (4, 3, 3, 3)
    content = path.read_bytes() + (tmp_path / "m.bin").read_bytes()
    assert file_sha256(path) == hashlib.sha256(content).hexdigest()
    summary = describe(path)
    assert summary.sha256 == file_sha256(path)
    assert summary.parameters == 4 * 27 + 4

    (tmp_path / "m.bin").write_bytes((tmp_path / "m.bin").read_bytes()[:100])
    _refused(path)
    (tmp_path / "m.bin").unlink()
    _refused(path, "m.bin")


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    save(_good(), tmp_path / "m.onnx")
    assert file_sha256(tmp_path / "m.onnx") == hashlib.sha256((tmp_path / "m.onnx").read_bytes()).hexdigest()


def test_a_failed_write_keeps_the_old_file_and_leaves_no_part(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        save(_good(), path)
    assert [item.name for item in tmp_path.iterdir()] == ["m.onnx"]
    assert path.read_bytes() == b"old"


def test_an_interrupted_write_leaves_no_part(tmp_path: Path, monkeypatch) -> None:
    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(_good(), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_place_to_save(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(StoreError, match="give another path"):
        save(_good(), tmp_path / "m.onnx")
    assert [item.name for item in tmp_path.iterdir()] == ["m.onnx"]


def test_saving_does_not_change_values(tmp_path: Path) -> None:
    save(_good(), tmp_path / "m.onnx")
    stored = onnx.numpy_helper.to_array(load(tmp_path / "m.onnx").graph.initializer[0])
    assert np.array_equal(stored, normal(4, 3, 3, 3))

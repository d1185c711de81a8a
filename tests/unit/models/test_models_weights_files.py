"""Files of weights that cannot be used, and PyTorch's checkpoints."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trained_files import Tensors, miniature, resnet_tensors, safetensors_file

from inferometer.errors import MissingExtra, ModelError, Unsupported
from inferometer.models.networks import build_trained
from inferometer.models.weights import open_weights, weights_sha256

NET = "resnet-mini"


@pytest.fixture(autouse=True)
def _miniature(monkeypatch: pytest.MonkeyPatch) -> None:
    miniature(monkeypatch)


@pytest.fixture
def tensors() -> Tensors:
    return resnet_tensors()


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        build_trained(NET, path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".onnx"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "empty (0 bytes)"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "a Git LFS pointer: run `git lfs pull`",
        ),
        (b"\n<!DOCTYPE html><html>", "an HTML or XML page"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras)"),
    ],
)
def test_files_that_hold_something_else(tmp_path: Path, suffix: str, content: bytes, told: str) -> None:
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    assert told in refused(path)


def test_no_file_a_folder_a_device_and_another_suffix(tmp_path: Path) -> None:
    assert "no such file of weights" in refused(tmp_path / "w.pth")
    assert "a folder" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe.pth")
    assert "no ordinary file" in refused(tmp_path / "pipe.pth")
    (tmp_path / "w.npz").write_bytes(b"PK")
    assert "files that end in .safetensors, .pth, " in refused(tmp_path / "w.npz")
    with pytest.raises(ModelError, match="no such file of weights"):
        weights_sha256(tmp_path / "w.pth")


def test_a_checkpoint_under_another_suffix_is_told(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"PK\x03\x04....")
    assert "a PyTorch checkpoint: name it .pth" in refused(tmp_path / "w.safetensors")


@pytest.mark.parametrize("part", [5, 0.5, -1])
def test_a_truncated_safetensors_file(tmp_path: Path, tensors: Tensors, part: float) -> None:
    pytest.importorskip("safetensors", reason="the extra 'weights' is not installed")
    path = safetensors_file(tmp_path / "w.safetensors", tensors)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole)) if isinstance(part, float) else part])
    assert "no usable .safetensors file, truncated or of another kind" in refused(path)


def test_tensors_are_read_one_by_one(tmp_path: Path, tensors: Tensors) -> None:
    pytest.importorskip("safetensors", reason="the extra 'weights' is not installed")
    with open_weights(safetensors_file(tmp_path / "w.safetensors", tensors)) as file:
        assert file.tensors["fc.weight"].shape == (1000, 8)
        np.testing.assert_array_equal(file.tensors["fc.weight"].read(), tensors["fc.weight"])


@pytest.mark.parametrize(
    ("suffix", "library", "extra"), [("safetensors", "safetensors", "weights"), ("pth", "torch", "torch")]
)
def test_a_missing_package_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / f"w.{suffix}").write_bytes(b"something")
    with pytest.raises(MissingExtra, match=rf"pip install 'inferometer\[{extra}\]'"):
        build_trained(NET, tmp_path / f"w.{suffix}")


def test_safetensors_do_not_need_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tensors: Tensors
) -> None:
    pytest.importorskip("safetensors", reason="the extra 'weights' is not installed")
    monkeypatch.setitem(sys.modules, "torch", None)
    build_trained(NET, safetensors_file(tmp_path / "w.safetensors", tensors))


# -- PyTorch's checkpoints


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def state(torch: Any, tensors: Tensors, prefix: str = "") -> dict[str, Any]:
    return {prefix + name: torch.from_numpy(value) for name, value in tensors.items()}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("wrapper", "prefix", "notes"),
    [
        (None, "", []),
        ("state_dict", "", ["took the entry 'state_dict', left out epoch"]),
        ("model", "module.", ["took the entry 'model', left out epoch", "took 'module.' off the names"]),
    ],
)
def test_checkpoints_hold_the_same_weights(
    torch: Any,
    tmp_path: Path,
    tensors: Tensors,
    zipped: bool,
    wrapper: str | None,
    prefix: str,
    notes: list[str],
) -> None:
    content = state(torch, tensors, prefix)
    path = tmp_path / "w.pth"
    whole = {wrapper: content, "epoch": 3} if wrapper else content
    torch.save(whole, path, _use_new_zipfile_serialization=zipped)
    trained = build_trained(NET, path)
    assert list(trained.notes) == [*notes, "folded BatchNorm into the convolutions"]
    pytest.importorskip("safetensors", reason="the extra 'weights' is not installed")
    twin = build_trained(NET, safetensors_file(tmp_path / "w.safetensors", tensors))
    assert trained.model.graph == twin.model.graph


def test_bfloat16_of_a_checkpoint_becomes_float32(torch: Any, tmp_path: Path, tensors: Tensors) -> None:
    content = state(torch, tensors)
    torch.save(content | {"fc.weight": content["fc.weight"].bfloat16()}, tmp_path / "w.pth")
    trained = build_trained(NET, tmp_path / "w.pth")
    assert trained.notes[0] == "converted bfloat16 to float32"
    found = {part.name: part for part in trained.model.graph.initializer}["fc.weight"]
    np.testing.assert_allclose(
        np.frombuffer(found.raw_data, "<f4").reshape(1000, 8), tensors["fc.weight"], rtol=2**-8
    )


def test_integer_and_sparse_tensors_are_no_weights(torch: Any, tmp_path: Path, tensors: Tensors) -> None:
    content = state(torch, tensors)
    content["fc.bias"] = content["fc.bias"].to(torch.int32)
    content["fc.weight"] = content["fc.weight"].to_sparse()
    torch.save(content, tmp_path / "w.pth")
    assert "(fc.weight: torch.sparse_coo float32, fc.bias: int32)" in refused(tmp_path / "w.pth")


class _Program:
    """What an attacker would pickle: loading it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_never_runs_code(torch: Any, tmp_path: Path, zipped: bool) -> None:
    path, mark = tmp_path / "w.pth", tmp_path / "mark"
    torch.save({"state_dict": _Program(mark)}, path, _use_new_zipfile_serialization=zipped)
    assert "holds Python objects (posix.mkdir), which only running code" in refused(path)
    assert not mark.exists()


def test_a_whole_pickled_network_is_told(torch: Any, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 3), tmp_path / "w.pth")
    assert "(torch.nn.modules.linear.Linear)" in refused(tmp_path / "w.pth")


def test_a_checkpoint_without_tensors(torch: Any, tmp_path: Path) -> None:
    for content in ([1, 2], {"epoch": 3}, {"state_dict": {}}, torch.zeros(3)):
        torch.save(content, tmp_path / "w.pth")
        assert "holds no state dict" in refused(tmp_path / "w.pth")


@pytest.mark.parametrize("zipped", [True, False])
def test_truncated_checkpoints(torch: Any, tmp_path: Path, tensors: Tensors, zipped: bool) -> None:
    path = tmp_path / "w.pth"
    torch.save(state(torch, tensors), path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    for size in (3, 40, len(whole) // 2, len(whole) - 50):
        path.write_bytes(whole[:size])
        assert "no usable PyTorch checkpoint, truncated" in refused(path)


def test_a_pytorch_that_checkpoints_can_make_run_code_is_not_used(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"a": torch.zeros(1)}, tmp_path / "w.pth")
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(Unsupported, match=r"PyTorch 2\.9\.1\+cpu can be made to run code"):
        build_trained(NET, tmp_path / "w.pth")


def test_a_checkpoint_with_other_bytes_in_a_tensor_is_damaged(
    torch: Any, tmp_path: Path, tensors: Tensors
) -> None:
    path = tmp_path / "w.pth"
    torch.save(state(torch, tensors), path)
    content = bytearray(path.read_bytes())
    place = content.index(tensors["fc.weight"].tobytes())
    content[place : place + 4] = np.float32(0.5).tobytes()
    path.write_bytes(content)
    assert "is damaged in" in refused(path)


def test_a_shared_prefix_is_taken_off_the_names_of_any_file(tmp_path: Path, tensors: Tensors) -> None:
    path = safetensors_file(tmp_path / "w.safetensors", {f"module.{name}": tensors[name] for name in tensors})
    with open_weights(path) as opened:
        assert set(opened.tensors) == set(tensors)
        assert opened.notes == ("took 'module.' off the names",)

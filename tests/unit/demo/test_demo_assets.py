"""Extraction of the shipped digits: complete, idempotent, and never over somebody's files."""

from pathlib import Path

import pytest

from inferometer.demo import DigitsFiles, extract
from inferometer.errors import StoreError


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and modification time by relative path."""
    found = {}
    for path in folder.rglob("*"):
        stat = path.stat()
        found[path.relative_to(folder).as_posix()] = (stat.st_ino, stat.st_mtime_ns)
    return found


def test_extracts_into_a_new_folder(tmp_path: Path) -> None:
    to = tmp_path / "a" / "b"
    placed = extract(to)
    assert placed == DigitsFiles(to / "images", to / "digits.onnx", to / "digits.yaml")
    assert sorted(p.name for p in to.iterdir()) == ["digits.onnx", "digits.yaml", "images"]
    assert sorted(p.name for p in placed.images.iterdir()) == list("0123456789")


def test_second_call_touches_nothing(tmp_path: Path) -> None:
    extract(tmp_path)
    before = snapshot(tmp_path)
    extract(tmp_path)
    assert snapshot(tmp_path) == before
    assert len(before) == 1361 + 10 + 3


def test_missing_piece_is_put_back(tmp_path: Path) -> None:
    placed = extract(tmp_path)
    model = placed.model.read_bytes()
    placed.model.unlink()
    extract(tmp_path)
    assert placed.model.read_bytes() == model


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text("mine")
    extract(tmp_path)
    assert (tmp_path / "records.jsonl").read_text() == "mine"


@pytest.mark.parametrize("name", ["digits.onnx", "digits.yaml", "images", "images/3/0003.png"])
def test_differing_file_is_refused_and_kept(tmp_path: Path, name: str) -> None:
    if "/" in name:
        extract(tmp_path)
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(StoreError, match=r"differs from what ships.*remove it or choose another"):
        extract(tmp_path)
    assert (tmp_path / name).read_bytes() == b"mine"


def test_extra_image_is_refused(tmp_path: Path) -> None:
    placed = extract(tmp_path)
    (placed.images / "0" / "mine.png").write_bytes(b"mine")
    with pytest.raises(StoreError, match="images is there already and differs"):
        extract(tmp_path)


def test_folder_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match=r"cannot write .*File exists") as caught:
        extract(tmp_path / "file")
    assert "\n" not in str(caught.value)


def test_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "0003.png":
            raise OSError(28, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match="No space left on device"):
        extract(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rival_complete", [True, False])
def test_rival_that_was_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rival_complete: bool) -> None:
    """Another process places the images between the look and the rename."""
    real = Path.rename

    def late(path: Path, target: Path) -> Path:
        if path.name == "images":
            monkeypatch.setattr(Path, "rename", real)
            if rival_complete:
                extract(tmp_path)
            else:
                target.mkdir()
                (target / "other").write_text("theirs")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", late)
    if rival_complete:
        placed = extract(tmp_path)
        assert sum(1 for _ in placed.images.rglob("*.png")) == 1361
    else:
        with pytest.raises(StoreError, match="differs"):
            extract(tmp_path)
    assert not list(tmp_path.glob(".digits-*"))

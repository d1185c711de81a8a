from __future__ import annotations

import errno
import io
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferometer import store as store_module
from inferometer.errors import StoreError
from inferometer.records import SCHEMA_VERSION, CalibrationInfo, Record, Status, Trial
from inferometer.store import arrays, open_store, read_per_image, read_store, write_atomically, write_sidecar
from tests.unit.report.sample_records import throughput


def record(number: int, status: Status = "ok", reason: str | None = None) -> Record:
    trial = Trial(
        kind="throughput", study="s", model="m", engine="null", device="cpu", precision="fp32", batch=number
    )
    return Record(
        id=f"{number:016x}", time="2026-01-01T00:00:00+00:00", trial=trial, status=status, reason=reason
    )


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    with open_store(tmp_path / "out", "s") as store:
        store.append(record(1))
        store.append(record(2, "failed", "why"))
    contents = read_store(tmp_path / "out")
    assert contents.records == (record(1), record(2, "failed", "why"))
    first = json.loads((tmp_path / "out" / "records.jsonl").read_text().splitlines()[0])
    assert first["schema"] == SCHEMA_VERSION
    assert first["throughput"] is None


def test_the_last_final_line_counts_and_interrupted_ones_do_not(tmp_path: Path) -> None:
    with open_store(tmp_path, "s") as store:
        store.append(record(1, "interrupted"))
        store.append(record(2, "failed"))
        store.append(record(2, "ok"))
        store.append(record(2, "interrupted"))
    contents = read_store(tmp_path)
    assert [(item.id[-1], item.status) for item in contents.records] == [("2", "ok")]
    assert len(contents.lines) == 4


def test_every_prefix_of_the_file_reads_and_the_next_append_starts_a_new_line(tmp_path: Path) -> None:
    with open_store(tmp_path, "s") as store:
        for number in (1, 2):
            store.append(record(number))
    path = tmp_path / "records.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        contents = read_store(tmp_path)
        complete = (cut >= first - 1) + (cut >= len(whole) - 1)
        assert len(contents.records) == complete
        assert contents.fragments <= 1
    path.write_bytes(whole[: first + 30])
    with open_store(tmp_path, "s") as store:
        store.append(record(3))
    contents = read_store(tmp_path)
    assert [item.id[-1] for item in contents.records] == ["1", "3"]
    assert contents.fragments == 1


def test_a_record_of_the_first_schema_is_read(tmp_path: Path) -> None:
    info = CalibrationInfo(table_sha256="ab", source="images", method="kl", images=4)
    content = json.loads(record(1).model_copy(update={"calibration": info}).model_dump_json(by_alias=True))
    for name in ("forward_batch", "threads", "stages_s"):
        del content["calibration"][name]
    with open_store(tmp_path, "s"):
        (tmp_path / "records.jsonl").write_text(json.dumps(content | {"schema": 1}) + "\n")
    (found,) = read_store(tmp_path).records
    assert found.calibration == info


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    content = json.loads(record(1).model_dump_json(by_alias=True)) | {"schema": 99}
    with open_store(tmp_path, "s"):
        (tmp_path / "records.jsonl").write_text(json.dumps(content) + "\n")
    with pytest.raises(StoreError, match=r"line 1: written by a newer Inferometer \(schema 99"):
        read_store(tmp_path)


def test_a_whole_line_that_is_no_record_is_an_error(tmp_path: Path) -> None:
    with open_store(tmp_path, "s"):
        (tmp_path / "records.jsonl").write_text('{"schema": 1, "id": "x"}\n')
    with pytest.raises(StoreError, match="line 1: no record of this schema"):
        read_store(tmp_path)


def test_a_folder_belongs_to_one_study(tmp_path: Path) -> None:
    with open_store(tmp_path, "one"):
        pass
    with (
        pytest.raises(StoreError, match="belongs to the study 'one', not 'two'"),
        open_store(tmp_path, "two"),
    ):
        pass


def _hold(folder: Path, held: object, release: object) -> None:
    with open_store(folder, "s"):
        held.set()  # type: ignore[attr-defined]
        release.wait(20)  # type: ignore[attr-defined]


def test_two_processes_exclude_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, held, release))
    other.start()
    try:
        assert held.wait(20)
        with pytest.raises(StoreError, match="another run is writing there"), open_store(tmp_path, "s"):
            pass
    finally:
        release.set()
        other.join(20)
    with open_store(tmp_path, "s"):
        pass


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(store_module.fcntl, "flock", no_locks)
    with (
        pytest.raises(StoreError, match="cannot be locked against a second run: No locks available"),
        open_store(tmp_path, "s"),
    ):
        pass
    assert not (tmp_path / "study.json").exists()


def test_no_store_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no records there"):
        read_store(tmp_path / "none")
    with pytest.raises(StoreError, match="no records there"):
        read_store(tmp_path)


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(StoreError, match="cannot write there"), open_store(tmp_path / "out", "s"):
        pass


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path, "s") as store:
        store.append(record(1))
        before = (tmp_path / "records.jsonl").read_bytes()

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(store_module.os, "fsync", full)
        with pytest.raises(StoreError, match="No space left on device"):
            store.append(record(2))
        with pytest.raises(StoreError, match="No space left on device"):
            write_atomically(tmp_path / "report.html", b"x" * 100)
    assert (tmp_path / "records.jsonl").read_bytes() == before
    assert not (tmp_path / "report.html").exists()
    assert not list(tmp_path.glob(".report.html*"))


def test_a_short_write_and_a_full_disk_leave_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path, "s") as store:
        store.append(record(1))
        before = (tmp_path / "records.jsonl").read_bytes()
        whole = Path.open
        monkeypatch.setattr(
            Path,
            "open",
            lambda path, mode, buffering=-1: Filling(path, "a") if mode == "ab" else whole(path, mode),
        )
        with pytest.raises(StoreError, match="No space left on device"):
            store.append(record(2))
    assert (tmp_path / "records.jsonl").read_bytes() == before


class Filling(io.FileIO):
    """A file on a disk with room for 64 more bytes."""

    room = 64

    def write(self, content: Any) -> int:  # type: ignore[override]
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = super().write(bytes(content)[: self.room])
        self.room -= written
        return written


def test_links_stay_links_and_devices_stay_devices(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write_atomically(tmp_path / "link.csv", b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="is no ordinary file"):
        write_atomically(tmp_path / "pipe", b"x")
    assert (tmp_path / "pipe").is_fifo()


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    content = json.loads(record(1).model_dump_json(by_alias=True))
    for wall in ("NaN", "1e999"):
        with open_store(tmp_path, "s"):
            text = json.dumps(content | {"wall_s": 12345}).replace("12345", wall)
            (tmp_path / "records.jsonl").write_text(text + "\n")
        with pytest.raises(StoreError, match="wall_s: input should be a finite number"):
            read_store(tmp_path)


@pytest.mark.parametrize(
    ("value", "text"),
    [("NaN", "session.x.1: input should be a finite number"), ("1e999", "session.x.1: input"),
     ("-1e31", "session.x.1: input should be at most 1e"), ("1" + 40 * "0", "session.x.1: input should be"),
     ('"\\ud800"', "session.x.1: input should be a valid string")],
)  # fmt: skip
def test_what_the_schema_leaves_open_is_sound_too(tmp_path: Path, value: str, text: str) -> None:
    content = json.loads(record(1).model_dump_json(by_alias=True)) | {"session": {"x": [1, 12345]}}
    (tmp_path / "records.jsonl").write_text(json.dumps(content).replace("12345", value) + "\n")
    with pytest.raises(StoreError, match=text):
        read_store(tmp_path)


@pytest.mark.parametrize("rate", [0.0, -1.0, 1e308])
def test_a_rate_that_none_can_have_is_refused(tmp_path: Path, rate: float) -> None:
    content = json.loads(record(1).model_dump_json(by_alias=True)) | {"throughput": throughput(100.0)}
    (tmp_path / "records.jsonl").write_text(json.dumps(content) + "\n")
    assert read_store(tmp_path).records[0].throughput is not None
    content["throughput"]["images_per_s"] = rate
    (tmp_path / "records.jsonl").write_text(json.dumps(content) + "\n")
    with pytest.raises(StoreError, match=r"throughput.images_per_s: input should be"):
        read_store(tmp_path)


def test_per_image_outcomes_come_back_and_a_changed_sidecar_is_noticed(tmp_path: Path) -> None:
    hashes = np.arange(64, dtype=np.uint8).reshape(2, 32)
    content = arrays(
        hashes=hashes, labels=np.array([3, 1], np.int32), top=np.array([[3, 1], [0, 1]], np.int32)
    )
    with open_store(tmp_path, "s"):
        sidecar = write_sidecar(tmp_path, "0001.top5.npz", content)
    written = record(1).model_copy(update={"sidecars": (sidecar,)})
    outcome = read_per_image(tmp_path, written)
    assert outcome is not None
    assert outcome.hashes == (bytes(range(32)).hex(), bytes(range(32, 64)).hex())
    assert outcome.labels.tolist() == [3, 1]
    assert outcome.top.tolist() == [[3, 1], [0, 1]]
    assert read_per_image(tmp_path, record(2)) is None
    (tmp_path / sidecar.path).write_bytes(content + b"x")
    with pytest.raises(StoreError, match="SHA-256 differs"):
        read_per_image(tmp_path, written)


def test_a_sidecar_is_on_disk_before_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real = os.fsync

    def watch(handle: int) -> None:
        order.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(store_module.os, "fsync", watch)
    with open_store(tmp_path, "s") as store:
        order.clear()
        write_sidecar(tmp_path, "a.npz", b"raw")
        store.append(record(1))
        store.append(record(2))
    first = [f".a.npz.{os.getpid()}", "sidecars", "records.jsonl"]
    assert [Path(name).name for name in order] == [*first, tmp_path.name, "records.jsonl"]

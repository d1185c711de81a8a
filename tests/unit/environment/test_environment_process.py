import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from inferometer.environment.facts import Absent
from inferometer.environment.process import peak_resident_bytes, process_start, release_memory, start_peak

MIB = 1024**2


def test_the_peak_counts_from_where_it_was_started() -> None:
    release_memory()  # of the tests before: arrays that fit into it would not raise the resident size
    large = np.ones(200 * MIB, np.uint8)
    del large
    before = peak_resident_bytes()
    started = start_peak()
    if isinstance(started, Absent):  # a kernel without CONFIG_PROC_PAGE_MONITOR
        assert "clear_refs" in started.reason
        return
    quiet = peak_resident_bytes()
    small = np.ones(50 * MIB, np.uint8)
    after = peak_resident_bytes()
    assert isinstance(before, int)
    assert isinstance(quiet, int)
    assert isinstance(after, int)
    assert quiet <= before - 150 * MIB
    assert after - quiet >= 0.9 * small.nbytes


def test_released_memory_is_no_longer_resident() -> None:
    release_memory()
    kept = [bytearray(64 * 1024) for _ in range(1600)]  # 100 MiB, kept by the C library
    last = bytearray(64 * 1024)  # above them, so that the heap cannot shrink from its end
    del kept
    release_memory()
    start_peak()
    before = peak_resident_bytes()
    again = [bytearray(64 * 1024) for _ in range(1600)]
    after = peak_resident_bytes()
    if isinstance(before, Absent) or isinstance(after, Absent):
        pytest.skip("the resident size is not told here")
    assert after - before >= 80 * MIB
    assert len(again) * len(last) == 100 * MIB


def test_what_is_not_told_has_a_reason(tmp_path: Path) -> None:
    status = tmp_path / "proc" / "self" / "status"
    status.parent.mkdir(parents=True)
    status.write_text("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 100 kB\n")
    assert peak_resident_bytes(tmp_path) == 2 * MIB
    status.write_text("Name:\tx\n")
    assert peak_resident_bytes(tmp_path) == Absent("/proc/self/status has no line VmHWM")
    status.unlink()
    assert isinstance(peak_resident_bytes(tmp_path), Absent)
    (tmp_path / "proc" / "self" / "clear_refs").mkdir()
    assert isinstance(start_peak(tmp_path), Absent)


def test_a_process_is_told_by_its_start_and_the_boot(tmp_path: Path) -> None:
    place = tmp_path / "proc" / "7"
    place.mkdir(parents=True)
    (place / "stat").write_text(
        "7 (a ) b (c) S 1 7 7 0 -1 4194560 " + " ".join(map(str, range(10, 22))) + " 4711 9"
    )
    assert process_start(7, tmp_path) == " 4711"
    boot = tmp_path / "proc" / "sys" / "kernel" / "random" / "boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("0f6c\n")
    assert process_start(7, tmp_path) == "0f6c 4711"
    assert process_start(8, tmp_path) is None


def test_two_processes_have_two_starts_and_keep_them() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        found = [process_start(pid) for pid in (os.getpid(), other.pid, os.getpid(), other.pid)]
        other.kill()
    assert found[:2] == found[2:]
    assert None not in found
    assert found[0] != found[1]
    assert process_start(other.pid) is None

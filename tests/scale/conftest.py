"""Real launchers of MPI ranks: those that this machine has."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from inferometer.ranks import launch_environment

# How each calls itself when asked for its version.
_OWN_NAMES = {"openmpi": "Open MPI|OpenRTE|PRRTE|prterun", "mpich": "HYDRA"}


@dataclass(frozen=True)
class Launcher:
    """One MPI's ``mpiexec``."""

    mpi: str
    path: str

    @property
    def template(self) -> str:
        return f"{self.path} -n {{ranks}} {{command}}"


def find_launcher(mpi: str) -> Launcher | None:
    for name in (f"mpiexec.{mpi}", "mpiexec"):
        path = shutil.which(name)
        if path is not None:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            if re.search(_OWN_NAMES[mpi], said.stdout + said.stderr):
                return Launcher(mpi, path)
    return None


@pytest.fixture(params=["openmpi", "mpich"])
def launcher(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """A launcher whose ranks find one another; ``mpiexec`` of the path is it, too."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    found = find_launcher(request.param)
    if found is None:
        pytest.skip(f"no mpiexec of {request.param} is installed")
    if found.mpi == "mpich":
        _name_as_mpi4py_expects(tmp_path / "lib", monkeypatch)
    programs = tmp_path / "bin"
    programs.mkdir()
    # A script, not a link: MPICH's looks for its own parts where it lies.
    (programs / "mpiexec").write_text(f'#!/bin/sh\nexec {found.path} "$@"\n')
    (programs / "mpiexec").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return found


def _name_as_mpi4py_expects(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian calls MPICH's library libmpich.so.12, and mpi4py's wheels look for libmpi.so.12."""
    library = next(Path("/usr/lib").glob("*/libmpich.so.12"), None)
    if library is not None:
        folder.mkdir()
        (folder / "libmpi.so.12").symlink_to(library)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


AGENT = """#!/bin/sh
# In ssh's place: HOST COMMAND..., run on this machine under that host's name.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec unshare --uts sh -c "hostname $host; $*"
"""


@pytest.fixture
def two_hosts(launcher: Launcher, tmp_path: Path) -> str:
    """A template that starts ranks on two hosts, node-a and node-b, each with a daemon of its own."""
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not give a process a host name of its own (unshare --uts)")
    agent = tmp_path / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    if launcher.mpi == "openmpi":
        (tmp_path / "hosts").write_text("node-a slots=1\nnode-b slots=1\n")
        hosts = f"--mca plm_rsh_agent {agent} --hostfile {tmp_path / 'hosts'}"
    else:
        hosts = f"-launcher ssh -launcher-exec {agent} -hosts node-a,node-b"
    template = f"{launcher.path} {hosts} -n {{ranks}} {{command}}"
    tried = subprocess.run(
        template.format(ranks=2, command="hostname").split(),
        capture_output=True,
        text=True,
        env=launch_environment(),
        check=False,
        timeout=60,
    )
    if sorted(tried.stdout.split()) != ["node-a", "node-b"]:
        pytest.skip(f"{launcher.mpi} starts nothing on two hosts here: {tried.stderr.strip()[-200:]}")
    return template

"""The batch script starts a study's ranks by srun: here by one that passes them on to mpiexec."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from inferometer.config import load_study
from inferometer.store import read_store
from inferometer.study.slurm import Allocation, batch_script
from tests.scale.conftest import Launcher

pytestmark = pytest.mark.slow

SRUN = """\
#!/bin/sh
if [ "$1" = --mpi=list ]; then echo none; exit; fi
echo "$SLURM_MPI_TYPE $*" >> {calls}
while [ "${{1#--}}" != "$1" ]; do
    case $1 in --ntasks=*) ranks=${{1#--ntasks=}};; esac
    shift
done
exec {mpiexec} -n $ranks "$@"
"""
STUDY = """\
name: s
models: [{model}]
engines: ["null"]
batches: [1]
ranks: [1, 2]
threads: 1
repeats: 1
kinds: [throughput]
measure: {{max_s: 0.3, warmup_max_s: 0.1}}
launch: {{oversubscribe: true}}
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_every_trial_is_a_step(nodes: int, launcher: Launcher, mini: Path, tmp_path: Path) -> None:
    programs, calls, out = tmp_path / "slurm", tmp_path / "calls", tmp_path / "out"
    programs.mkdir()
    (programs / "srun").write_text(SRUN.format(calls=calls, mpiexec=launcher.path))
    (programs / "srun").chmod(0o755)
    study_file = tmp_path / "study.yaml"
    study_file.write_text(STUDY.format(model=mini))
    program = [sys.executable, "-P", "-m", "inferometer"]
    allocation = Allocation(nodes=nodes)
    text = batch_script(load_study(study_file), allocation, program, study_file, out, spent=11)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    records = read_store(out).records
    crews = Counter((record.trial.ranks, record.trial.place, record.status) for record in records)
    assert crews == {(1, 0, "ok"): 1, (1, 1, "ok"): 1, (2, None, "ok"): 1}
    steps = calls.read_text().splitlines()
    assert len(steps) == 4  # whether ranks find one another is tried first
    assert all(step.startswith("pmi2 --nodes=") for step in steps)
    sizes = Counter(step.split()[2] for step in steps)
    assert sizes == {"--ntasks=1": 1, "--ntasks=2": 3}  # place 1 has the rank before it beside it, idle

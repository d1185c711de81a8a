"""The batch script's text: what it asks of Slurm, and how it starts ranks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from inferometer.config import LaunchSection, Study, parse
from inferometer.errors import ConfigError
from inferometer.study.slurm import Allocation, batch_script, time_limit_s

ONE_NODE = """\
#!/bin/bash
#SBATCH --job-name=s
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=4
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append

# Each step sees all processors and GPUs of its nodes: ranks take theirs, by their number there.
unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_NTASKS_PER_NODE

# Ranks find one another by PMIx where Slurm speaks it, else by PMI-2.
if [ -z "${SLURM_MPI_TYPE:-}" ]; then
    SLURM_MPI_TYPE=pmi2
    if srun --mpi=list 2>&1 | grep -qw pmix; then SLURM_MPI_TYPE=pmix; fi
    export SLURM_MPI_TYPE
fi

inferometer run 'my study.yaml' --out /shared/out --launch 'srun --nodes=1 --ntasks={ranks} --overlap \
--cpu-bind=none --kill-on-bad-exit=1 {command}' &
run=$!
# Slurm tells this shell that time is up: the study ends, keeps what is finished, and the same script goes on.
trap 'trap "" TERM; kill -TERM "$run" 2>/dev/null' TERM
wait "$run"
wait "$run"  # a signal ends the first
code=$?
exit "$code"
""".replace("\\\n", "")

GPU_NODES = """\
#!/bin/bash
#SBATCH --job-name=s
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=h200:4
#SBATCH --time=1-02:03:04
#SBATCH --partition=gpu
#SBATCH --account=me
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append

# Each step sees all processors and GPUs of its nodes: ranks take theirs, by their number there.
unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_NTASKS_PER_NODE

before=$(cat /shared/out/records.jsonl 2>/dev/null | wc -l)
inferometer run 'my study.yaml' --out /shared/out --budget 93604s &
run=$!
# Slurm tells this shell that time is up: the study ends, keeps what is finished, and the same script goes on.
trap 'trap "" TERM; kill -TERM "$run" 2>/dev/null' TERM
wait "$run"
wait "$run"  # a signal ends the first
code=$?
after=$(cat /shared/out/records.jsonl 2>/dev/null | wc -l)
if [ "$code" -eq 11 ] && [ "$after" -gt "$before" ]; then
    scontrol requeue "$SLURM_JOB_ID"  # the time is up, and trials remain
fi
exit "$code"
"""


def study(**changes: Any) -> Study:
    return parse(Study, {"name": "s", "models": ["alexnet"]} | changes, "test")


def script(content: Study, **asked: Any) -> str:
    allocation = parse(Allocation, asked, "test")
    files = Path("my study.yaml"), Path("/shared/out")
    return batch_script(content, allocation, ["inferometer"], *files, spent=11)


def test_one_node() -> None:
    assert script(study(ranks=[1, 2, 4])) == ONE_NODE


def test_gpus_of_several_nodes_a_time_limit_and_the_study_s_own_launcher() -> None:
    content = study(
        ranks=[8],
        engines=[{"engine": "torch", "device": "cuda"}],
        launch={"template": "mine {ranks} {command}"},
    )
    found = script(
        content, nodes=2, gpus_per_node="h200:4", cpus_per_task=8, time_s=93784.0, partition="gpu",
        account="me", exclusive=False, until_done=True,
    )  # fmt: skip
    assert found == GPU_NODES


def test_one_rank_needs_no_launcher() -> None:
    found = script(study(threads=6))
    assert "srun" not in found
    assert "--launch" not in found
    assert "#SBATCH --cpus-per-task=6\n" in found


@pytest.mark.parametrize("out", ["/a b", "/it's", '/"', "/$HOME", "/new\nline", "/`true`"])
def test_no_name_of_a_folder_is_obeyed(out: str, tmp_path: Path) -> None:
    (tmp_path / "inferometer").write_text('#!/bin/sh\nprintf "%s" "$4" > "$SEEN"\nexit 11\n')
    (tmp_path / "inferometer").chmod(0o755)
    text = batch_script(
        study(), Allocation(until_done=True, time_s=900), ["inferometer"], Path("s.yaml"), Path(out), spent=11
    )
    seen = tmp_path / "seen"
    done = subprocess.run(
        ["bash", "-c", text],
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SEEN": str(seen)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (11, "")  # nothing was recorded: it does not queue again
    assert seen.read_text() == out


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_rank_has_its_node_in_every_trial(nodes: int, tmp_path: Path) -> None:
    """Six ranks; the fake srun tells how it was called."""
    text = script(study(ranks=[6], threads=1), nodes=nodes)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    programs = {
        "inferometer": 'while [ "$1" != --launch ]; do shift; done; printf "%s" "$2"',
        "srun": 'if [ "$1" = --mpi=list ]; then echo pmix_v4 pmi2; else echo "$SLURM_MPI_TYPE" "$@"; fi',
    }
    for name, content in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{content}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    def said(*command: str) -> str:
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    template = said("bash", "-c", text)
    assert LaunchSection(template=template).template == template
    plane = " --distribution=plane=3" if nodes == 2 else ""
    for ranks, used in ((1, 1), (3, 1), (4, nodes), (6, nodes)):
        line = template.replace("{ranks}", str(ranks)).replace("{command}", "worker 'a b'")
        step = "--overlap --cpu-bind=none --kill-on-bad-exit=1 worker a b\n"
        called = f"--nodes={used} --ntasks={ranks}{plane} {step}"
        assert said("bash", "-c", f"export SLURM_MPI_TYPE=pmi2; {line}") == f"pmi2 {called}"


@pytest.mark.parametrize(
    ("content", "asked", "said"),
    [
        ({"ranks": [2]}, {"nodes": 4}, "--nodes 4: the study has 2 ranks at most, fewer than nodes"),
        ({"ranks": [5]}, {"nodes": 4}, "5 ranks, 2 a node, leave some idle: give 3"),
        ({"threads": 8}, {"cpus_per_task": 4}, "--cpus-per-task 4: the study's threads want 8"),
        ({}, {"exclusive": False}, "--shared wants --cpus-per-task, or threads in the study"),
        ({"ranks": [2]}, {"nodes": 2}, "ranks on several nodes want threads in the study"),
        ({"ranks": [4]}, {"gpus_per_node": "h200:2"}, "--gpus-per-node h200:2: 4 ranks a node want as many"),
        ({"engines": [{"engine": "torch", "device": "cuda"}]}, {}, "'cuda': give --gpus-per-node 1"),
    ],
)
def test_what_does_not_fit_is_refused(content: dict[str, Any], asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        script(study(**content), **asked)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("partition", "gpu\n#SBATCH --nodes=99", "wants letters, digits and"),
        ("partition", "gpu\n", "wants letters, digits and"),
        ("account", "a b", "wants letters, digits and"),
        ("gpus_per_node", "0", "wants a number, such as 4, or a100:4"),
        ("gpus_per_node", "h200", "wants a number, such as 4, or a100:4"),
        ("nodes", 0, "greater than or equal to 1"),
        ("time_s", 299.0, "greater than or equal to 300"),
    ],
)
def test_options_are_of_their_form(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=f"test: {key}: .*{said}"):
        parse(Allocation, {key: value}, "test")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90m", 5400.0), ("1.5h", 5400.0), ("600s", 600.0), ("1:30:00", 5400.0), ("2-12", 216000.0),
        ("1-02:03", 93780.0), ("1-02:03:04", 93784.0),
    ],
)  # fmt: skip
def test_time_limits(text: str, seconds: float) -> None:
    assert time_limit_s(text) == seconds


@pytest.mark.parametrize("text", ["90", "10:00", "", "1:2:3", "-5m", "1d"])
def test_what_could_be_minutes_or_seconds_is_no_time_limit(text: str) -> None:
    with pytest.raises(ConfigError, match="--time"):
        time_limit_s(text)


def test_queueing_again_wants_a_time_limit() -> None:
    with pytest.raises(ConfigError, match="--until-done wants --time"):
        batch_script(study(), Allocation(until_done=True), ["x"], Path("s.yaml"), Path("o"), spent=11)

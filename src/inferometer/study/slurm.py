"""The batch script with which Slurm runs a study (pure).

The parent runs once, in the batch step on the first node; its launch template starts the ranks of each trial
as a job step. Source: Slurm's sbatch(1) and srun(1), version 20.11 and later.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from inferometer.config import Count, Study, matching
from inferometer.errors import ConfigError
from inferometer.records import Frozen

__all__ = ["Allocation", "batch_script", "time_limit_s"]

Name = Annotated[str, matching(r"[A-Za-z0-9_.,:@/+-]+", "wants letters, digits and . , : @ / + _ - alone")]
Gpus = Annotated[
    str, matching(r"([A-Za-z][A-Za-z0-9_.-]*:)?[1-9][0-9]{0,3}", "wants a number, such as 4, or a100:4")
]

# Slurm tells the script 60 s before the end, or up to 60 s earlier: by then what the budget allows is over
# and the report is written.
_SIGNAL_S, _MARGIN_S, _LEAST_S = 60, 180, 300

# Overlap: a step that is just ending keeps no other waiting. No binding: ranks pin themselves.
_STEP = "--overlap --cpu-bind=none --kill-on-bad-exit=1"

_MPI = """
# Ranks find one another by PMIx where Slurm speaks it, else by PMI-2.
if [ -z "${SLURM_MPI_TYPE:-}" ]; then
    SLURM_MPI_TYPE=pmi2
    if srun --mpi=list 2>&1 | grep -qw pmix; then SLURM_MPI_TYPE=pmix; fi
    export SLURM_MPI_TYPE
fi
"""

_WAIT = """\
run=$!
# Slurm tells this shell that time is up: the study ends, keeps what is finished, and the same script goes on.
trap 'trap "" TERM; kill -TERM "$run" 2>/dev/null' TERM
wait "$run"
wait "$run"  # a signal ends the first
code=$?
"""


class Allocation(Frozen):
    """What the job asks of Slurm; None leaves it to the cluster, or to the study.

    ``exclusive``: no other job runs on the nodes meanwhile. ``until_done``: when the time is up and trials
    remain, the job queues again.
    """

    nodes: Count = 1
    gpus_per_node: Gpus | None = None
    cpus_per_task: Count | None = None
    time_s: Annotated[float, Field(ge=_LEAST_S)] | None = None
    partition: Name | None = None
    account: Name | None = None
    exclusive: bool = True
    until_done: bool = False


def batch_script(
    study: Study, allocation: Allocation, program: Sequence[str], study_file: Path, out: Path, *, spent: int
) -> str:
    """The script's text.

    Args:
        study: What ``study_file`` holds.
        allocation: What to ask for.
        program: The words that start Inferometer.
        study_file: Its place on the nodes.
        out: Where its records go; on a file system that all nodes share.
        spent: The exit code of a run whose budget is spent while trials remain.

    Raises:
        ConfigError: The study does not fit into the allocation.
    """
    if allocation.until_done and allocation.time_s is None:
        raise ConfigError("--until-done wants --time: without it no budget is ever spent")
    per_node = _ranks_per_node(study, allocation)
    asked = _asked(study, allocation, per_node)
    run = [*program, "run", str(study_file), "--out", str(out)]
    if allocation.time_s is not None:
        run += ["--budget", f"{allocation.time_s - _MARGIN_S:.0f}s"]
    launches = max(study.ranks) > 1 and study.launch.template is None
    if launches:
        run += ["--launch", _template(allocation.nodes, per_node)]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{one}" for one in asked),
        "",
        "# Each step sees all processors and GPUs of its nodes: ranks take theirs, by their number there.",
        "unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_NTASKS_PER_NODE",
        *([_MPI.rstrip()] if launches else []),
        "",
        *([_counted(out, "before")] if allocation.until_done else []),
        f"{shlex.join(run)} &",
        _WAIT.rstrip(),
        *([_queue_again(out, spent)] if allocation.until_done else []),
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def time_limit_s(text: str) -> float:
    """Seconds of a time limit as Slurm writes it, ``1:30:00`` or ``2-12``, or with its unit, ``90m``.

    Raises:
        ConfigError: It is none; a plain number would be minutes for Slurm and seconds elsewhere.
    """
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip()):
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    if match := re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text.strip()):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    elif match := re.fullmatch(r"(\d+)-(\d+)(?::(\d\d))?", text.strip()):
        days, hours, minutes = (int(part or 0) for part in match.groups())
        seconds = 0
    else:
        raise ConfigError(f"--time: {text!r} is no time limit: write for example 90m, 1:30:00 or 2-12:00:00")
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _asked(study: Study, allocation: Allocation, per_node: int) -> list[str]:
    """The options of sbatch."""
    cpus = _cpus_per_task(study, allocation)
    _check_gpus(study, allocation, per_node)
    asked = [
        f"job-name={study.name}",
        f"nodes={allocation.nodes}",
        f"ntasks={max(study.ranks)}",
        f"ntasks-per-node={per_node}",
    ]
    if cpus is not None:
        asked.append(f"cpus-per-task={cpus}")
    if allocation.gpus_per_node is not None:
        asked.append(f"gpus-per-node={allocation.gpus_per_node}")
    if allocation.exclusive:
        asked += ["exclusive", "mem=0"]  # else exclusive nodes come with the memory of a few processors
    if allocation.time_s is not None:
        asked.append(f"time={_clock(allocation.time_s)}")
    for option in ("partition", "account"):
        if (value := getattr(allocation, option)) is not None:
            asked.append(f"{option}={value}")
    return [*asked, f"signal=B:TERM@{_SIGNAL_S}", "requeue", "open-mode=append"]


def _ranks_per_node(study: Study, allocation: Allocation) -> int:
    most, nodes = max(study.ranks), allocation.nodes
    if most < nodes:
        raise ConfigError(f"--nodes {nodes}: the study has {most} ranks at most, fewer than nodes")
    per_node = math.ceil(most / nodes)
    used = math.ceil(most / per_node)
    if used < nodes:
        raise ConfigError(f"--nodes {nodes}: {most} ranks, {per_node} a node, leave some idle: give {used}")
    return per_node


def _cpus_per_task(study: Study, allocation: Allocation) -> int | None:
    cpus = allocation.cpus_per_task or study.threads
    if cpus is not None and study.threads is not None and cpus < study.threads:
        raise ConfigError(f"--cpus-per-task {cpus}: the study's threads want {study.threads}")
    if cpus is None and not allocation.exclusive:
        raise ConfigError("--shared wants --cpus-per-task, or threads in the study: Slurm would give one")
    if study.threads is None and allocation.nodes > 1 and allocation.gpus_per_node is None:
        # The parent counts the processors of its own node alone.
        raise ConfigError("ranks on several nodes want threads in the study: how many each of them gets")
    return cpus


def _check_gpus(study: Study, allocation: Allocation, per_node: int) -> None:
    wanting = next((one.device for one in study.engines if (one.device or "").startswith("cuda")), None)
    if allocation.gpus_per_node is None:
        if wanting is not None:
            raise ConfigError(f"the study runs on {wanting!r}: give --gpus-per-node {per_node}")
        return
    gpus = int(allocation.gpus_per_node.rsplit(":", 1)[-1])
    if gpus < per_node:
        raise ConfigError(
            f"--gpus-per-node {allocation.gpus_per_node}: {per_node} ranks a node want as many GPUs"
        )


def _template(nodes: int, per_node: int) -> str:
    """How ranks are started: rank r on the same node in every trial, so that its device is the same."""
    if nodes == 1:
        return f"srun --nodes=1 --ntasks={{ranks}} {_STEP} {{command}}"
    # Left to itself Slurm spreads few ranks over all nodes.
    places = f"--nodes=$((($0 + {per_node - 1}) / {per_node})) --ntasks=$0 --distribution=plane={per_node}"
    step = shlex.quote(f'exec srun {places} {_STEP} "$@"')
    return f"sh -c {step} {{ranks}} {{command}}"


def _counted(out: Path, name: str) -> str:
    return f"{name}=$(cat {shlex.quote(str(out / 'records.jsonl'))} 2>/dev/null | wc -l)"


def _queue_again(out: Path, spent: int) -> str:
    """Only after a turn that recorded something: else turn would follow turn for ever."""
    return (
        f'{_counted(out, "after")}\nif [ "$code" -eq {spent} ] && [ "$after" -gt "$before" ]; then\n'
        f'    scontrol requeue "$SLURM_JOB_ID"  # the time is up, and trials remain\nfi'
    )


def _clock(seconds: float) -> str:
    """``1-02:03:04``, as Slurm reads it."""
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{left:02}"

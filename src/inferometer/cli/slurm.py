"""``inferometer slurm STUDY.yaml --out DIR``: the batch script that runs a study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from inferometer.cli.console import note, print_line
from inferometer.cli.options import refuse_overwriting
from inferometer.cli.run import BUDGET_SPENT
from inferometer.config import load_study, parse
from inferometer.store import write_atomically
from inferometer.study.slurm import Allocation, batch_script, time_limit_s

NAME = "slurm"


def command(
    study_file: Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study to run.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the records, which all nodes see.")],
    script: Annotated[
        Path | None, typer.Option("-o", "--script", help="Write it to this file; default: standard output.")
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", help="The ranks are shared out evenly.")] = 1,
    gpus_per_node: Annotated[
        str | None, typer.Option("--gpus-per-node", metavar="[TYPE:]N", help="Such as 4 or h200:4.")
    ] = None,
    cpus_per_task: Annotated[
        int | None,
        typer.Option("--cpus-per-task", help="Processors of a rank; default: the study's threads."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", help="Limit of the job: 90m, 1:30:00, 2-12:00:00. No trial starts too late."),
    ] = None,
    partition: Annotated[str | None, typer.Option("--partition")] = None,
    account: Annotated[str | None, typer.Option("--account")] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Other jobs may run on the same nodes.")] = False,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Queue again when the time is up and trials remain.")
    ] = False,
) -> int:
    """Write the batch script with which Slurm runs a study.

    sbatch takes it, and the same script goes on after a time limit or a preemption.
    """
    study = load_study(study_file)
    allocation = parse(
        Allocation,
        {
            "nodes": nodes,
            "gpus_per_node": gpus_per_node,
            "cpus_per_task": cpus_per_task,
            "time_s": time_limit_s(time) if time is not None else None,
            "partition": partition,
            "account": account,
            "exclusive": not shared,
            "until_done": until_done,
        },
        "slurm",
    )
    # On the nodes the working directory may be another.
    program = (sys.executable, "-P", "-m", "inferometer")
    text = batch_script(study, allocation, program, study_file.absolute(), out.absolute(), spent=BUDGET_SPENT)
    if script is None:
        print_line(text.rstrip("\n"))
        return 0
    refuse_overwriting({"-o": script}, [study_file])
    write_atomically(script, text.encode())
    note(f"sbatch {script}")
    return 0

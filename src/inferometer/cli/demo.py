"""``inferometer demo``: the built-in study on this machine's CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inferometer.cli.options import JsonOption, exit_code_of
from inferometer.cli.run import run_to_report
from inferometer.config import load_study
from inferometer.demo import extract, write_study
from inferometer.store import open_store

NAME = "demo"


def command(
    out: Annotated[Path, typer.Option("--out", help="Folder of the records.")] = Path("inferometer-demo"),
    as_json: JsonOption = False,
) -> int:
    """Three networks in FP32 and INT8 on this CPU.

    Measures GoogLeNet, AlexNet and ResNet-50, and what INT8 costs a digit classifier in accuracy.
    """
    with open_store(out, "demo"):
        study = load_study(write_study(extract(out / "digits"), out / "demo.yaml"))
    return exit_code_of(run_to_report(study, out, as_json=as_json).records)

"""``inferometer run STUDY.yaml --out DIR``: run or resume a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from inferometer.cli.console import Interrupted, note, print_findings, print_json, print_tables
from inferometer.cli.options import JsonOption, exit_code_of
from inferometer.cli.outcome import run_with_progress, summary_of
from inferometer.config import LaunchSection, Study, duration_s, load_study, parse
from inferometer.errors import ConfigError, nearest
from inferometer.records import FINAL_STATUSES, Status
from inferometer.report.html import write_html
from inferometer.report.power_trace import traces_of
from inferometer.report.tables import result_tables
from inferometer.study.run import NO_POWER, StudyRun

NAME = "run"
BUDGET_SPENT = 11


def command(
    study_file: Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study to run.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the records; the same one resumes.")],
    budget: Annotated[
        str | None,
        typer.Option("--budget", help="Start no trial that would end later than this: 90s, 9m, 1.5h."),
    ] = None,
    retry: Annotated[
        str | None,
        typer.Option("--retry", help="Run trials again that ended so: failed,timeout; or no-power."),
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(
            "--launch",
            metavar="TEMPLATE",
            help="In place of the study's launch.template: 'mpiexec -n {ranks} {command}'.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Run a study, or go on with it.

    Trials that have a record are not run again.
    """
    study = load_study(study_file)
    if launch is not None:
        section = {**study.launch.model_dump(), "template": launch}
        study = study.model_copy(update={"launch": parse(LaunchSection, section, "--launch")})
    budget_s = duration_s(budget) if budget else None
    outcome = run_to_report(study, out, budget_s=budget_s, retry=_statuses(retry), as_json=as_json)
    if outcome.remaining:
        note(f"the budget is spent and {outcome.remaining} trials remain: the same command goes on")
        return BUDGET_SPENT
    return exit_code_of(outcome.records)


def run_to_report(
    study: Study,
    out: Path,
    *,
    budget_s: float | None = None,
    retry: tuple[str, ...] = (),
    as_json: bool = False,
) -> StudyRun:
    """Run a study, print its tables (or one JSON document) and write ``report.html``."""
    try:
        outcome = run_with_progress(study, out, budget_s=budget_s, retry=retry)
    except KeyboardInterrupt as error:
        left = f"interrupted: what was finished is kept in {out}, the same command goes on from there"
        raise Interrupted(left) from error
    if outcome.run == 0 and not outcome.remaining:
        note(f"nothing was run: all {len(outcome.records)} trials have their record in {out}")
    summary = summary_of(out)
    report = out / "report.html"
    write_html(summary, outcome.records, report, traces_of(outcome.records, out))
    if as_json:
        print_json(
            {
                "records": [record.model_dump(mode="json", by_alias=True) for record in outcome.records],
                "remaining": outcome.remaining,
                "report": str(report),
            }
        )
    else:
        print_tables(result_tables(summary))
        print_findings(summary)
        note(f"records: {out / 'records.jsonl'}")
        note(f"report:  {report}")
    return outcome


def _statuses(text: str | None) -> tuple[str, ...]:
    known = {word: word for word in (*get_args(Status), NO_POWER) if word in {*FINAL_STATUSES, NO_POWER}}
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise ConfigError(f"--retry: {word!r} is no status{nearest(word, known)}")
    return tuple(known[word] for word in words)

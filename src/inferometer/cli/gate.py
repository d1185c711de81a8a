"""``inferometer gate BASE NEW --max-slowdown 3%``: pass, fail, or not to be told, for CI."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from inferometer.analysis.gate import gate
from inferometer.cli.console import note, print_json, print_line, print_sentences, print_tables
from inferometer.cli.options import JsonOption, fraction_of, refuse_overwriting
from inferometer.cli.outcome import read_and_tell
from inferometer.errors import ConfigError, StoreError
from inferometer.report.gate import gate_junit, gate_markdown, gate_sentence, gate_table
from inferometer.store import write_atomically

NAME = "gate"
_STDOUT = Path("-")
_EXIT = {"pass": 0, "fail": 1, "inconclusive": 10}


def command(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="The folder of the study that sets the pace.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="That of the same study, to be judged.")],
    max_slowdown: Annotated[str, typer.Option("--max-slowdown", help="How much slower it may be.")] = "3%",
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit's XML.")] = None,
    summary: Annotated[
        Path | None,
        typer.Option(
            "--summary", help="Append GitHub-flavoured Markdown, as to $GITHUB_STEP_SUMMARY; - prints it."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Judge whether a study got slower.

    Exit codes: 0 pass, 1 fail, 10 inconclusive. Both were measured on one machine, in turns if possible.
    """
    kept = [folder / name for folder in (base, new) for name in ("records.jsonl", "study.json")]
    refuse_overwriting({"--junit": junit, "--summary": summary}, kept)
    if as_json and summary == _STDOUT:
        raise ConfigError("--json and --summary -: both would print; name a file for the summary")
    if base.resolve() == new.resolve():
        raise ConfigError(f"{new} is named twice: a gate wants two studies")
    allowed = fraction_of(max_slowdown, "--max-slowdown")
    if allowed >= 1:
        raise ConfigError(f"--max-slowdown: {max_slowdown} would allow everything")
    stores = [read_and_tell(folder) for folder in (base, new)]
    found = gate(stores[0].records, stores[1].records, allowed)
    if as_json:
        print_json(asdict(found))
    else:
        print_tables([gate_table(found)])
        print_sentences("What differs between the two", found.differences)
        print_sentences("Notes", found.notes)
        print_line(gate_sentence(found))
    if junit is not None:
        write_atomically(junit, gate_junit(found))
        note(f"wrote {junit}")
    if summary == _STDOUT:
        print_line(gate_markdown(found))
    elif summary is not None:
        _append(summary, gate_markdown(found))
        note(f"appended to {summary}")
    return _EXIT[found.verdict]


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StoreError(f"{path}: could not write: {error.strerror}") from error

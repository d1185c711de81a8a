"""What the terminal shows: tables and JSON on standard output, progress and notes on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from inferometer.analysis.findings import headlines
from inferometer.analysis.marks import MARK_NOTE
from inferometer.analysis.rows import Summary
from inferometer.analysis.wording import plural
from inferometer.records import Status
from inferometer.report.characters import one_line
from inferometer.report.tables import Column, Table
from inferometer.report.width import fitted, natural_width
from inferometer.trials.spec import SPEED_KINDS, TrialSpec

__all__ = [
    "Interrupted",
    "StudyProgress",
    "live_table",
    "note",
    "print_block",
    "print_findings",
    "print_json",
    "print_line",
    "print_sentences",
    "print_tables",
    "stage_progress",
    "study_progress",
]

_PIPE_WIDTH = 160
_err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def print_line(text: str) -> None:
    """Plain text on standard output, never wrapped; line breaks in it are kept."""
    sys.stdout.write("".join(one_line(line) + "\n" for line in text.split("\n")))


def note(text: str) -> None:
    """One line on standard error."""
    _err.print(_text(text))


def print_tables(tables: Sequence[Table]) -> None:
    """Tables of a report; cells are plain text, whatever a record contains.

    Columns that a terminal has no room for are left out, the most spare ones first, and named. A pipe or
    file gets them all.
    """
    console, width = _output()
    for table in tables:
        shown, dropped = fitted(table, width) if width else (table, ())
        console.print(_drawn(shown, console.width))
        if table.note:
            console.print(_text(table.note, style="dim"))
        if dropped:
            console.print(_text(f"No room here for: {', '.join(dropped)}.", style="dim"))
        console.print()


def live_table(table: Table) -> RichTable:
    """A table to be drawn again and again on a terminal."""
    return _drawn(table, _output()[0].width)


def print_findings(summary: Summary) -> None:
    """The cautions, then the findings in sentences: what a reader wants to see last."""
    console, width = _output()
    _print_list(console, width, "Before you rely on these numbers", summary.cautions)
    first, rest = headlines(summary.findings)
    none = "No trial gave a number."
    if any(row.runs for row in summary.loadgen):
        none = "LoadGen alone gave numbers: see its tables."
    sentences = [one.sentence for one in first] or [none]
    if rest:
        sentences.append(f"{plural(len(rest), 'more finding')} on the report's page.")
    if any(one.marked for one in first):
        sentences.append(MARK_NOTE)
    where = f" on {summary.machines[0].title}" if len(summary.machines) == 1 else ""
    _print_list(console, width, f"What was found{where}", sentences)


def print_sentences(title: str, sentences: Sequence[str]) -> None:
    """Sentences under a title; nothing when there are none."""
    console, width = _output()
    _print_list(console, width, title, sentences)


def print_block(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A title and, indented under it, labels with their texts: within a width folded, else one a line."""
    console, width = _output()
    console.print(_text(title, style="bold"), soft_wrap=width is None)
    longest = max((len(label) for label, _ in rows), default=0)
    if width is None:
        for label, text in rows:
            console.print(_text(f"  {label:{longest}}  {text}"), soft_wrap=True)
    else:
        grid = RichTable.grid(padding=(0, 2, 0, 0))
        grid.add_column(min_width=longest, no_wrap=True)
        grid.add_column()
        for label, text in rows:
            grid.add_row(_text(f"  {label}"), _text(text))
        console.print(grid)
    console.print()


def _output() -> tuple[Console, int | None]:
    """Standard output, and the width to keep to: a terminal's, or COLUMNS; None in a pipe or file."""
    console = Console(highlight=False)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console, console.width
    return Console(highlight=False, width=_PIPE_WIDTH), None


def _drawn(table: Table, width: int) -> RichTable:
    drawn = RichTable(title=_text(table.title, style="bold"), title_justify="left", box=None, pad_edge=False)
    # Cells that must not be broken would be cut where there is no room for them.
    fits = natural_width(table) <= width
    for column in table.columns:
        drawn.add_column(
            _head(column),
            justify="right" if column.align == "right" else "left",
            no_wrap=fits and not column.prose,
        )
    for row in table.rows:
        drawn.add_row(*(_text(cell.text) for cell in row))
    return drawn


def _head(column: Column) -> Text:
    name = _text(column.name)
    return Text.assemble(name, (f"\n{column.unit}", "dim")) if column.unit else name


def _text(text: str, style: str = "") -> Text:
    """Plain text: whatever a name holds, a terminal neither obeys it nor starts a line there."""
    return Text(one_line(text), style=style)


def _print_list(console: Console, width: int | None, title: str, sentences: Sequence[str]) -> None:
    """Sentences under a title: within a width folded and indented, else one a line."""
    if not sentences:
        return
    console.print(_text(title, style="bold"), soft_wrap=width is None)
    if width is None:
        for sentence in sentences:
            console.print(_text(f"- {sentence}"), soft_wrap=True)
    else:
        grid = RichTable.grid(padding=(0, 1))
        for sentence in sentences:
            grid.add_row("-", _text(sentence))
        console.print(grid)
    console.print()


class Interrupted(Exception):
    """Ctrl-C or SIGTERM ended a command; the message says what is left."""


class StudyProgress:
    """Draws one bar for the study and one for the running trial."""

    def __init__(self, progress: Progress, quiet: bool) -> None:
        """Draw on ``progress``; ``quiet`` keeps the lines of single trials away."""
        self._progress, self._quiet = progress, quiet
        self._study = progress.add_task(_study_label(None), total=None)
        self._trial = progress.add_task("", total=None, visible=False)

    def planned(self, total: int, done: int) -> None:
        """Set the study's bar."""
        self._progress.update(self._study, total=total, completed=done)

    def started(self, spec: TrialSpec) -> None:
        """Name the running trial."""
        self._progress.remove_task(self._trial)  # a task once given a total cannot lose it again
        self._trial = self._progress.add_task(one_line(_label(spec)), total=None)

    def step(self, done: int, of: int) -> None:
        """Advance the running trial."""
        self._progress.update(self._trial, completed=done, total=of)

    def waits(self, what: str, seconds: float) -> None:
        """Say what is waited for while nothing runs."""
        self._progress.remove_task(self._trial)
        self._trial = self._progress.add_task(f"{what}, {seconds:.0f} s", total=None)

    def finished(self, spec: TrialSpec, status: Status, reason: str | None) -> None:
        """Advance the study; say what did not go well."""
        self._progress.advance(self._study)
        self._progress.update(self._trial, visible=False)
        if status != "ok" and not self._quiet:
            self._progress.console.print(_text(f"{_label(spec)}: {status}: {reason}"))

    def left(self, seconds: float | None) -> None:
        """Say how long the study will still take; a dash while nothing tells."""
        self._progress.update(self._study, description=_study_label(seconds))


@contextmanager
def study_progress(quiet: bool = False) -> Iterator[StudyProgress]:
    """A progress display on standard error for the time of a study; nothing moves in a file or pipe."""
    with _bars() as progress:
        yield StudyProgress(progress, quiet)


@contextmanager
def stage_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error for one stage after another: told (what, done, of)."""
    with _bars() as progress:
        tasks: dict[str, TaskID] = {}

        def say(what: str, done: int, of: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    progress.update(task, visible=False)
                tasks[what] = progress.add_task(what, total=of)
            progress.update(tasks[what], completed=done, total=of)

        yield say


def _bars() -> Progress:
    """Bars on standard error, gone at their end; none in a file or pipe."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=_err, transient=True, disable=not _err.is_terminal)


def _study_label(left_s: float | None) -> str:
    """What the study's bar says: an estimate, in units that promise no more than it holds."""
    if left_s is None:
        return "study, \N{EN DASH} left"
    minutes = round(left_s / 60)
    if minutes == 0:
        return "study, < 1 min left"
    return f"study, {minutes} min left" if minutes < 100 else f"study, {left_s / 3600:.1f} h left"


def _label(spec: TrialSpec) -> str:
    trial = spec.trial
    batch = f" batch {trial.batch}" if trial.kind in SPEED_KINDS else ""
    repeat = f" #{trial.repeat + 1}" if trial.kind in SPEED_KINDS else ""
    return f"{trial.model} {trial.engine} {trial.precision} {trial.kind}{batch}{repeat}"

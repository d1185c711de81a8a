"""What the study verbs do with a study: run it under a progress display, show its tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from inferometer.analysis.rows import Summary
from inferometer.analysis.summary import summarise
from inferometer.analysis.wording import plural
from inferometer.cli.console import note, study_progress
from inferometer.config import Study
from inferometer.errors import StoreError
from inferometer.records import Record
from inferometer.store import Contents, read_per_image, read_store
from inferometer.study.run import StudyRun, run_study

__all__ = ["read_and_tell", "run_with_progress", "summary_of"]


def run_with_progress(
    study: Study,
    folder: Path,
    *,
    budget_s: float | None = None,
    retry: Collection[str] = (),
    quiet: bool = False,
) -> StudyRun:
    """Run or resume a study, its progress on standard error."""
    with study_progress(quiet) as watcher:
        return run_study(study, folder, watcher, budget_s=budget_s, retry=retry)


def read_and_tell(folder: Path) -> Contents:
    """A store; what of it cannot be read is told on standard error.

    Raises:
        StoreError: There is none, or none of its lines can be read.
    """
    found = read_store(folder)
    if found.fragments and not found.lines:
        raise StoreError(f"{folder}: none of its lines can be read: it holds no records")
    if found.fragments:
        lines = plural(found.fragments, "line")
        note(f"{folder}: left out {lines} that cannot be read; a crash may have interrupted the writing")
    return found


def summary_of(folder: Path, records: Sequence[Record] | None = None) -> Summary:
    """The summary of a store; ``records``, where they were read already, are not read again."""
    known = read_store(folder).records if records is None else records
    return summarise(known, partial(read_per_image, folder))

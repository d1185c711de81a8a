"""What the study verbs do with a study: run it under a progress display, show its tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from inferometer.analysis.rows import Summary
from inferometer.analysis.summary import summarise
from inferometer.cli.console import study_progress
from inferometer.config import Study
from inferometer.records import Record
from inferometer.store import read_per_image, read_store
from inferometer.study.run import StudyRun, run_study

__all__ = ["run_with_progress", "summary_of"]


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


def summary_of(folder: Path, records: Sequence[Record] | None = None) -> Summary:
    """The summary of a store; ``records``, where they were read already, are not read again."""
    known = read_store(folder).records if records is None else records
    return summarise(known, partial(read_per_image, folder))

"""What the progress display says."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from inferometer.cli.console import StudyProgress


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "study, – left"),
        (0.0, "study, < 1 min left"),
        (45.0, "study, 1 min left"),
        (12.4 * 60, "study, 12 min left"),
        (9000.0, "study, 2.5 h left"),
    ],
)
def test_the_time_left_in_units_that_an_estimate_deserves(seconds: float | None, said: str) -> None:
    console = Console(file=io.StringIO(), width=80)
    progress = Progress(TextColumn("{task.description}", markup=False), console=console)
    shown = StudyProgress(progress, quiet=False)
    assert progress.tasks[0].description == "study, – left"
    shown.left(seconds)
    assert progress.tasks[0].description == said

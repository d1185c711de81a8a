"""Running a command line inside the test's process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from inferometer.cli.main import run_command


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


def inferometer(capsys: pytest.CaptureFixture[str], *words: object) -> Ended:
    """Run ``inferometer WORDS...``."""
    capsys.readouterr()
    code = run_command([str(word) for word in words])
    captured = capsys.readouterr()
    return Ended(code, captured.out, captured.err)

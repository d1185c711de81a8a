"""What the scripts of this folder share: child processes under a memory watch, tables, JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

WATCH_S = 0.05


@dataclass(frozen=True)
class Ran:
    """One process that has ended, with all that it started.

    Attributes:
        wall_s: From its start to its end.
        peak_mb: The larger of the sampled sum of resident memory over the process and its children, which
            counts shared pages twice, and the largest single one of them, which misses no short peak.
        largest_mb: The latter alone.
        answer: The JSON document on its last line of output; None when it failed.
        reason: Why it failed; None when it did not.
    """

    wall_s: float
    peak_mb: float
    largest_mb: float
    answer: Any
    reason: str | None


def run(
    command: Sequence[str],
    memory_mb: float | None = None,
    timeout_s: float = 3600,
    folder: Path | None = None,
) -> Ran:
    """Run a command in ``folder``; it is killed, with its children, beyond ``memory_mb`` or ``timeout_s``."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        # A group of its own, so that no child outlives it. This process must stay small: at its start a
        # child counts its parent's memory as its own peak.
        child = subprocess.Popen(command, stdout=out, stderr=errors, cwd=folder, start_new_session=True)
        sampled, why = 0.0, None
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            sampled = max(sampled, _tree_mb(child.pid))
            if memory_mb and sampled > memory_mb:
                why = f"more than {memory_mb:.0f} MB of memory"
            elif time.perf_counter() - begin > timeout_s:
                why = f"more than {timeout_s:.0f} s"
            if why:
                os.killpg(child.pid, 9)
            time.sleep(WATCH_S)
        wall_s = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        text, log = _text(out), _text(errors)
    if child.returncode == 0:
        answer, why = _document(text)
    else:
        answer, why = None, why or f"exit {child.returncode}: {_last(log) or _last(text)}"
    largest = usage.ru_maxrss * 1024 / 1e6
    return Ran(wall_s, max(sampled, largest), largest, answer, why)


def inferometer(*words: str) -> list[str]:
    """The command line of Inferometer, of the Python that runs this, with its answer as JSON."""
    return [sys.executable, "-m", "inferometer", *words, "--json"]


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text, the first column flush left, the others flush right."""
    widths = [max(len(row[place]) for row in (columns, *rows)) for place in range(len(columns))]
    print(f"\n{title}")
    for row in (columns, *rows):
        cells = [
            cell.ljust(width) if place in (0, len(columns) - 1) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_bars(bars: Sequence[tuple[str, bool | None]]) -> int:
    """Print each bar; the exit status: 0 when all are met, 1 when one is missed or could not be measured."""
    print()
    for text, met in bars:
        print(f"{'not measured' if met is None else 'met' if met else 'MISSED':12}  {text}")
    return 0 if all(met for _, met in bars) else 1


def write_json(path: Path | None, document: Mapping[str, Any]) -> None:
    """Write the document, if a path is given."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _tree_mb(pid: int) -> float:
    """Resident memory of a process and its descendants, MB; those that have just ended count as 0."""
    total = 0
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0.0
    for member in members:
        try:
            total += member.memory_info().rss
        except psutil.Error:
            continue
    return total / 1e6


def _document(text: str) -> tuple[Any, str | None]:
    """The whole output as JSON, else its last line, before which libraries may have talked."""
    for candidate in (text, _last(text)):
        try:
            return json.loads(candidate), None
        except ValueError:
            continue
    return None, "no JSON in its output"


def _text(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read().decode(errors="replace"))


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""

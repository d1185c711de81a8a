"""Notes of running processes, for whoever ends what a dead parent left."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import psutil

from inferometer.environment.process import process_start
from inferometer.store import write_atomically

__all__ = ["PROCESS", "note_process", "noted"]

PROCESS = "process.json"
"""A note of `note_process` in a folder below ``work``."""


def note_process(path: Path, pid: int) -> None:
    """Write down a process of this host; it leads a group of its own."""
    start = process_start(pid)
    if start is not None:
        note = {"pid": pid, "start": start, "host": socket.gethostname()}
        write_atomically(path, json.dumps(note).encode())


def noted(path: Path) -> psutil.Process | None:
    """The process that was written down, if it still is the same, and of this host."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        pid, start, host = int(note["pid"]), note["start"], note.get("host", socket.gethostname())
    except (OSError, ValueError, KeyError):
        return None
    if start is None or host != socket.gethostname() or process_start(pid) != start:
        return None
    return psutil.Process(pid)

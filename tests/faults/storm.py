"""A study, and the faults that hit it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from inferometer.cli.main import INTERRUPTED
from inferometer.environment.process import process_start
from inferometer.errors import StoreError
from inferometer.store import read_store
from tests.faults.conftest import Disk

SOME_FAILED = 9
RANKS = ("kill rank", "stop rank")
# What a fault may end a run with; that of a worker or a rank ends none.
ENDS = {
    "kill parent": (-signal.SIGKILL,),
    "end parent": (INTERRUPTED, -signal.SIGTERM),  # the latter before Python has come to our first line
    "full disk": (StoreError.exit_code,),
}
TRIAL_S = 5.0
_ENDED_S = TRIAL_S + 20.0  # by the watchdog, on a busy machine


class Storm:
    """Runs a study again and again while faults are left, and then to its end.

    Attributes:
        counts: Faults so far.
        codes: With what runs have ended.
        left: Faults that were still to come when all trials had their record.
    """

    def __init__(self, seed: int, study: Path, disk: Disk, faults: dict[str, int]) -> None:
        self._random = random.Random(seed)
        self._study, self._disk, self.out = study, disk, disk.place / "out"
        first, more = list(faults), [kind for kind, count in faults.items() for _ in range(count - 1)]
        self._random.shuffle(first)
        self._random.shuffle(more)
        self.left = first + more  # each at least once, however soon the study ends
        self.counts: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self._lines: list[str] = []
        self._said = study.with_suffix(".said")
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Until every trial has its record."""
        while self.left:
            process = self._running()
            self._watch(process, self._random.uniform(0.3, 2.5))
            if process.poll() in (0, SOME_FAILED):
                break  # all is done
            if process.poll() is None and (kind := self._strike(process)) is not None:
                self.left.remove(kind)
                self.counts[kind] += 1
        while (code := self._running().wait(600)) not in (0, SOME_FAILED):
            self._look()
        self.codes[code] += 1
        self._look()

    def said(self) -> str:
        """The last words of the latest run."""
        return self._said.read_text(errors="replace")[-2000:]

    def _running(self) -> subprocess.Popen[bytes]:
        """The run that goes on, or a new one."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return self._process
            self.codes[code] += 1
            asked = sum(self.counts[kind] for kind, its in ENDS.items() if code in its)
            if self.codes[code] > asked:
                pytest.fail(f"a run ended with {code} for no fault: {self.said()}")
        command = [sys.executable, "-m", "inferometer", "run", str(self._study), "--out", str(self.out)]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        return self._process

    def _watch(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            self._look()
            time.sleep(0.2)

    def _look(self) -> None:
        """The store reads, and holds all that it held before."""
        if not (self.out / "study.json").exists():
            return
        lines = [f"{record.id} {record.status}" for record in read_store(self.out).lines]
        assert lines[: len(self._lines)] == self._lines
        self._lines = lines

    def _strike(self, process: subprocess.Popen[bytes]) -> str | None:
        """One fault; which it was, or None when it found nothing to hit."""
        kind = next((kind for kind in self.left if kind in RANKS and self._noted("rank")), self.left[0])
        what, _, whom = kind.partition(" ")
        if kind == "full disk":
            self._disk.fill()
            self._watch(process, self._random.uniform(0.5, 2.0))
            self._disk.empty()
        elif whom == "parent":
            process.send_signal(signal.SIGKILL if what == "kill" else signal.SIGTERM)
            process.wait(60)
        else:
            found = self._noted(whom)
            if not found:
                self.left.append(self.left.pop(self.left.index(kind)))  # another first
                return None
            self._signal(self._random.choice(found), what)
        self._look()
        return kind

    def _signal(self, note: tuple[int, str], what: str) -> None:
        pid, start = note
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        end = time.monotonic() + _ENDED_S
        while process_start(pid) == start:
            assert time.monotonic() < end, f"process {pid}, told to {what}, is still there"
            self._look()
            time.sleep(0.1)

    def _noted(self, whom: str) -> list[tuple[int, str]]:
        """Living processes that the study wrote down: its worker or launcher, or its ranks."""
        found = []
        for path in (self.out / "work").glob("rank-*.json" if whom == "rank" else "worker.json"):
            with contextlib.suppress(OSError, ValueError):
                note = json.loads(path.read_text())
                if process_start(note["pid"]) == note["start"]:
                    found.append((note["pid"], note["start"]))
        return found

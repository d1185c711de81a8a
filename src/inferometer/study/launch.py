"""Launching workers and watching them: hangs, deaths, progress, leftovers."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from inferometer.environment.cgroup import oom_kills
from inferometer.errors import EngineError, StoreError
from inferometer.ranks import launch_command, launch_environment
from inferometer.records import Outcome, Status
from inferometer.store import write_atomically
from inferometer.study.joining import joined
from inferometer.trials.spec import Job, TrialSpec
from inferometer.worker import STORE_FAILED, result_path

__all__ = [
    "PROCESS",
    "Finished",
    "Watcher",
    "check_launcher",
    "end_leftovers",
    "note_process",
    "run_job",
]

PROCESS = "process.json"
"""A note of `note_process` in a folder below ``work``."""

_POLL_S = 0.05
_CHECK_S = 60.0
_ENDS_S = 3.0


class Watcher(Protocol):
    """Who is told of a study's progress; the command line draws it."""

    def planned(self, total: int, done: int) -> None:
        """How many trials are known by now, and how many of them have a final record."""

    def started(self, spec: TrialSpec) -> None:
        """A trial begins."""

    def step(self, done: int, of: int) -> None:
        """The running trial has come so far."""

    def waits(self, what: str, seconds: float) -> None:
        """Nothing runs for up to so many seconds, for the sake of ``what``."""

    def finished(self, spec: TrialSpec, status: Status, reason: str | None) -> None:
        """A trial has its record."""


@dataclass(frozen=True)
class Finished:
    """One trial of a job that has ended, in any way, and the seconds it took."""

    spec: TrialSpec
    outcome: Outcome
    wall_s: float


def run_job(specs: Sequence[TrialSpec], watcher: Watcher) -> Generator[Finished, None, None]:
    """Run trials in one worker process, or one for each rank; ends after the first that one did not survive.

    Raises:
        StoreError: A worker could not write its results.
        EngineError: What starts ranks is not there.
    """
    folder, first = Path(specs[0].folder) / "work", specs[0]
    for spec in specs:
        for path in _results(spec):
            path.unlink(missing_ok=True)
    job = folder / "job.json"
    parent = None if first.launched else os.getpid()
    content = Job(parent_pid=parent, processes=first.processes, trials=tuple(specs))
    write_atomically(job, content.model_dump_json().encode())
    command = [sys.executable, "-P", "-m", "inferometer.worker", str(job)]
    if first.launched:
        command = launch_command(first.template, first.processes, command)
    with (folder / "worker.stderr").open("w+b") as stderr:
        worker = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            env=launch_environment() if first.launched else None,
        )
        try:
            note_process(folder / "worker.json", worker.pid)
            for spec in specs:
                watcher.started(spec)
                finished = _watch(worker, spec, Path(stderr.name), watcher)
                yield finished
                if worker.poll() is not None and not _complete(spec):
                    return
                for path in _results(spec):
                    path.unlink(missing_ok=True)
        finally:
            _end(worker, gently=first.launched)
            (folder / "worker.json").unlink(missing_ok=True)
            _end_ranks(folder)
            for left in folder.glob("loadgen-*"):  # of a worker that died
                shutil.rmtree(left, ignore_errors=True)


def end_leftovers(folder: Path) -> None:
    """End workers and samplers that outlived what launched them; clear their work and half-written drafts."""
    work = folder / "work"
    _end_ranks(work)
    for note in (work / "worker.json", *work.glob(f"*/{PROCESS}")):
        with contextlib.suppress(OSError, ValueError, KeyError, psutil.NoSuchProcess):
            left = json.loads(note.read_text(encoding="utf-8"))
            process = psutil.Process(int(left["pid"]))
            if process.create_time() == left["created"]:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(exist_ok=True)
    for place in ("models", "sidecars"):
        for draft in (folder / place).glob(".*"):
            draft.unlink(missing_ok=True)


def note_process(path: Path, pid: int) -> None:
    """Write down a process for `end_leftovers`; it leads a group of its own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        note = {"pid": pid, "created": psutil.Process(pid).create_time()}
        write_atomically(path, json.dumps(note).encode())


def check_launcher(template: str | None, ranks: int) -> None:
    """See that a launcher's ranks find one another: told now, not trial by trial.

    Raises:
        EngineError: It is not there, or they do not.
    """
    command = launch_command(
        template, ranks, [sys.executable, "-P", "-m", "inferometer.ranks", "--check", str(ranks)]
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_CHECK_S, env=launch_environment(), check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{' '.join(command[4:])} has started no ranks after {_CHECK_S:.0f} s") from error
    if done.returncode == 0:
        return
    said = [line for line in done.stderr.splitlines() if line.strip()]
    own = [line for line in said if "mpi4py" in line] or said
    raise EngineError(
        f"{command[4]}: ranks cannot be started: {own[0].strip() if own else f'it exits with {done.returncode}'}"
    )


def _results(spec: TrialSpec) -> list[Path]:
    """Where the results of a trial will be: one file, or one for each rank."""
    if spec.trial.ranks == 1:
        return [result_path(spec)]
    return [result_path(spec, rank) for rank in range(spec.trial.ranks)]


def _complete(spec: TrialSpec) -> bool:
    return all(path.exists() for path in _results(spec))


def _outcome(spec: TrialSpec) -> Outcome:
    found = [Outcome.model_validate_json(path.read_bytes()) for path in _results(spec)]
    return found[0] if spec.trial.ranks == 1 else joined(spec, found)


def _end_ranks(work: Path) -> None:
    """Kill the ranks of this host that their launcher left."""
    for note in work.glob("rank-*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, psutil.Error):
            left = json.loads(note.read_text(encoding="utf-8"))
            process = psutil.Process(int(left["pid"]))
            if left["host"] == socket.gethostname() and process.create_time() == left["created"]:
                process.kill()
                process.wait(10)
        note.unlink(missing_ok=True)


def _watch(worker: subprocess.Popen[bytes], spec: TrialSpec, stderr: Path, watcher: Watcher) -> Finished:
    """Wait for one trial's result file, the worker's death, or the watchdog."""
    begin = time.monotonic()
    kills, said = oom_kills(), stderr.stat().st_size
    with selectors.DefaultSelector() as selector:
        assert worker.stdout is not None
        os.set_blocking(worker.stdout.fileno(), False)
        selector.register(worker.stdout, selectors.EVENT_READ)
        while True:
            ended = worker.poll() is not None
            _read_progress(worker, watcher)
            if _complete(spec):
                outcome = _outcome(spec)
                break
            if ended:
                outcome = _death(worker.returncode, kills, _last_words(stderr, said), spec)
                break
            if time.monotonic() - begin > spec.limits.trial_s:
                _end(worker, gently=spec.launched)
                outcome = Outcome(
                    status="timeout", reason=f"not done after {spec.limits.trial_s:g} s (limits.trial_s)"
                )
                break
            if selector.get_map():
                selector.select(_POLL_S)
                if worker.stdout.closed:
                    selector.unregister(worker.stdout)
            time.sleep(_POLL_S / 5)
    return Finished(spec, outcome, time.monotonic() - begin)


def _read_progress(worker: subprocess.Popen[bytes], watcher: Watcher) -> None:
    """Pass on the progress lines; anything else that a vendor's library prints is not ours."""
    assert worker.stdout is not None
    text = worker.stdout.read() or b""
    for line in text.splitlines()[-1:]:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            watcher.step(int(said["done"]), int(said["of"]))


def _death(code: int, kills_before: int | None, last: str, spec: TrialSpec) -> Outcome:
    """What the end of a worker without a result means; ``last`` is what it printed last in this trial."""
    if code == STORE_FAILED:
        raise StoreError(last or "the worker could not write its results")
    kills = oom_kills()
    # A launcher ends with a code of its own, whatever ended its rank.
    killed = code == -signal.SIGKILL or spec.launched
    if killed and kills is not None and kills_before is not None and kills > kills_before:
        return Outcome(
            status="out_of_memory", reason="the kernel killed the worker: memory ran out (oom_kill)"
        )
    refused = ("bad_alloc", "Cannot allocate memory", "MemoryError")
    if spec.limits.memory_bytes is not None and any(word in last for word in refused):
        return Outcome(status="out_of_memory", reason=f"out of memory under limits.memory_bytes: {last}")
    if spec.trial.ranks > 1:
        lost = [rank for rank, path in enumerate(_results(spec)) if not path.exists()]
        which = ", ".join(str(rank) for rank in lost[:8]) + (", ..." if len(lost) > 8 else "")
        end = f"; the launcher exited with {code}" if code >= 0 else f"; the launcher was ended by {-code}"
        return Outcome(status="failed", reason=f"no result of ranks {which}{end}{_said(last)}")
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
    return Outcome(status="failed", reason=f"the worker {how}{_said(last)}")


def _said(last: str) -> str:
    return f": {last}" if last else ""


def _last_words(stderr: Path, since: int) -> str:
    text = stderr.read_bytes()[since:].decode("utf-8", errors="replace")
    lines = [line for line in text.splitlines() if any(sign.isalnum() for sign in line)]  # launchers draw rules
    return lines[-1].strip()[:300] if lines else ""


def _end(worker: subprocess.Popen[bytes], *, gently: bool = False) -> None:
    """Kill the worker's whole process group, and reap it.

    A launcher is first asked to end its ranks, wherever these are.
    """
    if gently and worker.poll() is None:
        worker.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(_ENDS_S)
    if worker.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    if worker.stdout is not None:
        worker.stdout.close()

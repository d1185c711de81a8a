"""Launching workers and watching them: hangs, deaths, progress, leftovers."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
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
from inferometer.study.notes import PROCESS, note_process, noted
from inferometer.trials.spec import Job, TrialSpec
from inferometer.worker import STORE_FAILED, result_path

__all__ = [
    "Finished",
    "Watcher",
    "check_launcher",
    "end_leftovers",
    "run_job",
]

# Half-written files of processes that were killed: of what a study writes into its folder.
_DRAFTS = ("models/.*", "sidecars/.*", ".study.json.*", ".report.html.*")

_POLL_S = 0.05
_CHECK_S = 60.0
_ENDS_S = 3.0
_SIGNAL_S = 2.0  # within which a batch system that ends a job has told all of its processes
_ROOM_BYTES = 1 << 20
_SLURMS = ("srun:", "slurmstepd:")


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

    def left(self, seconds: float | None) -> None:
        """How long the trials left will take, by those that have ended; None: nothing tells."""


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
        to_do = len(specs)
        try:
            note_process(folder / "worker.json", worker.pid)
            for spec in specs:
                watcher.started(spec)
                finished = _watch(worker, spec, Path(stderr.name), watcher)
                to_do -= 1
                yield finished
                if worker.poll() is not None and not _complete(spec):
                    return
                for path in _results(spec):
                    path.unlink(missing_ok=True)
        finally:
            if (
                first.launched and not to_do
            ):  # MPI gives back what it holds, such as shared memory, at its end
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(_ENDS_S)
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
        with contextlib.suppress(OSError, psutil.Error):
            process = noted(note)
            if process is not None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
    shutil.rmtree(work, ignore_errors=True)
    for draft in (draft for pattern in _DRAFTS for draft in folder.glob(pattern)):
        draft.unlink(missing_ok=True)
    try:
        work.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{work}: {error.strerror}") from error


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
        raise EngineError(f"{' '.join(command[5:])} has started no ranks after {_CHECK_S:.0f} s") from error
    heard = sum('"rank"' in line for line in done.stdout.splitlines())
    if done.returncode == 0 and heard == ranks:
        return
    if done.returncode == 0:
        raise EngineError(f"{command[5]}: of {ranks} ranks {heard} were started: is launch.template right?")
    _check_room(Path(tempfile.gettempdir()))
    said = _lines(done.stderr)
    own = [line for line in said if "mpi4py" in line] or said
    why = own[0].strip() if own else f"it exits with {done.returncode}"
    raise EngineError(f"{command[5]}: ranks cannot be started: {why}")


def _results(spec: TrialSpec) -> list[Path]:
    """Where the results of a trial will be: one file, or one for each rank."""
    if spec.trial.ranks == 1:
        return [result_path(spec)]
    return [result_path(spec, rank) for rank in range(spec.trial.ranks)]


def _complete(spec: TrialSpec) -> bool:
    # Listed: NFS asks its server about a folder that is opened, not always about a file that was not there.
    there = {path.name for path in (Path(spec.folder) / "work").glob("*.json")}
    return all(path.name in there for path in _results(spec))


def _outcome(spec: TrialSpec) -> Outcome:
    found = [Outcome.model_validate_json(path.read_bytes()) for path in _results(spec)]
    return found[0] if spec.trial.ranks == 1 else joined(spec, found)


def _end_ranks(work: Path) -> None:
    """Kill the ranks of this host that their launcher left."""
    for note in work.glob("rank-*.json"):
        with contextlib.suppress(psutil.Error):
            process = noted(note)
            if process is not None:
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
                if spec.launched or worker.returncode in (-signal.SIGTERM, -signal.SIGINT):
                    time.sleep(_SIGNAL_S)  # who ended it may be ending this process too: then it interrupts
                outcome = _death(worker.returncode, kills, _last_words(stderr, said, spec), spec)
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
    """What the end of a worker without a result means; ``last`` is what it printed last in this trial.

    Raises:
        StoreError: It could not write, or there is no room to write.
    """
    if code == STORE_FAILED:
        raise StoreError(last or f"{spec.folder}: the worker could not write its results: is the disk full?")
    _check_room(Path(spec.folder) / "work")
    _check_room(Path(tempfile.gettempdir()))
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


def _check_room(folder: Path) -> None:
    """See that there is room where workers write: on a full disk they end in many ways, and none is a result.

    Raises:
        StoreError: There is none.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(os.urandom(_ROOM_BYTES))  # some file systems keep zeros for nothing
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{folder}: nothing can be written there: {error.strerror}") from error


def _said(last: str) -> str:
    return f": {last}" if last else ""


def _last_words(stderr: Path, since: int, spec: TrialSpec) -> str:
    """What was said last since then; of a launcher's many words, if there are any, those of a rank."""
    lines = _lines(stderr.read_bytes()[since:].decode("utf-8", errors="replace"))
    own = [line for line in lines if spec.folder in line] if spec.launched else []
    return (own or lines or [""])[-1].strip()[:300]


def _lines(text: str) -> list[str]:
    """Those with words in them, since launchers draw rules; Slurm's, which only tell an end, if no others."""
    lines = [line for line in text.splitlines() if any(sign.isalnum() for sign in line)]
    return [line for line in lines if not line.startswith(_SLURMS)] or lines


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

"""One worker process: ``python -m inferometer.worker JOB.json``.

It runs the job's trials in order and writes one result file per trial, atomically, so that what it
learned survives its death. It dies with its parent. Progress goes to standard output, one JSON
object a line; what a vendor's library prints goes where it will.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inferometer.environment.inventory import inventory
from inferometer.environment.load import load_between
from inferometer.environment.probe import ProbeReading, machine_probe
from inferometer.environment.state import state
from inferometer.errors import InferometerError, NothingToQuantize, OutOfMemory, StoreError, Unsupported
from inferometer.records import Outcome, Status
from inferometer.store import write_atomically
from inferometer.trials.accuracy import run_accuracy
from inferometer.trials.calibration import run_calibration
from inferometer.trials.loadgen import run_loadgen
from inferometer.trials.spec import Job, TrialSpec
from inferometer.trials.speed import run_speed

__all__ = ["STORE_FAILED", "main", "result_path", "run_trial"]

STORE_FAILED = StoreError.exit_code  # the exit status that means: nothing more can be written

_PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h


def main(arguments: list[str]) -> int:
    """Run the job file named on the command line."""
    job = Job.model_validate_json(Path(arguments[0]).read_bytes())
    _die_with(job.parent_pid)
    try:
        probe = machine_probe()
        for spec in job.trials:
            outcome, probe = run_trial(spec, _say, probe)
            write_atomically(result_path(spec), outcome.model_dump_json().encode())
    except StoreError as error:
        sys.stderr.write(f"{error}\n")
        return STORE_FAILED
    return 0


def result_path(spec: TrialSpec) -> Path:
    """Where the worker leaves the outcome of one trial."""
    return Path(spec.folder) / "work" / f"{spec.id}.result.json"


def run_trial(
    spec: TrialSpec, progress: Callable[[int, int], None], before: ProbeReading
) -> tuple[Outcome, ProbeReading]:
    """Run one trial; whatever goes wrong becomes its status and reason.

    Args:
        spec: The trial.
        progress: Told (images done, images in all) where a trial goes through images.
        before: The machine probe just before: that after the trial before it.

    Returns:
        The outcome, and the machine probe after the trial.

    Raises:
        StoreError: Raw values could not be written: no trial can end well then.
    """
    state_before = state()
    try:
        with _bounded_memory(spec.limits.memory_bytes):
            outcome = _by_kind(spec, progress)
    except OutOfMemory as error:
        outcome = _broken("out_of_memory", error)
    except MemoryError as error:
        reason = f"out of memory in the worker: {error or 'MemoryError'}"
        outcome = Outcome(status="out_of_memory", reason=_one_line(reason))
    except (NothingToQuantize, Unsupported) as error:
        outcome = _broken("unsupported", error)
    except StoreError:
        raise
    except InferometerError as error:
        outcome = _broken("failed", error)
    except Exception as error:  # noqa: BLE001 (a trial becomes a record, whatever broke it)
        outcome = Outcome(status="failed", reason=_one_line(f"{type(error).__name__}: {error}"))
    state_after = state()
    after = machine_probe()
    facts = {
        "state": {
            "before": state_before.model_dump(mode="json"),
            "after": state_after.model_dump(mode="json"),
            "load": load_between(state_before.clock, state_after.clock).model_dump(mode="json"),
        },
        "probe": {"before": before.model_dump(mode="json"), "after": after.model_dump(mode="json")},
        "environment": inventory().model_dump(mode="json"),
    }
    return outcome.model_copy(update=facts), after


def _broken(status: Status, error: InferometerError) -> Outcome:
    return Outcome(status=status, reason=_one_line(str(error)), error=type(error).__name__)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _by_kind(spec: TrialSpec, progress: Callable[[int, int], None]) -> Outcome:
    kind = spec.trial.kind
    if kind == "accuracy":
        return run_accuracy(spec, progress)
    if kind == "calibration":
        return run_calibration(spec, progress)
    if kind == "loadgen":
        return run_loadgen(spec)
    return run_speed(spec)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends, and end if it already has."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


@contextlib.contextmanager
def _bounded_memory(limit: int | None) -> Iterator[None]:
    """Bound this process's private writable memory (RLIMIT_DATA: heap and anonymous mappings) meanwhile.

    The machine probe, which takes memory of its own, is not part of the trial and stays outside.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _say(done: int, of: int) -> None:
    now = time.monotonic()
    if done < of and now - _Said.at < 0.2:
        return
    _Said.at = now
    line: dict[str, Any] = {"done": done, "of": of}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class _Said:
    """When progress was last printed, so that it is not printed for every batch."""

    at = float("-inf")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

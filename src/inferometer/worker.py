"""One worker process: ``python -m inferometer.worker JOB.json``.

It runs the job's trials in order and writes one result file per trial, atomically, so that what it
learned survives its death. Of several processes, which a launcher starts and MPI connects, each writes its
own. It dies with its parent. Progress goes to standard output, one JSON object a line; what a vendor's
library prints goes where it will.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inferometer import registry
from inferometer.environment.cgroup import usable_cores
from inferometer.environment.inventory import inventory
from inferometer.environment.load import load_between
from inferometer.environment.placement import core_sets, listed, pinned
from inferometer.environment.probe import ProbeReading, machine_probe
from inferometer.environment.process import process_start
from inferometer.environment.state import state
from inferometer.errors import (
    EngineError,
    InferometerError,
    NothingToQuantize,
    OutOfMemory,
    StoreError,
    Unsupported,
    disk_full,
)
from inferometer.ranks import Alone, RankLost, World, die_with_parent, join
from inferometer.records import Outcome, RankResult, Status
from inferometer.store import write_atomically
from inferometer.trials.accuracy import run_accuracy
from inferometer.trials.calibration import run_calibration
from inferometer.trials.loadgen import run_loadgen
from inferometer.trials.session import prepare_model
from inferometer.trials.spec import Job, TrialSpec
from inferometer.trials.speed import run_speed

__all__ = ["STORE_FAILED", "main", "result_path", "run_trial"]

STORE_FAILED = StoreError.exit_code  # the exit status that means: nothing more can be written

Rank = Alone | World


def main(arguments: list[str]) -> int:
    """Run the job file named on the command line."""
    job = Job.model_validate_json(Path(arguments[0]).read_bytes())
    _die_with(job.parent_pid)
    if job.parent_pid is not None:
        return _run(job, Alone(job.trials[0].trial.place or 0))
    try:
        world = join(job.processes)
    except InferometerError as error:
        _tell(error)
        return error.exit_code
    code = _run_rank(job, world)
    if code:  # the others wait
        world.abort(code)
    with contextlib.suppress(RankLost):
        world.all(True)  # MPI's own waiting at its end would burn processors
    return code


def _run_rank(job: Job, world: World) -> int:
    spec = job.trials[0]
    try:
        _note(Path(spec.folder) / "work" / f"rank-{world.rank}.json", world.host)
    except StoreError as error:
        _tell(error)
        return STORE_FAILED
    if spec.trial.ranks > 1:
        return _run(job, world)
    return _run(job, Alone(world.local_rank)) if world.rank == (spec.trial.place or 0) else 0


def _run(job: Job, world: Rank) -> int:
    rank = world.rank if isinstance(world, World) else None
    try:
        probe = machine_probe() if world.leads else None
        for spec in job.trials:
            outcome, probe = run_trial(spec, _say, probe, world)
            write_atomically(result_path(spec, rank), outcome.model_dump_json().encode())
    except StoreError as error:
        _tell(error)
        return STORE_FAILED
    return 0


def _tell(error: InferometerError) -> None:
    """Say why this process ends; where that is written may be what is full."""
    with contextlib.suppress(OSError):
        os.write(2, f"{error}\n".encode())


def result_path(spec: TrialSpec, rank: int | None = None) -> Path:
    """Where the worker leaves the outcome of one trial, or one rank of several its own."""
    name = spec.id if rank is None else f"{spec.id}.rank{rank}"
    return Path(spec.folder) / "work" / f"{name}.result.json"


def run_trial(
    spec: TrialSpec,
    progress: Callable[[int, int], None],
    before: ProbeReading | None,
    world: Rank | None = None,
) -> tuple[Outcome, ProbeReading | None]:
    """Run one trial; whatever goes wrong becomes its status and reason.

    Args:
        spec: The trial.
        progress: Told (images done, images in all) where a trial goes through images.
        before: The machine probe just before: that after the trial before it; None in a rank that does not
            look at the machine, as one of each host does.
        world: The ranks of the trial; None: it has one.

    Returns:
        The outcome, and the machine probe after the trial.

    Raises:
        StoreError: Raw values could not be written, or the disk is full: no trial can end well then.
    """
    world = world or Alone()
    state_before = state()
    try:
        with _bounded_memory(spec.limits.memory_bytes), _no_full_disk(spec):
            outcome = _as_rank(spec, progress, world)
    except RankLost as error:
        outcome = _broken("failed", error)
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
        status: Status = "out_of_memory" if _lacked_memory(error, spec.limits.memory_bytes) else "failed"
        outcome = Outcome(status=status, reason=_one_line(f"{type(error).__name__}: {error}"))
    if outcome.status != "ok" and outcome.error != RankLost.__name__:
        world.fail()
    state_after = state()
    after = machine_probe() if world.leads else None
    facts = {
        "state": {
            "before": state_before.model_dump(mode="json"),
            "after": state_after.model_dump(mode="json"),
            "load": load_between(state_before.clock, state_after.clock).model_dump(mode="json"),
        },
        "probe": {"before": before.model_dump(mode="json"), "after": after.model_dump(mode="json")}
        if before and after
        else None,
        "environment": inventory().model_dump(mode="json"),
    }
    return outcome.model_copy(update=facts), after


def _lacked_memory(error: BaseException | None, limit: int | None) -> bool:
    """Whether what a bounded process met is its bound, which loaders of libraries tell in other words."""
    if limit is None or error is None:
        return False
    refused = isinstance(error, OSError) and error.errno == errno.ENOMEM
    refused = refused or any(
        word in str(error) for word in ("annot allocate memory", "failed to map segment")
    )
    return refused or _lacked_memory(error.__cause__ or error.__context__, limit)


def _broken(status: Status, error: InferometerError) -> Outcome:
    return Outcome(status=status, reason=_one_line(str(error)), error=type(error).__name__)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _as_rank(spec: TrialSpec, progress: Callable[[int, int], None], world: Rank) -> Outcome:
    """Run a trial on this rank's own device and processors, all ranks together."""
    cores = _cores(spec, world)
    with pinned(cores):
        own = _of_this_host(spec.on(world.local_rank))
        if isinstance(world, World):
            if world.rank == 0:
                prepare_model(own)  # once, not by all at the same time
            world.all(True)
        before = world.offset()
        outcome = _by_kind(own, progress, world)
        world.all(True)
        clock = before.joined(world.offset())
    if not spec.places and not spec.launched:
        return outcome
    result = RankResult(
        rank=world.rank if isinstance(world, World) else spec.trial.place or 0,
        host=world.host,
        device=own.trial.device,
        uuid=own.device_uuid,
        cores=None if cores is None else listed(cores),
        images_per_s=outcome.throughput.images_per_s if outcome.throughput else None,
        median_latency_s=outcome.latency_s.p50 if outcome.latency_s else None,
        skew_s=None if spec.trial.ranks > 1 else 0.0,
        load_s=outcome.load_s,
        host_peak_bytes=outcome.memory.host_peak_bytes if outcome.memory else None,
        device_peak_bytes=outcome.memory.device_peak_bytes if outcome.memory else None,
        clock_offset_s=clock.offset_s,
        clock_u_s=clock.u_s,
    )
    return outcome.model_copy(update={"ranks": (result,)})


def _of_this_host(spec: TrialSpec) -> TrialSpec:
    """With the UUID of its device: the parent knows those of its own host, and a template leads to others."""
    if spec.template is None or spec.trial.device == "cpu":
        return spec
    uuids = {one.name: one.uuid for one in registry.engine(spec.trial.engine).devices()}
    return spec.model_copy(update={"device_uuid": uuids.get(spec.trial.device)})


def _cores(spec: TrialSpec, world: Rank) -> list[int] | None:
    """The processors of this rank: no other of its host has them, unless there are too few."""
    if spec.cores_per_rank is None:
        return None
    sets = core_sets(spec.cores_per_rank)
    if not sets or (world.local_rank >= len(sets) and not spec.oversubscribe):
        raise EngineError(
            f"{world.host} has {usable_cores()} cores, too few for rank {world.local_rank + 1} of it"
            f" with {spec.cores_per_rank}: fewer ranks, fewer threads, or launch: {{oversubscribe: true}}"
        )
    return sets[world.local_rank % len(sets)]


def _by_kind(spec: TrialSpec, progress: Callable[[int, int], None], world: Rank) -> Outcome:
    kind, rank = spec.trial.kind, world.rank if isinstance(world, World) else None
    if kind == "accuracy":
        return run_accuracy(spec, progress, rank)
    if kind == "calibration":
        return run_calibration(spec, progress)
    if kind == "loadgen":
        return run_loadgen(spec)
    return run_speed(spec, world, rank)


def _die_with(parent: int | None) -> None:
    """Ask the kernel to kill this process when its parent ends, and end if it already has."""
    die_with_parent()
    if parent is not None and os.getppid() != parent:
        sys.exit(1)


def _note(path: Path, host: str) -> None:
    """Write down this process, for whoever ends what a dead parent left."""
    note = {"pid": os.getpid(), "start": process_start(os.getpid()), "host": host}
    write_atomically(path, json.dumps(note).encode())


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


@contextlib.contextmanager
def _no_full_disk(spec: TrialSpec) -> Iterator[None]:
    """A full disk ends the study: it is no outcome of the trial that met it."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        if disk_full(error):
            reason = _one_line(str(error))
            raise StoreError(f"{spec.folder}: a trial needs room on a disk that is full: {reason}") from error
        raise


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


def _exit(code: int) -> None:
    """End with this status: Python's own, when it cannot write its last words anywhere, would be 120."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(code)


if __name__ == "__main__":
    _exit(main(sys.argv[1:]))

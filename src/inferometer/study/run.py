"""Running or resuming a study: every planned trial gets one final record."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from inferometer.config import Study
from inferometer.environment.inventory import inventory
from inferometer.environment.process import release_memory
from inferometer.errors import NothingToQuantize
from inferometer.quantize.table import CalibrationTable
from inferometer.records import Outcome, Record
from inferometer.store import Contents, Store, open_store, sidecar_of
from inferometer.study.estimate import Pace
from inferometer.study.launch import Finished, Watcher, end_leftovers, run_job
from inferometer.study.metering import Metering
from inferometer.study.plan import CalibratedModel, Planned, plan_calibrations, plan_trials
from inferometer.study.resolve import Resolved, resolve
from inferometer.trials.spec import PowerTask, TrialSpec

__all__ = ["NO_POWER", "StudyRun", "run_study"]

NO_POWER = "no-power"
"""Word of ``retry`` for trials that ended well, but without the net power that was asked for."""


@dataclass(frozen=True)
class StudyRun:
    """What a call of ``run_study`` leaves.

    Attributes:
        records: The final records of the study's trials (the folder may hold others, of an earlier form).
        run: How many of them this call added.
        remaining: Planned trials without a final record.
    """

    records: tuple[Record, ...]
    run: int
    remaining: int


def run_study(
    study: Study,
    folder: Path,
    watcher: Watcher,
    *,
    budget_s: float | None = None,
    retry: Collection[str] = (),
) -> StudyRun:
    """Run what has no final record yet.

    Args:
        study: The matrix.
        folder: Where records go; claimed by this study, held exclusively while it runs.
        watcher: Told of progress.
        budget_s: Start no trial that would probably end later than this many seconds from now.
        retry: Statuses (such as ``failed``) whose trials run again, or `NO_POWER`.

    Raises:
        InferometerError: Something is wrong with the study as a whole; trials that go wrong are records.
        KeyboardInterrupt: It was interrupted; the running trial has an ``interrupted`` line.
    """
    with open_store(folder, study.name) as store:
        end_leftovers(folder)
        resolved = resolve(study, folder)
        release_memory()  # of the models that were read: workers need it
        with _metering(study, resolved, folder, watcher) as metering:
            runner = _Runner(store, watcher, study, budget_s, frozenset(retry), metering)
            calibrations, expected = plan_calibrations(resolved), plan_trials(resolved, {})
            runner.check_meters(expected)
            runner.run(calibrations, to_come=len(expected))
            tables = {item.spec.trial.model: _table(store, item) for item in calibrations}
            trials = plan_trials(resolved, tables)
            runner.run(trials, settled=len(calibrations))
            return runner.summary([*calibrations, *trials])


@contextlib.contextmanager
def _metering(study: Study, resolved: Resolved, folder: Path, watcher: Watcher) -> Iterator[Metering | None]:
    """The meters of a study that wants power; they are closed however it ends."""
    if study.power is None:
        yield None
        return
    there = [entry for entry in resolved.engines if entry.absent is None]
    uuids = [uuid for entry in there if (uuid := entry.uuid)]
    uuids += [uuid for entry in there for one in entry.places if (uuid := one.uuid)]
    template, ranks = study.launch.template, max(study.ranks)
    metering = Metering(study.power, list(dict.fromkeys(uuids)), folder, watcher, template, ranks)
    try:
        yield metering
    finally:
        metering.close()


class _Runner:
    """The state of one call: what is recorded, what ran out of memory, what time is left."""

    def __init__(
        self, store: Store, watcher: Watcher, study: Study, budget_s: float | None, retry: frozenset[str],
        metering: Metering | None,
    ) -> None:  # fmt: skip
        self._store, self._watcher, self._study, self._retry = store, watcher, study, retry
        self._metering = metering
        self._deadline = None if budget_s is None else time.monotonic() + budget_s
        self._added = 0
        self._longest_s: dict[str, float] = {}
        self._around_s = 0.0  # that measuring idle took, around the trials of a job
        self._pace, self._more_to_come = Pace(), False
        self._environment = inventory().model_dump(mode="json")  # for trials that no worker lived to describe
        contents: Contents = store.read()
        self._final = {record.id: record for record in contents.records if not self._again(record)}

    def _again(self, record: Record) -> bool:
        return record.status in self._retry or (NO_POWER in self._retry and _lacks_power(record))

    def check_meters(self, planned: Sequence[Planned]) -> None:
        """Start the meters if a trial that is still to run wants them: told now, not after an hour.

        Raises:
            MeterError: None of the study's meters can be opened.
        """
        open_ones = (item for item in planned if item.refused is None and item.spec.id not in self._final)
        if self._metering is not None and any(item.spec.power is not None for item in open_ones):
            self._metering.start()

    def run(self, planned: Sequence[Planned], *, settled: int = 0, to_come: int = 0) -> None:
        """Give every planned trial its record, as far as the budget goes.

        ``settled`` trials went before these and ``to_come`` follow: the watcher is told of all.
        """
        done = sum(item.spec.id in self._final for item in planned)
        self._watcher.planned(settled + len(planned) + to_come, settled + done)
        self._expect(planned, more_to_come=to_come > 0)
        for job in self._jobs(planned):
            left = list(job)
            while left and not self._over_budget(left[0]):
                left = self._run_some(left)

    def summary(self, planned: Sequence[Planned]) -> StudyRun:
        """The study's records so far."""
        remaining = sum(item.spec.id not in self._final for item in planned)
        wanted = {item.spec.id for item in planned}
        records = tuple(record for record in self._store.read().records if record.id in wanted)
        return StudyRun(records, self._added, remaining)

    def _jobs(self, planned: Sequence[Planned]) -> Iterator[list[Planned]]:
        """Trials that share a worker: one each, or the batches of a series."""
        job: list[Planned] = []
        for item in planned:
            together = job and self._study.isolation == "series" and item.series == job[0].series
            if job and not together:
                yield job
                job = []
            job.append(item)
        if job:
            yield job

    def _expect(self, planned: Sequence[Planned], *, more_to_come: bool) -> None:
        """Estimate what is left; what went before this call tells how long trials take."""
        self._more_to_come = more_to_come
        for job in self._jobs(planned):
            for item in job:
                record = self._final.get(item.spec.id)
                if record is not None:
                    self._pace.took(item.spec, record.wall_s or 0.0)
                elif item.refused is None:
                    self._pace.expect(item.spec, job[0].spec.id)
        self._tell_left()

    def _tell_left(self) -> None:
        self._watcher.left(None if self._more_to_come else self._pace.left_s(self._around_s))

    def _run_some(self, job: list[Planned]) -> list[Planned]:
        """Settle the trials at the head of a job; returns those still to be run."""
        settled, runnable = 0, []
        for item in job:
            outcome = self._settled(item)
            if outcome is None:
                runnable.append(item)
            elif not runnable:
                settled += 1
                if outcome is not _DONE:
                    self._record(Finished(item.spec, outcome, 0.0))
            else:
                break
        if not runnable:
            return job[settled:] if settled else []
        rest = job[settled + len(runnable) :]
        return [*self._launch(runnable), *rest]

    def _launch(self, items: Sequence[Planned]) -> list[Planned]:
        """Run trials in one worker; returns those it did not come to.

        Where power is measured they are recorded together, when the idle after the last of them is known.
        """
        done, begin = 0, time.monotonic()
        specs = [item.spec for item in items]
        metering = self._metering if any(spec.power for spec in specs) else None
        held: list[Finished] = []
        try:
            if metering is not None:
                metering.before()
                specs = [_lengthened(spec, metering) for spec in specs]
            # Closed at once, however the loop ends: the worker must not compute on meanwhile.
            with contextlib.closing(run_job(specs, self._watcher)) as job:
                for finished in job:
                    held.append(finished)
                    done += 1
                    if metering is None:
                        self._record(held.pop())
                    if finished.outcome.status in ("out_of_memory", "timeout"):
                        break
                    if self._late() or (done < len(items) and self._over_budget(items[done])):
                        break
            if metering is not None:
                metering.after([finished.outcome for finished in held])
        except KeyboardInterrupt:
            self._give_up(held, metering)
            if done < len(specs):  # else it came when the last trial already had its record
                self._store.append(self._made(Finished(specs[done], _INTERRUPTED, 0.0)))
            raise
        trials_s = sum(finished.wall_s for finished in held)
        self._around_s = max(self._around_s, time.monotonic() - begin - trials_s) if metering else 0.0
        self._record_metered(held, metering)
        return list(items[done:])

    def _give_up(self, held: list[Finished], metering: Metering | None) -> None:
        """Trials whose idle after was not measured any more run again; others have their record."""
        waits = metering is not None and not metering.complete
        for finished in held if waits else []:
            if finished.outcome.status == "ok":
                self._store.append(self._made(Finished(finished.spec, _INTERRUPTED, 0.0)))
            else:
                self._record(finished)
        self._record_metered([] if waits else held, metering)

    def _record_metered(self, held: list[Finished], metering: Metering | None) -> None:
        while held and metering is not None:
            finished = held.pop(0)
            self._record(replace(finished, outcome=metering.completed(finished.spec, finished.outcome)))
        if metering is not None:
            metering.next_job()

    def _settled(self, item: Planned) -> Outcome | None:
        """The outcome of a trial that need not run (``_DONE``: it has a record), else None."""
        if item.spec.id in self._final:
            return _DONE
        if item.refused is not None:
            status, reason = item.refused
            return Outcome(status=status, reason=reason, error=item.error)
        return self._ruled_out(item)

    def _ruled_out(self, item: Planned) -> Outcome | None:
        """A batch that ran out of memory (or of time) rules out itself and larger ones of its series."""
        for record in self._final.values():
            if record.status not in ("out_of_memory", "timeout") or not _same_series(record, item):
                continue
            batch, limit = item.spec.trial.batch, record.trial.batch
            if batch is None or limit is None or item.spec.trial.kind != record.trial.kind:
                continue
            larger = batch > limit and record.status == "out_of_memory"
            if larger or (batch == limit and record.trial.repeat < item.spec.trial.repeat):
                what = "ran out of memory" if record.status == "out_of_memory" else "timed out"
                return Outcome(status="skipped", reason=f"batch {limit} {what}")
        return None

    def _record(self, finished: Finished) -> None:
        record = self._made(finished)
        self._store.append(record)
        self._final[record.id] = record
        self._added += 1
        kind = record.trial.kind
        self._longest_s[kind] = max(self._longest_s.get(kind, 0.0), finished.wall_s)
        self._watcher.finished(finished.spec, record.status, record.reason)
        self._pace.took(finished.spec, finished.wall_s)
        self._tell_left()

    def _made(self, finished: Finished) -> Record:
        return _record(finished, self._study, self._environment)

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _over_budget(self, item: Planned) -> bool:
        """Whether this trial, if it took as long as the longest of its kind so far, would end too late."""
        if self._deadline is None or item.spec.id in self._final:
            return False
        expected = self._longest_s.get(item.spec.trial.kind, 0.0) + (
            self._around_s if item.spec.power else 0.0
        )
        return time.monotonic() + expected > self._deadline


def _lacks_power(record: Record) -> bool:
    """Whether net power was asked for, and is not there for some boundary; within noise it is there."""
    asked = record.status == "ok" and bool((record.config or {}).get("power"))
    return asked and (not record.power or any(one.net_w is None for one in record.power))


def _lengthened(spec: TrialSpec, metering: Metering) -> TrialSpec:
    """With windows as long as the slowest meter needs, and the more time; its identity stays."""
    if spec.power is None:
        return spec
    task = metering.task()
    more_s = task.min_s - spec.power.min_s + task.idle_loaded_s - spec.power.idle_loaded_s
    limits = spec.limits.model_copy(update={"trial_s": spec.limits.trial_s + more_s})
    return spec.model_copy(update={"power": task, "limits": limits})


_DONE = Outcome(status="ok", reason="it has a record already")
_INTERRUPTED = Outcome(status="interrupted", reason="the study was interrupted")


def _record(finished: Finished, study: Study, environment: Mapping[str, object]) -> Record:
    spec, outcome = finished.spec, finished.outcome
    found: dict[str, object] = {name: getattr(outcome, name) for name in Outcome.model_fields}
    return Record.model_validate(
        {
            **found,
            "environment": outcome.environment or environment,
            "id": spec.id,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "trial": spec.trial,
            "model": spec.model,
            "wall_s": finished.wall_s or None,
            "config": _config(spec, study),
        }
    )


def _config(spec: TrialSpec, study: Study) -> dict[str, object]:
    """The settings behind one record, without paths of this machine's files' folders."""
    return {
        "engine_version": spec.engine_version,
        "options": spec.options,
        "preprocess": spec.preprocess.model_dump(mode="json") if spec.preprocess else None,
        "output": spec.output,
        "label_offset": spec.label_offset,
        "inputs": {name: entry.model_dump(mode="json") for name, entry in spec.inputs.items()},
        "measure": spec.measure.model_dump(mode="json"),
        "limits": spec.limits.model_dump(mode="json"),
        "isolation": spec.isolation,
        "launch": {"template": spec.template, "oversubscribe": spec.oversubscribe} if spec.launched else None,
        "seed": spec.seed,
        "repeats": study.repeats,
        "calibration": spec.calibration.model_dump(mode="json", exclude={"data"})
        if spec.calibration
        else None,
        "accuracy": spec.accuracy.model_dump(mode="json", exclude={"data", "exclude"})
        if spec.accuracy
        else None,
        "loadgen": spec.loadgen.model_dump(mode="json") if spec.loadgen else None,
        "images": spec.feed.model_dump(mode="json", exclude={"data", "labels"}) if spec.feed else None,
        "power": _power_config(spec.power),
    }


def _power_config(task: PowerTask | None) -> dict[str, object] | None:
    """Without the meters' options: these hold addresses and files."""
    if task is None:
        return None
    return {
        "meters": [one.meter for one in task.section.meters],
        "idle_s": task.section.idle_s,
        "min_s": task.min_s,
        "idle_loaded_s": task.idle_loaded_s,
    }


def _same_series(record: Record, item: Planned) -> bool:
    theirs, ours, config = record.trial, item.spec.trial, record.config or {}
    asked = item.spec.loadgen.model_dump(mode="json") if item.spec.loadgen else None
    return (
        (theirs.kind, theirs.model, theirs.engine, theirs.device, theirs.precision, config.get("loadgen"))
        == (ours.kind, ours.model, ours.engine, ours.device, ours.precision, asked)
        and (theirs.ranks, theirs.place, theirs.input) == (ours.ranks, ours.place, ours.input)
    ) and (record.model, config.get("options")) == (item.spec.model, item.spec.options)


def _table(store: Store, item: Planned) -> CalibratedModel:
    """The table that a calibration trial left, or why there is none."""
    record = store.read().final_ids.get(item.spec.id)
    if record is None:
        return CalibratedModel(None, None, "it was not run for lack of time")
    sidecar = sidecar_of(record, ".table.json")
    if record.status != "ok" or sidecar is None:
        return CalibratedModel(None, None, record.reason, record.error == NothingToQuantize.__name__)
    path = store.folder / sidecar.path
    return CalibratedModel(str(path), CalibrationTable.load(path))

"""The matrix: which trials a study has, in which order.

Order: calibrations first (every INT8 trial's identity contains the hash of its table), then the
speed trials, repeats interleaved (all points once, then all again), in each round the series in
seeded order and the batches of a series ascending, then the accuracy trials.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from inferometer.config import SPLIT_RULES, CalibrationSection, Study
from inferometer.data.imageset import ImageSet
from inferometer.quantize.methods import method_named
from inferometer.quantize.table import CalibrationTable
from inferometer.records import Kind, Precision, Trial
from inferometer.study.model import ResolvedModel
from inferometer.study.resolve import Resolved, ResolvedEngine, fed_from
from inferometer.trials.spec import (
    SPEED_KINDS,
    AccuracyTask,
    CalibrationTask,
    FeedTask,
    PowerTask,
    TrialSpec,
    identity_of,
)

__all__ = ["CalibratedModel", "Planned", "plan_calibrations", "plan_trials"]

Crew = tuple[int, int | None]
"""How many ranks, and the place of the only one in a study of several."""

_SINGLE: Crew = (1, None)
_FIRST: Crew = (1, 0)
_FIRST_ALONE = frozenset({_SINGLE, _FIRST})
FORWARD_BATCH = 4  # images per call of accuracy trials; results do not depend on it


@dataclass(frozen=True)
class CalibratedModel:
    """A calibration trial's outcome for one model: the table and its file, or why there is none.

    ``impossible``: there can be none, since the model has no INT8 form.
    """

    path: str | None
    table: CalibrationTable | None
    reason: str | None = None
    impossible: bool = False


@dataclass(frozen=True)
class Planned:
    """One trial; ``refused`` (a status and its reason) means it is recorded without being run.

    ``error`` is the class of ``inferometer.errors`` that a command about this trial alone would end with.
    """

    spec: TrialSpec
    refused: tuple[Literal["unsupported", "failed", "skipped"], str] | None = None
    error: str | None = None

    @property
    def series(self) -> tuple[str, ...]:
        """Speed trials of one series differ in batch, kind and input alone: they may share a process."""
        trial = self.spec.trial
        kind = "speed" if trial.kind in SPEED_KINDS else trial.kind
        setup = (trial.model, trial.engine, trial.device, trial.precision, str(self.spec.options))
        return (kind, *setup, str(trial.ranks), str(trial.place), str(trial.repeat))


def plan_calibrations(resolved: Resolved) -> list[Planned]:
    """One calibration for each float model that some engine runs at ``int8`` from QDQ."""
    wanting = [entry for entry in resolved.engines if _wants_table(entry)]
    runner = next(
        (entry for entry in resolved.engines if entry.engine.computes and _refusal(entry, "fp32") is None),
        None,
    )
    if not wanting or runner is None:
        return []
    return [
        _calibration(resolved, model, runner)
        for model in resolved.models
        if "int8" in model.precisions and not model.quantized
    ]


def plan_trials(resolved: Resolved, tables: Mapping[str, CalibratedModel]) -> list[Planned]:
    """Speed and accuracy trials; ``tables`` are the calibrations by model label."""
    study = resolved.study
    planned: list[Planned] = []
    for repeat in range(study.repeats):
        rounds = _speed_series(resolved, tables, repeat)
        random.Random(f"{study.seed}/{repeat}").shuffle(rounds)
        planned += [trial for series in rounds for trial in series]
    exclude = _calibrated_on(resolved, tables)
    for model in resolved.models:
        if model.accuracy is not None:
            for entry in resolved.engines:
                if not entry.engine.computes:
                    continue
                planned += [
                    _accuracy(resolved, model, entry, precision, tables.get(model.label), exclude)
                    for precision in model.precisions
                ]
    return planned


def _speed_series(
    resolved: Resolved, tables: Mapping[str, CalibratedModel], repeat: int
) -> list[list[Planned]]:
    study = resolved.study
    series: list[list[Planned]] = []
    for model in resolved.models:
        for entry in resolved.engines:
            for precision in model.precisions:
                series += [
                    [
                        _speed(resolved, model, entry, precision, tables, point, repeat, crew)
                        for point in _points(study, model)
                        if point.kind != "loadgen" or crew in _FIRST_ALONE
                    ]
                    for crew in _crews(study)
                ]
    return series


def _crews(study: Study) -> list[Crew]:
    """Who works: in a study of several ranks each device alone, as all together are held against that."""
    most = max(study.ranks)
    if most == 1:
        return [_SINGLE]
    return [*((1, place) for place in range(most)), *((ranks, None) for ranks in study.ranks if ranks > 1)]


@dataclass(frozen=True)
class _Point:
    kind: Kind
    batch: int
    input: Literal["synthetic", "images"] = "synthetic"


def _points(study: Study, model: ResolvedModel) -> list[_Point]:
    """The points of a series; what runs one call at a time has but one batch, and synthetic input."""
    single, batches = model.fixed_batch or 1, sorted(study.batches)
    points: list[_Point] = []
    if "latency" in model.kinds:
        points.append(_Point("latency", single))
    if "throughput" in model.kinds:
        points += [
            _Point("throughput", batch, word)
            for word in sorted(study.input, reverse=True)  # synthetic first
            for batch in batches
        ]
    if "loadgen" in model.kinds:
        offline = study.loadgen is not None and study.loadgen.scenario == "offline"
        points += [_Point("loadgen", batch) for batch in (batches if offline else [single])]
    return points


def _speed(
    resolved: Resolved,
    model: ResolvedModel,
    entry: ResolvedEngine,
    precision: Precision,
    tables: Mapping[str, CalibratedModel],
    point: _Point,
    repeat: int,
    crew: Crew,
) -> Planned:
    calibrated = tables.get(model.label)
    feed = _feed(resolved, model) if point.input == "images" else None
    spec = _spec(resolved, model, entry, point.kind, precision, point.batch, repeat, crew, feed=feed)
    short = _too_few(resolved.study, entry, crew)
    planned = Planned(spec, ("unsupported", short)) if short else _with_table(spec, model, entry, calibrated)
    if feed is not None and planned.refused is None and (why := _not_fed(model)):
        return Planned(planned.spec, ("unsupported", why), "ModelError")
    if model.fixed_batch not in (None, point.batch) and planned.refused is None:
        why = f": {model.fixed_why}" if model.fixed_why else ""
        return Planned(
            planned.spec, ("unsupported", f"the model's batch is fixed at {model.fixed_batch}{why}")
        )
    return planned


def _feed(resolved: Resolved, model: ResolvedModel) -> FeedTask:
    """The images that a model's throughput trials are fed with."""
    section = fed_from(resolved.study, model)
    images = resolved.sets[section.data, section.labels]
    workers = resolved.study.images.workers if resolved.study.images else None
    return FeedTask(
        data=section.data, labels=section.labels, listing_sha256=images.listing_sha256, workers=workers
    )


def _not_fed(model: ResolvedModel) -> str | None:
    """Why a model cannot be fed with images."""
    if not model.takes_images:
        return "the model takes no images to be fed with"
    return None if model.preprocess else "no preprocessing is given, so no image can be fed to the model"


def _too_few(study: Study, entry: ResolvedEngine, crew: Crew) -> str | None:
    """Why there are no devices for a crew; with a template other hosts may have them."""
    ranks, place = crew
    wanted = ranks if place is None else place + 1
    if entry.absent is not None or study.launch.template is not None or max(study.ranks) == 1:
        return None
    if wanted <= len(entry.places):
        return None
    names = ", ".join(one.device for one in entry.places)
    return f"{entry.name}: {wanted} ranks want as many devices, and there is {names} alone"


def _accuracy(
    resolved: Resolved,
    model: ResolvedModel,
    entry: ResolvedEngine,
    precision: Precision,
    calibrated: CalibratedModel | None,
    exclude: tuple[str, ...],
) -> Planned:
    section = model.accuracy
    assert section is not None
    task = AccuracyTask(
        data=section.data,
        labels=section.labels,
        listing_sha256=resolved.sets[section.data, section.labels].listing_sha256,
        images=section.images,
        exclude=exclude,
    )
    batch = model.fixed_batch or FORWARD_BATCH
    crew = _SINGLE if max(resolved.study.ranks) == 1 else (max(resolved.study.ranks), None)
    if _too_few(resolved.study, entry, crew):  # the figures are the same
        crew = _FIRST
    spec = _spec(resolved, model, entry, "accuracy", precision, batch, 0, crew, accuracy=task)
    if model.not_scored is not None or not model.takes_images:
        why = model.not_scored or "the model takes no images: its accuracy is not told"
        return Planned(spec, ("unsupported", why), "ModelError")
    if model.seeded:
        return Planned(
            spec,
            (
                "skipped",
                "the weights of this network are random: its accuracy means nothing (give --weights FILE)",
            ),
        )
    return _with_table(spec, model, entry, calibrated)


def _calibration(resolved: Resolved, model: ResolvedModel, runner: ResolvedEngine) -> Planned:
    section = model.calibration
    images: ImageSet | None = resolved.sets[section.data, section.labels] if section else None
    defaults = CalibrationSection(data="-")
    task = CalibrationTask(
        data=section.data if section else None,
        labels=section.labels if section else None,
        listing_sha256=images.listing_sha256 if images else None,
        images=(section or defaults).images,
        method=(section or defaults).method,
        percentile=method_named((section or defaults).method, (section or defaults).percentile).percentile,
        split=(section or defaults).split,
        split_sha256=_content_of((section or defaults).split),
        memory_bytes=(section or defaults).memory_bytes,
    )
    # An open batch is chosen by the trial: as large as the memory allows.
    crew = _SINGLE if max(resolved.study.ranks) == 1 else _FIRST
    spec = _spec(resolved, model, runner, "calibration", "fp32", model.fixed_batch, 0, crew, calibration=task)
    if section is not None and not model.takes_images:
        return Planned(spec, ("unsupported", "the model takes no images to calibrate on"), "ModelError")
    return Planned(spec)


def _with_table(
    spec: TrialSpec, model: ResolvedModel, entry: ResolvedEngine, calibrated: CalibratedModel | None
) -> Planned:
    """Give an INT8 trial its table, or the reason why it cannot run."""
    precision = spec.trial.precision
    reason = _refusal(entry, precision)
    if reason is not None:
        cannot = f"{entry.name} on {entry.one_device} cannot run {precision}: {reason}"
        return Planned(spec, ("unsupported", entry.absent or cannot))
    if model.quantized and precision != "int8":
        return Planned(
            spec, ("unsupported", f"the model file is already quantized: it has no {precision} form")
        )
    if precision != "int8" or model.quantized or not _wants_table(entry):
        return Planned(spec)
    if calibrated is not None and calibrated.impossible:
        return Planned(spec, ("unsupported", f"{model.label} has no INT8 form: {calibrated.reason}"))
    if calibrated is None or calibrated.table is None:
        why = calibrated.reason if calibrated else "no engine of the study runs fp32"
        return Planned(spec, ("failed", f"no calibration of {model.label}: {why}"))
    update = {"table": calibrated.path, "table_sha256": calibrated.table.content_sha256()}
    changed = spec.model_copy(update=update)
    return Planned(changed.model_copy(update={"id": identity_of(changed)}))


def _spec(
    resolved: Resolved,
    model: ResolvedModel,
    entry: ResolvedEngine,
    kind: Kind,
    precision: Precision,
    batch: int | None,
    repeat: int,
    crew: Crew,
    *,
    calibration: CalibrationTask | None = None,
    accuracy: AccuracyTask | None = None,
    feed: FeedTask | None = None,
) -> TrialSpec:
    study = resolved.study
    spec = TrialSpec(
        id="",
        trial=Trial(
            kind=kind,
            study=study.name,
            model=model.label,
            engine=entry.name,
            device=entry.device,
            precision=precision,
            batch=batch,
            ranks=crew[0],
            place=crew[1],
            copies="included" if entry.device == "cpu" else study.copies,
            input="images" if feed or accuracy or (calibration and calibration.data) else "synthetic",
            repeat=repeat,
        ),
        folder=str(resolved.folder),
        model_path=str(model.path),
        model=model.info,
        quantized=model.quantized,
        preprocess=model.preprocess,
        engine_version=entry.version,
        options=dict(entry.options),
        output=model.output,
        inputs=dict(model.inputs),
        label_offset=model.label_offset,
        seed=study.seed,
        measure=study.measure,
        limits=study.limits,
        isolation=study.isolation,
        calibration=calibration,
        accuracy=accuracy,
        loadgen=study.loadgen if kind == "loadgen" else None,
        feed=feed,
        power=_power(study, kind),
        device_uuid=entry.uuid,
        places=entry.places,
        cores_per_rank=None if kind == "calibration" else entry.cores_per_rank,
        oversubscribe=study.launch.oversubscribe,
        template=study.launch.template,
        detail=_detail(kind, batch, repeat, max(study.batches)),
    )
    return spec.model_copy(update={"id": identity_of(spec)})


def _power(study: Study, kind: Kind) -> PowerTask | None:
    """Power is measured in throughput trials; the meters that are found may lengthen their windows."""
    section = study.power
    if section is None or kind != "throughput":
        return None
    return PowerTask(section=section, min_s=section.min_s, idle_loaded_s=section.idle_loaded_s)


def _detail(
    kind: Kind, batch: int | None, repeat: int, largest: int
) -> Literal["none", "executed", "profile"]:
    """What ran is read back once per point; layers are timed at the largest batch alone."""
    if kind != "throughput" or repeat > 0:
        return "none"
    return "profile" if batch == largest else "executed"


def _content_of(split: str) -> str | None:
    """Hash of a file that names the calibration images; None for a rule."""
    if split in SPLIT_RULES:
        return None
    try:
        return hashlib.sha256(Path(split).read_bytes()).hexdigest()
    except OSError:
        return None  # the trial says what is wrong with it


def _refusal(entry: ResolvedEngine, precision: Precision) -> str | None:
    if entry.absent is not None:
        return entry.absent
    return entry.engine.precisions(entry.one_device, entry.options)[precision]


def _wants_table(entry: ResolvedEngine) -> bool:
    supported = _refusal(entry, "int8") is None
    return supported and entry.engine.qdq_scheme(entry.one_device, entry.options) is not None


def _calibrated_on(resolved: Resolved, tables: Mapping[str, CalibratedModel]) -> tuple[str, ...]:
    """Hashes of all images that served any calibration of the study: no model is scored on them."""
    hashes = {digest for model in resolved.models for digest in model.calibrated_on}
    for calibrated in tables.values():
        if calibrated.table is not None:
            hashes.update(calibrated.table.image_hashes)
    return tuple(sorted(hashes))

"""Calibration trials: activation ranges of a float model, chosen on the study's first fp32 engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread

import numpy as np
from onnx import ModelProto

from inferometer import registry
from inferometer.contracts import Engine, Session, TensorInfo
from inferometer.data.imageset import check_unchanged, open_set, split_entries
from inferometer.data.loader import Batch, ImageLoader, SkippedImage
from inferometer.data.pixels import decoder_name
from inferometer.data.synthetic import synthetic_feeds
from inferometer.environment.cgroup import usable_cores
from inferometer.environment.process import release_memory
from inferometer.models.files import load as load_model
from inferometer.models.files import save
from inferometer.quantize.calibrate import Batches, CalibrationBatch, StageTimes, calibrate
from inferometer.quantize.graph import expose, observed_tensors, prepare
from inferometer.quantize.histogram import is_compiled
from inferometer.records import CalibrationInfo, Outcome
from inferometer.store import write_sidecar
from inferometer.trials.forward import ForwardPlan, plan_forward
from inferometer.trials.images import image_input_of, padded
from inferometer.trials.memory import PeakMemory
from inferometer.trials.spec import TrialSpec

__all__ = ["SYNTHETIC_IMAGES", "run_calibration"]

# Seeded inputs that stand in when no images are given: ranges for speed, not for accuracy.
SYNTHETIC_IMAGES = 8

Progress = Callable[[int, int], None]


# Of the memory budget: what may hold decoded images from the first pass to the second; the rest is for
# activations.
_PIXELS_SHARE = 0.25


def run_calibration(spec: TrialSpec, progress: Progress) -> Outcome:
    """Choose ranges for every tensor that gets quantized; the table is a sidecar."""
    task = spec.calibration
    assert task is not None, "planning gives every calibration trial a task"
    peak = PeakMemory()
    Thread(target=is_compiled, name="inferometer-compiled", daemon=True).start()  # takes as long as the model
    model = prepare(load_model(Path(spec.model_path)))
    tensors = observed_tensors(model)
    engine = registry.engine(spec.trial.engine)
    plan = _plan(spec, model, tensors)
    times = StageTimes()
    with tempfile.TemporaryDirectory(prefix="inferometer-", dir=Path(spec.folder) / "work") as folder:
        exposed = Path(folder) / "exposed.onnx"
        save(expose(model, tensors), exposed)
        del model
        release_memory()
        with _opened(engine, exposed, spec, plan) as session:
            source = _batches(spec, session, plan.batch)
            table = calibrate(
                session,
                source.read,
                tensors,
                method=task.method,
                percentile=task.percentile,
                model_sha256=spec.model.sha256,
                source="images" if task.data else "synthetic",
                on_progress=lambda done: progress(done, 2 * source.images),
                times=times,
                seed=spec.seed,
                versions={engine.name: engine.version},
            )
            on_device = session.device_peak_bytes()
    table = table.model_copy(update={"warnings": (*table.warnings, *source.warnings())})
    memory, absent = peak.taken(spec.trial.device, on_device)
    sidecar = write_sidecar(Path(spec.folder), f"{spec.id}.table.json", table.to_bytes())
    return Outcome(
        status="ok",
        calibration=CalibrationInfo(
            table_sha256=table.content_sha256(),
            source=table.source,
            method=table.method,
            images=table.images,
            forward_batch=plan.batch,
            threads=times.threads,
            stages_s={**times.seconds, "wall": times.wall_s},
            decoder=decoder_name() if task.data else None,
        ),
        sidecars=(sidecar,),
        memory=memory,
        missing=source.missing | absent,
    )


def _plan(spec: TrialSpec, model: ModelProto, tensors: tuple[str, ...]) -> ForwardPlan:
    task, fixed = spec.calibration, spec.trial.batch
    assert task is not None
    budget = int(task.memory_bytes * (1 - _PIXELS_SHARE))
    plan = plan_forward(model, tensors, budget, spec.options.get("threads") or usable_cores())
    return plan if fixed is None else ForwardPlan(fixed, plan.in_flight)


def _opened(engine: Engine, exposed: Path, spec: TrialSpec, plan: ForwardPlan) -> Session:
    options = {**spec.options, "in_flight": plan.in_flight}
    return engine.load(exposed, spec.trial.device, "fp32", plan.batch, options)


@dataclass(frozen=True)
class _Source:
    """Images that can be read twice.

    Attributes:
        read: Gives their batches.
        images: How many one reading gives at most.
        missing: What cannot be said of the outcome, and why.
        skipped: The images that the latest reading could not use.
    """

    read: Batches
    images: int
    missing: dict[str, str]
    skipped: Callable[[], tuple[SkippedImage, ...]]

    def warnings(self) -> tuple[str, ...]:
        """What a user should know of the images."""
        bad = self.skipped()
        if not bad:
            return ()
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        named = "; ".join(f"{one.file}: {one.reason}" for one in bad[:3])
        return (f"{len(bad)} of {self.images} images could not be used: {named}{more}",)


def _batches(spec: TrialSpec, session: Session, batch: int) -> _Source:
    task = spec.calibration
    assert task is not None
    if task.data is None:
        return _synthetic(spec, session, batch)
    images = open_set(task.data, task.labels, labelled=False)
    check_unchanged(images, task.listing_sha256)
    entries = split_entries(images, task.images, task.split, spec.seed).calibration
    taken = image_input_of(session.inputs, spec.preprocess, spec.inputs, spec.trial.model)
    loader = ImageLoader(
        images.source,
        entries,
        taken.preprocessing,
        batch,
        keep_bytes=int(task.memory_bytes * _PIXELS_SHARE),
    )

    def made(decode: Callable[[], Batch | None]) -> CalibrationBatch | None:
        loaded = decode()
        if loaded is None:
            return None
        return CalibrationBatch(
            feeds=taken.feeds(padded(loaded.images, batch)),
            count=len(loaded.labels),
            hashes=loaded.hashes,
        )

    def read() -> Iterator[Callable[[], CalibrationBatch | None]]:
        for decode in loader.deferred():
            yield partial(made, decode)

    return _Source(read, len(entries), {}, lambda: loader.skipped)


def _synthetic(spec: TrialSpec, session: Session, batch: int) -> _Source:
    """Seeded inputs, each image by itself, so that the forward batch does not change them."""
    rounds = -(-SYNTHETIC_IMAGES // batch)

    def read() -> Iterator[CalibrationBatch]:
        for number in range(rounds):
            images = [
                synthetic_feeds(
                    _single(session, batch),
                    int(np.uint32(spec.seed + number * batch + row)),
                    ranges=spec.ranges,
                )
                for row in range(batch)
            ]
            feeds = {
                tensor.name: np.concatenate([image[tensor.name] for image in images])[: tensor.shape[0]]
                for tensor in session.inputs
            }
            yield CalibrationBatch(
                feeds=feeds, count=min(batch, SYNTHETIC_IMAGES - number * batch), hashes=()
            )

    why = {"accuracy": "ranges chosen on synthetic input say nothing of accuracy"}
    return _Source(read, SYNTHETIC_IMAGES, why, tuple)


def _single(session: Session, batch: int) -> tuple[TensorInfo, ...]:
    """The session's inputs for one image."""
    return tuple(
        replace(tensor, shape=(1, *tensor.shape[1:])) if tensor.shape[:1] == (batch,) else tensor
        for tensor in session.inputs
    )

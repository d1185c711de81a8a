"""Calibration trials: activation ranges of a float model, chosen on the study's first fp32 engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from inferometer import registry
from inferometer.contracts import Session
from inferometer.data.imageset import open_set, split_entries
from inferometer.data.loader import ImageLoader
from inferometer.data.synthetic import synthetic_feeds
from inferometer.environment.cgroup import usable_cores
from inferometer.models.files import load as load_model
from inferometer.models.files import save
from inferometer.quantize.calibrate import CalibrationBatch, calibrate
from inferometer.quantize.graph import expose, observed_tensors, prepare
from inferometer.records import CalibrationInfo, Outcome
from inferometer.store import write_sidecar
from inferometer.trials.accuracy import image_feeds, padded, preprocessing_for
from inferometer.trials.memory import PeakMemory
from inferometer.trials.spec import TrialSpec

__all__ = ["SYNTHETIC_IMAGES", "run_calibration"]

# Seeded inputs that stand in when no images are given: ranges for speed, not for accuracy.
SYNTHETIC_IMAGES = 8

Progress = Callable[[int, int], None]


def run_calibration(spec: TrialSpec, progress: Progress) -> Outcome:
    """Choose ranges for every tensor that gets quantized; the table is a sidecar."""
    task, batch = spec.calibration, spec.trial.batch
    assert task is not None, "planning gives every calibration trial a task"
    assert batch is not None, "planning gives every calibration trial a batch"
    peak = PeakMemory()
    model = prepare(load_model(Path(spec.model_path)))
    tensors = observed_tensors(model)
    engine = registry.engine(spec.trial.engine)
    with tempfile.TemporaryDirectory(prefix="inferometer-", dir=Path(spec.folder) / "work") as folder:
        exposed = Path(folder) / "exposed.onnx"
        save(expose(model, tensors), exposed)
        with engine.load(exposed, spec.trial.device, "fp32", batch, spec.options) as session:
            batches, images, missing = _batches(spec, session, batch)
            table = calibrate(
                session,
                batches,
                tensors,
                method=task.method,
                model_sha256=spec.model.sha256,
                source="images" if task.data else "synthetic",
                on_progress=lambda done: progress(done, 2 * images),
            )
    memory, absent = peak.taken()
    sidecar = write_sidecar(Path(spec.folder), f"{spec.id}.table.json", table.to_bytes())
    return Outcome(
        status="ok",
        calibration=CalibrationInfo(
            table_sha256=table.content_sha256(),
            source=table.source,
            method=table.method,
            images=table.images,
        ),
        sidecars=(sidecar,),
        memory=memory,
        missing=missing | absent,
    )


def _batches(
    spec: TrialSpec, session: Session, batch: int
) -> tuple[Callable[[], Iterator[CalibrationBatch]], int, dict[str, str]]:
    """A source that can be read twice, and how many images one reading gives."""
    task = spec.calibration
    assert task is not None
    if task.data is None:
        return _synthetic(spec, session, batch)
    images = open_set(task.data)
    entries = split_entries(images, task.images, task.split, spec.seed).calibration
    loader = ImageLoader(
        images.root, entries, preprocessing_for(spec, session), batch, workers=usable_cores()
    )

    def read() -> Iterator[CalibrationBatch]:
        for loaded in loader:
            yield CalibrationBatch(
                feeds=image_feeds(session, padded(loaded.images, batch)),
                count=len(loaded.labels),
                hashes=loaded.hashes,
            )

    return read, len(entries), {}


def _synthetic(
    spec: TrialSpec, session: Session, batch: int
) -> tuple[Callable[[], Iterator[CalibrationBatch]], int, dict[str, str]]:
    rounds = -(-SYNTHETIC_IMAGES // batch)

    def read() -> Iterator[CalibrationBatch]:
        for number in range(rounds):
            feeds = synthetic_feeds(session.inputs, int(np.uint32(spec.seed + number)))
            yield CalibrationBatch(feeds=feeds, count=batch, hashes=())

    return read, rounds * batch, {"accuracy": "ranges chosen on synthetic input say nothing of accuracy"}

"""Accuracy trials: labelled images through the session whose speed is reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.accuracy import score
from inferometer.data.imageset import check_unchanged, open_set, ordered
from inferometer.data.loader import Batch, ImageLoader
from inferometer.data.pixels import decoder_name
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import DataError
from inferometer.records import Accuracy, Outcome, Sidecar
from inferometer.store import arrays, write_sidecar
from inferometer.trials.images import image_input_of, padded
from inferometer.trials.scoring import Scorer, scorer_of
from inferometer.trials.session import open_session
from inferometer.trials.spec import TrialSpec

__all__ = ["run_accuracy"]

Progress = Callable[[int, int], None]


def run_accuracy(spec: TrialSpec, progress: Progress) -> Outcome:
    """Score the task's images; ``progress`` is told (images done, images in all)."""
    task, batch = spec.accuracy, spec.trial.batch
    assert task is not None, "planning gives every accuracy trial a task"
    assert batch is not None, "planning gives every accuracy trial a batch"
    images = open_set(task.data, task.labels)
    check_unchanged(images, task.listing_sha256)
    opened = open_session(spec, batch)
    excluded = frozenset(task.exclude)
    kept = _Kept()
    with opened.session as session:
        scorer = scorer_of(session, spec.output, spec.label_offset or 0)
        taken = image_input_of(session.inputs, spec.preprocess, spec.inputs, spec.trial.model)
        loader = ImageLoader(
            images.source,
            ordered(images, spec.seed),
            taken.preprocessing,
            batch,
            workers=usable_cores(),
        )
        seen = 0
        for loaded in loader:
            seen += len(loaded.labels)
            progress(seen, len(images.entries))
            wanted = np.array([digest not in excluded for digest in loaded.hashes])
            kept.excluded += int((~wanted).sum())
            if task.images is not None:
                wanted &= np.cumsum(wanted) <= task.images - kept.count
            if not wanted.any():
                continue
            outputs = session.infer(taken.feeds(padded(loaded.images, batch)))
            kept.add(loaded, wanted, outputs[scorer.output.name][: len(loaded.labels)], scorer)
            if task.images is not None and kept.count >= task.images:
                break
        on_device = session.device_peak_bytes()
    if kept.count == 0:
        raise DataError(
            f"{task.data}: all {kept.excluded} images served the calibration: none is left to score"
        )
    memory, missing = opened.peak.taken(spec.trial.device, on_device)
    return Outcome(
        status="ok",
        memory=memory,
        missing=missing,
        load_s=opened.load_s,
        calibration=opened.calibration,
        accuracy=_accuracy(kept, loader),
        sidecars=(_per_image(spec, kept),),
    )


class _Kept:
    """Outcome of the images scored so far."""

    def __init__(self) -> None:
        self.hashes: list[str] = []
        self.labels: list[npt.NDArray[np.int64]] = []
        self.top: list[npt.NDArray[np.int64]] = []
        self.excluded = 0
        self.classes: int | None = None

    @property
    def count(self) -> int:
        return len(self.hashes)

    def add(
        self, loaded: Batch, wanted: npt.NDArray[np.bool_], values: npt.NDArray[Any], scorer: Scorer
    ) -> None:
        files = [name for name, keep in zip(loaded.files, wanted, strict=True) if keep]
        ranked = scorer.rank(values[wanted], loaded.labels[wanted], files)
        self.classes = ranked.classes
        self.hashes += [digest for digest, keep in zip(loaded.hashes, wanted, strict=True) if keep]
        self.labels.append(ranked.labels)
        self.top.append(ranked.top)


def _accuracy(kept: _Kept, loader: ImageLoader) -> Accuracy:
    top1, top5 = score(np.concatenate(kept.top), np.concatenate(kept.labels))
    return Accuracy(
        images=kept.count,
        top1=top1,
        top5=top5 if (kept.classes or 0) > 5 else None,
        classes=kept.classes,
        excluded=kept.excluded,
        skipped=len(loader.skipped),
        skipped_files=tuple(f"{item.file}: {item.reason}" for item in loader.skipped),
        decoder=decoder_name(),
    )


def _per_image(spec: TrialSpec, kept: _Kept) -> Sidecar:
    content = arrays(
        hashes=np.frombuffer(bytes.fromhex("".join(kept.hashes)), np.uint8).reshape(-1, 32),
        labels=np.concatenate(kept.labels).astype(np.int32),
        top=np.concatenate(kept.top).astype(np.int32),
    )
    return write_sidecar(Path(spec.folder), f"{spec.id}.top5.npz", content)

"""Accuracy trials: labelled images through the session whose speed is reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.accuracy import score, top_k
from inferometer.contracts import Session, TensorInfo
from inferometer.data.imageset import open_set, ordered
from inferometer.data.loader import Batch, ImageLoader
from inferometer.data.preprocess import Preprocessing
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import DataError
from inferometer.records import Accuracy, Outcome, Sidecar
from inferometer.store import arrays, write_sidecar
from inferometer.trials.memory import PeakMemory
from inferometer.trials.session import open_session
from inferometer.trials.spec import TrialSpec

__all__ = ["classifier_output", "image_feeds", "padded", "preprocessing_for", "run_accuracy"]

Progress = Callable[[int, int], None]


def run_accuracy(spec: TrialSpec, progress: Progress) -> Outcome:
    """Score the task's images; ``progress`` is told (images done, images in all)."""
    task, batch = spec.accuracy, spec.trial.batch
    assert task is not None, "planning gives every accuracy trial a task"
    assert batch is not None, "planning gives every accuracy trial a batch"
    images = open_set(task.data)
    peak = PeakMemory()
    opened = open_session(spec, batch)
    excluded = frozenset(task.exclude)
    kept = _Kept()
    with opened.session as session:
        output = classifier_output(session, spec.output)
        loader = ImageLoader(
            images.source,
            ordered(images, spec.seed),
            preprocessing_for(spec, session),
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
            logits = session.infer(image_feeds(session.inputs[0], padded(loaded.images, batch)))[output]
            kept.add(loaded, wanted, logits[: len(loaded.labels)])
            if task.images is not None and kept.count >= task.images:
                break
    if kept.count == 0:
        raise DataError(
            f"{task.data}: all {kept.excluded} images served the calibration: none is left to score"
        )
    memory, missing = peak.taken()
    return Outcome(
        status="ok",
        memory=memory,
        missing=missing,
        load_s=opened.load_s,
        calibration=opened.calibration,
        accuracy=_accuracy(kept, loader),
        sidecars=(_per_image(spec, kept),),
    )


def classifier_output(session: Session, wanted: str | None) -> str:
    """The name of the ``[N, classes]`` output to score.

    Raises:
        DataError: The model has no such output, or several and none was named.
    """
    names = [tensor.name for tensor in session.outputs]
    if wanted is not None:
        if wanted not in names:
            raise DataError(f"there is no output {wanted!r}; the model has {', '.join(names)}")
        return wanted
    if len(names) == 1:
        return names[0]
    flat = [tensor.name for tensor in session.outputs if len(tensor.shape) == 2]
    if len(flat) == 1:
        return flat[0]
    raise DataError(f"which output are the class scores? The model has {', '.join(names)}")


def preprocessing_for(spec: TrialSpec, session: Session) -> Preprocessing:
    """The trial's preprocessing, its crop set to the model's input where the preset leaves it open."""
    if spec.preprocess is None:
        raise DataError(f"{spec.trial.model}: no preprocessing is given, so no image can be fed to it")
    if len(session.inputs) != 1:
        raise DataError(f"{spec.trial.model}: has {len(session.inputs)} inputs, so it takes no images")
    return spec.preprocess.for_input(session.inputs[0].shape)


def image_feeds(wanted: TensorInfo, images: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[Any]]:
    """Preprocessed images ``[batch, ...] float32`` as a session's one input wants them.

    Raises:
        DataError: The input holds no floating-point numbers.
    """
    if np.dtype(wanted.dtype).kind != "f":
        raise DataError(f"input {wanted.name!r} wants {wanted.dtype}, but preprocessing gives floating point")
    return {wanted.name: images.astype(wanted.dtype, copy=False)}


def padded(images: npt.NDArray[np.float32], batch: int) -> npt.NDArray[np.float32]:
    """``[n, ...]`` grown to ``[batch, ...]`` by repeating the last image; callers drop the extra rows."""
    short = batch - len(images)
    return np.concatenate([images, np.repeat(images[-1:], short, axis=0)]) if short else images


class _Kept:
    """Outcome of the images scored so far."""

    def __init__(self) -> None:
        self.hashes: list[str] = []
        self.labels: list[npt.NDArray[np.int64]] = []
        self.top: list[npt.NDArray[np.int64]] = []
        self.excluded = 0
        self.classes = 0

    @property
    def count(self) -> int:
        return len(self.hashes)

    def add(self, loaded: Batch, wanted: npt.NDArray[np.bool_], logits: npt.NDArray[np.float32]) -> None:
        scores = logits.reshape(len(logits), -1)
        self.classes = scores.shape[1]
        labels = loaded.labels[wanted]
        if labels.max() >= self.classes:
            place = int(np.flatnonzero(wanted)[labels.argmax()])
            raise DataError(
                f"{loaded.files[place]}: has the label {labels.max()}, outside the model's classes "
                f"(0..{self.classes - 1})"
            )
        self.hashes += [digest for digest, keep in zip(loaded.hashes, wanted, strict=True) if keep]
        self.labels.append(labels)
        self.top.append(top_k(scores[wanted], min(5, self.classes)))


def _accuracy(kept: _Kept, loader: ImageLoader) -> Accuracy:
    top1, top5 = score(np.concatenate(kept.top), np.concatenate(kept.labels))
    return Accuracy(
        images=kept.count,
        top1=top1,
        top5=top5 if kept.classes > 5 else None,
        classes=kept.classes,
        excluded=kept.excluded,
        skipped=len(loader.skipped),
        skipped_files=tuple(f"{item.file}: {item.reason}" for item in loader.skipped),
    )


def _per_image(spec: TrialSpec, kept: _Kept) -> Sidecar:
    content = arrays(
        hashes=np.frombuffer(bytes.fromhex("".join(kept.hashes)), np.uint8).reshape(-1, 32),
        labels=np.concatenate(kept.labels).astype(np.int32),
        top=np.concatenate(kept.top).astype(np.int32),
    )
    return write_sidecar(Path(spec.folder), f"{spec.id}.top5.npz", content)

"""Accuracy trials: labelled images through the session whose speed is reported.

Of several ranks each scores its share of the images, every n-th in the set's order; put together in that
order they give what one rank gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.accuracy import score
from inferometer.contracts import Session
from inferometer.data.imageset import ImageEntry, ImageSet, check_unchanged, open_set, ordered
from inferometer.data.loader import Batch, ImageLoader
from inferometer.data.pixels import decoder_name
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import DataError
from inferometer.records import Accuracy, Outcome, Sidecar
from inferometer.store import arrays, write_atomically, write_sidecar
from inferometer.trials.images import image_input_of, padded
from inferometer.trials.scoring import Scorer, scorer_of
from inferometer.trials.session import open_session
from inferometer.trials.spec import AccuracyTask, TrialSpec

__all__ = ["Shard", "joined", "read_shard", "run_accuracy", "shard_path"]

_MAX_BAD = 0.02  # of all images, that cannot be decoded and are skipped

Progress = Callable[[int, int], None]


@dataclass
class Shard:
    """What became of some of the images, by their position in the set's order.

    ``kept`` are those that were scored: ``hashes``, ``labels`` and ``top`` (the best classes, best first) are
    theirs. ``excluded`` served the calibration; ``skipped`` could not be decoded.
    """

    kept: list[int] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    labels: list[npt.NDArray[np.int64]] = field(default_factory=list)
    top: list[npt.NDArray[np.int64]] = field(default_factory=list)
    excluded: list[int] = field(default_factory=list)
    skipped: dict[int, str] = field(default_factory=dict)
    classes: int | None = None

    def add(self, loaded: Batch, positions: Sequence[int], excluded: frozenset[str]) -> list[int]:
        """Note what is left out of a batch; returns the rows that count."""
        out = [digest in excluded for digest in loaded.hashes]
        self.excluded += [place for place, left in zip(positions, out, strict=True) if left]
        return [row for row, left in enumerate(out) if not left]

    def score(
        self, loaded: Batch, positions: Sequence[int], rows: list[int], values: npt.NDArray[Any], by: Scorer
    ) -> None:
        """Take the rows of a batch that count, with the model's outputs for the whole of it."""
        ranked = by.rank(values[rows], loaded.labels[rows], [loaded.files[row] for row in rows])
        self.classes = ranked.classes
        self.kept += [positions[row] for row in rows]
        self.hashes += [loaded.hashes[row] for row in rows]
        self.labels.append(ranked.labels)
        self.top.append(ranked.top)

    def to_bytes(self) -> bytes:
        """As a NumPy archive, for `read_shard`."""
        some = bool(self.kept)
        return arrays(
            kept=np.array(self.kept, np.int64),
            hashes=_packed(self.hashes),
            labels=np.concatenate(self.labels) if some else np.empty(0, np.int64),
            top=np.concatenate(self.top) if some else np.empty((0, 0), np.int64),
            excluded=np.array(self.excluded, np.int64),
            rest=np.array(json.dumps({"skipped": self.skipped, "classes": self.classes})),
        )


def read_shard(content: bytes) -> Shard:
    """One that another process wrote."""
    with np.load(BytesIO(content), allow_pickle=False) as data:
        rest = json.loads(str(data["rest"]))
        kept = data["kept"].tolist()
        return Shard(
            kept=kept,
            hashes=[row.tobytes().hex() for row in data["hashes"]],
            labels=[data["labels"]] if kept else [],
            top=[data["top"]] if kept else [],
            excluded=data["excluded"].tolist(),
            skipped={int(key): value for key, value in rest["skipped"].items()},
            classes=rest["classes"],
        )


def shard_path(spec: TrialSpec, rank: int) -> Path:
    """Where a rank leaves its shard for the parent."""
    return Path(spec.folder) / "work" / f"{spec.id}.rank{rank}.shard.npz"


def run_accuracy(spec: TrialSpec, progress: Progress, rank: int | None = None) -> Outcome:
    """Score the task's images; ``progress`` is told (images done, images in all).

    With a ``rank`` of several its share alone is scored, and left at `shard_path`.
    """
    task, batch = spec.accuracy, spec.trial.batch
    assert task is not None, "planning gives every accuracy trial a task"
    assert batch is not None, "planning gives every accuracy trial a batch"
    images = open_set(task.data, task.labels)
    check_unchanged(images, task.listing_sha256)
    order = ordered(images, spec.seed)
    opened = open_session(spec, batch)
    with opened.session as session:
        if rank is None:
            shard = _scored(spec, session, images, dict(enumerate(order)), len(order), progress)
        else:
            shares = spec.trial.ranks
            mine = {place: order[place] for place in range(rank, _enough(task, len(order)), shares)}
            told = progress if rank == 0 else _silent
            shard = _scored(spec, session, images, mine, len(order), told)
        on_device = session.device_peak_bytes()
    memory, missing = opened.peak.taken(spec.trial.device, on_device)
    outcome = Outcome(
        status="ok",
        memory=memory,
        missing=missing,
        load_s=opened.load_s,
        calibration=opened.calibration,
    )
    if rank is not None:
        write_atomically(shard_path(spec, rank), shard.to_bytes())
        return outcome
    accuracy, sidecar = joined(spec, [shard], order)
    return outcome.model_copy(update={"accuracy": accuracy, "sidecars": (sidecar,)})


def joined(
    spec: TrialSpec, shards: Sequence[Shard], order: Sequence[ImageEntry] | None = None
) -> tuple[Accuracy, Sidecar]:
    """All shards as one: the same as if one rank had scored all images.

    Args:
        spec: The trial.
        shards: Of all ranks.
        order: The set's, for the names of what was skipped; None: it is opened again.

    Raises:
        DataError: No image is left, or too many could not be decoded.
    """
    task = spec.accuracy
    assert task is not None, "planning gives every accuracy trial a task"
    if order is None:
        order = ordered(open_set(task.data, task.labels), spec.seed)
    kept = np.array([place for shard in shards for place in shard.kept], np.int64)
    rows = np.argsort(kept, kind="stable")[: task.images]
    limited = task.images is not None and len(rows) == task.images
    end = int(kept[rows[-1]]) + 1 if limited else len(order)  # what comes behind was not needed
    excluded = [place for shard in shards for place in shard.excluded if place < end]
    skipped = {place: why for shard in shards for place, why in shard.skipped.items() if place < end}
    named = [f"{order[place].file}: {skipped[place]}" for place in sorted(skipped)]
    if len(skipped) > _bad_limit(len(order)):
        raise DataError(f"{task.data}: {len(skipped)} images cannot be used, such as {named[0]}")
    if not len(rows):
        raise DataError(
            f"{task.data}: all {len(excluded)} images served the calibration: none is left to score"
        )
    hashes = [digest for shard in shards for digest in shard.hashes]
    labels = np.concatenate([part for shard in shards for part in shard.labels])[rows]
    top = np.concatenate([part for shard in shards for part in shard.top])[rows]
    classes = next((shard.classes for shard in shards if shard.kept), None)
    top1, top5 = score(top, labels)
    accuracy = Accuracy(
        images=len(rows),
        top1=top1,
        top5=top5 if (classes or 0) > 5 else None,
        classes=classes,
        excluded=len(excluded),
        skipped=len(skipped),
        skipped_files=tuple(named),
        decoder=decoder_name(),
    )
    content = arrays(
        hashes=_packed([hashes[row] for row in rows]),
        labels=labels.astype(np.int32),
        top=top.astype(np.int32),
    )
    return accuracy, write_sidecar(Path(spec.folder), f"{spec.id}.top5.npz", content)


def _scored(
    spec: TrialSpec,
    session: Session,
    images: ImageSet,
    entries: Mapping[int, ImageEntry],
    in_all: int,
    progress: Progress,
) -> Shard:
    """Run images, by their position in the order, until there are as many as the task wants."""
    task, batch = spec.accuracy, spec.trial.batch
    assert task is not None
    assert batch is not None
    shard = Shard()
    if not entries:
        return shard
    scorer = scorer_of(session, spec.output, spec.label_offset or 0)
    taken = image_input_of(session.inputs, spec.preprocess, spec.inputs, spec.trial.model)
    loader = ImageLoader(
        images.source,
        tuple(entries.values()),
        taken.preprocessing,
        batch,
        workers=usable_cores(),
        max_bad=_bad_limit(in_all),
    )
    places, excluded = {entry.file: place for place, entry in entries.items()}, frozenset(task.exclude)
    for loaded in loader:
        positions = [places[file] for file in loaded.files]
        progress(positions[-1] + 1, in_all)
        rows = shard.add(loaded, positions, excluded)
        if task.images is not None:
            rows = rows[: task.images - len(shard.kept)]
        if rows:
            outputs = session.infer(taken.feeds(padded(loaded.images, batch)))
            values = outputs[scorer.output.name][: len(loaded.labels)]
            shard.score(loaded, positions, rows, values, scorer)
        if task.images is not None and len(shard.kept) >= task.images:
            break
    shard.skipped = {places[one.file]: one.reason for one in loader.skipped}
    return shard


def _enough(task: AccuracyTask, images: int) -> int:
    """So many positions of the order hold all that can be wanted, whatever is excluded or broken."""
    if task.images is None:
        return images
    return min(images, task.images + len(task.exclude) + _bad_limit(images))


def _bad_limit(images: int) -> int:
    return max(1, int(_MAX_BAD * images))


def _silent(done: int, of: int) -> None:
    """The first rank tells of progress."""


def _packed(hashes: Sequence[str]) -> npt.NDArray[np.uint8]:
    """``[n, 32] uint8`` of hexadecimal SHA-256."""
    return np.frombuffer(bytes.fromhex("".join(hashes)), np.uint8).reshape(-1, 32)

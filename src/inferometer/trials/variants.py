"""Running variants of one model that are held in memory, on the same images: for questions that take many.

Images are decoded once, as far as the memory goes. Every slot of a session is driven by a thread of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from inferometer.accuracy import hits
from inferometer.contracts import Engine, Session
from inferometer.data.imageset import ImageEntry, ImageSet
from inferometer.data.loader import Batch, ImageLoader
from inferometer.data.source import ImageSource
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import DataError
from inferometer.models.files import save
from inferometer.quantize.graph import is_quantized
from inferometer.quantize.passes import CalibrationBatch, StageTimes, Values, real_rows, run_pass
from inferometer.records import Precision
from inferometer.trials.images import ImageInput, padded
from inferometer.trials.scoring import Ranked, Scorer

__all__ = ["ModelRunner", "Scores", "VariantImages", "hashes_of", "parted", "score_variant"]


@dataclass(frozen=True)
class ModelRunner:
    """Opens models that are held in memory on one engine.

    Attributes:
        engine: Runs them.
        device: One of its devices.
        options: The engine's own.
        batch: Images per call.
        in_flight: Calls at once.
        folder: For the files that the engine loads; they are gone when it has.
    """

    engine: Engine
    device: str
    options: Mapping[str, Any]
    batch: int
    in_flight: int
    folder: Path

    @contextmanager
    def open(self, model: ModelProto) -> Iterator[Session]:
        """A session of ``model``: at int8 when it is quantized, else at fp32."""
        precision: Precision = "int8" if is_quantized(model) else "fp32"
        path = self.folder / f"variant-{id(model):x}.onnx"
        options = {**self.options, "in_flight": self.in_flight}
        try:
            save(model, path)
            session = self.engine.load(path, self.device, precision, self.batch, options)
        finally:
            path.unlink(missing_ok=True)
        with session:
            yield session


class VariantImages:
    """Labelled images of a set in their order, as batches for any number of passes.

    Attributes:
        labels: By number of the batch, [n] int64, of the latest pass.
    """

    def __init__(
        self,
        source: ImageSource,
        entries: Sequence[ImageEntry],
        taken: ImageInput,
        batch: int,
        keep_bytes: int,
    ) -> None:
        """Nothing is read yet; ``keep_bytes`` of decoded pixels are kept from pass to pass."""
        self._taken = taken
        self._loader = ImageLoader(source, entries, taken.preprocessing, batch, keep_bytes=keep_bytes)
        self._batch = batch
        self.count = len(entries)
        self.labels: dict[int, npt.NDArray[np.int64]] = {}

    def batches(self) -> Iterator[Callable[[], CalibrationBatch | None]]:
        """One pass, for `run_pass`."""
        self.labels = {}
        for number, decode in enumerate(self._loader.deferred()):
            yield partial(self._made, number, decode)

    def _made(self, number: int, decode: Callable[[], Batch | None]) -> CalibrationBatch | None:
        loaded = decode()
        if loaded is None:
            return None
        self.labels[number] = loaded.labels
        feeds = self._taken.feeds(padded(loaded.images, self._batch))
        return CalibrationBatch(feeds=feeds, count=len(loaded.labels), hashes=loaded.hashes)


@dataclass(frozen=True)
class Scores:
    """What one model made of the images, in the order of the set.

    Attributes:
        labels: [N] int64.
        top: [N, up to 5] int64, best first.
    """

    labels: npt.NDArray[np.int64]
    top: npt.NDArray[np.int64]

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """[N] bool: whether the first class is the label."""
        return hits(self.top, self.labels, 1)


def score_variant(
    session: Session,
    images: VariantImages,
    scorer: Scorer,
    on_images: Callable[[int], None] = lambda count: None,
) -> Scores:
    """Score one model.

    Raises:
        DataError: A label outside the classes, or no sound image.
        ModelError: The output is no class scores.
    """
    name = scorer.output.name
    kept: dict[int, Ranked] = {}

    def visit(slot: int, batch: CalibrationBatch, number: int, values: Values) -> None:
        rows = real_rows(values[name], name, batch, number)
        kept[number] = scorer.rank(rows, images.labels[number])

    run_pass(session, images.batches, visit, StageTimes(), on_images)
    if not kept:
        raise DataError("no image is left to score")
    order = sorted(kept)
    return Scores(
        labels=np.concatenate([kept[number].labels for number in order]),
        top=np.concatenate([kept[number].top for number in order]),
    )


def hashes_of(images: ImageSet) -> dict[str, str]:
    """SHA-256 of every file of a set, by its name in the set; files that cannot be read are left out."""

    def digest(entry: ImageEntry) -> str | None:
        try:
            return hashlib.sha256(images.source.read(entry.file)).hexdigest()
        except DataError:
            return None  # the loader says what is wrong with it

    with ThreadPoolExecutor(usable_cores(), thread_name_prefix="inferometer-hashes") as pool:
        found = zip(images.entries, pool.map(digest, images.entries), strict=True)
        return {entry.file: value for entry, value in found if value is not None}


def parted(
    entries: Sequence[ImageEntry], hashes: Mapping[str, str], calibrated: Collection[str]
) -> tuple[list[ImageEntry], list[ImageEntry]]:
    """Entries that served a calibration, and the others (also those that cannot be read)."""
    served = [entry for entry in entries if hashes.get(entry.file) in calibrated]
    return served, [entry for entry in entries if hashes.get(entry.file) not in calibrated]

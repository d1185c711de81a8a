"""Feeding one model the same images in many ways, and keeping what it made of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.analysis.diagnosis import Evidence
from inferometer.config import InputEntry
from inferometer.contracts import Session
from inferometer.data.hypotheses import Numbering
from inferometer.data.imageset import ImageEntry
from inferometer.data.pixels import pixels_of
from inferometer.data.preprocess import Preprocessing
from inferometer.data.source import ImageSource
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import DataError
from inferometer.models.roles import ClassOutput, scores_of_rows
from inferometer.trials.images import ImageInput, image_input_of, padded

__all__ = ["Examiner"]

_LEAST = 1e-12  # a probability of 0 has no logarithm


@dataclass(frozen=True)
class _Kept:
    """Pixels [n, H, W, C], in the order RGB or of luma, of images from ``start`` on, resized in one way."""

    geometry: Preprocessing
    start: int
    planes: npt.NDArray[np.uint8]

    @property
    def end(self) -> int:
        return self.start + len(self.planes)


class Examiner:
    """One session, one sample of images, any number of preprocessings.

    Attributes:
        skipped: Images that could not be used, and why.
    """

    def __init__(
        self,
        session: Session,
        output: ClassOutput,
        batch: int,
        source: ImageSource,
        entries: Sequence[ImageEntry],
        inputs: Mapping[str, InputEntry],
        model: str,
    ) -> None:
        """Nothing is read yet; ``batch`` is the session's, ``inputs`` what other inputs hold."""
        self._session, self._output, self._batch = session, output, batch
        self._source, self._entries = source, list(entries)
        self._inputs, self._model = inputs, model
        self._pixels: _Kept | None = None
        self._scores: dict[Preprocessing, npt.NDArray[np.float64]] = {}  # NaN where the model says so
        self.skipped: list[str] = []

    @property
    def images(self) -> int:
        """How many images there are to use."""
        return len(self._entries)

    def settle(self, preprocessing: Preprocessing, images: int) -> None:
        """Read the sample once, and leave out of it what cannot be decoded.

        Args:
            preprocessing: Any that fits.
            images: How many sound ones are wanted.

        Raises:
            DataError: None is sound.
        """
        sound: list[ImageEntry] = []
        pixels: list[npt.NDArray[np.uint8]] = []
        geometry = _geometry_of(preprocessing)
        for start in range(0, len(self._entries), images):
            part = self._entries[start : start + images]
            for entry, found in zip(part, self._decoded(part, geometry), strict=True):
                if isinstance(found, DataError):
                    self.skipped.append(f"{entry.file}: {str(found).removeprefix(f'{entry.file}: ')}")
                else:
                    sound.append(entry)
                    pixels.append(found)
            if len(sound) >= images:
                break
        if not sound:
            raise DataError(f"{self._source.root}: no image can be used: {self.skipped[0]}")
        self._entries = sound[:images]
        self._pixels = _Kept(geometry, 0, np.stack(pixels[:images]))

    def evidence(
        self, preprocessing: Preprocessing, images: int, numbering: Numbering, say: Callable[[int], None]
    ) -> Evidence:
        """What the model makes of the first ``images`` fed by ``preprocessing``.

        Args:
            preprocessing: One way.
            images: How many.
            numbering: What their labels are.
            say: Told of the images done.

        Raises:
            DataError: An image does not fit this way.
        """
        stated = np.array([entry.class_index for entry in self._entries[:images]], np.int64)
        labels = numbering.classes_of(stated)
        scores = self._scored(preprocessing, images, say)
        if self._output.gives_labels:
            first = scores[:, 0].astype(np.int64)
            sound = np.zeros(len(labels), dtype=np.bool_)
            return Evidence(first == labels, np.zeros(len(labels)), first, labels, sound)
        broken: npt.NDArray[np.bool_] = np.asarray(np.isnan(scores).any(axis=1))
        scores = np.where(np.isnan(scores), -np.inf, scores)
        first = scores.argmax(axis=1)
        known = (labels >= 0) & (labels < scores.shape[1])
        likelihood = _log_probabilities(scores)[np.arange(len(labels)), np.where(known, labels, 0)]
        right = (first == labels) & ~broken
        return Evidence(right, np.where(known, likelihood, np.log(_LEAST)), first, labels, broken)

    def _scored(
        self, preprocessing: Preprocessing, images: int, say: Callable[[int], None]
    ) -> npt.NDArray[np.float64]:
        known = [self._scores[preprocessing]] if preprocessing in self._scores else []
        done = sum(map(len, known))
        if done < images:
            planes = self._planes(preprocessing, done, images)
            taken = image_input_of(self._session.inputs, preprocessing, self._inputs, self._model)
            for start in range(0, len(planes), self._batch):
                known.append(self._run(taken, planes[start : start + self._batch]))
                say(len(known[-1]))
            self._scores[preprocessing] = np.concatenate(known)
        return self._scores[preprocessing][:images]

    def _run(self, taken: ImageInput, planes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
        ready = np.stack([taken.preprocessing.normalised(one) for one in planes])
        outputs = self._session.infer(taken.feeds(padded(ready, self._batch)))
        values: npt.NDArray[Any] = outputs[self._output.name][: len(planes)]
        if self._output.gives_labels:
            return values.reshape(len(values), 1).astype(np.float64)
        scores = values.reshape(len(values), scores_of_rows(values, self._output.name)).astype(np.float64)
        return np.minimum(scores, np.finfo(np.float64).max)

    def _planes(self, preprocessing: Preprocessing, start: int, end: int) -> npt.NDArray[np.uint8]:
        """Pixels [end - start, H, W, C] in the order of the channels; those decoded last are kept."""
        geometry = _geometry_of(preprocessing)
        kept = self._pixels
        if kept is None or kept.geometry != geometry or not kept.start <= start <= end <= kept.end:
            sound = []
            for one in self._decoded(self._entries[start:end], geometry):
                if isinstance(one, DataError):
                    raise one
                sound.append(one)
            kept = self._pixels = _Kept(geometry, start, np.stack(sound))
        planes = kept.planes[start - kept.start : end - kept.start]
        return planes[..., ::-1] if preprocessing.channels == "BGR" else planes

    def _decoded(
        self, entries: Sequence[ImageEntry], geometry: Preprocessing
    ) -> list[npt.NDArray[np.uint8] | DataError]:
        def one(entry: ImageEntry) -> npt.NDArray[np.uint8] | DataError:
            try:
                return pixels_of(self._source.read(entry.file), entry.file, geometry)
            except DataError as error:
                return error

        with ThreadPoolExecutor(usable_cores(), thread_name_prefix="inferometer-images") as pool:
            return list(pool.map(one, entries))


def _geometry_of(preprocessing: Preprocessing) -> Preprocessing:
    """The same without what comes after resizing and cropping, so that its pixels serve others too."""
    channels: dict[str, object] = {"channels": "L", "mean": (0.0,), "std": (1.0,)}
    if preprocessing.channels != "L":
        channels = {"channels": "RGB", "mean": (0.0,) * 3, "std": (1.0,) * 3}
    return preprocessing.model_copy(update={"name": "pixels", "layout": "NHWC", **channels})


def _log_probabilities(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[n, C]: of probabilities their logarithm, of anything else that of its softmax."""
    if scores.min() >= 0 and np.allclose(scores.sum(axis=1), 1, atol=1e-3):
        return np.log(np.maximum(scores, _LEAST))
    with np.errstate(invalid="ignore"):
        shifted = scores - scores.max(axis=1, keepdims=True)
        logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    bounded: npt.NDArray[np.float64] = np.maximum(logarithms, np.log(_LEAST))
    return np.nan_to_num(bounded, nan=float(np.log(_LEAST)))

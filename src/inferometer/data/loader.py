"""Batches of decoded, preprocessed images, in order, from a few threads; broken images are counted and
skipped. A caller with threads of its own takes a pass as ``deferred`` batches, and may have pixels kept
from one pass to the next."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from threading import Lock

import numpy as np
import numpy.typing as npt

from inferometer.data.imageset import ImageEntry
from inferometer.data.pixels import pixels_of
from inferometer.data.preprocess import Preprocessing
from inferometer.data.source import ImageSource
from inferometer.errors import ConfigError, DataError

__all__ = ["Batch", "ImageLoader", "SkippedImage"]

_NAMED = 5  # broken images that a message names


@dataclass(frozen=True)
class Batch:
    """Images of one inference call.

    Attributes:
        images: [n, C, H, W] float32, or [n, H, W, C] for ``NHWC``.
        labels: [n] int64.
        hashes: SHA-256 of each file's bytes, hex.
        files: Each file's name in the set.
    """

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    hashes: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class SkippedImage:
    """An image that could not be used, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class _Loaded:
    pixels: npt.NDArray[np.uint8]
    sha256: str


class ImageLoader:
    """Batches of images; each iteration is a pass over all entries, and every pass gives the same batches.

    Threads read, decode and preprocess; at most one batch and ``workers`` images are ready ahead of the
    consumer. The batches do not depend on ``workers``. A pass that ends early (break, exception, Ctrl-C) ends
    its threads.

    Attributes:
        skipped: The images that the latest pass could not use so far, in order.
    """

    def __init__(
        self,
        source: ImageSource,
        entries: Sequence[ImageEntry],
        preprocessing: Preprocessing,
        batch: int,
        *,
        workers: int = 1,
        on_progress: Callable[[int], None] | None = None,
        max_bad: int | float = 0.02,
        keep_bytes: int = 0,
    ) -> None:
        """Make a loader; nothing is read yet.

        Args:
            source: Where their files lie.
            entries: The images, in the order wanted.
            preprocessing: Made fit for the model by ``sized`` or ``for_input``.
            batch: Images per batch; the last one may be shorter.
            workers: Threads.
            on_progress: Called in the consumer's thread after each image with the number of entries done in
                this pass, skipped ones included.
            max_bad: Broken images that are tolerated: a whole number, or a fraction of all entries, at least
                one.
            keep_bytes: Of 8-bit pixels, resized and cropped, that are kept for later passes; what fits no
                more is decoded again.

        Raises:
            ConfigError: ``batch`` or ``workers`` below 1, or ``max_bad`` negative.
            DataError: There are no entries.
        """
        if batch < 1 or workers < 1 or max_bad < 0:
            given = f"batch {batch}, workers {workers}, max_bad {max_bad}"
            raise ConfigError(f"{given}: wants 1, 1 and 0 or more")
        if not entries:
            raise DataError(f"{source.root}: no image is left to load")
        self._source = source
        self._entries = tuple(entries)
        self._preprocessing = preprocessing
        self._batch = batch
        self._workers = workers
        self._on_progress = on_progress
        self._limit = max_bad if isinstance(max_bad, int) else max(1, int(max_bad * len(self._entries)))
        self._skipped: list[SkippedImage] = []
        self._kept: dict[str, _Loaded] = {}
        self._room = keep_bytes
        self._lock = Lock()

    @property
    def skipped(self) -> tuple[SkippedImage, ...]:
        """The images that the latest pass could not use so far, in order."""
        return tuple(self._skipped)

    def deferred(self) -> Iterator[Callable[[], Batch | None]]:
        """One pass as work for the caller's threads: calling an item decodes and gives one batch.

        The items may be called in any order and at once. A broken image is left out of its batch, which is
        shorter then; None when nothing is left of it.

        Raises (from the items):
            DataError: As iterating does, but for a pass without any sound image.
        """
        skipped: dict[int, SkippedImage] = {}
        self._skipped = []
        shapes: list[tuple[ImageEntry, tuple[int, ...]]] = []
        for start in range(0, len(self._entries), self._batch):
            yield partial(self._decoded, start, skipped, shapes)

    def _decoded(
        self,
        start: int,
        skipped: dict[int, SkippedImage],
        shapes: list[tuple[ImageEntry, tuple[int, ...]]],
    ) -> Batch | None:
        images: list[_Loaded] = []
        kept: list[ImageEntry] = []
        for position in range(start, min(start + self._batch, len(self._entries))):
            entry = self._entries[position]
            result = self._load(entry)
            with self._lock:
                if isinstance(result, DataError):
                    skipped[position] = SkippedImage(entry.file, str(result).removeprefix(f"{entry.file}: "))
                    self._skipped = [skipped[key] for key in sorted(skipped)]
                    self._check_skipped(self._skipped)
                    continue
                shape = self._preprocessing.shape_of(result.pixels)
                if not shapes:
                    shapes.append((entry, shape))
            _check_shape(*shapes[0], entry, shape)
            images.append(result)
            kept.append(entry)
        return self._batch_of(images, kept) if images else None

    def __iter__(self) -> Iterator[Batch]:
        """One pass over all entries.

        Raises:
            DataError: More broken images than ``max_bad``, none that is sound, or results of different
                shapes; the message names the first of them.
        """
        skipped: list[SkippedImage] = []
        self._skipped = skipped
        images: list[_Loaded] = []
        kept: list[ImageEntry] = []
        first: tuple[ImageEntry, tuple[int, ...]] | None = None
        with closing(self._results()) as results:
            for entry, result in results:
                if isinstance(result, DataError):
                    skipped.append(SkippedImage(entry.file, str(result).removeprefix(f"{entry.file}: ")))
                    self._check_skipped(skipped)
                    continue
                shape = self._preprocessing.shape_of(result.pixels)
                first = first or (entry, shape)
                _check_shape(*first, entry, shape)
                images.append(result)
                kept.append(entry)
                if len(images) == self._batch:
                    yield self._batch_of(images, kept)
                    images, kept = [], []
            if images:
                yield self._batch_of(images, kept)
        if first is None:
            raise DataError(self._complaint(skipped, "none can be used"))

    def _results(self) -> Generator[tuple[ImageEntry, _Loaded | DataError]]:
        """Each entry with its image or its fault, in order; a bounded number is under way."""
        ahead: deque[tuple[ImageEntry, Future[_Loaded | DataError]]] = deque()
        coming = iter(self._entries)
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="inferometer-images")
        try:
            for later in islice(coming, self._batch + self._workers):
                ahead.append((later, pool.submit(self._load, later)))
            done = 0
            while ahead:
                entry, future = ahead.popleft()
                result = future.result()
                for later in islice(coming, 1):
                    ahead.append((later, pool.submit(self._load, later)))
                done += 1
                if self._on_progress is not None:
                    self._on_progress(done)
                yield entry, result
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _load(self, entry: ImageEntry) -> _Loaded | DataError:
        found = self._kept.get(entry.file)
        if found is None:
            try:
                data = self._source.read(entry.file)
                pixels = pixels_of(data, entry.file, self._preprocessing)
                found = _Loaded(pixels, hashlib.sha256(data).hexdigest())
            except DataError as error:
                return error
            self._keep(entry, found)
        return found

    def _keep(self, entry: ImageEntry, found: _Loaded) -> None:
        """Hold pixels for the next pass while there is room."""
        with self._lock:
            if found.pixels.nbytes <= self._room:
                self._room -= found.pixels.nbytes
                self._kept[entry.file] = found

    def _batch_of(self, images: Sequence[_Loaded], entries: Sequence[ImageEntry]) -> Batch:
        """Normalised into one array at once: ready images of float32 would take four times the memory."""
        shape = self._preprocessing.shape_of(images[0].pixels)
        ready = np.empty((len(images), *shape), dtype=np.float32)
        for image, out in zip(images, ready, strict=True):
            self._preprocessing.normalised(image.pixels, out)
        return Batch(
            images=ready,
            labels=np.array([entry.class_index for entry in entries], dtype=np.int64),
            hashes=tuple(image.sha256 for image in images),
            files=tuple(entry.file for entry in entries),
        )

    def _check_skipped(self, skipped: Sequence[SkippedImage]) -> None:
        if len(skipped) > self._limit:
            raise DataError(self._complaint(skipped, f"at most {self._limit} may be skipped"))

    def _complaint(self, skipped: Sequence[SkippedImage], why: str) -> str:
        some = "; ".join(f"{image.file}: {image.reason}" for image in skipped[:_NAMED])
        more = f"; and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""
        return (
            f"{self._source.root}: {len(skipped)} of {len(self._entries)} images cannot be used, {why}: "
            f"{some}{more}: mend or remove them"
        )


def _check_shape(
    first: ImageEntry, wanted: tuple[int, ...], entry: ImageEntry, shape: tuple[int, ...]
) -> None:
    if shape != wanted:
        raise DataError(
            f"images of different sizes cannot share a batch: {first.file} gives {list(wanted)}, "
            f"{entry.file} gives {list(shape)}: choose a preprocessing with a crop"
        )

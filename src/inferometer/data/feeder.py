"""Batches of decoded, preprocessed images without end, ready before they are asked for.

Threads read, decode and preprocess image by image into a fixed number of buffers, so that memory is bounded
and no step waits for another thread. Which image stands in which row is left to chance: it bears on no speed.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from inferometer.data.imageset import ImageEntry
from inferometer.data.pixels import pixels_of
from inferometer.data.preprocess import Preprocessing
from inferometer.data.source import ImageSource
from inferometer.errors import DataError

__all__ = ["Buffer", "Feeder"]

_MAX_BAD = 0.02  # of all images, that cannot be decoded and are skipped
_AHEAD = 2  # batches that are ready or under way while every slot has its own


@dataclass
class Buffer:
    """A batch, ``[batch, C, H, W]`` or ``[batch, H, W, C]`` ``float32``, and how many rows are still open."""

    images: npt.NDArray[np.float32]
    open_rows: int = 0


class Feeder:
    """Goes through images again and again, in their order. A context manager; its threads end with it."""

    def __init__(
        self,
        source: ImageSource,
        entries: Sequence[ImageEntry],
        preprocessing: Preprocessing,
        batch: int,
        *,
        workers: int,
        taken: int,
    ) -> None:
        """Begin to decode.

        Args:
            source: Where the images lie.
            entries: The images; of those that cannot be decoded up to 2 %, at least one, are skipped.
            preprocessing: Made fit for the model by ``for_input``: all images get one shape.
            batch: Images in a buffer.
            workers: Threads.
            taken: How many buffers are taken at once, at most.

        Raises:
            DataError: There are no images, or the first of them that can be decoded have no common shape.
        """
        if not entries:
            raise DataError(f"{source.root}: no image is left to load")
        self._source, self._entries, self._preprocessing = source, entries, preprocessing
        self._limit = max(1, int(_MAX_BAD * len(entries)))
        self._bad: dict[str, str] = {}
        self._lock, self._next = threading.Lock(), threading.Lock()
        self._places = itertools.cycle(range(len(entries)))
        shape = self._first_shape()
        buffers = taken + max(_AHEAD, -(-workers // batch) + 1)
        self._free: queue.SimpleQueue[Buffer | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Buffer | None] = queue.SimpleQueue()
        for _ in range(buffers):
            self._free.put(Buffer(np.zeros((batch, *shape), np.float32)))
        self._batch = batch
        self._filling: Buffer | None = None
        self._row = batch
        self._decoded = 0
        self._error: Exception | None = None
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"inferometer-images-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def images(self) -> int:
        """Different images that are gone through: those that could be decoded so far, and the rest."""
        return len(self._entries) - len(self._bad)

    @property
    def workers(self) -> int:
        """Threads that decode."""
        return len(self._threads)

    def take(self) -> Buffer:
        """A full buffer, as soon as there is one; it is the caller's until ``give_back``.

        Raises:
            DataError: Too many images cannot be decoded, or they have no common shape.
        """
        return self._sound(self._ready.get())

    def give_back(self, buffer: Buffer) -> None:
        """Have it filled anew."""
        self._free.put(buffer)

    def alone(self, seconds: float) -> float | None:
        """Images/s that the threads decode when nobody waits for a device; None if they ended none.

        No buffer may be taken meanwhile.

        Raises:
            DataError: As `take`.
        """
        while not self._ready.empty():  # what was ready before does not count
            self.give_back(self.take())
        begin, before = time.perf_counter(), self._decoded
        while (left := begin + seconds - time.perf_counter()) > 0:
            with contextlib.suppress(queue.Empty):
                self.give_back(self._sound(self._ready.get(timeout=left)))
        return (self._decoded - before) / (time.perf_counter() - begin) or None

    def close(self) -> None:
        """End the threads."""
        self._closed = True
        for _ in self._threads:
            self._free.put(None)
        for thread in self._threads:
            thread.join()
        self._ready.put(None)

    def __enter__(self) -> Self:
        """Return the feeder itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _sound(self, buffer: Buffer | None) -> Buffer:
        if buffer is None:
            self._ready.put(None)  # for whoever else waits
            raise self._error or RuntimeError("the feeder is closed")
        return buffer

    def _first_shape(self) -> tuple[int, ...]:
        while True:
            found = self._pixels(self._entries[next(self._places)])
            if found is not None:
                return self._preprocessing.shape_of(found)

    def _work(self) -> None:
        try:
            while (place := self._open_row()) is not None:
                buffer, row = place
                while (pixels := self._pixels(self._entry())) is None:
                    pass
                shape = self._preprocessing.shape_of(pixels)
                if shape != buffer.images.shape[1:]:
                    raise DataError(
                        f"{self._source.root}: images of different sizes cannot share a batch:"
                        " choose a preprocessing with a crop"
                    )
                self._preprocessing.normalised(pixels, buffer.images[row])
                with self._lock:
                    self._decoded += 1
                    buffer.open_rows -= 1
                    if not buffer.open_rows:
                        self._ready.put(buffer)
        except Exception as error:  # noqa: BLE001 (whoever takes the next batch raises it)
            self._error = self._error or error
            self._ready.put(None)

    def _open_row(self) -> tuple[Buffer, int] | None:
        """A row to fill; None when there is no more to do."""
        with self._next:
            if self._closed or self._error is not None:
                return None
            if self._row == self._batch:
                self._filling = self._free.get()
                if self._filling is None:
                    return None
                self._filling.open_rows, self._row = self._batch, 0
            assert self._filling is not None
            self._row += 1
            return self._filling, self._row - 1

    def _entry(self) -> ImageEntry:
        with self._lock:
            return self._entries[next(self._places)]

    def _pixels(self, entry: ImageEntry) -> npt.NDArray[np.uint8] | None:
        """None for an image that cannot be decoded."""
        if entry.file in self._bad:
            return None
        try:
            return pixels_of(self._source.read(entry.file), entry.file, self._preprocessing)
        except DataError as error:
            why = str(error).removeprefix(f"{entry.file}: ")
        with self._lock:
            self._bad[entry.file] = why
            bad = len(self._bad)
        if bad > self._limit or bad == len(self._entries):
            raise DataError(
                f"{self._source.root}: {bad} of {len(self._entries)} images cannot be used, such as"
                f" {entry.file}: {why}: mend or remove them"
            )
        return None

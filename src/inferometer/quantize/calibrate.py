"""Two passes over the images through a session of the exposed model; memory does not grow with the images.

The caller decides where activations come from: quantize knows no engine. Ranges first, then histograms
over the true ranges, then one search per tensor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer import __version__
from inferometer.contracts import Session
from inferometer.errors import CalibrationError
from inferometer.quantize.histogram import (
    BINS,
    VANISHING,
    HistogramCollector,
    Range,
    RangeCollector,
    first_bad_row,
)
from inferometer.quantize.methods import Method, method_named
from inferometer.quantize.table import CalibrationTable, Source, TensorRange

__all__ = ["FEW_IMAGES", "CalibrationBatch", "calibrate"]

FEW_IMAGES = 100
"""Below this many images the table carries a warning. Source: S. Migacz, GTC 2017, calibrates on 1250."""

_log = logging.getLogger(__name__)

Batches = Callable[[], Iterator["CalibrationBatch"]]


@dataclass(frozen=True)
class CalibrationBatch:
    """One batch of inputs.

    Attributes:
        feeds: By input name, each with the session's whole batch.
        count: How many rows at the start are images; the rest only fills the batch, and is not counted.
        hashes: SHA-256 of those images; empty for synthetic input.
    """

    feeds: Mapping[str, npt.NDArray[Any]]
    count: int
    hashes: tuple[str, ...]


def calibrate(
    session: Session,
    batches: Batches,
    tensors: Sequence[str],
    *,
    method: str,
    model_sha256: str,
    source: Source,
    on_progress: Callable[[int], None] | None = None,
    seed: int | None = None,
    versions: Mapping[str, str] | None = None,
) -> CalibrationTable:
    """Choose the range of every tensor.

    Args:
        session: Of the exposed model, in fp32.
        batches: Gives the same batches each time it is called; it is called once per pass.
        tensors: From `observed_tensors`: outputs or inputs of the session.
        method: Key of ``METHODS``.
        model_sha256: Of the float model's file.
        source: Where the inputs come from.
        on_progress: Told how many images are done, over two passes: it ends at twice the images.
        seed: Kept in the table.
        versions: Of what ran the session, kept in the table beside those of Inferometer and NumPy.

    Raises:
        CalibrationError: No image, NaN or infinite activations, a tensor that the session does not give, or
            passes that differ.
    """
    chosen = method_named(method)
    passes = _Passes(session, batches, tensors, on_progress or (lambda done: None))
    ranges, hashes, images = passes.ranges(counts_twice=not chosen.needs_histogram)
    histograms = passes.histograms(ranges, hashes, images) if chosen.needs_histogram else None
    warnings = _warnings(ranges, images)
    for line in warnings:
        _log.warning(line)
    return CalibrationTable(
        method=chosen.name,
        bins=BINS if chosen.needs_histogram else None,
        tensors={name: _chosen(chosen, ranges[name], histograms, name) for name in tensors},
        image_hashes=tuple(sorted(hashes)),
        images=images,
        source=source,
        model_sha256=model_sha256,
        versions={"inferometer": __version__, "numpy": np.__version__, **(versions or {})},
        seed=seed,
        warnings=warnings,
    )


def _chosen(method: Method, found: Range, histograms: HistogramCollector | None, name: str) -> TensorRange:
    if found.max_abs < VANISHING:
        return TensorRange(lo=0.0, hi=0.0, threshold=0.0)
    counts = histograms.counts(name) if histograms else np.empty(0, np.int64)
    return TensorRange(lo=found.lo, hi=found.hi, threshold=method.threshold(counts, found.max_abs))


def _warnings(ranges: Mapping[str, Range], images: int) -> tuple[str, ...]:
    lines = []
    if images < FEW_IMAGES:
        lines.append(
            f"calibrated on {images} images: with fewer than {FEW_IMAGES}, ranges depend on which they are"
        )
    dead = [name for name, found in ranges.items() if found.max_abs < VANISHING]
    if dead:
        lines.append(
            f"{len(dead)} tensors were zero on every image, {dead[0]!r} for one: their scale is 1, which "
            f"fits only if they stay zero"
        )
    return tuple(lines)


class _Passes:
    """Runs the batches through the session and hands every tensor's real rows on."""

    def __init__(
        self, session: Session, batches: Batches, tensors: Sequence[str], on_progress: Callable[[int], None]
    ) -> None:
        self._session, self._batches, self._tensors = session, batches, tensors
        self._on_progress = on_progress
        given = {tensor.name for tensor in (*session.outputs, *session.inputs)}
        missing = [name for name in tensors if name not in given]
        if missing:
            raise CalibrationError(f"the session does not give tensor {missing[0]!r}: load the exposed model")
        if not tensors:
            raise CalibrationError("no tensor is to be observed: there is nothing to calibrate")

    def ranges(self, counts_twice: bool) -> tuple[dict[str, Range], list[str], int]:
        """The first pass: ranges, image hashes, number of images."""
        collector, images = RangeCollector(), 0
        hashes: list[str] = []
        for number, batch in enumerate(self._batches()):
            for name, values in self._values(batch, number):
                if not collector.add(name, values):
                    raise CalibrationError(_not_finite(name, values, batch, number))
            hashes += batch.hashes
            images += batch.count
            self._on_progress(images * (2 if counts_twice else 1))
        if images < 1:
            raise CalibrationError("there is no image to calibrate on: give at least one, better 500 or more")
        found = collector.ranges()
        empty = [name for name in self._tensors if name not in found]
        if empty:
            raise CalibrationError(f"tensor {empty[0]!r} was empty on every image: it has no range")
        return found, hashes, images

    def histograms(self, ranges: Mapping[str, Range], hashes: list[str], images: int) -> HistogramCollector:
        """The second pass, over the same images."""
        collector = HistogramCollector({name: ranges[name] for name in self._tensors})
        again: list[str] = []
        seen = 0
        for number, batch in enumerate(self._batches()):
            for name, values in self._values(batch, number):
                collector.add(name, values)
            again += batch.hashes
            seen += batch.count
            self._on_progress(images + seen)
        if sorted(again) != sorted(hashes) or seen != images:
            raise CalibrationError(
                f"the second pass gave other images than the first ({seen} after {images}): "
                f"the folder changed meanwhile; calibrate again"
            )
        return collector

    def _values(self, batch: CalibrationBatch, number: int) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        results = self._session.infer(batch.feeds)
        rows = len(next(iter(batch.feeds.values())))
        for name in self._tensors:
            values = results[name] if name in results else batch.feeds[name]
            yield name, _real_rows(values, name, batch.count, rows, number)


def _real_rows(
    values: npt.NDArray[Any], name: str, count: int, rows: int, number: int
) -> npt.NDArray[np.float32]:
    """What belongs to the first ``count`` of ``rows`` images. Axis 0 holds the images, or pieces of each."""
    if count == rows:
        return values
    if values.ndim == 0 or values.shape[0] % rows:
        raise CalibrationError(
            f"tensor {name!r}: shape {list(values.shape)} does not begin with the batch of {rows}, so the "
            f"filling of batch {number} cannot be left out: give a multiple of {rows} images"
        )
    return values[: values.shape[0] // rows * count]


def _not_finite(name: str, values: npt.NDArray[Any], batch: CalibrationBatch, number: int) -> str:
    position = min(first_bad_row(values) * batch.count // len(values), batch.count - 1)
    image = f"image {batch.hashes[position]}" if batch.hashes else f"row {position}"
    return (
        f"tensor {name!r} is NaN or infinite for {image} (batch {number}, position {position}): "
        f"the model overflows in fp32 or the input is not finite; check the preprocessing"
    )

"""Two passes over the images through a session of the exposed model, then one search per tensor.

The caller decides where activations come from: quantize knows no engine. Ranges first, then histograms
over the true ranges.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
from inferometer.quantize.passes import (
    Batches,
    CalibrationBatch,
    StageTimes,
    Values,
    Visit,
    real_rows,
    run_pass,
)
from inferometer.quantize.table import CalibrationTable, Source, TensorRange

__all__ = ["FEW_IMAGES", "Batches", "CalibrationBatch", "StageTimes", "calibrate"]

FEW_IMAGES = 100
"""Below this many images the table carries a warning. Source: S. Migacz, GTC 2017, calibrates on 1250."""

_log = logging.getLogger(__name__)


def calibrate(
    session: Session,
    batches: Batches,
    tensors: Sequence[str],
    *,
    method: str,
    percentile: float | None = None,
    model_sha256: str,
    source: Source,
    on_progress: Callable[[int], None] | None = None,
    seed: int | None = None,
    versions: Mapping[str, str] | None = None,
    times: StageTimes | None = None,
) -> CalibrationTable:
    """Choose the range of every tensor.

    Args:
        session: Of the exposed model, in fp32.
        batches: Gives the same batches each time it is called; it is called once per pass.
        tensors: From `observed_tensors`: outputs or inputs of the session.
        method: Key of ``METHODS``.
        percentile: Of the method ``percentile`` alone; None for its default.
        model_sha256: Of the float model's file.
        source: Where the inputs come from.
        on_progress: Told how many images are done, over two passes: it ends at twice the images.
        seed: Kept in the table.
        versions: Of what ran the session, kept in the table beside those of Inferometer and NumPy.
        times: Receives where the time went.

    Raises:
        CalibrationError: No image, NaN or infinite activations, a tensor that the session does not give, or
            passes that differ.
    """
    chosen = method_named(method, percentile)
    times = times if times is not None else StageTimes()
    begin = time.perf_counter()
    passes = _Passes(session, batches, tensors, times, on_progress or (lambda done: None))
    ranges, hashes, images = passes.ranges(counts_twice=not chosen.needs_histogram)
    histograms = passes.histograms(ranges, hashes, images) if chosen.needs_histogram else None
    with times.stage("search"), ThreadPoolExecutor(session.in_flight) as pool:
        search = partial(_chosen, chosen, ranges, histograms)
        found = dict(zip(tensors, pool.map(search, tensors), strict=True))
    times.wall_s += time.perf_counter() - begin
    warnings = _warnings(ranges, images)
    for line in warnings:
        _log.warning(line)
    return CalibrationTable(
        method=chosen.name,
        percentile=chosen.percentile,
        bins=BINS if chosen.needs_histogram else None,
        tensors=found,
        image_hashes=tuple(sorted(hashes)),
        images=images,
        source=source,
        model_sha256=model_sha256,
        versions={"inferometer": __version__, "numpy": np.__version__, **(versions or {})},
        seed=seed,
        warnings=warnings,
    )


def _chosen(
    method: Method, ranges: Mapping[str, Range], histograms: HistogramCollector | None, name: str
) -> TensorRange:
    found = ranges[name]
    if found.max_abs < VANISHING:
        return TensorRange(lo=0.0, hi=0.0, threshold=0.0)
    counts = histograms.counts(name) if histograms else np.empty(0, np.int64)
    return TensorRange(lo=found.lo, hi=found.hi, threshold=method.threshold(counts, found))


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
    """Runs the batches through the session and gathers the statistics of every tensor's real rows."""

    def __init__(
        self,
        session: Session,
        batches: Batches,
        tensors: Sequence[str],
        times: StageTimes,
        on_progress: Callable[[int], None],
    ) -> None:
        self._session, self._batches, self._tensors = session, batches, tensors
        self._times, self._on_progress = times, on_progress
        given = {tensor.name for tensor in (*session.outputs, *session.inputs)}
        missing = [name for name in tensors if name not in given]
        if missing:
            raise CalibrationError(f"the session does not give tensor {missing[0]!r}: load the exposed model")
        if not tensors:
            raise CalibrationError("no tensor is to be observed: there is nothing to calibrate")

    def ranges(self, counts_twice: bool) -> tuple[dict[str, Range], list[str], int]:
        """The first pass: ranges, image hashes, number of images."""
        collectors = [RangeCollector() for _ in range(self._session.in_flight)]

        def visit(slot: int, batch: CalibrationBatch, number: int, values: Values) -> None:
            for name in self._tensors:
                rows = real_rows(values[name], name, batch, number)
                if not collectors[slot].add(name, rows):
                    raise CalibrationError(_not_finite(name, rows, batch, number))

        hashes, images = self._run(visit, 0, 2 if counts_twice else 1)
        if images < 1:
            raise CalibrationError("there is no image to calibrate on: give at least one, better 500 or more")
        for other in collectors[1:]:
            collectors[0].merge(other)
        found = collectors[0].ranges()
        empty = [name for name in self._tensors if name not in found]
        if empty:
            raise CalibrationError(f"tensor {empty[0]!r} was empty on every image: it has no range")
        return found, hashes, images

    def histograms(self, ranges: Mapping[str, Range], hashes: list[str], images: int) -> HistogramCollector:
        """The second pass, over the same images."""
        wanted = {name: ranges[name] for name in self._tensors}
        collectors = [HistogramCollector(wanted) for _ in range(self._session.in_flight)]

        def visit(slot: int, batch: CalibrationBatch, number: int, values: Values) -> None:
            for name in self._tensors:
                collectors[slot].add(name, real_rows(values[name], name, batch, number))

        again, seen = self._run(visit, images, 1)
        if sorted(again) != sorted(hashes) or seen != images:
            raise CalibrationError(
                f"the second pass gave other images than the first ({seen} after {images}): "
                f"the folder changed meanwhile; calibrate again"
            )
        for other in collectors[1:]:
            collectors[0].merge(other)
        return collectors[0]

    def _run(self, visit: Visit, before: int, weight: int) -> tuple[list[str], int]:
        """One pass; gives the hashes of its images, and their number."""
        hashes: list[str] = []
        images = 0

        def noted(slot: int, batch: CalibrationBatch, number: int, values: Values) -> None:
            visit(slot, batch, number, values)
            hashes.extend(batch.hashes)

        def counted(count: int) -> None:
            nonlocal images
            images += count
            self._on_progress(before + weight * images)

        run_pass(self._session, self._batches, noted, self._times, counted)
        return hashes, images


def _not_finite(name: str, values: npt.NDArray[Any], batch: CalibrationBatch, number: int) -> str:
    position = min(first_bad_row(values) * batch.count // len(values), batch.count - 1)
    image = f"image {batch.hashes[position]}" if batch.hashes else f"row {position}"
    return (
        f"tensor {name!r} is NaN or infinite for {image} (batch {number}, position {position}): "
        f"the model overflows in fp32 or the input is not finite; check the preprocessing"
    )

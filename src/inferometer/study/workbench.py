"""A float model, its calibration table and labelled images on one engine: INT8 variants built and judged.

Layers are ranked on images that served the calibration, since that needs no labels; accuracy is measured
on the others alone, which chose nothing but which of the ranked layers stay in float.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onnx import ModelProto

from inferometer.accuracy import PairedDifference, paired_difference
from inferometer.contracts import Engine, QdqScheme
from inferometer.data.imageset import ImageEntry, ImageSet, ordered
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import DataError
from inferometer.quantize.bias import bias_shifts, channel_means, correctable_inputs, shift_biases
from inferometer.quantize.budget import BudgetResult, fewest_float
from inferometer.quantize.graph import expose, observed_tensors
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.sensitivity import LayerDamage, rank_layers
from inferometer.quantize.sqnr import SqnrReport, layer_sqnr
from inferometer.quantize.table import CalibrationTable
from inferometer.trials.forward import plan_forward
from inferometer.trials.images import ImageInput
from inferometer.trials.scoring import scorer_of
from inferometer.trials.variants import ModelRunner, Scores, VariantImages, hashes_of, parted, score_variant

__all__ = ["RANKING_IMAGES", "Budget", "Progress", "Setting", "Workbench", "layer_noise"]

RANKING_IMAGES = 64
"""Images that rank layers: one pass of them per layer."""

_FEWEST = 8  # with fewer calibration images among those given, held-out ones rank

Progress = Callable[[str, int, int], None]
"""Told what is going on, how much of it is done, and of how much."""


@dataclass(frozen=True)
class Setting:
    """Where variants of a model are measured, and on what.

    Attributes:
        engine: What runs them here.
        options: The engine's own.
        images: Labelled, where accuracy is measured.
        taken: Where the model takes them.
        output: The name of its class scores, where the user gave one.
        label_offset: Added to labels to get its classes.
        seed: Orders the images.
        memory_bytes: For activations, and as much again for decoded images.
        fixed_batch: The only batch that the model runs, or None.
        folder: For files that live as long as a session's loading.
        on_progress: Told of progress.
    """

    engine: Engine
    options: Mapping[str, Any]
    images: ImageSet
    taken: ImageInput
    output: str | None
    label_offset: int
    seed: int
    memory_bytes: int
    fixed_batch: int | None
    folder: Path
    on_progress: Progress

    def runner(self, prepared: ModelProto, tensors: Collection[str]) -> ModelRunner:
        """Opens variants of ``prepared``, as many at once as fit with ``tensors`` exposed."""
        cores = self.options.get("threads") or usable_cores()
        plan = plan_forward(prepared, tensors, self.memory_bytes, cores)
        batch = plan.batch if self.fixed_batch is None else self.fixed_batch
        device = self.engine.devices()[0].name
        return ModelRunner(self.engine, device, self.options, batch, plan.in_flight, self.folder)

    def parts(self, calibrated: Collection[str]) -> tuple[list[ImageEntry], list[ImageEntry]]:
        """Images that served a calibration, by their hashes, and those held out.

        Raises:
            DataError: None is held out.
        """
        order = ordered(self.images, self.seed)
        served, held_out = parted(order, hashes_of(self.images), frozenset(calibrated))
        if not held_out:
            root = self.images.root
            raise DataError(f"{root}: all images served the calibration: none is held out to measure on")
        return served, held_out

    def of(self, entries: Sequence[ImageEntry], batch: int) -> VariantImages:
        """Entries as batches."""
        return VariantImages(self.images.source, entries, self.taken, batch, self.memory_bytes)


def layer_noise(
    prepared: ModelProto,
    quantized: ModelProto,
    setting: Setting,
    calibrated: Collection[str],
    *,
    own: bool = True,
) -> SqnrReport:
    """Signal to noise behind every layer of a QDQ model, on images that did not calibrate it.

    Args:
        prepared: The float model, prepared.
        quantized: A QDQ model made from it, by Inferometer or another quantizer.
        setting: Where it is measured.
        calibrated: SHA-256 of the images to leave out.
        own: Whether each layer's own noise is measured too.

    Raises:
        CalibrationError: The two models do not belong together.
        DataError: No image is left.
    """
    runner = setting.runner(prepared, observed_tensors(prepared))
    _, held_out = setting.parts(calibrated)
    return _noise(prepared, quantized, runner, setting, held_out, own)


def _noise(
    prepared: ModelProto,
    quantized: ModelProto,
    runner: ModelRunner,
    setting: Setting,
    held_out: Sequence[ImageEntry],
    own: bool,
) -> SqnrReport:
    images = setting.of(held_out[:RANKING_IMAGES], runner.batch)
    return layer_sqnr(
        prepared,
        quantized,
        runner.open,
        images.batches,
        own=own,
        on_progress=lambda done: setting.on_progress("noise behind layers", done, images.count),
    )


@dataclass(frozen=True)
class Budget:
    """The outcome of a search for an INT8 form within an accuracy budget.

    Attributes:
        result: What the search chose and measured.
        difference: The chosen form against fp32 on the held-out images (top-1).
        top1_fp32: Fraction.
        top1_int8: Fraction.
    """

    result: BudgetResult
    difference: PairedDifference
    top1_fp32: float
    top1_int8: float


class Workbench:
    """Builds INT8 forms of one model and measures them on one engine."""

    def __init__(
        self, prepared: ModelProto, table: CalibrationTable, scheme: QdqScheme, setting: Setting
    ) -> None:
        """Hash the images and part them.

        Args:
            prepared: The float model, prepared.
            table: Its calibration.
            scheme: The form of QDQ that is built.
            setting: Where it is measured: on the engine whose form it is, or another that computes the same.

        Raises:
            DataError: No image is held out.
        """
        self._prepared, self._table, self._scheme, self._setting = prepared, table, scheme, setting
        self._say = setting.on_progress
        self._runner = setting.runner(prepared, table.tensors)
        served, self._held_out = setting.parts(table.image_hashes)
        self._ranks_on_held_out = len(served) < _FEWEST
        self._ranking = (self._held_out if self._ranks_on_held_out else served)[:RANKING_IMAGES]
        self._differences: dict[frozenset[str], PairedDifference] = {}
        self._base = prepared

    @property
    def held_out(self) -> int:
        """How many images accuracy is measured on."""
        return len(self._held_out)

    @property
    def ranking_images(self) -> tuple[int, str]:
        """How many images rank layers, and which: ``calibration`` or ``held-out``."""
        return len(self._ranking), "held-out" if self._ranks_on_held_out else "calibration"

    def build(self, float_layers: frozenset[str] = frozenset()) -> ModelProto:
        """The INT8 form with ``float_layers`` left in float."""
        return insert_qdq(
            self._base,
            self._table,
            self._scheme,
            float_layers=float_layers,
            biases_corrected=self._base is not self._prepared,
        )

    def correct_biases(self) -> tuple[float | None, float | None]:
        """From now on build with corrected biases; to be called before anything is built and measured.

        Returns:
            Signal to noise of the logits on held-out images in decibels, without and with the correction.
        """
        plain = self.build()
        inputs = correctable_inputs(self._prepared, plain)
        images = self._of(self._ranking)
        with self._runner.open(expose(self._prepared, inputs)) as session:
            means = channel_means(session, images.batches, inputs)
        shifts = bias_shifts(self._prepared, plain, means)
        before = self.sqnr(plain).logits.db
        self._base = shift_biases(self._prepared, shifts)
        return before, self.sqnr(self.build()).logits.db

    def sqnr(self, quantized: ModelProto, own: bool = False) -> SqnrReport:
        """Signal to noise behind every layer, on held-out images."""
        return _noise(self._prepared, quantized, self._runner, self._setting, self._held_out, own)

    def rank(self) -> tuple[LayerDamage, ...]:
        """Layers by the damage that each does when quantized alone."""
        images = self._of(self._ranking)
        return rank_layers(
            self._prepared,
            self.build(),
            self._runner.open,
            images.batches,
            on_progress=lambda done, of: self._say("layers quantized alone", done, of),
        )

    def meet(self, max_drop: float, ranking: tuple[LayerDamage, ...]) -> Budget:
        """Leave the fewest layers in float that keep top-1 within ``max_drop`` (a fraction) of fp32.

        The least damaging layer stays on integers in any case: else there would be no INT8 form.
        """
        exact = self._exact

        def drop_of(layers: frozenset[str]) -> float:
            if layers not in self._differences:  # asked again once the layers are ranked
                scores = self._score(self.build(layers), f"INT8, {len(layers)} layers in float")
                self._differences[layers] = paired_difference(exact.correct, scores.correct)
            return -self._differences[layers].delta

        result = fewest_float([one.layer for one in ranking[:-1]], drop_of, max_drop)
        chosen = self._differences[frozenset(result.float_layers)]
        top1 = float(exact.correct.mean())
        return Budget(result, chosen, top1, top1 + chosen.delta)

    def _score(self, model: ModelProto, what: str) -> Scores:
        images, done = self._scored, 0

        def counted(count: int) -> None:
            nonlocal done
            done += count
            self._say(what, done, images.count)

        with self._runner.open(model) as session:
            scorer = scorer_of(session, self._setting.output, self._setting.label_offset)
            return score_variant(session, images, scorer, counted)

    @cached_property
    def _exact(self) -> Scores:
        return self._score(self._prepared, "fp32")

    @cached_property
    def _scored(self) -> VariantImages:
        return self._of(self._held_out)

    def _of(self, entries: Sequence[ImageEntry]) -> VariantImages:
        return self._setting.of(entries, self._runner.batch)

"""What ``calibrate`` measures beyond the ranges: layers ranked, an accuracy budget met, biases corrected."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto

from inferometer import registry
from inferometer.analysis.wording import percent, plural, points
from inferometer.cli.console import print_line, print_tables, stage_progress
from inferometer.config import CALIBRATION_MEMORY_BYTES, ModelEntry
from inferometer.contracts import QdqScheme
from inferometer.data.imageset import check_labels, open_set
from inferometer.data.preprocess import load as load_preprocessing
from inferometer.errors import ConfigError, ModelError
from inferometer.models.roles import class_output
from inferometer.models.summary import ModelSummary
from inferometer.quantize.sensitivity import LayerDamage, damage_rows
from inferometer.quantize.sqnr import SqnrReport, sqnr_rows
from inferometer.quantize.table import CalibrationTable
from inferometer.report.layers import LayerRow, layers_table
from inferometer.study.workbench import Budget, Setting, Workbench
from inferometer.trials.images import image_input_of

_SHOWN = 20  # layers on the terminal: the rest does little damage, and is in the files

__all__ = ["Judgement", "Judging", "judge", "setting_for"]


@dataclass(frozen=True)
class Judging:
    """What was asked for; ``max_drop`` is a fraction."""

    layers: bool
    max_drop: float | None
    bias_correction: bool

    @property
    def wanted(self) -> bool:
        """Whether anything is measured at all."""
        return self.layers or self.max_drop is not None or self.bias_correction


@dataclass(frozen=True)
class Judgement:
    """What was found.

    Attributes:
        engine: What ran the variants.
        held_out: Images that chose no range: accuracy is told of these, and noise of the first of them.
        ranking_images: Those that ranked the layers: how many, and whether they chose ranges.
        ranking: Layers by damage; empty when not asked for.
        noise: Behind every layer of the form that is written; None when not asked for.
        budget: None when not asked for.
        bias_db: Signal to noise of the logits without and with corrected biases; None when not asked for.
    """

    engine: str
    held_out: int
    ranking_images: tuple[int, str]
    ranking: tuple[LayerDamage, ...]
    noise: SqnrReport | None
    budget: Budget | None
    bias_db: tuple[float | None, float | None] | None

    @property
    def met(self) -> bool:
        """Whether the budget, if there was one, is met."""
        return self.budget is None or self.budget.result.met

    def rows(self) -> list[LayerRow]:
        """The ranked layers as the report shows them."""
        if self.noise is None:
            return []
        behind = {row["layer"]: (place, row) for place, row in enumerate(sqnr_rows(self.noise))}
        in_float = set(self.budget.result.float_layers) if self.budget else set()
        found = []
        for row in damage_rows(self.ranking):
            place, noise = behind.get(row["layer"], (len(behind), {}))
            found.append(
                LayerRow(
                    layer=row["layer"],
                    op=row["op"],
                    position=place,
                    damage=row["damage"],
                    standard_error=row["standard_error"],
                    agreement=row["agreement"],
                    sqnr_db=noise.get("sqnr_db"),
                    own_sqnr_db=noise.get("own_sqnr_db"),
                    in_float=row["layer"] in in_float,
                )
            )
        return found

    def document(self) -> dict[str, Any]:
        """For JSON: fractions and decibels."""
        return {
            "engine": self.engine,
            "held_out_images": self.held_out,
            "ranking_images": dict(zip(("images", "of"), self.ranking_images, strict=True)),
            "bias_correction": _bias_document(*self.bias_db) if self.bias_db else None,
            "budget": _budget_document(self.budget) if self.budget else None,
            "layers": [vars(row) for row in self.rows()] or None,
        }

    def show(self) -> None:
        """Print it."""
        if self.ranking:
            count, of = self.ranking_images
            print_tables([layers_table(self.rows(), f"Ranked on {count} {of} images.", _SHOWN)])
        for line in self.sentences():
            print_line(line)

    def sentences(self) -> list[str]:
        """What was found, a line each."""
        lines = []
        if self.bias_db is not None:
            lines.append(_bias_sentence(*self.bias_db))
        if self.budget is not None:
            lines += _budget_sentences(self.budget, self.engine)
        return lines


@contextmanager
def setting_for(
    summary: ModelSummary,
    engine: str,
    data: Path,
    entry: ModelEntry,
    *,
    labels: Path | None = None,
    seed: int = 0,
    memory_bytes: int = CALIBRATION_MEMORY_BYTES,
    fixed_batch: int | None,
) -> Iterator[Setting]:
    """Where variants of a model are measured, with a progress display.

    Raises:
        InferometerError: Images, preprocessing or the engine are not fit for the model.
    """
    if entry.preprocess is None:
        raise ConfigError("measuring needs --preprocess: how the images become the model's input")
    how = load_preprocessing(entry.preprocess, entry.decode)
    images = open_set(data, labels)
    with suppress(ModelError):  # of what is no classifier noise can be measured
        scored = class_output(summary.outputs, entry.output)
        if scored.classes is not None:
            check_labels(images, scored.classes, entry.model, entry.label_offset)
    with tempfile.TemporaryDirectory(prefix="inferometer-variants-") as folder, stage_progress() as say:
        yield Setting(
            engine=registry.engine(engine),
            options={},
            images=images,
            taken=image_input_of(summary.inputs, how, entry.inputs, summary.path or "the model"),
            output=entry.output,
            label_offset=entry.label_offset or 0,
            seed=seed,
            memory_bytes=memory_bytes,
            fixed_batch=fixed_batch,
            folder=Path(folder),
            on_progress=say,
        )


def judge(
    wanted: Judging, prepared: ModelProto, table: CalibrationTable, scheme: QdqScheme, setting: Setting
) -> tuple[ModelProto, Judgement]:
    """Build the INT8 form that was asked for, and measure it."""
    bench = Workbench(prepared, table, scheme, setting)
    bias_db = bench.correct_biases() if wanted.bias_correction else None
    budget = bench.meet(wanted.max_drop, ()) if wanted.max_drop is not None else None
    # Layers are ranked when that was asked for, or when some of them must be left in float.
    ranking = bench.rank() if wanted.layers or (budget is not None and not budget.result.met) else ()
    if wanted.max_drop is not None and ranking:
        budget = bench.meet(wanted.max_drop, ranking)
    built = bench.build(frozenset(budget.result.float_layers) if budget else frozenset())
    noise = bench.sqnr(built, own=True) if ranking else None
    return built, Judgement(
        setting.engine.name, bench.held_out, bench.ranking_images, ranking, noise, budget, bias_db
    )


def _bias_document(before: float | None, after: float | None) -> dict[str, float | None]:
    return {"logits_sqnr_db": before, "corrected_logits_sqnr_db": after}


def _bias_sentence(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "Bias correction: the logits carry no noise to compare."
    helps = "it helps" if after > before else "it does not help: leave it out"
    return (
        f"Bias correction: signal to noise of the logits on held-out images from {before:.2f} to {after:.2f} "
        f"dB: {helps}."
    )


def _budget_document(budget: Budget) -> dict[str, Any]:
    difference, result = budget.difference, budget.result
    return {
        "max_drop": result.max_drop,
        "met": result.met,
        "top1_fp32": budget.top1_fp32,
        "top1_int8": budget.top1_int8,
        "images": difference.n,
        "delta": difference.delta,
        "ci95": list(difference.ci95),
        "p": difference.p,
        "verdict": difference.verdict,
        "images_to_settle": difference.images_to_settle,
        "float_layers": list(result.float_layers),
        "evaluations": [
            {"float_layers": list(one.float_layers), "drop": one.drop} for one in result.evaluations
        ],
    }


def _budget_sentences(budget: Budget, engine: str) -> list[str]:
    difference, result = budget.difference, budget.result
    low, high = difference.ci95
    count = plural(len(result.float_layers), "layer")
    tried = plural(len(result.evaluations), "form")
    first = (
        f"Top-1 on {difference.n} held-out images ({engine}): fp32 {percent(budget.top1_fp32)}, int8 "
        f"{percent(budget.top1_int8)}, {points(difference.delta)} points (95 % interval {points(low)} to "
        f"{points(high)}): {difference.verdict}."
    )
    allowed = f"{100 * result.max_drop:g} points"
    if result.met:
        second = f"The drop is within {allowed} with {count} left in float; {tried} measured."
    else:
        second = f"No form keeps within {allowed}: the best of {tried} leaves {count} in float."
    lines = [first, second]
    if difference.images_to_settle is not None:
        more = plural(difference.images_to_settle, "more image")
        lines.append(f"About {more} would settle whether this difference is real.")
    if result.met and -low > result.max_drop:
        lines.append(
            f"The interval reaches beyond {allowed}: more images would tell whether the drop is within them."
        )
    return lines

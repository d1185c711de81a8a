"""What the doctor found, for a reader: sentences and tables; and for a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from inferometer.analysis.checkup import Checkup
from inferometer.analysis.diagnosis import Diagnosis, sentences
from inferometer.analysis.wording import joined, percent, plural, points
from inferometer.data.imageset import ImageSet
from inferometer.data.preprocess import PRESETS, Preprocessing
from inferometer.models.form import FORM_WORDS
from inferometer.models.summary import TensorInfo
from inferometer.report.cells import Cell, Column, Table

__all__ = [
    "about_model",
    "about_set",
    "aspects_table",
    "engines_table",
    "fields_of",
    "fit_document",
    "model_document",
    "set_document",
]


def about_set(there: ImageSet) -> list[str]:
    """A set of images, in sentences."""
    used = {entry.class_index for entry in there.entries}
    lines = [
        f"{there.root}: {there.layout}, {len(there.entries)} images of {len(used)} classes, labels "
        f"{min(used)} to {max(used)}."
    ]
    if there.numbering == "ilsvrc2012":
        lines.append(
            "The labels are those of ILSVRC2012: its 1000 classes in the order of their WordNet ids."
        )
    if there.ignored:
        lines.append(f"{plural(there.ignored, 'file')} beside them: no part of the set.")
    return lines


def about_model(found: Checkup) -> list[str]:
    """A model, in sentences."""
    summary = found.summary
    lines = [
        f"Opset {summary.opset}, written by {summary.producer or 'an exporter that does not say'}; "
        f"{summary.parameters / 1e6:.2f} M parameters, "
        f"{'unknown' if summary.macs is None else f'{summary.macs / 1e9:.3f} G'} MACs per image; "
        f"batch: {found.batch}.",
        f"Numbers: {summary.float_type or 'no floats'}, {FORM_WORDS[summary.form]}.",
    ]
    if summary.float_type not in ("float32", None) and summary.form == "float":
        lines.append(
            f"An engine at fp32 may compute in {summary.float_type} or widen it: precision_mac_share in a "
            "record tells which. INT8 is made of it after widening to float32."
        )
    lines += [f"Input {_spelled(one)}." for one in summary.inputs]
    lines += [f"Output {_spelled(one)}." for one in summary.outputs]
    if found.output is not None and found.not_scored is None:
        classes = "classes" if found.output.classes is None else f"{found.output.classes} classes"
        kind = "the class itself, so that only top-1 can be told" if found.output.gives_labels else classes
        lines.append(f"A classifier: {found.output.name!r} gives {kind}.")
        if found.output.classes == 1001:
            lines.append("1001 classes: class 0 is probably the background; then use label_offset 1.")
    if found.not_scored is not None:
        lines.append(f"Throughput alone can be measured: {found.not_scored}.")
    lines.append(f"INT8: {found.int8}.")
    absent = [one.engine for one in found.attempts if one.outcome == "absent"]
    if absent:
        lines.append(f"Engines that cannot run here: {joined(absent)} (--json says why).")
    return lines


def _spelled(one: TensorInfo) -> str:
    shape = "of unknown shape" if one.shape is None else "x".join(str(side or "?") for side in one.shape)
    return f"{one.name!r}: {shape or 'one number'} {one.dtype or 'no tensor'}"


def engines_table(found: Checkup) -> Table:
    """Engine by engine: whether it runs the model, and why not."""
    columns = (
        Column("engine", header=True),
        Column("precision"),
        Column("outcome"),
        Column("why, and what to do", prose=True),
    )
    rows = tuple(
        (
            Cell(one.engine, one.engine),
            Cell(one.precision, one.precision),
            Cell(one.outcome, one.outcome, "good" if one.outcome == "runs" else "plain"),
            Cell(one.reason or "", one.reason),
        )
        for one in found.attempts
        if one.outcome != "absent"
    )
    return Table("engines", "What runs it on this machine", columns, rows)


def aspects_table(found: Diagnosis) -> Table:
    """Question by question: the answer, and what else was tried."""
    columns = (
        Column("question", header=True),
        Column("answer"),
        Column("top-1", "%", "right"),
        Column("difference", "points", "right"),
        Column("images", None, "right"),
        Column("verdict"),
    )
    rows: list[tuple[Cell, ...]] = []
    for aspect in found.aspects:
        rows.append(
            (
                Cell(aspect.name, aspect.name),
                Cell(aspect.value, aspect.value),
                Cell(percent(aspect.top1).removesuffix(" %"), aspect.top1),
                Cell("", None),
                Cell(str(aspect.images), aspect.images),
                Cell("fits", "fits", "good"),
            )
        )
        for other in aspect.alternatives:
            verdict = "as good" if other.tied else "worse"
            rows.append(
                (
                    Cell("", aspect.name),
                    Cell(other.value, other.value),
                    Cell(percent(other.top1).removesuffix(" %"), other.top1),
                    Cell(points(other.difference.delta), other.difference.delta),
                    Cell(str(other.difference.n), other.difference.n),
                    Cell(verdict, verdict),
                )
            )
    note = (
        "Ways that were hopeless on the first images were not tried on all; "
        "differences are of the images both saw."
    )
    return Table("fit", "What fits, by accuracy", columns, tuple(rows), note)


def fields_of(how: Preprocessing) -> dict[str, Any]:
    """What a preprocessing file must state."""
    kept = {"mean", "std", "channels"}
    plain = Preprocessing(mean=how.mean, std=how.std, channels=how.channels).model_dump(mode="json")
    content = how.model_dump(mode="json", exclude={"name"})
    for key in ("mean", "std"):
        content[key] = [round(value, 6) for value in content[key]]
    return {key: value for key, value in content.items() if key in kept or value != plain[key]}


def set_document(there: ImageSet) -> dict[str, Any]:
    """A set of images, for JSON."""
    used = {entry.class_index for entry in there.entries}
    return {
        "path": str(there.root),
        "layout": there.layout,
        "numbering": there.numbering,
        "images": len(there.entries),
        "classes": len(used),
        "labels": [min(used), max(used)],
        "ignored": there.ignored,
    }


def model_document(path: str | None, found: Checkup) -> dict[str, Any]:
    """A model, for JSON."""
    summary = found.summary
    return {
        "path": path,
        "inputs": [asdict(one) for one in summary.inputs],
        "outputs": [asdict(one) for one in summary.outputs],
        "opset": summary.opset,
        "producer": summary.producer,
        "parameters": summary.parameters,
        "macs": summary.macs,
        "batch": found.batch,
        "quantized": summary.is_quantized,
        "form": summary.form,
        "float_type": summary.float_type,
        "scored": None if found.output is None else asdict(found.output),
        "not_scored": found.not_scored,
        "int8": found.int8,
        "engines": [asdict(one) for one in found.attempts],
    }


def fit_document(found: Diagnosis) -> dict[str, Any]:
    """What fits, for JSON."""

    def difference(one: Any) -> dict[str, Any]:
        return {
            "delta": one.delta,
            "ci95": list(one.ci95),
            "p": one.p,
            "images": one.n,
            "verdict": one.verdict,
        }

    own: Mapping[str, Any] = fields_of(found.preprocessing)
    return {
        "fits": found.fits,
        "images": found.images,
        "top1": found.top1,
        "ci95": list(found.ci95),
        "preprocess": found.preprocessing.name if found.preprocessing.name in PRESETS else None,
        "preprocessing": dict(own),
        "label_offset": found.label_offset,
        "devkit_labels": found.devkit_labels,
        "aspects": [
            {
                "aspect": aspect.name,
                "value": aspect.value,
                "top1": aspect.top1,
                "images": aspect.images,
                "alternatives": [
                    {"value": one.value, "top1": one.top1, "as_good": one.tied, **difference(one.difference)}
                    for one in aspect.alternatives
                ],
            }
            for aspect in found.aspects
        ],
        "nan_images": found.broken,
        "given_fits": found.given_fits,
        "given_top1": found.given_top1,
        "faults": [
            {
                "aspect": one.aspect,
                "given": one.given,
                "fits": one.fits,
                "top1": one.top1,
                **difference(one.difference),
            }
            for one in found.faults
        ],
        "sentences": sentences(found),
        "skipped": list(found.skipped),
    }

"""``inferometer doctor --data DIR --model M``: what a model and a set of images are, and how they fit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from inferometer import registry
from inferometer.analysis.diagnosis import Diagnosis, sentences
from inferometer.analysis.wording import percent, points
from inferometer.cli.console import print_json, print_line, print_sentences, print_tables, stage_progress
from inferometer.cli.options import (
    LABELS_HELP,
    PREPROCESS_HELP,
    InputOption,
    InputShapeOption,
    JsonOption,
    LabelOffsetOption,
    OutputOption,
    inputs_of,
    refuse_overwriting,
)
from inferometer.config import InputEntry, ModelEntry, Study, parse
from inferometer.data.decode import decode
from inferometer.data.imageset import ImageSet, open_set, ordered
from inferometer.data.preprocess import PRESETS, Preprocessing
from inferometer.data.preprocess import load as load_preprocessing
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import ConfigError, DataError
from inferometer.models import networks
from inferometer.models.form import FORM_WORDS
from inferometer.models.inspection import describe
from inferometer.models.roles import class_output, image_axes, image_input
from inferometer.models.summary import ModelSummary, TensorInfo
from inferometer.records import Precision
from inferometer.report.cells import Cell, Column, Table
from inferometer.store import write_atomically
from inferometer.study.checkup import Checkup, checkup
from inferometer.study.diagnose import Given, diagnose
from inferometer.study.examine import Examiner
from inferometer.study.model import ResolvedModel, resolve_model

NAME = "doctor"
_BATCH = 4  # images per call: results do not depend on it
_LOOKED_AT = 32  # images whose size is looked at
_OPEN_SIDE = 224  # where a file leaves height and width open

Progress = Callable[[str, int, int], None]


def command(
    model: Annotated[str | None, typer.Option("--model", help="An ONNX file.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Labelled images: a folder or archive.")] = None,
    labels: Annotated[Path | None, typer.Option("--labels", help=LABELS_HELP)] = None,
    preprocess: Annotated[
        str | None, typer.Option("--preprocess", help=f"What you use so far, to be judged: {PREPROCESS_HELP}")
    ] = None,
    label_offset: LabelOffsetOption = None,
    images: Annotated[int, typer.Option("--images", min=20, help="Use at most so many.")] = 300,
    engine: Annotated[str, typer.Option("--engine", help="What runs the model.")] = "onnxruntime",
    output: OutputOption = None,
    inputs: InputOption = None,
    input_shapes: InputShapeOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Chooses the images.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the preprocessing that fits to this YAML file.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Find out how a model wants its images.

    With both: which normalisation, order of channels, resizing, cropping and numbering of labels fit, by
    accuracy, and the YAML to use. With --model alone: what it is, and what each engine makes of it. With
    --data alone: what lies there.
    """
    if model is None and data is None:
        raise ConfigError("doctor: give --model FILE, --data DIR, or both")
    if out is not None:
        if model is None or data is None:
            raise ConfigError("doctor: --out writes what fits, which wants --model and --data")
        refuse_overwriting({"--out": out}, [Path(model), data])
    there = open_set(data, labels) if data is not None else None
    if model is None:
        return _tell(_Found(None, None, None, there, None, ()), as_json)
    words = {"model": model, "output": output, "inputs": inputs_of(inputs, input_shapes)}
    with tempfile.TemporaryDirectory(prefix="inferometer-doctor-") as scratch, stage_progress() as say:
        summary, entry, notes = _described(parse(ModelEntry, words, "doctor"))
        resolved = resolve_model(entry, Study(models=(entry,), kinds=(), seed=seed), Path(scratch))
        examined = checkup(resolved.path, summary, output, resolved.inputs, say)
        diagnosis = None
        why = _undiagnosable(resolved, image_input(summary.inputs))
        if there is not None and why is None:
            given = _given(preprocess, label_offset, resolved, describe(resolved.path))
            diagnosis = _diagnosed(resolved, there, engine, images, given, seed, say)
        elif there is not None:
            notes = (*notes, f"What fits cannot be told by accuracy: {why}.")
    if out is not None and diagnosis is not None:
        text = yaml.safe_dump(_fields(diagnosis.preprocessing), sort_keys=False)
        write_atomically(out, text.encode())
    return _tell(_Found(model, examined, diagnosis, there, output, notes), as_json)


def _described(entry: ModelEntry) -> tuple[ModelSummary, ModelEntry, tuple[str, ...]]:
    """The model's summary, and its entry with a size where the file leaves that of images open."""
    built_in = entry.model in networks.names() and not Path(entry.model).exists()
    summary = describe(networks.shapes_only(entry.model) if built_in else Path(entry.model))
    image = image_input(summary.inputs)
    axes = image_axes(image.shape) if image is not None and image.shape is not None else None
    if image is None or axes is None or None not in axes[1:] or image.name in entry.inputs:
        return summary, entry, ()
    channels, *sides = axes
    height, width = (_OPEN_SIDE if side is None else side for side in sides)
    first = image.shape is not None and image.shape[1] == channels
    shape = (channels, height, width) if first else (height, width, channels)
    inputs = {**entry.inputs, image.name: InputEntry(shape=shape)}
    said = (
        f"The file leaves the size of images open: {width} x {height} pixels are tried; "
        "--input-shape sets another."
    )
    return summary, entry.model_copy(update={"inputs": inputs}), (said,)


def _undiagnosable(resolved: ResolvedModel, image: TensorInfo | None) -> str | None:
    """Why what fits cannot be found out by accuracy."""
    if image is None or image.shape is None:
        return "the model takes no images"
    if resolved.not_scored is not None:
        return resolved.not_scored
    axes = image_axes(image.shape)
    if axes is None:
        return f"its input {image.name!r} has neither 1 nor 3 channels"
    if axes[1] != axes[2]:
        return f"its images are not square ({axes[2]} x {axes[1]}): only square ones are tried"
    if resolved.seeded:
        return "the weights of this network are random"
    return None


def _given(
    preprocess: str | None, label_offset: int | None, resolved: ResolvedModel, summary: ModelSummary
) -> Given | None:
    """What the user has so far, fit for the model's input."""
    if preprocess is None and label_offset is None:
        return None
    if preprocess is None:
        raise ConfigError("doctor: --label-offset is judged together with --preprocess: give both")
    image = image_input(summary.inputs)
    assert image is not None
    assert image.shape is not None
    sides = [side if isinstance(side, int) else None for side in image.shape]
    fitting = load_preprocessing(preprocess).for_input(sides, image.dtype or "float32")
    return Given(fitting, label_offset or 0)


def _diagnosed(
    resolved: ResolvedModel,
    there: ImageSet,
    engine: str,
    images: int,
    given: Given | None,
    seed: int,
    say: Progress,
) -> Diagnosis:
    runner = registry.engine(engine)
    precision: Precision = "int8" if resolved.quantized else "fp32"
    batch = resolved.fixed_batch or _BATCH
    options = {"threads": usable_cores(), "in_flight": 1}
    entries = ordered(there, seed)
    with runner.load(resolved.path, runner.devices()[0].name, precision, batch, options) as session:
        image = image_input(session.inputs)
        assert image is not None
        axes = image_axes(image.shape)
        assert axes is not None
        channels, side, _ = axes
        assert side is not None
        examiner = Examiner(
            session,
            class_output(session.outputs, resolved.output),
            batch,
            there.source,
            entries,
            resolved.inputs,
            resolved.label,
        )
        sizes = _sizes(there, images)
        return diagnose(
            examiner,
            side,
            channels,
            resolved.classes,
            integers=not image.dtype.startswith("float"),
            as_they_are=sizes == {(side, side)},
            images=images,
            given=given,
            on_progress=say,
        )


def _sizes(there: ImageSet, images: int) -> set[tuple[int, int]]:
    """(width, height) of some of the images, those that cannot be decoded left out."""
    step = max(1, len(there.entries) // min(images, _LOOKED_AT))
    found = set()
    for entry in there.entries[::step]:
        try:
            found.add(decode(there.source.read(entry.file), entry.file, "RGB").size)
        except DataError:
            continue
    return found


@dataclass(frozen=True)
class _Found:
    """Everything that was found."""

    model: str | None
    examined: Checkup | None
    diagnosis: Diagnosis | None
    there: ImageSet | None
    output: str | None
    notes: tuple[str, ...]

    @property
    def study(self) -> str | None:
        """The lines of a study that use what fits."""
        if self.diagnosis is None or not self.diagnosis.fits or self.diagnosis.devkit_labels:
            return None
        how = self.diagnosis.preprocessing
        entry: dict[str, Any] = {
            "model": self.model,
            "preprocess": how.name if how.name in PRESETS else "preprocess.yaml",
        }
        if self.diagnosis.label_offset:
            entry["label_offset"] = self.diagnosis.label_offset
        if self.output is not None:
            entry["output"] = self.output
        text = yaml.safe_dump({"models": [entry]}, sort_keys=False)
        if how.name in PRESETS:
            return text
        return (
            f"{text}# preprocess.yaml (or give --out FILE):\n{yaml.safe_dump(_fields(how), sort_keys=False)}"
        )


def _tell(found: _Found, as_json: bool) -> int:
    if as_json:
        print_json(_document(found))
        return 0
    if found.there is not None:
        print_sentences("The images", _about_set(found.there))
    if found.examined is not None:
        print_sentences("The model", _about_model(found.examined))
        print_tables([_engines_table(found.examined)])
    if found.diagnosis is not None:
        print_tables([_aspects_table(found.diagnosis)])
    lines = [*found.notes, *(sentences(found.diagnosis) if found.diagnosis else ())]
    print_sentences("What was found", lines)
    if found.study is not None:
        print_line("The YAML to use:\n")
        print_line(found.study)
    return 0


def _about_set(there: ImageSet) -> list[str]:
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
        lines.append(f"{there.ignored} files are no part of the set.")
    return lines


def _about_model(found: Checkup) -> list[str]:
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
    return lines


def _spelled(one: TensorInfo) -> str:
    shape = "of unknown shape" if one.shape is None else "x".join(str(side or "?") for side in one.shape)
    return f"{one.name!r}: {shape or 'one number'} {one.dtype or 'no tensor'}"


def _engines_table(found: Checkup) -> Table:
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
    )
    return Table("engines", "What runs it on this machine", columns, rows)


def _aspects_table(found: Diagnosis) -> Table:
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


def _fields(how: Preprocessing) -> dict[str, Any]:
    """What a preprocessing file must state."""
    kept = {"mean", "std", "channels"}
    plain = Preprocessing(mean=how.mean, std=how.std, channels=how.channels).model_dump(mode="json")
    content = how.model_dump(mode="json")
    return {key: value for key, value in content.items() if key in kept or value != plain[key]}


def _document(found: _Found) -> dict[str, Any]:
    there, examined, diagnosis = found.there, found.examined, found.diagnosis
    return {
        "data": None
        if there is None
        else {
            "path": str(there.root),
            "layout": there.layout,
            "numbering": there.numbering,
            "images": len(there.entries),
            "classes": len({entry.class_index for entry in there.entries}),
            "labels": [
                min(entry.class_index for entry in there.entries),
                max(entry.class_index for entry in there.entries),
            ],
            "ignored": there.ignored,
        },
        "model": None if examined is None else _model_document(found.model, examined),
        "fits": None if diagnosis is None else _fit_document(diagnosis),
        "notes": list(found.notes),
        "yaml": found.study,
    }


def _model_document(path: str | None, found: Checkup) -> dict[str, Any]:
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


def _fit_document(found: Diagnosis) -> dict[str, Any]:
    def difference(one: Any) -> dict[str, Any]:
        return {
            "delta": one.delta,
            "ci95": list(one.ci95),
            "p": one.p,
            "images": one.n,
            "verdict": one.verdict,
        }

    own: Mapping[str, Any] = _fields(found.preprocessing)
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

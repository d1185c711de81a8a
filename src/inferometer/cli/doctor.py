"""``inferometer doctor --data DIR --model M``: what a model and a set of images are, and how they fit."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from inferometer.analysis.checkup import Checkup
from inferometer.analysis.diagnosis import Diagnosis, sentences
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
from inferometer.config import ModelEntry, Study, parse
from inferometer.data.imageset import ImageSet, open_set
from inferometer.data.preprocess import PRESETS
from inferometer.errors import ConfigError
from inferometer.models.roles import image_input
from inferometer.report.doctor import (
    about_model,
    about_set,
    aspects_table,
    engines_table,
    fields_of,
    fit_document,
    model_document,
    set_document,
)
from inferometer.store import write_atomically
from inferometer.study.checkup import checkup
from inferometer.study.doctor import described, diagnosed, undiagnosable
from inferometer.study.model import resolve_model

NAME = "doctor"
_FILE = "preprocess.yaml"


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
    if model is None or data is None:
        for option, value in (("--out", out), ("--preprocess", preprocess), ("--label-offset", label_offset)):
            if value is not None:
                raise ConfigError(f"doctor: {option} is about what fits, which wants --model and --data")
    elif out is not None:
        read = [Path(model), data, *([labels] if labels else []), *([Path(preprocess)] if preprocess else [])]
        refuse_overwriting({"--out": out}, read)
    there = open_set(data, labels) if data is not None else None
    if model is None:
        return _tell(_Found(None, None, None, there, None, ()), as_json)
    words = {"model": model, "output": output, "inputs": inputs_of(inputs, input_shapes)}
    with tempfile.TemporaryDirectory(prefix="inferometer-doctor-") as scratch, stage_progress() as say:
        summary, entry, notes = described(parse(ModelEntry, words, "doctor"))
        resolved = resolve_model(entry, Study(models=(entry,), kinds=(), seed=seed), Path(scratch))
        examined = checkup(summary, resolved, say)
        diagnosis = None
        why = undiagnosable(resolved, image_input(summary.inputs), there)
        if there is not None and why is None:
            diagnosis = diagnosed(resolved, there, engine, images, preprocess, label_offset, seed, say)
        elif there is not None:
            notes = (*notes, f"What fits cannot be told by accuracy: {why}.")
    if out is not None and (diagnosis is None or not diagnosis.fits):
        notes = (*notes, f"{out} is not written: nothing fits.")
    elif out is not None and diagnosis is not None:
        text = yaml.safe_dump(fields_of(diagnosis.preprocessing), sort_keys=False)
        write_atomically(out, text.encode())
    return _tell(_Found(entry, examined, diagnosis, there, out, notes), as_json)


@dataclass(frozen=True)
class _Found:
    """Everything that was found."""

    entry: ModelEntry | None
    examined: Checkup | None
    diagnosis: Diagnosis | None
    there: ImageSet | None
    out: Path | None
    notes: tuple[str, ...]

    @property
    def study(self) -> str | None:
        """The lines of a study that use what fits."""
        if self.entry is None or self.diagnosis is None:
            return None
        if not self.diagnosis.fits or self.diagnosis.devkit_labels:
            return None
        how = self.diagnosis.preprocessing
        file = str(self.out) if self.out is not None else None if how.name in PRESETS else _FILE
        content = self.entry.model_dump(mode="json", exclude_unset=True, exclude_defaults=True)
        content["preprocess"] = file or how.name
        if self.diagnosis.label_offset:
            content["label_offset"] = self.diagnosis.label_offset
        return yaml.safe_dump({"models": [content]}, sort_keys=False)

    @property
    def own(self) -> str | None:
        """The preprocessing as a file of its own, when it is no preset and was not written."""
        if self.study is None or self.diagnosis is None or self.out is not None:
            return None
        how = self.diagnosis.preprocessing
        return None if how.name in PRESETS else yaml.safe_dump(fields_of(how), sort_keys=False)


def _tell(found: _Found, as_json: bool) -> int:
    if as_json:
        print_json(_document(found))
        return 0
    if found.there is not None:
        print_sentences("The images", about_set(found.there))
    if found.examined is not None:
        print_sentences("The model", about_model(found.examined))
        print_tables([engines_table(found.examined)])
    if found.diagnosis is not None and found.diagnosis.fits:
        print_tables([aspects_table(found.diagnosis)])
    lines = [*found.notes, *(sentences(found.diagnosis) if found.diagnosis else ())]
    print_sentences("What was found", lines)
    if found.study is not None:
        print_line("The YAML to use in a study:\n")
        print_line(found.study)
    if found.own is not None:
        print_line(f"and in a file {_FILE} (--out writes it):\n")
        print_line(found.own)
    return 0


def _document(found: _Found) -> dict[str, Any]:
    there, examined, diagnosis = found.there, found.examined, found.diagnosis
    return {
        "data": None if there is None else set_document(there),
        "model": None
        if examined is None
        else model_document(found.entry.model if found.entry else None, examined),
        "fits": None if diagnosis is None else fit_document(diagnosis),
        "notes": list(found.notes),
        "yaml": found.study,
        "preprocess_yaml": found.own,
    }

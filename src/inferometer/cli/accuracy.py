"""``inferometer accuracy MODEL [MODEL...]``: score models on the same labelled images, and compare."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from inferometer.analysis.grouping import PRECISION_ORDER
from inferometer.analysis.rows import Summary
from inferometer.analysis.summary import summarise
from inferometer.cli.console import print_findings, print_json, print_tables
from inferometer.cli.judge import setting_for
from inferometer.cli.options import (
    PREPROCESS_HELP,
    DecodeOption,
    InputOption,
    JsonOption,
    LabelOffsetOption,
    LabelsOption,
    OutputOption,
    inputs_of,
    precisions_of,
    raise_failure,
)
from inferometer.cli.outcome import run_with_progress
from inferometer.cli.weights import WeightsOption, weights_for
from inferometer.config import (
    AccuracySection,
    CalibrationSection,
    EngineEntry,
    ModelEntry,
    Study,
    parse,
)
from inferometer.errors import ConfigError
from inferometer.models import networks
from inferometer.models.files import load as load_model
from inferometer.models.inspection import describe
from inferometer.quantize.graph import prepare
from inferometer.quantize.note import calibration_of
from inferometer.quantize.sqnr import sqnr_rows
from inferometer.records import Precision, Record
from inferometer.report.cells import Table
from inferometer.report.layers import NoiseRow, noise_table
from inferometer.report.tables import result_tables
from inferometer.store import read_per_image
from inferometer.study.workbench import layer_noise

NAME = "accuracy"


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="ONNX files, float or quantized; a built-in network with --weights."
        ),
    ],
    data: Annotated[Path, typer.Option("--data", help="Labelled images: a folder, a zip or a tar.")],
    preprocess: Annotated[str | None, typer.Option("--preprocess", help=PREPROCESS_HELP)] = None,
    engine: Annotated[str, typer.Option("--engine")] = "onnxruntime",
    precision: Annotated[
        str | None, typer.Option("--precision", help="Default: fp32, and int8 for quantized files.")
    ] = None,
    images: Annotated[int | None, typer.Option("--images", help="Score at most so many.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Keep the records in this folder.")] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Show where in the quantized files noise arises.")
    ] = False,
    decode: DecodeOption = None,
    output: OutputOption = None,
    labels: LabelsOption = None,
    label_offset: LabelOffsetOption = None,
    inputs: InputOption = None,
    weights: WeightsOption = None,
    as_json: JsonOption = False,
) -> int:
    """Score models on the same images.

    Top-1, top-5 and paired differences; images that served a calibration are left out.
    """
    words = {
        "preprocess": preprocess,
        "decode": decode,
        "output": output,
        "label_offset": label_offset,
        "inputs": inputs_of(inputs, None),
    }
    wanted = precisions_of(precision) if precision else None
    source = {"data": str(data), "labels": str(labels) if labels else None}
    study = _study(models, source, words, engine, wanted, images, weights_for(models, weights))
    with tempfile.TemporaryDirectory(prefix="inferometer-accuracy-") as scratch:
        folder = out or Path(scratch)
        paths = dict(zip(_labels(models), models, strict=True))
        records = _in_order(run_with_progress(study, folder, quiet=True).records, list(paths))
        if not records:
            raise ConfigError(
                f"{folder}: holds these models' results under other names (a file was renamed): give another "
                "--out"
            )
        raise_failure(records)
        summary = summarise(records, partial(read_per_image, folder), all_pairs=True)
        noise = _noise(models, data, labels, study.models[0], engine) if layers else []
        if as_json:
            found = _document(summary, records, paths)
            print_json({**found, "layers": [vars(one) for one in noise]} if layers else found)
        else:
            print_tables([*result_tables(summary), *map(_noise_table, noise)])
            print_findings(summary)
    return 0


@dataclass(frozen=True)
class _Noise:
    """Where a quantized file's noise arises, against a float file."""

    a: str
    b: str
    images: int
    logits_sqnr_db: float | None
    layers: list[dict[str, Any]]
    unmatched: list[str]


def _noise(
    models: list[str], data: Path, labels: Path | None, entry: ModelEntry, engine: str
) -> list[_Noise]:
    """Of each quantized file against the first float one."""
    files = [Path(model) for model in models if Path(model).exists()]
    summaries = {file: describe(file) for file in files}
    exact = next((file for file in files if not summaries[file].is_quantized), None)
    quantized = [file for file in files if summaries[file].is_quantized]
    if exact is None or not quantized:
        raise ConfigError("accuracy: --layers compares quantized files with a float one: name both")
    prepared = prepare(load_model(exact))
    found = []
    for file in quantized:
        other = load_model(file)
        note = calibration_of(other)
        batch = summaries[exact].batch or summaries[file].batch
        with setting_for(summaries[exact], engine, data, entry, labels=labels, fixed_batch=batch) as setting:
            report = layer_noise(prepared, other, setting, note.image_hashes if note else ())
        rows, unmatched = sqnr_rows(report), list(report.unmatched)
        found.append(_Noise(str(exact), str(file), report.images, report.logits.db, rows, unmatched))
    return found


def _noise_table(noise: _Noise) -> Table:
    rows = [NoiseRow(row["layer"], row["op"], row["sqnr_db"], row["own_sqnr_db"]) for row in noise.layers]
    db = "none" if noise.logits_sqnr_db is None else f"{noise.logits_sqnr_db:.1f} dB"
    title = f"Noise in {Path(noise.b).name}; behind it, in the logits: {db} ({noise.images} images)"
    return noise_table(rows, title)


def _study(
    models: list[str],
    source: Mapping[str, str | None],
    words: Mapping[str, object],
    engine: str,
    precisions: tuple[Precision, ...] | None,
    images: int | None,
    weights: Mapping[str, str],
) -> Study:
    def own(model: str) -> tuple[Precision, ...]:
        if model in networks.names() and not Path(model).exists():
            return ("fp32",)
        return ("int8",) if describe(Path(model)).is_quantized else ("fp32",)

    entries = [
        {
            "model": model,
            "name": label,
            "weights": weights.get(model),
            "precisions": precisions or own(model),
            **words,
        }
        for model, label in zip(models, _labels(models), strict=True)
    ]
    return parse(
        Study,
        {
            "name": "accuracy",
            "models": entries,
            "engines": [EngineEntry(engine=engine)],
            "precisions": ["fp32"],
            "kinds": [],
            "accuracy": AccuracySection.model_validate(source)
            .model_copy(update={"images": images})
            .model_dump(),
            "calibration": CalibrationSection.model_validate(source)
            if precisions and "int8" in precisions
            else None,
        },
        "accuracy",
    )


def _labels(models: list[str]) -> list[str]:
    """Stems where they tell the models apart, else the paths as given."""
    stems = [Path(model).stem if Path(model).suffix else model for model in models]
    return stems if len(set(stems)) == len(stems) else models


def _in_order(records: Sequence[Record], labels: list[str]) -> list[Record]:
    """The records of these models in the order given: a kept folder may hold those of others."""
    own = [record for record in records if record.trial.model in labels]
    return sorted(
        own,
        key=lambda one: (labels.index(one.trial.model), PRECISION_ORDER.index(one.trial.precision)),
    )


def _document(summary: Summary, records: Sequence[Record], paths: Mapping[str, str]) -> dict[str, Any]:
    return {
        "models": [
            {
                "path": paths[record.trial.model],
                "engine": record.trial.engine,
                "precision": record.trial.precision,
                "images": record.accuracy.images,
                "top1": record.accuracy.top1,
                "top5": record.accuracy.top5,
                "excluded": record.accuracy.excluded,
                "skipped": list(record.accuracy.skipped_files),
            }
            for record in records
            if record.accuracy is not None
        ],
        "difference": [
            {
                "a": f"{paths[row.setup_a.model]} {row.setup_a.precision}",
                "b": f"{paths[row.setup_b.model]} {row.setup_b.precision}",
                "metric": row.metric,
                "images": row.images,
                "delta": row.delta,
                "ci95": list(row.interval),
                "p": row.p,
                "only_a": row.only_a,
                "only_b": row.only_b,
                "agreement": row.agreement,
                "verdict": row.verdict,
                "images_to_settle": row.images_to_settle,
            }
            for row in summary.differences
        ],
    }

"""``inferometer accuracy MODEL [MODEL...]``: score models on the same labelled images, and compare."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from inferometer.analysis.grouping import PRECISION_ORDER
from inferometer.analysis.rows import Summary
from inferometer.analysis.summary import summarise
from inferometer.cli.console import print_findings, print_json, print_tables
from inferometer.cli.options import PREPROCESS_HELP, JsonOption, precisions_of, raise_failure
from inferometer.cli.outcome import run_with_progress
from inferometer.config import AccuracySection, CalibrationSection, EngineEntry, ModelEntry, Study, parse
from inferometer.models import networks
from inferometer.models.inspection import describe
from inferometer.records import Precision, Record
from inferometer.report.tables import result_tables
from inferometer.store import read_per_image

NAME = "accuracy"


def command(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="ONNX files, float or quantized.")],
    data: Annotated[Path, typer.Option("--data", help="labels.csv and images, or one folder per class.")],
    preprocess: Annotated[str | None, typer.Option("--preprocess", help=PREPROCESS_HELP)] = None,
    engine: Annotated[str, typer.Option("--engine")] = "onnxruntime",
    precision: Annotated[
        str | None, typer.Option("--precision", help="Default: fp32, and int8 for quantized files.")
    ] = None,
    images: Annotated[int | None, typer.Option("--images", help="Score at most so many.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Keep the records in this folder.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Score models on the same images.

    Top-1, top-5 and paired differences; images that served a calibration are left out.
    """
    study = _study(models, data, preprocess, engine, precisions_of(precision) if precision else None, images)
    with tempfile.TemporaryDirectory(prefix="inferometer-accuracy-") as scratch:
        folder = out or Path(scratch)
        paths = dict(zip(_labels(models), models, strict=True))
        records = _in_order(run_with_progress(study, folder, quiet=True).records, list(paths))
        raise_failure(records)
        summary = summarise(records, partial(read_per_image, folder), all_pairs=True)
        if as_json:
            print_json(_document(summary, records, paths))
        else:
            print_tables(result_tables(summary))
            print_findings(summary)
    return 0


def _study(
    models: list[str],
    data: Path,
    preprocess: str | None,
    engine: str,
    precisions: tuple[Precision, ...] | None,
    images: int | None,
) -> Study:
    def own(model: str) -> tuple[Precision, ...]:
        if model in networks.names() and not Path(model).exists():
            return ("fp32",)
        return ("int8",) if describe(Path(model)).is_quantized else ("fp32",)

    entries = [
        ModelEntry(model=model, name=label, preprocess=preprocess, precisions=precisions or own(model))
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
            "accuracy": AccuracySection(data=str(data)).model_copy(update={"images": images}).model_dump(),
            "calibration": CalibrationSection(data=str(data))
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

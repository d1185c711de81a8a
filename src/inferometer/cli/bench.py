"""``inferometer bench MODEL``: one quick study of one model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from inferometer.cli.console import (
    note,
    print_findings,
    print_json,
    print_sentences,
    print_tables,
    study_progress,
)
from inferometer.cli.options import (
    PREPROCESS_HELP,
    DecodeOption,
    EngineOption,
    InputOption,
    InputShapeOption,
    JsonOption,
    LabelOffsetOption,
    LabelsOption,
    OutputOption,
    batches_of,
    bytes_of,
    exit_code_of,
    inputs_of,
    options_of,
    precisions_of,
)
from inferometer.cli.outcome import run_with_progress, summary_of
from inferometer.cli.weights import WeightsOption, weights_for
from inferometer.config import (
    AccuracySection,
    CalibrationSection,
    EngineEntry,
    Study,
    parse,
)
from inferometer.errors import ConfigError
from inferometer.records import Record
from inferometer.report.tables import result_tables
from inferometer.study.max_batch import MaxBatch, find_max_batches

NAME = "bench"
_NOT_KEPT = "records and raw time stamps were not kept: give --out DIR"


def command(
    model: Annotated[
        str, typer.Argument(help="A built-in network (inferometer models list) or an ONNX file.")
    ],
    engine: Annotated[str, typer.Option("--engine")] = "onnxruntime",
    device: Annotated[str | None, typer.Option("--device", help="Default: the engine's first.")] = None,
    option: EngineOption = None,
    precision: Annotated[
        str, typer.Option("--precision", help="Of fp32, tf32, fp16, bf16, int8; several with commas.")
    ] = "fp32",
    batch: Annotated[str, typer.Option("--batch", help="Such as 1,8,32.")] = "1,8",
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", help="Longest measurement of a trial; warm-up takes at most as long again."
        ),
    ] = 5.0,
    repeats: Annotated[
        int, typer.Option("--repeats", help="Processes per point; 1 supports no verdict.")
    ] = 3,
    data: Annotated[
        Path | None, typer.Option("--data", help="Labelled images: calibrate on a part, score the rest.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option("--preprocess", help=f"{PREPROCESS_HELP} Wanted with --data.")
    ] = None,
    decode: DecodeOption = None,
    output: OutputOption = None,
    labels: LabelsOption = None,
    label_offset: LabelOffsetOption = None,
    inputs: InputOption = None,
    input_shapes: InputShapeOption = None,
    weights: WeightsOption = None,
    meter: Annotated[
        str | None,
        typer.Option(
            "--meter", help="Measure power too: nvml, rapl; several with commas. See docs/power.md."
        ),
    ] = None,
    max_batch: Annotated[
        bool,
        typer.Option(
            "--find-max-batch", help="Search for the largest batch that runs, from the largest of --batch on."
        ),
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option("--memory", help="Private memory that a trial may take on the host: 512MB, 8GB."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Keep the records in this folder.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Measure the speed of one model.

    Throughput by batch, and latency. INT8 without --data is calibrated on synthetic input: for speed alone.
    """
    if labels is not None and data is None:
        raise ConfigError("bench: --labels names the labels of images: give --data DIR too")
    images = {"data": str(data), "labels": str(labels) if labels else None}
    study = parse(
        Study,
        {
            "name": "bench",
            "models": [
                {
                    "model": model,
                    "weights": weights_for([model], weights).get(model),
                    "preprocess": preprocess,
                    "decode": decode,
                    "output": output,
                    "label_offset": label_offset,
                    "inputs": inputs_of(inputs, input_shapes),
                }
            ],
            "engines": [EngineEntry(engine=engine, device=device, options=options_of(option))],
            "precisions": precisions_of(precision),
            "batches": batches_of(batch),
            "repeats": repeats,
            "measure": {"max_s": seconds, "warmup_max_s": seconds},
            "power": _power(meter, seconds),
            "limits": {"memory_bytes": bytes_of(memory, "--memory") if memory else None},
            "calibration": CalibrationSection.model_validate(images) if data else None,
            "accuracy": AccuracySection.model_validate(images) if data else None,
        },
        "bench",
    )
    with tempfile.TemporaryDirectory(prefix="inferometer-bench-") as scratch:
        folder = out or Path(scratch)
        records, found = run_with_progress(study, folder).records, None
        if max_batch:
            with study_progress(quiet=True) as watcher:
                found, tried = find_max_batches(study, folder, watcher, records)
            records += tried
        _show(records, found, folder, out, as_json)
    return exit_code_of(records)


def _power(meters: str | None, seconds: float) -> dict[str, object] | None:
    """Shorter windows than a study's: a first look."""
    if meters is None:
        return None
    return {
        "meters": [name.strip() for name in meters.split(",")],
        "idle_s": 10,
        "min_s": max(10.0, seconds),
        "idle_loaded_s": 5,
    }


def _show(
    records: tuple[Record, ...],
    found: tuple[MaxBatch, ...] | None,
    folder: Path,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print what was found; ``out`` is the folder that stays, ``folder`` the one that is there now."""
    if as_json:
        shown = records if out else [_without_sidecars(record) for record in records]
        document = {"records": [record.model_dump(mode="json", by_alias=True) for record in shown]}
        print_json(document if found is None else document | {"max_batch": [_fields(one) for one in found]})
        return
    summary = summary_of(folder)
    print_tables(result_tables(summary))
    print_findings(summary)
    print_sentences("The largest batch", [_sentence(one) for one in found or ()])
    if out:
        note(f"records: {out / 'records.jsonl'}")
        note(f"a page of them: inferometer report {out} --html report.html")
    else:
        note(_NOT_KEPT)


def _fields(found: MaxBatch) -> dict[str, object]:
    trial, beyond = found.beyond and found.beyond.trial, found.beyond
    return {
        "precision": found.precision,
        "batch": found.batch,
        "beyond": beyond
        and {"batch": trial and trial.batch, "status": beyond.status, "reason": beyond.reason},
    }


def _sentence(found: MaxBatch) -> str:
    largest = f"{found.precision}: batch {found.batch} runs"
    if found.beyond is None:
        return f"{largest}; no larger one is tried."
    why = f"({found.beyond.status}: {found.beyond.reason})"
    if found.batch is None:
        return f"{found.precision}: none runs, not even batch {found.beyond.trial.batch} {why}."
    return f"{largest}, {found.beyond.trial.batch} does not {why}."


def _without_sidecars(record: Record) -> Record:
    missing = record.missing | {"sidecars": _NOT_KEPT}
    return record.model_copy(update={"sidecars": (), "missing": missing})

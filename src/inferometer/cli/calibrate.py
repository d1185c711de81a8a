"""``inferometer calibrate MODEL``: an FP32 ONNX file to the QDQ file that an engine wants."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from inferometer import registry
from inferometer.cli.console import note, print_json, print_line
from inferometer.cli.options import PREPROCESS_HELP, JsonOption, raise_failure
from inferometer.cli.outcome import run_with_progress
from inferometer.config import CalibrationSection, EngineEntry, ModelEntry, Study, parse
from inferometer.contracts import QdqScheme
from inferometer.errors import CalibrationError, ConfigError, EngineError, StoreError
from inferometer.models import networks
from inferometer.models.files import load as load_model
from inferometer.models.files import save
from inferometer.models.inspection import describe
from inferometer.quantize.graph import prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.table import CalibrationTable
from inferometer.store import sidecar_of, write_atomically

NAME = "calibrate"


def command(
    model: Annotated[Path, typer.Argument(help="An FP32 ONNX file.")],
    out: Annotated[Path, typer.Option("--out", help="The QDQ file; its table lies beside it.")],
    data: Annotated[Path | None, typer.Option("--data", help="Images; labels are not used.")] = None,
    preprocess: Annotated[str | None, typer.Option("--preprocess", help=PREPROCESS_HELP)] = None,
    images: Annotated[int, typer.Option("--images", help="How many choose the ranges.")] = 1250,
    split: Annotated[str, typer.Option("--split", help="first, even, or a file of names.")] = "first",
    method: Annotated[str, typer.Option("--method", help="kl or minmax.")] = "kl",
    engine: Annotated[str, typer.Option("--engine", help="Whose form of QDQ to write.")] = "onnxruntime",
    table: Annotated[Path | None, typer.Option("--table", help="Use this table instead of images.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Orders the images.")] = 0,
    as_json: JsonOption = False,
) -> int:
    """Quantize an FP32 model to INT8.

    Chooses activation ranges on images, or takes them from a table, and writes the form that an engine wants.
    """
    if (data is None) == (table is None):
        raise ConfigError("calibrate: give either --data DIR (images) or --table FILE (ranges chosen before)")
    if str(model) in networks.names() and not model.exists():
        raise ConfigError(
            f"calibrate: wants an ONNX file; write one with: inferometer models export {model} FILE"
        )
    scheme = _scheme(engine)
    summary = describe(model)
    if summary.is_quantized:
        raise CalibrationError(f"{model}: is already quantized: use it as it is")
    ranges = (
        CalibrationTable.load(table)
        if table
        else _choose(model, data, preprocess, images, split, method, seed)
    )
    ranges.check_model(summary.sha256 or "")
    quantized = insert_qdq(prepare(load_model(model)), ranges, scheme)
    beside = out.with_suffix(".table.json")
    save(quantized, out)
    try:
        write_atomically(beside, ranges.to_bytes())
    except StoreError:
        out.unlink(missing_ok=True)  # a model without its table would be half of what was asked for
        raise
    facts = {
        "model": str(out),
        "table": str(beside),
        "table_sha256": ranges.content_sha256(),
        "method": ranges.method,
        "images": ranges.images,
        "tensors": len(ranges.tensors),
        "scheme": scheme.name,
        "weight_bits": scheme.weight_bits,
    }
    if as_json:
        print_json(facts)
    else:
        print_line(f"{out}: {scheme.name}, {len(ranges.tensors)} tensors")
        print_line(f"ranges: {ranges.method} on {ranges.images} images")
        print_line(f"{beside}: the ranges, for another engine")
    if scheme.reason:
        note(scheme.reason)
    return 0


def _scheme(name: str) -> QdqScheme:
    engine = registry.engine(name)
    devices = engine.devices()
    scheme = engine.qdq_scheme(devices[0].name if devices else "cpu", {})
    if scheme is None:
        raise EngineError(f"{name}: takes no quantized models")
    return scheme


def _choose(
    model: Path, data: Path | None, preprocess: str | None, images: int, split: str, method: str, seed: int
) -> CalibrationTable:
    """A study of one calibration trial, in a folder that is thrown away."""
    section = parse(
        CalibrationSection,
        {"data": str(data), "images": images, "split": split, "method": method},
        "calibrate",
    )
    study = Study(
        name="calibrate",
        models=(ModelEntry(model=str(model), preprocess=preprocess, calibration=section),),
        engines=(EngineEntry(engine="onnxruntime"),),
        precisions=("int8",),
        kinds=(),
        seed=seed,
    )
    with tempfile.TemporaryDirectory(prefix="inferometer-calibrate-") as folder:
        records = run_with_progress(study, Path(folder), quiet=True).records
        raise_failure(records)
        sidecar = sidecar_of(records[0], ".table.json")
        if sidecar is None:
            raise CalibrationError(f"{model}: the calibration left no table")
        return CalibrationTable.load(Path(folder) / sidecar.path)

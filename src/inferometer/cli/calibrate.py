"""``inferometer calibrate MODEL``: an FP32 ONNX file to the QDQ file that an engine wants."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from onnx import ModelProto

from inferometer import registry
from inferometer.cli.console import note, print_json, print_line
from inferometer.cli.judge import Judgement, Judging, judge, setting_for
from inferometer.cli.options import (
    PREPROCESS_HELP,
    DecodeOption,
    InputOption,
    JsonOption,
    LabelOffsetOption,
    LabelsOption,
    OutputOption,
    bytes_of,
    fraction_of,
    inputs_of,
    raise_failure,
    refuse_overwriting,
)
from inferometer.cli.outcome import run_with_progress
from inferometer.cli.weights import WeightsOption, with_weights
from inferometer.config import CalibrationSection, EngineEntry, ModelEntry, Study, parse
from inferometer.contracts import QdqScheme
from inferometer.errors import CalibrationError, ConfigError, EngineError, MissingExtra
from inferometer.models import networks
from inferometer.models.files import load as load_model
from inferometer.models.files import serialized
from inferometer.models.inspection import describe
from inferometer.quantize.graph import prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.methods import METHODS
from inferometer.quantize.table import CalibrationTable
from inferometer.quantize.trt_cache import cache_text, is_cache, read_cache
from inferometer.records import CalibrationInfo, Precision
from inferometer.report.layers import layers_png
from inferometer.store import sidecar_of, write_together

NAME = "calibrate"


def command(
    context: typer.Context,
    model: Annotated[
        Path, typer.Argument(help="An FP32 ONNX file, or a built-in network with --weights FILE.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The QDQ file; its table lies beside it.")],
    data: Annotated[Path | None, typer.Option("--data", help="Images; labels are used to measure.")] = None,
    preprocess: Annotated[str | None, typer.Option("--preprocess", help=PREPROCESS_HELP)] = None,
    images: Annotated[
        int | None,
        typer.Option("--images", help="How many choose the ranges (1250), at most half of them all."),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="first (the default), even, or a file of names.")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", help=f"{', '.join(METHODS)}; the default is kl.")
    ] = None,
    percentile: Annotated[
        float | None, typer.Option("--percentile", help="Of that method: per cent that does not saturate.")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="Whose form of QDQ to write.")] = "onnxruntime",
    table: Annotated[
        Path | None, typer.Option("--table", help="Ranges chosen before: a table, or a TensorRT cache.")
    ] = None,
    cache: Annotated[Path | None, typer.Option("--cache", help="Write a TensorRT cache too.")] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Rank layers by the damage each does.")] = False,
    max_drop: Annotated[
        str | None, typer.Option("--max-drop", help="Leave layers in float until top-1 drops by no more.")
    ] = None,
    bias_correction: Annotated[
        bool, typer.Option("--bias-correction", help="Take the mean shift of each layer back in its bias.")
    ] = False,
    memory: Annotated[str, typer.Option("--memory", help="For activations and images.")] = "256MB",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Orders the images.")] = 0,
    decode: DecodeOption = None,
    output: OutputOption = None,
    labels: LabelsOption = None,
    label_offset: LabelOffsetOption = None,
    inputs: InputOption = None,
    weights: WeightsOption = None,
    as_json: JsonOption = False,
) -> int:
    """Quantize an FP32 model to INT8.

    Chooses activation ranges on images, or takes them from a table, and writes the form that an engine wants.
    With --layers, --max-drop or --bias-correction it also measures: layers are ranked on images that chose
    ranges, accuracy and noise are told of the others.
    """
    allowed = None if max_drop is None else fraction_of(max_drop, "--max-drop")
    wanted = Judging(layers, allowed, bias_correction)
    given = {"images": images, "split": split, "method": method, "percentile": percentile}
    chosen = {name: value for name, value in given.items() if value is not None}
    _check(model, data, table, wanted, chosen, weights)
    if labels is not None and data is None:
        raise ConfigError("calibrate: --labels names the labels of images: give --data DIR too")
    if not out.name:
        raise ConfigError(f"calibrate: --out {str(out)!r} names no file")
    written = _Written(out, cache, wanted)
    refuse_overwriting(
        written.by_option(), [path for path in (model, data, labels, weights) if path is not None]
    )
    if table is not None:  # whose copy beside the model may be itself
        refuse_overwriting({"--out": out, "--cache": cache}, [table])
    memory_bytes = bytes_of(memory, "--memory")
    trained = with_weights(str(model), weights, context)
    if trained is not None:
        model, preprocess = trained.file, preprocess or trained.preprocess
    entry = parse(
        ModelEntry,
        {
            "model": str(model),
            "preprocess": preprocess,
            "decode": decode,
            "output": output,
            "label_offset": label_offset,
            "inputs": inputs_of(inputs, None),
        },
        "calibrate",
    )
    scheme = _scheme(engine)
    summary = describe(model)
    if summary.is_quantized:
        raise CalibrationError(f"{model}: is already quantized: use it as it is")
    info = None
    if table is not None:
        ranges = _read(table, model, summary.sha256 or "")
    else:
        source = {"data": str(data), "labels": str(labels) if labels else None}
        section = parse(CalibrationSection, {**chosen, **source, "memory_bytes": memory_bytes}, "calibrate")
        ranges, info = _choose(entry, section, _runner(engine, "fp32"), seed)
    ranges.check_model(summary.sha256 or "")
    prepared = prepare(load_model(model))
    judgement = None
    if wanted.wanted and data is not None:
        runs, batch = _runner(engine, "int8"), summary.batch
        with setting_for(
            summary, runs, data, entry, labels=labels, seed=seed, memory_bytes=memory_bytes, fixed_batch=batch
        ) as setting:
            quantized, judgement = judge(wanted, prepared, ranges, scheme, setting)
    else:
        quantized = insert_qdq(prepared, ranges, scheme)
    result = _Result(written, prepared, quantized, ranges, scheme, info, judgement)
    result.write()
    result.tell(as_json, images)
    return 0 if judgement is None or judgement.met else 1


@dataclass(frozen=True)
class _Written:
    """The files that a calibration leaves."""

    out: Path
    cache: Path | None
    wanted: Judging

    @property
    def table(self) -> Path:
        return self.out.with_suffix(".table.json")

    @property
    def layers(self) -> Path:
        return self.out.with_suffix(".layers.json")

    @property
    def picture(self) -> Path:
        return self.out.with_suffix(".layers.png")

    def by_option(self) -> dict[str, Path | None]:
        """By what the user named, or what follows from it."""
        ranked = self.wanted.layers or self.wanted.max_drop is not None
        return {
            "--out": self.out,
            "--cache": self.cache,
            "the table": self.table,
            "the layers' data": self.layers if ranked else None,
            "the layers' picture": self.picture if ranked else None,
        }


@dataclass(frozen=True)
class _Result:
    """What came of a calibration."""

    written: _Written
    prepared: ModelProto
    quantized: ModelProto
    ranges: CalibrationTable
    scheme: QdqScheme
    info: CalibrationInfo | None
    judgement: Judgement | None

    @property
    def ranked(self) -> Judgement | None:
        """The judgement if layers were ranked."""
        return self.judgement if self.judgement is not None and self.judgement.ranking else None

    def write(self) -> None:
        """All files or none: a model without its table would be half of what was asked for."""
        files = self.written
        contents = {
            files.out: serialized(self.quantized, files.out),
            files.table: self.ranges.to_bytes(),
        }
        if files.cache is not None:
            contents[files.cache] = cache_text(self.ranges, self.prepared).encode()
        if self.ranked is not None:
            text = json.dumps(self.ranked.document(), indent=1, allow_nan=False) + "\n"
            contents[files.layers] = text.encode()
            contents[files.picture] = layers_png(self.ranked.rows(), f"{files.out.name}: layers")
        write_together(contents)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {
            "model": str(self.written.out),
            "table": str(self.written.table),
            "table_sha256": self.ranges.content_sha256(),
            "method": self.ranges.method,
            "images": self.ranges.images,
            "tensors": len(self.ranges.tensors),
            "scheme": self.scheme.name,
            "weight_bits": self.scheme.weight_bits,
            "cache": str(self.written.cache) if self.written.cache else None,
            "forward_batch": self.info.forward_batch if self.info else None,
            "threads": self.info.threads if self.info else None,
            "stages_s": self.info.stages_s if self.info else None,
            "warnings": list(self.ranges.warnings),
        }
        if self.judgement is not None:
            found["measured"] = self.judgement.document()
        return found

    def tell(self, as_json: bool, asked: int | None) -> None:
        """Print it, and what is worth a note; ``asked`` is the number of images asked for."""
        if as_json:
            print_json(self.document())
        else:
            self.show()
        used = self.info.images if self.info else None
        if used is not None and used < (asked or 0):
            note(f"asked for {asked} images, {used} chose the ranges: half of a set is kept to measure on")
        if self.scheme.reason:
            note(self.scheme.reason)

    def show(self) -> None:
        """Print it as text."""
        files = self.written
        of = f"on {self.ranges.images} images" if self.ranges.images else "from a TensorRT cache"
        print_line(f"{files.out}: {self.scheme.name}, {len(self.ranges.tensors)} tensors")
        print_line(f"ranges: {self.ranges.method} {of}{_stages(self.info)}")
        print_line(f"{files.table}: the ranges, for another engine")
        if files.cache:
            print_line(f"{files.cache}: the ranges as a TensorRT calibration cache")
        for line in self.ranges.warnings:
            note(line)
        if self.judgement is not None:
            self.judgement.show()
        if self.ranked is not None:
            print_line(f"{files.picture}, {files.layers.name}: the layers by the damage each does")


def _check(
    model: Path,
    data: Path | None,
    table: Path | None,
    wanted: Judging,
    chosen: Mapping[str, object],
    weights: Path | None,
) -> None:
    if data is None and table is None:
        raise ConfigError("calibrate: give either --data DIR (images) or --table FILE (ranges chosen before)")
    if data is not None and table is not None and not wanted.wanted:
        raise ConfigError(
            "calibrate: --table FILE gives the ranges, so --data DIR is not used: leave one of them out"
        )
    if table is not None and chosen:
        raise ConfigError(
            f"calibrate: --table FILE gives the ranges: leave out --{', --'.join(sorted(chosen))}"
        )
    if wanted.wanted and data is None:
        raise ConfigError("calibrate: --layers, --max-drop and --bias-correction measure: give --data DIR")
    if weights is None and str(model) in networks.names() and not model.exists():
        raise ConfigError(
            f"calibrate: {model} has random weights, whose INT8 means nothing: give --weights FILE, or an "
            f"ONNX file (inferometer models export {model} FILE)"
        )


def _scheme(name: str) -> QdqScheme:
    scheme = registry.qdq_scheme(name, None, {})
    if scheme is None:
        raise EngineError(f"{name}: takes no quantized models")
    return scheme


def _runner(engine: str, precision: Precision) -> str:
    """The engine that computes here: the one asked for if it can, else another that computes the same."""
    runs = next((name for name in (engine, "onnxruntime", "openvino") if _computes(name, precision)), engine)
    if runs != engine:
        note(f"{engine} does not run here: {runs} computes in its place")
    return runs


def _computes(engine: str, precision: Precision) -> bool:
    try:
        found = registry.engine(engine)
        devices = found.devices()
        return bool(devices) and found.computes and found.precisions(devices[0].name, {})[precision] is None
    except MissingExtra:
        return False


def _read(table: Path, model: Path, sha256: str) -> CalibrationTable:
    """A table of ours, or TensorRT's."""
    if is_cache(table):
        return read_cache(table, prepare(load_model(model)), sha256)
    return CalibrationTable.load(table)


def _stages(info: CalibrationInfo | None) -> str:
    """Where the time went, in words."""
    if info is None or info.stages_s is None:
        return ""
    parts = [f"{name} {seconds:.1f} s" for name, seconds in info.stages_s.items() if name != "wall"]
    threads = f" (summed over {info.threads} threads)" if (info.threads or 1) > 1 else ""
    return f" in {info.stages_s['wall']:.1f} s: {', '.join(parts)}{threads}"


def _choose(
    entry: ModelEntry, section: CalibrationSection, engine: str, seed: int
) -> tuple[CalibrationTable, CalibrationInfo | None]:
    """A study of one calibration trial, in a folder that is thrown away."""
    study = Study(
        name="calibrate",
        models=(entry.model_copy(update={"calibration": section}),),
        engines=(EngineEntry(engine=engine),),
        precisions=("int8",),
        kinds=(),
        seed=seed,
    )
    with tempfile.TemporaryDirectory(prefix="inferometer-calibrate-") as folder:
        records = run_with_progress(study, Path(folder), quiet=True).records
        raise_failure(records)
        sidecar = sidecar_of(records[0], ".table.json")
        if sidecar is None:
            raise CalibrationError(f"{entry.model}: the calibration left no table")
        return CalibrationTable.load(Path(folder) / sidecar.path), records[0].calibration

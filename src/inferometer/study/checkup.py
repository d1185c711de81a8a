"""What a model file is, and what each engine of this machine makes of it: told by trying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from inferometer import registry
from inferometer.analysis.checkup import Attempt, Checkup
from inferometer.config import InputEntry
from inferometer.contracts import Engine
from inferometer.data.synthetic import synthetic_feeds
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import CalibrationError, InferometerError, MissingExtra, ModelError, Unsupported
from inferometer.models.files import load as load_model
from inferometer.models.roles import class_output
from inferometer.models.summary import ModelSummary
from inferometer.quantize.graph import observed_tensors, prepare
from inferometer.quantize.layout import WEIGHTED_OPS
from inferometer.records import Precision
from inferometer.study.model import ResolvedModel

__all__ = ["checkup"]

_PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16")


def checkup(
    summary: ModelSummary, resolved: ResolvedModel, on_progress: Callable[[str, int, int], None]
) -> Checkup:
    """Describe a model, load it on every engine there is, and run it once.

    Args:
        summary: Of the file as it was given.
        resolved: The same model as trials see it.
        on_progress: Told which engine is tried.

    Raises:
        ConfigError: There is no such output.
    """
    scored, why = None, None
    try:
        scored = class_output(summary.outputs, resolved.output)
    except ModelError as error:
        why = str(error)
    if not resolved.takes_images and why is None:
        why = "it takes no images: wants one input of four dimensions"
    int8_ok, int8 = _int8(resolved.path, summary)
    wanted: tuple[Precision, ...] = ("int8",) if summary.is_quantized else _PRECISIONS
    names = [name for name in registry.engine_names() if name != "null"]
    attempts: list[Attempt] = []
    for number, name in enumerate(names):
        on_progress(f"engine {name}", number, len(names))
        attempts += _attempts(name, resolved.path, summary, wanted, resolved.inputs)
    return Checkup(
        summary=summary,
        takes_images=resolved.takes_images,
        output=scored,
        not_scored=why,
        batch=_batch(summary, resolved),
        int8=int8,
        int8_ok=int8_ok,
        attempts=tuple(attempts),
    )


def _batch(summary: ModelSummary, resolved: ResolvedModel) -> str:
    if summary.batch is None:
        return "any"
    if resolved.fixed_batch is not None:
        return f"{summary.batch} alone: {resolved.fixed_why}"
    return f"{summary.batch} in the file, but any can be set"


def _int8(path: Path, summary: ModelSummary) -> tuple[bool | None, str]:
    if summary.is_quantized:
        return None, "is quantized already: it runs as int8, as it is"
    try:
        prepared = prepare(load_model(path))
        tensors = observed_tensors(prepared)
    except CalibrationError as error:
        return False, f"cannot be quantized here: {error}"
    layers = sum(node.op_type in WEIGHTED_OPS for node in prepared.graph.node)
    return True, f"can be quantized: {layers} layers with weights, ranges of {len(tensors)} tensors to choose"


def _attempts(
    name: str,
    path: Path,
    summary: ModelSummary,
    wanted: tuple[Precision, ...],
    inputs: Mapping[str, InputEntry],
) -> list[Attempt]:
    try:
        engine = registry.engine(name)
    except MissingExtra as error:
        return [Attempt(name, wanted[0], "absent", str(error))]
    devices = list(engine.devices())
    if not devices:
        refused = engine.precisions("", {}).get(wanted[0])
        return [Attempt(name, wanted[0], "absent", refused or "finds no device on this machine")]
    found = []
    for precision in wanted:
        reason = engine.precisions(devices[0].name, {})[precision]
        if reason is None:
            found.append(_tried(engine, devices[0].name, path, summary, precision, inputs))
        elif precision == wanted[0]:
            found.append(Attempt(name, precision, "refuses", reason))
    return found


def _tried(
    engine: Engine,
    device: str,
    path: Path,
    summary: ModelSummary,
    precision: Precision,
    inputs: Mapping[str, InputEntry],
) -> Attempt:
    options: dict[str, Any] = {"threads": usable_cores(), "in_flight": 1}
    ranges = {name: one.range for name, one in inputs.items() if one.range is not None}
    try:
        with engine.load(path, device, precision, summary.batch or 1, options) as session:
            session.infer(synthetic_feeds(session.inputs, 0, ranges=ranges))
    except Unsupported as error:
        return Attempt(engine.name, precision, "refuses", str(error))
    except InferometerError as error:
        return Attempt(engine.name, precision, "fails", str(error))
    return Attempt(engine.name, precision, "runs")

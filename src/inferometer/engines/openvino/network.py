"""An ONNX file as OpenVINO's own graph, with its batch set, and the graph compiled for a device."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from inferometer.engines.openvino.reading import misread, readable, unreadable, without_functions
from inferometer.engines.openvino.vendor import core, frontend, openvino, vendor_errors
from inferometer.errors import ModelError, Unsupported
from inferometer.models.files import save
from inferometer.models.shapes import batch_position

__all__ = ["compiled", "network"]

_READER_BYTES = 8 * 1024**2  # what the reader needs besides weights, generously


def network(model: Path, batch: int) -> Any:
    """The model with each open first dimension of an input set to ``batch``.

    Raises:
        ModelError: The file is no valid model.
        Unsupported: It holds what OpenVINO does not take, or another batch.
        OutOfMemory: Memory ran out.
    """
    if not model.is_file():
        raise ModelError(f"{model}: no such file")
    # The reader holds the file and a copy of its weights, and crashes where memory ends while it copies.
    with vendor_errors(model, reading=True):
        np.empty(2 * model.stat().st_size + _READER_BYTES, np.uint8)
    found = _converted(model)
    if not found.outputs:
        raise ModelError(f"{model}: openvino finds no output in it")
    shapes = [port.get_partial_shape() for port in found.inputs]
    for port, shape in zip(found.inputs, shapes, strict=True):
        if shape.rank.is_dynamic:
            raise Unsupported(f"{model}: input {port.get_any_name()!r} has no known rank: give its shape")
    position = batch_position(shapes)
    fixed = None if position is None or shapes[position][0].is_dynamic else shapes[position][0].get_length()
    if fixed not in (None, batch):
        raise Unsupported(f"{model}: its batch is fixed at {fixed}, asked for {batch}")
    for shape in shapes:
        if len(shape) and shape[0].is_dynamic:
            shape[0] = batch
    with vendor_errors(model):
        found.reshape(dict(zip(found.inputs, shapes, strict=True)))
    return found


def compiled(graph: Any, device: str, config: Mapping[str, Any], model: Path) -> openvino.CompiledModel:
    """Compile for a device, under OpenVINO's name.

    Raises:
        Unsupported: OpenVINO settles on another arithmetic than it was told, or has no kernel.
        OutOfMemory: Memory ran out.
        EngineError: Anything else.
    """
    with vendor_errors(model):
        made = core().compile_model(graph, device, dict(config))
        settled = made.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    if settled != config["INFERENCE_PRECISION_HINT"]:
        raise Unsupported(f"{model}: openvino would run {settled}, not {config['INFERENCE_PRECISION_HINT']}")
    return made


def _converted(model: Path) -> Any:
    """The file as OpenVINO's own graph; written in other words first where its reader needs that."""
    try:
        found = _from_file(model, model)
    except (ModelError, Unsupported) as error:
        flat = without_functions(model) if isinstance(error, Unsupported) else None
        if flat is None:
            reason = unreadable(model)
            raise (Unsupported(f"{model}: {reason}") if reason else error) from error
        return _rewritten(flat, model)
    return _rewritten(readable(model), model) if misread(model, found) else found


def _from_file(path: Path, named: Path) -> Any:
    """What the reader makes of ``path``; errors speak of ``named``."""
    reader = frontend(named)
    with vendor_errors(named, reading=True):
        return reader.convert(reader.load(str(path)))


def _rewritten(content: ModelProto, model: Path) -> Any:
    with tempfile.TemporaryDirectory(prefix="inferometer-openvino-") as folder:
        path = Path(folder) / model.name
        save(content, path)
        return _from_file(path, model)

"""What a quantized file says of its own calibration, kept in the model's metadata."""

from __future__ import annotations

import json

from onnx import ModelProto
from pydantic import ValidationError

from inferometer.contracts import QdqScheme
from inferometer.errors import CalibrationError
from inferometer.quantize.table import CalibrationTable, Source
from inferometer.records import Frozen

__all__ = ["NOTE_KEY", "CalibrationNote", "attach_note", "calibration_of"]

NOTE_KEY = "inferometer.calibration"
"""Key in the ONNX file's metadata_props; the value is JSON."""


class CalibrationNote(Frozen):
    """Where the ranges in a quantized file came from, and the form they were written in.

    Attributes:
        table_sha256: Content hash of the calibration table.
        method: Of the table.
        source: Of the table.
        images: How many there were; None where that is unknown.
        image_hashes: SHA-256 of each image: they are left out when accuracy is scored.
        model_sha256: Of the float model's file.
        scheme: Name of the QDQ scheme.
        weight_bits: 7 or 8.
        float_layers: Names of layers that could have been quantized and were left in float on request.
        biases_corrected: Whether the mean shifts of rounded weights were taken back in the biases.
    """

    table_sha256: str
    method: str
    source: Source
    images: int | None
    image_hashes: tuple[str, ...]
    model_sha256: str
    scheme: str
    weight_bits: int
    float_layers: tuple[str, ...] = ()
    biases_corrected: bool = False


def attach_note(
    model: ModelProto,
    table: CalibrationTable,
    scheme: QdqScheme,
    float_layers: frozenset[str],
    biases_corrected: bool,
) -> None:
    """Write the note into ``model``, in place."""
    note = CalibrationNote(
        table_sha256=table.content_sha256(),
        method=table.method,
        source=table.source,
        images=table.images,
        image_hashes=table.image_hashes,
        model_sha256=table.model_sha256,
        scheme=scheme.name,
        weight_bits=scheme.weight_bits,
        float_layers=tuple(sorted(float_layers)),
        biases_corrected=biases_corrected,
    )
    text = json.dumps(note.model_dump(mode="json"), separators=(",", ":"))
    model.metadata_props.add(key=NOTE_KEY, value=text)


def calibration_of(model: ModelProto) -> CalibrationNote | None:
    """The note of a file that Inferometer quantized; None when the file has none.

    Raises:
        CalibrationError: There is a note, but it cannot be read.
    """
    text = next((item.value for item in model.metadata_props if item.key == NOTE_KEY), None)
    if text is None:
        return None
    try:
        return CalibrationNote.model_validate_json(text)
    except ValidationError as error:
        raise CalibrationError(
            f"the model's metadata {NOTE_KEY!r} cannot be read ({error.errors()[0]['msg'].lower()}): "
            f"quantize the float model again"
        ) from error

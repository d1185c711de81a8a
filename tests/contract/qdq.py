"""A model in an engine's form of INT8, without measuring any ranges."""

from __future__ import annotations

from pathlib import Path

from inferometer.contracts import QdqScheme
from inferometer.models.files import load, save
from inferometer.quantize.graph import observed_tensors, prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.table import CalibrationTable, TensorRange


def with_qdq(path: Path, target: Path, scheme: QdqScheme) -> Path:
    """The QDQ form of a model, every activation between -8 and 8."""
    prepared = prepare(load(path))
    table = CalibrationTable(
        method="minmax",
        bins=None,
        tensors={name: TensorRange(lo=-8, hi=8, threshold=8) for name in observed_tensors(prepared)},
        image_hashes=(),
        images=1,
        source="synthetic",
        model_sha256="0" * 64,
    )
    save(insert_qdq(prepared, table, scheme), target)
    return target

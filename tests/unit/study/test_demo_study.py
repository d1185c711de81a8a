"""The demonstration's digits through a real study: calibration, accuracy and speed on ONNX Runtime."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from inferometer.analysis.summary import summarise
from inferometer.config import load_study
from inferometer.demo import extract, write_study
from inferometer.quantize.table import CalibrationTable
from inferometer.store import read_per_image, sidecar_of
from inferometer.study.run import run_study
from tests.unit.study.watcher import Remembering

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")


def test_int8_is_scored_on_images_that_neither_trained_nor_calibrated(tmp_path: Path) -> None:
    path = write_study(extract(tmp_path / "digits"), tmp_path / "demo.yaml")
    whole = load_study(path)
    study = whole.model_copy(update={"models": whole.models[-1:], "seed": 0})
    watcher = Remembering()
    records = run_study(study, tmp_path / "out", watcher).records
    assert [(record.trial.kind, record.trial.precision, record.status) for record in records] == [
        ("calibration", "fp32", "ok"),
        ("accuracy", "fp32", "ok"),
        ("accuracy", "int8", "ok"),
    ]
    assert watcher.steps
    calibration, *scored = records
    sidecar = sidecar_of(calibration, ".table.json")
    assert sidecar is not None
    table = CalibrationTable.load(tmp_path / "out" / sidecar.path)
    assert table.images == len(set(table.image_hashes)) == 300
    for record in scored:
        outcome = read_per_image(tmp_path / "out", record)
        assert outcome is not None
        assert not set(outcome.hashes) & set(table.image_hashes)
        assert record.accuracy is not None
        assert (record.accuracy.images, record.accuracy.excluded) == (1061, 300)
        assert record.accuracy.top1 >= 0.97
    (difference,) = [
        row
        for row in summarise(records, partial(read_per_image, tmp_path / "out")).differences
        if row.metric == "top1"
    ]
    assert difference.images == 1061
    assert abs(difference.delta) <= 0.015

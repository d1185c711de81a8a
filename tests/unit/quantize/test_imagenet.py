"""Trained weights and real images: the accuracy that INT8 keeps."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inferometer import registry
from inferometer.contracts import Session
from inferometer.models.files import load, save
from inferometer.quantize.calibrate import CalibrationBatch, StageTimes, calibrate
from inferometer.quantize.graph import expose, observed_tensors, prepare
from inferometer.quantize.histogram import BINS, HistogramCollector, Range
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.kl import LEVELS, kl_divergences
from inferometer.quantize.passes import Values, run_pass
from inferometer.quantize.table import CalibrationTable
from tests.unit.quantize.graphs import OrtSession, batches_of, ort_session, scheme, sqnr_db

pytestmark = pytest.mark.slow

BATCH = 10


def pixels(path: Path) -> np.ndarray:
    """RGB, short side 256 by bicubic, centre crop 224, (x - 127) / 128: [3, 224, 224] float32."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    scale = 256 / min(image.size)
    width, height = (256 if side == min(image.size) else int(side * scale) for side in image.size)
    left, top = (width - 224) // 2, (height - 224) // 2
    crop = image.resize((width, height), Image.Resampling.BICUBIC).crop((left, top, left + 224, top + 224))
    return ((np.asarray(crop, np.float32) - 127) / 128).transpose(2, 0, 1)


def test_int8_loses_at_most_one_and_a_half_points(test_data: Path) -> None:
    folder = test_data / "imagenet-sample"
    lines = (folder / "labels.csv").read_text(encoding="utf-8").splitlines()
    rows = sorted(csv.DictReader(lines), key=lambda row: row["file"])
    labels = np.array([int(row["class_index"]) for row in rows])
    x = np.stack([pixels(folder / row["file"]) for row in rows])
    model = load(test_data / "models" / "efficientnet_lite0.onnx")

    def logits(of: object) -> np.ndarray:
        session = ort_session(of)  # type: ignore[arg-type]
        parts = [session.run(None, {"input": x[1::2][at : at + BATCH]})[0] for at in range(0, 250, BATCH)]
        return np.concatenate(parts)

    prepared = prepare(model)
    names = observed_tensors(prepared)
    assert len(names) == 59
    session = OrtSession(expose(prepared, names), BATCH)
    exact = logits(model)
    right = (exact.argmax(axis=1) == labels[1::2]).mean()
    for method, noise_db in (("kl", 12.5), ("minmax", 16)):
        table = calibrate(
            session, batches_of(x[0::2], BATCH), names, method=method, model_sha256="0" * 64, source="images"
        )  # fmt: skip
        quantized = logits(insert_qdq(model, table, scheme()))
        top1 = (quantized.argmax(axis=1) == labels[1::2]).mean()
        agreement = (quantized.argmax(axis=1) == exact.argmax(axis=1)).mean()
        print(f"{method}: top-1 {top1:.3f} (float {right:.3f}), agreement {agreement:.3f}")
        assert top1 >= right - 0.015
        assert agreement >= 0.95
        assert sqnr_db(exact, quantized) > noise_db


def test_the_table_depends_neither_on_the_batch_nor_on_order_and_threads(
    test_data: Path, tmp_path: Path
) -> None:
    folder = test_data / "imagenet-sample"
    x = np.stack([pixels(path) for path in sorted(folder.glob("*.JPEG"))[:50]])
    prepared = prepare(load(test_data / "models" / "efficientnet_lite0.onnx"))
    names = observed_tensors(prepared)
    save(expose(prepared, names), tmp_path / "exposed.onnx")
    engine = registry.engine("onnxruntime")

    def opened(batch: int, threads: int = 1) -> Session:
        options = {"threads": threads, "in_flight": threads}
        return engine.load(tmp_path / "exposed.onnx", "cpu", "fp32", batch, options)

    def table(batch: int, threads: int = 1, order: list[int] | None = None) -> CalibrationTable:
        with opened(batch, threads) as session:
            return calibrate(
                session,
                batches_of(x, batch, order),
                names,
                method="kl",
                model_sha256="0" * 64,
                source="images",
            )

    reference = table(1)
    counts = HistogramCollector({name: Range(one.lo, one.hi) for name, one in reference.tensors.items()})

    def count(slot: int, batch: CalibrationBatch, number: int, values: Values) -> None:
        for name in names:
            counts.add(name, values[name])

    with opened(1) as session:
        run_pass(session, batches_of(x, 1), count, StageTimes())
    shuffled = np.random.default_rng(0).permutation(len(x)).tolist()
    worst_range = worst_divergence = 0.0
    for batch, threads, order in (
        (1, 1, None),
        (1, 2, shuffled),
        (7, 2, None),
        (7, 1, shuffled),
        (25, 1, None),
    ):
        other = table(batch, threads, order)
        assert other.image_hashes == reference.image_hashes
        for name, found in other.tensors.items():
            known = reference.tensors[name]
            top = max(-known.lo, known.hi)
            worst_range = max(worst_range, abs(found.lo - known.lo) / top, abs(found.hi - known.hi) / top)
            if known.threshold == top:  # few values, such as the pixels': nothing saturates
                assert found.threshold == max(-found.lo, found.hi)
                continue
            divergences = kl_divergences(counts.counts(name))
            chosen = round(found.threshold / (max(-found.lo, found.hi) / BINS) - 0.5) - LEVELS
            worst_divergence = max(worst_divergence, divergences[chosen] - divergences.min())
    print(f"lo and hi agree to {worst_range:.1e}, the divergence at T to {worst_divergence:.1e}")
    assert worst_range <= 1e-5
    assert worst_divergence <= 1e-6

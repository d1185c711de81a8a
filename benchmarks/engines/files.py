"""Model files for the scripts of this folder: built-in networks, the trained sample, and their INT8 forms."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from inferometer.contracts import Engine
from inferometer.data.synthetic import synthetic_feeds
from inferometer.models import networks
from inferometer.models.files import load, save
from inferometer.quantize.calibrate import CalibrationBatch, calibrate
from inferometer.quantize.graph import expose, observed_tensors, prepare
from inferometer.quantize.insert import insert_qdq

TRAINED = "efficientnet_lite0"
_IMAGES = 2  # they choose the ranges, which do not change what runs


def model_file(name: str, trained: Path | None, folder: Path) -> Path:
    """The float model: a built-in network is written into ``folder``, an ONNX file is taken as it is.

    Args:
        name: Of a built-in network, ``efficientnet_lite0``, or a path.
        trained: EfficientNet-lite0's file; None: below INFEROMETER_TEST_DATA.
        folder: Where what is written goes.
    """
    if name in networks.names():
        path = folder / f"{name}.onnx"
        networks.export(name, path)
        return path
    if name != TRAINED:
        return Path(name).absolute()
    data = os.environ.get("INFEROMETER_TEST_DATA")
    place = trained or (Path(data) / "models" / f"{TRAINED}.onnx" if data else None)
    if place is None or not place.is_file():
        raise SystemExit(
            f"{TRAINED} needs --efficientnet FILE, or INFEROMETER_TEST_DATA with models/{TRAINED}.onnx"
        )
    return place.absolute()


def int8_file(engine: Engine, model: Path, folder: Path) -> Path:
    """The model in the engine's own form of QDQ, with ranges from seeded random input: for speed alone."""
    out = folder / f"{model.stem}-{engine.name}-int8.onnx"
    logging.getLogger("inferometer").setLevel(logging.ERROR)  # it would say that two images are few
    prepared = prepare(load(model))
    tensors = observed_tensors(prepared)
    with tempfile.TemporaryDirectory() as scratch:
        exposed = Path(scratch) / "exposed.onnx"
        save(expose(prepared, tensors), exposed)
        with engine.load(exposed, "cpu", "fp32", 1, {"in_flight": 1}) as session:

            def read() -> Iterator[CalibrationBatch]:
                for seed in range(_IMAGES):
                    yield CalibrationBatch(feeds=synthetic_feeds(session.inputs, seed), count=1, hashes=())

            table = calibrate(
                session, read, tensors, method="minmax", source="synthetic", seed=0,
                model_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
            )  # fmt: skip
    scheme = engine.qdq_scheme("cpu", {})
    assert scheme is not None, "an engine of these scripts wants QDQ"
    save(insert_qdq(prepared, table, scheme), out)
    return out

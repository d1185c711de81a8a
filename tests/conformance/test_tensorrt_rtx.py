"""The real parser and builder of TensorRT-RTX take the files written for TensorRT. They need no GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from inferometer import registry
from inferometer.contracts import QdqScheme
from inferometer.models import networks
from inferometer.models.files import load, save
from inferometer.quantize.graph import expose, observed_tensors, prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.table import CalibrationTable, TensorRange
from tests.unit.quantize.graphs import MORE_NETS, NETS, table_of

trt = pytest.importorskip("tensorrt_rtx_bindings", reason="the extra 'tensorrt-rtx' is not installed")
ort = pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

ENGINES = ["tensorrt", "tensorrt_rtx"]
MINIATURES = {**NETS, **MORE_NETS}


class Log(trt.ILogger):  # type: ignore[misc]
    """Keeps what TensorRT says is wrong."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.errors: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
            self.errors.append(message)


def build(path: Path) -> tuple[int, list[str]]:
    """Parse and build a file: bytes of the serialized engine (0 when there is none), and the errors."""
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(path)):
        return 0, [parser.get_error(number).desc() for number in range(parser.num_errors)]
    config = builder.create_builder_config()
    entry = network.get_input(0)
    profile = builder.create_optimization_profile()
    profile.set_shape(entry.name, *[(batch, *entry.shape[1:]) for batch in (1, 8, 8)])
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    return (0 if engine is None else int(engine.nbytes)), log.errors


def check(model: ModelProto, folder: Path, weights: int) -> None:
    """It parses and builds without an error, and the engine holds at least ``weights`` bytes."""
    path = folder / "quantized.onnx"
    save(model, path)
    size, errors = build(path)
    assert not errors, "\n".join(errors)
    assert size > weights


def scheme_of(engine: str) -> QdqScheme:
    found = registry.qdq_scheme(engine, None, {})
    assert found is not None
    return found


def ranges(prepared: ModelProto, folder: Path) -> CalibrationTable:
    """Extremes of one seeded image: the form of a file does not depend on its ranges."""
    names, path = observed_tensors(prepared), folder / "exposed.onnx"
    save(expose(prepared, names), path)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    image = np.random.default_rng(0).standard_normal((1, *entry.shape[1:])).astype(np.float32)
    outputs = [name for name in names if name != entry.name]
    values = dict(zip(outputs, session.run(outputs, {entry.name: image}), strict=True))
    values[entry.name] = image
    return CalibrationTable(
        method="minmax",
        bins=None,
        tensors={
            name: TensorRange(
                lo=float(found.min()), hi=float(found.max()), threshold=float(np.abs(found).max())
            )
            for name, found in values.items()
        },
        image_hashes=(),
        images=1,
        source="synthetic",
        model_sha256="0" * 64,
    )


def weights_of(model: ModelProto) -> int:
    """Bytes of its integer weights."""
    stored = [item for item in model.graph.initializer if item.data_type == onnx.TensorProto.INT8]
    return sum(len(item.raw_data) for item in stored)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MINIATURES)
def test_miniatures_parse_and_build(name: str, engine: str, tmp_path: Path) -> None:
    model = MINIATURES[name]()
    check(insert_qdq(model, table_of(model), scheme_of(engine)), tmp_path, 0)


def test_channels_and_tensors_of_zeros_parse_and_build(tmp_path: Path) -> None:
    model = NETS["resnet"]()
    for item in model.graph.initializer:
        value = numpy_helper.to_array(item).copy()
        if item.name in ("a1.weight", "a1.bias"):
            value[:] = 0  # what comes out is zero for every image
        elif item.name == "b2.weight":
            value[3] = 0
        item.CopyFrom(numpy_helper.from_array(value, item.name))
    check(insert_qdq(model, table_of(model), scheme_of("tensorrt")), tmp_path, 0)


@pytest.fixture
def collected() -> Iterator[None]:
    """VGG alone takes half a gigabyte several times over."""
    yield
    gc.collect()


@pytest.mark.slow
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("name", networks.names())
def test_built_in_networks_parse_and_build(name: str, tmp_path: Path) -> None:
    prepared = prepare(networks.build(name))
    quantized = insert_qdq(prepared, ranges(prepared, tmp_path), scheme_of("tensorrt"))
    del prepared
    check(quantized, tmp_path, weights_of(quantized))


@pytest.mark.slow
def test_a_trained_network_parses_and_builds(test_data: Path, tmp_path: Path) -> None:
    prepared = prepare(load(test_data / "models" / "efficientnet_lite0.onnx"))
    table = ranges(prepared, tmp_path)
    for engine in ENGINES:
        quantized = insert_qdq(prepared, table, scheme_of(engine))
        check(quantized, tmp_path, weights_of(quantized))


def test_zero_points_other_than_0_are_refused(tmp_path: Path) -> None:
    model = NETS["resnet"]()
    path = tmp_path / "onnxruntime.onnx"
    save(insert_qdq(model, table_of(model), scheme_of("onnxruntime")), path)
    size, errors = build(path)
    assert size == 0
    assert any("zero point is not supported" in error for error in errors), errors


def test_biases_in_int32_are_refused(tmp_path: Path) -> None:
    model = NETS["resnet"]()
    path = tmp_path / "bias.onnx"
    save(insert_qdq(model, table_of(model), replace(scheme_of("tensorrt"), bias="int32")), path)
    size, errors = build(path)
    assert size == 0
    assert any("Int32" in error for error in errors), errors

"""The real parser and builder of TensorRT-RTX take the files written for TensorRT. They need no GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from inferometer import registry
from inferometer.contracts import QdqScheme
from inferometer.engines import schemes
from inferometer.engines.tensorrt.build import Recipe, build
from inferometer.engines.tensorrt.engine import TensorRt
from inferometer.engines.tensorrt.log import new_log
from inferometer.engines.tensorrt.model import readied
from inferometer.engines.tensorrt.types import Half, narrowed
from inferometer.errors import InferometerError, ModelError, Unsupported
from inferometer.models import networks
from inferometer.models.files import load, save
from inferometer.quantize.graph import expose, observed_tensors, prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.table import CalibrationTable, TensorRange
from tests.contract.engines import classifier
from tests.unit.engines.cuda_fakes import FakeCuda
from tests.unit.quantize.graphs import MORE_NETS, NETS, table_of

trt = pytest.importorskip("tensorrt_rtx_bindings", reason="the extra 'tensorrt-rtx' is not installed")
ort = pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

ENGINES = ["tensorrt", "tensorrt_rtx"]
MINIATURES = {**NETS, **MORE_NETS}


def built(path: Path, precision: str = "int8", floats: Half | None = None) -> bytes:
    """The plan of a file at batch 8, built as a session builds it, for TensorRT-RTX."""
    file = readied(path, 8, "tensorrt_rtx")
    model = narrowed(file.model, floats, str(path)).model if floats else file.model
    recipe = Recipe(tf32=precision == "tf32", threads=1)
    return build(trt, "tensorrt_rtx", new_log(trt), model, str(path), recipe, None).content


def check(model: ModelProto, folder: Path, weights: int) -> None:
    """It parses and builds, and the plan holds at least ``weights`` bytes."""
    path = folder / "quantized.onnx"
    save(model, path)
    assert len(built(path)) > weights


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
    with pytest.raises(
        InferometerError, match=r"onnxruntime\.onnx: tensorrt_rtx .*zero point is not supported"
    ):
        built(path)


def test_biases_in_int32_are_refused(tmp_path: Path) -> None:
    model = NETS["resnet"]()
    path = tmp_path / "bias.onnx"
    save(insert_qdq(model, table_of(model), replace(scheme_of("tensorrt"), bias="int32")), path)
    with pytest.raises(InferometerError, match=r"bias\.onnx: tensorrt_rtx .*Int32"):
        built(path)


@pytest.mark.parametrize("floats", ["fp16", "bf16"])
@pytest.mark.parametrize("name", MINIATURES)
def test_floats_of_16_bits_parse_and_build(name: str, floats: Half, tmp_path: Path) -> None:
    path, model = tmp_path / "float.onnx", MINIATURES[name]()
    save(model, path)
    if floats == "bf16" and any(node.op_type == "ConvTranspose" for node in model.graph.node):
        with pytest.raises(Unsupported, match=r"tensorrt_rtx has no kernel for it: .*ConvTranspose"):
            built(path, floats, floats)
    else:
        assert built(path, floats, floats)


@pytest.mark.parametrize("floats", ["fp16", "bf16"])
def test_int8_beside_floats_of_16_bits_parses_and_builds(floats: Half, tmp_path: Path) -> None:
    path = tmp_path / "quantized.onnx"
    model = NETS["resnet"]()
    save(insert_qdq(model, table_of(model), scheme_of("tensorrt_rtx")), path)
    assert built(path, "int8", floats)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_float32_parses_and_builds(precision: str, tmp_path: Path) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(classifier(), path)
    assert built(path, precision)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("g (float[N,3,3] x) => (float[N] y) { y=Det(x) }", Unsupported, "does not support Det in this form"),
        ("g (float[N,3] x) => (int64[2,K] y) { y=NonZero(x) }", Unsupported, "does not support NonZero"),
        ("g (float[N,3] x) => (float[N,3] y) { y=my.own.Frobnicate(x) }", Unsupported,
         "tensorrt_rtx does not know the operator Frobnicate"),
        ("g (float[N,3,8,8] x) => (float[N,4,8,8] y) { w=Constant<value=float[4,5,1,1]{"
         + ",".join(["1"] * 20) + "}>() y=Conv(x,w) }", ModelError, "Kernel weight dimension failed to"),
    ],
)  # fmt: skip
def test_what_the_parser_refuses_is_named(
    text: str, kind: type[InferometerError], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.onnx"
    header = '<ir_version: 8, opset_import: ["" : 17, "my.own" : 1]> '
    path.write_bytes(onnx.parser.parse_model(header + text).SerializeToString())
    with pytest.raises(kind, match=message) as caught:
        built(path)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)


class Refusing:
    """A runtime that refuses the GPU as TensorRT-RTX does: an error through the logger, and no engine."""

    text: ClassVar[str] = (
        "IRuntime::deserializeCudaEngine: Error Code 9: API Usage Error (The engine cannot run on this GPU, "
        "which has compute capability 9.0. Supported compute capabilities: 7.5, 8.0, 8.6, 8.9, 12.0, 12.1. "
        "TensorRT-RTX does not support this compute capability, so the engine cannot be rebuilt for it.)"
    )

    def __init__(self, log: Any) -> None:
        assert isinstance(log, trt.ILogger)
        self._log = log

    def deserialize_cuda_engine(self, plan: bytes) -> None:
        assert plan
        self._log.log(trt.ILogger.Severity.WARNING, "something harmless")
        self._log.log(trt.ILogger.Severity.ERROR, self.text)


class Vendor:
    """TensorRT-RTX itself, but for its runtime, which needs a GPU."""

    Runtime = Refusing

    def __getattr__(self, name: str) -> Any:
        return getattr(trt, name)


def test_a_gpu_that_it_does_not_run_on_is_unsupported(tmp_path: Path) -> None:
    path, cuda = tmp_path / "mini.onnx", FakeCuda(capability=(9, 0))
    onnx.save(classifier(), path)
    engine = TensorRt(
        "tensorrt_rtx", "TensorRT-RTX", Vendor(), cuda, schemes.tensorrt_rtx, times_kernels=False
    )
    with pytest.raises(Unsupported) as caught:
        engine.load(path, "cuda:0", "fp32", 2, {"cache": str(tmp_path / "plans"), "threads": 1})
    message = str(caught.value)
    assert message.startswith(
        f"{path}: tensorrt_rtx: API Usage Error (The engine cannot run on this GPU, which has "
    )
    assert "compute capability 9.0. Supported compute capabilities: 7.5, 8.0" in message
    assert "\n" not in message
    assert cuda.held() == {}

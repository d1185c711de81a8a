"""TensorRT as far as the engine uses it, on a CUDA of the tests' own and ONNX Runtime."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from enum import Enum, IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from inferometer.engines import schemes
from inferometer.engines.tensorrt.engine import TensorRt
from inferometer.engines.tensorrt.session import TensorRtSession
from inferometer.models.graph import true_inputs
from tests.contract.engines import classifier
from tests.unit.engines.cuda_fakes import FakeCuda

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

_NUMPY = {
    "float32": "FLOAT", "float16": "HALF", "int8": "INT8", "int32": "INT32", "int64": "INT64",
    "bool": "BOOL", "uint8": "UINT8", "float64": "FLOAT",
}  # fmt: skip


class Severity(Enum):
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class ILogger:
    def __init__(self) -> None:
        self.made = True

    Severity = Severity


class IProfiler:
    def __init__(self) -> None:
        self.made = True


class FakeTensorRt:
    """The module ``tensorrt``. ``fails`` has the error that an operation logs before it gives nothing."""

    __version__ = "11.0"
    ILogger, IProfiler = ILogger, IProfiler
    BuilderFlag = Enum("BuilderFlag", "TF32")
    ProfilingVerbosity = Enum("ProfilingVerbosity", "DETAILED")
    MemoryPoolType = Enum("MemoryPoolType", "WORKSPACE")
    LayerInformationFormat = Enum("LayerInformationFormat", "JSON")
    NetworkDefinitionCreationFlag = IntEnum("NetworkDefinitionCreationFlag", "STRONGLY_TYPED")

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda
        self.fails: dict[str, str] = {}
        self.builds: list[dict[str, Any]] = []
        self.refusal: tuple[str, str, str, str] | None = None

    def failed(self, operation: str, log: Any) -> bool:
        if operation not in self.fails:
            return False
        assert log.made
        log.log(Severity.WARNING, "a warning is no reason")
        log.log(Severity.ERROR, self.fails[operation])
        log.log(Severity.ERROR, "IThing::thing: Error Code 1: Internal Error (something else followed)")
        return True

    def Builder(self, log: Any) -> Any:
        if self.failed("builder", log):
            raise TypeError("pybind11::init(): factory function returned nullptr")
        return Builder(self, log)

    def OnnxParser(self, network: Any, log: Any) -> Any:
        return Parser(network, self.refusal, log)

    def Runtime(self, log: Any) -> Any:
        return SimpleNamespace(deserialize_cuda_engine=lambda plan: self._engine(plan, log))

    def _engine(self, plan: bytes, log: Any) -> Any:
        if self.failed("deserialize", log):
            return None
        head, _, content = plan.partition(b"\n")
        made = json.loads(head)
        if made["version"] != self.__version__:
            log.log(Severity.ERROR, "The engine plan file is not compatible with this version of TensorRT")
            return None
        return Engine(self, log, made, onnx.ModelProto.FromString(content))


class Parser:
    """``refusal``: code, operator, node and words of the error that it stops at; no code: none at all."""

    def __init__(self, network: Any, refusal: tuple[str, str, str, str] | None, log: Any) -> None:
        self.network, self.refusal, self.log = network, refusal, log
        self.num_errors = int(bool(refusal and refusal[0]))

    def get_error(self, number: int) -> Any:
        assert self.refusal is not None
        code, operator, node, words = self.refusal
        return SimpleNamespace(
            code=lambda: SimpleNamespace(name=code), node_operator=lambda: operator, node_name=lambda: node,
            desc=lambda: words,
        )  # fmt: skip

    def parse_from_file(self, path: str) -> bool:
        return self.parse(Path(path).read_bytes())

    def parse(self, content: bytes) -> bool:
        if self.refusal:
            self.log.log(Severity.ERROR, self.refusal[3])
            return False
        model = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(content))
        self.network.model = model
        for infos, tensors in (
            (true_inputs(model.graph), self.network.inputs),
            (model.graph.output, self.network.outputs),
        ):
            for info in infos:
                shape = tuple(side.dim_value for side in info.type.tensor_type.shape.dim)
                tensors.append(SimpleNamespace(name=info.name, shape=shape, is_shape_tensor=False))
        return True


class Network:
    def __init__(self, flags: int) -> None:
        self.flags, self.model = flags, onnx.ModelProto()
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.get_input, self.get_output = self.inputs.__getitem__, self.outputs.__getitem__

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)


class Config:
    def __init__(self) -> None:
        self.flags, self.timing, self.workspace = {FakeTensorRt.BuilderFlag.TF32}, b"", None
        self.set_flag, self.clear_flag = self.flags.add, self.flags.discard

    def set_memory_pool_limit(self, pool: Any, size: int) -> None:
        self.workspace = size

    def create_timing_cache(self, content: bytes) -> Any:
        return SimpleNamespace(content=content, serialize=lambda: content + b"timed;")

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        self.timing = cache.content
        self.get_timing_cache = lambda: cache
        return b"other" not in cache.content


class Builder:
    max_threads = 0

    def __init__(self, vendor: FakeTensorRt, log: Any) -> None:
        self.vendor, self.log = vendor, log
        self.create_network, self.create_builder_config = Network, Config

    def build_serialized_network(self, network: Any, config: Any) -> bytes | None:
        if self.vendor.failed("build", self.log):
            return None
        made = {
            "version": self.vendor.__version__, "tf32": bool(config.flags), "flags": network.flags,
            "level": config.builder_optimization_level, "workspace": config.workspace,
            "threads": self.max_threads, "timing": config.timing.decode(),
            "verbosity": config.profiling_verbosity.name,
        }  # fmt: skip
        self.vendor.builds.append(made)
        return json.dumps(made).encode() + b"\n" + network.model.SerializeToString()


class Engine:
    device_memory_size_v2 = 4096

    def __init__(self, vendor: FakeTensorRt, log: Any, made: dict[str, Any], model: onnx.ModelProto) -> None:
        self.vendor, self.log, self.made, self.model = vendor, log, made, model
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.tensors: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self.inputs = [node.name for node in self.session.get_inputs()]
        for info in (*true_inputs(model.graph), *model.graph.output):
            kind = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            shape = tuple(side.dim_value for side in info.type.tensor_type.shape.dim)
            self.tensors[info.name] = (shape, np.dtype(kind))
        self.get_tensor_name = list(self.tensors).__getitem__
        self.num_io_tensors = len(self.tensors)
        vendor.cuda.engines += 1

    def __del__(self) -> None:
        self.vendor.cuda.engines -= 1

    def get_tensor_dtype(self, name: str) -> Any:
        return SimpleNamespace(name=_NUMPY[self.tensors[name][1].name])

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name][0]

    def is_shape_inference_io(self, name: str) -> bool:
        return False

    def create_execution_context(self) -> Any:
        return None if self.vendor.failed("context", self.log) else Context(self)

    def create_engine_inspector(self) -> Any:
        return SimpleNamespace(get_engine_information=lambda form: json.dumps({"Layers": self.layers()}))

    def layers(self) -> list[dict[str, Any]]:
        """One layer for each node, behind one that changes the layout."""
        tensor = {"Name": "t", "Dimensions": [2, 3], "Format/Datatype": "Row major linear FP32"}
        sides = {"Inputs": [tensor], "Outputs": [tensor]}
        layers = [{"Name": "Reformatting CopyNode for Input 0", "LayerType": "Reformat", **sides}]
        for node in self.model.graph.node:
            tactic = "sm80_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32" if self.made["tf32"] else ""
            layers.append({
                "Name": node.name, "LayerType": "kgen", "TacticName": tactic,
                "Metadata": f"[ONNX Layer: {node.name}]", **sides,
            })  # fmt: skip
        return layers


class Context:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.places, self.profiler = engine, dict[str, int](), None

    def set_tensor_address(self, name: str, place: int) -> bool:
        self.places[name] = place
        return True

    def execute_async_v3(self, stream: int) -> bool:
        vendor = self.engine.vendor
        target = vendor.cuda.streams[stream]
        if vendor.failed("run" if target.recorded is None else "record", self.engine.log):
            return False
        target.put(self._run)
        return True

    def _run(self) -> None:
        engine = self.engine
        feeds = {name: self._array(name).copy() for name in engine.inputs}
        names = [name for name in engine.tensors if name not in engine.inputs]
        for name, values in zip(names, engine.session.run(names, feeds), strict=True):
            self._array(name)[...] = values
        if self.profiler is not None:
            for layer in engine.layers():
                self.profiler.report_layer_time(layer["Name"], 0.5)

    def _array(self, name: str) -> Any:
        shape, kind = self.engine.tensors[name]
        block = self.engine.vendor.cuda.memory[self.places[name]]
        return np.frombuffer(block, kind, int(np.prod(shape, dtype=int))).reshape(shape)


class Place:
    """A machine with a GPU and TensorRT, and a model on it."""

    def __init__(self, folder: Path, cuda: FakeCuda | None = None) -> None:
        self.cuda = cuda or FakeCuda()
        self.vendor = FakeTensorRt(self.cuda)
        self.engine = TensorRt("tensorrt", "TensorRT", self.vendor, self.cuda, schemes.tensorrt)
        self.plans, self.model = folder / "plans", folder / "mini.onnx"
        onnx.save(classifier(), self.model)

    def load(
        self, precision: Any = "fp32", batch: int = 2, device: str = "cuda:0", **options: Any
    ) -> TensorRtSession:
        options = {"cache": str(self.plans), "threads": 1, **options}
        return self.engine.load(self.model, device, precision, batch, options)

    def held(self) -> Mapping[str, int]:
        gc.collect()
        return self.cuda.held()


def feeds(seed: int = 1) -> dict[str, npt.NDArray[np.float32]]:
    """Two images of the miniature classifier."""
    return {"input": np.random.default_rng(seed).standard_normal((2, 3, 16, 16)).astype(np.float32)}

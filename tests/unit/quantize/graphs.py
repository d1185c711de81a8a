"""Miniature networks with the shapes of the real ones, and sessions to run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from inferometer import registry
from inferometer.contracts import QdqScheme, Session, TensorInfo
from inferometer.quantize.calibrate import CalibrationBatch, calibrate
from inferometer.quantize.graph import expose, observed_tensors, prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.table import CalibrationTable

IMAGE = (3, 24, 24)


def scheme(**changes: Any) -> QdqScheme:
    """What onnxruntime wants on a CPU without an 8-bit dot product: exact on every CPU."""
    given: dict[str, Any] = {
        "name": "ort", "activation_dtype": "uint8", "activation_symmetric": False, "weight_bits": 7,
        "weight_per_channel": True, "bias": "int32",
    }  # fmt: skip
    return QdqScheme(**{**given, **changes})


SYMMETRIC = {
    "name": "trt",
    "activation_dtype": "int8",
    "activation_symmetric": True,
    "weight_bits": 8,
    "bias": "float",
}


class Net:
    """Grows a graph from ``input`` [N, 3, 24, 24]; every method returns the name of its output."""

    def __init__(self, seed: int = 0, opset: int = 17, image: Sequence[int] = IMAGE) -> None:
        self.nodes: list[NodeProto] = []
        self.stored: list[TensorProto] = []
        self.rng = np.random.default_rng(seed)
        self.opset, self.image = opset, list(image)

    def store(self, name: str, value: npt.ArrayLike, dtype: Any = np.float32) -> str:
        self.stored.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind: str, inputs: str | list[str], output: str, **attributes: Any) -> str:
        names = [inputs] if isinstance(inputs, str) else inputs
        self.nodes.append(helper.make_node(kind, names, [output], name=f"{output}/{kind}", **attributes))
        return output

    def conv(
        self, x: str, name: str, inputs: int, outputs: int, size: int = 3, *, group: int = 1,
        bias: bool = True, **attributes: Any,
    ) -> str:  # fmt: skip
        fan = inputs // group * size * size
        weight = self.rng.normal(0, fan**-0.5, (outputs, inputs // group, size, size))
        names = [x, self.store(f"{name}.weight", weight)]
        if bias:
            names.append(self.store(f"{name}.bias", self.rng.normal(0, 0.3, outputs)))
        pads = attributes.pop("pads", [size // 2] * 4)
        return self.op("Conv", names, name, group=group, pads=pads, **attributes)

    def gemm(self, x: str, name: str, inputs: int, outputs: int, *, trans_b: int = 1) -> str:
        shape = (outputs, inputs) if trans_b else (inputs, outputs)
        weight = self.store(f"{name}.weight", self.rng.normal(0, inputs**-0.5, shape))
        bias = self.store(f"{name}.bias", self.rng.normal(0, 0.1, outputs))
        return self.op("Gemm", [x, weight, bias], name, transB=trans_b)

    def relu(self, x: str, name: str) -> str:
        return self.op("Relu", x, name)

    def relu6(self, x: str, name: str) -> str:
        low, high = self.store(f"{name}.min", 0.0), self.store(f"{name}.max", 6.0)
        return self.op("Clip", [x, low, high], name)

    def pool(self, x: str, name: str, size: int = 2, stride: int = 2) -> str:
        pads = [(size - stride + 1) // 2] * 4 if stride == 1 else [0] * 4
        return self.op("MaxPool", x, name, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads)

    def lrn(self, x: str, name: str) -> str:
        return self.op("LRN", x, name, size=5, alpha=1e-4, beta=0.75, bias=1.0)

    def model(self, output: str = "logits") -> ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "mini",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", *self.image])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.stored,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)  # gives the output its shape
        del model.graph.value_info[:]
        onnx.checker.check_model(model, full_check=True)
        return model


def resnet() -> ModelProto:
    net = Net()
    x = net.pool(net.relu(net.conv("input", "stem", 3, 16), "stem.relu"), "pool")
    y = net.relu(net.conv(x, "a1", 16, 16), "a1.relu")
    x = net.relu(net.op("Add", [net.conv(y, "a2", 16, 16), x], "a.add"), "a.relu")
    y = net.relu(net.conv(x, "b1", 16, 24, strides=[2, 2]), "b1.relu")
    skip = net.conv(x, "b.skip", 16, 24, 1, pads=[0] * 4, strides=[2, 2])
    x = net.relu(net.op("Add", [net.conv(y, "b2", 24, 24), skip], "b.add"), "b.relu")
    x = net.op("Flatten", net.op("GlobalAveragePool", x, "gap"), "flat")
    net.gemm(x, "logits", 24, 10)
    return net.model()


def googlenet() -> ModelProto:
    net = Net()
    x = net.lrn(net.pool(net.relu(net.conv("input", "conv1", 3, 16), "relu1"), "pool1"), "norm1")
    x = net.pool(net.lrn(net.relu(net.conv(x, "conv2", 16, 24), "relu2"), "norm2"), "pool2")
    one = net.relu(net.conv(x, "one", 24, 8, 1), "one.relu")
    three = net.relu(net.conv(x, "three.reduce", 24, 8, 1), "three.reduce.relu")
    three = net.relu(net.conv(three, "three", 8, 16), "three.relu")
    pooled = net.relu(net.conv(net.pool(x, "branch.pool", 3, 1), "proj", 24, 8, 1), "proj.relu")
    x = net.pool(net.op("Concat", [one, three, pooled], "concat", axis=1), "pool3")
    x = net.op("Dropout", net.op("Flatten", net.op("GlobalAveragePool", x, "gap"), "flat"), "drop")
    net.op("Softmax", net.gemm(x, "logits", 32, 10), "prob", axis=1)
    return net.model("prob")


def alexnet() -> ModelProto:
    net = Net()
    x = net.pool(net.lrn(net.relu(net.conv("input", "conv1", 3, 16), "relu1"), "norm1"), "pool1")
    x = net.relu(net.conv(x, "conv2", 16, 24, group=2), "relu2")
    x = net.op("Flatten", net.pool(x, "pool2"), "flat")
    x = net.relu(net.gemm(x, "fc6", 24 * 6 * 6, 32, trans_b=0), "relu6")
    net.gemm(x, "logits", 32, 10)
    return net.model()


def mobilenet() -> ModelProto:
    net = Net()
    x = net.relu6(net.conv("input", "stem", 3, 16, strides=[2, 2]), "stem.relu6")
    y = net.relu6(net.conv(x, "dw", 16, 16, group=16), "dw.relu6")
    x = net.conv(y, "project", 16, 8, 1)
    y = net.relu6(
        net.conv(net.relu6(net.conv(x, "expand", 8, 32, 1), "expand.relu6"), "dw2", 32, 32, 5, group=32),
        "dw2.relu6",
    )
    x = net.op("Add", [x, net.conv(y, "project2", 32, 8, 1)], "add")
    x = net.op("Flatten", net.op("GlobalAveragePool", x, "gap"), "flat")
    net.gemm(x, "logits", 8, 10)
    return net.model()


def gated(net: Net, x: str, name: str, channels: int, gate: str) -> str:
    """Squeeze and excite: ``x`` times a gate between 0 and 1 for each of its channels."""
    y = net.op("GlobalAveragePool", x, f"{name}.gap")
    y = net.relu(net.conv(y, f"{name}.fc1", channels, 8, 1), f"{name}.fc1.relu")
    y = net.conv(y, f"{name}.fc2", 8, channels, 1)
    limits = {"alpha": 1 / 6, "beta": 0.5} if gate == "HardSigmoid" else {}
    return net.op("Mul", [x, net.op(gate, y, f"{name}.gate", **limits)], f"{name}.scaled")


def mobilenet_v3() -> ModelProto:
    net = Net()
    x = net.op("HardSwish", net.conv("input", "stem", 3, 16, strides=[2, 2]), "stem.hs")
    y = net.op("HardSwish", net.conv(x, "expand", 16, 32, 1), "expand.hs")
    y = net.op("HardSwish", net.conv(y, "dw", 32, 32, 5, group=32), "dw.hs")
    y = net.conv(gated(net, y, "se", 32, "HardSigmoid"), "project", 32, 16, 1)
    x = net.op("Add", [x, y], "add")
    x = net.op("Flatten", net.op("GlobalAveragePool", x, "gap"), "flat")
    net.gemm(net.op("HardSwish", net.gemm(x, "fc", 16, 32), "fc.hs"), "logits", 32, 10)
    return net.model()


def silu(net: Net, x: str, name: str) -> str:
    return net.op("Mul", [x, net.op("Sigmoid", x, f"{name}.sigmoid")], name)


def efficientnet() -> ModelProto:
    net = Net()
    x = silu(net, net.conv("input", "stem", 3, 16, strides=[2, 2]), "stem.silu")
    y = silu(net, net.conv(x, "expand", 16, 32, 1), "expand.silu")
    y = silu(net, net.conv(y, "dw", 32, 32, group=32), "dw.silu")
    y = net.conv(gated(net, y, "se", 32, "Sigmoid"), "project", 32, 16, 1)
    x = net.op("Add", [y, x], "add")
    x = net.op("Flatten", net.op("GlobalAveragePool", x, "gap"), "flat")
    net.gemm(x, "logits", 16, 10)
    return net.model()


def darknet() -> ModelProto:
    net = Net()
    x = net.op("LeakyRelu", net.conv("input", "stem", 3, 16, strides=[2, 2]), "stem.leaky", alpha=0.1)
    y = net.op("LeakyRelu", net.conv(x, "a", 16, 8, 1), "a.leaky", alpha=0.1)
    y = net.op("LeakyRelu", net.conv(y, "b", 8, 16), "b.leaky", alpha=0.1)
    x = net.op("Flatten", net.op("GlobalAveragePool", net.op("Add", [x, y], "add"), "gap"), "flat")
    net.gemm(x, "logits", 16, 10)
    return net.model()


def curved() -> ModelProto:
    """PRelu and Elu, average pooling, a Concat of signed and unsigned."""
    net = Net()
    slope = net.store("slope", net.rng.uniform(0, 0.3, (16, 1, 1)))
    x = net.op("PRelu", [net.conv("input", "stem", 3, 16), slope], "stem.prelu")
    x = net.op("AveragePool", x, "average", kernel_shape=[2, 2], strides=[2, 2])
    y = net.op("Elu", net.conv(x, "a", 16, 16), "a.elu", alpha=1.0)
    z = net.relu(net.conv(x, "b", 16, 8, group=4), "b.relu")
    x = net.relu(net.conv(net.op("Concat", [y, z], "join", axis=1), "c", 24, 16), "c.relu")
    x = net.op("Flatten", net.op("GlobalAveragePool", x, "gap"), "flat")
    net.gemm(x, "logits", 16, 10)
    return net.model()


def unet() -> ModelProto:
    net = Net()
    x = net.relu(net.conv("input", "down", 3, 16), "down.relu")
    y = net.relu(net.conv(net.pool(x, "pool"), "deep", 16, 24), "deep.relu")
    weight, bias = net.rng.normal(0, 0.1, (24, 16, 2, 2)), net.rng.normal(0, 0.1, 16)
    names = [y, net.store("up.weight", weight), net.store("up.bias", bias)]
    y = net.relu(net.op("ConvTranspose", names, "up", strides=[2, 2]), "up.relu")
    x = net.relu(net.conv(net.op("Concat", [y, x], "join", axis=1), "merge", 32, 16), "merge.relu")
    net.conv(x, "logits", 16, 4, 1)
    return net.model()


def perceptron() -> ModelProto:
    """Matrix products: one of each form that runs on integers, and two that stay in float."""
    net = Net()
    x = net.op("Reshape", ["input", net.store("rows", [0, 1728], np.int64)], "row")
    x = net.relu(net.gemm(x, "fc1", 1728, 32), "fc1.relu")
    x = net.relu(net.gemm(x, "fc2", 32, 24, trans_b=0), "fc2.relu")
    x = net.op("MatMul", [x, net.store("fc3.weight", net.rng.normal(0, 0.2, (24, 16)))], "fc3")
    x = net.op("Reshape", [net.op("Elu", x, "elu"), net.store("square", [0, 4, 4], np.int64)], "squares")
    x = net.op("MatMul", [net.store("left", net.rng.normal(0, 0.5, (4, 4))), x], "constant.first")
    x = net.op("MatMul", [x, net.op("Transpose", x, "turned", perm=[0, 2, 1])], "no.constant")
    net.gemm(net.op("Flatten", x, "flat"), "logits", 16, 10)
    return net.model()


MORE_NETS = {
    "mobilenet_v3": mobilenet_v3, "efficientnet": efficientnet, "darknet": darknet, "curved": curved,
    "unet": unet, "perceptron": perceptron,
}  # fmt: skip

NETS = {"resnet": resnet, "googlenet": googlenet, "alexnet": alexnet, "mobilenet": mobilenet}


def images(count: int, seed: int = 1) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, *IMAGE)).astype(np.float32)


class FakeSession(Session):
    """Outputs computed by a function of the feeds: no engine, and able to go wrong."""

    def __init__(
        self, batch: int, compute: Any, outputs: Sequence[str], inputs: Sequence[str] = ("input",)
    ) -> None:
        self.inputs = tuple(TensorInfo(name, (batch, None), "float32") for name in inputs)
        self.outputs = tuple(TensorInfo(name, (batch, None), "float32") for name in outputs)
        self._compute, self._feeds = compute, {}

    def _prepare(self, slot: int, feeds: Mapping[str, npt.NDArray[Any]]) -> None:
        self._feeds = dict(feeds)

    def submit(self, slot: int) -> None: ...

    def wait(self, slot: int) -> None: ...

    def results(self, slot: int) -> dict[str, npt.NDArray[Any]]:
        return dict(self._compute(self._feeds))

    def executed(self) -> tuple[()]:
        return ()

    def profile(self) -> tuple[()]:
        return ()

    def close(self) -> None: ...


class OrtSession(FakeSession):
    """A model on onnxruntime, one thread."""

    def __init__(self, model: ModelProto, batch: int) -> None:
        session = ort_session(model)
        names = [item.name for item in session.get_outputs()]
        super().__init__(batch, lambda feeds: zip(names, session.run(names, feeds), strict=True), names)
        self.inputs = (TensorInfo("input", (batch, *session.get_inputs()[0].shape[1:]), "float32"),)


def ort_session(model: ModelProto, optimized: Path | None = None, *, fuse: bool = True, **more: Any) -> Any:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not fuse:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimized:
        options.optimized_model_filepath = str(optimized)
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"], **more
    )


def run(model: ModelProto, x: npt.NDArray[np.float32], *, fuse: bool = True) -> npt.NDArray[np.float32]:
    output: npt.NDArray[np.float32] = ort_session(model, fuse=fuse).run(None, {"input": x})[0]
    return output


def kernels(model: ModelProto, folder: Path, **options: Any) -> Counter[str]:
    """Operators of the graph that onnxruntime really runs."""
    path = folder / "optimized.onnx"
    ort_session(model, path, **options)
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def openvino_layers(model: ModelProto, folder: Path) -> Counter[tuple[str, str]]:
    """Layers, each with its precision, of the graph that openvino really runs."""
    if find_spec("openvino") is None:
        pytest.skip("the extra 'openvino' is not installed")
    engine = registry.engine("openvino")
    reason = engine.precisions("cpu", {})["int8"]
    if reason:
        pytest.skip(reason)
    path = folder / "openvino.onnx"
    onnx.save(model, path)
    # A batch of few rows would join matrix products in one layer, which does not tell its precision.
    with engine.load(path, "cpu", "int8", 16, {"threads": 1}) as session:
        return Counter((layer.op, layer.precision) for layer in session.executed())


def batches_of(x: npt.NDArray[np.float32], batch: int, order: Sequence[int] | None = None) -> Any:
    """A source of batches, the last one filled up with its last image."""
    rows = list(range(len(x))) if order is None else list(order)

    def read() -> Iterator[CalibrationBatch]:
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            filled = x[part + part[-1:] * (batch - len(part))]
            yield CalibrationBatch({"input": filled}, len(part), tuple(f"{row:064x}" for row in part))

    return read


def table_of(model: ModelProto, method: str = "minmax", count: int = 24) -> CalibrationTable:
    prepared = prepare(model)
    tensors = observed_tensors(prepared)
    session = OrtSession(expose(prepared, tensors), 8)
    return calibrate(
        session, batches_of(images(count), 8), tensors, method=method, model_sha256="0" * 64, source="images"
    )


def quantized(model: ModelProto, **changes: Any) -> tuple[ModelProto, ModelProto]:
    """The prepared model and its QDQ form under `scheme`, by min-max."""
    prepared = prepare(model)
    return prepared, insert_qdq(prepared, table_of(model), scheme(**changes))


def sqnr_db(exact: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    """Signal to quantization noise, decibels."""
    noise = np.square(exact - other, dtype=np.float64).sum()
    return float(10 * np.log10(np.square(exact, dtype=np.float64).sum() / noise))

"""Writing miniature models, and what is expected of each: the corpus's registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

__all__ = ["CASES", "Case", "conv_net", "info", "model", "node", "normal", "register"]

node = helper.make_node
Kind = TensorProto.DataType


@dataclass(frozen=True)
class Case:
    """A model and what must happen to it.

    Attributes:
        build: Makes it.
        batches: Those that it is run at.
        onnxruntime: None when it runs there, else what the refusal says (a regular expression).
        openvino: The same for OpenVINO.
        batch: None when `set_batch` can give it any, else what the refusal says.
        shapes: Lengths of open axes, by input.
        ranges: What the inputs are fed with, where random numbers would not do.
        described: Fields of its summary.
        quantized: None when INT8 can be made of it, else what the refusal says; "" to leave that out.
        skipped: Outputs that engines run but do not hand out.
        reference: Whether onnx's own reference computes it (and right).
        rows: Whether each row of an output is what it is alone.
        rowwise: Outputs of which that holds; all when empty.
        tolerance: Relative to the largest value of an output.
    """

    build: Callable[[], ModelProto]
    batches: tuple[int, ...] = (1, 2)
    onnxruntime: str | None = None
    openvino: str | None = None
    batch: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    described: Mapping[str, Any] = field(default_factory=dict)
    quantized: str | None = ""
    skipped: tuple[str, ...] = ()
    reference: bool = True
    rows: bool = True
    rowwise: tuple[str, ...] = ()
    tolerance: float = 1e-4


CASES: dict[str, Case] = {}


def register(**expected: Any) -> Callable[[Callable[[], ModelProto]], Callable[[], ModelProto]]:
    """Put a function that makes a model into the corpus, under its own name."""

    def kept(build: Callable[[], ModelProto]) -> Callable[[], ModelProto]:
        name = build.__name__
        assert name not in CASES, name
        CASES[name] = Case(build, **expected)
        return build

    return kept


def info(
    name: str, shape: Sequence[int | str | None] | None, kind: int = TensorProto.FLOAT
) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: Mapping[str, Any] | None = None,
    *,
    opset: int = 17,
    ir: int = 8,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[Any] = (),
) -> ModelProto:
    stored = [
        value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value), name)
        for name, value in (weights or {}).items()
    ]
    graph = helper.make_graph(nodes, "small", inputs, outputs, stored)
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=functions)


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def conv_net(
    batch: int | str | None = "N",
    *,
    source: str = "x",
    result: str = "y",
    side: int | str = 8,
    classes: int = 10,
    kind: int = TensorProto.FLOAT,
    dtype: Any = np.float32,
    last: Sequence[NodeProto] = (),
    outputs: Sequence[ValueInfoProto] | None = None,
    opset: int = 17,
    ir: int = 8,
) -> ModelProto:
    """Conv, BatchNorm, Relu, Conv, pooling, Flatten, Gemm to ``logits``, then ``last``."""
    weights = {
        "w1": normal(8, 3, 3, 3, dtype=dtype) * dtype(0.3), "shift": normal(8, seed=2, dtype=dtype),
        "scale": normal(8, seed=1, dtype=dtype) ** 2 + dtype(0.5), "mean": normal(8, seed=3, dtype=dtype),
        "variance": normal(8, seed=4, dtype=dtype) ** 2 + dtype(0.5),
        "w2": normal(8, 8, 3, 3, seed=5, dtype=dtype) * dtype(0.2),
        "w3": normal(8, classes, seed=6, dtype=dtype), "b3": normal(classes, seed=7, dtype=dtype),
    }  # fmt: skip
    final = "logits" if last else result
    nodes = [
        node("Conv", [source, "w1"], ["c1"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], ["n1"]),
        node("Relu", ["n1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c2"], ["r2"]),
        node("GlobalAveragePool", ["r2"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], [final]),
        *last,
    ]
    wanted = outputs or [info(result, [batch, classes], kind)]
    return model(nodes, [info(source, [batch, 3, side, side], kind)], wanted, weights, opset=opset, ir=ir)

"""Writing miniature models in the tests of this folder, and running them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

__all__ = ["info", "model", "node", "normal", "run", "run_onnxruntime"]

node = helper.make_node


def info(name: str, shape: Sequence[int | str | None], kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    ir: int = 8,
    domains: Sequence[str] = (),
    functions: Sequence[Any] = (),
) -> ModelProto:
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, stored)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=functions)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(target: ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    """By onnx's own reference."""
    return ReferenceEvaluator(target).run(None, feeds)


def run_onnxruntime(target: ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    """By onnxruntime without any rewriting of the graph; skips the test without it."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(target.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)

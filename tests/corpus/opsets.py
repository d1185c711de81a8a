"""One small network as each operator set writes it: what changed between them is all there."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto

from tests.corpus.building import info, model, node, normal

__all__ = ["network_of"]

Parts = tuple[list[NodeProto], dict[str, np.ndarray]]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def network_of(opset: int, *, upsample: bool = True) -> ModelProto:
    """[N, 3, 8, 8] to [N, 4], of operators whose form depends on the operator set."""
    weights: dict[str, np.ndarray] = {
        "w": normal(4, 3, 3, 3) * 0.3, "gamma": normal(4, seed=1), "beta": normal(4, seed=2),
        "mean": normal(4, seed=3),
        "variance": normal(4, seed=4) ** 2 + 1, "v": normal(16, 4, seed=5) * 0.3, "c": normal(4, seed=6),
    }  # fmt: skip
    window = 8 if upsample else 4
    nodes = [
        *_padded(opset, weights),
        node("Conv", ["p", "w"], ["c1"]),
        node("BatchNormalization", ["c1", "gamma", "beta", "mean", "variance"], ["n1"], epsilon=1e-3),
        *_clipped(opset, weights),
        *_dropped(opset),
        *(_upsampled(opset, weights) if upsample else [node("Identity", ["d1"], ["u1"])]),
        node("AveragePool", ["u1"], ["a1"], kernel_shape=[window, window], strides=[window, window]),
        *_summed(opset, weights),
        *_turned(opset, weights),
        node("Flatten", ["t1"], ["f1"]),
        node("Gemm", ["f1", "v", "c"], ["g1"]),
        *_softened(opset, weights),
    ]  # fmt: skip
    found = model(
        nodes, [info("x", ["N", 3, 8, 8])], [info("y", ["N", 4])], weights, opset=opset, ir=_ir(opset)
    )
    if found.ir_version < 4:  # weights must be inputs too
        found.graph.input.extend(info(t.name, list(t.dims), t.data_type) for t in found.graph.initializer)
    return found


def _ir(opset: int) -> int:
    """The file format that came with an operator set, nearly: up to 3 weights are inputs too."""
    return 3 if opset < 9 else 7 if opset < 15 else 8 if opset < 19 else 10


def _padded(opset: int, weights: dict[str, np.ndarray]) -> list[NodeProto]:
    pads = [0, 0, 1, 1, 0, 0, 1, 1]
    if opset < 11:
        return [node("Pad", ["x"], ["p"], pads=pads, value=0.5)]
    weights |= {"pads": ints(*pads), "fill": np.float32(0.5)}
    return [node("Pad", ["x", "pads", "fill"], ["p"])]


def _clipped(opset: int, weights: dict[str, np.ndarray]) -> list[NodeProto]:
    if opset < 11:
        return [node("Clip", ["n1"], ["r1"], min=0.0, max=6.0)]
    weights |= {"low": np.float32(0), "high": np.float32(6)}
    return [node("Clip", ["n1", "low", "high"], ["r1"])]


def _dropped(opset: int) -> list[NodeProto]:
    return [node("Dropout", ["r1"], ["d1"], ratio=0.4) if opset < 12 else node("Dropout", ["r1"], ["d1"])]


def _upsampled(opset: int, weights: dict[str, np.ndarray]) -> list[NodeProto]:
    scales = [1.0, 1.0, 2.0, 2.0]
    if opset < 9:
        return [node("Upsample", ["d1"], ["u1"], scales=scales, mode="nearest")]
    weights["scales"] = np.array(scales, np.float32)
    if opset < 10:
        return [node("Upsample", ["d1", "scales"], ["u1"], mode="nearest")]
    if opset < 11:
        return [node("Resize", ["d1", "scales"], ["u1"], mode="nearest")]
    form = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
    if opset < 13:
        weights["roi"] = np.zeros(0, np.float32)
    return [node("Resize", ["d1", "roi" if opset < 13 else "", "scales"], ["u1"], **form)]


def _summed(opset: int, weights: dict[str, np.ndarray]) -> list[NodeProto]:
    """The mean of two axes, kept, added to what is there."""
    mean = node("ReduceMean", ["a1"], ["m1"], axes=[2, 3])
    if opset >= 18:
        weights["sides"] = ints(2, 3)
        mean = node("ReduceMean", ["a1", "sides"], ["m1"])
    total = node("ReduceSum", ["a1"], ["q1"], axes=[1], keepdims=1)
    if opset >= 13:
        weights["channels"] = ints(1)
        total = node("ReduceSum", ["a1", "channels"], ["q1"], keepdims=1)
    return [mean, total, node("Add", ["a1", "m1"], ["h1"]), node("Add", ["h1", "q1"], ["s1"])]


def _turned(opset: int, weights: dict[str, np.ndarray]) -> list[NodeProto]:
    """An axis added and taken away again."""
    if opset < 13:
        return [node("Unsqueeze", ["s1"], ["z1"], axes=[1]), node("Squeeze", ["z1"], ["t1"], axes=[1])]
    weights["added"] = ints(1)
    return [node("Unsqueeze", ["s1", "added"], ["z1"]), node("Squeeze", ["z1", "added"], ["t1"])]


def _softened(opset: int, weights: dict[str, np.ndarray]) -> list[NodeProto]:
    """A softmax over two axes at once, which from opset 13 on must be written otherwise."""
    weights["square"] = ints(0, 2, 2)
    folded = node("Reshape", ["g1", "square"], ["k1"])
    if opset < 13:
        soft = [node("Softmax", ["k1"], ["o1"], axis=1)]
    else:
        weights["flat"] = ints(0, 4)
        soft = [
            node("Reshape", ["k1", "flat"], ["l1"]),
            node("Softmax", ["l1"], ["e1"], axis=-1),
            node("Reshape", ["e1", "square"], ["o1"]),
        ]
    return [folded, *soft, node("Flatten", ["o1"], ["y"])]

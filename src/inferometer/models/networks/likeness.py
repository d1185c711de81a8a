"""Whether an ONNX file whose weights fit a network also computes what the network computes.

Names and shapes do not tell all: CaffeNet has the tensors of AlexNet and pools before it normalises, the
first ResNet has its strides elsewhere. Where the file holds the graph, each layer is compared with what the
network does: its strides, pads and groups, and what stands between it and the layer before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onnx import NodeProto

from inferometer.errors import ModelError
from inferometer.models.graph import attribute
from inferometer.models.networks.catalogue import shapes_only
from inferometer.models.networks.naming import Naming
from inferometer.models.stored import WeightFile

__all__ = ["BATCHNORM_EPSILON", "check_nodes"]

BATCHNORM_EPSILON = 1e-5
"""Added to a variance. Source: the default of torch.nn.BatchNorm2d, with which torchvision trains ResNets."""

_LAYERS = ("Conv", "Gemm", "MatMul")
_PASSING = ("Relu", "Dropout", "Flatten", "Reshape", "Identity", "BatchNormalization")
_SAME = {"Sum": "Add", "GlobalAveragePool": "average", "AveragePool": "average", "ReduceMean": "average"}


def check_nodes(name: str, naming: Naming, file: WeightFile) -> None:
    """Refuse the graph of another network with the same tensors.

    Raises:
        ModelError: A layer is used in another way than in the network.
    """
    found = _layers(file.nodes)
    own = _layers(shapes_only(name).graph.node)
    for layer, origin in naming.origins.items():
        wanted, got = own[f"{layer}.weight"], found.get(origin.weight)
        if got != wanted:
            raise ModelError(
                f"{file.path}: has the tensors of {name} but is another network: it uses {origin.weight} as "
                f"{_words(got)}, {name} as {_words(wanted)}; bench the file itself"
            )
    for node in file.nodes:
        epsilon = attribute(node, "epsilon", BATCHNORM_EPSILON)
        if node.op_type == "BatchNormalization" and abs(epsilon / BATCHNORM_EPSILON - 1) > 1e-3:
            raise ModelError(
                f"{file.path}: its BatchNorm has an epsilon of {epsilon:g}, that of {name} has "
                f"{BATCHNORM_EPSILON:g}; bench the file itself"
            )


_Use = tuple[tuple[Any, ...], ...]


def _layers(nodes: Iterable[NodeProto]) -> dict[str, _Use]:
    """By weight: the layer, and what its input passed through since the layer before."""
    listed = list(nodes)
    producers = {output: node for node in listed for output in node.output}
    found: dict[str, _Use] = {}
    for node in listed:
        if node.op_type in _LAYERS and len(node.input) > 1:
            found.setdefault(node.input[1], (_layer(node), *_way(node.input[0], producers)))
    return found


def _layer(node: NodeProto) -> tuple[Any, ...]:
    if node.op_type != "Conv":
        return (node.op_type, ("transB", attribute(node, "transB", 0)))
    return (
        "Conv",
        ("strides", *attribute(node, "strides", [1, 1])),
        ("pads", *attribute(node, "pads", [0] * 4)),
        ("dilations", *attribute(node, "dilations", [1, 1])),
        ("group", attribute(node, "group", 1)),
    )


def _way(tensor: str, producers: dict[str, NodeProto]) -> list[tuple[Any, ...]]:
    """Nodes back to the nearest layer, sum or concatenation, without those that change nothing here."""
    way: list[tuple[Any, ...]] = []
    node = producers.get(tensor)
    while node is not None and node.op_type not in (*_LAYERS, "Concat"):
        kind = _SAME.get(node.op_type, node.op_type)
        if kind == "LRN":
            values = [attribute(node, key, default) for key, default in _LRN.items()]
            way.append((kind, *(float(f"{value:.4g}") for value in values)))
        elif kind not in _PASSING:
            way.append((kind,))
        if kind == "Add":
            break
        node = producers.get(node.input[0]) if node.input else None
    return way


# Source: ONNX operator LRN, its defaults (size has none).
_LRN = {"size": 0, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}


def _words(use: _Use | None) -> str:
    if use is None:
        return "something else than a convolution or matrix product"
    (kind, *settings), *way = use
    told = ", ".join(f"{key} {'x'.join(str(value) for value in values)}" for key, *values in settings)
    behind = " and ".join(str(step[0]) for step in reversed(way)) if way else "the layer before"
    return f"{kind} ({told}) behind {behind}"

"""Graphs as OpenVINO shows them, of forms that depend on the CPU: its library is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from inferometer.engines.openvino_layers import executed_layers


class Kind:
    def __init__(self, name: str) -> None:
        self.name, self.bitwidth = name, {"f32": 32, "bf16": 16, "u8": 8, "i8": 8}[name]

    def get_type_name(self) -> str:
        return self.name


class Shape(tuple[int, ...]):
    is_static = True


class Value(str):
    def astype(self, kind: type[str]) -> str:
        return kind(self)


class Port:
    def __init__(self, node: Any, shape: Sequence[int], kind: str) -> None:
        self.node, self.shape, self.kind = node, Shape(shape), Kind(kind)

    def get_source_output(self) -> Any:
        return self

    def get_node(self) -> Any:
        return self.node

    def get_partial_shape(self) -> Shape:
        return self.shape

    def get_shape(self) -> Shape:
        return self.shape

    def get_element_type(self) -> Kind:
        return self.kind


class Node:
    def __init__(
        self, kind: str, name: str, inputs: Sequence[Any], shape: Sequence[int], dtype: str = "f32",
        ran_in: str | None = None, origins: str | None = None,
    ) -> None:  # fmt: skip
        self.kind, self.name = kind, name
        self.given = [node.output(0) for node in inputs]
        self.port = Port(self, shape, dtype)
        self.notes = {
            "layerType": Value(kind),
            "runtimePrecision": Value(ran_in or dtype),
            "originalLayersNames": Value(name if origins is None else origins),
        }

    def get_type_name(self) -> str:
        return self.kind

    def get_friendly_name(self) -> str:
        return self.name

    def inputs(self) -> list[Port]:
        return self.given

    def outputs(self) -> list[Port]:
        return [self.port]

    def output(self, _: int) -> Port:
        return self.port

    def get_rt_info(self) -> dict[str, Value]:
        return self.notes


class Graph:
    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes

    def get_ordered_ops(self) -> tuple[Node, ...]:
        return self.nodes


def separable() -> Graph:
    """A 1x1 convolution to 32 channels, then a depthwise one of stride 2, as read."""
    x = Node("Parameter", "x", [], (6, 16, 8, 8))
    w, v = Node("Constant", "w", [], (32, 16, 1, 1)), Node("Constant", "v", [], (32, 1, 1, 3, 3))
    one = Node("Convolution", "one", [x, w], (6, 32, 8, 8))
    two = Node("GroupConvolution", "two", [one, v], (6, 32, 4, 4))
    return Graph(x, w, v, one, two)


ONE, TWO = 6 * 32 * 8 * 8 * 16, 6 * 32 * 4 * 4 * 9


def test_a_depthwise_convolution_within_another_is_counted() -> None:
    # On CPUs with AVX2 alone; the weight of the second is a further input of the first.
    x = Node("Input", "x", [], (6, 16, 8, 8))
    w, v = Node("Const", "w", [], (32, 16, 1, 1)), Node("Const", "v", [], (32, 1, 1, 3, 3))
    both = Node("Convolution", "one", [x, w, v], (6, 32, 4, 4), origins="one,relu")
    (layer,) = executed_layers(Graph(x, w, v, both), separable())
    assert layer.macs == ONE + TWO


def test_macs_that_do_not_add_up_are_none() -> None:
    x, w = Node("Input", "x", [], (6, 16, 8, 8)), Node("Const", "w", [], (32, 16, 1, 1))
    one = Node("Convolution", "one", [x, w], (6, 32, 8, 8))
    rest = Node("Mystery", "rest", [one], (6, 32, 4, 4))
    assert [layer.macs for layer in executed_layers(Graph(x, w, one, rest), separable())] == [None, None]
    rest = Node("Mystery", "rest", [one], (6, 32, 4, 4), origins="relu,two")
    assert [layer.macs for layer in executed_layers(Graph(x, w, one, rest), separable())] == [ONE, TWO]


def test_what_is_computed_on_constants_alone_is_no_layer() -> None:
    x, w = Node("Input", "x", [], (6, 16)), Node("Const", "w", [], (16, 5))
    turned = Node("Transpose", "turned", [w], (5, 16))
    full = Node("FullyConnected", "full", [x, turned], (6, 5))
    end = Node("Output", "end", [full], (6, 5))
    read = Graph(Node("MatMul", "full", [x, w], (6, 5)))
    (layer,) = executed_layers(Graph(x, w, turned, full, end), read)
    assert (layer.name, layer.op, layer.macs, layer.bytes) == (
        "full",
        "FullyConnected",
        6 * 5 * 16,
        6 * 5 * 4,
    )


@pytest.mark.parametrize(
    ("given", "weight", "noted", "precision"),
    [
        ("u8", "i8", "u8", "int8"),
        ("i8", "i8", "i8", "int8"),
        ("u8", "f32", "u8", "other"),
        ("f32", "i8", "f32", "fp32"),
        ("bf16", "f32", "bf16", "bf16"),
    ],
)
def test_a_product_is_of_integers_only_with_integers_on_both_sides(
    given: str, weight: str, noted: str, precision: str
) -> None:
    x, w = Node("Input", "x", [], (6, 16), given), Node("Const", "w", [], (5, 16), weight)
    full = Node("FullyConnected", "full", [x, w], (6, 5), ran_in=noted)
    (layer,) = executed_layers(Graph(x, w, full), Graph(Node("MatMul", "full", [x, w], (6, 5))))
    assert layer.precision == precision

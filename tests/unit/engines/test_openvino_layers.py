"""Graphs as OpenVINO shows them, of forms that depend on the CPU: its library is not needed."""

from __future__ import annotations

import pytest

from inferometer.engines.openvino.layers import executed_layers
from tests.unit.engines.openvino_graphs import Graph, Node


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


@pytest.mark.parametrize(("result", "precision"), [("u8", "int8"), ("bf16", "bf16"), ("f32", "fp32")])
def test_what_makes_floats_of_integers_computes_in_floats(result: str, precision: str) -> None:
    x = Node("Input", "x", [], (6, 16), "u8")
    scaled = Node("Eltwise", "x_dequantized", [x], (6, 16), result, ran_in="u8")
    (layer,) = executed_layers(Graph(x, scaled), Graph(Node("Multiply", "x_dequantized", [x], (6, 16))))
    assert layer.precision == precision

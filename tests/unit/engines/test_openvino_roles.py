"""Roles of layers, of forms that depend on the device: OpenVINO's library is not needed."""

from __future__ import annotations

import pytest

from inferometer.engines.openvino.roles import joined, roles
from tests.unit.engines.openvino_graphs import Graph, Node

SHAPE = (2, 8)


def node(kind: str, name: str, *inputs: Node, dtype: str = "f32", origins: str | None = None) -> Node:
    return Node(kind, name, inputs, SHAPE, dtype, origins=origins)


def read() -> Graph:
    """Quantized input, a product with it, its sum turned around, and a cast of bytes."""
    x, b = node("Parameter", "x"), node("Parameter", "bytes", dtype="u8")
    w = node("Constant", "w")
    rounded = node("FakeQuantize", "FakeQuantize_1", x)
    quantized = node("Convert", "q", rounded, dtype="u8")
    back = node("Convert", "Convert_2", quantized)
    shifted = node("Subtract", "Subtract_3", back, w)
    floats = node("Multiply", "dq", shifted, w)
    product = node("MatMul", "product", floats, w)
    scaled = node("Multiply", "scaled", product, w)
    turned = node("Transpose", "turned", scaled)
    cast = node("Convert", "cast", b)
    bright = node("Multiply", "bright", cast, w)
    return Graph(x, b, w, rounded, quantized, back, shifted, floats, product, scaled, turned, cast, bright)


@pytest.mark.parametrize(
    ("kind", "origins", "given", "result", "role"),
    [
        ("Subgraph", "q", "f32", "u8", "quantize"),
        ("Subgraph", "Convert_71,Subtract_70,q", "u8", "u8", "quantize"),
        ("Subgraph", "Add_71,q", "f32", "u8", "compute"),
        ("Subgraph", "scaled,q", "f32", "u8", "compute"),
        ("Eltwise", "dq", "u8", "bf16", "quantize"),
        ("FakeQuantize", "FakeQuantize_1", "f32", "f32", "quantize"),
        ("quantize", "", "f16", "i8", "quantize"),
        ("FullyConnected", "product/DequantizationMultiply,q", "u8", "u8", "compute"),
        ("Reorder", "", "f32", "f32", "reorder"),
        ("reorder", "", "f16", "f32", "reorder"),
        ("Reorder", "", "f32", "u8", "quantize"),
        ("Convert", "made_up", "f32", "f16", "reorder"),
        ("Subgraph", "turned.0", "f16", "f32", "reorder"),
        ("Subgraph", "made_up", "f32", "f32", "compute"),
        ("Transpose", "turned", "f32", "f32", "compute"),
        ("Reorder", "turned", "f32", "f32", "compute"),
        ("Transpose", "product/transpose_b", "f32", "f32", "reorder"),
        ("Convert", "cast", "u8", "f32", "quantize"),
        ("Eltwise", "bright", "f32", "f32", "compute"),
        ("Eltwise", "scaled", "f32", "f32", "compute"),
        ("Convolution", "", "u8", "u8", "compute"),
    ],
)
def test_a_layer_is_what_the_operators_in_it_are(
    kind: str, origins: str, given: str, result: str, role: str
) -> None:
    layer = node(kind, "layer", node("Input", "before", dtype=given), dtype=result, origins=origins)
    assert roles(Graph(layer), read())["layer"] == role


def test_names_that_differ_by_number_are_joined_by_place() -> None:
    before, after = (
        Graph(node("Input", "x"), node("Subgraph", f"Convert_{number}"), node("Convolution", "c"))
        for number in (7, 107)
    )
    assert joined(before, after) == {"x": "x", "Convert_7": "Convert_107", "c": "c"}


@pytest.mark.parametrize(
    "other",
    [
        [("Convolution", "c"), ("Subgraph", "s")],
        [("Subgraph", "s"), ("Convolution", "c"), ("Output", "o")],
        [("Subgraph", "c"), ("Convolution", "s")],
    ],
)
def test_graphs_of_another_order_are_not_joined_by_place(other: list[tuple[str, str]]) -> None:
    graph = Graph(node("Subgraph", "s"), node("Convolution", "c"))
    assert joined(graph, Graph(*(node(*layer) for layer in other))) == {"s": "s", "c": "c"}

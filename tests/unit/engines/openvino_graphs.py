"""Graphs as OpenVINO shows them, of a form: its library is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Graph", "Node"]


class Kind:
    def __init__(self, name: str) -> None:
        self.name, self.bitwidth = name, {"f32": 32, "bf16": 16, "f16": 16, "u8": 8, "i8": 8}[name]

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

    def get_ops(self) -> tuple[Node, ...]:
        return self.nodes

"""A node of an ONNX graph as PyTorch's operators want it, and the table of those operators.

A builder reads a node's attributes and stored inputs once, when the model is loaded, and gives the function
that each call runs. What it does not map exactly it refuses with `Unmapped`: an answer that is nearly ONNX's
would be worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx import NodeProto, TensorProto

from inferometer.models.graph import attribute
from inferometer.models.shapes import TensorFacts

__all__ = ["BUILDERS", "TORCH_DTYPES", "Builder", "ConvForm", "Node", "Operation", "Unmapped", "operator"]

# Source: onnx.proto, TensorProto.DataType. Floats all become the type that is computed in.
TORCH_DTYPES: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32, TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16, TensorProto.DOUBLE: torch.float64, TensorProto.BOOL: torch.bool,
    TensorProto.UINT8: torch.uint8, TensorProto.INT8: torch.int8, TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32, TensorProto.INT64: torch.int64, TensorProto.UINT16: torch.uint16,
    TensorProto.UINT32: torch.uint32, TensorProto.UINT64: torch.uint64,
}  # fmt: skip
"""The element types that tensors of a graph may have, under ONNX's numbers."""


class Unmapped(Exception):
    """A node, or a form of it, that has no exact counterpart here; the message says what."""


@dataclass(frozen=True)
class ConvForm:
    """How a convolution goes over an image, for engines of cuDNN that also add and clip."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class Operation:
    """What a node computes.

    Attributes:
        function: Takes the tensors at ``inputs`` in that order; gives one tensor, or a tuple for several
            outputs.
        inputs: Positions among the node's inputs; the others were read when it was built.
        constants: Tensors that take the place of stored inputs, by position.
        extras: Further tensors of the builder's own, which follow the inputs.
        fresh: Whether the result is memory of its own, which a following activation may overwrite.
        keep_float32: Whether stored inputs stay in float32 where halves are computed.
        conv: Set for plain two-dimensional convolutions.
        activation: ``relu`` where the function is just that.
    """

    function: Callable[..., Any]
    inputs: tuple[int, ...] = (0,)
    constants: Mapping[int, torch.Tensor] = field(default_factory=dict)
    extras: tuple[torch.Tensor, ...] = ()
    fresh: bool = False
    keep_float32: bool = False
    conv: ConvForm | None = None
    activation: str | None = None


@dataclass(frozen=True)
class Node:
    """One node with what is known of it before any call.

    Attributes:
        proto: The node.
        opset: Version of the standard operator set.
        facts: Element types and shapes of the graph's tensors.
        stored: Tensors whose values are known, by name.
        compute: The type of the floats that are computed.
    """

    proto: NodeProto
    opset: int
    facts: Mapping[str, TensorFacts]
    stored: Mapping[str, torch.Tensor]
    compute: torch.dtype

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute; bytes as text."""
        value = attribute(self.proto, name, default)
        return value.decode() if isinstance(value, bytes) else value

    def ints(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """A list of whole numbers among the attributes."""
        return tuple(int(value) for value in self.attr(name, default))

    def has(self, position: int) -> bool:
        """Whether the node has an input at this position."""
        return position < len(self.proto.input) and bool(self.proto.input[position])

    @property
    def present(self) -> tuple[int, ...]:
        """Positions of all inputs."""
        return tuple(place for place, name in enumerate(self.proto.input) if name)

    def is_stored(self, position: int) -> bool:
        """Whether the input's value is known."""
        return self.has(position) and self.proto.input[position] in self.stored

    def stored_tensor(self, position: int) -> torch.Tensor:
        """The value of a stored input.

        Raises:
            Unmapped: It is computed in each call.
        """
        if not self.is_stored(position):
            raise Unmapped(f"its input {position} is computed in each call")
        return self.stored[self.proto.input[position]]

    def value(self, position: int) -> npt.NDArray[Any] | None:
        """The value of a stored input as an array; None where the node has no such input."""
        if not self.has(position):
            return None
        tensor = self.stored_tensor(position)
        return np.asarray((tensor.float() if tensor.is_floating_point() else tensor).numpy())

    def scalar(self, position: int, default: float) -> float:
        """A stored input of one element."""
        found = self.value(position)
        if found is None:
            return default
        if found.size != 1:
            raise Unmapped(f"its input {position} has {found.size} elements where one is wanted")
        return float(found.reshape(-1)[0])

    def numbers(self, position: int, name: str) -> tuple[int, ...] | None:
        """Whole numbers: an input in newer operator sets, an attribute in older; None if absent."""
        found = self.value(position) if self.has(position) else self.attr(name)
        return None if found is None else tuple(int(number) for number in np.asarray(found).reshape(-1))

    def shape(self, position: int = 0) -> tuple[int, ...]:
        """The shape of an input.

        Raises:
            Unmapped: It cannot be told before a call.
        """
        return self._known(self.proto.input[position])

    def output_shape(self, position: int = 0) -> tuple[int, ...]:
        """The shape of an output; as `shape`."""
        return self._known(self.proto.output[position])

    def _known(self, name: str) -> tuple[int, ...]:
        if name in self.stored:
            return tuple(self.stored[name].shape)
        found = self.facts[name].full_shape if name in self.facts else None
        if found is None:
            raise Unmapped(f"the shape of {name!r} cannot be told before a call")
        return found

    def dtype(self, position: int = 0) -> torch.dtype:
        """The type that an input has when it is computed with."""
        name = self.proto.input[position]
        if name in self.stored:
            kind: torch.dtype | None = self.stored[name].dtype
        else:
            kind = TORCH_DTYPES.get(self.facts[name].data_type) if name in self.facts else None
        if kind is None:
            raise Unmapped(f"the element type of {name!r} cannot be told")
        return self.compute if kind.is_floating_point else kind

    def axis(self, number: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= number < max(rank, 1):
            raise Unmapped(f"axis {number} of a tensor with {rank}")
        return number % rank if rank else 0

    def need_floats(self) -> None:
        """Refuse whole numbers, which this operator treats differently in ONNX and PyTorch, or not at all."""
        if not self.dtype().is_floating_point:
            raise Unmapped(f"it computes on {str(self.dtype()).removeprefix('torch.')}")

    def one_output(self) -> None:
        """Refuse further outputs (masks, indices, statistics)."""
        if any(self.proto.output[1:]):
            raise Unmapped(f"its output {self.proto.output[1]!r} is not mapped")

    def elements(self, position: int = 0) -> int:
        """Number of elements of an input."""
        return math.prod(self.shape(position))


Builder = Callable[[Node], Operation]

BUILDERS: dict[str, tuple[Builder, frozenset[str]]] = {}
"""By operator: the builder, and the attributes that it knows."""


def operator(*names: str, attributes: Sequence[str] = ()) -> Callable[[Builder], Builder]:
    """Put a builder into the table; a node with any other attribute is refused."""

    def kept(builder: Builder) -> Builder:
        for name in names:
            BUILDERS[name] = builder, frozenset(attributes)
        return builder

    return kept

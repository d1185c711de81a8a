"""What is known of a model without running it: the result types of `describe`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["FOLDED_KEY", "Form", "LayerRow", "ModelSummary", "TensorInfo", "folded_parameters"]

FOLDED_KEY = "inferometer.folded_parameters"
"""Metadata key of a file: how many parameters vanished when BatchNorm was folded."""

Form = Literal["float", "qdq", "qoperator", "dynamic", "weights"]
"""How a model is quantized: not at all; with QuantizeLinear and DequantizeLinear around float operators; with
operators on integers; with ranges that it finds while it runs; or in its weights alone."""


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model.

    Attributes:
        name: Its name.
        shape: Its dimensions; a symbolic one is its symbol, an unknown one None. None for an unknown rank.
        dtype: The numpy name of its element type (``float32``); None if it is not a tensor.
    """

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str | None


@dataclass(frozen=True)
class LayerRow:
    """One node that depends on the model's input; figures are for one image.

    Attributes:
        name: The node's name, or its operator and position if it has none.
        op: Its operator, with the domain in front unless it is standard ONNX.
        macs: Multiply-accumulates of convolutions and matrix products; 0 for an operator that has none;
            None when it cannot be told.
        parameters: Elements of the weights that this node is the first to use, also through
            DequantizeLinear and other nodes that compute from constants alone.
        output_shape: Shape of the first output as the model stands, with a symbolic batch set to 1.
        activation_bytes: Size of all outputs; None when a shape is unknown.
        reason: Why a figure is None.
    """

    name: str
    op: str
    macs: int | None
    parameters: int
    output_shape: tuple[int | None, ...] | None
    activation_bytes: int | None
    reason: str | None = None


@dataclass(frozen=True)
class ModelSummary:
    """A model at a glance; the totals are over `layers`, for one image.

    Attributes:
        path: The file, None for a model in memory.
        sha256: Of the file and its external data; None for a model in memory.
        inputs: What a caller feeds.
        outputs: What the model returns.
        batch: The batch that the model is fixed to; None when it is symbolic.
        opset: Version of the standard operator set.
        opsets: Versions of all operator sets by domain (standard ONNX is ``""``).
        ir_version: Version of the file format.
        producer: Name and version of what wrote the file; None if it does not say.
        parameters: Trained values in the file, each once however often it is used. Means and variances of a
            BatchNorm (statistics), scales and zero points of quantization, bounds of Clip and other settings
            are none; quantized weights are. torchvision counts in the same way.
        folded_parameters: How many more there were before BatchNorm was folded; None unless the file says.
        macs: Multiply-accumulates; None when those of one layer are unknown.
        activation_bytes: Sum of the sizes of all layers' outputs; None when one is unknown.
        reason: Why a total is None.
        layers: One row per node that depends on the input, in order.
        is_quantized: Whether there are quantization operators of any form.
        metadata: The file's own key-value pairs.
        form: How it is quantized.
        float_type: The numpy name of the type of its floating-point weights (or else inputs); ``mixed`` when
            there are several, None when there are none.
    """

    path: str | None
    sha256: str | None
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    batch: int | None
    opset: int
    opsets: dict[str, int]
    ir_version: int
    producer: str | None
    parameters: int
    folded_parameters: int | None
    macs: int | None
    activation_bytes: int | None
    reason: str | None
    layers: tuple[LayerRow, ...]
    is_quantized: bool
    metadata: dict[str, str] = field(default_factory=dict)
    form: Form = "float"
    float_type: str | None = None

    @property
    def published_parameters(self) -> int:
        """Parameters as publications count them, with what BatchNorm had before it was folded."""
        return self.parameters + (self.folded_parameters or 0)


def folded_parameters(metadata: dict[str, str]) -> int | None:
    """How many parameters BatchNorm folding removed, as a file's metadata says; None if it does not say."""
    text = metadata.get(FOLDED_KEY, "")
    return int(text) if text.removeprefix("-").isdecimal() else None

"""Writing one network as an ONNX graph, layer by layer, and scaling its seeded weights as it grows.

Scaling. Every convolution and fully connected layer stands for a layer with its BatchNorm folded in: over
standard-normal network input its output has variance 1 (or ``variance``), of which `SHIFT_SHARE` is the
per-channel shift (the bias; beta of the BatchNorm) and the rest is signal. Weights are centred per output
and scaled by the *variance* of the input, not by its second moment, so that the positive mean which ReLU
and max pooling produce neither grows nor drowns what differs between two inputs.
Source: Brock, De, Smith, "Characterizing signal propagation to close the performance gap in unnormalized
ResNets", ICLR 2021 (scaled weight standardisation), there with learnt shifts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from inferometer.models.networks import seeded
from inferometer.models.networks.signal import Signal
from inferometer.models.summary import FOLDED_KEY

__all__ = ["CLASSES", "SHIFT_SHARE", "Layer", "NetworkBuilder"]

OPSET = 17
IR_VERSION = 8  # of opset 17; onnxruntime 1.18 reads up to 10
CLASSES = 1000
BATCH = "N"

# Through a centred layer and a ReLU, the square of a small difference between two inputs is multiplied by
# (1 - share) / (1 - 1/pi): 1.17 with 0.2. With less, rounding errors explode over the depth of VGG; with
# more, the differences between two images die out instead.
SHIFT_SHARE = 0.2

# The correlation c between two positions of one channel to which a chain of such layers tends: the fixed
# point of c = share + (1 - share) C(c), C the normalised covariance of two rectified Gaussians.
# Source: Cho, Saul, "Kernel methods for deep learning", NeurIPS 2009, arc-cosine kernel of degree 1.
_POSITION_CORRELATION = 0.75

_LOGIT_SHIFT_SHARE = 0.01  # a large shift would make every image the same class


@dataclass(frozen=True)
class Layer:
    """A tensor of the growing graph.

    Attributes:
        tensor: Its name.
        shape: Its shape for one image, ``(C, H, W)`` or ``(C,)``.
        signal: What its values are distributed like.
    """

    tensor: str
    shape: tuple[int, ...]
    signal: Signal


class NetworkBuilder:
    """Collects nodes and weights; each method appends one node and returns its output.

    A node's output tensor has the node's name; a layer's tensors are ``<layer>.weight`` and ``<layer>.bias``.

    Args:
        name: Name of the network, kept as the graph's name.
        size: Height and width of the input image, in pixels.
        seed: Seed of the weights; None leaves them without values (shapes alone).
        classes: Number of logits.

    Attributes:
        input: The image, from which a network starts.
        classes: Number of logits.
    """

    def __init__(self, name: str, size: int, seed: int | None, classes: int = CLASSES) -> None:
        """Start a graph that has its input and no node yet."""
        self._seed = seed
        self.classes = classes
        self._folded = 0
        entry = helper.make_tensor_value_info("input", TensorProto.FLOAT, [BATCH, 3, size, size])
        exit_ = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [BATCH, classes])
        self._model = helper.make_model(
            helper.make_graph([], name, [entry], [exit_]),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="inferometer",
        )
        self.input = Layer("input", (3, size, size), Signal(0.0, 1.0))

    def conv(
        self,
        x: Layer,
        name: str,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        groups: int = 1,
        variance: float = 1.0,
        folded: bool = False,
    ) -> Layer:
        """Append a convolution with bias; ``folded`` says that the original has a BatchNorm instead."""
        shape = (channels, x.shape[0] // groups, kernel, kernel)
        signal = self._parameters(name, shape, x.signal, variance, SHIFT_SHARE)
        self._folded += channels if folded else 0
        size = (x.shape[1] + 2 * pad - kernel) // stride + 1
        self._node(
            "Conv",
            [x.tensor, f"{name}.weight", f"{name}.bias"],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=groups,
        )
        return Layer(name, (channels, size, size), signal)

    def linear(self, x: Layer, name: str, features: int, output: str | None = None) -> Layer:
        """Append a fully connected layer with bias on flat input; ``output`` names a final layer's tensor."""
        share = SHIFT_SHARE if output is None else _LOGIT_SHIFT_SHARE
        signal = self._parameters(name, (features, x.shape[0]), x.signal, 1.0, share)
        self._node("Gemm", [x.tensor, f"{name}.weight", f"{name}.bias"], name, output=output, transB=1)
        return Layer(output or name, (features,), signal)

    def relu(self, x: Layer, name: str) -> Layer:
        """Append a ReLU."""
        self._node("Relu", [x.tensor], name)
        return Layer(name, x.shape, x.signal.relu())

    def lrn(self, x: Layer, name: str) -> Layer:
        """Append local response normalisation across five channels.

        Source: Krizhevsky et al., NeurIPS 2012, section 3.3, with the alpha, beta and k of the BVLC models
        (ONNX and Caffe both divide alpha by the size). At unit scale it is the identity within 0.1 %.
        """
        self._node("LRN", [x.tensor], name, size=5, alpha=1e-4, beta=0.75, bias=1.0)
        return replace(x, tensor=name)

    def max_pool(
        self, x: Layer, name: str, kernel: int, stride: int, *, pad: int = 0, ceil: bool = False
    ) -> Layer:
        """Append max pooling; ``ceil`` rounds the output size up, as Caffe does."""
        span = x.shape[1] + 2 * pad - kernel
        size = (math.ceil(span / stride) if ceil else span // stride) + 1
        self._node(
            "MaxPool",
            [x.tensor],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            ceil_mode=int(ceil),
        )
        return Layer(name, (x.shape[0], size, size), x.signal.max_pool(kernel * kernel))

    def average(self, x: Layer, name: str) -> Layer:
        """Append the mean over all positions, flat: ``(C, H, W)`` becomes ``(C,)``."""
        self._node("GlobalAveragePool", [x.tensor], name)
        return self.flatten(
            Layer(name, (x.shape[0], 1, 1), x.signal.averaged(_POSITION_CORRELATION)), f"{name}.flat"
        )

    def flatten(self, x: Layer, name: str) -> Layer:
        """Append the reshaping of one image's values to one axis."""
        self._node("Flatten", [x.tensor], name, axis=1)
        return Layer(name, (math.prod(x.shape),), x.signal)

    def add(self, x: Layer, y: Layer, name: str) -> Layer:
        """Append an elementwise sum of two tensors of the same shape."""
        self._node("Add", [x.tensor, y.tensor], name)
        return Layer(name, x.shape, x.signal.plus(y.signal))

    def concat(self, parts: list[Layer], name: str) -> Layer:
        """Append the joining of tensors along the channels; all have been scaled to the same law."""
        self._node("Concat", [part.tensor for part in parts], name, axis=1)
        channels = sum(part.shape[0] for part in parts)
        return Layer(name, (channels, *parts[0].shape[1:]), parts[0].signal)

    def finish(self, metadata: dict[str, str]) -> ModelProto:
        """The model; the builder is spent. ``metadata`` goes into the file beside what was folded."""
        if self._folded:
            metadata = {**metadata, FOLDED_KEY: str(self._folded)}
        helper.set_model_props(self._model, metadata)
        return self._model

    def _node(
        self, op: str, inputs: list[str], name: str, output: str | None = None, **attributes: Any
    ) -> None:
        node = helper.make_node(op, inputs, [output or name], name=name, **attributes)
        self._model.graph.node.append(node)

    def _parameters(
        self, name: str, shape: tuple[int, ...], x: Signal, variance: float, share: float
    ) -> Signal:
        """Store a layer's weight and bias such that its output has mean 0 and ``variance``."""
        mean, spread = x.moments()
        centred = mean != 0.0
        terms = math.prod(shape[1:]) - (1 if centred else 0)  # centring takes one degree of freedom
        weight_std = math.sqrt((1.0 - share) * variance / (terms * spread))
        weight = bias = None
        if self._seed is not None:
            weight = seeded.filters(self._seed, f"{name}.weight", shape, weight_std, centred=centred)
            bias = seeded.bias(self._seed, f"{name}.bias", shape[0], math.sqrt(share * variance))
        self._initializer(f"{name}.weight", shape, weight)
        self._initializer(f"{name}.bias", shape[:1], bias)
        return Signal(0.0, variance)

    def _initializer(self, name: str, shape: tuple[int, ...], values: NDArray[np.float32] | None) -> None:
        # Filled in place: helper.make_graph and make_model would each copy VGG's half gigabyte once more.
        tensor = self._model.graph.initializer.add()
        tensor.name = name
        tensor.data_type = TensorProto.FLOAT
        tensor.dims.extend(shape)
        if values is not None:
            tensor.raw_data = values.astype("<f4", copy=False).tobytes()

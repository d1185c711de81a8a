"""What the tensors of the built-in networks are called in files of trained weights.

A network's own names (``<layer>.weight``, ``<layer>.bias``) are those of its exported file. For VGG they are
torchvision's. ResNets are trained with a BatchNorm behind each convolution instead of a bias: torchvision's
names for them come first. AlexNet and GoogLeNet are in the ONNX model zoo with Caffe2's ``_w_0``, ``_b_0``.

Source: `state_dict` of torchvision.models.resnet.ResNet; bvlcalexnet and googlenet of github.com/onnx/models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inferometer.models.networks.catalogue import shapes_only

__all__ = ["NORM_PARTS", "Naming", "Origin", "namings"]

NORM_PARTS = ("weight", "bias", "running_mean", "running_var")
"""Gamma, beta and the statistics of a BatchNorm, as PyTorch calls them."""

_ZOO = ("alexnet", "googlenet")

# What is trained beside a classifier and not needed to run it. PyTorch counts the batches that a BatchNorm
# saw; Caffe's GoogLeNet has two heads more, of which nothing is left in the deployed network.
# Source: bvlc_googlenet/train_val.prototxt of the Caffe model zoo.
_COUNTERS = re.compile(r"(^|\.)num_batches_tracked$")
_AUXILIARY = {"googlenet": re.compile(r"loss[12]/")}


@dataclass(frozen=True)
class Origin:
    """Where one layer's weight and bias come from: names in a file.

    Attributes:
        weight: Of the weight.
        bias: Of the bias; None where the shift of ``norm`` is the bias.
        norm: Of the BatchNorm that is folded into the layer, without ``.weight``; None without one.
    """

    weight: str
    bias: str | None
    norm: str | None = None

    def names(self) -> Iterator[str]:
        """All tensors that the layer is made of."""
        yield self.weight
        if self.bias is not None:
            yield self.bias
        if self.norm is not None:
            yield from (f"{self.norm}.{part}" for part in NORM_PARTS)


@dataclass(frozen=True)
class Naming:
    """One way to name a network's tensors.

    Attributes:
        title: Whose it is, as in "with ... names".
        origins: By layer, in the order of the network.
        shapes: Of every tensor that a file must hold, by its name there.
        head: The last layer, whose first axis is the number of classes.
        auxiliary: Names that a file may hold beside them; None for none.
    """

    title: str
    origins: Mapping[str, Origin]
    shapes: Mapping[str, tuple[int, ...]]
    head: str
    auxiliary: re.Pattern[str] | None = None

    def without_need(self, name: str) -> bool:
        """Whether a tensor is rightly in a file although the network does not hold it."""
        return bool(_COUNTERS.search(name)) or self.is_auxiliary(name)

    def is_auxiliary(self, name: str) -> bool:
        """Whether a tensor belongs to a head that only training uses."""
        return bool(self.auxiliary and self.auxiliary.match(name))


def namings(name: str) -> tuple[Naming, ...]:
    """The ways to name a network's tensors; the first is that of most files there are.

    Raises:
        ConfigError: No network has that name.
    """
    shapes = {part.name: tuple(part.dims) for part in shapes_only(name).graph.initializer}
    layers = [tensor.removesuffix(".weight") for tensor in shapes if tensor.endswith(".weight")]
    own = {layer: Origin(f"{layer}.weight", f"{layer}.bias") for layer in layers}
    found = [("its own", own)]
    if name.startswith("vgg"):
        found = [("torchvision's", own)]
    elif name.startswith("resnet"):
        norms = {layer: Origin(f"{layer}.weight", None, _norm_behind(layer)) for layer in layers[:-1]}
        found.insert(0, ("torchvision's", norms | {layers[-1]: own[layers[-1]]}))
    elif name in _ZOO:
        found.append(("the ONNX model zoo's", {one: Origin(f"{one}_w_0", f"{one}_b_0") for one in layers}))
    return tuple(
        Naming(title, origins, _shapes_of(origins, shapes), layers[-1], _AUXILIARY.get(name))
        for title, origins in found
    )


def _norm_behind(layer: str) -> str:
    """The BatchNorm of a convolution: ``layer1.0.bn1`` of ``layer1.0.conv1``."""
    return layer.replace("downsample.0", "downsample.1").replace("conv", "bn")


def _shapes_of(
    origins: Mapping[str, Origin], own: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """By names in a file, from the network's own shapes; all but the weight are one number per output."""
    return {
        name: own[f"{layer}.weight"] if name == origin.weight else own[f"{layer}.bias"]
        for layer, origin in origins.items()
        for name in origin.names()
    }

"""The seven networks of the 2017 study by name: what is published of them, and how to build them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from onnx import ModelProto

from inferometer.errors import ConfigError, nearest
from inferometer.models.files import save
from inferometer.models.networks.alexnet import alexnet
from inferometer.models.networks.builder import CLASSES, Layer, NetworkBuilder
from inferometer.models.networks.googlenet import googlenet
from inferometer.models.networks.resnet import resnet50, resnet101, resnet152
from inferometer.models.networks.vgg import vgg16, vgg19

__all__ = ["Network", "build", "export", "names", "network", "shapes_only"]


@dataclass(frozen=True)
class Network:
    """One network and what is published of it.

    The published parameters of the ResNets include the scale and shift of each BatchNorm channel. In the
    graphs built here BatchNorm is folded: its shift lives on as the convolution's bias, its scale is gone,
    so that the file holds fewer (ResNet-50: 25 557 032 published, 26 560 scales folded, 25 530 472 held).

    Attributes:
        name: As `names` lists it.
        input_size: Height and width of the input, in pixels.
        preprocess: Name of the preprocessing preset that its published weights were trained for.
        classes: Number of logits; ILSVRC-2012 classes in the order of their WordNet identifiers.
        published_parameters_m: In millions, at the precision usually printed.
        published_macs_g: Multiply-accumulates per image, in thousands of millions, likewise.
    """

    name: str
    input_size: int
    preprocess: str
    published_parameters_m: float
    published_macs_g: float
    classes: int = CLASSES


_Architecture = Callable[[NetworkBuilder], Layer]

# Source: torchvision's tables (VGG, ResNet); the BVLC models of the Caffe model zoo (AlexNet, GoogLeNet).
_NETWORKS: dict[str, tuple[Network, _Architecture]] = {
    network.name: (network, architecture)
    for network, architecture in (
        (Network("alexnet", 227, "caffe", 60.97, 0.724), alexnet),
        (Network("googlenet", 224, "caffe", 7.00, 1.58), googlenet),
        (Network("vgg16", 224, "torchvision", 138.36, 15.47), vgg16),
        (Network("vgg19", 224, "torchvision", 143.67, 19.63), vgg19),
        (Network("resnet50", 224, "torchvision", 25.56, 4.09), resnet50),
        (Network("resnet101", 224, "torchvision", 44.55, 7.80), resnet101),
        (Network("resnet152", 224, "torchvision", 60.19, 11.51), resnet152),
    )
}


def names() -> list[str]:
    """Names of the networks, in the order of their tables."""
    return list(_NETWORKS)


def network(name: str) -> Network:
    """What is published of one network.

    Raises:
        ConfigError: No network has that name; the message offers the nearest.
    """
    return _find(name)[0]


def build(name: str, seed: int = 0) -> ModelProto:
    """Build one network with seeded, untrained weights.

    Input ``input`` is ``[N, 3, H, W] float32``, output ``logits`` is ``[N, 1000] float32``, N symbolic.
    BatchNorm is folded. On standard-normal input each layer's output has a standard deviation within
    0.1..10, so the network is finite in FP16, and its outputs differ between inputs. The same seed gives
    the same bytes on every machine. VGG-19 takes a few seconds and 1 GB of memory (`export`: 1.8 GB).

    Raises:
        ConfigError: No network has that name, or the seed is negative.
    """
    if seed < 0:
        raise ConfigError(f"seed {seed} is negative; give a whole number from 0")
    return _assemble(name, seed)


def shapes_only(name: str, classes: int = CLASSES) -> ModelProto:
    """The same graph whose weights have shapes but no values: for counting, in milliseconds; it cannot run.

    ``classes`` is the number of logits.

    Raises:
        ConfigError: No network has that name.
    """
    return _assemble(name, None, classes)


def export(name: str, path: str | os.PathLike[str], seed: int = 0) -> None:
    """Build one network and write it as an ONNX file, atomically.

    Raises:
        ConfigError: No network has that name, or the seed is negative.
        StoreError: The file cannot be written.
    """
    save(build(name, seed), path)


def _assemble(name: str, seed: int | None, classes: int = CLASSES) -> ModelProto:
    found, architecture = _find(name)
    net = NetworkBuilder(name, found.input_size, seed, classes)
    architecture(net)
    return net.finish(
        {
            "inferometer.network": name,
            "inferometer.preprocess": found.preprocess,
            "inferometer.weights": "none" if seed is None else f"untrained, seed {seed}",
        }
    )


def _find(name: str) -> tuple[Network, _Architecture]:
    if name not in _NETWORKS:
        raise ConfigError(f"unknown network {name!r}{nearest(name, _NETWORKS)}")
    return _NETWORKS[name]

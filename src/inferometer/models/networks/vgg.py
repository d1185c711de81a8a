"""VGG-16 and VGG-19 (configurations D and E), with the tensor names of torchvision's state_dict.

Source: Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition",
ICLR 2015, table 1.
"""

from __future__ import annotations

from inferometer.models.networks.builder import Layer, NetworkBuilder

__all__ = ["vgg16", "vgg19"]

_CHANNELS = (64, 128, 256, 512, 512)
_HIDDEN = 4096


def vgg16(net: NetworkBuilder) -> Layer:
    """Append VGG-16 to an empty builder and return the logits."""
    return _vgg(net, (2, 2, 3, 3, 3))


def vgg19(net: NetworkBuilder) -> Layer:
    """Append VGG-19 to an empty builder and return the logits."""
    return _vgg(net, (2, 2, 4, 4, 4))


def _vgg(net: NetworkBuilder, convolutions: tuple[int, ...]) -> Layer:
    x, index = net.input, 0  # torchvision numbers convolutions, ReLUs and pools in one sequence
    for channels, count in zip(_CHANNELS, convolutions, strict=True):
        for _ in range(count):
            x = net.relu(net.conv(x, f"features.{index}", channels, 3, pad=1), f"features.{index + 1}")
            index += 2
        x = net.max_pool(x, f"features.{index}", 2, 2)
        index += 1
    x = net.flatten(x, "flatten")  # torchvision's adaptive pooling to 7 x 7 does nothing at 224 pixels
    x = net.relu(net.linear(x, "classifier.0", _HIDDEN), "classifier.1")
    x = net.relu(net.linear(x, "classifier.3", _HIDDEN), "classifier.4")  # 2 and 5 are dropout
    return net.linear(x, "classifier.6", net.classes, output="logits")

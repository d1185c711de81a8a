"""ResNet-50, -101 and -152, version 1.5 (the stride sits in the 3x3), with torchvision's tensor names.

BatchNorm is folded into the convolution before it. Each convolution therefore has a bias that torchvision's
has not, named after it: ``layer1.0.conv1.bias`` beside ``layer1.0.conv1.weight``. It stands for the shift of
``layer1.0.bn1``, whose scale has gone into the weight.

Source: He et al., "Deep residual learning for image recognition", CVPR 2016, table 1; version 1.5 as
described for ResNet-50 v1.5 in NVIDIA's DeepLearningExamples and used by torchvision.
"""

from __future__ import annotations

from functools import partial

from inferometer.models.networks.builder import Layer, NetworkBuilder

__all__ = ["resnet50", "resnet101", "resnet152"]

_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4

# Variance of the last convolution of a residual branch, against 1 elsewhere. The sum grows by about this
# much a block and starts anew at each projection: the 36 blocks of ResNet-152's third stage end at a
# standard deviation near 3. With 1 it would be 6; small values would push the branch itself towards 0.1.
_BRANCH_VARIANCE = 0.25


def resnet50(net: NetworkBuilder) -> Layer:
    """Append ResNet-50 to an empty builder and return the logits."""
    return _resnet(net, (3, 4, 6, 3))


def resnet101(net: NetworkBuilder) -> Layer:
    """Append ResNet-101 to an empty builder and return the logits."""
    return _resnet(net, (3, 4, 23, 3))


def resnet152(net: NetworkBuilder) -> Layer:
    """Append ResNet-152 to an empty builder and return the logits."""
    return _resnet(net, (3, 8, 36, 3))


def _resnet(net: NetworkBuilder, blocks: tuple[int, int, int, int]) -> Layer:
    x = net.relu(net.conv(net.input, "conv1", 64, 7, stride=2, pad=3, folded=True), "relu")
    x = net.max_pool(x, "maxpool", 3, 2, pad=1)
    for stage, (width, count) in enumerate(zip(_WIDTHS, blocks, strict=True), start=1):
        for block in range(count):
            stride = 2 if block == 0 and stage > 1 else 1
            x = _bottleneck(net, x, f"layer{stage}.{block}", width, stride, project=block == 0)
    return net.linear(net.average(x, "avgpool"), "fc", net.classes, output="logits")


def _bottleneck(net: NetworkBuilder, x: Layer, name: str, width: int, stride: int, *, project: bool) -> Layer:
    conv = partial(net.conv, folded=True)
    y = net.relu(conv(x, f"{name}.conv1", width, 1), f"{name}.relu1")
    y = net.relu(conv(y, f"{name}.conv2", width, 3, stride=stride, pad=1), f"{name}.relu2")
    y = conv(y, f"{name}.conv3", width * _EXPANSION, 1, variance=_BRANCH_VARIANCE)
    if project:
        x = conv(x, f"{name}.downsample.0", width * _EXPANSION, 1, stride=stride)
    return net.relu(net.add(y, x, f"{name}.add"), f"{name}.relu3")

"""GoogLeNet (Inception v1) as the BVLC published it for Caffe: LRN, pools that round up, no auxiliary heads.

Source: Szegedy et al., "Going deeper with convolutions", CVPR 2015, table 1;
bvlc_googlenet/deploy.prototxt of the Caffe model zoo, whose layer names are kept.
"""

from __future__ import annotations

from inferometer.models.networks.builder import Layer, NetworkBuilder

__all__ = ["googlenet"]

# Channels of: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection.
_MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
_POOL_AFTER = {"3b": "pool3/3x3_s2", "4e": "pool4/3x3_s2"}


def googlenet(net: NetworkBuilder) -> Layer:
    """Append GoogLeNet to an empty builder and return the logits."""
    x = _conv_relu(net, net.input, "conv1/7x7_s2", 64, 7, stride=2, pad=3)
    x = net.lrn(net.max_pool(x, "pool1/3x3_s2", 3, 2, ceil=True), "pool1/norm1")
    x = _conv_relu(net, x, "conv2/3x3_reduce", 64, 1)
    x = _conv_relu(net, x, "conv2/3x3", 192, 3, pad=1)
    x = net.max_pool(net.lrn(x, "conv2/norm2"), "pool2/3x3_s2", 3, 2, ceil=True)
    for module, channels in _MODULES.items():
        x = _inception(net, x, f"inception_{module}", channels)
        if module in _POOL_AFTER:
            x = net.max_pool(x, _POOL_AFTER[module], 3, 2, ceil=True)
    return net.linear(net.average(x, "pool5/7x7_s1"), "loss3/classifier", net.classes, output="logits")


def _inception(
    net: NetworkBuilder, x: Layer, name: str, channels: tuple[int, int, int, int, int, int]
) -> Layer:
    one, three_reduce, three, five_reduce, five, projection = channels
    a = _conv_relu(net, x, f"{name}/1x1", one, 1)
    b = _conv_relu(net, x, f"{name}/3x3_reduce", three_reduce, 1)
    b = _conv_relu(net, b, f"{name}/3x3", three, 3, pad=1)
    c = _conv_relu(net, x, f"{name}/5x5_reduce", five_reduce, 1)
    c = _conv_relu(net, c, f"{name}/5x5", five, 5, pad=2)
    d = net.max_pool(x, f"{name}/pool", 3, 1, pad=1)
    d = _conv_relu(net, d, f"{name}/pool_proj", projection, 1)
    return net.concat([a, b, c, d], f"{name}/output")


def _conv_relu(
    net: NetworkBuilder, x: Layer, name: str, channels: int, kernel: int, *, stride: int = 1, pad: int = 0
) -> Layer:
    head, _, tail = name.rpartition("/")
    return net.relu(net.conv(x, name, channels, kernel, stride=stride, pad=pad), f"{head}/relu_{tail}")

"""AlexNet as the BVLC published it for Caffe: 227 pixels, LRN before pooling, two groups in conv2, 4 and 5.

Source: Krizhevsky, Sutskever, Hinton, "ImageNet classification with deep convolutional neural networks",
NeurIPS 2012; bvlc_alexnet/deploy.prototxt of the Caffe model zoo, whose layer names are kept.
"""

from __future__ import annotations

from inferometer.models.networks.builder import Layer, NetworkBuilder

__all__ = ["alexnet"]


def alexnet(net: NetworkBuilder) -> Layer:
    """Append AlexNet to an empty builder and return the logits. Dropout does nothing at inference."""
    x = net.relu(net.conv(net.input, "conv1", 96, 11, stride=4), "relu1")
    x = net.max_pool(net.lrn(x, "norm1"), "pool1", 3, 2)
    x = net.relu(net.conv(x, "conv2", 256, 5, pad=2, groups=2), "relu2")
    x = net.max_pool(net.lrn(x, "norm2"), "pool2", 3, 2)
    x = net.relu(net.conv(x, "conv3", 384, 3, pad=1), "relu3")
    x = net.relu(net.conv(x, "conv4", 384, 3, pad=1, groups=2), "relu4")
    x = net.relu(net.conv(x, "conv5", 256, 3, pad=1, groups=2), "relu5")
    x = net.flatten(net.max_pool(x, "pool5", 3, 2), "pool5.flat")
    x = net.relu(net.linear(x, "fc6", 4096), "relu6")
    x = net.relu(net.linear(x, "fc7", 4096), "relu7")
    return net.linear(x, "fc8", net.classes, output="logits")

"""The seven classic ImageNet networks, built as ONNX graphs without a deep-learning framework."""

from inferometer.models.networks.catalogue import Network, build, export, names, network, shapes_only

__all__ = ["Network", "build", "export", "names", "network", "shapes_only"]

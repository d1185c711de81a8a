"""The seven classic ImageNet networks, built as ONNX graphs without a deep-learning framework."""

from inferometer.models.networks.catalogue import Network, build, export, names, network, shapes_only
from inferometer.models.networks.loading import Trained, build_trained, examine_weights, export_trained
from inferometer.models.networks.naming import Naming, namings

__all__ = [
    "Naming",
    "Network",
    "Trained",
    "build",
    "build_trained",
    "examine_weights",
    "export",
    "export_trained",
    "names",
    "namings",
    "network",
    "shapes_only",
]

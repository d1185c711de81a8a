"""Miniature networks and files of weights for them, in the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from inferometer.models.networks import catalogue
from inferometer.models.networks.builder import Layer, NetworkBuilder

__all__ = ["Tensors", "miniature", "onnx_file", "resnet_tensors", "safetensors_file"]

Tensors = dict[str, np.ndarray]


def miniature(patch: pytest.MonkeyPatch) -> None:
    """Add ``resnet-mini`` (12 classes), and put a small network in the place of AlexNet."""
    for name, architecture in (("resnet-mini", _resnet), ("alexnet", _alexnet)):
        entry = (catalogue.Network(name, 16, "caffe", 0.0, 0.0), architecture)
        patch.setitem(catalogue._NETWORKS, name, entry)


def _resnet(net: NetworkBuilder) -> Layer:
    x = net.relu(net.conv(net.input, "conv1", 6, 3, stride=2, pad=1, folded=True), "relu")
    y = net.relu(net.conv(x, "layer1.0.conv1", 4, 3, pad=1, folded=True), "layer1.0.relu1")
    y = net.conv(y, "layer1.0.conv2", 8, 1, folded=True)
    x = net.conv(x, "layer1.0.downsample.0", 8, 1, folded=True)
    x = net.relu(net.add(y, x, "layer1.0.add"), "layer1.0.relu3")
    return net.linear(net.average(x, "avgpool"), "fc", net.classes, output="logits")


def _alexnet(net: NetworkBuilder) -> Layer:
    x = net.relu(net.conv(net.input, "conv1", 4, 3, stride=2, pad=1), "relu1")
    x = net.max_pool(net.lrn(x, "norm1"), "pool1", 2, 2)
    x = net.relu(net.conv(x, "conv2", 4, 3, pad=1, groups=2), "relu2")
    x = net.relu(net.linear(net.flatten(x, "flat"), "fc6", 8), "relu6")
    return net.linear(x, "fc8", net.classes, output="logits")


def resnet_tensors(classes: int = 1000, seed: int = 0) -> Tensors:
    """What PyTorch saves of ``resnet-mini``: BatchNorms of their own, with counters."""
    generator = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype(np.float32)

    shapes = {
        "conv1": (6, 3, 3, 3),
        "layer1.0.conv1": (4, 6, 3, 3),
        "layer1.0.conv2": (8, 4, 1, 1),
        "layer1.0.downsample.0": (8, 6, 1, 1),
    }
    norms = ("bn1", "layer1.0.bn1", "layer1.0.bn2", "layer1.0.downsample.1")
    found: Tensors = {}
    for (layer, shape), norm in zip(shapes.items(), norms, strict=True):
        found[f"{layer}.weight"] = normal(*shape)
        found |= {f"{norm}.{part}": normal(shape[0]) for part in ("weight", "bias", "running_mean")}
        # Small variances: an epsilon of another size would show.
        found[f"{norm}.running_var"] = np.abs(normal(shape[0])) * np.float32(1e-3)
        found[f"{norm}.num_batches_tracked"] = np.array(7, np.int64)
    return found | {"fc.weight": normal(classes, 8), "fc.bias": normal(classes)}


def safetensors_file(path: Path, tensors: Mapping[str, np.ndarray], **kinds: str) -> Path:
    """Write the format itself, so that any type can stand in it; ``kinds`` by tensor, dots as ``__``."""
    names = {
        "float32": "F32",
        "float64": "F64",
        "float16": "F16",
        "bfloat16": "BF16",
        "int64": "I64",
        "int8": "I8",
    }
    header: dict[str, Any] = {}
    data = b""
    for name, values in tensors.items():
        content = values.tobytes()
        kind = kinds.get(name.replace(".", "__"), names[values.dtype.name])
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def onnx_file(path: Path, graph: str, tensors: Mapping[str, np.ndarray]) -> Path:
    """A model from onnx's text form with these initializers."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{graph}')
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in tensors.items())
    onnx.save(model, path)
    return path

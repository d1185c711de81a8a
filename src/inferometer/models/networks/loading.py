"""Building a network with trained weights from a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper

from inferometer.errors import ModelError
from inferometer.models.files import save
from inferometer.models.fold import scale_and_shift
from inferometer.models.networks.catalogue import shapes_only
from inferometer.models.networks.fitting import Fit, fit
from inferometer.models.networks.likeness import BATCHNORM_EPSILON
from inferometer.models.networks.naming import NORM_PARTS
from inferometer.models.stored import WeightFile, as_float32
from inferometer.models.weights import open_weights, weights_sha256

__all__ = ["Trained", "build_trained", "examine_weights", "export_trained", "fold"]

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trained:
    """A network with trained weights.

    Attributes:
        model: It.
        notes: What was done with the file that a user should know, in words.
    """

    model: ModelProto
    notes: tuple[str, ...]


def examine_weights(name: str, weights: str | os.PathLike[str]) -> tuple[str, ...]:
    """Whether a file of weights fits a network, by names, shapes and types; its values are not read.

    Returns:
        What will be done with it that a user should know, in words.

    Raises:
        ModelError: The file cannot be used, or does not fit.
        EngineError: The package that reads it is not installed, or not fit to.
        ConfigError: No network has that name.
    """
    with open_weights(Path(weights)) as file:
        return fit(name, file).notes


def build_trained(name: str, weights: str | os.PathLike[str]) -> Trained:
    """Build one network with trained weights.

    As `build`, but for the weights and, where the file has another number of classes, the width of
    ``logits``. BatchNorm is folded in float64. Tensors are read one by one: in memory are the model and two
    copies of one tensor (of an ONNX file or a checkpoint older than PyTorch 1.6: the file as well).

    Args:
        name: Of the network.
        weights: ``.safetensors``, a PyTorch checkpoint, or ``.onnx``; `namings` says how tensors are called.

    Raises:
        ModelError: The file cannot be used, does not fit, or holds values that are no numbers.
        EngineError: The package that reads it is not installed, or not fit to.
        ConfigError: No network has that name.
    """
    path = Path(weights)
    digest = weights_sha256(path)
    with open_weights(path) as file:
        found = fit(name, file)
        model = shapes_only(name, found.classes)
        _fill(model, found, file)
    shown = path.name.encode("utf-8", "replace").decode()
    metadata = {item.key: item.value for item in model.metadata_props}
    metadata["inferometer.weights"] = f"file {shown}, sha256 {digest}"
    if found.notes:
        metadata["inferometer.weights_notes"] = "; ".join(found.notes)
    helper.set_model_props(model, metadata)
    return Trained(model, found.notes)


def export_trained(
    name: str, weights: str | os.PathLike[str], path: str | os.PathLike[str]
) -> tuple[str, ...]:
    """Build one network with trained weights and write it as an ONNX file, atomically; returns the notes.

    Raises:
        InferometerError: As `build_trained`, or the file cannot be written (StoreError).
    """
    trained = build_trained(name, weights)
    save(trained.model, path)
    return trained.notes


def fold(weight: NDArray[Any], norm: tuple[_Array, _Array, _Array, _Array]) -> tuple[_Array, _Array]:
    """Fold a BatchNorm into the convolution before it, in float64.

    ``weight' = weight * s``, ``bias' = beta - mean * s``; for ``s`` see `scale_and_shift`.

    Args:
        weight: ``[outputs, ...]``, of a convolution without bias.
        norm: Gamma, beta, mean and variance, ``[outputs]`` each.

    Source: Jacob et al., CVPR 2018, section 3.2; see `inferometer.models.fold`.
    """
    scale, shift = scale_and_shift(*norm, BATCHNORM_EPSILON)
    spread = scale.reshape(-1, *[1] * (weight.ndim - 1))
    return weight.astype(np.float64) * spread, shift


def _fill(model: ModelProto, found: Fit, file: WeightFile) -> None:
    """Give a model that has shapes alone its values."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for layer, origin in found.naming.origins.items():
        if origin.norm is None:
            assert origin.bias is not None, "a layer without BatchNorm has a bias"
            tensors[f"{layer}.weight"].raw_data = _content(file, origin.weight)
            tensors[f"{layer}.bias"].raw_data = _content(file, origin.bias)
        else:
            weight, bias = _folded(file, origin.weight, origin.norm)
            tensors[f"{layer}.weight"].raw_data = _bytes(weight)
            tensors[f"{layer}.bias"].raw_data = _bytes(bias)


def _content(file: WeightFile, name: str) -> bytes:
    """A tensor as the model holds it.

    Its array is gone when the model copies the bytes: of VGG's 411 MB there are then two copies, not three.
    """
    return _bytes(as_float32(file.tensors[name].read(), f"{file.path}: {name}"))


def _bytes(values: NDArray[np.float32]) -> bytes:
    return values.astype("<f4", copy=False).tobytes()


def _folded(file: WeightFile, weight: str, norm: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    gamma, beta, mean, variance = (
        file.tensors[f"{norm}.{part}"].read().astype(np.float64) for part in NORM_PARTS
    )
    if (variance < 0).any():
        raise ModelError(f"{file.path}: {norm}.running_var holds a negative variance")
    folded_weight, folded_bias = fold(file.tensors[weight].read(), (gamma, beta, mean, variance))
    return (
        as_float32(folded_weight, f"{file.path}: {weight}, with {norm} folded in,"),
        as_float32(folded_bias, f"{file.path}: {norm}.bias, folded,"),
    )

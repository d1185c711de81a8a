"""Feeding images to a model: which input takes them, and what the others are given meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.config import InputEntry
from inferometer.data.preprocess import Preprocessing
from inferometer.data.synthetic import check_range
from inferometer.errors import ConfigError, DataError
from inferometer.models.roles import Tensor, image_input, other_inputs

__all__ = ["ImageInput", "image_input_of", "padded"]


@dataclass(frozen=True)
class ImageInput:
    """Where a model takes images.

    Attributes:
        name: The input's name.
        dtype: Its numpy name.
        preprocessing: Fit for it.
        constants: What every other input holds: shape behind the batch, dtype, value. None in place of the
            shape stands for a scalar.
    """

    name: str
    dtype: str
    preprocessing: Preprocessing
    constants: Mapping[str, tuple[tuple[int, ...] | None, str, float]]

    def feeds(self, images: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[Any]]:
        """Preprocessed images ``[batch, ...] float32`` as the model wants them, and the other inputs."""
        found = {self.name: images.astype(self.dtype, copy=False)}
        for name, (rest, dtype, value) in self.constants.items():
            shape = () if rest is None else (len(images), *rest)
            found[name] = np.full(shape, value, dtype=dtype)
        return found


def image_input_of(
    inputs: Sequence[Tensor],
    preprocess: Preprocessing | None,
    entries: Mapping[str, InputEntry],
    model: str,
) -> ImageInput:
    """Where a model takes images.

    Args:
        inputs: Of the session, or of the file.
        preprocess: What the user said of the images.
        entries: What the user said of the inputs: each but the image must be a constant.
        model: For messages.

    Raises:
        DataError: There is no preprocessing, or no input that takes images.
        ConfigError: The preprocessing does not fit, or another input is no constant.
    """
    image = image_input(inputs)
    if image is None or image.shape is None or image.dtype is None:
        shapes = ", ".join(f"{one.name!r} {list(one.shape or ())}" for one in inputs)
        raise DataError(f"{model}: takes no images: wants one input of four dimensions, has {shapes}")
    if preprocess is None:
        raise DataError(f"{model}: no preprocessing is given, so no image can be fed to it")
    constants = {}
    for one in other_inputs(inputs):
        entry = entries.get(one.name)
        if entry is None or entry.range is None or entry.range[0] != entry.range[1]:
            raise ConfigError(
                f"{model}: what is its input {one.name!r} to hold while images are fed to {image.name!r}? "
                f"Give it a constant: --input {one.name}=VALUE (in a study, inputs: "
                f"{{{one.name}: {{range: [VALUE, VALUE]}}}})"
            )
        check_range(one.name, one.dtype or "float32", entry.range)
        rest = tuple(side if isinstance(side, int) else 1 for side in (one.shape or ())[1:])
        constants[one.name] = (rest if one.shape else None, one.dtype or "float32", entry.range[0])
    try:
        fitting = preprocess.for_input(image.shape, image.dtype)
    except ConfigError as error:
        raise ConfigError(f"{model}: {error}") from error
    return ImageInput(image.name, image.dtype, fitting, constants)


def padded(images: npt.NDArray[np.float32], batch: int) -> npt.NDArray[np.float32]:
    """``[n, ...]`` grown to ``[batch, ...]`` by repeating the last image; callers drop the extra rows."""
    short = batch - len(images)
    return np.concatenate([images, np.repeat(images[-1:], short, axis=0)]) if short else images

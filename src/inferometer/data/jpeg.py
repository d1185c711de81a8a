"""JPEGs straight from libjpeg-turbo, by the package ``simplejpeg`` (the extra ``fast``), where its pixels are
those that Pillow decodes.

Pillow decodes by libjpeg-turbo too, but the two may hold different versions of it, and a Pillow may be built
on another library. Each kind of JPEG is therefore decoded by both, once, before it is left to ``simplejpeg``.
What is not surely the same is None here and goes to Pillow: CMYK, unusual subsampling, arithmetic coding,
12 bits, every file with a fault.
"""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from threading import Lock
from types import ModuleType

import numpy as np
import numpy.typing as npt
from PIL import Image, features

__all__ = ["Frame", "decoder_name", "frame_of", "picture_of"]

_LOADING = Lock()

# Baseline, extended and progressive, all Huffman-coded. Source: ITU-T T.81, table B.1.
_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
_START_OF_SCAN = 0xDA

# The subsamplings that are tried out: the factors (horizontal, vertical) of the first component, those of the
# other two being 1, by the names of simplejpeg.
_KINDS = {(1, 1): "444", (2, 1): "422", (2, 2): "420", (1, 2): "440", (4, 1): "411"}


@dataclass(frozen=True)
class Frame:
    """What a JPEG's header says of its pixels.

    Attributes:
        width: Pixels.
        height: The same.
        sampling: Horizontal and vertical factor of the luma; None for grayscale.
    """

    width: int
    height: int
    sampling: tuple[int, int] | None


def frame_of(data: bytes) -> Frame | None:
    """The frame of a JPEG that ``picture_of`` may take; None for any other bytes."""
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4])
        if marker in _FRAMES:
            return _frame(data[at + 4 : at + 2 + length])
        if marker in _OTHER_FRAMES or marker == _START_OF_SCAN:
            return None
        at += 2 + length
    return None


def picture_of(data: bytes, frame: Frame, factor: int = 1) -> npt.NDArray[np.uint32] | None:
    """Decode a JPEG.

    Args:
        data: The file's bytes.
        frame: What ``frame_of`` said of them.
        factor: 1, 2, 4 or 8, by which both sides are reduced while it is decoded, and rounded up.

    Returns:
        ``[H, W] uint32``, contiguous; each pixel is R, G, B in memory, and a byte that does not count. None
        where Pillow has to decide: without simplejpeg, or when libjpeg-turbo has anything to complain of.
    """
    code = _checked(frame.sampling)
    # Below 8 pixels a factor such as 3/8 gives the same size as 1/2, and simplejpeg is asked for a size.
    if code is None or (factor > 1 and min(frame.width, frame.height) < 8):
        return None
    height, width = -(-frame.height // factor), -(-frame.width // factor)
    reduced = {"min_height": height, "min_width": width} if factor > 1 else {}
    try:
        pixels: npt.NDArray[np.uint8] = code.decode_jpeg(data, "RGBX", **reduced, strict=True)
    except ValueError:
        return None
    return pixels.view(np.uint32)[..., 0] if pixels.shape == (height, width, 4) else None


def decoder_name(alone: bool = False) -> str:
    """What decodes JPEGs here, with versions.

    Args:
        alone: Leave simplejpeg out of account.
    """
    turbo = features.version_feature("libjpeg_turbo")
    pillow = f"Pillow {version('pillow')} ({f'libjpeg-turbo {turbo}' if turbo else 'libjpeg'})"
    if alone or _checked((2, 2)) is None:
        return pillow
    return f"simplejpeg {version('simplejpeg')}, pixel by pixel as {pillow}"


def _frame(segment: bytes) -> Frame | None:
    """Of a frame header: 8 bits; height, width; then id, factors and table of each component."""
    if len(segment) < 6 or segment[0] != 8 or len(segment) != 6 + 3 * segment[5]:
        return None
    height, width = int.from_bytes(segment[1:3]), int.from_bytes(segment[3:5])
    factors = [(byte >> 4, byte & 15) for byte in segment[7::3]]
    if not height or not width:
        return None
    if factors == [(1, 1)]:
        return Frame(width, height, None)
    usual = len(factors) == 3 and factors[0] in _KINDS and factors[1:] == [(1, 1)] * 2
    return Frame(width, height, factors[0]) if usual else None


def _checked(sampling: tuple[int, int] | None) -> ModuleType | None:
    """simplejpeg, if it decodes this kind as Pillow does."""
    with _LOADING:
        code = _loaded()
        return code if code is not None and _same(code, sampling) else None


@cache
def _loaded() -> ModuleType | None:
    try:
        return importlib.import_module("simplejpeg")
    except (ImportError, ValueError):  # not there, or built for another NumPy
        return None


@cache
def _same(code: ModuleType, sampling: tuple[int, int] | None) -> bool:
    """Whether both decode a small noisy JPEG of this kind alike, whole and reduced."""
    noise = np.random.default_rng(0).integers(0, 256, (51, 83, 3), dtype=np.uint8)
    kind = "Gray" if sampling is None else _KINDS[sampling]
    picture = np.ascontiguousarray(noise[..., :1]) if sampling is None else noise
    samples = [code.encode_jpeg(picture, 80, "Gray" if sampling is None else "RGB", kind)]
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(samples[0])) as first:
        first.save(buffer, "JPEG", quality="keep", subsampling="keep", progressive=True)
    return all(
        _alike(code, data, factor) for data in (*samples, buffer.getvalue()) for factor in (1, 2, 4, 8)
    )


def _alike(code: ModuleType, data: bytes, factor: int) -> bool:
    with Image.open(io.BytesIO(data)) as image:
        size = (-(-image.width // factor), -(-image.height // factor))
        image.draft(None, (image.width // factor, image.height // factor))
        expected = np.asarray(image.convert("RGB"))
    found = code.decode_jpeg(data, "RGBX", min_height=size[1], min_width=size[0], strict=True)
    return np.array_equal(found[..., :3], expected)

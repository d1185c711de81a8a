"""From an image file's bytes to 8-bit pixels, upright, in RGB or grayscale; every fault is a ``DataError``.

The rules, the same for every format:

* JPEG, PNG, WebP, BMP and GIF, recognised by content and never by the file's name; of an animation the
  first frame.
* The EXIF orientation is applied. EXIF data that cannot be read counts as absent: the pixels are sound.
* CMYK and YCCK JPEGs are taken for inverted, as Adobe writes them, with Adobe's marker or without, and become
  RGB without their ICC profile. No ICC profile and no gamma is applied to any image.
* Grayscale becomes RGB by repetition; RGB becomes grayscale by ITU-R 601 luma.
* Transparency (alpha channel, transparent palette entry or colour key) is composited on black, so that
  what nobody sees does not count.
* 16-bit grayscale is scaled, round(v / 257), and not clipped; of 16-bit colour, and of 16-bit grayscale with
  alpha, Pillow keeps the high byte, which is at most 1 less.
* An image of more than ``MAX_PIXELS`` pixels is refused before it is decompressed.
"""

from __future__ import annotations

import codecs
import io
import math
import struct
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from inferometer.errors import DataError

__all__ = [
    "EXTENSIONS",
    "FORMATS",
    "MAX_PIXELS",
    "Decoded",
    "JpegHeader",
    "decode",
    "decode_reduced",
    "jpeg_header",
    "to_channels",
]

MAX_PIXELS = 1024**3 // 4 // 3
"""Most pixels an image may have: 89 478 485, a quarter of a GiB as RGB.

Source: Pillow's ``Image.MAX_IMAGE_PIXELS``, above which it warns of a decompression bomb.
"""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
"""The formats that are read, by Pillow's names."""

EXTENSIONS = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif"})
"""File name endings, in lower case, that mark an image in a folder; what is inside decides the format."""

# What Pillow raises for broken files, besides its own classes: its parsers index, unpack and convert
# bytes that may be anything. MemoryError is left alone: it is no fault of the image.
_BROKEN = (
    OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError,
    OverflowError, ZeroDivisionError, RuntimeError, AssertionError, struct.error, zlib.error, Warning,
)  # fmt: skip

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# The same for arrays: whether rows and columns are mirrored, from 5 on after the axes are swapped.
_MIRRORED = {
    1: (False, False), 2: (False, True), 3: (True, True), 4: (True, False), 5: (False, False),
    6: (False, True), 7: (True, True), 8: (True, False),
}  # fmt: skip

# How other files begin. Source: the formats' specifications, as Python's and Pillow's readers check them.
_OTHERS = {
    b"II*\0": "TIFF: convert it", b"MM\0*": "TIFF: convert it", b"II+\0": "TIFF: convert it",
    b"MM\0+": "TIFF: convert it", b"\0\0\0\x0cjP  ": "JPEG 2000: convert it",
    b"\xff\x4f\xff\x51": "JPEG 2000: convert it", b"\0\0\0\x0cJXL ": "JPEG XL: convert it",
    b"\xff\x0a": "JPEG XL: convert it", b"8BPS": "a Photoshop document: convert it",
    b"\0\0\1\0": "an icon: convert it", b"%PDF": "PDF: convert it", b"PK\3\4": "a zip archive: unpack it",
    b"\x1f\x8b": "a gzip archive: unpack it",
    b"version https://git-lfs.github.com": "a pointer of Git LFS: fetch the image with git lfs pull",
}  # fmt: skip
_BRANDS = {
    b"heic": "HEIC: convert it", b"heix": "HEIC: convert it", b"mif1": "HEIC: convert it",
    b"heim": "HEIC: convert it", b"avif": "AVIF: convert it", b"avis": "AVIF: convert it",
}  # fmt: skip

# Pillow reports by warnings. A bomb must be an error before it goes off; damaged metadata of a sound image
# is nobody's concern. Set once, because filters are the whole process's and cannot be changed by threads.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


@dataclass(frozen=True)
class Decoded:
    """An image and the size of what it was decoded from.

    Attributes:
        image: Upright, RGB or L; perhaps reduced.
        size: Width and height in pixels, upright, before any reduction.
        window: Left, top, right and bottom of what shows all of it and no more, when it was reduced.
    """

    image: Image.Image
    size: tuple[int, int]
    window: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class JpegHeader:
    """What Pillow makes of a JPEG before it is decompressed.

    Attributes:
        stored: Width and height of the pixels as they are stored.
        orientation: 2 to 8 where they have to be turned (EXIF, tag 274); None where not.
    """

    stored: tuple[int, int]
    orientation: int | None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height when upright."""
        return _turned(self.stored, self.orientation)

    def window(self, factor: int) -> tuple[float, float, float, float] | None:
        """Where the whole image is in one reduced by ``factor``; None for 1.

        Sides are rounded up when they are divided: the last stored row and column show less than the others.
        """
        if factor == 1:
            return None
        width, height = (side / factor for side in self.size)
        rows, columns = _MIRRORED[self.orientation or 1]
        left = math.ceil(width) - width if columns else 0.0
        top = math.ceil(height) - height if rows else 0.0
        return left, top, left + width, top + height

    def upright(self, picture: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """``[H, W]`` stored pixels, turned as Pillow would turn the image; contiguous."""
        if self.orientation is None:
            return picture
        view = picture.T if self.orientation >= 5 else picture
        rows, columns = _MIRRORED[self.orientation]
        return np.ascontiguousarray(view[:: -1 if rows else 1, :: -1 if columns else 1])


def decode(data: bytes, name: str, channels: Literal["RGB", "L"]) -> Image.Image:
    """Decode one image file.

    Args:
        data: The file's bytes.
        name: The file's name, for messages.
        channels: ``RGB`` or ``L`` (grayscale).

    Returns:
        An upright 8-bit image of that mode, by the rules at the head of this module.

    Raises:
        DataError: The bytes are no image of a known format, or one that is truncated, broken or too large.
    """
    return decode_reduced(data, name, channels, lambda width, height: 1).image


def decode_reduced(
    data: bytes, name: str, channels: Literal["RGB", "L"], factor: Callable[[int, int], int]
) -> Decoded:
    """Decode one image file; a JPEG may be reduced while it is decoded.

    Args:
        data: The file's bytes.
        name: The file's name, for messages.
        channels: ``RGB`` or ``L`` (grayscale).
        factor: Called with the upright width and height of a JPEG: 1, 2, 4 or 8, by which both sides are
            divided, and rounded up.

    Raises:
        DataError: As ``decode``.
    """
    if not data:
        raise DataError(f"{name}: the file is empty (0 bytes)")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            _refuse_bomb(opened.size, name)
            if isinstance(opened, JpegImageFile):
                header = JpegHeader(opened.size, _orientation(opened))
                by = factor(*header.size)
                opened.draft(None, (opened.width // by, opened.height // by))
                opened.load()
                return Decoded(to_channels(_upright(opened), channels), header.size, header.window(by))
            opened.load()
            image = to_channels(_upright(opened), channels)
            return Decoded(image, image.size)
    except UnidentifiedImageError as error:
        raise DataError(f"{name}: {_what_else(data)}") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{name}: more than {MAX_PIXELS} pixels, refused as a decompression bomb") from error
    except _BROKEN as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: truncated or broken image ({cause})") from error


def jpeg_header(data: bytes) -> JpegHeader | None:
    """The header of a JPEG in grayscale or three colours; None for all else, and for what Pillow refuses."""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as opened:
            usual = opened.format == "JPEG" and opened.mode in ("RGB", "L")
            if not usual or opened.width * opened.height > MAX_PIXELS:
                return None
            return JpegHeader(opened.size, _orientation(opened))
    except (*_BROKEN, Image.DecompressionBombError):
        return None


def to_channels(image: Image.Image, channels: Literal["RGB", "L"]) -> Image.Image:
    """An image of any of Pillow's modes as 8-bit RGB or grayscale, by the rules at the head of this module.

    Args:
        image: A loaded image.
        channels: The mode wanted.

    Returns:
        An image of mode ``channels``; ``image`` itself when it is one already.
    """
    if image.mode.startswith("I"):
        image = _eight_bits(image)
    elif image.has_transparency_data:
        visible = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (0, 0, 0, 255)), visible).convert("RGB")
    if image.mode not in ("RGB", "L"):
        image = image.convert("RGB")
    return image if image.mode == channels else image.convert(channels)


def _refuse_bomb(size: tuple[int, int], name: str) -> None:
    # Again, since the filter above may have been replaced by the program around.
    if size[0] * size[1] > MAX_PIXELS:
        raise DataError(
            f"{name}: {size[0]}x{size[1]} pixels, more than {MAX_PIXELS}: refused as a decompression bomb"
        )


def _orientation(image: Image.Image) -> int | None:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except _BROKEN:
        return None
    return orientation if isinstance(orientation, int) and orientation in _UPRIGHT else None


def _turned(size: tuple[int, int], orientation: int | None) -> tuple[int, int]:
    return size if orientation is None or orientation < 5 else (size[1], size[0])


def _upright(image: Image.Image) -> Image.Image:
    """Turned as the EXIF orientation says (PNG may keep it behind the pixels: ``image`` is loaded)."""
    orientation = _orientation(image)
    return image if orientation is None else image.transpose(_UPRIGHT[orientation])


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grayscale to 8 bits: round(255 v / 65535)."""
    values = np.asarray(image).astype(np.uint32)
    key = image.info.get("transparency")
    if isinstance(key, int):
        values[values == key] = 0
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))


def _what_else(data: bytes) -> str:
    """What the bytes are, when they are no image."""
    known = "JPEG, PNG, WebP, BMP or GIF"
    webp = data[:4] == b"RIFF" and data[8:12] in (b"WEBP", b"")
    if webp or data[:2] in (b"\xff\xd8", b"BM") or data[:4] in (b"\x89PNG", b"GIF8"):
        return f"begins like an image of {known}, but its header is truncated or broken"
    for start, kind in _OTHERS.items():
        if data.startswith(start):
            return f"is no image in {known}, but {kind}"
    if data[4:8] == b"ftyp":
        return f"is no image in {known}, but {_BRANDS.get(data[8:12], 'a video')}"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data[:512])
    except UnicodeDecodeError:
        return f"is no image in {known}"
    if "<svg" in text:
        return f"is no image in {known}, but SVG: convert it"
    holds_text = all(letter.isprintable() or letter.isspace() for letter in text)
    return f"holds text, not an image ({known})" if holds_text else f"is no image in {known}"

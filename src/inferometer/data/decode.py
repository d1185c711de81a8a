"""From an image file's bytes to 8-bit pixels, upright, in RGB or grayscale; every fault is a ``DataError``.

The rules, the same for every format:

* JPEG, PNG, WebP, BMP and GIF, recognised by content and never by the file's name; of an animation the
  first frame.
* The EXIF orientation is applied. EXIF data that cannot be read counts as absent: the pixels are sound.
* CMYK and YCCK JPEGs: Pillow takes them for inverted, as Adobe writes them, and converts to RGB without
  their ICC profile. No ICC profile is applied to any image.
* Grayscale becomes RGB by repetition; RGB becomes grayscale by ITU-R 601 luma.
* Transparency (alpha channel, transparent palette entry or colour key) is composited on black, so that
  what nobody sees does not count.
* 16-bit grayscale is scaled, round(v / 257), and not clipped; of 16-bit colour Pillow keeps the high byte.
* An image of more than ``MAX_PIXELS`` pixels is refused before it is decompressed.
"""

from __future__ import annotations

import codecs
import io
import struct
import warnings
import zlib
from typing import Literal

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from inferometer.errors import DataError

__all__ = ["EXTENSIONS", "FORMATS", "MAX_PIXELS", "decode", "to_channels"]

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

# Pillow reports by warnings. A bomb must be an error before it goes off; damaged metadata of a sound image
# is nobody's concern. Set once, because filters are the whole process's and cannot be changed by threads.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


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
    if not data:
        raise DataError(f"{name}: the file is empty (0 bytes)")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            _refuse_bomb(opened.size, name)
            opened.load()
            return to_channels(_upright(opened), channels)
    except UnidentifiedImageError as error:
        raise DataError(f"{name}: {_what_else(data)}") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{name}: more than {MAX_PIXELS} pixels, refused as a decompression bomb") from error
    except _BROKEN as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: truncated or broken image ({cause})") from error


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


def _upright(image: Image.Image) -> Image.Image:
    """Turned as the EXIF orientation says (PNG may keep it behind the pixels: ``image`` is loaded)."""
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except _BROKEN:
        return image
    method = _UPRIGHT.get(orientation) if isinstance(orientation, int) else None
    return image if method is None else image.transpose(method)


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grayscale to 8 bits: round(255 v / 65535)."""
    values = np.asarray(image).astype(np.uint32)
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))


def _what_else(data: bytes) -> str:
    """What the bytes are, when they are no image."""
    known = "JPEG, PNG, WebP, BMP or GIF"
    if data[:2] in (b"\xff\xd8", b"BM") or data[:4] in (b"\x89PNG", b"GIF8", b"RIFF"):
        return f"begins like an image of {known}, but its header is truncated or broken"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data[:512])
    except UnicodeDecodeError:
        return f"is no image in {known}"
    holds_text = all(letter.isprintable() or letter.isspace() for letter in text)
    return f"holds text, not an image ({known})" if holds_text else f"is no image in {known}"

"""From a file's bytes to the 8-bit pixels that a preprocessing leaves."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from inferometer.data import jpeg
from inferometer.data.decode import decode_reduced, jpeg_header
from inferometer.data.jpeg import frame_of, picture_of
from inferometer.data.preprocess import Preprocessing
from inferometer.data.resample import resampler

__all__ = ["decoder_name", "pixels_of"]


def pixels_of(data: bytes, name: str, preprocessing: Preprocessing) -> npt.NDArray[np.uint8]:
    """Decode, resize and crop one image.

    With the extra ``fast`` most JPEGs take a shorter way, to the same pixels and the same errors.

    Args:
        data: The file's bytes.
        name: The file's name, for messages.
        preprocessing: What is to be done.

    Returns:
        [H, W, C] uint8, in the order of the preprocessing's ``channels``.

    Raises:
        DataError: The bytes are no image, or one that the preprocessing cannot use.
    """
    pixels = _fast(data, preprocessing)
    if pixels is not None:
        return pixels
    mode: Literal["RGB", "L"] = "L" if preprocessing.channels == "L" else "RGB"
    decoded = decode_reduced(data, name, mode, preprocessing.reduction)
    return preprocessing.pixels(decoded.image, decoded.size, decoded.window)


def decoder_name() -> str:
    """What decodes ordinary JPEGs for ``pixels_of``, with versions, for the record."""
    return jpeg.decoder_name(alone=resampler() is None)


def _fast(data: bytes, preprocessing: Preprocessing) -> npt.NDArray[np.uint8] | None:
    """The same from libjpeg-turbo and compiled code; None where Pillow has to decide."""
    frame = frame_of(data)
    fast = resampler() if frame is not None else None
    if frame is None or fast is None or not fast.takes(frame.width, frame.height):
        return None
    header = jpeg_header(data)
    if header is None or header.stored != (frame.width, frame.height):
        return None
    factor = preprocessing.reduction(*header.size)
    picture = picture_of(data, frame, factor)
    if picture is None:
        return None
    picture = header.upright(picture)
    if preprocessing.channels == "L" and frame.sampling is not None:
        picture = fast.luma(picture)
    return preprocessing.of_picture(fast, picture, header.size, header.window(factor))

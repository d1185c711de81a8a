"""From a file's bytes to the 8-bit pixels that a preprocessing leaves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inferometer.data.decode import decode
from inferometer.data.preprocess import Preprocessing

__all__ = ["pixels_of"]


def pixels_of(data: bytes, name: str, preprocessing: Preprocessing) -> npt.NDArray[np.uint8]:
    """Decode, resize and crop one image.

    Args:
        data: The file's bytes.
        name: The file's name, for messages.
        preprocessing: What is to be done.

    Returns:
        [H, W, C] uint8, in the order of the preprocessing's ``channels``.

    Raises:
        DataError: The bytes are no image, or one that the preprocessing cannot use.
    """
    image = decode(data, name, "L" if preprocessing.channels == "L" else "RGB")
    return preprocessing.pixels(image)

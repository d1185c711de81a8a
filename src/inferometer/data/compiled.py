"""Resampling and normalising as machine code: the pixels of Pillow's ``resize``, bit for bit, and only those
that a crop keeps.

Imported by ``resample`` alone, where numba is (the extra ``fast``). A picture is ``[H, W] uint32`` here, each
pixel three bytes of colour and one that counts for nothing, as libjpeg-turbo writes it.

Source of all arithmetic: Pillow, src/libImaging/Resample.c (``precompute_coeffs``,
``normalize_coeffs_8bpc``, ``ImagingResampleHorizontal_8bpc`` and ``..Vertical_8bpc``): weights in double
precision, then fixed point of 22 bits; the horizontal pass first, rounded to 8 bits, then the vertical one.
Sums wrap as 32-bit integers in both.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from inferometer.compiling import compiled

__all__ = ["luma", "normalise", "packed", "resampled"]

_BITS = 32 - 8 - 2  # PRECISION_BITS
_ONE = float(1 << _BITS)
_HALF = 1 << (_BITS - 1)
_ROWS = 16  # of the horizontal pass side by side: 64 bytes for each column, one line of the cache

_READ_ONLY_PIXELS = types.Array(types.uint8, 3, "A", readonly=True)
_TABLES = types.Array(types.float32, 2, "C", readonly=True)
_PICTURE = types.Array(types.uint32, 2, "C")
_TUPLES: Any = types  # which are not annotated
_WINDOW = _TUPLES.UniTuple(types.float64, 4)
_PASS = _TUPLES.Tuple((types.int32[::1], types.int32[::1], types.int32[:, ::1]))


@compiled(types.float64(types.float64, types.boolean))
def _weight(x: Any, cubic: Any) -> Any:
    """Of a sample at distance ``x``: the triangle, or Keys' cubic with a = -0.5."""
    x = abs(x)
    if not cubic:
        return 1.0 - x if x < 1.0 else 0.0
    if x < 1.0:
        return ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1
    if x < 2.0:
        return (((x - 5) * x + 8) * x - 4) * -0.5
    return 0.0


@compiled(_PASS(types.int64, *[types.float64] * 2, *[types.int64] * 3, types.boolean))
def _weights(size: Any, begin: Any, end: Any, resized: Any, first: Any, count: Any, cubic: Any) -> Any:
    """For each result from ``first`` on: its first sample, the number of samples, their weights."""
    scale = (end - begin) / resized
    stretch = max(scale, 1.0)  # reducing is antialiased: the filter grows with the factor
    support = (2.0 if cubic else 1.0) * stretch
    starts = np.empty(count, np.int32)
    numbers = np.empty(count, np.int32)
    table = np.zeros((count, math.ceil(support) * 2 + 1), np.int32)
    exact = np.empty(table.shape[1])
    for i in range(count):
        center = begin + (first + i + 0.5) * scale
        start = max(int(center - support + 0.5), 0)
        number = min(int(center + support + 0.5), size) - start
        total = 0.0
        for j in range(number):
            exact[j] = _weight((j + start - center + 0.5) * (1.0 / stretch), cubic)
            total += exact[j]
        for j in range(number):
            weight = (exact[j] / total if total != 0.0 else exact[j]) * _ONE
            table[i, j] = int(weight - 0.5) if weight < 0 else int(weight + 0.5)
        starts[i] = start
        numbers[i] = number
    return starts, numbers, table


@compiled(
    types.void(
        types.int32[::1],
        types.int64,
        types.uint8[::1],
        types.int64,
        types.int64,
        types.int32[:, ::1],
        types.int64,
    )
)
def _weigh(sums: Any, size: Any, lines: Any, start: Any, number: Any, table: Any, row: Any) -> None:
    """The weighted sum of ``number`` lines of ``size`` bytes, from line ``start`` on.

    Three at a time, which halves the time; by plain indices, since a slice in the inner loop is counted.
    """
    at, step = np.uint64(start * size), np.uint64(size)
    u = table[row, 0]
    for i in range(size):
        sums[i] = np.int32(_HALF) + np.int32(lines[at + np.uint64(i)]) * u
    j = 1
    while j + 3 <= number:
        a = at + np.uint64(j) * step
        b, c = a + step, a + step + step
        u, v, w = table[row, j], table[row, j + 1], table[row, j + 2]
        for i in range(size):
            sums[i] += (
                np.int32(lines[a + np.uint64(i)]) * u
                + np.int32(lines[b + np.uint64(i)]) * v
                + np.int32(lines[c + np.uint64(i)]) * w
            )
        j += 3
    while j < number:
        a, u = at + np.uint64(j) * step, table[row, j]
        for i in range(size):
            sums[i] += np.int32(lines[a + np.uint64(i)]) * u
        j += 1


@compiled(types.void(types.int32[::1], types.int64, types.uint8[::1]))
def _clip(sums: Any, size: Any, values: Any) -> None:
    for i in range(size):
        values[i] = min(max(sums[i] >> _BITS, 0), 255)


@compiled(_PICTURE(_PICTURE, types.int64, types.int64, _PASS))
def _across(picture: Any, top: Any, bottom: Any, weights: Any) -> Any:
    """The horizontal pass over rows ``top`` to ``bottom``.

    Some rows are laid side by side, column by column, so that one weight serves many neighbouring bytes.
    """
    starts, numbers, table = weights
    left = starts[0]
    width = starts[-1] + numbers[-1] - left
    done = np.empty((bottom - top, starts.size), np.uint32)
    columns = np.zeros((width, _ROWS), np.uint32)
    lines = columns.ravel().view(np.uint8)
    sums = np.empty(_ROWS * 4, np.int32)
    values = np.empty(_ROWS * 4, np.uint8)
    pixels = values.view(np.uint32)
    for y in range(top, bottom, _ROWS):
        rows = min(_ROWS, bottom - y)
        for r in range(rows):
            row = picture[y + r]
            for x in range(width):
                columns[x, r] = row[left + x]
        for i in range(starts.size):
            _weigh(sums, _ROWS * 4, lines, starts[i] - left, numbers[i], table, i)
            _clip(sums, _ROWS * 4, values)
            for r in range(rows):
                done[y - top + r, i] = pixels[r]
    return done


@compiled(types.uint8[:, :, ::1](_PICTURE, _WINDOW, *[types.int64] * 6, types.boolean))
def resampled(
    picture: Any,
    window: Any,
    width: Any,
    height: Any,
    left: Any,
    top: Any,
    columns: Any,
    rows: Any,
    cubic: Any,
) -> Any:
    """Resize a picture to ``height`` x ``width`` and keep a rectangle of it.

    Args:
        picture: ``[H, W] uint32``.
        window: Left, top, right and bottom of what is resized, in its pixels, float64.
        width: After resizing, pixels.
        height: The same.
        left: Of the rectangle.
        top: The same.
        columns: Its width.
        rows: Its height.
        cubic: Bicubic instead of bilinear.

    Returns:
        ``[3, rows, columns] uint8``.
    """
    across = _weights(picture.shape[1], window[0], window[2], width, left, columns, cubic)
    starts, numbers, table = _weights(picture.shape[0], window[1], window[3], height, top, rows, cubic)
    first = starts[0]
    lines = _across(picture, first, starts[-1] + numbers[-1], across).ravel().view(np.uint8)
    sums = np.empty(columns * 4, np.int32)
    values = np.empty(columns * 4, np.uint8)
    planes = np.empty((3, rows, columns), np.uint8)
    for y in range(rows):
        _weigh(sums, sums.size, lines, starts[y] - first, numbers[y], table, y)
        _clip(sums, sums.size, values)
        for channel in range(3):
            row = planes[channel, y]
            for x in range(columns):
                row[x] = values[x * 4 + channel]
    return planes


@compiled(_PICTURE(_READ_ONLY_PIXELS))
def packed(pixels: Any) -> Any:
    """``[H, W, 1 or 3] uint8`` as a picture; one channel is repeated."""
    height, width, channels = pixels.shape
    picture = np.empty((height, width), np.uint32)
    lanes = picture.view(np.uint8)
    for y in range(height):
        for x in range(width):
            for lane in range(4):
                lanes[y, x * 4 + lane] = pixels[y, x, min(lane, channels - 1)]
    return picture


@compiled(_PICTURE(_PICTURE))
def luma(picture: Any) -> Any:
    """The brightness of each pixel, in all its channels.

    Source: ITU-R 601 in 16 bits, as Pillow converts (src/libImaging/Convert.c, ``L24``).
    """
    made = np.empty(picture.shape, np.uint32)
    lanes = picture.view(np.uint8)
    brightness = made.view(np.uint8)
    for y in range(picture.shape[0]):
        for x in range(0, picture.shape[1] * 4, 4):
            weighed = lanes[y, x] * 19595 + lanes[y, x + 1] * 38470 + lanes[y, x + 2] * 7471
            for lane in range(4):
                brightness[y, x + lane] = (weighed + 0x8000) >> 16
    return made


@compiled(types.void(_READ_ONLY_PIXELS, _TABLES, types.float32[:, :, :]))
def normalise(pixels: Any, tables: Any, out: Any) -> None:
    """Look up every value of every pixel.

    Args:
        pixels: ``[H, W, C] uint8``.
        tables: ``[C, 256] float32``.
        out: ``[C, H, W] float32``, of any strides; overwritten.
    """
    height, width, channels = pixels.shape
    for channel in range(channels):
        table = tables[channel]
        for y in range(height):
            for x in range(width):
                out[channel, y, x] = table[pixels[y, x, channel]]

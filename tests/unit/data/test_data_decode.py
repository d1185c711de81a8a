import io
import random
import struct
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from inferometer.data.decode import EXTENSIONS, MAX_PIXELS, decode, to_channels
from inferometer.errors import DataError

# EXIF 2.32, tag 274: which visual edge the stored row 0 and the stored column 0 lie on.
ORIENTATIONS = {
    1: ("top", "left"),
    2: ("top", "right"),
    3: ("bottom", "right"),
    4: ("bottom", "left"),
    5: ("left", "top"),
    6: ("right", "top"),
    7: ("right", "bottom"),
    8: ("left", "bottom"),
}


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def photo(height=40, width=56):
    """A smooth colour gradient, which JPEG keeps well."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [x * 4, y * 5, 200 - x - y]
    return np.stack(planes, axis=-1).astype(np.uint8)


def stored(visual, orientation):
    """How a camera stores ``visual`` under this orientation, pixel by pixel from the standard's table."""
    height, width = visual.shape[:2]
    row0, column0 = ORIENTATIONS[orientation]
    upright = row0 in ("top", "bottom")
    out = np.empty_like(visual if upright else visual.transpose(1, 0, 2))
    for r in range(out.shape[0]):
        for c in range(out.shape[1]):
            along = {"top": r, "bottom": height - 1 - r, "left": r, "right": width - 1 - r}[row0]
            across = {"top": c, "bottom": height - 1 - c, "left": c, "right": width - 1 - c}[column0]
            y, x = (along, across) if upright else (across, along)
            out[r, c] = visual[y, x]
    return out


def exif(orientation):
    tags = Image.Exif()
    tags[274] = orientation
    return tags


def pixels(data, channels="RGB"):
    image = decode(data, "image", channels)
    assert image.mode == channels
    return np.asarray(image)


def png(header, data):
    """A PNG of one header (width, height, bits, colour type) and the raw rows."""
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", *header, 0, 0, 0), b"IDAT" + zlib.compress(data), b"IEND")
    framed = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def bomb(width, height):
    """A file of a hundred bytes that claims to hold this many pixels."""
    return png((width, height, 8, 2), bytes(1000))


def test_lossless_formats_come_back_exactly():
    array = np.random.default_rng(0).integers(0, 256, (13, 17, 3), dtype=np.uint8)
    image = Image.fromarray(array)
    for data in (encoded(image, "PNG"), encoded(image, "BMP"), encoded(image, "WEBP", lossless=True)):
        assert np.array_equal(pixels(data), array)


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 2, "restart_marker_blocks": 1}]
)
def test_jpeg_stays_near_the_original(options):
    difference = (
        pixels(encoded(Image.fromarray(photo()), "JPEG", quality=95, **options)).astype(int) - photo()
    )
    assert np.abs(difference).mean() < 2.5


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_every_exif_orientation_is_undone(orientation):
    visual = np.random.default_rng(1).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    image = Image.fromarray(stored(visual, orientation))
    assert np.array_equal(pixels(encoded(image, "PNG", exif=exif(orientation))), visual)
    assert np.array_equal(pixels(encoded(image, "WEBP", lossless=True, exif=exif(orientation))), visual)
    visual = photo()
    data = encoded(Image.fromarray(stored(visual, orientation)), "JPEG", quality=95, exif=exif(orientation))
    assert np.abs(pixels(data).astype(int) - visual).mean() < 2.5


@pytest.mark.parametrize("orientation", [0, 9])
def test_an_orientation_outside_the_standard_is_none(orientation):
    array = photo()
    assert np.array_equal(pixels(encoded(Image.fromarray(array), "PNG", exif=exif(orientation))), array)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("junk", [b"Exif\0\0junk", b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x03"])
def test_damaged_exif_does_not_spoil_a_sound_image(junk):
    data = encoded(Image.fromarray(photo()), "JPEG", quality=95, exif=junk)
    assert np.abs(pixels(data).astype(int) - photo()).mean() < 2.5


@pytest.mark.parametrize(
    ("ink", "expected"),
    [
        ((0, 0, 0, 0), (255, 255, 255)),
        ((255, 0, 0, 0), (0, 255, 255)),
        ((0, 255, 0, 0), (255, 0, 255)),
        ((0, 0, 255, 0), (255, 255, 0)),
        ((0, 0, 0, 255), (0, 0, 0)),
        ((0, 0, 0, 155), (100, 100, 100)),
        ((55, 105, 155, 128), (100, 75, 50)),  # (255 - ink) * (255 - 128) / 255
    ],
)
def test_cmyk_jpeg_becomes_rgb(ink, expected):
    data = encoded(Image.new("CMYK", (16, 16), ink), "JPEG", quality=100)
    assert np.abs(pixels(data).astype(int) - expected).max() <= 3


def test_ycck_jpeg_becomes_rgb():
    # Pillow writes plain CMYK only: put Y, Cb, Cr, K in its place and say so in Adobe's marker (transform 2).
    # Pure cyan ink is kept as the YCbCr of red (76, 85, 255), key as 255; Pillow inverts when it writes.
    image = Image.new("CMYK", (16, 16), tuple(255 - stored for stored in (76, 85, 255, 255)))
    data = bytearray(encoded(image, "JPEG", quality=100))
    marker = data.index(b"Adobe")
    assert data[marker + 11] == 0
    data[marker + 11] = 2
    assert np.abs(pixels(bytes(data)).astype(int) - (0, 255, 255)).max() <= 3


def test_grayscale_is_repeated_and_colour_becomes_luma():
    gray = np.arange(64, dtype=np.uint8).reshape(8, 8)
    assert np.array_equal(pixels(encoded(Image.fromarray(gray), "PNG")), np.stack([gray] * 3, axis=-1))
    jpeg = pixels(encoded(Image.new("L", (8, 8), 77), "JPEG"))
    assert jpeg.shape == (8, 8, 3)
    assert np.all(jpeg == 77)
    primaries = Image.fromarray(np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], dtype=np.uint8))
    assert pixels(encoded(primaries, "PNG"), "L").tolist() == [[76, 150, 29]]  # 0.299, 0.587, 0.114 of 255


def test_transparency_is_composited_on_black():
    rgba = np.array([[[200, 100, 50, 255], [200, 100, 50, 128], [200, 100, 50, 0]]], dtype=np.uint8)
    got = pixels(encoded(Image.fromarray(rgba), "PNG")).astype(int)
    assert np.abs(got - [[[200, 100, 50], [100, 50, 25], [0, 0, 0]]]).max() <= 1
    la = Image.fromarray(np.array([[[200, 128]]], dtype=np.uint8), "LA")
    assert pixels(encoded(la, "PNG"), "L").tolist() == [[100]]
    key = Image.fromarray(np.array([[[9, 8, 7], [1, 2, 3]]], dtype=np.uint8))
    assert pixels(encoded(key, "PNG", transparency=(9, 8, 7))).tolist() == [[[0, 0, 0], [1, 2, 3]]]


@pytest.mark.parametrize("transparency", [1, bytes([255, 0, 255])])
def test_a_transparent_palette_entry_is_black(transparency):
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.putdata([0, 1, 2])
    expected = [[[10, 20, 30], [0, 0, 0], [70, 80, 90]]]
    assert pixels(encoded(image, "PNG", transparency=transparency)).tolist() == expected
    if isinstance(transparency, int):
        assert pixels(encoded(image, "GIF", transparency=transparency)).tolist() == expected


def test_16_bit_grayscale_is_scaled_not_clipped():
    values = np.array([[0, 128, 129, 255, 257, 4660, 32768, 65535]], dtype=np.uint16)
    expected = [[0, 0, 1, 1, 1, 18, 128, 255]]  # round(v / 257)
    data = encoded(Image.fromarray(values), "PNG")
    assert pixels(data, "L").tolist() == expected
    assert pixels(data, "RGB")[..., 2].tolist() == expected
    assert to_channels(Image.fromarray(values.astype(np.int32)), "L").getpixel((6, 0)) == 128


def test_16_bit_colour_keeps_the_high_byte():
    rows = b"\0" + struct.pack(">6H", 0x1234, 0x5678, 0x9ABC, 0xFFFF, 0x00FF, 0x8000)
    data = png((2, 1, 16, 2), rows)
    assert pixels(data).tolist() == [[[0x12, 0x56, 0x9A], [0xFF, 0x00, 0x80]]]


def test_bilevel_and_animations():
    bits = Image.fromarray(np.array([[True, False]]))
    assert pixels(encoded(bits, "PNG"), "L").tolist() == [[255, 0]]
    frames = [Image.new("RGB", (5, 4), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    for kind, options in (("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {})):
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, **options)
        assert np.all(pixels(data) == (255, 0, 0)), kind


def whole(kind):
    noise = np.random.default_rng(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    return encoded(Image.fromarray(noise), kind)


BAD = {
    "empty": (b"", "a.jpg: the file is empty (0 bytes)"),
    "text": (b"this is no picture\n", "a.jpg: holds text, not an image"),
    "html": (("<html>é</html>" * 400).encode(), "a.jpg: holds text, not an image"),
    "binary": (bytes(range(256)), "a.jpg: is no image in JPEG, PNG, WebP, BMP or GIF"),
    "another format": (encoded(Image.new("RGB", (4, 4)), "TIFF"), "is no image in JPEG, PNG"),
    "half a JPEG": (whole("JPEG")[:3000], "truncated or broken image"),
    "half a PNG": (whole("PNG")[:3000], "truncated or broken image"),
    "half a WebP": (whole("WEBP")[:1000], "a.jpg: "),
    "half a BMP": (whole("BMP")[:3000], "truncated or broken image"),
    "half a GIF": (whole("GIF")[:1500], "truncated or broken image"),
    "a JPEG's first bytes": (whole("JPEG")[:4], "header is truncated or broken"),
    "a PNG's first bytes": (whole("PNG")[:20], "a.jpg: "),
    "bomb": (bomb(50_000, 50_000), "refused as a decompression bomb"),
    "small bomb": (bomb(9_000, 10_000), "refused as a decompression bomb"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named_with_their_cause(case):
    data, message = BAD[case]
    with pytest.raises(DataError) as caught:
        decode(data, "a.jpg", "RGB")
    assert str(caught.value).startswith("a.jpg: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bomb_is_refused_whatever_the_warning_filters_are():
    assert MAX_PIXELS == 89_478_485
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match="9000x10000 pixels, more than 89478485"):
            decode(bomb(9_000, 10_000), "a.png", "RGB")


def test_nothing_is_written_to_stderr():
    huge = bomb(9_000, 10_000)
    damaged = encoded(Image.fromarray(photo()), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x03")
    script = (
        "from inferometer.data.decode import decode\nfrom inferometer.errors import DataError\n"
        f"decode({damaged!r}, 'a', 'RGB')\ntry:\n    decode({huge!r}, 'a', 'RGB')\n"
        "except DataError:\n    print('refused')"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("refused\n", "")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_random_damage_gives_an_image_or_a_data_error():
    image = Image.fromarray(photo(12, 10))
    samples = [encoded(image, kind, **options) for kind, options in (
        ("JPEG", {"exif": exif(6)}), ("PNG", {"exif": exif(3)}), ("WEBP", {}), ("BMP", {}), ("GIF", {}),
    )]  # fmt: skip
    dice = random.Random(0)
    outcomes = set()
    for _ in range(1500):
        data = bytearray(dice.choice(samples))
        for _ in range(dice.choice([1, 2, 8])):
            data[dice.randrange(min(len(data), dice.choice([60, 10_000])))] = dice.randrange(256)
        data = data[: dice.choice([len(data), dice.randrange(len(data))])]
        try:
            outcomes.add(decode(bytes(data), "a", "RGB").mode)
        except DataError:
            outcomes.add("refused")
    assert outcomes == {"RGB", "refused"}


def test_extensions_are_those_of_the_formats():
    Image.init()
    ours = {"JPEG", "PNG", "WEBP", "BMP", "GIF"}
    assert all(Image.EXTENSION[extension] in ours for extension in EXTENSIONS)

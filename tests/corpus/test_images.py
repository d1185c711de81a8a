"""A corpus of image files: each gives the picture that was put in, or a sentence that says why not.

Every file is made here, most of them by hand where no library writes the kind. What is lossless has to come
back exactly, after the rules of ``inferometer.data.decode``; what is lossy, nearly.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from inferometer.data.pixels import pixels_of
from inferometer.data.preprocess import PRESETS, Preprocessing
from inferometer.data.source import MAX_FILE_BYTES, FolderSource
from inferometer.errors import DataError

WHOLE = Preprocessing(name="whole", mean=(0.0,) * 3, std=(1.0,) * 3)
HEIGHT, WIDTH = 24, 40
NEAR = 2.5  # mean absolute difference, levels

y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
PHOTO = np.stack([x * 5, y * 9, 200 - x - y], axis=-1).astype(np.uint8)
GREY = PHOTO[..., 0]
RGB = Image.fromarray(PHOTO)


def grey3(values: np.ndarray) -> np.ndarray:
    return np.repeat(np.asarray(values, np.uint8)[..., np.newaxis], 3, axis=-1)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(values: np.ndarray, bits: int, colour: int, *extra: bytes, interlaced: bool = False) -> bytes:
    """``[H, W, C]`` values of ``bits`` bits each as a PNG; Adam7 in seven passes."""
    height, width = values.shape[:2]
    passes = [
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]
    rows = b""
    for top, left, down, right in passes if interlaced else [(0, 0, 1, 1)]:
        kept = values[top::down, left::right]
        for row in kept.reshape(len(kept), kept.size // max(len(kept), 1)):
            if row.size:
                packed = np.unpackbits(row.astype(">u2").view(np.uint8)).reshape(-1, 16)[:, 16 - bits :]
                rows += b"\0" + np.packbits(packed).tobytes()
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, int(interlaced))
    body = b"".join(
        [chunk(b"IHDR", header), *extra, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    )
    return b"\x89PNG\r\n\x1a\n" + body


def bmp(bits: int, rows: bytes, width: int, height: int, compression: int = 0, extra: bytes = b"") -> bytes:
    """A BMP with an info header; ``extra``: masks or palette."""
    start = 54 + len(extra)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(rows), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + info + extra + rows


def segment(data: bytes, marker: int, content: bytes) -> bytes:
    """A JPEG with one more segment at its beginning."""
    return data[:2] + struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content + data[2:]


def exif(block: bytes) -> bytes:
    return segment(JPEG, 0xE1, b"Exif\0\0" + block)


def without(data: bytes, marker: int) -> bytes:
    """A JPEG without its first segment of that kind."""
    at = data.index(bytes([0xFF, marker]))
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4]) :]


def patched(data: bytes, mark: bytes, offset: int, new: bytes) -> bytes:
    at = data.index(mark) + offset
    return data[:at] + new + data[at + len(new) :]


def tags(orientation: int) -> Image.Exif:
    made = Image.Exif()
    made[274] = orientation
    return made


def frames(kind: str, **options: object) -> bytes:
    second = Image.new("RGB", RGB.size, (0, 0, 255))
    return saved(RGB, kind, save_all=True, append_images=[second], duration=40, **options)


def palette(**options: object) -> bytes:
    """Three pixels of three colours."""
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.putdata([0, 1, 2])
    return saved(image, str(options.pop("kind", "PNG")), **options)


JPEG = saved(RGB, "JPEG", quality=95, subsampling=0)
GREY_JPEG = saved(Image.fromarray(GREY), "JPEG", quality=95)
XMP = b"http://ns.adobe.com/xap/1.0/\0"
SIZE = b"\xff\xc0"
BANDS = [Image.fromarray(plane) for plane in (*np.moveaxis(255 - PHOTO, -1, 0), np.zeros_like(GREY))]
CMYK = saved(Image.merge("CMYK", BANDS), "JPEG", quality=98)
SUBSAMPLED = {
    name: saved(RGB, "JPEG", quality=95, subsampling=n) for n, name in enumerate(("444", "422", "420"))
}
STORED = {
    1: PHOTO, 2: PHOTO[:, ::-1], 3: PHOTO[::-1, ::-1], 4: PHOTO[::-1], 5: PHOTO.transpose(1, 0, 2),
    6: np.rot90(PHOTO), 7: PHOTO[::-1, ::-1].transpose(1, 0, 2), 8: np.rot90(PHOTO, -1),
}  # fmt: skip
"""How a camera stores the upright photograph; source: EXIF 2.32, tag 274."""

PALETTE = np.array([[[10, 20, 30], [40, 50, 60], [70, 80, 90]]])
HOLE = np.array([[[10, 20, 30], [0, 0, 0], [70, 80, 90]]])
LEVELS = np.arange(16).reshape(2, 8, 1)
WORDS = np.array([[0, 128, 129, 255, 257, 4660, 32768, 65535]])[..., np.newaxis]
SCALED = [[0, 0, 1, 1, 1, 18, 128, 255]]  # round(v / 257)
ALPHA = np.array([[[200, 100, 50, 255], [200, 100, 50, 0]]], np.uint8)
ON_BLACK = [[[200, 100, 50], [0, 0, 0]]]


def camera(orientation: int) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(STORED[orientation]))


def ycck() -> bytes:
    """Pure cyan ink, kept as the YCbCr of red (76, 85, 255); Pillow inverts when it writes."""
    image = Image.new("CMYK", (16, 16), (179, 170, 0, 0))
    return patched(saved(image, "JPEG", quality=100), b"Adobe", 11, b"\2")


def with_thumbnail() -> bytes:
    made = tags(1)
    made[0x010E] = "a description"
    return saved(RGB, "JPEG", quality=95, exif=made.tobytes() + saved(Image.new("RGB", (8, 8)), "JPEG"))


# Each: the bytes, the picture, and how far off it may be (mean of absolute differences).
SOUND: dict[str, Callable[[], tuple[bytes, object, float]]] = {
    "jpeg 4:4:4": lambda: (SUBSAMPLED["444"], PHOTO, NEAR),
    "jpeg 4:2:2": lambda: (SUBSAMPLED["422"], PHOTO, NEAR),
    "jpeg 4:2:0": lambda: (SUBSAMPLED["420"], PHOTO, NEAR),
    "jpeg grayscale with factors 2x1": lambda: (patched(GREY_JPEG, SIZE, 11, b"\x21"), grey3(GREY), NEAR),
    "jpeg progressive": lambda: (saved(RGB, "JPEG", quality=95, progressive=True), PHOTO, NEAR),
    "jpeg optimized": lambda: (saved(RGB, "JPEG", quality=95, optimize=True), PHOTO, NEAR),
    "jpeg restart markers": lambda: (saved(RGB, "JPEG", quality=95, restart_marker_blocks=1), PHOTO, NEAR),
    "jpeg of RGB, no YCbCr": lambda: (saved(RGB, "JPEG", quality=95, keep_rgb=True), PHOTO, NEAR),
    "jpeg grayscale": lambda: (GREY_JPEG, grey3(GREY), NEAR),
    "jpeg 1x1": lambda: (saved(Image.new("RGB", (1, 1), (200, 100, 50)), "JPEG"), [[[200, 100, 50]]], NEAR),
    "jpeg cmyk": lambda: (CMYK, PHOTO, NEAR),
    "jpeg cmyk without adobe's marker": lambda: (without(CMYK, 0xEE), PHOTO, NEAR),
    "jpeg ycck": lambda: (ycck(), np.full((16, 16, 3), (0, 255, 255)), NEAR),
    "jpeg without jfif": lambda: (without(JPEG, 0xE0), PHOTO, NEAR),
    "jpeg comment": lambda: (segment(JPEG, 0xFE, b"no comment"), PHOTO, NEAR),
    "jpeg icc profile": lambda: (saved(RGB, "JPEG", quality=95, icc_profile=bytes(3000)), PHOTO, NEAR),
    "jpeg corrupt exif": lambda: (exif(b"junk"), PHOTO, NEAR),
    "jpeg corrupt exif table": lambda: (exif(b"II*\0\x08\0\0\0\x05\0\x12\x01\x03"), PHOTO, NEAR),
    "jpeg huge exif": lambda: (exif(b"II*\0\x08\0\0\0\0\0" + bytes(65000)), PHOTO, NEAR),
    "jpeg exif with thumbnail": lambda: (with_thumbnail(), PHOTO, NEAR),
    "jpeg xmp that is no xml": lambda: (segment(JPEG, 0xE1, XMP + b"<x"), PHOTO, NEAR),
    "jpeg garbage behind": lambda: (JPEG + b"garbage" * 99, PHOTO, NEAR),
    "jpeg another jpeg behind": lambda: (JPEG + saved(Image.new("RGB", (9, 9)), "JPEG"), PHOTO, NEAR),
    "jpeg filled between markers": lambda: (JPEG[:2] + b"\xff\xff\xff" + JPEG[2:], PHOTO, NEAR),
    "mpo": lambda: (frames("MPO", quality=95, subsampling=0), PHOTO, NEAR),
    "png 1-bit gray": lambda: (png(LEVELS % 2, 1, 0), grey3(LEVELS[..., 0] % 2 * 255), 0),
    "png 2-bit gray": lambda: (png(LEVELS % 4, 2, 0), grey3(LEVELS[..., 0] % 4 * 85), 0),
    "png 4-bit gray": lambda: (png(LEVELS, 4, 0), grey3(LEVELS[..., 0] * 17), 0),
    "png 8-bit gray": lambda: (png(GREY[..., np.newaxis], 8, 0), grey3(GREY), 0),
    "png 16-bit gray": lambda: (png(WORDS, 16, 0), grey3(SCALED), 0),
    "png 16-bit gray with a key": lambda: (
        png(WORDS, 16, 0, chunk(b"tRNS", struct.pack(">H", 32768))), grey3([[0, 0, 1, 1, 1, 18, 0, 255]]), 0
    ),
    "png 16-bit gray with alpha": lambda: (
        png(np.array([[[0x1234, 0xFFFF], [0xFFFF, 0]]]), 16, 4), grey3([[0x12, 0]]), 0
    ),
    "png rgb": lambda: (saved(RGB, "PNG"), PHOTO, 0),
    "png interlaced": lambda: (png(PHOTO, 8, 2, interlaced=True), PHOTO, 0),
    "png interlaced 1x3": lambda: (png(PHOTO[:3, :1], 8, 2, interlaced=True), PHOTO[:3, :1], 0),
    "png 16-bit rgb keeps the high byte": lambda: (
        png(np.array([[[0x1234, 0x56FF, 0xFFFF]]]), 16, 2), [[[0x12, 0x56, 0xFF]]], 0
    ),
    "png 16-bit rgba": lambda: (png(ALPHA.astype(np.uint16) * 257, 16, 6), ON_BLACK, 0),
    "png rgba": lambda: (png(ALPHA, 8, 6), ON_BLACK, 0),
    "png half transparent": lambda: (png(np.array([[[200, 100, 50, 128]]]), 8, 6), [[[100, 50, 25]]], 1),
    "png gray with alpha": lambda: (png(np.array([[[200, 128], [9, 255]]]), 8, 4), grey3([[100, 9]]), 1),
    "png rgb with a key": lambda: (
        png(np.array([[[9, 8, 7], [1, 2, 3]]]), 8, 2, chunk(b"tRNS", struct.pack(">3H", 9, 8, 7))),
        [[[0, 0, 0], [1, 2, 3]]], 0,
    ),
    "png palette": lambda: (palette(), PALETTE, 0),
    "png palette with a transparent entry": lambda: (palette(transparency=1), HOLE, 0),
    "png palette with alpha": lambda: (palette(transparency=bytes([255, 0, 255])), HOLE, 0),
    "png bilevel": lambda: (saved(Image.fromarray(GREY > 90), "PNG"), grey3((GREY > 90) * 255), 0),
    "png gamma is left alone": lambda: (png(PHOTO, 8, 2, chunk(b"gAMA", b"\0\1\x86\xa0")), PHOTO, 0),
    "png unknown chunk": lambda: (png(PHOTO, 8, 2, chunk(b"zzZz", b"what")), PHOTO, 0),
    "png garbage behind": lambda: (saved(RGB, "PNG") + b"garbage", PHOTO, 0),
    "apng": lambda: (frames("PNG"), PHOTO, 0),
    "webp lossless": lambda: (saved(RGB, "WEBP", lossless=True), PHOTO, 0),
    "webp lossy": lambda: (saved(RGB, "WEBP", quality=95), PHOTO, NEAR),
    "webp alpha": lambda: (saved(Image.fromarray(ALPHA), "WEBP", lossless=True, exact=True), ON_BLACK, 0),
    "webp animated": lambda: (frames("WEBP", lossless=True), PHOTO, 0),
    "bmp 24-bit": lambda: (saved(RGB, "BMP"), PHOTO, 0),
    "bmp top down": lambda: (bmp(24, PHOTO[..., ::-1].tobytes(), WIDTH, -HEIGHT), PHOTO, 0),
    "bmp 32-bit": lambda: (
        bmp(32, np.dstack([PHOTO[::-1, :, ::-1], np.full_like(GREY, 255)]).tobytes(), WIDTH, HEIGHT), PHOTO, 0
    ),
    "bmp 16-bit 5-6-5": lambda: (
        bmp(16, struct.pack("<2H", 0xF800, 0x07E0), 2, 1, 3, struct.pack("<3I", 0xF800, 0x7E0, 0x1F)),
        [[[255, 0, 0], [0, 255, 0]]], 0,
    ),
    "bmp palette": lambda: (palette(kind="BMP"), PALETTE, 0),
    "bmp grayscale": lambda: (saved(Image.fromarray(GREY), "BMP"), grey3(GREY), 0),
    "bmp bilevel": lambda: (saved(Image.fromarray(GREY > 90), "BMP"), grey3((GREY > 90) * 255), 0),
    "gif": lambda: (palette(kind="GIF"), PALETTE, 0),
    "gif transparent": lambda: (palette(kind="GIF", transparency=1), HOLE, 0),
    "gif interlaced": lambda: (saved(Image.fromarray(GREY), "GIF", interlace=1), grey3(GREY), 0),
    "gif animated": lambda: (
        saved(Image.new("L", (5, 4), 9), "GIF", save_all=True, append_images=[Image.new("L", (5, 4), 200)]),
        grey3(np.full((4, 5), 9)), 0,
    ),
    **{
        f"jpeg orientation {n}": lambda n=n: (
            saved(camera(n), "JPEG", quality=95, subsampling=0, exif=tags(n)),
            PHOTO, NEAR,
        )
        for n in STORED
    },
    **{
        f"png orientation {n}": lambda n=n: (
            saved(camera(n), "PNG", exif=tags(n)), PHOTO, 0
        )
        for n in STORED
    },
    "webp orientation 6": lambda: (
        saved(camera(6), "WEBP", lossless=True, exif=tags(6)), PHOTO, 0
    ),
}  # fmt: skip

BOMB = "refused as a decompression bomb"
BROKEN = "truncated or broken image"
HEADER = "its header is truncated or broken"
NONE = "is no image in JPEG, PNG, WebP, BMP or GIF"
PNG = saved(RGB, "PNG")
WEBP = saved(RGB, "WEBP", lossless=True)
GIF = saved(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)), "GIF")

# Each: the bytes, and what the sentence has to say.
REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty (0 bytes)"),
    "one byte": (b"\xff", NONE),
    "zeros": (bytes(5000), NONE),
    "text": (b"this is no picture\n", "holds text, not an image"),
    "html, a page of an error": (b"<!DOCTYPE html><html>404</html>", "holds text, not an image"),
    "json": (b'{"error": "quota"}', "holds text, not an image"),
    "svg": (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "but SVG: convert it"),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
    "tiff": (saved(RGB, "TIFF"), "but TIFF: convert it"),
    "tiff, big endian": (b"MM\0*" + bytes(40), "but TIFF: convert it"),
    "heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "but HEIC: convert it"),
    "avif": (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1", "but AVIF: convert it"),
    "video": (b"\0\0\0\x18ftypisom\0\0\2\0isomiso2", "but a video"),
    "jpeg 2000": (b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(40), "but JPEG 2000: convert it"),
    "jpeg 2000 codestream": (b"\xff\x4f\xff\x51" + bytes(40), "but JPEG 2000: convert it"),
    "jpeg xl": (b"\xff\x0a" + bytes(40), "but JPEG XL: convert it"),
    "photoshop": (b"8BPS\0\1" + bytes(40), "but a Photoshop document"),
    "icon": (saved(RGB, "ICO"), "but an icon"),
    "pdf": (b"%PDF-1.7\n%\xff\xff", "but PDF"),
    "zip": (b"PK\3\4" + bytes(40), "but a zip archive"),
    "gzip": (b"\x1f\x8b\x08" + bytes(40), "but a gzip archive"),
    "wave": (b"RIFF\x24\0\0\0WAVEfmt " + bytes(20), NONE),
    "pixmap": (saved(RGB, "PPM"), NONE),
    "jpeg of two bytes": (JPEG[:2], HEADER),
    "jpeg cut in its tables": (JPEG[:100], "a.jpg: "),
    "jpeg cut in its frame": (JPEG[: JPEG.index(SIZE) + 6], "a.jpg: "),
    "jpeg cut behind its header": (JPEG[: JPEG.index(b"\xff\xda") + 14], BROKEN),
    "jpeg cut in the middle": (JPEG[: len(JPEG) * 2 // 3], BROKEN),
    "jpeg progressive, cut": (saved(RGB, "JPEG", progressive=True)[:-60], BROKEN),
    "jpeg without rows": (patched(JPEG, SIZE, 5, b"\0\0"), "a.jpg: "),
    "jpeg without columns": (patched(JPEG, SIZE, 7, b"\0\0"), "a.jpg: "),
    "jpeg bomb": (patched(JPEG, SIZE, 5, b"\xf0\0\xf0\0"), BOMB),
    "jpeg of 12 bits": (patched(JPEG, SIZE, 4, b"\x0c"), HEADER),
    "jpeg lossless": (patched(JPEG, SIZE, 1, b"\xc3"), BROKEN),
    "jpeg of 2 components": (patched(JPEG, SIZE, 9, b"\2"), HEADER),
    "jpeg of tables alone": (JPEG[: JPEG.index(SIZE)] + b"\xff\xd9", "a.jpg: "),
    "png of its signature": (PNG[:8], "a.jpg: "),
    "png cut in its header": (PNG[:20], "a.jpg: "),
    "png cut in the middle": (PNG[: len(PNG) // 2], BROKEN),
    "png with a wrong checksum": (patched(PNG, b"IHDR", 17, b"\0\0"), HEADER),
    "png with damaged pixels": (patched(PNG, b"IDAT", 12, bytes(40)), BROKEN),
    "png without columns": (png(np.zeros((1, 0, 1)), 8, 0), "a.jpg: "),
    "png bomb": (patched(PNG, b"IHDR", 4, struct.pack(">II", 50000, 50000)), "a.jpg: "),
    "png bomb, sound": (png(np.zeros((1, 1, 1)), 8, 0).replace(
        chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0)),
    ), BOMB),
    "webp cut in its header": (WEBP[:20], "a.jpg: "),
    "webp cut in the middle": (WEBP[: len(WEBP) // 2], "a.jpg: "),
    "bmp cut in its header": (saved(RGB, "BMP")[:30], BROKEN),
    "bmp cut in the middle": (saved(RGB, "BMP")[:900], BROKEN),
    "bmp bomb": (bmp(24, b"", 60000, 60000), BOMB),
    "gif cut in its header": (GIF[:8], HEADER),
    "gif cut in the middle": (GIF[: len(GIF) // 2], BROKEN),
    "gif without a frame": (GIF[:781] + b";", "a.jpg: "),
}  # fmt: skip


def read(folder: Path, name: str, preprocessing: Preprocessing = WHOLE) -> np.ndarray:
    """As the loader reads."""
    return pixels_of(FolderSource(folder).read(name), name, preprocessing)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", SOUND)
def test_a_sound_file_gives_its_picture(case: str, tmp_path: Path) -> None:
    data, picture, tolerance = SOUND[case]()
    (tmp_path / "a.jpg").write_bytes(data)  # by content, never by name
    found = read(tmp_path, "a.jpg")
    expected = np.asarray(picture)
    assert (found.dtype, found.shape) == (np.uint8, expected.shape)
    assert np.abs(found.astype(int) - expected).mean() <= tolerance
    resized = read(tmp_path, "a.jpg", PRESETS["torchvision"])
    assert resized.shape == (224, 224, 3)


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_file_is_refused_with_its_sentence(case: str, tmp_path: Path) -> None:
    data, sentence = REFUSED[case]
    (tmp_path / "a.jpg").write_bytes(data)
    for preprocessing in (WHOLE, PRESETS["torchvision"]):
        with pytest.raises(DataError) as caught:
            read(tmp_path, "a.jpg", preprocessing)
        message = str(caught.value)
        assert message.startswith("a.jpg: ")
        assert sentence in message
        assert "\n" not in message


def test_what_is_no_ordinary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    with (tmp_path / "large.jpg").open("wb") as large:
        large.truncate(MAX_FILE_BYTES + 1)
    sentences = {
        "folder.jpg": "is no ordinary file",
        "pipe.jpg": "is no ordinary file",
        "loop.jpg": "too many levels of symbolic links",
        "dangling.jpg": "no such file or directory",
        "missing.jpg": "no such file or directory",
        "large.jpg": f"more than {MAX_FILE_BYTES}",
    }
    for name, sentence in sentences.items():
        with pytest.raises(DataError, match=sentence):
            read(tmp_path, name)


def test_the_corpus_does_not_depend_on_pillows_leniency() -> None:
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    assert len(SOUND) + len(REFUSED) >= 60

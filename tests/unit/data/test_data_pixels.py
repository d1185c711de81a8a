"""The short way from a JPEG to pixels gives what Pillow gives, or the same sentence."""

import io
import random

import numpy as np
import pytest
from PIL import Image

from inferometer.data import jpeg, pixels, preprocess
from inferometer.data.decode import decode, jpeg_header
from inferometer.data.jpeg import frame_of, picture_of
from inferometer.data.pixels import decoder_name, pixels_of
from inferometer.data.preprocess import PRESETS, Preprocessing
from inferometer.errors import DataError

simplejpeg = pytest.importorskip(
    "simplejpeg", reason="simplejpeg is not installed: there is one way to decode"
)
pytest.importorskip("numba", reason="numba is not installed: there is one way to resize")

KINDS = ("444", "422", "420", "440", "411", "gray")
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def picture(height, width, seed=0):
    """Shapes and noise: every frequency is there."""
    y, x = np.mgrid[0:height, 0:width]
    noise = np.random.default_rng(seed).integers(-40, 40, (height, width, 3))
    waves = np.stack([x * 3 % 256, y * 5 % 256, (x + y) // 2 % 256], axis=-1)
    return np.clip(waves + noise, 0, 255).astype(np.uint8)


def encoded(height, width, kind="420", orientation=None, **options):
    array = picture(height, width)
    if kind == "gray":
        data = simplejpeg.encode_jpeg(np.ascontiguousarray(array[..., :1]), 85, "GRAY", "Gray")
    else:
        data = simplejpeg.encode_jpeg(array, 85, "RGB", kind)
    if orientation is None and not options:
        return data
    tags = Image.Exif()
    if orientation is not None:
        tags[274] = orientation
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        image.save(buffer, "JPEG", quality="keep", exif=tags, **options)
    return buffer.getvalue()


def patched(data, marker, offset, value):
    """With one byte behind a marker replaced."""
    changed = bytearray(data)
    changed[data.index(marker) + offset] = value
    return bytes(changed)


@pytest.fixture
def plainly(monkeypatch):
    """What Pillow alone makes of a file: the pixels, or the sentence."""

    def answer(data, preprocessing):
        with monkeypatch.context() as patch:
            patch.setattr(pixels, "resampler", lambda: None)
            patch.setattr(preprocess, "resampler", lambda: None)
            return outcome(data, preprocessing)

    return answer


def outcome(data, preprocessing):
    try:
        return pixels_of(data, "a.jpg", preprocessing)
    except DataError as error:
        return str(error)


def takes_the_short_way(data, preprocessing=PRESETS["torchvision"]):
    return pixels._fast(data, preprocessing) is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}], ids=str)
@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_libjpeg_turbo_gives_pillows_pixels(kind, options, factor):
    for height, width in ((64, 48), (37, 61), (9, 200)):
        data = encoded(height, width, kind, **options)
        with Image.open(io.BytesIO(data)) as image:
            image.draft(None, (image.width // factor, image.height // factor))
            expected = np.asarray(image.convert("RGB"))
        found = picture_of(data, frame_of(data), factor)
        assert np.array_equal(found.view(np.uint8).reshape(*found.shape, 4)[..., :3], expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (33, 1), (7, 5), (8, 8), (15, 17)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_jpegs_are_the_same(size, kind, plainly):
    data = encoded(*size, kind)
    whole = Preprocessing(**PLAIN)
    assert takes_the_short_way(data, whole)
    assert np.array_equal(outcome(data, whole), plainly(data, whole))


@pytest.mark.parametrize("channels", ["RGB", "BGR", "L"])
@pytest.mark.parametrize("kind", ["420", "gray"])
@pytest.mark.parametrize("how", ["exact", "scaled"])
def test_every_order_of_channels_is_the_same(channels, kind, how, plainly):
    count = len(channels)
    chosen = Preprocessing(
        resize_short=48, crop=40, channels=channels, mean=(0.0,) * count, std=(1.0,) * count, decode=how
    )
    data = encoded(150, 110, kind)
    assert takes_the_short_way(data, chosen)
    found = outcome(data, chosen)
    assert found.shape == (40, 40, count)
    assert np.array_equal(found, plainly(data, chosen))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("how", ["exact", "scaled"])
def test_every_orientation_is_the_same(orientation, how, plainly):
    data = encoded(151, 103, "420", orientation)
    chosen = Preprocessing(resize_short=40, interpolation="bicubic", crop=36, decode=how, **PLAIN)
    assert takes_the_short_way(data, chosen)
    assert np.array_equal(outcome(data, chosen), plainly(data, chosen))
    upright = jpeg_header(data).size
    assert upright == decode(data, "a", "RGB").size == ((103, 151) if orientation < 5 else (151, 103))


def test_presets_are_the_same_on_many_sizes(plainly):
    dice = random.Random(3)
    for _ in range(30):
        data = encoded(dice.randrange(20, 400), dice.randrange(20, 400), dice.choice(KINDS))
        for name in ("torchvision", "efficientnet-lite"):
            for how in ("exact", "scaled"):
                chosen = PRESETS[name].model_copy(update={"decode": how})
                assert np.array_equal(outcome(data, chosen), plainly(data, chosen))


def test_scaled_takes_the_largest_factor_that_leaves_enough():
    scaled = Preprocessing(resize_short=64, decode="scaled", **PLAIN)
    assert [scaled.reduction(*size) for size in ((64, 64), (127, 200), (128, 200), (255, 255))] == [
        1,
        1,
        2,
        2,
    ]
    assert [scaled.reduction(*size) for size in ((256, 300), (511, 900), (512, 512), (9000, 600))] == [
        4,
        4,
        8,
        8,
    ]
    assert scaled.model_copy(update={"decode": "exact"}).reduction(9000, 600) == 1
    assert Preprocessing(decode="scaled", **PLAIN).reduction(9000, 600) == 1  # nothing is resized
    square = Preprocessing(resize_exact=64, decode="scaled", **PLAIN)
    assert square.reduction(2000, 150) == 2  # both sides count


def test_scaled_keeps_the_size_that_the_original_asks_for():
    chosen = Preprocessing(resize_short=64, decode="scaled", **PLAIN)
    data = encoded(131, 1055)  # halved: 66 x 528, whose own resize would be 512 wide
    assert outcome(data, chosen).shape == (64, 1055 * 64 // 131, 3)
    assert 1055 * 64 // 131 == 515


@pytest.mark.parametrize("orientation", range(1, 9))
def test_scaled_does_not_move_the_picture(orientation):
    y, x = np.mgrid[
        0:521, 0:577
    ]  # one more than a multiple of 8: the last row and column stand for an eighth
    ramp = Image.fromarray(np.stack([x // 3, y // 3, (x + y) // 6], axis=-1).astype(np.uint8))
    buffer, tags = io.BytesIO(), Image.Exif()
    tags[274] = orientation
    ramp.save(buffer, "JPEG", quality=95, subsampling=0, exif=tags)
    exact = Preprocessing(resize_short=65, **PLAIN)
    scaled = exact.model_copy(update={"decode": "scaled"})
    assert scaled.reduction(577, 521) == 8
    found, expected = (outcome(buffer.getvalue(), chosen).astype(int) for chosen in (scaled, exact))
    # A pixel of the result is 2.7 levels; taken as a whole one, the last would move its end by most of that.
    assert 0 < np.abs(found - expected).max() <= 2
    assert abs((found - expected).mean()) < 0.25


def test_what_may_differ_is_left_to_pillow(plainly):
    ordinary = encoded(40, 40)
    cmyk = io.BytesIO()
    Image.new("CMYK", (40, 40), (9, 99, 199, 20)).save(cmyk, "JPEG")
    others = {
        "arithmetic coding": patched(ordinary, b"\xff\xc0", 1, 0xC9),
        "lossless": patched(ordinary, b"\xff\xc0", 1, 0xC3),
        "12 bits": patched(ordinary, b"\xff\xc0", 4, 12),
        "no rows": patched(patched(ordinary, b"\xff\xc0", 5, 0), b"\xff\xc0", 6, 0),
        "odd factors": patched(ordinary, b"\xff\xc0", 11, 0x13),
        "CMYK": cmyk.getvalue(),
        "PNG": b"\x89PNG\r\n\x1a\n" + bytes(20),
        "markers alone": b"\xff\xd8\xff\xd9",
        "a segment cut short": ordinary[:170],
    }
    for data in others.values():
        assert frame_of(data) is None
        assert np.array_equal(outcome(data, PRESETS["torchvision"]), plainly(data, PRESETS["torchvision"]))


def test_a_jpeg_cut_anywhere_says_what_pillow_says(plainly):
    data = encoded(40, 30, progressive=True)
    answers = set()
    for end in range(0, len(data), 41):
        found = outcome(data[:end], PRESETS["torchvision"])
        assert np.array_equal(found, plainly(data[:end], PRESETS["torchvision"]))
        answers.add(type(found))
    assert str in answers


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_random_damage_has_the_same_outcome(plainly):
    chosen = Preprocessing(resize_short=20, decode="scaled", **PLAIN)
    samples = [encoded(50, 44, kind, 6) for kind in KINDS] + [encoded(50, 44, progressive=True)]
    dice = random.Random(1)
    outcomes = {"short": 0, "pillow": 0, "refused": 0}
    for _ in range(500):
        data = bytearray(dice.choice(samples))
        for _ in range(dice.choice([1, 2, 8])):
            data[dice.randrange(len(data))] = dice.randrange(256)
        found, expected = outcome(bytes(data), chosen), plainly(bytes(data), chosen)
        assert np.array_equal(found, expected)
        kind = "short" if takes_the_short_way(bytes(data), chosen) else "pillow"
        outcomes["refused" if isinstance(found, str) else kind] += 1
    assert min(outcomes.values()) > 20


def test_a_bomb_is_refused_before_it_is_decoded(plainly, monkeypatch):
    data = patched(patched(encoded(40, 40), b"\xff\xc0", 5, 0xF0), b"\xff\xc0", 7, 0xF0)
    assert frame_of(data).width * frame_of(data).height > 3e9
    assert outcome(data, PRESETS["torchvision"]) == plainly(data, PRESETS["torchvision"])
    monkeypatch.setattr(pixels, "picture_of", lambda *_: pytest.fail("was decoded"))
    with pytest.raises(DataError, match="decompression bomb"):
        pixels_of(data, "a.jpg", PRESETS["torchvision"])


def test_a_simplejpeg_that_differs_is_not_used(monkeypatch):
    class Other:
        encode_jpeg = staticmethod(simplejpeg.encode_jpeg)

        @staticmethod
        def decode_jpeg(*given, **options):
            return simplejpeg.decode_jpeg(*given, **options, fastdct=True, fastupsample=True)

    data = encoded(40, 40)
    assert picture_of(data, frame_of(data)) is not None
    assert decoder_name().startswith("simplejpeg ")
    monkeypatch.setattr(jpeg, "_loaded", Other)
    assert picture_of(data, frame_of(data)) is None
    assert decoder_name().startswith("Pillow ")


def test_a_decoder_is_named_with_its_versions(monkeypatch):
    assert Image.__version__ in decoder_name()
    assert simplejpeg.__version__ in decoder_name()
    monkeypatch.setattr(pixels, "resampler", lambda: None)  # then Pillow decodes as well
    assert decoder_name().startswith(f"Pillow {Image.__version__} (libjpeg")

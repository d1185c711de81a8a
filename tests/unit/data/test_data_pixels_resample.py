"""Compiled resampling gives the pixels of the installed Pillow, and is not used where it would not."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from inferometer.data import normalise, preprocess, resample
from inferometer.data.preprocess import PRESETS, Preprocessing
from inferometer.data.resample import Geometry, by_pillow, resampler

pytest.importorskip("numba", reason="numba is not installed: Pillow resizes")

FILTERS = ("bilinear", "bicubic", "nearest")


def noise(width, height, seed=0):
    """Noise with a sharp edge: rounding and clipping are met everywhere."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    pixels[:, : width // 2] = np.where(pixels[:, : width // 2] > 127, 255, 0)
    return pixels


def same(before, after, box, filtering, seed=0, window=None):
    pixels = noise(*before, seed)
    geometry = Geometry(*after, *box)
    found = resampler().resized(resampler().packed(pixels), geometry, filtering, window)
    return np.array_equal(found, by_pillow(Image.fromarray(pixels), geometry, filtering, window))


@pytest.mark.parametrize("filtering", FILTERS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((500, 375), (341, 256)), ((375, 500), (256, 341)), ((333, 500), (256, 256)), ((90, 120), (256, 341)),
        ((1, 1), (7, 5)), ((1, 60), (9, 20)), ((60, 1), (20, 9)), ((31, 47), (1, 1)), ((64, 64), (64, 32)),
        ((64, 64), (32, 64)), ((700, 20), (35, 1)), ((20, 700), (1, 35)), ((100, 100), (99, 101)),
    ],
    ids=str,
)  # fmt: skip
def test_whole_images_are_pillows(before, after, filtering):
    assert same(before, after, (0, 0, *after), filtering)


@pytest.mark.parametrize("filtering", FILTERS)
def test_any_size_and_any_crop_is_pillows(filtering):
    dice = random.Random(filtering)
    for seed in range(150):
        before, after = ([dice.choice([dice.randint(1, 9), dice.randint(1, 90)]) for _ in "wh"] for _ in "io")
        kept = [dice.randint(1, side) for side in after]
        corner = [dice.randint(0, side - part) for side, part in zip(after, kept, strict=True)]
        assert same(before, after, (*corner, *kept), filtering, seed), (before, after, corner, kept)


@pytest.mark.parametrize("filtering", FILTERS)
def test_any_part_of_a_pixel_at_the_edges_is_pillows(filtering):
    dice = random.Random(filtering)
    for seed in range(100):
        factor = dice.choice([2, 4, 8])
        original = [dice.randint(1, 500) for _ in "wh"]
        before = [-(-side // factor) for side in original]
        after = [dice.randint(1, side + 5) for side in before]
        start = [
            dice.choice([0.0, side - full / factor]) for side, full in zip(before, original, strict=True)
        ]
        end = [first + full / factor for first, full in zip(start, original, strict=True)]
        assert same(before, after, (0, 0, *after), filtering, seed, (*start, *end)), (original, factor, after)


def test_both_orders_of_the_passes_are_met():
    order = resampler().vertical_first
    if not order((37, 53), (31, 22)):
        pytest.skip("this Pillow has one order of passes")
    assert not order((500, 375), (341, 256))
    assert not order((40, 40), (30, 20))  # twice the loss exactly


def test_luma_is_pillows():
    pixels = np.stack(np.meshgrid(*[np.arange(0, 256, 5)] * 3), axis=-1).reshape(-1, 52, 3).astype(np.uint8)
    found = resampler().luma(resampler().packed(pixels)).view(np.uint8).reshape(*pixels.shape[:2], 4)
    assert np.array_equal(found[..., 0], np.asarray(Image.fromarray(pixels).convert("L")))
    assert np.array_equal(found[..., 0], found[..., 2])


def test_code_that_gives_other_pixels_is_refused(monkeypatch, caplog):
    good = resampler().code
    off = SimpleNamespace(
        packed=good.packed,
        luma=good.luma,
        normalise=good.normalise,
        resampled=lambda *given: np.minimum(good.resampled(*given), 254),
    )
    with pytest.raises(RuntimeError, match="pixels are not those of this Pillow"):
        resample._like_pillow(off)
    monkeypatch.setattr(resample.compiling.importlib, "import_module", lambda name: off)
    resample._loaded.cache_clear()
    try:
        assert resampler() is None
    finally:
        resample._loaded.cache_clear()
    assert "images are resized by Pillow" in caplog.text


def test_very_long_images_are_left_to_pillow():
    fast = resampler()
    assert fast.takes(500, 10)
    assert not fast.takes(501, 10)
    assert not fast.takes(10, 501)
    image = Image.fromarray(noise(3, 400))
    chosen = Preprocessing(resize_exact=20, mean=(0, 0, 0), std=(1, 1, 1))
    assert np.array_equal(chosen.pixels(image), np.asarray(image.resize((20, 20), Image.Resampling.BILINEAR)))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("fast", [True, False])
def test_normalising_rounds_the_double_result_once(layout, fast, monkeypatch):
    if not fast:
        monkeypatch.setattr(normalise, "resampler", lambda: None)
    chosen = PRESETS["torchvision"].model_copy(update={"layout": layout})
    pixels = noise(23, 31)
    exact = ((pixels - np.array(chosen.mean)) / np.array(chosen.std)).astype(np.float32)
    expected = exact.transpose(2, 0, 1) if layout == "NCHW" else exact
    reversed_twice = np.ascontiguousarray(pixels[..., ::-1])[..., ::-1]
    for given in (pixels, reversed_twice, np.asfortranarray(pixels)):
        out = np.full(expected.shape, np.nan, np.float32)
        assert chosen.normalised(given, out) is out
        assert np.array_equal(out, expected)
        assert np.array_equal(chosen.normalised(given), expected)
        assert chosen.shape_of(given) == expected.shape


@pytest.mark.parametrize("filtering", FILTERS)
@pytest.mark.parametrize("channels", ["RGB", "BGR", "L"])
def test_images_of_any_format_take_the_same_resampling(filtering, channels, monkeypatch):
    count = len(channels)
    chosen = Preprocessing(
        resize_short=32,
        crop=30,
        channels=channels,
        interpolation=filtering,
        mean=(0,) * count,
        std=(1,) * count,
    )
    for mode in ("RGB", "L", "RGBA"):
        image = Image.fromarray(noise(70, 50)).convert(mode)
        found = chosen.pixels(image)
        with monkeypatch.context() as patch:
            patch.setattr(preprocess, "resampler", lambda: None)
            assert np.array_equal(found, chosen.pixels(image))

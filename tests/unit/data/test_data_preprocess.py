import json

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from inferometer.config import parse
from inferometer.data.preprocess import PRESETS, Preprocessing, load
from inferometer.errors import ConfigError, DataError

IDENTITY = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def picture(height, width, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_raw_is_the_pixels_in_float():
    array = np.array([[[0, 1, 2], [253, 254, 255]]], dtype=np.uint8)
    got = PRESETS["raw"].apply(Image.fromarray(array))
    assert got.dtype == np.float32
    assert got.tolist() == [[[0.0, 253.0]], [[1.0, 254.0]], [[2.0, 255.0]]]


def test_channel_order_layout_and_normalisation_by_hand():
    image = Image.fromarray(np.array([[[10, 20, 30]]], dtype=np.uint8))
    bgr = Preprocessing(channels="BGR", mean=(1, 2, 3), std=(2, 4, 8))
    assert bgr.apply(image).ravel().tolist() == [14.5, 4.5, 0.875]  # (30-1)/2, (20-2)/4, (10-3)/8
    nhwc = Preprocessing(layout="NHWC", mean=(0, 0, 10), std=(1, 2, 5))
    got = nhwc.apply(image)
    assert got.shape == (1, 1, 3)
    assert got.flags.c_contiguous
    assert got.ravel().tolist() == [10.0, 10.0, 4.0]
    luma = Preprocessing(channels="L", mean=(100,), std=(2,))
    assert luma.apply(Image.new("RGB", (1, 1), (255, 0, 0))).tolist() == [[[-12.0]]]  # (76 - 100) / 2


def test_each_value_is_rounded_once():
    got = PRESETS["torchvision"].apply(picture(224, 224, seed=3).resize((256, 256))).astype(np.float64)
    image = np.asarray(picture(224, 224, seed=3).resize((256, 256)))[16:240, 16:240].astype(np.float64)
    exact = (image / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert np.abs(got - exact.transpose(2, 0, 1)).max() < 1.3e-7  # half a unit of float32 below 4


@pytest.mark.parametrize(
    ("size", "resized"),
    [((500, 375), (341, 256)), ((375, 500), (256, 341)), ((256, 256), (256, 256)), ((100, 90), (284, 256))],
)
def test_the_long_side_is_truncated(size, resized):
    preprocessing = Preprocessing(resize_short=256, **IDENTITY)
    assert preprocessing.apply(Image.new("RGB", size)).shape == (3, resized[1], resized[0])


def test_the_crop_is_centred_and_its_offset_floored():
    columns = np.broadcast_to(np.arange(7, dtype=np.uint8), (4, 7))
    rows = np.broadcast_to(np.arange(4, dtype=np.uint8)[:, None], (4, 7))
    crop = Preprocessing(channels="L", crop=2, mean=(0,), std=(1,))
    assert crop.apply(Image.fromarray(columns.copy()))[0].tolist() == [[2, 3], [2, 3]]  # (7 - 2) // 2
    assert crop.apply(Image.fromarray(rows.copy()))[0].tolist() == [[1, 1], [2, 2]]
    with pytest.raises(DataError, match="7x4, less than the crop of 5"):
        Preprocessing(channels="L", crop=5, mean=(0,), std=(1,)).apply(Image.fromarray(columns.copy()))


def test_interpolations_by_hand():
    edge = Image.fromarray(np.array([[0, 100]] * 2, dtype=np.uint8))

    def row(interpolation):
        resize = Preprocessing(resize_exact=4, interpolation=interpolation, channels="L", mean=(0,), std=(1,))
        return resize.apply(edge)[0, 0].tolist()

    assert row("nearest") == [0, 0, 100, 100]
    assert row("bilinear") == [0, 25, 75, 100]
    # Keys' cubic with a = -0.5: w(.25) = .8672, w(.75) = .2266, w(1.25) = -.0703. They are divided by
    # their sum: -.0703 / .7969 < 0, .2266 / 1.0938 = .207, .8672 / 1.0938 = .793, .8672 / .7969 = 1.088.
    assert row("bicubic") == [0, 21, 79, 109]


def test_reducing_is_antialiased():
    stripes = Image.fromarray(np.tile(np.array([0, 255], dtype=np.uint8), (64, 32)))
    reduced = Preprocessing(resize_exact=8, channels="L", mean=(0,), std=(1,)).apply(stripes)
    assert np.abs(reduced[0, :, 1:-1] - 127.5).max() < 2  # two samples alone would give 0 or 255


@pytest.mark.parametrize("size", [(500, 375), (333, 500), (240, 260)])
def test_presets_agree_with_plain_pillow(size):
    image = picture(size[1], size[0])
    scale = 256 / min(size)
    short = image.resize((int(size[0] * scale + 1e-9), int(size[1] * scale + 1e-9)), Image.Resampling.BICUBIC)
    left, top = (short.width - 224) // 2, (short.height - 224) // 2
    lite = (np.asarray(short.crop((left, top, left + 224, top + 224)), dtype=np.float32) - 127) / 128
    assert np.array_equal(PRESETS["efficientnet-lite"].apply(image), lite.transpose(2, 0, 1))

    squashed = np.asarray(image.resize((256, 256), Image.Resampling.BILINEAR)).astype(np.float32)
    side = squashed[14:241, 14:241, ::-1] - np.array([104.00699, 116.66877, 122.67892], dtype=np.float32)
    caffe = PRESETS["caffe"].sized(227, 227)
    assert caffe.output_shape == (3, 227, 227)
    np.testing.assert_allclose(caffe.apply(image), side.transpose(2, 0, 1), atol=2e-5)


def test_sized():
    torchvision, caffe, raw = PRESETS["torchvision"], PRESETS["caffe"], PRESETS["raw"]
    assert torchvision.sized(224, 224) is torchvision
    assert torchvision.sized(None, None) is torchvision
    assert torchvision.output_shape == (3, 224, 224)
    assert (caffe.output_shape, raw.output_shape) == (None, None)
    assert caffe.sized(224, 224).crop == 224
    assert raw.sized(10, 20).output_shape == (3, 10, 20)
    with pytest.raises(ConfigError, match=r"'torchvision' gives 224x224, the model wants 299x299"):
        torchvision.sized(299, 299)
    with pytest.raises(ConfigError, match="a square of at most 256 pixels"):
        caffe.sized(300, 300)
    with pytest.raises(ConfigError, match="a square"):
        caffe.sized(224, 200)
    with pytest.raises(ConfigError, match="leaves open"):
        caffe.sized(None, None)
    with pytest.raises(ConfigError, match="not known"):
        caffe.apply(picture(8, 8))


def test_an_image_of_another_size_is_refused():
    with pytest.raises(DataError, match=r"is 20x10 \(width x height\), the model wants 10x20"):
        PRESETS["raw"].sized(20, 10).apply(picture(10, 20))
    assert PRESETS["raw"].sized(10, 20).apply(picture(10, 20)).shape == (3, 10, 20)


def test_for_input():
    lite = PRESETS["efficientnet-lite"]
    assert lite.for_input([None, 3, 224, 224]) == lite
    assert PRESETS["caffe"].for_input([1, 3, 227, 227]).crop == 227
    gray = PRESETS["raw"].for_input([1, 1, 8, 9])
    assert gray.output_shape == (1, 8, 9)
    assert gray.apply(Image.new("L", (9, 8), 7)).tolist() == np.full((1, 8, 9), 7.0).tolist()
    nhwc = Preprocessing(layout="NHWC", **IDENTITY).for_input([None, 8, 9, 3])
    assert nhwc.output_shape == (8, 9, 3)
    assert lite.for_input([1, 224, 224, 3]).output_shape == (224, 224, 3)
    with pytest.raises(ConfigError, match="3 channels"):
        lite.for_input([1, 4, 224, 224])
    with pytest.raises(ConfigError, match="4 dimensions"):
        lite.for_input([1, 128])


def test_a_sliver_does_not_blow_up():
    with pytest.raises(DataError, match="too narrow"):
        PRESETS["torchvision"].apply(Image.new("RGB", (60_000, 1)))
    with pytest.raises(DataError, match="too narrow"):
        PRESETS["torchvision"].apply(Image.new("RGB", (1, 60_000)))


def test_presets_are_read_only_and_survive_json():
    with pytest.raises(TypeError):
        PRESETS["raw"] = PRESETS["caffe"]
    with pytest.raises(ValidationError):
        PRESETS["raw"].crop = 3
    for preset in (*PRESETS.values(), PRESETS["caffe"].sized(227, 227), PRESETS["raw"].sized(4, 5)):
        assert Preprocessing.model_validate(json.loads(json.dumps(preset.model_dump(mode="json")))) == preset


def test_load(tmp_path):
    assert load("torchvision").mean == pytest.approx((123.675, 116.28, 103.53))
    assert load("torchvision").std == pytest.approx((58.395, 57.12, 57.375))
    file = tmp_path / "mine.yaml"
    file.write_text("resize_short: 40\ncrop: 32\nchannels: L\nmean: [127.5]\nstd: [127.5]\n")
    mine = load(str(file))
    assert (mine.name, mine.crop, mine.mean, mine.layout) == ("mine", 32, (127.5,), "NCHW")
    with pytest.raises(ConfigError, match=r"'torchvison' is neither .* did you mean 'torchvision'\?"):
        load("torchvison")
    with pytest.raises(ConfigError, match="no such file"):
        load(str(tmp_path / "absent.yaml"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"interpolaton": "nearest"}, "did you mean 'interpolation'"),
        ({"interpolation": "bilinaer"}, "did you mean 'bilinear'"),
        ({"mean": [1, 2]}, "mean: wants 3 numbers, one per channel of RGB"),
        ({"channels": "L"}, "wants 1 numbers"),
        ({"std": [0.229, 0.224, 0.225]}, "multiply those for 0..1 by 255"),
        ({"std": [0, 1, 1]}, "std: "),
        ({"mean": ["1", 2, 3]}, "mean"),
        ({"mean": [float("nan"), 2, 3]}, "mean"),
        ({"resize_short": 10, "resize_exact": 10}, "not both"),
        ({"resize_short": 0}, "resize_short"),
        ({"resize_short": 2.5}, "resize_short"),
        ({"resize_short": 20, "crop": 24}, "crop: is larger than the 20 pixels"),
        ({"crop": 0}, "crop: wants a number of pixels, 'input' or null"),
        ({"crop": True}, "crop: wants"),
        ({"crop": 5, "size": [5, 5]}, "leave it out"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(ConfigError) as caught:
        parse(Preprocessing, {"mean": [0, 0, 0], "std": [1, 1, 1], **changes}, "p.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("p.yaml: ")


def test_mean_and_std_must_be_stated():
    with pytest.raises(ConfigError, match="'mean' is missing; 'std' is missing"):
        parse(Preprocessing, {}, "p.yaml")

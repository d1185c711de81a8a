"""Feeding images to models of other inputs, and scoring outputs of other kinds."""

from __future__ import annotations

import numpy as np
import pytest

from inferometer.config import InputEntry
from inferometer.data.preprocess import PRESETS, Preprocessing
from inferometer.errors import ConfigError, DataError
from inferometer.models.roles import ClassOutput
from inferometer.models.summary import TensorInfo
from inferometer.trials.images import image_input_of, padded
from inferometer.trials.scoring import Scorer

LITE = PRESETS["efficientnet-lite"]
PICTURE = TensorInfo("picture", ("N", 3, 224, 224), "float16")


def test_images_are_fed_in_the_dtype_and_layout_of_the_input():
    taken = image_input_of([PICTURE], LITE, {}, "m")
    assert taken.feeds(np.ones((2, 3, 224, 224), np.float32))["picture"].dtype == np.float16
    nhwc = image_input_of([TensorInfo("x:0", (None, 224, 224, 3), "uint8")], LITE, {}, "m")
    how = nhwc.preprocessing
    assert (how.layout, how.mean, how.std) == ("NHWC", (0.0,) * 3, (1.0,) * 3)
    ready = how.normalised(np.full((224, 224, 3), 200, np.uint8))
    assert np.array_equal(nhwc.feeds(ready[None])["x:0"], np.full((1, 224, 224, 3), 200, np.uint8))


def test_other_inputs_hold_the_constants_that_were_given():
    inputs = [PICTURE, TensorInfo("training", (), "bool"), TensorInfo("scale", ("N", 2), "float32")]
    entries = {"training": InputEntry(range=(0, 0)), "scale": InputEntry(range=(2, 2))}
    with pytest.raises(ConfigError, match="input 'training'"):
        image_input_of(inputs, LITE, {}, "m")
    with pytest.raises(ConfigError, match="--input scale=VALUE"):
        image_input_of(inputs, LITE, entries | {"scale": InputEntry(range=(0, 1))}, "m")
    feeds = image_input_of(inputs, LITE, entries, "m").feeds(np.zeros((3, 3, 224, 224), np.float32))
    assert feeds["training"].shape == ()
    assert not feeds["training"]
    assert np.array_equal(feeds["scale"], np.full((3, 2), 2, np.float32))


def test_a_constant_that_the_input_cannot_hold_is_refused():
    inputs = [PICTURE, TensorInfo("k", ("N",), "uint8")]
    with pytest.raises(ConfigError):
        image_input_of(inputs, LITE, {"k": InputEntry(range=(300, 300))}, "m")


def test_models_without_an_image_and_images_without_preprocessing_are_refused():
    with pytest.raises(DataError, match="takes no images"):
        image_input_of([TensorInfo("tokens", ("N", 8), "int64")], LITE, {}, "m")
    with pytest.raises(DataError, match="no preprocessing is given"):
        image_input_of([PICTURE], None, {}, "m")
    with pytest.raises(ConfigError, match="gives no int8"):
        image_input_of([TensorInfo("q", (1, 3, 224, 224), "int8")], LITE, {}, "m")
    with pytest.raises(ConfigError, match="has 4"):
        image_input_of([TensorInfo("x", (1, 4, 224, 224), "float32")], LITE, {}, "m")


def test_a_gray_input_of_either_layout_takes_luma():
    raw = PRESETS["raw"]
    assert raw.for_input((1, 1, 28, 28)).channels == "L"
    gray = raw.for_input((None, 28, 28, 1))
    assert (gray.channels, gray.layout, gray.output_shape) == ("L", "NHWC", (28, 28, 1))


def test_a_stated_layout_stays_where_both_could_be():
    how = Preprocessing(mean=(0.0,) * 3, std=(1.0,) * 3, crop=3, layout="NHWC")
    assert how.for_input((1, 3, 3, 3)).layout == "NHWC"
    assert how.for_input((1, None, 3, 3)).layout == "NHWC"


def test_padding_repeats_the_last_image():
    assert padded(np.array([[1.0], [2.0]], np.float32), 4).ravel().tolist() == [1, 2, 2, 2]


SCORES = Scorer(ClassOutput("y", 3), 0)


def test_scores_are_ranked_whatever_their_axes_and_dtype():
    values = np.array([[1, 9, 5], [7, 0, 3]])
    labels = np.array([1, 2])
    for shaped in (values.astype(np.float32), values.reshape(2, 3, 1, 1), values.reshape(2, 1, 1, 3)):
        ranked = SCORES.rank(shaped.astype(np.uint8), labels)
        assert ranked.top.tolist() == [[1, 2, 0], [0, 2, 1]]
        assert ranked.classes == 3


def test_a_class_that_the_model_gives_itself_is_compared_with_the_label():
    ranked = Scorer(ClassOutput("y", None, gives_labels=True), 1).rank(np.array([[4], [2]]), np.array([3, 3]))
    assert (ranked.top.tolist(), ranked.labels.tolist(), ranked.classes) == ([[3], [1]], [3, 3], None)


@pytest.mark.parametrize(("offset", "label"), [(0, 3), (1, 2), (-1, 0)])
def test_labels_that_the_model_cannot_give_are_refused(offset, label):
    with pytest.raises(DataError, match=rf"b\.png: has the label {label}"):
        Scorer(ClassOutput("y", 3), offset).rank(np.zeros((2, 3)), np.array([1, label]), ["a.png", "b.png"])

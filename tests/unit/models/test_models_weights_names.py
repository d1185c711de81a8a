"""What the built-in networks' tensors are called in files of weights, by names and shapes alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from inferometer.errors import ModelError
from inferometer.models.networks import names, namings
from inferometer.models.networks.fitting import fit
from inferometer.models.stored import Stored, WeightFile


def held(shapes: dict[str, tuple[int, ...]], **more: tuple[int, ...]) -> WeightFile:
    """A file of which only shapes are asked for."""

    def read() -> np.ndarray:
        raise AssertionError("a value was read")

    listed = {**shapes, **{name.replace("__", "."): shape for name, shape in more.items()}}
    return WeightFile(Path("w.pth"), {name: Stored(shape, "float32", read) for name, shape in listed.items()})


def shapes_of(name: str, which: int = 0) -> dict[str, tuple[int, ...]]:
    return dict(namings(name)[which].shapes)


@pytest.mark.parametrize(
    ("name", "tensors", "values"),
    [
        # Tensors in torchvision's state_dicts without counters: one BatchNorm per convolution, and the
        # published parameters with twice as many statistics as folded scales.
        ("resnet50", 53 * 5 + 2, 25_557_032 + 2 * 26_560),
        ("resnet101", 104 * 5 + 2, 44_549_160 + 2 * 52_672),
        ("resnet152", 155 * 5 + 2, 60_192_808 + 2 * 75_712),
        ("vgg16", 32, 138_357_544),
        ("vgg19", 38, 143_667_240),
        ("alexnet", 16, 60_965_224),
        ("googlenet", 58 * 2, 6_998_552),
    ],
)
def test_a_file_holds_what_was_published(name: str, tensors: int, values: int) -> None:
    shapes = shapes_of(name)
    assert len(shapes) == tensors
    assert sum(math.prod(shape) for shape in shapes.values()) == values


@pytest.mark.parametrize("name", names())
def test_every_naming_fits_its_own_network(name: str) -> None:
    for naming in namings(name):
        assert fit(name, held(dict(naming.shapes))).naming.title == naming.title


def test_names_are_those_of_the_files_that_there_are() -> None:
    resnet = shapes_of("resnet50")
    assert resnet["conv1.weight"] == (64, 3, 7, 7)
    assert resnet["bn1.running_var"] == (64,)
    assert resnet["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert resnet["layer1.0.downsample.1.running_mean"] == (256,)
    assert resnet["layer4.2.bn3.bias"] == (2048,)
    assert resnet["fc.weight"] == (1000, 2048)
    assert "conv1.bias" not in resnet
    assert shapes_of("vgg16")["classifier.6.weight"] == (1000, 4096)
    assert shapes_of("alexnet", 1)["fc6_w_0"] == (4096, 9216)
    assert shapes_of("alexnet", 1)["conv2_w_0"] == (256, 48, 5, 5)
    zoo = shapes_of("googlenet", 1)
    assert zoo["conv1/7x7_s2_w_0"] == (64, 3, 7, 7)
    assert zoo["inception_3a/1x1_b_0"] == (64,)
    assert zoo["loss3/classifier_w_0"] == (1000, 1024)


def test_counters_of_batches_are_no_weights() -> None:
    found = fit("resnet50", held(shapes_of("resnet50"), bn1__num_batches_tracked=()))
    assert found.notes == ("folded BatchNorm into the convolutions",)


def test_heads_that_only_training_uses_are_left_out_and_told() -> None:
    more = {"loss1/conv_w_0": (128, 512, 1, 1), "loss2/classifier_b_0": (1000,)}
    found = fit("googlenet", held(shapes_of("googlenet", 1) | more))
    assert found.notes == ("left out the heads that only training uses",)
    with pytest.raises(ModelError, match=r"2 surplus \(loss1/conv_w_0, loss2/classifier_b_0\)"):
        fit("alexnet", held(shapes_of("alexnet", 1) | more))


@pytest.mark.parametrize(
    ("name", "tensors", "told"),
    [
        ("alexnet", {"features.0.weight": (64, 3, 11, 11)}, "torchvision's weights of alexnet"),
        (
            "googlenet",
            {"inception3a.branch1.conv.weight": (64, 192, 1, 1), "aux1.fc1.weight": (1024, 2048)},
            "torchvision's weights of googlenet",
        ),
        (
            "vgg16",
            {"features.0.weight": (64, 3, 3, 3), "features.1.running_mean": (64,)},
            "a VGG with BatchNorm",
        ),
    ],
)
def test_other_architectures_of_the_same_name_are_recognised(
    name: str, tensors: dict[str, tuple[int, ...]], told: str
) -> None:
    with pytest.raises(ModelError, match=f"{told}.*, which is another network"):
        fit(name, held(tensors))


def test_the_built_in_network_that_a_file_fits_is_named() -> None:
    with pytest.raises(
        ModelError, match=r"does not fit resnet50 .*\d+ surplus .*; it fits resnet101; wanted"
    ):
        fit("resnet50", held(shapes_of("resnet101")))


def test_a_wider_network_is_of_other_shapes() -> None:
    shapes = shapes_of("resnet50") | {"layer1.0.conv1.weight": (128, 64, 1, 1)}
    with pytest.raises(
        ModelError, match=r"1 of another shape \(layer1\.0\.conv1\.weight: wants \[64, 64, 1, 1\], "
    ):
        fit("resnet50", held(shapes))


def test_of_nothing_that_fits_the_usual_names_are_missing() -> None:
    with pytest.raises(
        ModelError, match=r"torchvision's names\): 267 missing \(conv1\.weight, bn1\.weight, "
    ):
        fit("resnet50", held({"resnet.embedder.embedder.convolution.weight": (64, 3, 7, 7)}))

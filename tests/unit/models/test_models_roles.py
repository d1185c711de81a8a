from __future__ import annotations

import numpy as np
import pytest

from inferometer.errors import ConfigError, ModelError
from inferometer.models.roles import class_output, image_axes, image_input, other_inputs, scores_of_rows
from inferometer.models.summary import TensorInfo


def tensor(name: str, *shape: int | str | None, dtype: str | None = "float32") -> TensorInfo:
    return TensorInfo(name, tuple(shape), dtype)


PICTURE = tensor("picture", "N", 3, 8, 8)


def test_the_image_is_the_only_input_of_four_dimensions():
    flag = tensor("flag", dtype="bool")
    assert image_input([flag, PICTURE]) == PICTURE
    assert other_inputs([flag, PICTURE]) == [flag]
    assert image_input([PICTURE, tensor("other", 1, 3, 8, 8)]) is None
    assert image_input([tensor("tokens", "N", 128, dtype="int64")]) is None
    assert (
        image_input([TensorInfo("any", None, "float32"), tensor("text", 1, 1, 1, 1, dtype="object")]) is None
    )


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 3, 224, 227), (3, 224, 227)),
        (("N", 224, 227, 3), (3, 224, 227)),
        ((None, 1, "H", "W"), (1, None, None)),
        ((None, None, None, None), None),
        ((1, 4, 8, 8), None),
    ],
)
def test_channels_and_sides_are_told_by_where_1_or_3_stands(shape, axes):
    assert image_axes(shape) == axes


@pytest.mark.parametrize(
    ("output", "classes", "labels"),
    [
        (tensor("y", "N", 1000), 1000, False),
        (tensor("y", "N", 10, 1, 1), 10, False),
        (tensor("y", 1, 1, 1, 1001), 1001, False),
        (tensor("y", "N", None), None, False),
        (tensor("y", "N", 1001, dtype="uint8"), 1001, False),
        (tensor("y", "N", dtype="int64"), None, True),
        (tensor("y", "N", 1, dtype="int64"), None, True),
    ],
)
def test_what_counts_as_the_class_scores(output, classes, labels):
    found = class_output([output], None)
    assert (found.name, found.classes, found.gives_labels) == ("y", classes, labels)


def test_scores_go_before_labels_and_what_is_neither_is_passed_over():
    outputs = [
        tensor("label", "N", dtype="int64"),
        tensor("map", "N", 21, 8, 8),
        tensor("probabilities", "N", 3),
        TensorInfo("zipped", None, None),
    ]
    assert class_output(outputs, None).name == "probabilities"
    assert class_output(outputs, "label").gives_labels


@pytest.mark.parametrize(
    "output",
    [
        tensor("y", "N", 21, 64, 64),
        tensor("y", "N", 1),
        tensor("y", dtype="float32"),
        tensor("y", "N", 5, dtype="int64"),  # the best five, perhaps
        tensor("y", "N", "H", "W"),
        TensorInfo("y", None, None),
    ],
)
def test_other_models_are_no_classifiers(output):
    with pytest.raises(ModelError, match="no classifier"):
        class_output([output], None)
    with pytest.raises(ModelError, match="no list of class scores"):
        class_output([output], "y")


def test_of_several_scores_one_must_be_named():
    heads = [tensor("main", "N", 10), tensor("aux", "N", 10)]
    with pytest.raises(ModelError, match=r"--output \('main' \[N, 10\] float32, 'aux' \[N, 10\] float32\)"):
        class_output(heads, None)
    assert class_output(heads, "aux").name == "aux"
    with pytest.raises(ConfigError, match="no output 'axu'; did you mean 'aux'"):
        class_output(heads, "axu")


def test_values_of_more_than_one_long_axis_are_no_scores():
    assert scores_of_rows(np.zeros((2, 1, 1, 7)), "y") == 7
    with pytest.raises(ModelError, match="wants class scores"):
        scores_of_rows(np.zeros((2, 7, 3)), "y")

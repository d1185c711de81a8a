"""Layers of sidecars: what belongs to each, and which are the same at two precisions."""

import copy
import math

import pytest

from inferometer.analysis.explain_layers import Layer, base_name, family, layers_of, paired
from inferometer.errors import StoreError
from tests.unit.analysis.explained import FP32, INT8


def layer(name, macs=0, op="Conv", seconds=1.0, role="compute"):
    return Layer(name, op, seconds, role, macs, "fp32")


def pairs(base, own):
    return [(one.base.name, one.own.name, one.by) for one in paired(base, own)]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("layer1.0.conv3_nchwc", "layer1.0.conv3"),
        ("conv1_token_2", "conv1"),
        ("conv1_quant", "conv1"),
        ("fc/WithoutBiases/DequantizationMultiply", "fc"),
        ("a_token_b", "a_token_b"),
        ("_nchwc", ""),
    ],
)
def test_a_name_is_taken_without_what_runtimes_append(name, plain):
    assert base_name(name) == (plain or name)


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("QLinearConv", "convolution"), ("Convolution", "convolution"), ("Convert", "Convert"),
        ("MatMulIntegerToFloat", "product"), ("FullyConnected", "product"), ("Linear", "product"),
        ("QuantizeLinear", "QuantizeLinear"), ("DequantizeLinear", "DequantizeLinear"),
        ("MaxPool", "MaxPool"),
    ],
)  # fmt: skip
def test_operators_of_one_kind_are_known_by_their_words(op, kind):
    assert family(op) == kind


def test_macs_are_those_of_the_same_name_and_else_of_the_same_place():
    found = {one.name: one for one in layers_of(FP32, "x")}
    assert [(one.macs, one.read_as, one.by_order) for one in found.values()] == [
        (100, "conv1", True), (100, "conv2", False), (0, "pool", False), (0, None, False), (10, "fc", False),
    ]  # fmt: skip
    assert found["relu1_nchwc"].precision == "fp32"


def test_a_layer_at_another_place_than_its_name_forbids_telling_by_place():
    moved = copy.deepcopy(FP32)
    moved["executed"][0], moved["executed"][1] = moved["executed"][1], moved["executed"][0]
    first = layers_of(moved, "x")[0]
    assert (first.name, first.macs, first.precision) == ("relu1_nchwc", None, None)


def test_another_number_of_layers_forbids_telling_by_place():
    fewer = copy.deepcopy(FP32)
    fewer["executed"].append({"name": "conv3", "op": "Conv", "precision": "fp32", "macs": 5, "bytes": None})
    found = layers_of(fewer, "x")
    # What was not read back by name may be conv3: that it multiplies nothing is not known either.
    assert [one.macs for one in found] == [None, 100, 0, None, 10]


def test_without_macs_from_the_runtime_none_are_claimed():
    untold = copy.deepcopy(FP32)
    for one in untold["executed"]:
        one["macs"] = None
    assert [one.macs for one in layers_of(untold, "x")] == [None] * 5


def test_a_sidecar_without_a_profile_has_no_layers():
    assert layers_of({"executed": [], "profile": None}, "x") is None
    assert layers_of({"executed": [], "profile": []}, "x") is None


def test_an_older_sidecar_has_no_roles():
    old = copy.deepcopy(FP32)
    for one in old["profile"]:
        del one["role"]
    assert {one.role for one in layers_of(old, "x")} == {None}


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {"profile": [{"name": "a"}], "executed": []},
        {"profile": [{"name": "a", "op": "b", "seconds": float("nan")}], "executed": []},
        {"profile": [{"name": "a", "op": "b", "seconds": 1, "role": "idle"}], "executed": []},
        {"profile": ["a"], "executed": []},
        {"profile": [{"name": "a", "op": "b", "seconds": 1}]},
    ],
)
def test_what_no_trial_writes_is_refused(content):
    with pytest.raises(StoreError, match="x: no layers of a trial"):
        layers_of(content, "x")


def test_layers_of_two_precisions_are_paired_through_the_names_that_were_read_back():
    assert pairs(layers_of(FP32, "x"), layers_of(INT8, "y")) == [
        ("relu1_nchwc", "conv1_token_7", "order"),
        ("conv2_nchwc", "conv2_token_9", "name"),
        ("pool_nchwc", "pool", "name"),
        ("fc", "fc", "name"),
    ]


def test_one_name_with_other_macs_is_not_the_same_layer():
    assert pairs([layer("a", 5)], [layer("a", 6)]) == []


def test_what_no_name_tells_is_paired_by_kind_macs_and_order():
    base = [layer("a", 5), layer("b", 7), layer("c", 5)]
    own = [layer("x", 7, "QLinearConv"), layer("y", 5, "QLinearConv"), layer("z", 5, "QLinearConv")]
    assert pairs(base, own) == [("b", "x", "order"), ("a", "y", "order"), ("c", "z", "order")]


def test_groups_of_unlike_size_stay_apart_and_so_do_layers_without_macs():
    assert pairs([layer("a", 5), layer("b", 5)], [layer("x", 5)]) == []
    assert pairs([layer("a", 0)], [layer("x", 0)]) == []
    assert pairs([layer("a", None)], [layer("x", None)]) == []


def test_a_name_that_stands_twice_tells_nothing():
    assert pairs([layer("a", 5), layer("a", 6)], [layer("a", 5)]) == [("a", "a", "order")]


def test_reorders_and_quantization_are_never_paired():
    assert pairs([layer("a", role="reorder")], [layer("a", role="reorder")]) == []


@pytest.mark.parametrize(
    ("place", "name", "value", "text"),
    [
        ("profile", "seconds", 1e308, "1e\\+308 seconds"), ("profile", "seconds", 1e-320, "seconds"),
        ("executed", "macs", math.inf, "OverflowError"), ("executed", "macs", -5, "-5 multiply-accumulates"),
    ],
)  # fmt: skip
def test_figures_that_no_layer_has_are_refused(place, name, value, text):
    content = copy.deepcopy(INT8)
    content[place][1][name] = value
    with pytest.raises(StoreError, match=text):
        layers_of(content, "x")

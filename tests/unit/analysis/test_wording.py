import pytest

from inferometer.analysis import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.4, "1,234"), (118.26, "118"), (46.31, "46.3"), (8.1249, "8.12"), (9.996, "10.0"), (99.96, "100"),
     (0.01234, "0.0123"), (0, "0")],
)  # fmt: skip
def test_significant_keeps_three_digits_and_every_whole_unit(value, text):
    assert wording.significant(value) == text


def test_ranges_take_the_decimals_of_their_centre():
    assert wording.range_text(44.91, 47.68, like=46.3) == "44.9 to 47.7"
    assert wording.range_text(99.4, 101.2, like=100.3) == "99 to 101"
    assert wording.range_text(0.961, 0.9821, like=0.973, scale=100) == "96.1 to 98.2"


def test_differences_are_signed_points():
    assert wording.points(-0.0031) == "\N{MINUS SIGN}0.31"
    assert wording.points(0.012) == "+1.20"
    assert wording.points(-0.00001) == "0.00"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (32768, "32 KiB"), (1536, "1.50 KiB"), (25276510208, "23.5 GiB"),
     (2**41, "2.00 TiB")],
)  # fmt: skip
def test_sizes_are_binary(size, text):
    assert wording.bytes_text(size) == text


def test_counts_have_the_usual_letters():
    assert [wording.large(n) for n in (999, 6_998_552, 4_089_184_256)] == ["999", "7.00 M", "4.09 G"]


def test_small_p_values_are_bounds():
    assert [wording.p_value(p) for p in (0.0001, 0.004, 0.031)] == ["under 0.001", "0.004", "0.03"]


def test_names_are_short_where_that_is_unambiguous():
    names = wording.model_names(["resnet50", "a/net.onnx", "b/net.onnx", "c/other.onnx", "d/"])
    assert names["resnet50"] == "ResNet-50"
    assert names["c/other.onnx"] == "other.onnx"
    assert names["a/net.onnx"] == "a/net.onnx"
    assert names["d/"] == "d/"
    assert len(set(names.values())) == 5


def test_a_pair_names_the_other_model_only_where_it_is_another():
    assert wording.compared("net", "int8", "net", "fp32") == "net INT8 against FP32"
    assert wording.compared("net_q", "int8", "net", "fp32") == "net_q INT8 against net FP32"


def test_lists_read_as_english():
    assert wording.joined(["a"]) == "a"
    assert wording.joined(["a", "b", "c"]) == "a, b and c"
    assert wording.plural(1, "repeat") == "1 repeat"
    assert wording.plural(1200, "repeat") == "1,200 repeats"

"""Fixing the open axes of inputs: lengths in place of symbols, wherever they occur, and nothing else."""

import numpy as np
import onnx
import pytest
from small_graphs import info, model, node, normal, run

from inferometer.errors import ConfigError, ModelError
from inferometer.models import describe
from inferometer.models.fix import fix_shapes


def _free() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w"], ["c"], strides=[2, 2]),
        node("Mul", ["c", "m"], ["y"]),
        node("GlobalAveragePool", ["x"], ["z"]),
    ]
    inputs = [info("x", ["N", 3, "H", "W"]), info("m", ["N", 1, "h", "w2"])]
    outputs = [info("y", ["N", 4, "h", "H/2"]), info("z", ["N", 3, 1, 1])]
    return model(nodes, inputs, outputs, {"w": normal(4, 3, 3, 3)})


def _shapes(target: onnx.ModelProto) -> list[object]:
    summary = describe(target)
    return [item.shape for item in (*summary.inputs, *summary.outputs)]


def test_open_axes_get_their_lengths_and_the_outputs_follow() -> None:
    original = _free()
    before = original.SerializeToString()
    fixed = fix_shapes(original, {"x": (3, 9, 11), "m": (1, 4, 5)})
    assert _shapes(fixed) == [("N", 3, 9, 11), ("N", 1, 4, 5), ("N", 4, 4, 5), ("N", 3, 1, 1)]
    onnx.checker.check_model(fixed, full_check=True)
    feeds = {"x": normal(2, 3, 9, 11), "m": normal(2, 1, 4, 5, seed=1)}
    for one, other in zip(run(fixed, **feeds), run(original, **feeds), strict=True):
        np.testing.assert_array_equal(one, other)
    assert original.SerializeToString() == before


def test_a_symbol_is_replaced_in_other_inputs_too() -> None:
    inputs = [info("a", ["N", "T"]), info("b", ["N", "T"])]
    both = model([node("Add", ["a", "b"], ["y"])], inputs, [info("y", ["N", "T"])])
    assert _shapes(fix_shapes(both, {"a": (7,)})) == [("N", 7)] * 3
    with pytest.raises(ConfigError, match=r"input 'b'.*that of 'a'.*'T'.*cannot be both 7 and 8"):
        fix_shapes(both, {"a": (7,), "b": (8,)})


def test_the_batch_stays_open_even_under_the_same_symbol() -> None:
    square = model([node("Relu", ["x"], ["y"])], [info("x", ["?", "?"])], [info("y", ["?", "?"])])
    assert _shapes(fix_shapes(square, {"x": (7,)})) == [("?", 7), ("?", 7)]


def test_axes_without_a_name_and_an_unknown_rank() -> None:
    anonymous = model([node("Relu", ["x"], ["y"])], [info("x", [None, None])], [info("y", [None, None])])
    assert _shapes(fix_shapes(anonymous, {"x": (7,)})) == [(None, 7), (None, 7)]
    unknown = model([node("Relu", ["x"], ["y"])], [info("x", None)], [info("y", None)])
    assert _shapes(fix_shapes(unknown, {"x": (7, 2)})) == [(None, 7, 2), (None, 7, 2)]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"xx": (3, 9, 9)}, "'xx', which is no input; did you mean 'x'"),
        ({"w": (3, 3, 3)}, "'w', which is no input"),
        ({"x": (3, 9)}, r"\[3, 9\].*3 axes besides the batch, \[N, 3, H, W\]"),
        ({"x": (4, 9, 9)}, r"\[4, 9, 9\].*fixed to \[N, 3, H, W\]"),
        ({"x": (3, 0, 9)}, "a length below 1"),
    ],
)
def test_what_does_not_fit_is_refused(shapes: dict[str, tuple[int, ...]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fix_shapes(_free(), shapes)


def test_lengths_that_the_graph_contradicts_are_refused() -> None:
    fixed_output = model([node("Relu", ["x"], ["y"])], [info("x", ["N", "K"])], [info("y", ["N", 5])])
    with pytest.raises(ModelError, match=r"output 'y' is \[\?, 6\], where the file says \[N, 5\]"):
        fix_shapes(fixed_output, {"x": (6,)})
    conv = node("Conv", ["x", "w"], ["y"])
    free = model(
        [conv], [info("x", ["N", 3, "H", "W"])], [info("y", ["N", 4, "h", "w2"])], {"w": normal(4, 3, 3, 3)}
    )
    with pytest.raises(ModelError, match=r"output 'y' is empty, \[None, 4, 0, 7\]"):
        fix_shapes(free, {"x": (3, 2, 9)})


def test_an_input_without_axes_has_nothing_to_fix() -> None:
    scalar = model(
        [node("Mul", ["x", "s"], ["y"])], [info("x", ["N", 2]), info("s", [])], [info("y", ["N", 2])]
    )
    with pytest.raises(ConfigError, match="no axes"):
        fix_shapes(scalar, {"s": (3,)})

"""Re-batching: each image's result is what it is alone, or the model is refused with the reason."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from small_graphs import info, model, node, normal, run

from inferometer.errors import ConfigError, ModelError
from inferometer.models import describe, load, set_batch

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def _shape(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def _dims(target: onnx.ModelProto) -> tuple[object, object]:
    summary = describe(target)
    return summary.inputs[0].shape, summary.outputs[0].shape


def _check(original: onnx.ModelProto, exported: int, *batches: int | None) -> None:
    """At each batch the results are those of the original, fed ``exported`` images at a time."""
    before = original.SerializeToString()
    for batch in batches:
        changed = set_batch(original, batch)
        onnx.checker.check_model(changed, full_check=True)
        assert list(changed.graph.value_info) == []
        first_in, first_out = _dims(changed)
        label = "N" if batch is None else batch
        assert (first_in[0], first_out[0]) == (label, label)  # type: ignore[index]
        for count in (batch,) if batch else (1, 5):
            images = normal(exported * count, *first_in[1:], seed=4)  # type: ignore[index]
            parts = [run(changed, x=images[i : i + count])[0] for i in range(0, len(images), count)]
            alone = [run(original, x=images[i : i + exported])[0] for i in range(0, len(images), exported)]
            np.testing.assert_allclose(np.concatenate(parts), np.concatenate(alone), rtol=1e-5, atol=1e-5)
    assert original.SerializeToString() == before


def _classifier(target: list[int], batch: int | str, out: int | str | None = None) -> onnx.ModelProto:
    """A convolution, a reshaping to ``target`` and a matrix product."""
    weights = {"w": normal(4, 3, 1, 1), "shape": _shape(target), "v": normal(16, 5, seed=2)}
    nodes = [
        node("Conv", ["x", "w"], ["h"]),
        node("Reshape", ["h", "shape"], ["f"], name="flatten"),
        node("MatMul", ["f", "v"], ["y"]),
    ]
    last = batch if out is None else out
    return model(nodes, [info("x", [batch, 3, 2, 2])], [info("y", [last, 5])], weights)


@pytest.mark.parametrize("target", [[1, -1], [1, 16], [-1, 16], [0, -1]])
def test_a_reshape_made_for_one_image(target: list[int]) -> None:
    _check(_classifier(target, 1), 1, None, 1, 4)


@pytest.mark.parametrize("target", [[2, -1], [2, 16], [-1, 16]])
def test_a_reshape_made_for_two_images(target: list[int]) -> None:
    _check(_classifier(target, 2), 2, None, 1, 6)


def test_symbolic_to_fixed_and_back() -> None:
    symbolic = _classifier([-1, 16], "batch")
    assert _dims(set_batch(symbolic, 8)) == ((8, 3, 2, 2), (8, 5))
    assert _dims(set_batch(set_batch(symbolic, 8), None)) == (("N", 3, 2, 2), ("N", 5))
    assert _dims(set_batch(symbolic, None)) == (("batch", 3, 2, 2), ("batch", 5))
    _check(set_batch(symbolic, 1), 1, None, 3)


def test_an_axis_without_a_name_becomes_the_batch() -> None:
    anonymous = model([node("Relu", ["x"], ["y"])], [info("x", [None, 3])], [info("y", [None, 3])])
    assert _dims(set_batch(anonymous, 4)) == ((4, 3), (4, 3))
    assert _dims(set_batch(anonymous, None)) == (("N", 3), ("N", 3))


def test_other_symbolic_axes_stay() -> None:
    nodes = [node("GlobalAveragePool", ["x"], ["y"])]
    free = model(nodes, [info("x", ["N", 3, "H", "W"])], [info("y", ["N", 3, 1, 1])])
    assert _dims(set_batch(free, 2)) == ((2, 3, "H", "W"), (2, 3, 1, 1))


def test_one_constant_for_two_nodes_of_which_one_holds_the_batch() -> None:
    # The second Reshape works on a table that all images share: its 1 is no batch.
    weights = {"shape": _shape([1, -1]), "start": np.float32(0), "end": np.float32(4), "step": np.float32(1)}
    nodes = [
        node("Reshape", ["x", "shape"], ["f"]),
        node("Range", ["start", "end", "step"], ["r"]),
        node("Reshape", ["r", "shape"], ["t"]),
        node("Add", ["f", "t"], ["y"]),
    ]
    _check(model(nodes, [info("x", [1, 2, 2])], [info("y", [1, 4])], weights), 1, None, 3)


def test_a_channel_shuffle() -> None:
    weights = {"split": _shape([1, 2, 3, 2, 2]), "join": _shape([1, 6, 2, 2])}
    nodes = [
        node("Reshape", ["x", "split"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["b", "join"], ["y"]),
    ]
    _check(model(nodes, [info("x", [1, 6, 2, 2])], [info("y", [1, 6, 2, 2])], weights), 1, None, 4)


def test_a_leading_axis_of_images_times_windows() -> None:
    weights = {"windows": _shape([2 * 4, 3]), "back": _shape([2, 4, 3]), "v": normal(3, 3)}
    nodes = [
        node("Reshape", ["x", "windows"], ["a"]),
        node("MatMul", ["a", "v"], ["b"]),
        node("Reshape", ["b", "back"], ["y"]),
    ]
    _check(model(nodes, [info("x", [2, 12])], [info("y", [2, 4, 3])], weights), 2, None, 1, 6)


def test_a_target_shape_put_together_from_constants() -> None:
    weights = {"one": _shape([1]), "rest": _shape([-1])}
    nodes = [node("Concat", ["one", "rest"], ["s"], axis=0), node("Reshape", ["x", "s"], ["y"])]
    _check(model(nodes, [info("x", [1, 2, 3])], [info("y", [1, 6])], weights), 1, None, 5)


def test_an_expanded_token_follows_any_batch() -> None:
    weights = {"token": normal(1, 1, 4), "shape": _shape([2, 1, 4])}
    nodes = [
        node("Expand", ["token", "shape"], ["t"], name="expand_token"),
        node("Concat", ["t", "x"], ["y"], axis=1),
    ]
    original = model(nodes, [info("x", [2, 3, 4])], [info("y", [2, 4, 4])], weights)
    _check(original, 2, None, 1, 6)
    free = set_batch(original, None)
    _check(set_batch(free, 3), 3, None, 1)  # there and back


def test_an_expand_of_a_batched_tensor() -> None:
    weights = {"shape": _shape([2, 3, 4])}
    original = model(
        [node("Expand", ["x", "shape"], ["y"])], [info("x", [2, 1, 4])], [info("y", [2, 3, 4])], weights
    )
    _check(original, 2, None, 1, 4)


def test_resize_to_fixed_sizes() -> None:
    weights = {"sizes": _shape([1, 3, 4, 4])}
    nodes = [node("Resize", ["x", "", "", "sizes"], ["y"], name="up")]
    original = model(nodes, [info("x", [1, 3, 2, 2])], [info("y", [1, 3, 4, 4])], weights)
    _check(original, 1, None, 3)


@pytest.mark.parametrize("op", ["Tile", "ConstantOfShape"])
def test_a_stored_value_repeated_for_each_image(op: str) -> None:
    weights = {"token": normal(1, 3), "times": _shape([2, 1])} if op == "Tile" else {"times": _shape([2, 3])}
    inputs = ["token", "times"] if op == "Tile" else ["times"]
    nodes = [node(op, inputs, ["t"]), node("Concat", ["t", "x"], ["y"], axis=1)]
    _check(model(nodes, [info("x", [2, 3])], [info("y", [2, 6])], weights), 2, None, 1, 5)


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_initial_states_of_zeros_are_left_out_and_others_are_refused(op: str, gates: int) -> None:
    weights = {
        "w": normal(1, 4 * gates, 3),
        "r": normal(1, 4 * gates, 4),
        "h": np.zeros((1, 1, 4), np.float32),
    }
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node(op, ["t", "w", "r", "", "", "h"], ["all", "last"], hidden_size=4, name="recurrent"),
        node("Squeeze", ["last", "axis"], ["y"]),
    ]
    weights["axis"] = _shape([0])
    original = model(nodes, [info("x", [1, 5, 3])], [info("y", [1, 4])], weights)
    _check(original, 1, None, 3)
    original.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(normal(1, 1, 4), "h"))
    _refused(original, "'recurrent'.*initial state 'h' is made for one batch")


def test_an_output_that_does_not_depend_on_the_batch_stays() -> None:
    weights = {"table": normal(1, 7)}
    nodes = [node("Relu", ["x"], ["y"]), node("Identity", ["table"], ["z"])]
    original = model(nodes, [info("x", [1, 3])], [info("y", [1, 3]), info("z", [1, 7])], weights)
    summary = describe(set_batch(original, 4))
    assert [item.shape for item in summary.outputs] == [(4, 3), (1, 7)]


def test_a_flat_output_follows() -> None:
    nodes = [node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)]
    original = model(nodes, [info("x", [1, 3])], [info("y", [1], TensorProto.INT64)])
    assert _dims(set_batch(original, None)) == (("N", 3), ("N",))


def _refused(original: onnx.ModelProto, words: str) -> None:
    for batch in (None, 4):
        with pytest.raises(ModelError, match=words) as caught:
            set_batch(original, batch)
        assert "\n" not in str(caught.value)


def test_a_reshape_that_drops_the_batch_is_refused() -> None:
    weights = {"drop": _shape([4, 3]), "back": _shape([1, 12])}
    nodes = [
        node("Reshape", ["x", "drop"], ["a"], name="drop"),
        node("Softmax", ["a"], ["b"], axis=0),
        node("Reshape", ["b", "back"], ["y"]),
    ]
    _refused(
        model(nodes, [info("x", [1, 12])], [info("y", [1, 12])], weights), "'drop'.*fixed to another batch"
    )


def test_a_reshape_that_would_mix_images_is_refused() -> None:
    # [4, -1] also fits eight rows instead of four, but then each row would hold parts of two images.
    weights = {"mix": _shape([4, -1]), "back": _shape([-1, 12])}
    nodes = [
        node("Reshape", ["x", "mix"], ["a"], name="mix"),
        node("Softmax", ["a"], ["b"], axis=1),
        node("Reshape", ["b", "back"], ["y"]),
    ]
    _refused(model(nodes, [info("x", [1, 12])], [info("y", [1, 12])], weights), "'mix'.*leading axis")


def test_a_batch_moved_by_a_transposition_is_refused() -> None:
    weights = {"flat": _shape([1, -1])}
    nodes = [node("Transpose", ["x"], ["t"]), node("Reshape", ["t", "flat"], ["y"], name="flat")]
    _refused(model(nodes, [info("x", [1, 6])], [info("y", [1, 6])], weights), "'flat'.*leading axis")


def test_a_squeezed_batch_is_refused() -> None:
    weights = {"axes": _shape([0])}
    nodes = [node("Squeeze", ["x", "axes"], ["a"], name="squeeze"), node("Unsqueeze", ["a", "axes"], ["y"])]
    _refused(model(nodes, [info("x", [1, 6])], [info("y", [1, 6])], weights), "'squeeze'")


def test_a_token_joined_to_one_image_is_refused() -> None:
    nodes = [node("Concat", ["token", "x"], ["y"], axis=1, name="join")]
    weights = {"token": normal(1, 1, 4)}
    _refused(model(nodes, [info("x", [1, 3, 4])], [info("y", [1, 4, 4])], weights), "'join'")


JOINING = {
    "mean": (
        [node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1), node("Sub", ["x", "m"], ["y"])],
        "reduces along",
    ),
    "all": ([node("ReduceMax", ["x"], ["m"]), node("Div", ["x", "m"], ["y"])], "reduces along axis 0"),
    "softmax": ([node("Softmax", ["x"], ["y"], axis=0)], "normalises along axis 0"),
    "running sum": ([node("CumSum", ["x", "zero"], ["y"])], "adds up along axis 0"),
    "first": (
        [node("Gather", ["x", "places"], ["g"], axis=0), node("Add", ["x", "g"], ["y"])],
        "picks along axis 0",
    ),
    "first rows": (
        [node("Slice", ["x", "zeros", "twos", "zeros"], ["s"]), node("Relu", ["s"], ["y"])],
        "changes the length of axis 0|cannot be told",
    ),
    "turned round": (
        [node("Slice", ["x", "last", "end", "zeros", "back"], ["y"])],
        "turns round along axis 0",
    ),
    "joined": (
        [node("Concat", ["x", "x"], ["j"], axis=0), node("Reshape", ["j", "wide"], ["y"])],
        "joins along axis 0",
    ),
    "pairs": (
        [
            node("Transpose", ["x"], ["t"]),
            node("MatMul", ["x", "t"], ["p"]),
            node("MatMul", ["p", "x"], ["y"]),
        ],
        "two axes",
    ),
    "summed pairs": (
        [
            node("Transpose", ["x"], ["t"]),
            node("MatMul", ["t", "x"], ["p"]),
            node("MatMul", ["x", "p"], ["y"]),
        ],
        "sums along axis",
    ),
    "einsum": (
        [node("Einsum", ["x", "x"], ["p"], equation="ni,nj->ij"), node("MatMul", ["x", "p"], ["y"])],
        "sums along 'n'",
    ),
    "one range": (
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        "one range for all images",
    ),
    "averaged away": ([node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=1)], "reduces along axis 0"),
}


@pytest.mark.parametrize("which", JOINING)
def test_what_joins_the_images_of_a_batch_is_refused(which: str) -> None:
    nodes, words = JOINING[which]
    weights = {
        "zero": np.int64(0), "zeros": _shape([0]), "twos": _shape([2]), "places": _shape([0]),
        "last": _shape([-1]), "end": _shape([-9]), "back": _shape([-1]), "wide": _shape([-1, 6]),
    }  # fmt: skip
    rows = 1 if which == "averaged away" else 2
    original = model(nodes, [info("x", [2, 3])], [info("y", [rows, 6 if which == "joined" else 3])], weights)
    for batch in (None, 4):
        with pytest.raises(ModelError, match=words):
            set_batch(original, batch)
    set_batch(original, 2)  # as it is


def test_softmax_before_opset_13_normalises_all_further_axes() -> None:
    old = model([node("Softmax", ["x"], ["y"], axis=0)], [info("x", [2, 3])], [info("y", [2, 3])], opset=11)
    _refused(old, "normalises along axis 0")
    fine = model([node("Softmax", ["x"], ["y"], axis=1)], [info("x", [2, 3])], [info("y", [2, 3])], opset=11)
    assert _dims(set_batch(fine, 4)) == ((4, 3), (4, 3))


def test_a_sequence_first_model_is_refused() -> None:
    weights = {"w": normal(1, 4, 3), "r": normal(1, 4, 4, seed=1), "axis": _shape([0])}
    nodes = [
        node("RNN", ["x", "w", "r"], ["all", "last"], hidden_size=4, name="rnn"),
        node("Squeeze", ["last", "axis"], ["y"]),
    ]
    _refused(model(nodes, [info("x", [5, 2, 3])], [info("y", [2, 4])], weights), "'rnn'.*steps along axis 0")


def test_a_model_whose_outputs_ignore_the_leading_axis_has_no_batch() -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)]
    _refused(
        model(nodes, [info("x", [5, 2])], [info("y", [2])]), "no output follows the leading axis of input 'x'"
    )


def test_control_flow_made_for_one_batch_is_refused() -> None:
    def body(op: str) -> onnx.GraphProto:
        return onnx.helper.make_graph([node(op, ["x"], ["z"])], op, [], [info("z", [1, 3])])

    weights = {"yes": np.bool_(True)}
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("If", ["yes"], ["y"], then_branch=body("Relu"), else_branch=body("Neg"), name="if"),
    ]
    fixed = model(nodes, [info("x", [1, 3])], [info("y", [1, 3])], weights)
    for batch in (None, 3):
        with pytest.raises(ModelError, match=r"'if'.*inside|no output follows the leading axis"):
            set_batch(fixed, batch)


def test_every_open_leading_axis_becomes_the_batch() -> None:
    inputs = [info("a", ["A", 3]), info("b", ["B", 3]), info("c", [None, 3]), info("limits", [3])]
    nodes = [node("Sum", ["a", "b", "c", "limits"], ["y"])]
    changed = set_batch(model(nodes, inputs, [info("y", ["Y", 3])]), 4)
    assert [item.shape for item in describe(changed).inputs] == [(4, 3), (4, 3), (4, 3), (3,)]
    assert describe(changed).batch == 4


def test_the_batch_is_that_of_the_first_input_with_two_axes() -> None:
    inputs = [info("factor", []), info("limits", [3]), info("x", ["N", 3])]
    nodes = [node("Sum", ["factor", "limits", "x"], ["y"])]
    changed = set_batch(model(nodes, inputs, [info("y", ["N", 3])]), 2)
    assert [item.shape for item in describe(changed).inputs] == [(), (3,), (2, 3)]


def test_outputs_of_a_symbolic_model_may_have_the_batch_elsewhere() -> None:
    weights = {"join": _shape([-1, 3])}
    nodes = [node("Transpose", ["x"], ["t"]), node("Reshape", ["x", "join"], ["r"])]
    free = model(nodes, [info("x", ["N", 6])], [info("t", [6, "N"]), info("r", ["2*N", 3])], weights)
    assert [item.shape for item in describe(set_batch(free, 4)).outputs] == [(6, 4), (None, 3)]


@pytest.mark.parametrize("length", [0, -1])
def test_a_leading_length_below_one_means_an_open_batch(length: int) -> None:
    odd = model([node("Relu", ["x"], ["y"])], [info("x", [length, 3])], [info("y", [length, 3])])
    assert _dims(set_batch(odd, None)) == (("N", 3), ("N", 3))
    assert _dims(set_batch(odd, 4)) == ((4, 3), (4, 3))


def test_no_batch_axis() -> None:
    scalar = model([node("Relu", ["x"], ["y"])], [info("x", [])], [info("y", [])])
    _refused(scalar, "'x' has no batch axis")


@pytest.mark.parametrize("batch", [0, -3])
def test_a_batch_below_one_is_a_usage_error(batch: int) -> None:
    with pytest.raises(ConfigError, match=f"batch {batch} is less than 1"):
        set_batch(_classifier([1, -1], 1), batch)


@pytest.mark.parametrize("name", ["inception_v1", "resnet50", "shufflenet", "squeezenet"])
def test_foreign_models_of_one_image(name: str) -> None:
    original = load(LIGHT / f"light_{name}.onnx")
    one = describe(original)
    many = set_batch(original, None)
    onnx.checker.check_model(many)
    summary = describe(many)
    assert summary.inputs[0].shape == ("N", 3, 224, 224)
    assert summary.outputs[0].shape[:2] == ("N", 1000)  # type: ignore[index]
    assert (summary.macs, summary.parameters) == (one.macs, one.parameters)
    assert describe(set_batch(original, 8)).macs == one.macs  # per image

"""Models as people have them, through the commands: other inputs, other outputs, other numbering."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferometer.cli.main import run_command
from inferometer.store import read_per_image, read_store
from tests.unit.cli.colours import colour_model, palette, pictures
from tests.unit.cli.command import Ended, inferometer

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

COLOURS = palette(12)
LEVELS = ((127.0, 127.0, 127.0), (128.0, 128.0, 128.0))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures(tmp_path_factory.mktemp("any") / "set", COLOURS, 3)


@pytest.fixture
def accuracy(capsys: pytest.CaptureFixture[str], images: Path) -> Any:
    def run(model: Path, *words: object) -> Ended:
        common = ("--data", images, "--preprocess", "efficientnet-lite", "--json")
        return inferometer(capsys, "accuracy", model, *common, *words)

    return run


def top1(ended: Ended) -> float:
    assert ended.code == 0, ended.err
    found: float = ended.document["models"][0]["top1"]
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_model(tmp_path_factory.mktemp("plain") / "m.onnx", COLOURS, *LEVELS)


def with_outputs(source: Path, path: Path, *tail: str) -> Path:
    """The model with further nodes: ``softmax``, ``label``, ``twin``, ``map``."""
    model = onnx.load(source)
    graph = model.graph
    more = {
        "softmax": (["Softmax", ["logits"], "probabilities"], TensorProto.FLOAT, ["N", len(COLOURS)]),
        "label": (["ArgMax", ["logits"], "label"], TensorProto.INT64, ["N"]),
        "twin": (["Neg", ["logits"], "twin"], TensorProto.FLOAT, ["N", len(COLOURS)]),
        "map": (["Relu", ["picture"], "map"], TensorProto.FLOAT, ["N", 3, 224, 224]),
    }
    if "twin" not in tail:
        del graph.output[:]
    for word in tail:
        (op, inputs, name), kind, shape = more[word]
        attributes = {"axis": 1, "keepdims": 0} if op == "ArgMax" else {}
        graph.node.append(helper.make_node(op, inputs, [name], **attributes))
        graph.output.append(helper.make_tensor_value_info(name, kind, shape))
    onnx.save(model, path)
    return path


def test_probabilities_and_labels_give_the_same_top1_as_logits(accuracy, plain, tmp_path):
    wanted = top1(accuracy(plain))
    assert wanted > 0.8
    assert top1(accuracy(with_outputs(plain, tmp_path / "s.onnx", "softmax"))) == wanted
    ended = accuracy(with_outputs(plain, tmp_path / "l.onnx", "label"))
    assert top1(ended) == wanted
    assert ended.document["models"][0]["top5"] is None


def test_of_two_heads_one_must_be_named(accuracy, plain, tmp_path):
    model = with_outputs(plain, tmp_path / "two.onnx", "twin")
    ended = accuracy(model)
    assert ended.code == 3
    assert "name one by --output" in ended.err
    assert top1(accuracy(model, "--output", "logits")) == top1(accuracy(plain))
    assert top1(accuracy(model, "--output", "twin")) == 0
    ended = accuracy(model, "--output", "logit")
    assert (ended.code, "did you mean 'logits'" in ended.err) == (2, True)


def test_a_model_that_is_no_classifier_is_measured_and_not_scored(capsys, plain, images, tmp_path):
    model = with_outputs(plain, tmp_path / "map.onnx", "map")
    words = ("--data", images, "--preprocess", "efficientnet-lite", "--seconds", "0.2", "--repeats", "1")
    ended = inferometer(capsys, "bench", model, "--batch", "1", "--json", *words)
    assert ended.code == 0, ended.err
    by_kind = {one["trial"]["kind"]: one for one in ended.document["records"]}
    assert by_kind["throughput"]["throughput"]["images_per_s"] > 0
    assert by_kind["accuracy"]["status"] == "unsupported"
    assert "no classifier" in by_kind["accuracy"]["reason"]


@pytest.mark.parametrize(("dtype", "nhwc"), [("uint8", True), ("uint8", False), ("float", True)])
def test_bytes_and_channels_last_are_fed_as_they_should(accuracy, plain, tmp_path, dtype, nhwc):
    levels = ((0.0,) * 3, (1.0,) * 3) if dtype == "uint8" else LEVELS
    model = colour_model(tmp_path / "m.onnx", COLOURS, *levels, dtype=dtype, nhwc=nhwc)
    assert top1(accuracy(model)) == pytest.approx(top1(accuracy(plain)), abs=0.03)  # rounding at borders


def test_a_background_class_needs_the_offset(accuracy, plain, tmp_path):
    model = colour_model(tmp_path / "m.onnx", COLOURS, *LEVELS, background=True)
    assert top1(accuracy(model)) < 0.2
    assert top1(accuracy(model, "--label-offset", "1")) == top1(accuracy(plain))
    ended = accuracy(model, "--label-offset", "2")
    assert ended.code == 4
    assert "outside" in ended.err


def test_1001_classes_for_a_set_of_1000_want_a_word_on_the_background(accuracy, images, tmp_path):
    thousand = tmp_path / "set"
    thousand.mkdir()
    for picture in images.glob("*.png"):
        (thousand / picture.name).write_bytes(picture.read_bytes())
    rows = [f"{place:03}.png,{999 if place == 0 else place}" for place in range(36)]
    (thousand / "labels.csv").write_text("\n".join(["file,class_index", *rows]) + "\n")
    model = colour_model(tmp_path / "m.onnx", palette(1000), *LEVELS, background=True)
    ended = accuracy(model, "--data", thousand)
    assert ended.code == 4
    assert "--label-offset 1" in ended.err
    assert accuracy(model, "--data", thousand, "--label-offset", "1").code == 0


def test_open_sizes_are_those_of_the_preprocessing_or_asked_for(capsys, accuracy, plain, tmp_path):
    model = onnx.load(plain)
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"side{axis}"
    onnx.save(model, tmp_path / "open.onnx")
    assert top1(accuracy(tmp_path / "open.onnx")) == top1(accuracy(plain))
    words = ("--seconds", "0.2", "--repeats", "1", "--batch", "2", "--json")
    ended = inferometer(capsys, "bench", tmp_path / "open.onnx", *words)
    assert ended.code == 2
    assert "--input-shape picture=3x224x224" in ended.err
    ended = inferometer(capsys, "bench", tmp_path / "open.onnx", *words, "--input-shape", "picture=3x64x48")
    assert ended.code == 0, ended.err


def two_inputs(path: Path, source: Path) -> Path:
    """Logits times a second input, of which the batch is open."""
    model = onnx.load(source)
    model.graph.node[-1].output[0] = "plain"
    model.graph.node.append(helper.make_node("Mul", ["plain", "gain"], ["logits"]))
    model.graph.input.append(helper.make_tensor_value_info("gain", TensorProto.FLOAT, ["N", 1]))
    onnx.save(model, path)
    return path


def test_a_second_input_holds_what_the_user_says(capsys, accuracy, plain, tmp_path):
    model = two_inputs(tmp_path / "two.onnx", plain)
    ended = accuracy(model)
    assert ended.code == 2
    assert "--input gain=VALUE" in ended.err
    assert top1(accuracy(model, "--input", "gain=1")) == top1(accuracy(plain))
    assert top1(accuracy(model, "--input", "gain=-1")) == 0
    words = ("--seconds", "0.2", "--repeats", "1", "--batch", "2", "--json")
    ended = inferometer(capsys, "bench", model, *words, "--input", "gain=0:1")
    assert ended.code == 0, ended.err
    ended = inferometer(capsys, "bench", model, *words, "--input", "gian=0:1")
    assert (ended.code, "did you mean 'gain'" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--input", "gain"], "wants the input's name, = and a value"),
        (["--input", "gain=a"], "wants a number, or two"),
        (["--input", "gain=2:1"], "lower end first"),
        (["--input", "gain=nan"], "finite"),
        (["--input", "gain=1", "--input", "gain=2"], "stands twice"),
        (["--input-shape", "gain=0x3"], "whole numbers from 1"),
        (["--label-offset", "123456"], "label_offset"),
        (["--decode", "fast"], "scaled"),
    ],
)
def test_words_that_say_nothing_are_refused(capsys, plain, words, said):
    ended = inferometer(capsys, "bench", plain, *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_int8_is_calibrated_on_images_with_a_second_input(capsys, accuracy, images, plain, tmp_path):
    model = two_inputs(tmp_path / "two.onnx", plain)
    words = ("--data", images, "--preprocess", "efficientnet-lite", "--input", "gain=1")
    ended = inferometer(capsys, "calibrate", model, "--out", tmp_path / "q.onnx", *words)
    assert ended.code == 0, ended.err
    assert numpy_helper.to_array(onnx.load(plain).graph.initializer[0]).dtype == np.float32
    ended = accuracy(tmp_path / "q.onnx", "--input", "gain=1")
    assert top1(ended) > 0.6


def test_unlabelled_images_calibrate_and_are_not_scored(capsys, accuracy, plain, images, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for picture in images.glob("*.png"):
        (bare / picture.name).write_bytes(picture.read_bytes())
    words = ("--data", bare, "--preprocess", "efficientnet-lite")
    ended = inferometer(capsys, "calibrate", plain, "--out", tmp_path / "q.onnx", *words)
    assert ended.code == 0, ended.err
    ended = inferometer(capsys, "accuracy", plain, *words)
    assert ended.code == 4
    assert "unlabelled" in ended.err


def test_a_model_that_joins_the_images_of_a_batch_is_not_scored(accuracy, plain, tmp_path):
    model = onnx.load(plain)
    model.graph.node[-1].output[0] = "plain"
    model.graph.node.append(helper.make_node("Softmax", ["plain"], ["logits"], axis=0))
    for item in (model.graph.input[0], model.graph.output[0]):
        item.type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(model, tmp_path / "joined.onnx")
    ended = accuracy(tmp_path / "joined.onnx")
    assert ended.code == 3
    assert "depends on the others in its batch" in ended.err


def test_a_model_may_be_left_out_of_a_studys_accuracy(capsys, plain, images, tmp_path):
    flat = with_outputs(plain, tmp_path / "twin.onnx", "softmax")
    study = tmp_path / "study.yaml"
    study.write_text(
        f"models:\n- {{model: {plain}, preprocess: efficientnet-lite}}\n- {{model: {flat}, accuracy: null}}\n"
        f"kinds: []\naccuracy: {{data: {images}}}\n"
    )
    ended = inferometer(capsys, "run", study, "--out", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    records = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["trial"]["model"] for line in records] == [plain.stem]


def test_models_of_other_numberings_are_compared_image_by_image(accuracy, plain, images, tmp_path):
    other = colour_model(tmp_path / "b.onnx", COLOURS, *LEVELS, background=True)
    study = tmp_path / "study.yaml"
    study.write_text(
        f"models:\n- {{model: {plain}, preprocess: efficientnet-lite}}\n"
        f"- {{model: {other}, preprocess: efficientnet-lite, label_offset: 1}}\n"
        f"kinds: []\naccuracy: {{data: {images}}}\n"
    )
    out = tmp_path / "out"
    assert run_command(["run", str(study), "--out", str(out)]) == 0
    records = read_store(out).records
    assert [record.config["label_offset"] for record in records] == [None, 1]
    a, b = (read_per_image(out, record) for record in records)
    assert (a.hashes, a.labels.tolist(), a.top[:, 0].tolist()) == (
        b.hashes,
        b.labels.tolist(),
        b.top[:, 0].tolist(),
    )

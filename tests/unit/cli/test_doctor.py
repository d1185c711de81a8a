"""``doctor``: what fits is found by accuracy, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from inferometer.data.ilsvrc2012 import class_of_id
from inferometer.data.preprocess import PRESETS
from tests.unit.cli.colours import colour_model, palette, pictures
from tests.unit.cli.command import inferometer

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

COLOURS = palette(24)
LITE = PRESETS["efficientnet-lite"]
LEVELS = ((127.0, 127.0, 127.0), (128.0, 128.0, 128.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("doctor")
    colour_model(place / "lite.onnx", COLOURS, *LEVELS)
    colour_model(place / "background.onnx", COLOURS, *LEVELS, background=True)
    pictures(place / "set", COLOURS, 4)
    pictures(place / "shifted", COLOURS, 4, shift=1)
    return place


def yaml_of(path: Path, **changes: object) -> Path:
    fields = {**LITE.model_dump(mode="json", exclude={"name"}), **changes}
    path.write_text(yaml.safe_dump({key: value for key, value in fields.items() if value is not None}))
    return path


def diagnosed(
    capsys: pytest.CaptureFixture[str], model: Path, data: Path, *words: object
) -> dict[str, object]:
    ended = inferometer(capsys, "doctor", "--model", model, "--data", data, "--json", *words)
    assert ended.code == 0, ended.err
    found: dict[str, object] = ended.document["fits"]
    assert found["fits"] is True
    return found


def test_the_preset_that_a_model_was_made_for_is_found(capsys, folder):
    found = diagnosed(capsys, folder / "lite.onnx", folder / "set")
    assert found["preprocess"] == "efficientnet-lite"
    assert found["label_offset"] == 0
    assert found["faults"] == []
    assert found["top1"] > 0.8
    channels = next(one for one in found["aspects"] if one["aspect"] == "channels")
    assert [one["value"] for one in channels["alternatives"]] == ["BGR"]
    assert channels["alternatives"][0]["delta"] < -0.3


@pytest.mark.parametrize(
    ("changes", "aspect"),
    [
        ({"channels": "BGR"}, "channels"),
        ({"mean": [0.0] * 3, "std": [1.0] * 3}, "normalisation"),
    ],
)
def test_one_fault_is_named_alone(capsys, folder, tmp_path, changes, aspect):
    wrong = yaml_of(tmp_path / "wrong.yaml", **changes)
    found = diagnosed(capsys, folder / "lite.onnx", folder / "set", "--preprocess", wrong)
    assert [one["aspect"] for one in found["faults"]] == [aspect]
    assert found["given_top1"] < found["top1"] - 0.3
    assert found["preprocess"] == "efficientnet-lite"
    said = " ".join(found["sentences"])
    assert ("Normalisation is missing" if aspect == "normalisation" else "Wrong order of channels") in said


def test_labels_that_are_one_too_high_are_named(capsys, folder):
    found = diagnosed(capsys, folder / "lite.onnx", folder / "shifted", "--preprocess", "efficientnet-lite")
    assert found["label_offset"] == -1
    assert [one["aspect"] for one in found["faults"]] == ["labels"]
    assert "they are one higher than the classes (label_offset: -1)" in " ".join(found["sentences"])


def test_a_background_class_is_found(capsys, folder):
    found = diagnosed(capsys, folder / "background.onnx", folder / "set")
    assert (found["label_offset"], found["preprocess"]) == (1, "efficientnet-lite")


def test_ids_of_the_development_kit_are_recognised(capsys, folder, tmp_path):
    used = sorted(class_of_id().items())[::40]  # (id, class)
    colours = palette(1000)
    model = colour_model(tmp_path / "m.onnx", colours, *LEVELS, side=32)
    data = pictures(tmp_path / "set", colours[[index for _, index in used]], 4, spread=0)
    rows = [f"{place:03}.png,{used[place % len(used)][0]}" for place in range(4 * len(used))]
    (data / "labels.csv").write_text("\n".join(["file,class_index", *rows]) + "\n")
    ended = inferometer(capsys, "doctor", "--model", model, "--data", data, "--json")
    found = ended.document["fits"]
    assert found["devkit_labels"] is True
    assert found["top1"] > 0.8
    assert "give WordNet ids in their place" in " ".join(found["sentences"])
    assert ended.document["yaml"] is None


def test_what_fits_is_not_blamed(capsys, folder):
    found = diagnosed(capsys, folder / "lite.onnx", folder / "set", "--preprocess", "efficientnet-lite")
    assert found["faults"] == []
    assert found["given_top1"] == found["top1"]


@pytest.mark.parametrize(("dtype", "nhwc"), [("uint8", True), ("float", True)])
def test_other_inputs_are_fed_too(capsys, folder, tmp_path, dtype, nhwc):
    levels = ((0.0,) * 3, (1.0,) * 3) if dtype == "uint8" else LEVELS
    scale = 1e-2 if dtype == "uint8" else 20.0
    model = colour_model(tmp_path / "m.onnx", COLOURS, *levels, dtype=dtype, nhwc=nhwc, scale=scale)
    found = diagnosed(capsys, model, folder / "set", "--preprocess", "efficientnet-lite")
    assert found["top1"] > 0.8
    assert found["preprocessing"]["channels"] == "RGB"
    assert (found["preprocess"], found["given_fits"], found["faults"]) == ("efficientnet-lite", True, [])


def test_what_was_found_is_written_as_a_file_that_can_be_used(capsys, folder, tmp_path):
    model = colour_model(tmp_path / "m.onnx", COLOURS, (127.5,) * 3, (127.5,) * 3, side=32)
    out = tmp_path / "fits.yaml"
    found = diagnosed(capsys, model, folder / "set", "--out", out)
    ended = inferometer(capsys, "accuracy", model, "--data", folder / "set", "--preprocess", out, "--json")
    assert ended.code == 0, ended.err
    assert ended.document["models"][0]["top1"] == found["top1"]


def test_nothing_fits_a_model_of_other_classes(capsys, folder, tmp_path):
    model = colour_model(tmp_path / "m.onnx", palette(24, seed=9), *LEVELS)
    ended = inferometer(capsys, "doctor", "--model", model, "--data", folder / "set", "--json")
    assert ended.code == 0, ended.err
    assert ended.document["fits"]["fits"] is False
    assert ended.document["yaml"] is None


def test_a_model_alone_and_a_set_alone_are_described(capsys, folder):
    ended = inferometer(capsys, "doctor", "--model", folder / "lite.onnx")
    assert ended.code == 0
    assert "A classifier: 'logits' gives 24 classes" in ended.out
    assert "onnxruntime" in ended.out
    ended = inferometer(capsys, "doctor", "--data", folder / "set")
    assert ended.code == 0
    assert "labels.csv, 96 images of 24 classes" in ended.out


def test_it_wants_something_to_look_at(capsys):
    ended = inferometer(capsys, "doctor")
    assert (ended.code, ended.out) == (2, "")
    assert "give --model FILE, --data DIR, or both" in ended.err


def test_a_preprocessing_that_is_not_common_is_not_blamed_for_it(capsys, folder, tmp_path):
    mean, std = [130.0, 110.0, 90.0], [40.0, 90.0, 20.0]
    model = colour_model(tmp_path / "m.onnx", COLOURS, tuple(mean), tuple(std))
    own = yaml_of(tmp_path / "own.yaml", mean=mean, std=std)
    found = diagnosed(capsys, model, folder / "set", "--preprocess", own)
    assert (found["faults"], found["given_fits"]) == ([], True)
    assert found["top1"] == found["given_top1"]
    assert found["preprocessing"]["mean"] == mean
    assert "What you use fits" in " ".join(found["sentences"])


def test_outputs_that_are_no_numbers_are_told(capsys, folder, tmp_path):
    model = onnx.load(folder / "lite.onnx")
    bias = next(one for one in model.graph.initializer if one.name == "b")
    values = numpy_helper.to_array(bias).copy()
    values[3] = np.nan
    bias.CopyFrom(numpy_helper.from_array(values, "b"))
    onnx.save(model, tmp_path / "nan.onnx")
    out = tmp_path / "out.yaml"
    ended = inferometer(
        capsys, "doctor", "--model", tmp_path / "nan.onnx", "--data", folder / "set", "--json", "--out", out
    )
    assert ended.document["fits"]["fits"] is False
    assert "NaN for 96 of 96 images" in ended.document["fits"]["sentences"][0]
    assert not out.exists()
    assert any("is not written" in note for note in ended.document["notes"])


@pytest.mark.parametrize("word", ["--labels", "--preprocess"])
def test_what_is_read_is_not_written_over(capsys, folder, tmp_path, word):
    read = yaml_of(tmp_path / "mine.yaml") if word == "--preprocess" else tmp_path / "labels.csv"
    if word == "--labels":
        read.write_bytes((folder / "set" / "labels.csv").read_bytes())
    before = read.read_bytes()
    ended = inferometer(
        capsys, "doctor", "--model", folder / "lite.onnx", "--data", folder / "set", word, read, "--out", read
    )
    assert ended.code == 2
    assert read.read_bytes() == before


def test_labels_that_tell_nothing_are_said_to(capsys, folder, tmp_path):
    one = pictures(tmp_path / "one", COLOURS[:1], 30)
    ended = inferometer(capsys, "doctor", "--model", folder / "lite.onnx", "--data", one, "--json")
    assert "all images are of one class" in " ".join(ended.document["notes"])
    small = colour_model(tmp_path / "small.onnx", COLOURS[:3], *LEVELS)
    ended = inferometer(capsys, "doctor", "--model", small, "--data", folder / "set", "--json")
    assert "the labels reach 23, and the model has 3 classes" in " ".join(ended.document["notes"])


def test_the_yaml_holds_what_the_model_needs_besides(capsys, folder, tmp_path):
    model = onnx.load(folder / "background.onnx")
    model.graph.node[-1].output[0] = "plain"
    model.graph.node.append(helper.make_node("Mul", ["plain", "gain"], ["logits"]))
    model.graph.input.append(helper.make_tensor_value_info("gain", TensorProto.FLOAT, ["N", 1]))
    onnx.save(model, tmp_path / "two.onnx")
    ended = inferometer(
        capsys,
        "doctor",
        "--model",
        tmp_path / "two.onnx",
        "--data",
        folder / "set",
        "--json",
        "--input",
        "gain=1",
    )
    study = tmp_path / "study.yaml"
    section = yaml.safe_dump({"accuracy": {"data": str(folder / "set")}, "kinds": []})
    study.write_text(ended.document["yaml"] + section)
    ran = inferometer(capsys, "run", study, "--out", tmp_path / "out", "--json")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("word", ["--preprocess", "--label-offset", "--out"])
def test_words_on_what_fits_want_both(capsys, folder, word):
    ended = inferometer(capsys, "doctor", "--model", folder / "lite.onnx", word, "1")
    assert ended.code == 2
    assert f"{word} is about what fits" in ended.err

"""``doctor``: what fits is found by accuracy, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

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
    assert "one higher than the model's classes" in " ".join(found["sentences"])


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
    found = diagnosed(capsys, model, folder / "set")
    assert found["top1"] > 0.8
    assert found["preprocessing"]["channels"] == "RGB"


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

"""``--labels``: labels that do not lie with the images, which may lie in an archive."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.unit.cli.command import inferometer

PREPROCESS = "size: [16, 16]\nmean: [0, 0, 0]\nstd: [255, 255, 255]\n"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Ten 16-pixel images without labels, in a zip archive."""
    (tmp_path / "how.yaml").write_text(PREPROCESS)
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        for number in range(10):
            pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, "PNG")
            archive.writestr(f"{number}.png", stream.getvalue())
    return tmp_path / "set.zip"


def test_a_model_is_scored_on_an_archive_with_labels_elsewhere(capsys, mini, packed, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    words = ["accuracy", mini, "--data", packed, "--preprocess", tmp_path / "how.yaml", "--json"]
    ended = inferometer(capsys, *words)
    assert (ended.code, "the images lie unlabelled in it" in ended.err) == (4, True)
    scores = []
    for label in range(5):
        table = "image;label\n" + "".join(f"{number};{label}\n" for number in range(10))
        (tmp_path / "given.csv").write_text(table)
        ended = inferometer(capsys, *words, "--labels", tmp_path / "given.csv")
        assert ended.code == 0, ended.err
        scores.append(ended.document["models"][0]["top1"])
    assert sum(scores) == pytest.approx(1)  # each image is of one of the model's five classes


@pytest.mark.parametrize("verb", ["bench", "calibrate"])
def test_labels_without_images_are_refused(capsys, mini, tmp_path, verb):
    more = ["--out", tmp_path / "o.onnx", "--table", tmp_path / "t.json"] if verb == "calibrate" else []
    ended = inferometer(capsys, verb, mini, "--labels", tmp_path / "x.csv", *more)
    assert ended.code == 2
    assert f"{verb}: --labels names the labels of images: give --data DIR too" in ended.err


def test_a_missing_file_of_labels_is_named(capsys, mini, packed, tmp_path):
    words = ["--data", packed, "--labels", tmp_path / "no.csv", "--preprocess", tmp_path / "how.yaml"]
    ended = inferometer(capsys, "calibrate", mini, "--out", tmp_path / "o.onnx", *words)
    assert (ended.code, f"the file of labels {tmp_path / 'no.csv'} does not exist" in ended.err) == (4, True)

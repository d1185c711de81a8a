"""``--weights`` wherever a built-in network is accepted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inferometer.models import networks
from inferometer.models.inspection import describe
from inferometer.models.networks import catalogue
from inferometer.models.networks.builder import Layer, NetworkBuilder
from tests.unit.cli.command import Ended, inferometer

NET = "vgg-mini"


@pytest.fixture(autouse=True)
def _miniature(monkeypatch: pytest.MonkeyPatch) -> None:
    def architecture(net: NetworkBuilder) -> Layer:
        x = net.relu(net.conv(net.input, "features.0", 4, 3, pad=1), "features.1")
        return net.linear(net.average(x, "average"), "classifier.0", net.classes, output="logits")

    for name in (NET, "vgg-more"):
        entry = (catalogue.Network(name, 16, "caffe", 0.0, 0.0), architecture)
        monkeypatch.setitem(catalogue._NETWORKS, name, entry)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Seeded weights as if they were trained: an exported file, 1000 classes."""
    path = tmp_path / "weights.onnx"
    networks.export("vgg-more", path, seed=9)
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    generator = np.random.default_rng(0)
    for number in range(12):
        place = folder / f"class{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(
            place / f"{number:02}.png"
        )
    return folder


@pytest.fixture
def preprocess(tmp_path: Path) -> Path:
    path = tmp_path / "preprocess.yaml"
    path.write_text("resize_exact: 16\ncrop: 16\nmean: [127, 127, 127]\nstd: [64, 64, 64]\n")
    return path


def failed(ended: Ended, code: int, *told: str) -> None:
    assert (ended.code, ended.out) == (code, "")
    assert all(text in ended.err for text in told), ended.err
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err


def test_export_writes_the_weights(capsys: pytest.CaptureFixture[str], weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    ended = inferometer(capsys, "models", "export", NET, out, "--weights", weights, "--json")
    assert ended.code == 0
    assert ended.document == {"network": NET, "file": str(out), "weights": str(weights), "notes": []}
    assert describe(out).metadata["inferometer.weights"].startswith("file weights.onnx, sha256 ")
    assert describe(out).metadata["inferometer.network"] == NET


def test_export_refuses_what_contradicts_itself(
    capsys: pytest.CaptureFixture[str], weights: Path, tmp_path: Path
) -> None:
    def refused(code: int, told: str, name: str, out: Path, *words: object) -> None:
        failed(inferometer(capsys, "models", "export", name, out, *words), code, told)

    out, given = tmp_path / "out.onnx", ["--weights", weights]
    refused(2, "--seed is for random weights", NET, out, *given, "--seed", 1)
    refused(2, "would overwrite what is read", NET, weights, *given)
    refused(2, "unknown network 'vgg'", "vgg", out, *given)
    refused(3, "it fits vgg-mini", "alexnet", out, *given)
    refused(3, "no such file of weights", NET, out, "--weights", tmp_path / "none.pth")
    assert not out.exists()


def test_show_tells_the_names_and_shapes(capsys: pytest.CaptureFixture[str], weights: Path) -> None:
    shown = inferometer(capsys, "models", "show", NET, "--tensors").out
    assert "with torchvision's names" in " ".join(shown.split())
    assert any(line.split()[:2] == ["classifier.0.weight", "1000x4"] for line in shown.splitlines())
    (naming,) = inferometer(capsys, "models", "show", NET, "--json").document["weights"]
    assert {"name": "features.0.weight", "shape": [4, 3, 3, 3]} in naming["tensors"]
    assert "weights" not in inferometer(capsys, "models", "show", weights, "--json").document
    failed(inferometer(capsys, "models", "show", weights, "--tensors"), 2, "for the built-in networks")


def test_an_onnx_file_takes_no_weights(
    capsys: pytest.CaptureFixture[str], weights: Path, images: Path, mini: Path, tmp_path: Path
) -> None:
    given = ["--weights", weights]
    failed(inferometer(capsys, "bench", mini, *given), 2, "an ONNX file has its own")
    failed(inferometer(capsys, "accuracy", mini, "--data", images, *given), 2, "an ONNX file has its own")
    calibrate = ["calibrate", mini, "--data", images, "--out", tmp_path / "q.onnx", *given]
    failed(inferometer(capsys, *calibrate), 2, "an ONNX file has its own")
    study = tmp_path / "study.yaml"
    study.write_text(f"models: [{{model: {mini}, weights: {weights}}}]\n")
    failed(inferometer(capsys, "run", study, "--out", tmp_path / "s"), 2, "an ONNX file has its own")


def test_weights_of_one_of_two_networks(
    capsys: pytest.CaptureFixture[str], weights: Path, images: Path
) -> None:
    words = ["accuracy", NET, "vgg-more", "--data", images, "--weights", weights]
    failed(
        inferometer(capsys, *words), 2, "for vgg-mini or vgg-more?", "models export NAME FILE --weights FILE"
    )


def test_bench_and_a_study_use_the_weights(
    capsys: pytest.CaptureFixture[str], weights: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    given = ["--seconds", "0.1", "--repeats", "1", "--batch", "1", "--json"]
    out = tmp_path / "bench"
    ended = inferometer(capsys, "bench", NET, "--weights", weights, *given, "--out", out)
    assert ended.code == 0
    (kept,) = (out / "models").iterdir()
    assert kept.name.startswith("vgg-mini-weights-")
    records = ended.document["records"]
    assert {record["trial"]["model"] for record in records} == {NET}
    assert {record["model"]["sha256"] for record in records} == {describe(kept).sha256}


def test_accuracy_is_measured_only_with_weights(
    capsys: pytest.CaptureFixture[str], weights: Path, images: Path, preprocess: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    words = ["accuracy", NET, "--data", images, "--preprocess", preprocess, "--json"]
    failed(inferometer(capsys, *words), 5, "weights of this network are random")
    ended = inferometer(capsys, *words, "--weights", weights)
    assert ended.code == 0
    (row,) = ended.document["models"]
    assert (row["path"], row["images"]) == (NET, 12)


def test_calibrate_quantizes_the_trained_network(
    capsys: pytest.CaptureFixture[str], weights: Path, images: Path, preprocess: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    out = tmp_path / "q.onnx"
    words = ["calibrate", NET, "--data", images, "--preprocess", preprocess, "--out", out, "--images", 4]
    failed(inferometer(capsys, *words), 2, "give --weights FILE")
    assert inferometer(capsys, *words, "--weights", weights).code == 0
    assert describe(out).is_quantized
    assert describe(out).metadata["inferometer.weights"].startswith("file weights.onnx, ")

"""``accuracy`` with several models: every pair against values counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper, parser
from PIL import Image

from tests.unit.cli.command import inferometer

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

# Models that look at nothing: their classes, best first, whatever the image.
CONSTANT = """
<ir_version: 8, opset_import: ["" : 17]>
constant (float[N, 3, 16, 16] input) => (float[N, 8] logits)
{{
  {quantized}
  g = GlobalAveragePool({after})
  f = Flatten(g)
  logits = Gemm(f, w, b)
}}
"""
QDQ = "q = QuantizeLinear(input, s, z)\n  d = DequantizeLinear(q, s, z)"
LABELS = [0] * 5 + [3] * 2 + [4] + [5] * 2 + [7] * 2
ORDER_A = (0, 1, 2, 3, 4, 5, 6, 7)
ORDER_B = (3, 0, 5, 6, 7, 1, 2, 4)


def constant(path: Path, order: tuple[int, ...], *, quantized: bool = False) -> Path:
    text = CONSTANT.format(quantized=QDQ if quantized else "", after="d" if quantized else "input")
    model = parser.parse_model(text)
    bias = np.zeros(8, np.float32)
    bias[list(order)] = np.arange(8, 0, -1)
    weights: dict[str, npt.NDArray[np.generic]] = {"w": np.zeros((3, 8), np.float32), "b": bias}
    if quantized:
        weights |= {"s": np.array(1 / 255, np.float32), "z": np.array(0, np.uint8)}
    for name, values in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
    onnx.save(model, path)
    return path


@pytest.fixture
def words(tmp_path: Path) -> list[object]:
    """The command line for a, b and c: c is a's quantized twin."""
    images = tmp_path / "images"
    images.mkdir()
    generator = np.random.default_rng(0)
    for number in range(len(LABELS)):
        Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(
            images / f"{number:02}.png"
        )
    lines = [f"{number:02}.png,{label}" for number, label in enumerate(LABELS)]
    (images / "labels.csv").write_text("\n".join(["file,class_index", *lines]) + "\n")
    preprocess = tmp_path / "mini.yaml"
    preprocess.write_text("size: [16, 16]\nmean: [0, 0, 0]\nstd: [255, 255, 255]\n")
    models = [
        constant(tmp_path / "b.onnx", ORDER_B),
        constant(tmp_path / "a.onnx", ORDER_A),
        constant(tmp_path / "a_int8.onnx", ORDER_A, quantized=True),
    ]
    return ["accuracy", *models, "--data", images, "--preprocess", preprocess, "--out", tmp_path / "out"]


def test_every_pair_is_compared_in_the_order_given(
    words: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = inferometer(capsys, *words, "--json")
    assert ended.code == 0, ended.err
    found = ended.document
    b, a, twin = (str(tmp_path / f"{name}.onnx") for name in ("b", "a", "a_int8"))
    # b has 3 first (2 images) and lacks 4 alone among its five (1 image); a has 0 first, and 0 to 4.
    assert [(one["path"], one["precision"], one["images"]) for one in found["models"]] == [
        (b, "fp32", 12), (a, "fp32", 12), (twin, "int8", 12),
    ]  # fmt: skip
    assert [one["top1"] for one in found["models"]] == pytest.approx([2 / 12, 5 / 12, 5 / 12])
    assert [one["top5"] for one in found["models"]] == pytest.approx([11 / 12, 8 / 12, 8 / 12])
    pairs = found["difference"]
    assert [(one["a"], one["b"], one["metric"]) for one in pairs] == [
        (f"{b} fp32", f"{a} fp32", "top1"), (f"{b} fp32", f"{a} fp32", "top5"),
        (f"{b} fp32", f"{twin} int8", "top1"), (f"{b} fp32", f"{twin} int8", "top5"),
        (f"{a} fp32", f"{twin} int8", "top1"), (f"{a} fp32", f"{twin} int8", "top5"),
    ]  # fmt: skip
    keys = ("images", "only_a", "only_b", "agreement", "verdict")
    assert [tuple(one[key] for key in keys) for one in pairs] == [
        (12, 2, 5, 0.0, "within noise"), (12, 4, 1, 0.0, "within noise"),
        (12, 2, 5, 0.0, "within noise"), (12, 4, 1, 0.0, "within noise"),
        (12, 0, 0, 1.0, "within noise"), (12, 0, 0, 1.0, "within noise"),
    ]  # fmt: skip
    assert [one["delta"] for one in pairs] == pytest.approx([3 / 12, -3 / 12, 3 / 12, -3 / 12, 0, 0])
    # Seven throws with at most two heads, and five with at most one, two-sided.
    assert [one["p"] for one in pairs] == pytest.approx([58 / 128, 12 / 32, 58 / 128, 12 / 32, 1, 1])
    for one in pairs:
        assert one["ci95"][0] < one["delta"] < one["ci95"][1]
        assert (one["images_to_settle"] is None) is (one["delta"] == 0)
    _shows_the_same_in_a_terminal(words, capsys, monkeypatch)
    _leaves_other_models_of_the_folder_alone(words, capsys)


def _shows_the_same_in_a_terminal(
    words: list[object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept records are shown again: no line is wider than the terminal, and findings come last."""
    monkeypatch.setenv("COLUMNS", "100")
    ended = inferometer(capsys, *words)
    assert ended.code == 0, ended.err
    lines = ended.out.rstrip().splitlines()
    assert max(map(len, lines)) <= 100
    assert "Machine" not in lines
    assert "No room here for: Lost, Gained, Same first class." in [line.rstrip() for line in lines]
    (row,) = [line for line in lines if line.startswith("a_int8 INT8 against b FP32  top-1")]
    assert row.split("  ")[-1].strip() == "within noise"
    title = next(place for place, line in enumerate(lines) if line.startswith("What was found on "))
    sentences = " ".join(line.strip() for line in lines[title + 1 :])
    assert "- a FP32 against b FP32: top-1 differs by +25.00 points on 12 images" in sentences
    assert "- a_int8 INT8 against a FP32: top-1 differs by 0.00 points on 12 images" in sentences
    assert sentences.count("- ") == 3


def _leaves_other_models_of_the_folder_alone(words: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that holds other models' records too is no reason to show them."""
    ended = inferometer(capsys, words[0], words[2], *words[4:], "--json")
    assert ended.code == 0, ended.err
    assert [one["path"] for one in json.loads(ended.out)["models"]] == [str(words[2])]
    assert ended.document["difference"] == []

"""``calibrate`` on the shipped digits: what is measured, what is written, and what it all agrees on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from inferometer.demo.assets import DigitsFiles, extract
from inferometer.quantize.note import calibration_of
from inferometer.quantize.table import CalibrationTable
from tests.unit.cli.command import Ended, inferometer

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

LAYERS = ["stem.conv", "block1.conv", "block2.conv", "block2.add", "down.conv", "tail.conv", "logits"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> DigitsFiles:
    return extract(tmp_path_factory.mktemp("digits"))


@pytest.fixture
def run(digits: DigitsFiles, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def calibrate(*words: object, data: bool = True, name: str = "q") -> Ended:
        images = ["--data", digits.images, "--preprocess", digits.preprocess] if data else []
        out = tmp_path / f"{name}.onnx"
        return inferometer(capsys, "calibrate", digits.model, *images, "--out", out, "--json", *words)

    return calibrate


def test_stages_and_forward_passes_are_told(run: Any) -> None:
    ended = run("--images", "60")
    assert ended.code == 0, ended.err
    found = ended.document
    assert set(found["stages_s"]) == {"decode", "forward", "statistics", "search", "wall"}
    assert all(seconds > 0 for seconds in found["stages_s"].values())
    assert found["forward_batch"] == 4
    assert found["threads"] >= 1
    assert ["60 images" in line for line in found["warnings"]] == [True]
    assert "measured" not in found


@pytest.mark.parametrize(
    ("method", "more"), [("minmax", []), ("mse", []), ("percentile", ["--percentile", "99"])]
)
def test_every_method_writes_its_table(run: Any, tmp_path: Path, method: str, more: list[str]) -> None:
    kl = CalibrationTable.load(run("--images", "60", name="kl").document["table"])
    ended = run("--images", "60", "--method", method, *more)
    table = CalibrationTable.load(ended.document["table"])
    assert (table.method, table.percentile) == (method, 99 if more else None)
    assert {name: (one.lo, one.hi) for name, one in table.tensors.items()} == {
        name: (one.lo, one.hi) for name, one in kl.tensors.items()
    }
    assert table.tensors != kl.tensors


def test_a_table_and_a_cache_serve_another_engine_without_images(run: Any, tmp_path: Path) -> None:
    cache = tmp_path / "digits.cache"
    first = run("--images", "60", "--cache", cache)
    assert first.code == 0, first.err
    table = CalibrationTable.load(first.document["table"])
    assert cache.read_text().startswith("TRT-")
    by_table = run("--table", first.document["table"], "--engine", "tensorrt", data=False, name="t")
    by_cache = run("--table", cache, "--engine", "tensorrt", data=False, name="c")
    assert (by_table.code, by_cache.code) == (0, 0), by_table.err + by_cache.err
    again = CalibrationTable.load(by_cache.document["table"])
    for name, found in table.tensors.items():
        assert again.tensors[name].threshold == pytest.approx(found.threshold, rel=1e-6)
    note = calibration_of(onnx.load(by_table.document["model"]))
    assert note is not None
    assert note.scheme == by_table.document["scheme"]
    assert note.table_sha256 == table.content_sha256()


def test_layers_are_ranked_by_their_damage_and_drawn(run: Any, tmp_path: Path, digits: DigitsFiles) -> None:
    ended = run("--images", "60", "--layers")
    assert ended.code == 0, ended.err
    measured = ended.document["measured"]
    assert measured["held_out_images"] == len(list(digits.images.rglob("*.png"))) - 60
    rows = measured["layers"]
    assert sorted(row["layer"] for row in rows) == sorted(LAYERS)
    assert [row["damage"] for row in rows] == sorted((row["damage"] for row in rows), reverse=True)
    assert [row["layer"] for row in sorted(rows, key=lambda row: row["position"])] == LAYERS
    assert not any(row["in_float"] for row in rows)
    assert json.loads((tmp_path / "q.layers.json").read_text()) == measured
    assert (tmp_path / "q.layers.png").read_bytes().startswith(b"\x89PNG")


def spoiled(table: Path, *tensors: str) -> Path:
    """The table with some ranges far too narrow; without names, all of them."""
    content = json.loads(table.read_text())
    for name in tensors or content["tensors"]:
        content["tensors"][name]["threshold"] *= 0.002
    path = table.with_name("spoiled.json")
    path.write_text(json.dumps(content))
    return path


def test_a_spoiled_range_is_found_and_what_it_spoils_is_left_in_float(run: Any) -> None:
    good = run("--images", "60", name="good").document
    bad = spoiled(Path(good["table"]), "down.relu")
    ended = run("--table", bad, "--max-drop", "1%")
    assert ended.code == 0, ended.err
    budget = ended.document["measured"]["budget"]
    first = budget["evaluations"][0]
    assert first["float_layers"] == []
    assert first["drop"] > 0.3
    assert budget["met"]
    assert -budget["delta"] <= 0.01
    # What writes and what reads the tensor: as long as either is on integers it saturates.
    assert {"down.conv", "tail.conv"} <= set(budget["float_layers"])
    assert len(budget["float_layers"]) <= 3
    note = calibration_of(onnx.load(ended.document["model"]))
    assert note is not None
    assert set(note.float_layers) == set(budget["float_layers"])


def test_a_budget_that_no_form_meets_exits_with_1_and_the_best_is_written(run: Any) -> None:
    good = run("--images", "60", name="good").document
    ended = run("--table", spoiled(Path(good["table"])), "--max-drop", "0%")
    assert ended.code == 1, ended.err
    budget = ended.document["measured"]["budget"]
    assert not budget["met"]
    assert budget["verdict"] == "a real loss"
    assert -budget["delta"] == min(one["drop"] for one in budget["evaluations"])
    # A form without any integer layer would be no INT8 form.
    assert max(len(one["float_layers"]) for one in budget["evaluations"]) == len(LAYERS) - 1
    assert Path(ended.document["model"]).exists()


def test_bias_correction_is_shown_to_help_or_not(run: Any) -> None:
    ended = run("--images", "60", "--bias-correction")
    measured = ended.document["measured"]
    found = measured["bias_correction"]
    assert found["logits_sqnr_db"] > 10
    assert found["corrected_logits_sqnr_db"] > 10
    assert found["logits_sqnr_db"] != found["corrected_logits_sqnr_db"]
    assert measured["layers"] is None
    note = calibration_of(onnx.load(ended.document["model"]))
    assert note is not None
    assert note.biases_corrected


def test_accuracy_shows_where_noise_arises(
    run: Any, digits: DigitsFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    quantized = run("--images", "60").document["model"]
    images = ["--data", digits.images, "--preprocess", digits.preprocess]
    ended = inferometer(capsys, "accuracy", digits.model, quantized, *images, "--layers", "--json")
    assert ended.code == 0, ended.err
    (noise,) = ended.document["layers"]
    assert (noise["a"], noise["b"], noise["unmatched"]) == (str(digits.model), quantized, [])
    assert [row["layer"] for row in noise["layers"]] == LAYERS
    assert all(row["own_sqnr_db"] >= row["sqnr_db"] - 1 for row in noise["layers"])
    assert noise["logits_sqnr_db"] == pytest.approx(noise["layers"][-1]["sqnr_db"])
    alone = inferometer(capsys, "accuracy", quantized, *images, "--layers")
    assert alone.code == 2
    assert "--layers compares quantized files with a float one" in alone.err


@pytest.mark.parametrize(
    ("words", "data", "code", "parts"),
    [
        (["--layers", "--table", "x.json"], False, 2, ["--data"]),
        (["--table", "x.json"], True, 2, ["--table", "--data"]),
        (["--max-drop", "half"], True, 2, ["--max-drop", "half", "0.5%"]),
        (["--max-drop", "0.5"], True, 2, ["--max-drop", "'0.5'", "0.5%"]),
        (["--table", "x.json", "--method", "kl", "--images", "5"], False, 2, ["--images, --method"]),
        (["--memory", "lots"], True, 2, ["--memory", "lots", "256MB"]),
        (["--memory", "1KB"], True, 2, ["--memory", "1 MB"]),
        (["--percentile", "99"], True, 2, ["kl", "percentile"]),
        (["--engine", "tensorr"], True, 2, ["tensorr", "did you mean"]),
    ],
)
def test_bad_options_are_one_line(
    run: Any, tmp_path: Path, words: list[str], data: bool, code: int, parts: list[str]
) -> None:
    ended = run(*words, data=data)
    assert ended.code == code, ended.err
    assert all(part in ended.err for part in parts), ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("q*"))


def test_nothing_that_is_read_is_overwritten(
    digits: DigitsFiles, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model, link = tmp_path / "m.onnx", tmp_path / "link.onnx"
    model.write_bytes(digits.model.read_bytes())
    link.symlink_to(model)
    hard = tmp_path / "hard.onnx"
    hard.hardlink_to(model)
    image = next(digits.images.rglob("*.png"))
    images = ["--data", digits.images, "--preprocess", digits.preprocess]
    for words in (
        ["--out", model], ["--out", link], ["--out", hard], ["--out", image],
        ["--out", tmp_path / "q.onnx", "--cache", link], ["--out", tmp_path / "q", "--cache", tmp_path / "q"],
    ):  # fmt: skip
        ended = inferometer(capsys, "calibrate", model, *images, "--images", "10", *words)
        assert ended.code == 2, words
        assert "overwrite what is read" in ended.err or "name the same file" in ended.err
    assert model.read_bytes() == digits.model.read_bytes()
    assert not (tmp_path / "q.onnx").exists()


def test_a_table_may_lie_where_its_copy_goes(run: Any) -> None:
    first = run("--images", "60").document
    again = run("--table", first["table"], "--engine", "openvino", data=False)
    assert again.code == 0, again.err
    assert again.document["table_sha256"] == first["table_sha256"]


def test_fewer_images_than_asked_for_are_told(run: Any, digits: DigitsFiles) -> None:
    half = len(list(digits.images.rglob("*.png"))) // 2
    ended = run("--images", "100000")
    assert ended.document["images"] == half
    assert f"asked for 100000 images, {half} chose the ranges" in ended.err


@pytest.mark.parametrize(
    ("words", "part"),
    [(["--seed", "-5"], "seed"), (["--out", ""], "names no file"), (["--out", "."], "--out")],
)
def test_what_cannot_be_is_told_before_anything_runs(
    digits: DigitsFiles, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], part: str
) -> None:
    out = ["--out", tmp_path / "q.onnx"] if "--out" not in words else []
    images = ["--data", digits.images, "--preprocess", digits.preprocess]
    ended = inferometer(capsys, "calibrate", digits.model, *images, *out, *words)
    assert ended.code == 2, ended.err
    assert part in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_nothing_is_replaced_unless_all_can_be(run: Any, tmp_path: Path) -> None:
    (tmp_path / "q.onnx").write_bytes(b"old")
    (tmp_path / "q.table.json").mkdir()
    ended = run("--images", "60")
    assert ended.code == 8, ended.err
    assert (tmp_path / "q.onnx").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.onnx", "q.table.json"]
    too_long = run("--images", "60", name="n" * 300)
    assert too_long.code == 8, too_long.err
    assert "File name too long" in too_long.err


def test_images_that_could_not_be_read_are_named(
    digits: DigitsFiles, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "images"
    for place, image in enumerate(sorted(digits.images.rglob("*.png"))[:40]):
        target = folder / str(place % 2) / f"{place}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(image.read_bytes())
    names = tmp_path / "names.txt"
    names.write_text("".join(f"{place % 2}/{place}.png\n" for place in range(20)))
    (folder / "1" / "3.png").write_bytes(b"no image")
    words = [
        "--data",
        folder,
        "--preprocess",
        digits.preprocess,
        "--split",
        names,
        "--out",
        tmp_path / "q.onnx",
    ]
    ended = inferometer(capsys, "calibrate", digits.model, *words, "--json")
    assert ended.code == 0, ended.err
    assert ended.document["images"] == 19
    assert any("1 of 20 images could not be used: 1/3.png" in line for line in ended.document["warnings"])

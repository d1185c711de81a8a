"""Bad input: one clear line on standard error, the right exit code, nothing half-written."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from inferometer.models.rebatch import set_batch
from tests.contract.engines import classifier
from tests.unit.cli.command import Ended, inferometer

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

Run = Callable[..., Ended]
PREPROCESS = "size: [16, 16]\nmean: [0, 0, 0]\nstd: [255, 255, 255]\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *words: inferometer(capsys, *words)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Ten 16-pixel images of five classes, with labels.csv."""
    folder = tmp_path / "images"
    folder.mkdir()
    generator = np.random.default_rng(0)
    lines = ["file,class_index"]
    for number in range(10):
        pixels = generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        lines.append(f"{number}.png,{number % 5}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def preprocess(tmp_path: Path) -> Path:
    path = tmp_path / "mini.yaml"
    path.write_text(PREPROCESS)
    return path


def refused(ended: Ended, code: int, *words: str) -> None:
    """One line on standard error that holds all the words; nothing on standard output."""
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert ended.err.startswith("inferometer: ")
    assert ended.err.count("\n") == 1, ended.err
    assert "Traceback" not in ended.err
    for word in words:
        assert word in ended.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["no such file"]),
        (b"", ["empty"]),
        (b"hello, I am no model\n" * 20, ["not"]),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), ["PNG"]),
    ],
)
def test_files_that_are_no_models(run: Run, tmp_path: Path, content: bytes | None, words: list[str]) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    refused(run("bench", path), 3, "model.onnx", *words)
    refused(run("models", "show", path), 3, "model.onnx")


def test_a_truncated_model(run: Run, mini: Path) -> None:
    mini.write_bytes(mini.read_bytes()[:500])
    refused(run("bench", mini), 3, str(mini))


def test_an_operator_and_an_opset_that_nobody_knows(run: Run, tmp_path: Path) -> None:
    odd = classifier()
    odd.graph.node[0].op_type = "Frobnicate"
    path = tmp_path / "odd.onnx"
    path.write_bytes(odd.SerializeToString())
    refused(run("bench", path), 3, "odd.onnx", "Frobnicate")
    new = classifier()
    new.opset_import[0].version = 9999
    path.write_bytes(new.SerializeToString())
    refused(run("bench", path), 3, "odd.onnx", "9999")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bench", "resnet5"], "unknown model 'resnet5'; did you mean 'resnet50'?"),
        (["bench", "googlenet", "--engine", "onnxruntme"], "did you mean 'onnxruntime'?"),
        (["bench", "googlenet", "--precision", "int7"], "did you mean 'int8'?"),
        (["bench", "googlenet", "--precision", "int8,"], "an empty entry"),
        (["bench", "googlenet", "--batch", "0"], "'0' is no batch"),
        (["bench", "googlenet", "--batch", "-1"], "'-1' is no batch"),
        (["bench", "googlenet", "--batch", "many"], "'many' is no batch"),
        (["bench", "googlenet", "--batch", "8,8"], "names one entry twice"),
        (["bench", "googlenet", "--repeats", "0"], "repeats"),
        (["bench", "googlenet", "--seconds", "-1"], "max_s"),
        (["bench", "googlenet", "--seconds", "soon"], "--seconds"),
        (["bench", "googlenet", "--device", "cuda:0"], "there is no device 'cuda:0'"),
        (["bench"], "model"),
        (["benhc", "googlenet"], "benhc"),
        (["bench", "googlenet", "--nonsense"], "--nonsense"),
        (["published", "dell"], "dell"),
        (["models", "export", "vgg17", "x.onnx"], "did you mean"),
    ],
)
def test_wrong_words(run: Run, words: list[str], expected: str) -> None:
    ended = run(*words)
    assert ended.code in (2, 5)
    refused(ended, 5 if "cuda:0" in words else 2, expected)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("file,class_index\n0.png,5\n", ["0.png", "5", "0..4"]),
        ("file,class_index\n0.png,-1\n", ["-1"]),
        ("file,class_index\n0.png,cat\n", ["cat"]),
        ("file,class_index\nnone.png,1\nnor-this.png,1\n", ["none.png"]),
        ("file,class_index\n", ["labels.csv"]),
        ("name,label\n0.png,1\n", ["labels.csv"]),
        ("", ["labels.csv"]),
    ],
)
def test_labels_that_do_not_fit(
    run: Run, mini: Path, images: Path, preprocess: Path, labels: str, words: list[str]
) -> None:
    (images / "labels.csv").write_text(labels)
    refused(run("accuracy", mini, "--data", images, "--preprocess", preprocess), 4, *words)


def test_folders_without_images(run: Run, mini: Path, tmp_path: Path, preprocess: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(run("accuracy", mini, "--data", empty, "--preprocess", preprocess), 4, str(empty))
    refused(run("accuracy", mini, "--data", tmp_path / "none", "--preprocess", preprocess), 4, "none")


def test_images_that_cannot_be_used(run: Run, mini: Path, images: Path, preprocess: Path) -> None:
    for number in range(5):
        (images / f"{number}.png").write_bytes(b"" if number % 2 else b"text, not pixels")
    ended = run("accuracy", mini, "--data", images, "--preprocess", preprocess)
    refused(
        ended,
        4,
        "5 of 10 images cannot be used" if "5 of 10" in ended.err else "images cannot be used",
        ".png",
    )


def test_one_broken_image_is_named_and_skipped(run: Run, mini: Path, images: Path, preprocess: Path) -> None:
    (images / "3.png").write_bytes((images / "3.png").read_bytes()[:60])
    ended = run("accuracy", mini, "--data", images, "--preprocess", preprocess, "--json")
    assert ended.code == 0
    (row,) = ended.document["models"]
    assert row["images"] == 9
    assert len(row["skipped"]) == 1
    assert row["skipped"][0].startswith("3.png: ")


def test_exactly_so_many_images_are_scored(run: Run, mini: Path, images: Path, preprocess: Path) -> None:
    ended = run("accuracy", mini, "--data", images, "--preprocess", preprocess, "--images", "5", "--json")
    assert ended.document["models"][0]["images"] == 5


def test_a_pipe_is_no_model(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    refused(run("models", "show", tmp_path / "pipe.onnx"), 3, "no ordinary file")


def test_a_preprocessing_is_wanted_and_must_be_known(
    run: Run, mini: Path, images: Path, tmp_path: Path
) -> None:
    refused(run("accuracy", mini, "--data", images), 4, "--preprocess")
    refused(
        run("accuracy", mini, "--data", images, "--preprocess", "torchvison"), 2, "did you mean 'torchvision'"
    )
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(PREPROCESS + "crops: 3\n")
    refused(run("accuracy", mini, "--data", images, "--preprocess", wrong), 2, "did you mean 'crop'")


def test_calibrate_says_what_is_wrong_and_writes_nothing(
    run: Run, mini: Path, images: Path, preprocess: Path, tmp_path: Path
) -> None:
    out = tmp_path / "q" / "int8.onnx"
    refused(run("calibrate", mini, "--out", out), 2, "--data", "--table")
    options = ["--preprocess", preprocess, "--out", out]
    refused(run("calibrate", mini, "--data", images, *options, "--method", "kll"), 2, "did you mean 'kl'")
    refused(run("calibrate", mini, "--data", images, *options, "--images", "0"), 2, "images")
    refused(run("calibrate", mini, "--data", images, *options, "--split", "middle"), 2, "middle")
    garbage = tmp_path / "t.json"
    garbage.write_text("{}")
    refused(run("calibrate", mini, "--table", garbage, "--out", out), 6, "t.json")
    assert not out.parent.exists() or not list(out.parent.iterdir())


def test_a_table_of_another_model_is_refused(
    run: Run, mini: Path, images: Path, preprocess: Path, tmp_path: Path
) -> None:
    out = tmp_path / "int8.onnx"
    ended = run(
        "calibrate", mini, "--data", images, "--preprocess", preprocess, "--images", "5", "--out", out
    )
    assert ended.code == 0, ended.err
    other = tmp_path / "other.onnx"
    onnx.save(classifier(seed=1), other)
    again = tmp_path / "again.onnx"
    refused(
        run("calibrate", other, "--table", tmp_path / "int8.table.json", "--out", again), 6, "another model"
    )
    assert not again.exists()
    refused(
        run("calibrate", out, "--data", images, "--preprocess", preprocess, "--out", again),
        6,
        "already quantized",
    )


def test_a_folder_that_cannot_be_written_or_is_anothers(run: Run, mini: Path, tmp_path: Path) -> None:
    quick = ["--seconds", "0.05", "--repeats", "1", "--batch", "1"]
    blocked = tmp_path / "file"
    blocked.write_text("")
    refused(run("bench", mini, *quick, "--out", blocked), 8, str(blocked))
    refused(run("bench", mini, *quick, "--out", "/proc/no/such"), 8, "/proc/no")
    study = tmp_path / "study.yaml"
    study.write_text(f"name: other\nmodels: [{mini}]\nkinds: []\n")
    out = tmp_path / "out"
    assert run("bench", mini, "--engine", "null", *quick, "--out", out).code == 0
    refused(run("run", study, "--out", out), 8, "belongs to the study 'bench', not 'other'")
    refused(run("report", tmp_path / "nothing"), 8, "no records there")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 32 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))


def test_a_full_disk_is_one_line_and_what_is_there_stays_readable(
    run: Run, mini: Path, small_disk: Path
) -> None:
    out = small_disk / "out"
    quick = ["--engine", "null", "--seconds", "0.05", "--repeats", "1", "--batch", "1,2"]
    assert run("bench", mini, *quick, "--out", out).code == 0
    before = (out / "records.jsonl").read_bytes()
    _fill(small_disk / "ballast")
    ended = run(
        "bench",
        mini,
        "--engine",
        "null",
        "--seconds",
        "0.05",
        "--repeats",
        "2",
        "--batch",
        "1,2",
        "--out",
        out,
    )
    assert ended.code == 8
    assert ended.err.count("inferometer: ") == 1
    assert "No space left on device" in ended.err
    assert "Traceback" not in ended.err
    assert (out / "records.jsonl").read_bytes() == before
    assert run("report", out, "--json").code == 0


def test_a_fixed_batch_that_cannot_be_freed_is_a_result(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "fixed.onnx"
    onnx.save(set_batch(classifier(), 2), path)
    ended = run("bench", path, "--seconds", "0.05", "--repeats", "1", "--batch", "1,2", "--json")
    assert ended.code == 0, ended.err
    statuses = {record["trial"]["batch"]: record["status"] for record in ended.document["records"]}
    assert statuses == {1: "ok", 2: "ok"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("provider=openvin", "provider: 'openvin' is not known; did you mean 'openvino'?"),
        ("provider=0", "provider: 0 is not known"),
        ("in_flight=0", "in_flight: wants a whole number from 1 to 4096: 0"),
        ("in_flight=true", "in_flight: wants a whole number from 1 to 4096: True"),
        ("copies=some", "copies: 'some' is not known"),
        ("thread=2", "unknown option 'thread'; did you mean 'threads'?"),
    ],
)
def test_an_engines_wrong_options_are_refused_before_any_trial(
    mini: Path, tmp_path: Path, given: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    done = inferometer(capsys, "bench", mini, "--option", given, "--out", out)
    assert done.code == 5, done.err
    assert done.err.strip().startswith("inferometer: onnxruntime: ")
    assert message in done.err
    assert not (out / "records.jsonl").exists()

"""``choose``: from a study that was really run, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest

from inferometer.config import Study, parse
from inferometer.study.run import run_study
from tests.contract.engines import classifier
from tests.unit.cli.command import inferometer
from tests.unit.study.watcher import Remembering


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One study for all tests here: what they do to it, they do to a copy."""
    path = tmp_path_factory.mktemp("choose")
    onnx.save(classifier(), path / "mini.onnx")
    content = {
        "name": "chosen", "models": [str(path / "mini.onnx")], "engines": ["null"], "batches": [1, 4],
        "repeats": 2, "kinds": ["throughput"], "measure": {"max_s": 0.2, "warmup_max_s": 0.1},
        "isolation": "series",
    }  # fmt: skip
    run_study(parse(Study, content, "test"), path / "study", Remembering())
    return path / "study"


@pytest.fixture
def folder(ran, tmp_path):
    return Path(shutil.copytree(ran, tmp_path / "study"))


def test_a_need_that_is_met_is_met_by_what_the_stamps_tell(capsys, folder, tmp_path):
    picture, page = tmp_path / "choice.png", tmp_path / "choice.html"
    ended = inferometer(capsys, "choose", folder, "--p99", "100ms", "--png", picture, "--html", page)
    assert ended.code == 0
    assert "Take null cpu FP32 batch " in ended.out
    assert " ms under load" in ended.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "<h1>mini: which setup?</h1>" in page.read_text()
    found = inferometer(
        capsys, "choose", folder, "--p99", "100ms", "--json", "--png", tmp_path, "--html", page
    ).document
    assert found["verdict"] == "meets"
    assert found["written"] == [str(page), str(picture)]
    assert all(
        one["crew"]["latency"]["under_load"] and 0 < one["crew"]["latency"]["p99_s"] < 0.1
        for one in found["candidates"]
    )


def test_without_the_stamps_nothing_is_taken_for_granted(capsys, folder):
    for one in folder.glob("sidecars/*.stamps.npz"):
        one.unlink()
    ended = inferometer(capsys, "choose", folder, "--p99", "100ms")
    assert (ended.code, "It cannot be told" in ended.out) == (10, True)
    assert "copy sidecars/ along with records.jsonl, or inferometer run STUDY.yaml --out NEW" in ended.out


def test_none_that_meets_it_and_what_cannot_be_told(capsys, folder):
    ended = inferometer(capsys, "choose", folder, "--p99", "0.000001ms")
    assert (ended.code, "None meets the need" in ended.out) == (1, True)
    ended = inferometer(capsys, "choose", folder, "--watts", "100")
    assert (ended.code, "It cannot be told" in ended.out) == (10, True)
    assert "power: {meters: [rapl]} in the study (docs/power.md)" in ended.out


def test_nothing_is_drawn_of_a_rate_alone(capsys, folder, tmp_path):
    for one in folder.glob("sidecars/*.stamps.npz"):
        one.unlink()
    ended = inferometer(capsys, "choose", folder, "--png", tmp_path / "choice.png")
    assert ended.code == 0
    assert "choice.png is not written: neither latency under load, nor energy, nor accuracy is known" in (
        " ".join(ended.err.split())
    )
    assert not (tmp_path / "choice.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--p99", "10"], "is no time: write for example 10ms"),
        (["--p99", "0ms"], "is no time: write for example 10ms"),
        (["--images-per-s", "0"], "--images-per-s: 0 is no such number: wants one above 0"),
        (["--images-per-s", "1e308"], "--images-per-s: 1e+308 is no such number: wants one above 0, at most"),
        (["--watts", "nan"], "--watts: nan is no such number"),
        (["--j-per-image", "-1"], "--j-per-image: -1 is no such number"),
        (["--price", "other=3"], "--price: there is no 'other'; known are study"),
        (["--price", "study=x"], "is no price"),
        (["--price", "study=1", "--price", "study=2"], "study has two prices"),
        (["--model", "vgg"], "there is no 'vgg'; known are mini"),
        (["--html", "{folder}/records.jsonl"], "would overwrite what is read"),
        (["--max-drop", "1"], "is no percentage"),
    ],
)
def test_what_is_no_need_is_refused_in_a_line(capsys, folder, words, said):
    ended = inferometer(capsys, "choose", folder, *(word.format(folder=folder) for word in words))
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_study_that_is_named_twice_is_refused(capsys, folder):
    ended = inferometer(capsys, "choose", folder, folder / ".." / folder.name)
    assert (ended.code, ended.out) == (2, "")
    assert "is named twice" in ended.err

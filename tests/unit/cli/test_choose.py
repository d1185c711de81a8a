"""``choose``: from a study that was really run, and what it refuses."""

from __future__ import annotations

import pytest

from inferometer.config import Study, parse
from inferometer.study.run import run_study
from tests.unit.cli.command import inferometer
from tests.unit.study.watcher import Remembering


@pytest.fixture
def folder(mini, tmp_path):
    content = {
        "name": "chosen", "models": [str(mini)], "engines": ["null"], "batches": [1, 4], "repeats": 2,
        "kinds": ["throughput"], "measure": {"max_s": 0.2, "warmup_max_s": 0.1}, "isolation": "series",
    }  # fmt: skip
    run_study(parse(Study, content, "test"), tmp_path / "study", Remembering())
    return tmp_path / "study"


def test_a_need_that_is_met_is_met_by_what_the_stamps_tell(capsys, folder, tmp_path):
    picture = tmp_path / "choice.png"
    ended = inferometer(capsys, "choose", folder, "--p99", "100ms", "--png", picture)
    assert ended.code == 0
    assert "Take study: null cpu FP32 batch " in ended.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = inferometer(capsys, "choose", folder, "--p99", "100ms", "--json").document
    assert found["verdict"] == "meets"
    assert all(0 < one["p99_s"] < 0.1 for one in found["candidates"])


def test_none_that_meets_it_and_what_cannot_be_told(capsys, folder):
    ended = inferometer(capsys, "choose", folder, "--p99", "0.000001ms")
    assert (ended.code, "None meets the need" in ended.out) == (1, True)
    ended = inferometer(capsys, "choose", folder, "--watts", "100")
    assert (ended.code, "It cannot be told" in ended.out) == (10, True)
    assert "watts: power: {meters: [nvml]} in the study" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--p99", "10"], "is no time: write for example 10ms"),
        (["--price", "other=3"], "is no price: write DIR=NUMBER, with one of study"),
        (["--price", "study=x"], "is no price"),
        (["--price", "study=1", "--price", "study=2"], "study has two prices"),
        (["--model", "vgg"], "there is no 'vgg'; known are mini"),
        (["--max-drop", "1"], "is no percentage"),
    ],
)
def test_what_is_no_need_is_refused_in_a_line(capsys, folder, words, said):
    ended = inferometer(capsys, "choose", folder, *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_study_that_is_named_twice_is_refused(capsys, folder):
    ended = inferometer(capsys, "choose", folder, folder / ".." / folder.name)
    assert (ended.code, ended.out) == (2, "")
    assert "is named twice" in ended.err

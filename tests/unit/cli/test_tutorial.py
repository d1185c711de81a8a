"""The tutorial's file and commands, as they stand in docs/tutorial.md."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.unit.cli.command import inferometer

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language; those of commands name none."""
    fenced = TUTORIAL.read_text().split("```")[1::2]
    return [text.partition("\n")[2] for text in fenced if text.partition("\n")[0] == language]


@pytest.mark.slow
def test_every_command_of_the_tutorial_runs(capsys, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    monkeypatch.chdir(tmp_path)
    (study,) = blocks("yaml")
    (tmp_path / "study.yaml").write_text(study)
    lines = [line for block in blocks("") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("inferometer ")]
    assert [words[0] for words in commands] == ["run", "run", "compare", "report", "choose"]
    for words in commands:
        ended = inferometer(capsys, *words)
        assert ended.code == 0, f"{words}: {ended.err}"
        if words[0] == "compare":
            assert "ratio" in ended.out.lower()
        if words[0] == "choose":
            assert "Take " in ended.out
    assert (tmp_path / "first.html").stat().st_size > 100_000

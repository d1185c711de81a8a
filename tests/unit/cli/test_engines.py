"""``inferometer engines``: readable in 80 columns, one JSON document, and an exit code."""

from __future__ import annotations

import pytest

from inferometer import registry
from tests.unit.cli.command import inferometer

WIDTH = 80


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that load at once, and a third party's whose library is absent."""
    monkeypatch.setattr(registry, "engine_names", lambda: ["null", "onnxruntime", "absent"])


def test_every_engine_is_a_block_within_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, faulty: None
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    pytest.importorskip("onnxruntime")
    ended = inferometer(capsys, "engines")
    assert ended.code == 0
    assert max(len(line) for line in ended.out.splitlines()) <= WIDTH
    blocks = {block.split()[0]: block for block in ended.out.strip().split("\n\n")}
    assert list(blocks) == ["null", "onnxruntime", "absent"]
    assert "runs fp32, tf32, fp16, bf16, int8" in blocks["null"]
    assert "not tf32: tf32 is a format of NVIDIA GPUs" in blocks["onnxruntime"]
    assert blocks["absent"].startswith("absent (not available)")
    assert "needs the package" in blocks["absent"]


def test_one_engine_is_told_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    lines = inferometer(capsys, "engines", "null").out.splitlines()
    assert lines[0].startswith("null ")
    assert [line.split() for line in lines if line.strip().startswith("int8")] == [["int8", "yes"]]


def test_an_unknown_engine_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    ended = inferometer(capsys, "engines", "nul")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "inferometer: unknown engine 'nul'; did you mean 'null'?\n"


def test_json_is_one_document(capsys: pytest.CaptureFixture[str], faulty: None) -> None:
    document = inferometer(capsys, "engines", "--json").document
    found = {one["name"]: one for one in document["engines"]}
    assert found["null"]["available"] is True
    assert found["null"]["variants"][0]["devices"][0]["precisions"]["int8"] is None
    assert found["absent"]["available"] is False
    assert "engine_of_an_absent_library" in found["absent"]["reason"]

"""``gate``: exit codes, and what it writes for people and for CI servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from inferometer.store import open_store
from tests.unit.cli.command import inferometer
from tests.unit.report.sample_records import record, throughput

STEADY = (100.0, 100.2, 99.8, 100.1, 99.9)
NOISY = (100.0, 130.0, 70.0, 110.0, 90.0)


def store(folder: Path, values: Sequence[float], model: str = "resnet50") -> str:
    with open_store(folder, "demo") as opened:
        for repeat, value in enumerate(values):
            opened.append(record(model=model, repeat=repeat, throughput=throughput(value)))
    return str(folder)


@pytest.mark.parametrize(
    ("values", "code", "word"),
    [(STEADY, 0, "Pass"), ([one * 0.9 for one in STEADY], 1, "Fail"), (NOISY, 10, "Inconclusive")],
)
def test_the_exit_code_is_the_verdict(capsys, tmp_path, values, code, word):
    base, new = store(tmp_path / "base", STEADY), store(tmp_path / "new", values)
    junit, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    summary.write_text("# Before\n")
    ended = inferometer(capsys, "gate", base, new, "--junit", junit, "--summary", summary)
    assert ended.code == code
    assert f"{word}: " in ended.out
    suite = ElementTree.parse(junit).getroot()
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == [
        "1", str(int(code == 1)), str(int(code == 10)),
    ]  # fmt: skip
    (case,) = suite
    assert case.get("name") == "ResNet-50 on onnxruntime cpu in FP32, batch 1: throughput"
    assert [one.tag for one in case] == [{0: "system-out", 1: "failure", 10: "skipped"}[code]]
    text = summary.read_text()
    assert text.startswith(f"# Before\n### Inferometer gate: {word.lower()}\n")
    rows = [line for line in text.splitlines() if line.startswith("| ResNet-50")]
    assert len(rows) == 1
    assert rows[0].count(" | ") == 7


def test_json_holds_the_raw_values(capsys, tmp_path):
    base, new = store(tmp_path / "base", STEADY), store(tmp_path / "new", NOISY)
    ended = inferometer(capsys, "gate", base, new, "--json", "--max-slowdown", "5%")
    found = ended.document
    assert ended.code == 10
    assert (found["verdict"], found["max_slowdown"]) == ("inconclusive", 0.05)
    assert found["points"][0]["base"] == list(STEADY)
    assert found["more_repeats"] > 0


@pytest.mark.parametrize("limit", ["0.03", "3", "-1%", "100%", "x"])
def test_a_limit_that_is_none_is_refused(capsys, tmp_path, limit):
    base = store(tmp_path / "base", STEADY)
    new = store(tmp_path / "new", STEADY)
    ended = inferometer(capsys, "gate", base, new, "--max-slowdown", limit)
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 1


def test_what_is_no_store_is_refused(capsys, tmp_path):
    base = store(tmp_path / "base", STEADY)
    new = store(tmp_path / "new", STEADY)
    assert inferometer(capsys, "gate", base, tmp_path / "nowhere").code == 8
    ended = inferometer(capsys, "gate", base, new, "--junit", f"{base}/records.jsonl")
    assert (ended.code, "would overwrite what is read" in ended.err) == (2, True)


def test_names_of_models_break_no_markdown_and_no_xml(capsys, tmp_path):
    name = "a|b<script>\x07`*_\u202e[x](y)"
    base = store(tmp_path / "base", STEADY, name)
    new = store(tmp_path / "new", STEADY, name)
    junit, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    ended = inferometer(capsys, "gate", base, new, "--junit", junit, "--summary", summary)
    assert ended.code == 0
    assert "a|b<script>" in (ElementTree.parse(junit).getroot()[0].get("name") or "")
    text = summary.read_text()
    assert "<script>" not in text
    assert r"a\|b&lt;script&gt;" in text
    assert "\u202e" not in text


def test_the_summary_may_be_printed(capsys, tmp_path):
    base = store(tmp_path / "base", STEADY)
    new = store(tmp_path / "new", STEADY)
    assert "### Inferometer gate: pass" in inferometer(capsys, "gate", base, new, "--summary", "-").out


def test_json_alone_is_on_stdout(capsys, tmp_path):
    base = store(tmp_path / "base", STEADY)
    new = store(tmp_path / "new", STEADY)
    ended = inferometer(capsys, "gate", base, new, "--json", "--summary", "-")
    assert (ended.code, ended.out, "--summary -" in ended.err) == (2, "", True)


def test_what_is_shown_is_what_the_slowdown_is_made_of(capsys, tmp_path):
    """Of four repeats none is left out: geometric means. One far off moves a median by nothing."""
    base = store(tmp_path / "base", (100.0, 101.0, 103.0, 140.0))
    new = store(tmp_path / "new", (100.0, 101.0, 103.0, 103.0))
    text = inferometer(capsys, "gate", base, new, "--summary", "-").out
    row = next(line for line in text.splitlines() if line.startswith("| ResNet-50"))
    shown, other, _, slowdown = [cell.strip() for cell in row.split("|")[2:6]]
    assert (shown, other, slowdown) == ("110", "102", "7.4")
    assert (
        pytest.approx(0.0738, abs=1e-4)
        == 1 - (100 * 101 * 103 * 103) ** 0.25 / (100 * 101 * 103 * 140) ** 0.25
    )


def test_a_folder_held_against_itself_is_refused(capsys, tmp_path):
    base = store(tmp_path / "base", STEADY)
    ended = inferometer(capsys, "gate", base, f"{base}/../base")
    assert (ended.code, ended.out) == (2, "")
    assert "is named twice" in ended.err


def test_a_summary_that_cannot_be_written_is_one_line_and_exit_8(capsys, tmp_path):
    base, new = store(tmp_path / "base", STEADY), store(tmp_path / "new", STEADY)
    ended = inferometer(capsys, "gate", base, new, "--summary", tmp_path)
    assert ended.code == 8
    assert ended.err.splitlines() == [f"inferometer: {tmp_path}: could not write: Is a directory"]


def test_a_slowdown_of_nothing_has_no_sign(capsys, tmp_path):
    base, new = store(tmp_path / "base", STEADY), store(tmp_path / "new", [one * 1.00001 for one in STEADY])
    out = inferometer(capsys, "gate", base, new).out
    assert "\N{MINUS SIGN}0.0 " not in out
    assert " 0.0 " in out

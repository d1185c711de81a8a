"""``inferometer meters``: what there is and what to do, and readings live."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from inferometer import registry
from inferometer.contracts import MeterStatus
from tests.unit.cli.command import inferometer


class Wattmeter:
    """A third party's meter that reads one thing and lacks another."""

    name = "wattmeter"

    def status(self, options: Mapping[str, Any]) -> Sequence[MeterStatus]:
        return (
            MeterStatus("socket 1", ("power",)),
            MeterStatus("socket 2", reason="not permitted", remedy="sudo chmod a+r /dev/watts"),
        )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "w.csv"
    path.write_text("".join(f"{1000 + place * 0.05:.2f},{20 + place % 3}\n" for place in range(400)))
    return path


def test_each_meter_is_told_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "meter_names", lambda: ["replay", "wattmeter"])
    known = registry.meter
    monkeypatch.setattr(registry, "meter", lambda name: Wattmeter() if name == "wattmeter" else known(name))
    lines = inferometer(capsys, "meters").out.splitlines()
    assert lines[0] == "replay (not available)"
    there = lines[lines.index("wattmeter") :]
    assert [line.split(None, 1) for line in there[1:4]] == [
        ["reads", "socket 1: power"],
        ["because", "socket 2: not permitted"],
        ["do", "sudo chmod a+r /dev/watts"],
    ]
    found = {one["name"]: one for one in inferometer(capsys, "meters", "--json").document["meters"]}
    assert (found["replay"]["available"], found["wattmeter"]["available"]) == (False, True)
    assert found["wattmeter"]["subjects"][1]["remedy"] == "sudo chmod a+r /dev/watts"


def test_one_meter_with_its_options(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    ended = inferometer(capsys, "meters", "list", "replay", "--option", f"file={log}", "--json")
    (replay,) = ended.document["meters"]
    assert (replay["name"], replay["available"]) == ("replay", True)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["list", "replai"], 2, "unknown meter 'replai'; did you mean 'replay'?"),
        (["list", "replay", "--option", "fiel=x"], 2, "'fiel'; did you mean 'file'?"),
        (["watch", "nvmll", "--for", "2s"], 2, "unknown meter 'nvmll'; did you mean 'nvml'?"),
        (["watch", "replay", "--for", "soon"], 2, "'soon' is no duration"),
        (["watch", "replay", "--for", "2s", "--option", "file=/nowhere/w.csv"], 7, "/nowhere/w.csv"),
        (["watch", "replay", "--for", "2s", "--period", "often"], 2, "'often' is no duration"),
    ],
)
def test_what_cannot_be_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, expected: str
) -> None:
    ended = inferometer(capsys, "meters", *words)
    assert (ended.code, ended.out) == (code, "")
    assert expected in ended.err
    assert ended.err.count("\n") == 1


def test_watching_gives_the_readings_of_the_whole_time(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    options = ["--option", f"file={log}", "--option", "align=start"]
    document = inferometer(capsys, "meters", "watch", "replay", "--for", "2s", "--json", *options).document
    (channel,) = document["channels"]
    values = [reading["value"] for reading in channel["readings"]]
    assert values == [float(20 + place % 3) for place in range(len(values))]
    assert len(values) >= 5
    times = [reading["begin_ns"] for reading in channel["readings"]]
    assert times == sorted(times)
    assert all(math.isclose(later - earlier, 5e7, rel_tol=1e-6) for earlier, later in pairwise(times))


def test_watching_draws_a_table(capsys: pytest.CaptureFixture[str], log: Path) -> None:
    options = ["--option", f"file={log}", "--option", "align=start"]
    ended = inferometer(capsys, "meters", "watch", "replay", "--for", "2s", *options)
    assert ended.code == 0
    assert "replay, live" in ended.out
    assert "22.0 W" in ended.out

"""Stores of which lines cannot be read: every verb that reads one says so, and none shows an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferometer.store import open_store
from tests.unit.cli.command import inferometer
from tests.unit.report.sample_records import record, throughput

READERS = {
    "report": ("report", "{torn}"),
    "explain": ("explain", "{torn}"),
    "choose": ("choose", "{torn}"),
    "compare": ("compare", "{whole}", "{torn}"),
    "gate": ("gate", "{whole}", "{torn}"),
}


def store(folder: Path, rates=(100.0, 101.0, 99.0)) -> Path:
    with open_store(folder, "demo") as opened:
        for repeat, rate in enumerate(rates):
            opened.append(record(repeat=repeat, throughput=throughput(rate)))
    return folder


def words(verb: str, whole: Path, torn: Path) -> list[str]:
    return [word.format(whole=whole, torn=torn) for word in READERS[verb]]


@pytest.mark.parametrize("verb", READERS)
def test_lines_that_cannot_be_read_are_told(capsys, tmp_path, verb):
    whole, torn = store(tmp_path / "whole"), store(tmp_path / "torn")
    with (torn / "records.jsonl").open("a") as file:
        file.write('{"status": "o\ngarbage\n')
    ended = inferometer(capsys, *words(verb, whole, torn))
    assert ended.code in (0, 10)
    assert f"{torn}: left out 2 lines that cannot be read" in ended.err
    assert str(whole) not in ended.err


@pytest.mark.parametrize("verb", READERS)
def test_a_store_of_which_nothing_reads_is_refused(capsys, tmp_path, verb):
    whole, torn = store(tmp_path / "whole"), store(tmp_path / "torn")
    (torn / "records.jsonl").write_text("garbage\n")
    ended = inferometer(capsys, *words(verb, whole, torn))
    assert (ended.code, ended.out) == (8, "")
    assert ended.err.splitlines() == [
        f"inferometer: {torn}: none of its lines can be read: it holds no records"
    ]

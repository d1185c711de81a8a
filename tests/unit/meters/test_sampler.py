"""The sampler process, reading a recorded trace."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferometer.contracts import Channel, MeterSession, Sample
from inferometer.errors import ConfigError, MeterError
from inferometer.meters.readings import TAIL, Readings, read_head
from inferometer.meters.sampler import MeterJob, SamplerJob, _check, _Reader
from inferometer.study.sampling import Sampler

LIMIT_S = 30.0


def trace(path: Path, watts: list[float], period_s: float = 0.05) -> Path:
    rows = [f"{1000 + place * period_s:.3f},{value}" for place, value in enumerate(watts)]
    path.write_text("\n".join(["time,watts", *rows]) + "\n")
    return path


def replay(path: Path) -> MeterJob:
    return MeterJob(meter="replay", options={"file": str(path), "unit": "W", "align": "start"})


def upto(readings: Readings, count: int) -> list[float]:
    deadline = time.monotonic() + LIMIT_S
    while len(readings.values(0)) < count and time.monotonic() < deadline:
        readings.refresh()
        time.sleep(0.02)
    return [float(value) for value in readings.values(0)["value"]]


def test_all_readings_of_all_meters_arrive_in_order_with_their_times(tmp_path: Path) -> None:
    watts = [20.0, 140.0, 140.0, 21.5, 20.0]
    with Sampler([replay(trace(tmp_path / "w.csv", watts))], tmp_path / "sampler") as sampler:
        assert upto(sampler.readings, 5) == watts
        found = sampler.readings.values(0)
        head = sampler.readings.head
    assert [(one.meter, one.channel.quantity, one.channel.primary) for one in head.channels] == [
        ("replay", "power", True)
    ]
    assert np.diff(found["begin_ns"]) == pytest.approx([50_000_000] * 4, abs=1)
    assert head.refused == {}
    tail = json.loads((tmp_path / "sampler" / TAIL).read_text())
    assert tail["faults"] == {}
    assert tail["hanging"] == []
    assert tail["cpu_s"] >= 0


def test_a_meter_that_cannot_be_opened_is_named_beside_those_that_can(tmp_path: Path) -> None:
    missing = MeterJob(meter="replay", options={"file": str(tmp_path / "none.csv"), "unit": "W"})
    ipmi = MeterJob(meter="ipmi", options={"host": "127.0.0.1", "port": 9})
    there = replay(trace(tmp_path / "w.csv", [1.0, 2.0]))
    with Sampler([there, ipmi], tmp_path / "sampler") as sampler:
        assert list(sampler.readings.head.refused) == ["ipmi"]
    with pytest.raises(MeterError, match=r"replay: .*none\.csv"):
        Sampler([missing], tmp_path / "none")


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (MeterJob(meter="replai", options={}), "unknown meter 'replai'; did you mean 'replay'"),
        (MeterJob(meter="rapl", options={"zone": 1}), "unknown option 'zone'"),
    ],
)
def test_what_no_meter_can_take_is_a_usage_error_though_others_open(
    tmp_path: Path, job: MeterJob, expected: str
) -> None:
    there = replay(trace(tmp_path / "w.csv", [1.0, 2.0]))
    with pytest.raises(ConfigError, match=expected):
        Sampler([there, job], tmp_path / "sampler")


def test_it_ends_when_its_parent_does(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    meters = (replay(trace(tmp_path / "w.csv", [1.0] * 10_000)),)
    script = (
        "import os, subprocess, sys\n"
        f"job = {str(job)!r}\n"
        "text = open(job).read().replace('\"parent_pid\":0', f'\"parent_pid\":{os.getpid()}')\n"
        "open(job, 'w').write(text)\n"
        "command = [sys.executable, '-m', 'inferometer.meters.sampler', job]\n"
        "child = subprocess.Popen(command, stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
        "os._exit(1)\n"
    )
    job.write_text(SamplerJob(parent_pid=0, folder=str(tmp_path), meters=meters).model_dump_json())
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        child = int(parent.stdout.readline())
        deadline = time.monotonic() + LIMIT_S
        while read_head(tmp_path) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        parent.stdin.close()
        parent.wait(LIMIT_S)
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(child)
    assert (tmp_path / TAIL).exists()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Broken(MeterSession):
    """A third party's meter that answers with whatever it is given."""

    def __init__(self, *answers: Any, **changes: Any) -> None:
        self.answers = list(answers)
        channel = Channel("power a", "power", "board", "a", "instantaneous", 0.1, primary=True)
        self.channels = (replace(channel, **changes),)

    def read(self, place: int) -> float:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def arrived(self) -> list[Sample]:
        return self.answers.pop(0)  # type: ignore[no-any-return]

    def close(self) -> None:
        pass


def taken(session: MeterSession) -> tuple[_Reader, list[float]]:
    reader = _Reader(MeterJob(meter="broken", options={}), session, 5)
    return reader, [row[3] for row in reader.rows]


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (MeterError("no reading"), "no reading"),
        (ZeroDivisionError("x / 0"), "ZeroDivisionError: x / 0"),
        (None, "TypeError: float() argument must be"),
        (float("inf"), "inf can be no reading of power"),
        (-3.0, "-3 can be no reading of power"),
    ],
)
def test_what_is_no_reading_is_a_gap_and_told(answer: Any, fault: str) -> None:
    reader, _ = taken(Broken(answer, 21.5))
    reader._read(0)
    reader._read(0)
    (first, second) = reader.rows
    assert first[0] == second[0] == 5
    assert np.isnan(first[3])
    assert second[3] == 21.5
    ((text, count),) = reader.faults.items()
    assert fault in text
    assert count == 1


def test_pushed_readings_of_no_channel_or_of_times_to_come_are_none() -> None:
    now = time.monotonic_ns()
    samples = [
        Sample(1, now, now, 9.0),
        Sample(0, now, now - 1, 9.0),
        Sample(0, now, now + 3600 * 10**9, 9.0),
    ]
    reader, _ = taken(Broken([*samples, Sample(0, now, now, 20.0)]))
    reader._take_arrived()
    values = [row[3] for row in reader.rows]
    assert np.isnan(values[0])
    assert values[1:] == [20.0]
    assert sorted(reader.faults.values()) == [1, 2]


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        (Broken(period_s=0.0).channels, "a period of 0 s is none"),
        (Broken(period_s=float("nan")).channels, "a period of nan s is none"),
        (Broken(quantity="temperature").channels, "no figure can rest on temperature"),
        (Broken().channels * 2, "a of board is given twice: it would count twice"),
    ],
)
def test_channels_that_would_make_wrong_figures_are_refused(
    channels: tuple[Channel, ...], message: str
) -> None:
    with pytest.raises(MeterError, match=message):
        _check("broken", channels)

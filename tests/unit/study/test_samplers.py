"""Samplers started by a launch template: here by a shell that starts all of its processes on this host."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from inferometer.config import MeterEntry
from inferometer.errors import ConfigError, MeterError
from inferometer.study.samplers import HostSamplers, jobs_for

HERE = socket.gethostname()
SHELL = 'for rank in $(seq "$0"); do "$@" & done; wait'
TEMPLATE = f"sh -c {shlex.quote(SHELL)} {{ranks}} {{command}}"
LIMIT_S = 30.0


def replay(file: str, **options: str) -> MeterEntry:
    return MeterEntry(meter="replay", options={"file": file, "unit": "W", "align": "start"} | options)


def log(folder: Path) -> MeterEntry:
    path = folder / "w.csv"
    path.write_text("".join(f"{1000 + place * 0.05:.3f},{20 + place % 3}\n" for place in range(2000)))
    return replay(str(path))


def started(folder: Path, *meters: MeterEntry, template: str = TEMPLATE, ranks: int = 3) -> HostSamplers:
    return HostSamplers(meters, [], folder / "work" / "sampler-1", template, ranks)


def own(folder: Path) -> list[psutil.Process]:
    """The processes that were told of a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder / "work") in word for word in process.info["cmdline"] or []):
            found.append(process)
    return found


def test_of_the_processes_of_a_host_one_samples_until_it_is_told_to_end(tmp_path: Path) -> None:
    samplers = started(tmp_path, log(tmp_path))
    try:
        assert samplers.running
        assert samplers.readings.hosts == (HERE,)
        (channel,) = samplers.readings.head.channels
        assert channel.channel.part == "w"  # as without a template: there is but one host
        deadline = time.monotonic() + LIMIT_S
        while samplers.readings.last_ns(0) is None and time.monotonic() < deadline:
            samplers.readings.refresh()
            time.sleep(0.05)
        assert samplers.readings.last_ns(0) is not None
        modules = [
            word for one in own(tmp_path) for word in one.cmdline() if word.startswith("inferometer.meters")
        ]
        assert modules == ["inferometer.meters.sampler"]
    finally:
        samplers.close()
    assert own(tmp_path) == []
    assert not list((tmp_path / "work").glob("*@*"))


def test_a_sampler_that_ends_by_itself_is_seen(tmp_path: Path) -> None:
    samplers = started(tmp_path, log(tmp_path), ranks=1)
    try:
        for one in own(tmp_path):
            if "inferometer.meters.sampler" in one.cmdline():
                one.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + LIMIT_S
        while samplers.running and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not samplers.running
    finally:
        samplers.close()
    assert own(tmp_path) == []


def test_without_any_meter_they_do_not_start(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match=rf"{re.escape(HERE)}: replay: .*none\.csv"):
        started(tmp_path, replay(str(tmp_path / "none.csv")))
    assert own(tmp_path) == []


def test_what_no_meter_can_take_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'fiel'"):
        started(tmp_path, log(tmp_path), replay("w.csv", fiel="w.csv"))


@pytest.mark.parametrize(
    ("script", "why"),
    [("echo no such host >&2; exit 3", "0 of 2 samplers' processes: no such host"), ("exit 0", "0 of 2")],
)
def test_a_launcher_that_fails_is_quoted(tmp_path: Path, script: str, why: str) -> None:
    template = f"sh -c {shlex.quote(script)} {{ranks}} {{command}}"
    with pytest.raises(MeterError, match=why):
        started(tmp_path, log(tmp_path), template=template, ranks=2)


def test_each_host_reads_its_own() -> None:
    bmc = MeterEntry(meter="redfish", options={"url": "https://{host}-bmc.example.org"}, period_s=2.0)
    nvml = MeterEntry(meter="nvml", options={})
    hosts = [HERE, "node-b.example.org"]
    here = jobs_for([bmc, nvml], ["GPU-7"], HERE, hosts)
    there = jobs_for([bmc, nvml], ["GPU-7"], "node-b.example.org", hosts)
    assert here[1].options == {"devices": ["GPU-7"]}
    assert (there[0].options, there[0].period_s) == ({"url": "https://node-b-bmc.example.org"}, 2.0)
    assert there[1].options == {}  # whose accelerators are not known yet


def test_one_source_may_not_be_read_by_several() -> None:
    entry = replay("w.csv")
    with pytest.raises(
        ConfigError, match=re.escape("replay: file: a, b would all read the same: write {host}")
    ):
        jobs_for([entry], [], "a", ["a", "b"])
    (job,) = jobs_for([entry], [], "a", ["a"])
    assert job.options == entry.options

"""Power on two hosts: a sampler on each, sums over those that a trial ran on, and none left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from inferometer.config import Study, parse
from inferometer.errors import ConfigError
from inferometer.meters.readings import HEAD, TAIL
from inferometer.records import PowerResult, Record, Status
from inferometer.study.run import run_study
from inferometer.trials.spec import TrialSpec
from tests.scale.conftest import Launcher
from tests.unit.study.test_power import IDLE_W, LOAD_W, POWER, Logger
from tests.unit.study.watcher import Remembering

# Samplers do without MPI: what its launchers differ in is in `test_ranks`.
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("launcher", ["openmpi"], indirect=True)]
HOSTS = ("node-a", "node-b")
LIMIT_S = 60.0


class Loggers(Remembering):
    """A logger for each host, which reads more while a rank of it works."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.logs = [Logger(folder / f"{host}.csv") for host in HOSTS]

    @contextlib.contextmanager
    def logging(self) -> Iterator[Loggers]:
        with contextlib.ExitStack() as stack:
            for one in self.logs:
                stack.enter_context(one)
            yield self

    def started(self, spec: TrialSpec) -> None:
        super().started(spec)
        for place, one in enumerate(self.logs):
            if spec.trial.place in (None, place):
                one.started(spec)

    def waits(self, what: str, seconds: float) -> None:
        super().waits(what, seconds)
        for one in self.logs:
            one.waits(what, seconds)

    def finished(self, spec: TrialSpec, status: Status, reason: str | None) -> None:
        super().finished(spec, status, reason)
        for one in self.logs:
            one.finished(spec, status, reason)


def content(model: Path, template: str, file: Path, **changes: Any) -> dict[str, Any]:
    replay = {"meter": "replay", "options": {"file": str(file), "unit": "W", "part": "wall"}}
    return {
        "name": "hosts",
        "models": [str(model)],
        "engines": ["null"],
        "batches": [1],
        "ranks": [1, 2],
        "repeats": 1,
        "measure": {"max_s": 0.1, "warmup_max_s": 0.05},
        "kinds": ["throughput"],
        "launch": {"template": template, "oversubscribe": True},
        "power": POWER | {"meters": [replay]},
    } | changes


def sampling(folder: Path) -> list[list[str]]:
    """The command lines of all processes that sample, or launch samplers, for a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(folder / "work" / "sampler-") in word for word in words):
            found.append(words)
    return found


def only(record: Record) -> PowerResult:
    assert record.power is not None, record.missing
    (result,) = record.power
    return result


def test_only_hosts_that_a_trial_ran_on_count(mini: Path, tmp_path: Path, two_hosts: str) -> None:
    study = parse(Study, content(mini, two_hosts, tmp_path / "{host}.csv"), "test")
    with Loggers(tmp_path).logging() as loggers:
        records = run_study(study, tmp_path / "out", loggers).records
    assert [(record.status, record.reason) for record in records] == [("ok", None)] * 3
    found = {(record.trial.ranks, record.trial.place): only(record) for record in records}
    for place, host in enumerate(HOSTS):
        alone = found[1, place]
        assert alone.parts == (f"{host}: wall",)
        assert list(alone.facts) == [host]
        assert alone.load_w == pytest.approx(LOAD_W, abs=0.5)
        assert alone.net_w == pytest.approx(LOAD_W - IDLE_W, abs=10)
    both = found[2, None]
    assert both.parts == tuple(f"{host}: wall" for host in HOSTS)
    assert both.load_w == pytest.approx(2 * LOAD_W, abs=1)
    assert both.net_w == pytest.approx(2 * (LOAD_W - IDLE_W), abs=20)
    assert [one.load_w for one in both.by_part] == [pytest.approx(LOAD_W, abs=0.5)] * 2
    assert abs(both.facts["node-b"]["clocks_apart_s"]) < 0.1  # it is one clock in truth
    assert sampling(tmp_path / "out") == []
    assert list((tmp_path / "out" / "work").glob("sampler-*")) == []


def test_a_host_whose_meter_is_not_there_is_named_and_never_left_out(
    mini: Path, tmp_path: Path, two_hosts: str
) -> None:
    study = parse(Study, content(mini, two_hosts, tmp_path / "{host}.csv"), "test")
    loggers = Loggers(tmp_path)
    (tmp_path / "node-b.csv").rename(tmp_path / "elsewhere.csv")
    with loggers.logs[0]:
        records = run_study(study, tmp_path / "out", loggers).records
    found = {(record.trial.ranks, record.trial.place): record for record in records}
    assert only(found[1, 0]).net_w == pytest.approx(LOAD_W - IDLE_W, abs=10)
    for record in (found[1, 1], found[2, None]):
        assert (record.status, record.power) == ("ok", None)
        assert record.missing["power"].startswith("node-b: replay: ")
        assert "node-b.csv: No such file" in record.missing["power"]


def test_a_template_that_stays_on_this_host_needs_no_names(
    mini: Path, tmp_path: Path, launcher: Launcher
) -> None:
    study = parse(Study, content(mini, launcher.template, tmp_path / "w.csv", ranks=[1]), "test")
    with Logger(tmp_path / "w.csv") as logger:
        (record,) = run_study(study, tmp_path / "out", logger).records
    assert only(record).parts == ("wall",)
    assert only(record).net_w == pytest.approx(LOAD_W - IDLE_W, abs=10)
    assert [one.host for one in record.ranks] == [socket.gethostname()]
    assert sampling(tmp_path / "out") == []


def test_hosts_that_would_read_the_same_are_refused(mini: Path, tmp_path: Path, two_hosts: str) -> None:
    study = parse(Study, content(mini, two_hosts, tmp_path / "both.csv"), "test")
    with pytest.raises(
        ConfigError, match=r"replay: file: node-a, node-b would all read the same: write \{host"
    ):
        run_study(study, tmp_path / "out", Remembering())
    assert sampling(tmp_path / "out") == []


def test_samplers_close_their_meters_though_the_study_is_killed(
    mini: Path, tmp_path: Path, two_hosts: str
) -> None:
    yaml_file, out = tmp_path / "study.yaml", tmp_path / "out"
    power = POWER | {"idle_s": 600, "meters": content(mini, "", tmp_path / "{host}.csv")["power"]["meters"]}
    yaml_file.write_text(yaml.safe_dump(content(mini, two_hosts, tmp_path / "{host}.csv", power=power)))
    own = [out / "work" / f"sampler-1@{host}" for host in HOSTS]
    with Loggers(tmp_path).logging():
        command = [sys.executable, "-P", "-m", "inferometer", "run", str(yaml_file), "--out", str(out)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as study:
            try:
                await_all([folder / HEAD for folder in own])
                assert len(sampling(out)) > len(own)
            finally:
                os.killpg(study.pid, signal.SIGKILL)
        await_all([folder / TAIL for folder in own])
    deadline = time.monotonic() + LIMIT_S
    while sampling(out) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert sampling(out) == []
    assert [json.loads((folder / TAIL).read_text())["hanging"] for folder in own] == [[], []]


def await_all(paths: list[Path]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"not there: {[path for path in paths if not path.exists()]}"
        time.sleep(0.1)

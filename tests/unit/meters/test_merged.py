"""Readings of several hosts, made by hand: one clock, names that differ, and clocks that do not agree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from inferometer.contracts import Channel
from inferometer.errors import MeterError
from inferometer.meters.merged import HostReadings, MergedReadings, ahead_ns
from inferometer.meters.readings import (
    FAULTS,
    READING,
    READINGS,
    FileReadings,
    Head,
    MeteredChannel,
    in_order,
)

S = 1_000_000_000
HOUR = 3600 * S
PSYS = Channel("psys", "power", "platform", "psys", "instantaneous", 1.0, primary=True)
GPU = Channel(
    "power GPU-7", "power", "GPU board", "GPU-7", "instantaneous", 1.0, primary=True, of_device=True
)


def host(
    folder: Path, name: str, channels: list[Channel], rows: list[tuple[int, int, float]], **refused: str
) -> FileReadings:
    """Of each row its channel, second and value."""
    folder /= name
    folder.mkdir()
    append(folder, rows)
    (folder / FAULTS).write_text(json.dumps({"m": {"no answer": 3}}))
    head = Head(tuple(MeteredChannel("m", one) for one in channels), {"m": {"of": name}}, refused, (0, 0))
    found = FileReadings(folder, head, name)
    found.refresh()
    return found


def append(folder: Path, rows: list[tuple[int, int, float]]) -> None:
    made = [(channel, second * S, second * S + 1, value) for channel, second, value in rows]
    with (folder / READINGS).open("ab") as file:
        file.write(np.array(made, READING).tobytes())


def merged(folder: Path, apart_ns: int = 0) -> MergedReadings:
    """``b``, whose clock is an hour ahead, and by ``apart_ns`` more by its wall clock."""
    a = host(folder, "a", [PSYS], [(0, 1, 20.0), (0, 3, 30.0)])
    b = host(folder, "b", [GPU, PSYS], [(0, 3602, 300.0), (1, 3602, 50.0)], ipmi="no controller")
    by_host = {"a": HostReadings(a, 0), "b": HostReadings(b, HOUR + apart_ns)}
    return MergedReadings(by_host, {"c": "c: no meter"}, named=True)


def test_all_readings_are_on_one_clock_under_names_of_their_own(tmp_path: Path) -> None:
    found = merged(tmp_path)
    assert [one.channel.part for one in found.head.channels] == ["a: psys", "GPU-7", "b: psys"]
    assert [found.host_of(place) for place in range(3)] == ["a", "b", "b"]
    rows = found.between(0, 3 * S)
    assert [tuple(row) for row in rows] == [
        (0, S, S + 1, 20.0),
        (1, 2 * S, 2 * S + 1, 300.0),
        (2, 2 * S, 2 * S + 1, 50.0),
        (0, 3 * S, 3 * S + 1, 30.0),
    ]
    assert (found.between(2 * S, 2 * S) == rows[1:3]).all()
    assert (found.values(2) == rows[2:3]).all()
    assert [found.last_ns(place) for place in range(3)] == [3 * S + 1, 2 * S + 1, 2 * S + 1]
    assert list(found.finite(1, 0, 3 * S)) == [300.0]
    assert list(found.trace(1).begin_ns) == [2 * S]
    assert found.places("power", "m", ["b: psys"]) == (2,)
    assert found.faults("m") == {"a: no answer": 3, "b: no answer": 3}
    assert found.facts("m") == {"a": {"of": "a"}, "b": {"of": "b"}}
    assert found.head.refused == {"ipmi": "b: no controller"}


def test_what_comes_later_is_taken_in_from_every_host(tmp_path: Path) -> None:
    found = merged(tmp_path)
    append(tmp_path / "a", [(0, 5, 21.0)])
    append(tmp_path / "b", [(1, 3606, 51.0)])
    assert found.last_ns(2) == 2 * S + 1
    found.refresh()
    assert [found.last_ns(place) for place in (0, 2)] == [5 * S + 1, 6 * S + 1]


def test_a_trial_sees_its_hosts_on_the_clock_of_its_first(tmp_path: Path) -> None:
    found = merged(tmp_path, apart_ns=S // 10)
    seen, ahead = found.of_hosts({"b": (0.0, 0.0), "a": (-3600.0, 1e-6)})
    assert ahead == HOUR + S // 10  # by the wall clocks
    assert seen.hosts == ("b", "a")
    assert [one.channel.part for one in seen.head.channels] == ["GPU-7", "b: psys", "a: psys"]
    # By MPI, whatever the wall clocks say.
    assert [seen.last_ns(place) for place in range(3)] == [3602 * S + 1, 3602 * S + 1, 3603 * S + 1]
    assert seen.facts("m") == {"b": {"of": "b"}, "a": {"of": "a", "clocks_apart_s": pytest.approx(-0.1)}}

    alone, ahead = found.of_hosts({"a": (0.0, 0.0)})
    assert (ahead, alone.hosts, alone.head.refused) == (0, ("a",), {})
    assert [one.channel.part for one in alone.head.channels] == ["a: psys"]


def test_hosts_that_are_not_read_or_whose_clocks_differ_give_nothing(tmp_path: Path) -> None:
    found = merged(tmp_path, apart_ns=-S)
    with pytest.raises(MeterError, match=r"wall clocks of a and b are 1\.00 s apart.* by NTP"):
        found.of_hosts({"a": (0.0, 0.0), "b": (3600.0, 1e-6)})
    with pytest.raises(MeterError, match=r"^c: no meter$"):
        found.of_hosts({"a": (0.0, 0.0), "c": (0.0, 0.0)})
    with pytest.raises(MeterError, match="no sampler runs on d, where ranks ran"):
        found.of_hosts({"d": (0.0, 0.0)})


def test_one_host_by_itself_keeps_its_names(tmp_path: Path) -> None:
    only = host(tmp_path, "a", [PSYS], [(0, 1, 20.0)], ipmi="no controller")
    found = MergedReadings({"a": HostReadings(only, 0)}, named=False)
    assert found.head.channels == only.head.channels
    assert (found.facts("m"), found.faults("m")) == ({"of": "a"}, {"no answer": 3})
    assert found.head.refused == {"ipmi": "no controller"}


def test_clocks_are_compared_by_the_wall() -> None:
    ours, theirs = (100 * S, 1000 * S), (7 * S, 1003 * S)  # three seconds later
    assert ahead_ns(theirs, ours) == -96 * S


def test_rows_of_one_time_keep_their_order() -> None:
    rows = np.array([(1, 5, 6, 1.0), (0, 2, 3, 2.0), (0, 5, 6, 3.0)], READING)
    assert list(in_order(rows)["value"]) == [2.0, 1.0, 3.0]

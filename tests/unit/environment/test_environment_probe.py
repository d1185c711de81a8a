from __future__ import annotations

import statistics
import threading

import pytest

from inferometer.environment import PROBE_VERSION, ProbeReading, machine_probe, probe, usable_cores
from inferometer.environment.probe import copy_size_bytes

MIB = 1024**2


@pytest.fixture(scope="module")
def reading():
    return machine_probe()


def test_it_uses_every_usable_core_and_keeps_raw_values(reading):
    assert reading.version == PROBE_VERSION == 1
    assert reading.threads == usable_cores()
    assert reading.copy_bytes >= 64 * MIB
    assert len(reading.compute_rounds_bytes_per_s) == 3
    assert len(reading.copy_rounds_bytes_per_s) == 3
    assert reading.compute_bytes_per_s == statistics.median(reading.compute_rounds_bytes_per_s)
    assert reading.copy_bytes_per_s == statistics.median(reading.copy_rounds_bytes_per_s)


def test_rates_are_those_of_a_real_machine(reading):
    # From a slow core without SHA instructions to a large server; a wrong unit is off by a thousand.
    assert 2e7 < reading.compute_bytes_per_s < 1e12
    assert 1e8 < reading.copy_bytes_per_s < 1e13


def test_it_leaves_no_thread_behind():
    before = threading.active_count()
    machine_probe()
    assert threading.active_count() == before


def test_it_survives_json(reading):
    assert ProbeReading.model_validate_json(reading.model_dump_json()) == reading


@pytest.mark.parametrize("change", [{"version": 2}, {"threads": 999}, {"copy_bytes": 1}])
def test_only_the_same_work_compares(reading, change):
    assert reading.comparable(reading.model_copy(update={"compute_bytes_per_s": 1.0}))
    assert not reading.comparable(reading.model_copy(update=change))


@pytest.mark.parametrize(
    ("threads", "cache_mib", "memory_mib", "size_mib"),
    [
        (2, None, None, 64),
        (2, 32, 24_000, 64),
        # Twice the cache, as long as each thread has at most 32 MiB.
        (8, 60, 64_000, 120),
        (4, 100, 64_000, 128),
        (96, 384, 768_000, 512),
        # A small limit on memory: the two arrays take an eighth of it.
        (96, 384, 4096, 256),
        (96, 384, 256, 64),
    ],
)
def test_size_of_the_copy(threads, cache_mib, memory_mib, size_mib):
    cache = None if cache_mib is None else cache_mib * MIB
    memory = None if memory_mib is None else memory_mib * MIB
    assert copy_size_bytes(threads, cache, memory) == size_mib * MIB


def test_a_rate_is_bytes_over_time(monkeypatch):
    # Four repeats of 1000 bytes until the spell of 12 ms is over: 4000 bytes in 16 ms.
    ticks = iter([1.000, 1.004, 1.008, 1.011, 1.016])
    monkeypatch.setattr(probe.time, "perf_counter", lambda: next(ticks))
    calls = []
    assert probe._rate(lambda: calls.append(1), 1000) == pytest.approx(250_000.0)
    assert len(calls) == 4


def test_limits_and_caches_of_a_tree_decide_the_size(tree, xeon, monkeypatch):
    monkeypatch.setattr(probe, "usable_cores", lambda root: 4)
    seen = []
    monkeypatch.setattr(
        probe, "_rounds", lambda threads, size: seen.append((threads, size)) or ([1.0], [2.0])
    )
    files = xeon | {"proc/meminfo": "MemTotal: 8388608 kB\n"}
    assert machine_probe(tree(files)).copy_bytes_per_s == 2.0
    # Two caches of 27.5 MiB: 110 MiB, under 4 x 32 MiB and under 8 GiB / 16.
    assert seen == [(4, 110 * MIB)]

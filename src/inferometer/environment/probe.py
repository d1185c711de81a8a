"""A fixed probe of this machine's speed, run before and after each repeat.

On a shared machine identical runs minutes apart can differ more than the effect looked for. The probe tells
such a change from a true difference: it does the same work each time, on all usable cores at once, so that
load by others on any core shows.

The work (`PROBE_VERSION` 1; a change to any number below is a new version): three rounds, each first
computing, then copying, each for 12 ms on every usable core, the threads starting together.

- Computing: SHA-256 of 4 MiB, again and again (no memory traffic to speak of, no mathematical library).
- Copying: one array into another, each thread its own slice. `copy_size_bytes` gives the arrays' size: both
  together are four times the last-level cache, so that memory and not a cache is measured, with at least
  64 MiB each and at most 32 MiB each per thread.

Both release the interpreter's lock. A thread's rate is its bytes over its own time, and a round's rate is the
sum over threads. Threads end with the probe. It takes about 0.15 s.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from inferometer.environment.cgroup import memory_limit, usable_cores
from inferometer.environment.cpu import last_level_cache_bytes, read_caches
from inferometer.environment.facts import ROOT, Absent, Facts
from inferometer.environment.memory import memory_facts

__all__ = ["PROBE_VERSION", "ProbeReading", "copy_size_bytes", "machine_probe"]

PROBE_VERSION = 1

_MIB = 1024**2
_ROUNDS = 3
_SPELL_S = 0.012
_HASHED_BYTES = 4 * _MIB
_COPY_LEAST_BYTES = 64 * _MIB
_COPY_MOST_BYTES = 512 * _MIB
_COPY_PER_THREAD_BYTES = 32 * _MIB


class ProbeReading(Facts):
    """One reading; two compare only when ``version``, ``threads`` and ``copy_bytes`` agree (`comparable`).

    Attributes:
        version: `PROBE_VERSION`.
        threads: Cores used at once.
        copy_bytes: Size of the array that is copied.
        compute_bytes_per_s: Bytes hashed per second, all threads together: median over rounds.
        copy_bytes_per_s: Bytes copied per second (each read once and written once), likewise.
        compute_rounds_bytes_per_s: The rounds' own values, in order.
        copy_rounds_bytes_per_s: Likewise.
        started_monotonic_s: When it started, CLOCK_MONOTONIC.
        duration_s: How long it took, with making the arrays.
    """

    version: int
    threads: int
    copy_bytes: int
    compute_bytes_per_s: float
    copy_bytes_per_s: float
    compute_rounds_bytes_per_s: tuple[float, ...]
    copy_rounds_bytes_per_s: tuple[float, ...]
    started_monotonic_s: float
    duration_s: float

    def comparable(self, other: ProbeReading) -> bool:
        """Whether both readings did the same work."""
        mine, theirs = ((r.version, r.threads, r.copy_bytes) for r in (self, other))
        return mine == theirs


def machine_probe(root: Path = ROOT) -> ProbeReading:
    """Run the probe.

    Args:
        root: The file system that tells cores, caches and limits.

    Returns:
        The medians and all raw rounds.
    """
    threads = usable_cores(root)
    copy_bytes = copy_size_bytes(threads, _cache_bytes(root), _memory_bytes(root))
    started_s = time.monotonic()
    compute, memory = _rounds(threads, copy_bytes)
    return ProbeReading(
        version=PROBE_VERSION,
        threads=threads,
        copy_bytes=copy_bytes,
        compute_bytes_per_s=median(compute),
        copy_bytes_per_s=median(memory),
        compute_rounds_bytes_per_s=tuple(compute),
        copy_rounds_bytes_per_s=tuple(memory),
        started_monotonic_s=started_s,
        duration_s=time.monotonic() - started_s,
    )


def copy_size_bytes(threads: int, cache_bytes: int | None, memory_bytes: int | None) -> int:
    """Size of each of the two arrays, fixed for one machine and one set of limits.

    Args:
        threads: Threads that share the copy.
        cache_bytes: All last-level caches together; ``None`` when unknown.
        memory_bytes: Memory that may be used; beyond their least size the two arrays stay under an eighth of
            it. ``None`` when unknown.

    Returns:
        Twice the cache, at least 64 MiB, at most 512 MiB and 32 MiB per thread.
    """
    most = min(_COPY_MOST_BYTES, threads * _COPY_PER_THREAD_BYTES)
    if memory_bytes is not None:
        most = min(most, memory_bytes // 16)
    return max(_COPY_LEAST_BYTES, min(2 * (cache_bytes or 0), most))


def _cache_bytes(root: Path) -> int | None:
    caches = read_caches(root)
    return None if isinstance(caches, Absent) else last_level_cache_bytes(caches)


def _memory_bytes(root: Path) -> int | None:
    limit = memory_limit(root)
    total = memory_facts(root)[0].total_bytes
    known = [size for size in (total, limit) if isinstance(size, int)]
    return min(known) if known else None


def _rounds(threads: int, copy_bytes: int) -> tuple[list[float], list[float]]:
    """Rates of all rounds, bytes per second: computing, copying."""
    source = np.empty(copy_bytes, np.uint8)
    target = np.empty(copy_bytes, np.uint8)
    edges = [copy_bytes * place // threads for place in range(threads + 1)]
    slices = [slice(*pair) for pair in pairwise(edges)]
    hashed = bytes(_HASHED_BYTES)
    together = threading.Barrier(threads)

    def touch(thread: int) -> None:
        # The kernel gives pages on first writing, which must not fall into the first round.
        source[slices[thread]] = 1
        target[slices[thread]] = 0

    def compute(thread: int) -> float:
        together.wait()
        return _rate(lambda: hashlib.sha256(hashed), _HASHED_BYTES)

    def copy(thread: int) -> float:
        own = slices[thread]
        together.wait()
        return _rate(lambda: np.copyto(target[own], source[own]), own.stop - own.start)

    computing: list[float] = []
    copying: list[float] = []
    # Every task waits for all others, so each of the workers takes exactly one.
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(touch, range(threads)))
        for _ in range(_ROUNDS):
            computing.append(sum(pool.map(compute, range(threads))))
            copying.append(sum(pool.map(copy, range(threads))))
    return computing, copying


def _rate(work: Callable[[], object], size_bytes: int) -> float:
    """Bytes per second of one thread that repeats ``work`` for at least the time of a spell."""
    start_s = time.perf_counter()
    times = 0
    while True:
        work()
        times += 1
        elapsed_s = time.perf_counter() - start_s
        if elapsed_s >= _SPELL_S:
            return times * size_bytes / elapsed_s

"""Which processors each of several ranks gets: disjoint, and near one another.

Source: Linux's Documentation/ABI/stable/sysfs-devices-system-cpu (topology) and its list format.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from inferometer.environment.facts import ROOT, Absent, read_int

__all__ = ["core_sets", "listed", "pinned"]

_CPUS = "sys/devices/system/cpu"
_NODE = re.compile(r"node(\d+)$")


def core_sets(width: int, allowed: Sequence[int] | None = None, root: Path = ROOT) -> list[list[int]]:
    """Sets of ``width`` processors, as many as there are; none shares a processor with another.

    Threads of one core and cores of one memory node stay together: a set lies on two nodes only where neither
    has ``width`` processors left over.

    Args:
        width: Processors of a set, at least 1.
        allowed: The processors to share out; None: those that this process may run on.
        root: Of the file system.
    """
    processors = sorted(os.sched_getaffinity(0)) if allowed is None else sorted(allowed)
    by_node: dict[int, list[int]] = {}
    for processor in sorted(processors, key=lambda one: (_node_of(root, one), *_core_of(root, one), one)):
        by_node.setdefault(_node_of(root, processor), []).append(processor)
    sets, over = [], []
    for members in by_node.values():
        whole = len(members) // width * width
        sets += [members[start : start + width] for start in range(0, whole, width)]
        over += members[whole:]
    sets += [over[start : start + width] for start in range(0, len(over) // width * width, width)]
    return sets


@contextmanager
def pinned(processors: Sequence[int] | None) -> Iterator[None]:
    """Keep this thread, and those that it starts meanwhile, on some processors (None: leave it alone)."""
    before = os.sched_getaffinity(0)
    if processors is not None:
        os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def listed(processors: Sequence[int]) -> str:
    """Processors as Linux lists them: ``0-3,8``."""
    runs: list[list[int]] = []
    for one in sorted(processors):
        if runs and one == runs[-1][1] + 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in runs)


def _node_of(root: Path, processor: int) -> int:
    """The memory node, 0 where the kernel knows none."""
    folder = root / _CPUS / f"cpu{processor}"
    names = [match for path in folder.glob("node*") if (match := _NODE.search(path.name))]
    return min((int(match[1]) for match in names), default=0)


def _core_of(root: Path, processor: int) -> tuple[int, int]:
    """Package and core; a processor that tells neither is a core of its own."""
    found = [
        read_int(root, f"{_CPUS}/cpu{processor}/topology/{name}")
        for name in ("physical_package_id", "core_id")
    ]
    package, core = (None if isinstance(one, Absent) else one for one in found)
    return (package or 0, processor if core is None else core)

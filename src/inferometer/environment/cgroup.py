"""Limits that the kernel sets on this process's control group, for cgroup v1, v2 and both at once.

Source: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of Linux; proc(5) for mountinfo and cgroup.

A limit holds for a group and all below it, so each limit is the strictest one from this process's group up
to the highest group that is visible here. Group names often hold container ids: nothing here shows them.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Literal

from inferometer.environment.facts import ROOT, Absent, Facts, Reasons, gather, read_text

__all__ = ["CgroupFacts", "cgroup_facts", "cpu_throttling", "memory_limit", "oom_kills", "usable_cores"]

# v1 writes "no limit" as the largest page-aligned 63-bit number, whose exact value depends on the page size.
_V1_UNLIMITED_BYTES = 1 << 62
_NO_GROUP = Absent("this process is in no control group that is visible here")


class CgroupFacts(Facts):
    """Limits of this process's control group; ``None`` means that no such limit is set, or is not visible.

    Attributes:
        version: ``v1``, ``v2`` or ``hybrid`` (v1 controllers beside a v2 tree).
        cpu_quota_cores: CPU time allowed per time, in cores (1.5: one and a half).
        memory_max_bytes: Memory above which the kernel kills.
        cpuset_cpus: The processors that may be used, as the kernel lists them (``0-3,8``).
    """

    version: Literal["v1", "v2", "hybrid"] | None
    cpu_quota_cores: float | None
    memory_max_bytes: int | None
    cpuset_cpus: str | None


def cgroup_facts(root: Path = ROOT) -> tuple[CgroupFacts, Reasons]:
    """Read the limits below ``root``; the reasons tell why a field is ``None``."""
    return gather(
        CgroupFacts,
        {
            "version": _version(root),
            "cpu_quota_cores": _cpu_quota_cores(root),
            "memory_max_bytes": memory_limit(root),
            "cpuset_cpus": _cpuset(root),
        },
    )


def usable_cores(root: Path = ROOT) -> int:
    """How many threads can run at once here: the processors of this process's affinity, cut by the CPU quota.

    A quota of 2.5 cores gives 2, and one below a core gives 1: more threads would be throttled together.

    Returns:
        At least 1.
    """
    allowed = len(os.sched_getaffinity(0))
    quota = _cpu_quota_cores(root)
    return allowed if isinstance(quota, Absent) else max(1, min(allowed, math.floor(quota)))


def memory_limit(root: Path = ROOT) -> int | Absent:
    """Bytes of memory that this process's control group may use, or why there is no limit."""
    groups = _groups(root, "memory")
    if isinstance(groups, Absent):
        return groups
    limits: list[int] = []
    for group in groups:
        v2 = read_text(root, f"{group}/memory.max")
        v1 = read_text(root, f"{group}/memory.limit_in_bytes")
        limits += [int(text) for text in (v2, v1) if isinstance(text, str) and text.isdigit()]
    real = [limit for limit in limits if limit < _V1_UNLIMITED_BYTES]
    return min(real) if real else Absent("the control group sets no memory limit")


def oom_kills(root: Path = ROOT) -> int | None:
    """How many processes of this control group the kernel has killed for lack of memory.

    Read before and after a child ran, it proves whether a SIGKILL was the kernel's. Version 2 counts the
    groups below too, version 1 this group alone. Where the group keeps no count (the root group of version
    2), the machine's count is given; inside a container that one may cover others' processes.

    Returns:
        The count so far, or ``None`` where this kernel keeps none.
    """
    groups = _groups(root, "memory")
    own = [] if isinstance(groups, Absent) else groups[:1]
    counters = [f"{group}/{name}" for group in own for name in ("memory.events", "memory.oom_control")]
    for path in [*counters, "proc/vmstat"]:
        count = _row(read_text(root, path), "oom_kill")
        if count is not None:
            return count
    return None


def cpu_throttling(root: Path = ROOT) -> tuple[float, int] | Absent:
    """How long, and in how many periods, the CPU quota held this control group back so far.

    Both sum over the groups from this one upward, since each group counts only what its own quota did.

    Returns:
        Seconds and periods, or why they are not known.
    """
    groups = _groups(root, "cpu")
    if isinstance(groups, Absent):
        return groups
    seconds, periods, seen = 0.0, 0, False
    for group in groups:
        table = read_text(root, f"{group}/cpu.stat")
        count, v2_us, v1_ns = (_row(table, n) for n in ("nr_throttled", "throttled_usec", "throttled_time"))
        if count is None or (v2_us is None and v1_ns is None):
            continue
        seen = True
        periods += count
        seconds += v2_us * 1e-6 if v2_us is not None else (v1_ns or 0) * 1e-9
    return (seconds, periods) if seen else Absent("the control group counts no throttling")


def _version(root: Path) -> str | Absent:
    text = read_text(root, "proc/self/cgroup")
    if isinstance(text, Absent):
        return _NO_GROUP
    v2 = [line.startswith("0::") for line in text.splitlines()]
    return "v2" if all(v2) else "hybrid" if any(v2) else "v1"


def _cpu_quota_cores(root: Path) -> float | Absent:
    groups = _groups(root, "cpu")
    if isinstance(groups, Absent):
        return groups
    quotas: list[float] = []
    for group in groups:
        v2 = read_text(root, f"{group}/cpu.max")
        quota = read_text(root, f"{group}/cpu.cfs_quota_us")
        period = read_text(root, f"{group}/cpu.cfs_period_us")
        pairs = [v2.split()] if isinstance(v2, str) else []
        pairs += [[quota, period]] if isinstance(quota, str) and isinstance(period, str) else []
        # "max" and -1 mean no quota; neither is a row of digits.
        quotas += [int(p[0]) / int(p[1]) for p in pairs if len(p) == 2 and p[0].isdigit() and p[1].isdigit()]
    return min(quotas) if quotas else Absent("the control group sets no CPU quota")


def _cpuset(root: Path) -> str | Absent:
    groups = _groups(root, "cpuset")
    if isinstance(groups, Absent):
        return groups
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
    for group in groups:
        for name in names:
            text = read_text(root, f"{group}/{name}")
            if isinstance(text, str):
                return text
    return Absent("the control group sets no processors")


def _row(table: str | Absent, name: str) -> int | None:
    """The value of a ``name value`` row."""
    found = None if isinstance(table, Absent) else re.search(rf"^{name} (\d+)$", table, re.MULTILINE)
    return int(found[1]) if found else None


def _groups(root: Path, controller: str) -> list[str] | Absent:
    """Folders of this process's group for one controller and of the groups above it, own first.

    Returns:
        Paths below ``root``, or why there are none.
    """
    own = _own_group(root, controller)
    mounts = read_text(root, "proc/self/mountinfo")
    if isinstance(own, Absent) or isinstance(mounts, Absent):
        return _NO_GROUP
    group, v1 = own
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, *rest) = before.split(), after.split() or [""]
        options = rest[-1].split(",") if rest else []
        if len(fields) < 5 or kind != ("cgroup" if v1 else "cgroup2") or (v1 and controller not in options):
            continue
        found = _chain(root, mount=fields[4].strip("/"), mounted=fields[3], group=group)
        if found:
            return found
    return _NO_GROUP


def _own_group(root: Path, controller: str) -> tuple[str, bool] | Absent:
    """This process's group for a controller, and whether it is a version 1 group."""
    text = read_text(root, "proc/self/cgroup")
    if isinstance(text, Absent):
        return text
    unified: str | None = None
    for line in text.splitlines():
        _, names, group = (*line.split(":", 2), "", "")[:3]
        if controller in names.split(","):
            return group, True
        if not names:
            unified = group
    return _NO_GROUP if unified is None else (unified, False)


def _chain(root: Path, mount: str, mounted: str, group: str) -> list[str]:
    """Existing folders from the group up to the mount point.

    A container often sees its own group mounted as the top (``mounted`` is then that group's name), or a name
    that its mount does not hold at all; what can be seen then starts at the mount point.
    """
    inside = group[len(mounted) :] if group == mounted or group.startswith(f"{mounted}/") else group
    parts = [part for part in inside.split("/") if part and part != ".."]
    folders = ["/".join([mount, *parts[:depth]]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in folders if (root / folder).is_dir()]

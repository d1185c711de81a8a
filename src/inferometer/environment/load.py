"""Load by others: processor time that neither this process nor its children used.

Source: proc_stat(5) and proc_pid_stat(5), read by psutil.
"""

from __future__ import annotations

import time

import psutil

from inferometer.environment.facts import Facts

__all__ = ["CpuClock", "ForeignLoad", "cpu_clock", "foreign_load", "load_between"]


class CpuClock(Facts):
    """Processor time used so far, over all processors of the machine.

    Attributes:
        monotonic_s: When it was read.
        busy_s: By everything that runs under this kernel, since it started.
        steal_s: Taken away by the hypervisor for other machines.
        own_s: By this process and its children, the living and those already waited for.
    """

    monotonic_s: float
    busy_s: float
    steal_s: float
    own_s: float


class ForeignLoad(Facts):
    """Load by others between two moments.

    The kernel counts in steps of 10 ms per processor, so over 0.1 s a tenth of a core is noise.

    Attributes:
        interval_s: Time between the two moments.
        busy_cores: Cores kept busy by other processes of this machine (not only of this container).
        steal_cores: Cores that the hypervisor gave to other machines.
    """

    interval_s: float
    busy_cores: float
    steal_cores: float


def cpu_clock() -> CpuClock:
    """Read the machine's and this process's processor time, now."""
    own_s = _own_s()
    times = psutil.cpu_times()
    # Guests are counted inside user and nice; waiting for a disk is idle.
    busy_s = times.user + times.nice + times.system + times.irq + times.softirq
    return CpuClock(monotonic_s=time.monotonic(), busy_s=busy_s, steal_s=times.steal, own_s=own_s)


def load_between(before: CpuClock, after: CpuClock) -> ForeignLoad:
    """Load by others between two readings; it can span a whole trial at no cost.

    Raises:
        ValueError: The second reading is not later than the first.
    """
    interval_s = after.monotonic_s - before.monotonic_s
    if interval_s <= 0:
        raise ValueError("the second reading of the processor time must be later than the first")
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    # The two counters step apart, so an idle machine can come out a step below nothing.
    return ForeignLoad(
        interval_s=interval_s,
        busy_cores=max(0.0, others_s / interval_s),
        steal_cores=max(0.0, (after.steal_s - before.steal_s) / interval_s),
    )


def foreign_load(interval_s: float = 0.1) -> ForeignLoad:
    """Load by others during the next ``interval_s`` seconds, in which this process only sleeps."""
    before = cpu_clock()
    time.sleep(interval_s)
    return load_between(before, cpu_clock())


def _own_s() -> float:
    me = psutil.Process()
    total_s = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            used = process.cpu_times()
        except psutil.Error:  # it has just ended (its time is then its parent's) or belongs to another user
            continue
        total_s += used.user + used.system + used.children_user + used.children_system
    return total_s

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest

from inferometer.environment import CpuClock, State, cpu_clock, foreign_load, load_between, state


def test_the_state_of_a_tree(tree, xeon):
    sensors = {
        "sys/class/hwmon/hwmon0/name": "coretemp\n",
        "sys/class/hwmon/hwmon0/temp1_input": "61000\n",
        "sys/class/hwmon/hwmon0/temp2_input": "64500\n",
        "sys/class/hwmon/hwmon1/name": "nvme\n",
        "sys/class/hwmon/hwmon1/temp1_input": "90000\n",
        "sys/fs/cgroup/cpu.stat": "usage_usec 5\nnr_throttled 2\nthrottled_usec 125000\n",
    }
    now = state(tree(xeon | sensors))
    # 2.4, 2.5, 2.6 and 2.7 GHz.
    assert now.frequency_mean_hz == 2_550_000_000
    assert now.frequency_lowest_hz == 2_400_000_000
    assert now.frequency_highest_hz == 2_700_000_000
    assert now.cpu_temperature_c == 64.5
    assert now.core_throttles == 0 + 1 + 2 + 3
    # Each processor repeats its package's count: 10 and 11.
    assert now.package_throttles == 21
    assert now.cgroup_throttled_s == pytest.approx(0.125)
    assert now.cgroup_throttled_periods == 2
    assert (now.load_1m, now.load_5m, now.load_15m) == (1.5, 0.75, 0.25)
    assert now.memory_available_bytes == 614_400
    assert now.missing == {}
    assert State.model_validate_json(now.model_dump_json()) == now


def test_clocks_by_cpuinfo_and_a_thermal_zone(tree, milan):
    zones = {
        "sys/class/thermal/thermal_zone0/type": "acpitz\n",
        "sys/class/thermal/thermal_zone0/temp": "99000\n",
        "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp\n",
        "sys/class/thermal/thermal_zone1/temp": "55250\n",
    }
    now = state(tree(milan | zones))
    assert now.frequency_mean_hz == 2_445_500_000
    assert now.cpu_temperature_c == 55.25
    assert set(now.missing) == {
        "core_throttles",
        "package_throttles",
        "cgroup_throttled_s",
        "cgroup_throttled_periods",
        "load_1m",
        "load_5m",
        "load_15m",
        "memory_available_bytes",
    }


def test_wrong_files_leave_reasons(tree):
    now = state(tree({"proc/loadavg": "busy\n", "proc/cpuinfo": "processor : 0\ncpu MHz : fast\n"}))
    assert now.load_1m is None
    assert now.missing["load_1m"] == "/proc/loadavg does not hold three numbers"
    assert now.missing["frequency_mean_hz"] == "neither cpufreq nor /proc/cpuinfo tells the clock"
    assert now.missing["cpu_temperature_c"] == "no processor sensor is visible here"


def test_load_by_others_is_what_is_left():
    before = CpuClock(monotonic_s=100.0, busy_s=50.0, steal_s=1.0, own_s=4.0)
    after = CpuClock(monotonic_s=110.0, busy_s=75.0, steal_s=6.0, own_s=14.0)
    load = load_between(before, after)
    assert load.interval_s == 10.0
    assert load.busy_cores == 1.5
    assert load.steal_cores == 0.5


def test_counters_that_step_apart_give_no_negative_load():
    before = CpuClock(monotonic_s=0.0, busy_s=1.0, steal_s=0.0, own_s=1.0)
    after = CpuClock(monotonic_s=0.1, busy_s=1.0, steal_s=0.0, own_s=1.01)
    assert load_between(before, after).busy_cores == 0.0


def test_readings_in_the_wrong_order_are_refused():
    reading = CpuClock(monotonic_s=1.0, busy_s=1.0, steal_s=0.0, own_s=0.0)
    with pytest.raises(ValueError, match="later than the first"):
        load_between(reading, reading)


def test_the_clock_counts_children_and_leaves_waiting_out(monkeypatch):
    times = {"user": 10.0, "nice": 1.0, "system": 2.0, "irq": 0.25, "softirq": 0.5, "steal": 3.0}
    idle = {"idle": 500.0, "iowait": 40.0, "guest": 7.0, "guest_nice": 0.0}
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(**times, **idle))

    class Process:
        def __init__(self, *used, gone=False):
            self.used, self.gone = used, gone

        def cpu_times(self):
            if self.gone:
                raise psutil.NoSuchProcess(1)
            names = ("user", "system", "children_user", "children_system")
            return SimpleNamespace(**dict(zip(names, self.used, strict=True)))

        def children(self, recursive):
            assert recursive
            return [Process(0.5, 0.25, 0.125, 0.0), Process(gone=True)]

    monkeypatch.setattr(psutil, "Process", lambda: Process(1.0, 2.0, 4.0, 8.0))
    clock = cpu_clock()
    assert clock.busy_s == 13.75
    assert clock.steal_s == 3.0
    assert clock.own_s == 15.875


def test_foreign_load_here_is_a_load():
    load = foreign_load(0.02)
    assert load.interval_s >= 0.02
    assert load.busy_cores >= 0.0

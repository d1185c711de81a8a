from __future__ import annotations

import os

import pytest

from inferometer.environment.cgroup import cgroup_facts, cpu_throttling, memory_limit, oom_kills, usable_cores

V2_MOUNT = "35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = """\
30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
31 30 0:27 /docker/0123abcd /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /docker/0123abcd /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory
33 30 0:29 /docker/0123abcd /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset
"""
V1_GROUPS = """\
12:cpuset:/docker/0123abcd
5:memory:/docker/0123abcd
4:cpu,cpuacct:/docker/0123abcd
1:name=systemd:/docker/0123abcd
"""
TOP = "sys/fs/cgroup"
V2 = {
    "proc/self/mountinfo": "24 1 8:1 / / rw - ext4 /dev/sda rw\n" + V2_MOUNT,
    "proc/self/cgroup": "0::/jobs.slice/step\n",
    f"{TOP}/cgroup.controllers": "cpu memory\n",
    f"{TOP}/jobs.slice/cpu.max": "250000 100000\n",
    f"{TOP}/jobs.slice/cpu.stat": "usage_usec 9\nnr_periods 50\nnr_throttled 4\nthrottled_usec 500000\n",
    f"{TOP}/jobs.slice/memory.max": "4294967296\n",
    f"{TOP}/jobs.slice/memory.events": "low 0\noom 9\noom_kill 9\n",
    f"{TOP}/jobs.slice/step/cpu.max": "max 100000\n",
    f"{TOP}/jobs.slice/step/cpu.stat": "usage_usec 7\nnr_periods 50\nnr_throttled 3\nthrottled_usec 250000\n",
    f"{TOP}/jobs.slice/step/memory.max": "8589934592\n",
    f"{TOP}/jobs.slice/step/memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 1\n",
    f"{TOP}/jobs.slice/step/cpuset.cpus.effective": "0-3,8\n",
    "proc/vmstat": "oom_kill 77\n",
}
V1 = {
    "proc/self/mountinfo": V1_MOUNTS,
    "proc/self/cgroup": V1_GROUPS,
    f"{TOP}/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
    f"{TOP}/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    f"{TOP}/cpu,cpuacct/cpu.stat": "nr_periods 9\nnr_throttled 6\nthrottled_time 1500000000\n",
    f"{TOP}/memory/memory.limit_in_bytes": "536870912\n",
    f"{TOP}/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
    f"{TOP}/cpuset/cpuset.effective_cpus": "0-1\n",
    "proc/vmstat": "oom_kill 77\n",
}


@pytest.fixture(autouse=True)
def _eight_processors(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


def test_version_2_takes_the_strictest_limit_on_the_way_up(tree):
    root = tree(V2)
    cgroup, missing = cgroup_facts(root)
    assert cgroup.version == "v2"
    assert cgroup.cpu_quota_cores == 2.5
    assert cgroup.memory_max_bytes == 4294967296
    assert cgroup.cpuset_cpus == "0-3,8"
    assert missing == {}
    assert usable_cores(root) == 2


def test_version_1_in_a_container_that_sees_its_group_as_the_top(tree):
    root = tree(V1)
    cgroup, missing = cgroup_facts(root)
    assert cgroup.version == "v1"
    assert cgroup.cpu_quota_cores == 1.5
    assert cgroup.memory_max_bytes == 536870912
    assert cgroup.cpuset_cpus == "0-1"
    assert missing == {}
    assert usable_cores(root) == 1


def test_version_1_with_the_whole_hierarchy_visible(tree):
    files = {
        "proc/self/mountinfo": "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        "proc/self/cgroup": "5:memory:/user/job\n0::/\n",
        f"{TOP}/memory/memory.limit_in_bytes": "9223372036854771712\n",
        f"{TOP}/memory/user/memory.limit_in_bytes": "1048576\n",
        f"{TOP}/memory/user/job/memory.limit_in_bytes": "9223372036854771712\n",
        f"{TOP}/memory/user/job/memory.oom_control": "oom_kill 1\n",
    }
    root = tree(files)
    cgroup, missing = cgroup_facts(root)
    assert cgroup.version == "hybrid"
    assert cgroup.memory_max_bytes == 1048576
    assert oom_kills(root) == 1
    assert set(missing) == {"cpu_quota_cores", "cpuset_cpus"}


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("50000 100000", 1), ("199999 100000", 1), ("300000 100000", 3), ("1600000 100000", 8)],
)
def test_threads_honour_quota_and_affinity(tree, quota, cores):
    assert usable_cores(tree(V2 | {f"{TOP}/jobs.slice/cpu.max": f"{quota}\n"})) == cores


def test_no_limits_is_absent_with_a_reason(tree):
    root = tree(
        {
            "proc/self/mountinfo": V1_MOUNTS + V2_MOUNT,
            "proc/self/cgroup": V1_GROUPS + "0::/\n",
            f"{TOP}/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            f"{TOP}/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            f"{TOP}/memory/memory.limit_in_bytes": "9223372036854710272\n",
        }
    )
    cgroup, missing = cgroup_facts(root)
    assert cgroup.version == "hybrid"
    assert missing["cpu_quota_cores"] == "the control group sets no CPU quota"
    assert missing["memory_max_bytes"] == "the control group sets no memory limit"
    assert usable_cores(root) == 8


@pytest.mark.parametrize(
    "files", [{}, {"proc/self/cgroup": "garbage\n\n:::\n", "proc/self/mountinfo": "x\n - \n"}]
)
def test_no_control_group(tree, files):
    root = tree(files)
    cgroup, missing = cgroup_facts(root)
    assert cgroup.cpu_quota_cores is None
    assert missing["cpu_quota_cores"] == "this process is in no control group that is visible here"
    assert missing["memory_max_bytes"] == missing["cpu_quota_cores"]
    assert usable_cores(root) == 8
    assert oom_kills(root) is None


def test_wrong_limit_files_are_no_limits(tree):
    root = tree(
        V2
        | {
            f"{TOP}/jobs.slice/cpu.max": "many\n",
            f"{TOP}/jobs.slice/memory.max": "4 GiB\n",
            f"{TOP}/jobs.slice/step/memory.max": "max\n",
            f"{TOP}/jobs.slice/cpu.stat": "nothing here\n",
            f"{TOP}/jobs.slice/step/cpu.stat": "usage_usec 7\n",
        }
    )
    cgroup, missing = cgroup_facts(root)
    assert cgroup.cpu_quota_cores is None
    assert cgroup.memory_max_bytes is None
    assert "cpu_quota_cores" in missing
    assert cpu_throttling(root).reason == "the control group counts no throttling"


def test_group_names_never_show(tree):
    root = tree({**V1, f"{TOP}/memory/memory.limit_in_bytes": "x", f"{TOP}/cpuset/cpuset.effective_cpus": ""})
    facts, missing = cgroup_facts(root)
    assert "0123abcd" not in facts.model_dump_json() + str(missing) + str(memory_limit(root))


def test_oom_kills_are_those_of_the_own_group(tree):
    assert oom_kills(tree(V2)) == 2


def test_oom_kills_of_version_1(tree):
    assert oom_kills(tree(V1)) == 5


def test_oom_kills_fall_back_to_the_machine_where_the_group_keeps_no_count(tree):
    root = tree(
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/\n",
            f"{TOP}/cgroup.procs": "",
            "proc/vmstat": "pgfault 12345\noom_kill 77\ndrop_pagecache 0\n",
        }
    )
    assert oom_kills(root) == 77


def test_old_kernels_count_no_kills(tree):
    root = tree(
        {**V1, f"{TOP}/memory/memory.oom_control": "oom_kill_disable 0\n", "proc/vmstat": "pgfault 1\n"}
    )
    assert oom_kills(root) is None


def test_throttling_of_version_2_adds_up_the_levels(tree):
    seconds, periods = cpu_throttling(tree(V2))
    assert seconds == pytest.approx(0.75)
    assert periods == 7


def test_throttling_of_version_1_is_in_nanoseconds(tree):
    assert cpu_throttling(tree(V1)) == (1.5, 6)


def test_this_machine_tells_something():
    assert 1 <= usable_cores() <= 8
    kills = oom_kills()
    assert kills is None or kills >= 0

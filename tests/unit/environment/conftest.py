"""Temporary /proc, /sys and /etc trees of machines whose facts were written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Tree = Callable[[Mapping[str, str]], Path]

CPU = "sys/devices/system/cpu"

V2_MOUNT = "35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Write files below a temporary root and return it."""

    def build(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return build


def _topology(cpu: int, package: int, core: int, siblings: str) -> dict[str, str]:
    place = f"{CPU}/cpu{cpu}/topology"
    return {
        f"{place}/physical_package_id": f"{package}\n",
        f"{place}/core_id": f"{core}\n",
        f"{place}/core_cpus_list": f"{siblings}\n",
    }


def _cache(cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> dict[str, str]:
    place = f"{CPU}/cpu{cpu}/cache/index{index}"
    return {
        f"{place}/level": f"{level}\n",
        f"{place}/type": f"{kind}\n",
        f"{place}/size": f"{size}\n",
        f"{place}/shared_cpu_list": f"{shared}\n",
    }


@pytest.fixture
def xeon() -> dict[str, str]:
    """Two sockets of one core with two threads each: Cascade Lake, with VNNI, as in a PowerEdge."""
    flags = "fpu sse4_2 avx f16c fma avx2 avx512f avx512bw avx512dq avx512vl avx512_vnni rdrand"
    files = {
        "proc/cpuinfo": "\n\n".join(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\n"
            "model name\t: Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz\n"
            f"microcode\t: 0x5003604\ncpu MHz\t\t: {2500 + cpu}.000\nphysical id\t: {cpu // 2}\n"
            f"core id\t\t: 0\nflags\t\t: {flags}\npower management:"
            for cpu in range(4)
        )
        + "\n\n",
        "sys/devices/system/node/node0/cpulist": "0-1\n",
        "sys/devices/system/node/node1/cpulist": "2-3\n",
        "sys/devices/system/node/possible": "0-1\n",
        f"{CPU}/intel_pstate/no_turbo": "1\n",
        f"{CPU}/possible": "0-3\n",
        "proc/meminfo": "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    600 kB\n"
        "SwapTotal:      0 kB\nHugePages_Total:    8\nHugePages_Free:     3\nHugepagesize:    2048 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/class/dmi/id/sys_vendor": "Dell Inc.\n",
        "sys/class/dmi/id/product_name": "PowerEdge R740\n",
        "sys/class/dmi/id/board_name": "06WXJT\n",
        "sys/class/dmi/id/product_serial": "SECRET-SERIAL\n",
        "sys/class/dmi/id/product_uuid": "SECRET-UUID\n",
        "sys/class/dmi/id/board_serial": "SECRET-BOARD\n",
        "sys/class/dmi/id/chassis_asset_tag": "SECRET-TAG\n",
        "etc/hostname": "SECRET-HOST\n",
        "proc/sys/kernel/hostname": "SECRET-HOST\n",
        "proc/sys/kernel/osrelease": "5.15.0-91-generic\n",
        "etc/os-release": 'NAME="Ubuntu"\nVERSION_ID="22.04"\n# a comment\nHOME_URL=https://example.org/\n',
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/cgroup.controllers": "cpu memory cpuset\n",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-3\n",
        "proc/loadavg": "1.50 0.75 0.25 2/345 6789\n",
    }
    for cpu in range(4):
        package = cpu // 2
        pair = f"{2 * package}-{2 * package + 1}"
        files |= _topology(cpu, package, 0, pair)
        files |= _cache(cpu, 0, 1, "Data", "32K", pair) | _cache(cpu, 1, 1, "Instruction", "32K", pair)
        files |= _cache(cpu, 2, 2, "Unified", "1024K", pair) | _cache(cpu, 3, 3, "Unified", "28160K", pair)
        policy = f"{CPU}/cpufreq/policy{cpu}"
        files |= {
            f"{policy}/scaling_governor": "performance\n" if cpu else "powersave\n",
            f"{policy}/scaling_driver": "intel_pstate\n",
            f"{policy}/cpuinfo_min_freq": "1000000\n",
            f"{policy}/cpuinfo_max_freq": "3900000\n",
            f"{policy}/scaling_cur_freq": f"{2400000 + 100000 * cpu}\n",
            f"{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count": f"{cpu}\n",
            f"{CPU}/cpu{cpu}/thermal_throttle/package_throttle_count": f"{10 + package}\n",
        }
    return files


@pytest.fixture
def milan() -> dict[str, str]:
    """A virtual machine on AMD EPYC Milan: AVX2, no VNNI; no frequency driver, no DMI."""
    flags = "fpu sse4_1 sse4_2 ssse3 fma avx f16c avx2 sha_ni hypervisor vaes"
    files = {
        "proc/cpuinfo": "\n\n".join(
            f"processor\t: {cpu}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7763 64-Core Processor\n"
            f"microcode\t: 0xa0011d1\ncpu MHz\t\t: 2445.500\nphysical id\t: 0\ncore id\t\t: {cpu}\n"
            f"flags\t\t: {flags}"
            for cpu in range(2)
        )
        + "\n",
    }
    for cpu in range(2):
        files |= _cache(cpu, 0, 1, "Data", "32K", str(cpu)) | _cache(cpu, 1, 3, "Unified", "32M", "0-1")
    return files


@pytest.fixture
def graviton() -> dict[str, str]:
    """Two Neoverse-N1 cores: Arm gives numbers for names, and a trailing block that is no processor."""
    features = "fp asimd evtstrm aes atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs"
    files = {
        "proc/cpuinfo": "\n\n".join(
            f"processor\t: {cpu}\nBogoMIPS\t: 243.75\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
            "CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1"
            for cpu in range(2)
        )
        + "\n\nHardware\t: Board\nSerial\t\t: SECRET-SERIAL\n",
        "proc/device-tree/model": "Some Arm Board Rev 1.0\0",
    }
    for cpu in range(2):
        files |= {
            f"{CPU}/cpu{cpu}/topology/physical_package_id": "-1\n",
            f"{CPU}/cpu{cpu}/topology/thread_siblings_list": f"{cpu}\n",
        }
    return files

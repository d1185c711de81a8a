"""The processor: model, cores, features, caches, clock limits.

Source: /proc/cpuinfo and /sys/devices/system/{cpu,node} (Documentation/ABI of Linux).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from inferometer.environment.arm import arm_model, arm_vendor
from inferometer.environment.facts import ROOT, Absent, Facts, Reasons, gather, read_int, read_text

__all__ = ["Cache", "CpuFacts", "cpu_entries", "cpu_facts", "last_level_cache_bytes", "read_caches"]

# Features that change what an inference library may do, by the kernel's own names.
# Source: arch/x86/include/asm/cpufeatures.h and Documentation/arch/arm64/elf_hwcaps.rst of Linux.
_X86_FEATURES = (
    *("ssse3", "sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "avx_ne_convert"),
    *("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "avx512_fp16"),
    *("avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
)
_ARM_FEATURES = (
    *("asimd", "asimdhp", "fphp", "asimdfhm", "bf16", "asimddp", "i8mm"),
    *("sve", "sve2", "svei8mm", "svebf16", "sme", "sme2", "smei8i32"),
)
_FEATURES = frozenset(_X86_FEATURES) | frozenset(_ARM_FEATURES)
# Features that multiply 8-bit integers and add into 32 bits in one instruction, by architecture.
# Source: Intel SDM (VPDPBUSD, TDPBUSD) and the Arm ARM (SDOT, SMMLA).
_INT8_DOT = {
    "x86_64": frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8"}),
    "aarch64": frozenset({"asimddp", "i8mm", "svei8mm", "smei8i32"}),
}
_CPU = "sys/devices/system/cpu"


class Cache(Facts):
    """One kind of cache.

    Attributes:
        level: 1, 2, 3, ...
        kind: ``data``, ``instruction`` or ``unified``.
        size_bytes: Size of one instance.
        instances: How many of them the machine shows.
    """

    level: int
    kind: str
    size_bytes: int
    instances: int


class CpuFacts(Facts):
    """The processor; a field is ``None`` where the machine does not say.

    Attributes:
        model: Model name; several different ones are joined by `` + ``.
        vendor: Vendor id (``GenuineIntel``, ``AuthenticAMD``, ``ARM``, ...).
        architecture: ``x86_64``, ``aarch64``, ...
        microcode: Microcode revision as the kernel prints it.
        sockets: Distinct packages.
        physical_cores: Distinct cores over all sockets.
        logical_cores: Processors that are on line.
        numa_nodes: NUMA nodes.
        features: Sorted features that matter for inference and that *every* core has.
        int8_dot: Whether an 8-bit dot product (VNNI or its equivalent) is among them.
        caches: By level and kind.
        governors: Distinct frequency governors, sorted.
        frequency_driver: The kernel's frequency driver.
        turbo: Whether clocks above the base clock are allowed.
        frequency_min_hz: Lowest clock the hardware allows.
        frequency_max_hz: Highest clock the hardware allows.
    """

    model: str | None
    vendor: str | None
    architecture: str
    microcode: str | None
    sockets: int | None
    physical_cores: int | None
    logical_cores: int | None
    numa_nodes: int | None
    features: tuple[str, ...] | None
    int8_dot: bool | None
    caches: tuple[Cache, ...] | None
    governors: tuple[str, ...] | None
    frequency_driver: str | None
    turbo: bool | None
    frequency_min_hz: int | None
    frequency_max_hz: int | None


def cpu_facts(root: Path = ROOT, architecture: str | None = None) -> tuple[CpuFacts, Reasons]:
    """Read the processor's facts.

    Args:
        root: The file system that holds proc/ and sys/.
        architecture: The machine's architecture; by default the running kernel's.

    Returns:
        The facts, and the reason for each that is ``None``.
    """
    architecture = architecture or os.uname().machine
    entries = cpu_entries(root)
    features = _features(entries)
    return gather(
        CpuFacts,
        {
            "model": _model(entries),
            "vendor": _vendor(entries),
            "architecture": architecture,
            "microcode": _values(entries, ("microcode",)),
            "sockets": _sockets(root, entries),
            "physical_cores": _physical_cores(root, entries),
            "logical_cores": entries if isinstance(entries, Absent) else len(entries),
            "numa_nodes": _numa_nodes(root),
            "features": features,
            "int8_dot": _int8_dot(architecture, features),
            "caches": read_caches(root),
            "governors": _distinct(root, "scaling_governor"),
            "frequency_driver": _frequency_driver(root),
            "turbo": _turbo(root),
            "frequency_min_hz": _frequency_hz(root, "cpuinfo_min_freq", lowest=True),
            "frequency_max_hz": _frequency_hz(root, "cpuinfo_max_freq", lowest=False),
        },
    )


def cpu_entries(root: Path = ROOT) -> list[dict[str, str]] | Absent:
    """The processors of /proc/cpuinfo, one mapping each; anything that is not a processor is left out."""
    text = read_text(root, "proc/cpuinfo")
    if isinstance(text, Absent):
        return text
    blocks = [
        {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        for block in re.split(r"\n\s*\n", text)
    ]
    processors = [block for block in blocks if "processor" in block]
    return processors or Absent("/proc/cpuinfo lists no processor")


def _values(entries: list[dict[str, str]] | Absent, keys: tuple[str, ...]) -> str | Absent:
    """The distinct values of the first of ``keys`` that is there, joined: hybrid machines have several."""
    if isinstance(entries, Absent):
        return entries
    for key in keys:
        found = dict.fromkeys(entry[key] for entry in entries if entry.get(key))
        if found:
            return " + ".join(found)
    return Absent(f"/proc/cpuinfo has no {keys[0]!r} on this machine")


def _model(entries: list[dict[str, str]] | Absent) -> str | Absent:
    named = _values(entries, ("model name", "cpu model", "cpu"))
    if isinstance(named, str) or isinstance(entries, Absent):
        return named
    found = dict.fromkeys(name for entry in entries if (name := arm_model(entry)))
    return " + ".join(found) if found else named


def _vendor(entries: list[dict[str, str]] | Absent) -> str | Absent:
    named = _values(entries, ("vendor_id",))
    if isinstance(named, str) or isinstance(entries, Absent):
        return named
    found = dict.fromkeys(name for entry in entries if (name := arm_vendor(entry)))
    return " + ".join(found) if found else named


def _features(entries: list[dict[str, str]] | Absent) -> list[str] | Absent:
    if isinstance(entries, Absent):
        return entries
    each = [set(entry.get("flags", entry.get("Features", "")).split()) for entry in entries]
    if not any(each):
        return Absent("/proc/cpuinfo has neither 'flags' nor 'Features' on this machine")
    # A thread may run on any core, so only what all of them have can be used.
    return sorted(set.intersection(*each) & _FEATURES)


def _int8_dot(architecture: str, features: list[str] | Absent) -> bool | Absent:
    if isinstance(features, Absent):
        return features
    if architecture not in _INT8_DOT:
        return Absent(f"it is not known here which features of {architecture} are 8-bit dot products")
    return not _INT8_DOT[architecture].isdisjoint(features)


def _topology(root: Path, name: str) -> set[str]:
    paths = (root / _CPU).glob(f"cpu[0-9]*/topology/{name}")
    texts = (read_text(root, path.relative_to(root).as_posix()) for path in paths)
    return {text for text in texts if isinstance(text, str) and text != "-1"}


def _sockets(root: Path, entries: list[dict[str, str]] | Absent) -> int | Absent:
    packages = _topology(root, "physical_package_id")
    if not packages and not isinstance(entries, Absent):
        packages = {entry["physical id"] for entry in entries if "physical id" in entry}
    return len(packages) or Absent(f"neither /{_CPU}/cpu*/topology nor /proc/cpuinfo tells the package")


def _physical_cores(root: Path, entries: list[dict[str, str]] | Absent) -> int | Absent:
    # Threads of one core share one list of siblings (the second name is the one before Linux 5.3).
    cores: set[object] = {*(_topology(root, "core_cpus_list") or _topology(root, "thread_siblings_list"))}
    if not cores and not isinstance(entries, Absent):
        cores = {(e.get("physical id"), e["core id"]) for e in entries if "core id" in e}
    return len(cores) or Absent(f"neither /{_CPU}/cpu*/topology nor /proc/cpuinfo tells the core")


def _numa_nodes(root: Path) -> int | Absent:
    nodes = list((root / "sys/devices/system/node").glob("node[0-9]*"))
    return len(nodes) or Absent("/sys/devices/system/node lists no node")


def read_caches(root: Path = ROOT) -> tuple[Cache, ...] | Absent:
    """The caches of all processors, by level and kind; an instance shared by several counts once."""
    groups: dict[tuple[int, str, int], set[str]] = {}
    for index in (root / _CPU).glob("cpu[0-9]*/cache/index[0-9]*"):
        place = index.relative_to(root).as_posix()
        texts = [read_text(root, f"{place}/{name}") for name in ("level", "type", "size", "shared_cpu_list")]
        match texts:
            case [str(level), str(kind), str(size), str(shared)]:
                step = re.fullmatch(r"(\d+)([KM]?)", size)
                if step and level.isdigit():
                    size_bytes = int(step[1]) * {"": 1, "K": 1024, "M": 1024**2}[step[2]]
                    groups.setdefault((int(level), kind.lower(), size_bytes), set()).add(shared)
    if not groups:
        return Absent(f"/{_CPU}/cpu*/cache tells no size")
    return tuple(
        Cache(level=level, kind=kind, size_bytes=size_bytes, instances=len(instances))
        for (level, kind, size_bytes), instances in sorted(groups.items())
    )


def last_level_cache_bytes(caches: Iterable[Cache]) -> int:
    """Total size of all instances of the highest level that is listed.

    Raises:
        ValueError: No cache is given.
    """
    listed = list(caches)
    last = max(cache.level for cache in listed)
    return sum(cache.size_bytes * cache.instances for cache in listed if cache.level == last)


def _distinct(root: Path, name: str) -> list[str] | Absent:
    paths = (root / _CPU / "cpufreq").glob(f"policy[0-9]*/{name}")
    texts = {read_text(root, path.relative_to(root).as_posix()) for path in paths}
    found = sorted(text for text in texts if isinstance(text, str))
    return found or Absent(f"/{_CPU}/cpufreq/policy*/{name} is not there (usual in virtual machines)")


def _frequency_driver(root: Path) -> str | Absent:
    found = _distinct(root, "scaling_driver")
    return found if isinstance(found, Absent) else " + ".join(found)


def _frequency_hz(root: Path, name: str, *, lowest: bool) -> int | Absent:
    found = _distinct(root, name)
    if isinstance(found, Absent):
        return found
    steps_khz = [int(text) for text in found if text.isdigit()]
    if not steps_khz:
        return Absent(f"/{_CPU}/cpufreq/policy*/{name} holds no number")
    return (min(steps_khz) if lowest else max(steps_khz)) * 1000


def _turbo(root: Path) -> bool | Absent:
    boost = read_int(root, f"{_CPU}/cpufreq/boost")
    if not isinstance(boost, Absent):
        return boost == 1
    no_turbo = read_int(root, f"{_CPU}/intel_pstate/no_turbo")
    if not isinstance(no_turbo, Absent):
        return no_turbo == 0
    return Absent(f"neither /{_CPU}/cpufreq/boost nor /{_CPU}/intel_pstate/no_turbo is there")

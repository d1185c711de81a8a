from __future__ import annotations

import pytest

from inferometer.environment.cpu import Cache, cpu_facts, last_level_cache_bytes, read_caches


def test_a_xeon_with_vnni(tree, xeon):
    cpu, missing = cpu_facts(tree(xeon), "x86_64")
    assert cpu.model == "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz"
    assert cpu.vendor == "GenuineIntel"
    assert cpu.architecture == "x86_64"
    assert cpu.microcode == "0x5003604"
    assert (cpu.sockets, cpu.physical_cores, cpu.logical_cores, cpu.numa_nodes) == (2, 2, 4, 2)
    assert cpu.features == (
        "avx",
        "avx2",
        "avx512_vnni",
        "avx512bw",
        "avx512dq",
        "avx512f",
        "avx512vl",
        "f16c",
        "fma",
        "sse4_2",
    )
    assert cpu.int8_dot is True
    assert cpu.governors == ("performance", "powersave")
    assert cpu.frequency_driver == "intel_pstate"
    assert cpu.turbo is False
    assert (cpu.frequency_min_hz, cpu.frequency_max_hz) == (1_000_000_000, 3_900_000_000)
    assert missing == {}


def test_caches_count_shared_instances_once(tree, xeon):
    caches = read_caches(tree(xeon))
    assert caches == (
        Cache(level=1, kind="data", size_bytes=32768, instances=2),
        Cache(level=1, kind="instruction", size_bytes=32768, instances=2),
        Cache(level=2, kind="unified", size_bytes=1048576, instances=2),
        Cache(level=3, kind="unified", size_bytes=28835840, instances=2),
    )
    assert last_level_cache_bytes(caches) == 57671680


def test_a_milan_virtual_machine_has_no_int8_dot_product(tree, milan):
    cpu, missing = cpu_facts(tree(milan), "x86_64")
    assert cpu.model == "AMD EPYC 7763 64-Core Processor"
    assert cpu.features == ("avx", "avx2", "f16c", "fma", "sse4_1", "sse4_2", "ssse3")
    assert cpu.int8_dot is False
    # There is no topology folder here, so /proc/cpuinfo tells.
    assert (cpu.sockets, cpu.physical_cores, cpu.logical_cores) == (1, 2, 2)
    assert cpu.caches == (
        Cache(level=1, kind="data", size_bytes=32768, instances=2),
        Cache(level=3, kind="unified", size_bytes=33554432, instances=1),
    )
    assert set(missing) == {
        "numa_nodes",
        "governors",
        "frequency_driver",
        "turbo",
        "frequency_min_hz",
        "frequency_max_hz",
    }
    assert "scaling_governor is not there" in missing["governors"]
    assert cpu.turbo is None


def test_an_arm_server_is_named_from_its_numbers(tree, graviton):
    cpu, missing = cpu_facts(tree(graviton), "aarch64")
    assert cpu.model == "Neoverse-N1"
    assert cpu.vendor == "ARM"
    assert cpu.logical_cores == 2
    assert cpu.physical_cores == 2
    assert cpu.features == ("asimd", "asimddp", "asimdhp", "fphp")
    assert cpu.int8_dot is True
    # The kernel writes -1 for a package that it does not know.
    assert cpu.sockets is None
    assert "package" in missing["sockets"]
    assert missing["microcode"] == "/proc/cpuinfo has no 'microcode' on this machine"


def test_an_arm_core_that_is_not_listed_keeps_its_numbers(tree):
    root = tree(
        {"proc/cpuinfo": "processor: 0\nFeatures: fp asimd\nCPU implementer: 0x41\nCPU part: 0xfff\n"}
    )
    cpu, _ = cpu_facts(root, "aarch64")
    assert cpu.model == "ARM part 0xfff"
    assert cpu.int8_dot is False


@pytest.mark.parametrize("flag", ["avx_vnni", "amx_int8", "avx512_vnni"])
def test_each_kind_of_int8_dot_product_counts(tree, flag):
    cpu, _ = cpu_facts(tree({"proc/cpuinfo": f"processor : 0\nflags : avx2 {flag}\n"}), "x86_64")
    assert cpu.int8_dot is True


def test_a_feature_that_only_some_cores_have_is_none(tree):
    root = tree(
        {
            "proc/cpuinfo": "processor : 0\nmodel name : Big\nflags : avx2 avx512_vnni\n\n"
            "processor : 1\nmodel name : Little\nflags : avx2\n"
        }
    )
    cpu, _ = cpu_facts(root, "x86_64")
    assert cpu.model == "Big + Little"
    assert cpu.features == ("avx2",)
    assert cpu.int8_dot is False


def test_an_architecture_without_known_features_says_so(tree):
    cpu, missing = cpu_facts(tree({"proc/cpuinfo": "processor : 0\nFeatures : vx\n"}), "s390x")
    assert cpu.int8_dot is None
    assert "s390x" in missing["int8_dot"]


@pytest.mark.parametrize("text", [None, "", "nonsense", "vendor_id : x\n"])
def test_a_missing_or_wrong_cpuinfo_leaves_reasons_not_guesses(tree, text):
    cpu, missing = cpu_facts(tree({} if text is None else {"proc/cpuinfo": text}), "x86_64")
    for field in ("model", "vendor", "features", "int8_dot", "logical_cores", "physical_cores", "caches"):
        assert getattr(cpu, field) is None
        assert missing[field]


def test_wrong_cache_files_are_left_out(tree):
    place = "sys/devices/system/cpu/cpu0/cache/index0"
    root = tree({f"{place}/level": "one", f"{place}/type": "Data", f"{place}/size": "32K"})
    assert cpu_facts(root, "x86_64")[0].caches is None
    (root / place / "shared_cpu_list").write_text("0")
    (root / place / "level").write_text("1")
    (root / place / "size").write_text("a lot")
    assert cpu_facts(root, "x86_64")[0].caches is None


def test_turbo_by_boost_file(tree, milan):
    root = tree(milan | {"sys/devices/system/cpu/cpufreq/boost": "1\n"})
    assert cpu_facts(root, "x86_64")[0].turbo is True
    (root / "sys/devices/system/cpu/cpufreq/boost").write_text("maybe")
    cpu, missing = cpu_facts(root, "x86_64")
    assert cpu.turbo is None
    assert "turbo" in missing

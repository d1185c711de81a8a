import os
from pathlib import Path

import pytest

from inferometer.contracts import Channel, MeterStatus
from inferometer.errors import ConfigError, MeterError
from inferometer.meters import rapl
from inferometer.meters.rapl import RaplMeter

INTEL_UJ = 262_143_328_850
AMD_UJ = 65_532_610_987

CHMOD = (
    "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj "
    "/sys/class/powercap/intel-rapl:*/max_energy_range_uj"
)


class Tree:
    """A file system with a powercap tree, as the kernel lists it: all zones side by side."""

    def __init__(self, root: Path, vendor: str = "GenuineIntel", flags: str = "fpu avx2") -> None:
        self.root = root
        self.cpu(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n")
        (root / "sys/class/powercap/intel-rapl").mkdir(parents=True)

    def cpu(self, text: str) -> None:
        (self.root / "proc").mkdir(parents=True, exist_ok=True)
        (self.root / "proc/cpuinfo").write_text(text)

    def folder(self, label: str) -> Path:
        return self.root / "sys/class/powercap" / label

    def zone(self, label: str, name: str, energy_uj: object = 1, range_uj: object = INTEL_UJ) -> "Tree":
        self.folder(label).mkdir()
        (self.folder(label) / "name").write_text(f"{name}\n")
        self.set(label, energy_uj)
        if range_uj is not None:
            (self.folder(label) / "max_energy_range_uj").write_text(f"{range_uj}\n")
        return self

    def set(self, label: str, energy_uj: object) -> None:
        (self.folder(label) / "energy_uj").write_text(f"{energy_uj}\n")

    @property
    def meter(self) -> RaplMeter:
        return RaplMeter(self.root)

    def parts(self) -> list[tuple[str, str]]:
        with self.meter.open({}) as session:
            return [(channel.boundary, channel.part) for channel in session.channels]


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved, in seconds."""

    class Clock:
        now_s = 1000.0

        def monotonic_ns(self) -> int:
            return round(self.now_s * 1e9)

    clock = Clock()
    monkeypatch.setattr(rapl, "time", clock)
    return clock


def two_sockets(tree):
    tree.zone("intel-rapl:0", "package-1", 5_000_000).zone("intel-rapl:0:0", "core")
    tree.zone("intel-rapl:0:1", "dram", 2_000_000, AMD_UJ)
    tree.zone("intel-rapl:1", "package-0", 7_000_000).zone("intel-rapl:1:0", "uncore")
    tree.zone("intel-rapl:1:1", "dram", 3_000_000)
    return tree.zone("intel-rapl:2", "psys", 40_000_000).zone("intel-rapl-mmio:0", "package-0", 7_000_000)


def test_zones_are_told_by_their_names(tree):
    with two_sockets(tree).meter.open({"devices": ["GPU-1"]}) as session:
        assert session.channels == (
            energy("package-1", "CPU package", "package-1"),
            energy("package-1 dram", "DRAM", "package-1"),
            energy("package-0", "CPU package", "package-0"),
            energy("package-0 dram", "DRAM", "package-0"),
            energy("psys", "platform (psys)", "psys", step_s=None),
        )
        assert [session.read(place) for place in range(5)] == [5.0, 2.0, 7.0, 3.0, 40.0]
        assert session.facts == {
            "zones": {
                "intel-rapl:0": "package-1",
                "intel-rapl:0:1": "dram",
                "intel-rapl:1": "package-0",
                "intel-rapl:1:1": "dram",
                "intel-rapl:2": "psys",
            },
            "max_energy_range_j": {
                "intel-rapl:0": 262143.32885,
                "intel-rapl:0:1": 65532.610987,
                "intel-rapl:1": 262143.32885,
                "intel-rapl:1:1": 262143.32885,
                "intel-rapl:2": 262143.32885,
            },
            "not_read": {
                "intel-rapl:0:0": "core: inside package",
                "intel-rapl:1:0": "uncore: inside package",
            },
        }
        assert session.arrived() == ()


def energy(name, boundary, part, step_s: float | None = 0.001):
    return Channel(
        name,
        "energy",
        boundary,
        part,
        "counter of the processor, unwrapped",
        0.1,
        primary=True,
        step_s=step_s,
    )


def test_what_it_reads_is_listed_by_zone(tree):
    assert two_sockets(tree).meter.status({}) == (
        MeterStatus("package-1", ("CPU package energy",)),
        MeterStatus("package-1 dram", ("DRAM energy",)),
        MeterStatus("package-0", ("CPU package energy",)),
        MeterStatus("package-0 dram", ("DRAM energy",)),
        MeterStatus("psys", ("platform (psys) energy",)),
    )


def test_zones_count_in_hexadecimal(tree):
    for socket in range(17):
        tree.zone(f"intel-rapl:{socket:x}", f"package-{socket}", 1_000_000 + socket)
    assert tree.parts() == [("CPU package", f"package-{socket}") for socket in range(17)]


def test_a_zone_of_another_kind_is_passed_over(tree):
    with tree.zone("intel-rapl:0", "package-0").zone("intel-rapl:0:0", "npu").meter.open({}) as session:
        assert session.facts["not_read"] == {"intel-rapl:0:0": "npu: not a zone that is known"}


@pytest.mark.parametrize("vendor", ["AuthenticAMD", "HygonGenuine"])
def test_amd_dies_repeat_their_socket(tmp_path, vendor):
    tree = Tree(tmp_path, vendor)
    # Read one after the other, the same counter has moved on in between.
    for place, (socket, die) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        label = f"intel-rapl:{place}"
        tree.zone(label, f"package-{socket}-die-{die}", 9_000_000 + place * 50, AMD_UJ)
        tree.zone(f"{label}:0", "core", place, AMD_UJ)
    assert tree.parts() == [("CPU package", "package-0"), ("CPU package", "package-1")]
    with tree.meter.open({}) as session:
        assert (
            session.facts["not_read"]["intel-rapl:1"]
            == "package-0-die-1: repeats the counter of intel-rapl:0"
        )
        assert (
            session.facts["not_read"]["intel-rapl:3"]
            == "package-1-die-1: repeats the counter of intel-rapl:2"
        )


def test_intel_dies_count_for_themselves(tree):
    for die, energy_uj in enumerate((5_000_000, 6_000_000)):
        tree.zone(f"intel-rapl:{die}", f"package-0-die-{die}", energy_uj)
        tree.zone(f"intel-rapl:{die}:0", "dram", energy_uj // 3)
    assert tree.parts() == [
        ("CPU package", "package-0-die-0"),
        ("DRAM", "package-0-die-0"),
        ("CPU package", "package-0-die-1"),
        ("DRAM", "package-0-die-1"),
    ]


@pytest.mark.parametrize("names", [("package-0-die-0", "package-0-die-1"), ("package-0", "package-0")])
def test_zones_of_one_socket_whose_counters_are_the_same_count_once(tree, names):
    for place, name in enumerate(names):
        tree.zone(f"intel-rapl:{place}", name, 5_000_000)
    tree.zone("intel-rapl:2", "package-1", 5_000_000)
    assert tree.parts() == [("CPU package", "package-0"), ("CPU package", "package-1")]


def test_counters_at_zero_are_not_taken_for_the_same(tree):
    for die in range(2):
        tree.zone(f"intel-rapl:{die}", f"package-0-die-{die}", 0)
    assert tree.parts() == [("CPU package", "package-0-die-0"), ("CPU package", "package-0-die-1")]


def test_the_same_name_with_another_counter_stays_apart(tree):
    tree.zone("intel-rapl:0", "package-0", 5_000_000).zone("intel-rapl:1", "package-0", 6_000_000)
    assert tree.parts() == [("CPU package", "package-0"), ("CPU package", "package-0 (intel-rapl:1)")]


def test_a_counter_that_wraps_is_unwrapped(tree, clock):
    tree.zone("intel-rapl:0", "package-0", AMD_UJ - 100_000_000, AMD_UJ)
    with tree.meter.open({}) as session:
        assert session.read(0) == (AMD_UJ - 100_000_000) / 1e6
        for turn in range(1, 4):
            clock.now_s += 0.1
            tree.set("intel-rapl:0", 20_000_000)
            assert session.read(0) == (AMD_UJ * turn + 20_000_000) / 1e6
            for target in range(30_000_000_000, AMD_UJ, 35_000_000_000):
                clock.now_s += 50
                tree.set("intel-rapl:0", target)
                session.read(0)
            tree.set("intel-rapl:0", AMD_UJ - 1)
            assert session.read(0) == (AMD_UJ * (turn + 1) - 1) / 1e6


@pytest.mark.parametrize("range_uj", [None, "", "0", "many", "-5"])
def test_without_a_range_a_falling_counter_leaves_a_gap_that_fails_a_window(tree, clock, range_uj):
    tree.zone("intel-rapl:0", "package-0", 9_000_000, range_uj)
    with tree.meter.open({}) as session:
        assert session.channels[0].period_s == 0.1
        assert session.facts["max_energy_range_j"] == {"intel-rapl:0": None}
        clock.now_s += 0.1
        tree.set("intel-rapl:0", 10_000_000)
        assert session.read(0) == 10.0
        clock.now_s += 0.1
        tree.set("intel-rapl:0", 1_000_000)
        with pytest.raises(
            MeterError, match=r"from 10000000 to 1000000 microjoules in 0\.1 s, .* is unknown"
        ):
            session.read(0)
        for step in range(2, 7):
            clock.now_s += 0.1
            tree.set("intel-rapl:0", step * 1_000_000)
            with pytest.raises(MeterError, match=r"rapl: package-0: withheld after a gap of unknown energy"):
                session.read(0)
        # From here on it counts again, from where it stood.
        clock.now_s += 0.1
        tree.set("intel-rapl:0", 6_500_000)
        assert session.read(0) == 10.5
        tree.set("intel-rapl:0", 8_000_000)
        assert session.read(0) == 12.0


def test_another_fall_within_the_gap_begins_it_anew(tree, clock):
    tree.zone("intel-rapl:0", "package-0", 9_000_000, None)
    with tree.meter.open({}) as session:
        for energy_uj in [5_000_000, 6_000_000, 2_000_000, *[3_000_000] * 5]:
            tree.set("intel-rapl:0", energy_uj)
            with pytest.raises(MeterError):
                session.read(0)
        clock.now_s += 0.6
        tree.set("intel-rapl:0", 4_000_000)
        assert session.read(0) == 10.0


def test_the_gap_is_long_enough_for_a_channel_that_is_read_more_often(tree, clock):
    tree.zone("intel-rapl:0", "package-0", 9_000_000, None)
    with tree.meter.open({}) as session:
        tree.set("intel-rapl:0", 5_000_000)
        for _ in range(60):
            with pytest.raises(MeterError):
                session.read(0)
            clock.now_s += 0.01
        assert session.read(0) == 9.0


def test_a_reset_far_from_the_end_of_the_range_is_no_wrap(tree, clock):
    tree.zone("intel-rapl:0", "package-0", 90_000_000_000)
    with tree.meter.open({}) as session:
        clock.now_s += 0.1
        tree.set("intel-rapl:0", 1_000_000)
        with pytest.raises(MeterError, match="which no wrap explains for sure"):
            session.read(0)


def test_a_wrap_that_may_have_gone_unseen_leaves_a_gap(tree, clock):
    tree.zone("intel-rapl:0", "package-0", 1_000_000, AMD_UJ)
    with tree.meter.open({}) as session:
        clock.now_s += 65.0
        tree.set("intel-rapl:0", 3_000_000)
        assert session.read(0) == 3.0
        clock.now_s += 66.0
        tree.set("intel-rapl:0", 4_000_000)
        with pytest.raises(MeterError, match="energy in between is unknown"):
            session.read(0)


def test_a_short_range_is_polled_faster_than_half_a_wrap(tree):
    tree.zone("intel-rapl:0", "package-0", 1, 20_000_000)
    with tree.meter.open({}) as session:
        # 20 J at 500 W wrap in 40 ms.
        assert session.channels[0].period_s == 0.01


def test_a_reading_that_fails_costs_no_energy(tree, clock):
    tree.zone("intel-rapl:0", "package-0", 1_000_000)
    file = tree.folder("intel-rapl:0") / "energy_uj"
    with tree.meter.open({}) as session:
        for broken in ("", "lots", "-3", "1.5"):
            tree.set("intel-rapl:0", broken)
            with pytest.raises(MeterError, match=f"rapl: package-0: energy_uj holds '{broken}', not a whole"):
                session.read(0)
        file.unlink()
        with pytest.raises(MeterError, match="rapl: package-0: energy_uj: No such file or directory"):
            session.read(0)
        tree.set("intel-rapl:0", 4_000_000)
        assert session.read(0) == 4.0


def test_a_zone_that_goes_away_while_open(tree):
    tree.zone("intel-rapl:0", "package-0", 1_000_000)
    with tree.meter.open({}) as session:
        tree.folder("intel-rapl:0").rename(tree.root / "gone")
        with pytest.raises(MeterError, match="No such file or directory"):
            session.read(0)


def forbid(monkeypatch, *labels):
    allowed = Path.read_text

    def read_text(self, *args, **kwargs):
        if self.name in ("energy_uj", "max_energy_range_uj") and self.parent.name in labels:
            raise PermissionError(13, "Permission denied", str(self))
        return allowed(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", read_text)


def test_no_permission_names_the_command(tree, monkeypatch):
    two_sockets(tree)
    forbid(monkeypatch, "intel-rapl:1")
    reason = "energy_uj: not permitted (root alone may read it since CVE-2020-8694)"
    status = {one.subject: one for one in tree.meter.status({})}
    assert (status["package-1"].reason, status["package-0"].reason) == (None, reason)
    assert status["package-0"].remedy.startswith(f"{CHMOD} (until the next start; ")
    assert "/etc/tmpfiles.d/rapl.conf" in status["package-0"].remedy
    # One socket of two is no figure for the boundary.
    with pytest.raises(MeterError) as refused:
        tree.meter.open({})
    assert str(refused.value).startswith(f"rapl: package-0: {reason}; remedy: {CHMOD} ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_no_permission_for_real(tree):
    tree.zone("intel-rapl:0", "package-0")
    (tree.folder("intel-rapl:0") / "energy_uj").chmod(0)
    with pytest.raises(MeterError, match="not permitted"):
        tree.meter.open({})


def test_permission_taken_away_while_open(tree, monkeypatch):
    tree.zone("intel-rapl:0", "package-0")
    with tree.meter.open({}) as session:
        forbid(monkeypatch, "intel-rapl:0")
        with pytest.raises(MeterError, match="rapl: package-0: energy_uj: not permitted"):
            session.read(0)


def test_a_boundary_that_cannot_be_read_in_full_is_left_out(tree):
    two_sockets(tree)
    tree.set("intel-rapl:1:1", "no data")
    assert tree.parts() == [
        ("CPU package", "package-1"),
        ("CPU package", "package-0"),
        ("platform (psys)", "psys"),
    ]
    with tree.meter.open({}) as session:
        fault = "dram: energy_uj holds 'no data', not a whole number"
        assert session.facts["not_read"]["intel-rapl:0:1"] == fault
        assert session.facts["not_read"]["intel-rapl:1:1"] == fault


def test_a_processor_that_counts_nothing_that_can_be_read(tree):
    tree.zone("intel-rapl:0", "psys", "x")
    with pytest.raises(MeterError, match=r"rapl: psys: energy_uj holds 'x', not a whole number$"):
        tree.meter.open({})


def nothing(root: Path) -> MeterStatus:
    (status,) = RaplMeter(root).status({})
    with pytest.raises(MeterError) as refused:
        RaplMeter(root).open({})
    assert str(refused.value) == f"rapl: {status.reason}" + (
        f"; remedy: {status.remedy}" if status.remedy else ""
    )
    assert (status.subject, status.reads) == ("RAPL", ())
    return status


def test_an_empty_tree_and_none(tmp_path):
    status = nothing(tmp_path)
    assert status.reason == "RAPL is not visible here: /sys/class/powercap is not there"
    assert status.remedy.startswith("sudo modprobe intel_rapl_msr; in a container run on the host, or start ")
    assert "-v /sys/class/powercap:/sys/class/powercap:ro" in status.remedy
    Tree(tmp_path)
    assert (
        nothing(tmp_path).reason
        == "RAPL is not visible here: /sys/class/powercap holds no zone of intel-rapl"
    )


def test_only_the_mmio_twin(tree):
    tree.zone("intel-rapl-mmio:0", "package-0")
    assert "holds no zone of intel-rapl" in nothing(tree.root).reason


def test_a_masked_tree_lists_zones_that_lead_nowhere(tree):
    tree.folder("intel-rapl:0").symlink_to("../../devices/virtual/powercap/intel-rapl/intel-rapl:0")
    status = nothing(tree.root)
    assert status.reason == (
        "RAPL is not visible here: /sys/class/powercap/intel-rapl:0 is listed, but its name: "
        "name: No such file or directory"
    )
    assert status.remedy.startswith("run on the host, or start the container with ")
    assert "systempaths=unconfined" in status.remedy


def test_a_virtual_machine_and_a_processor_without_rapl(tmp_path):
    tree = Tree(tmp_path, flags="fpu hypervisor avx2")
    status = nothing(tmp_path)
    assert "this is a virtual machine" in status.reason
    assert status.remedy == "run on the host, or use a meter outside the machine"
    tree.cpu("processor\t: 0\nCPU implementer\t: 0x41\n")
    status = nothing(tmp_path)
    assert (status.reason.partition(":")[0], status.remedy) == ("this processor has no RAPL", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": []}, "rapl: unknown option 'device'; did you mean 'devices'?"),
        ({"devices": "GPU-1"}, "rapl: devices: wants a list of UUIDs, got 'GPU-1'"),
        ({"devices": [0]}, "rapl: devices: wants a list of UUIDs, got [0]"),
    ],
)
def test_options(tree, options, message):
    for ask in (tree.meter.status, tree.meter.open):
        with pytest.raises(ConfigError) as refused:
            ask(options)
        assert str(refused.value) == message


def test_this_machine_answers():
    assert RaplMeter().status({})
    assert RaplMeter.name == "rapl"

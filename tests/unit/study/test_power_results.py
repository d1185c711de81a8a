"""From readings to results: which channels count, what adds up, what stands beside, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from inferometer.contracts import Channel
from inferometer.meters.merged import HostReadings, MergedReadings
from inferometer.meters.readings import READING, READINGS, FileReadings, Head, MeteredChannel, Readings
from inferometer.records import LoadWindow, PowerResult
from inferometer.study.power import Idle, lacking, parts_for, power_results

S = 1_000_000_000
BEFORE, LOAD, AFTER = (10 * S, 40 * S), (60 * S, 120 * S), (140 * S, 170 * S)
GPU0, GPU1 = "GPU-0", "GPU-1"
RIPPLE = (0.0, 0.3, -0.2, 0.1, -0.2)
Metered = tuple[str, Channel, Callable[[float], float]]


def gpu(part: str) -> list[Channel]:
    def channel(quantity: str, semantics: str = "", primary: bool = False, period_s: float = 0.5) -> Channel:
        return Channel(
            name=f"{quantity} {part}", quantity=quantity, boundary="GPU board", part=part,
            semantics=semantics, period_s=period_s, primary=primary, gain_error=0.05, of_device=True,
        )  # type: ignore[arg-type]  # fmt: skip

    return [
        channel("energy", "counter", primary=True), channel("power", "instantaneous", period_s=0.1),
        channel("temperature"), channel("clock_events"), channel("power_limit"), channel("processes"),
    ]  # fmt: skip


def socket(part: str, boundary: str = "CPU package") -> Channel:
    return Channel(
        name=part,
        quantity="power",
        boundary=boundary,
        part=part,
        semantics="power",
        period_s=0.1,
        primary=True,
    )


def readings(
    folder: Path, named: list[Metered], host: str = "here", ahead_s: int = 0, **refused: str
) -> FileReadings:
    """Each channel's values from 0 to 180 s, as a function of time in seconds, by a clock that is ahead."""
    rows, ahead_ns = [], ahead_s * S
    for place, (_, channel, value) in enumerate(named):
        times = np.arange(0, 180, channel.period_s)
        rows += [(place, int(at * S) + ahead_ns, int(at * S) + ahead_ns + 1000, value(at)) for at in times]
    folder.mkdir(exist_ok=True)
    (folder / READINGS).write_bytes(np.array(rows, READING).tobytes())
    channels = tuple(MeteredChannel(meter, channel) for meter, channel, _ in named)
    found = FileReadings(folder, Head(channels, {"nvml": {"driver": "580"}}, refused, (ahead_ns, 0)), host)
    found.refresh()
    return found


def watts(idle: float, load: float) -> Callable[[float], float]:
    def value(at: float) -> float:
        return (load if 50 <= at < 130 else idle) + RIPPLE[round(at * 10) % len(RIPPLE)]

    return value


def joules(idle: float, load: float) -> Callable[[float], float]:
    return lambda at: idle * at + (load - idle) * min(max(at - 50, 0), 80)


def board(part: str, idle: float, load: float) -> list[Metered]:
    held = [joules(idle, load), watts(idle, load * 1.02), lambda at: 40 + at / 10]
    held += [lambda at: 4.0 if at >= 90 else 0.0, lambda _: 700.0, lambda _: 0.0]
    return [("nvml", channel, value) for channel, value in zip(gpu(part), held, strict=True)]


def load(rate: float = 1000.0) -> LoadWindow:
    return LoadWindow(
        begin_ns=LOAD[0], end_ns=LOAD[1], images=int(rate * 60), images_per_s=rate, u_images_per_s=rate / 1000
    )


def results(
    found: Readings, device: str, *uuids: str | None, **changes: Idle | None
) -> dict[str, PowerResult]:
    idles = {"before": Idle(BEFORE), "after": Idle(AFTER)} | changes
    chosen = parts_for(found, device, {"here": {uuid for uuid in uuids if uuid}})
    made = power_results(found, chosen, load(), idles["before"], idles["after"])
    return {one.boundary: one for one in made}


def test_the_gpus_of_several_ranks_add_up_and_each_is_told(tmp_path: Path) -> None:
    found = readings(tmp_path, [*board(GPU0, 80, 680), *board(GPU1, 70, 300)])
    both = results(found, "cuda", GPU0, GPU1)["GPU board"]
    assert both.parts == (GPU0, GPU1)
    assert both.load_w == pytest.approx(980)
    assert both.net_w == pytest.approx(830)
    assert [(one.part, one.load_w, one.idle_bare_w) for one in both.by_part] == [
        (GPU0, pytest.approx(680), pytest.approx(80)),
        (GPU1, pytest.approx(300), pytest.approx(70)),
    ]
    assert results(found, "cuda:1", GPU1)["GPU board"].by_part == ()


def test_a_trials_own_gpu_counts_and_another_does_not(tmp_path: Path) -> None:
    found = readings(tmp_path, [*board(GPU0, 80, 680), *board(GPU1, 70, 300)])
    own = results(found, "cuda:1", GPU1)["GPU board"]
    assert own.parts == (GPU1,)
    assert own.load_w == pytest.approx(300)
    assert own.idle_bare_w == pytest.approx(70)
    assert own.net_w == pytest.approx(230)
    assert own.images_per_s_per_w == pytest.approx(1000 / 230)
    assert own.j_per_image == pytest.approx(0.23)
    assert own.images_per_s_per_load_w == pytest.approx(1000 / 300)
    assert own.gain_error == 0.05
    assert own.facts == {"driver": "580"}
    assert own.idle_age_s == pytest.approx(20)
    assert own.drift_w == pytest.approx(0, abs=1e-6)


def test_a_trial_on_the_cpu_has_no_gpu_power(tmp_path: Path) -> None:
    found = readings(tmp_path, [*board(GPU0, 80, 680), ("rapl", socket("package-0"), watts(30, 90))])
    assert list(results(found, "cpu", None)) == ["CPU package"]
    both = results(found, "cuda:0", GPU0)
    assert list(both) == ["GPU board", "CPU package"]
    assert both["CPU package"].load_w == pytest.approx(90, abs=0.05)


def test_parts_of_one_boundary_add_up_and_none_may_be_missing(tmp_path: Path) -> None:
    two = [("rapl", socket("package-0"), watts(30, 90)), ("rapl", socket("package-1"), watts(20, 70))]
    found = results(readings(tmp_path, two), "cpu", None)["CPU package"]
    assert found.parts == ("package-0", "package-1")
    assert found.load_w == pytest.approx(160, abs=0.1)
    assert found.idle_bare_w == pytest.approx(50, abs=0.1)
    assert found.net_w == pytest.approx(110, abs=0.1)

    silent = [
        two[0],
        ("rapl", socket("package-1"), lambda at: float("nan") if 80 < at < 100 else 70.0 + at % 1),
    ]
    broken = results(readings(tmp_path / "broken", silent), "cpu", None)["CPU package"]
    assert (broken.load_w, broken.net_w, broken.images_per_s_per_w) == (None, None, None)
    assert broken.idle_before is not None
    assert broken.missing["load"].startswith("package-1: ")
    assert broken.missing["net_w"].startswith("no power under load: package-1: ")


def test_the_other_channel_stands_beside_with_its_disagreement(tmp_path: Path) -> None:
    (beside,) = results(readings(tmp_path, board(GPU0, 80, 680)), "cuda:0", GPU0)["GPU board"].beside
    assert beside.semantics == "instantaneous"
    assert beside.load_w == pytest.approx(680 * 1.02, abs=0.05)
    assert beside.disagreement == pytest.approx(0.02, abs=1e-4)


def test_what_holds_the_clock_is_told_with_its_share(tmp_path: Path) -> None:
    found = results(readings(tmp_path, board(GPU0, 80, 680)), "cuda:0", GPU0)["GPU board"]
    shares = {one.name: (one.share, one.slows) for one in found.conditions}
    assert shares["power limit reached"] == (pytest.approx(0.5, abs=0.01), True)
    assert {share for name, (share, _) in shares.items() if name != "power limit reached"} == {0.0}
    assert found.temperature_c == (pytest.approx(46, abs=0.1), pytest.approx(52, abs=0.1))
    assert found.power_limit_w == 700


def test_an_idle_that_was_none_leaves_no_ratio_but_its_reason(tmp_path: Path) -> None:
    *known, (meter, processes, _) = board(GPU0, 80, 680)
    busy = (meter, processes, lambda at: 1.0 if at < 20 else 0.0)
    other = [*board(GPU1, 70, 300), ("rapl", socket("package-0"), watts(30, 90))]
    found = readings(tmp_path / "busy", [*known, busy, *other])
    fault = "a process holds GPU-0 while it should be idle: end what else runs there"
    one = results(found, "cuda:0", GPU0)["GPU board"]
    assert one.load_w == pytest.approx(680)
    assert (one.idle_bare_w, one.net_w, one.images_per_s_per_w) == (None, None, None)
    assert one.missing["idle_before"] == fault
    assert one.missing["images_per_s_per_w"] == f"no idle power: {fault}"
    beside = results(found, "cuda:1", GPU1)
    assert beside["GPU board"].net_w == pytest.approx(230)
    assert beside["CPU package"].missing["idle_before"] == fault

    found = readings(tmp_path, board(GPU0, 80, 680))
    without = results(found, "cuda:0", GPU0, after=None)["GPU board"]
    assert without.net_w == pytest.approx(600)
    assert without.drift_w is None
    assert without.missing["idle_after"] == "it was not measured"
    late = results(found, "cuda:0", GPU0, before=None)["GPU board"]
    assert late.net_w == pytest.approx(600)


def two_hosts(folder: Path, first: list[Metered], second: list[Metered]) -> MergedReadings:
    """Readings of ``a``, and of ``b`` whose clock is an hour ahead."""
    by_host = {
        "a": HostReadings(readings(folder / "a", first, "a"), 0),
        "b": HostReadings(readings(folder / "b", second, "b", 3600), 3600 * S),
    }
    return MergedReadings(by_host, named=True)


def test_hosts_add_up_on_one_clock(tmp_path: Path) -> None:
    package = socket("package-0")
    found = two_hosts(
        tmp_path,
        [*board(GPU0, 80, 680), ("rapl", package, watts(30, 90))],
        [*board(GPU1, 70, 300), ("rapl", package, watts(20, 50))],
    )
    where = {"a": {GPU0}, "b": {GPU1}}
    chosen = parts_for(found, "cuda", where)
    assert [lacking(found, parts, where) for parts in chosen] == [None, None]
    made = power_results(found, chosen, load(), Idle(BEFORE), Idle(AFTER))
    gpus, packages = made
    assert (gpus.boundary, gpus.parts) == ("GPU board", (GPU0, GPU1))
    assert gpus.net_w == pytest.approx(830)
    assert gpus.temperature_c == (pytest.approx(46, abs=0.1), pytest.approx(52, abs=0.1))
    assert gpus.facts == {"a": {"driver": "580"}, "b": {"driver": "580"}}
    assert (packages.boundary, packages.parts) == ("CPU package", ("a: package-0", "b: package-0"))
    assert packages.net_w == pytest.approx(90, abs=0.1)
    assert [one.load_w for one in packages.by_part] == [
        pytest.approx(90, abs=0.05),
        pytest.approx(50, abs=0.05),
    ]


@pytest.mark.parametrize(
    ("uuids", "why"),
    [
        ({"a": {GPU0}, "b": {GPU1}}, {"DRAM": "b shows none, and ranks ran there too"}),
        (
            {"a": {GPU0}, "b": {GPU1, "GPU-9"}},
            {"GPU board": "GPU-9 is not read, and the trial ran there too"},
        ),
        ({"a": {GPU0}, "b": {"GPU-9"}}, {"GPU board": "b shows none, and ranks ran there too"}),
        ({"a": set(), "b": set()}, {"GPU board": None}),  # the engine does not tell, and each has but one
    ],
)
def test_what_is_not_all_that_a_trial_ran_on_is_told(
    tmp_path: Path, uuids: dict[str, set[str]], why: dict[str, str | None]
) -> None:
    dram = ("rapl", socket("package-0", "DRAM"), watts(5, 9))
    found = two_hosts(tmp_path, [*board(GPU0, 80, 680), dram], board(GPU1, 70, 300))
    reasons = {parts.boundary: lacking(found, parts, uuids) for parts in parts_for(found, "cuda", uuids)}
    assert reasons | why == reasons


def test_one_device_seen_from_two_hosts_does_not_count_twice(tmp_path: Path) -> None:
    found = two_hosts(tmp_path, board(GPU0, 80, 680), board(GPU0, 80, 680))
    where = {"a": {GPU0}, "b": {GPU0}}
    (parts,) = parts_for(found, "cuda", where)
    assert lacking(found, parts, where) == "GPU-0 is read on several hosts: are they one machine?"

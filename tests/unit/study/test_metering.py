"""From readings of several hosts to a trial's record: what counts, and what is said where it is not all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from inferometer.config import PowerSection
from inferometer.meters.merged import APART_S, HostReadings, MergedReadings
from inferometer.meters.readings import Readings
from inferometer.records import LoadWindow, Outcome, RankResult
from inferometer.store import read_sidecar
from inferometer.study.metering import Metering
from inferometer.study.power import Idle
from inferometer.trials.spec import PowerTask, TrialSpec
from tests.unit.study.test_power_results import (
    AFTER,
    BEFORE,
    GPU0,
    GPU1,
    LOAD,
    Metered,
    S,
    board,
    readings,
    socket,
    watts,
)
from tests.unit.study.watcher import Remembering
from tests.unit.test_worker import spec

__all__ = ["spec"]

SECTION = PowerSection.model_validate({"meters": [{"meter": "nvml"}, {"meter": "rapl"}]})
PACKAGE: Metered = ("rapl", socket("package-0"), watts(30, 90))


@dataclass
class Given:
    """In the samplers' place: readings made by hand."""

    readings: Readings
    running = True

    def close(self) -> None:
        pass


def metering(folder: Path, spec: TrialSpec, *, wall_apart_s: float = 0.0, **refused: str) -> Metering:
    """Of host ``a``, a minute ahead of this one, and ``b``, an hour ahead of ``a``; ``refused``: on ``b``."""
    first = readings(folder / "a", [*board(GPU0, 80, 680), PACKAGE], "a", 60)
    second = [*board(GPU1, 70, 300), *([] if "rapl" in refused else [PACKAGE])]
    by_host = {
        "a": HostReadings(first, 60 * S),
        "b": HostReadings(
            readings(folder / "b", second, "b", 3660, **refused), int((3660 + wall_apart_s) * S)
        ),
    }
    found = Metering(SECTION, [], Path(spec.folder), Remembering(), "mpiexec -n {ranks} {command}", 2)
    found._sampler = Given(MergedReadings(by_host, {"c": "c: no meter"}, named=True))  # type: ignore[assignment]
    found._before, found._after = Idle(BEFORE), Idle(AFTER)
    return found


def asked(spec: TrialSpec) -> TrialSpec:
    task = PowerTask(section=SECTION, min_s=60, idle_loaded_s=0)
    return spec.model_copy(update={"power": task, "trial": spec.trial.model_copy(update={"device": "cuda"})})


def ran(*ranks: tuple[str, str, float]) -> Outcome:
    """A trial whose ranks ran on a host, on an accelerator, with a clock ahead of the first one's."""
    told = [
        RankResult(
            rank=number, host=host, device="cuda:0", uuid=uuid, cores=None, images_per_s=None,
            median_latency_s=None, skew_s=None, load_s=None, host_peak_bytes=None, device_peak_bytes=None,
            clock_offset_s=offset_s, clock_u_s=1e-5,
        )
        for number, (host, uuid, offset_s) in enumerate(ranks)
    ]  # fmt: skip
    ahead_ns = {"a": 60 * S, "b": 3660 * S, "c": 0}[ranks[0][0]]
    window = LoadWindow(
        begin_ns=LOAD[0] + ahead_ns, end_ns=LOAD[1] + ahead_ns, images=60_000, images_per_s=1000,
        u_images_per_s=1.0,
    )  # fmt: skip
    return Outcome(status="ok", ranks=tuple(told), load_window=window)


def test_a_trial_on_both_hosts_has_the_sum_of_both(tmp_path: Path, spec: TrialSpec) -> None:
    outcome = ran(("a", GPU0, 0.0), ("b", GPU1, 3600.0))
    done = metering(tmp_path, spec).completed(asked(spec), outcome)
    assert done.missing == {}
    assert done.power is not None
    gpus, packages = done.power
    assert (gpus.parts, gpus.net_w) == ((GPU0, GPU1), pytest.approx(830))
    assert (packages.parts, packages.net_w) == (("a: package-0", "b: package-0"), pytest.approx(120, abs=0.2))
    assert gpus.load is not None
    assert gpus.idle_before is not None
    assert (gpus.load.begin_ns, gpus.idle_before.begin_ns) == (LOAD[0] + 60 * S, BEFORE[0] + 60 * S)
    (sidecar,) = done.sidecars
    assert read_sidecar(Path(spec.folder), sidecar)


@pytest.mark.parametrize(("host", "uuid", "net_w"), [("a", GPU0, 600), ("b", GPU1, 230)])
def test_a_host_that_did_nothing_is_no_part_of_a_trial(
    tmp_path: Path, spec: TrialSpec, host: str, uuid: str, net_w: float
) -> None:
    done = metering(tmp_path, spec).completed(asked(spec), ran((host, uuid, 0.0)))
    assert done.missing == {}
    assert done.power is not None
    gpus, packages = done.power
    assert (gpus.parts, gpus.net_w) == ((uuid,), pytest.approx(net_w))
    assert packages.parts == (f"{host}: package-0",)
    assert packages.net_w == pytest.approx(60, abs=0.1)


def test_a_meter_that_one_host_refused_has_no_sum(tmp_path: Path, spec: TrialSpec) -> None:
    found = metering(tmp_path, spec, rapl="no permission")
    both = found.completed(asked(spec), ran(("a", GPU0, 0.0), ("b", GPU1, 3600.0)))
    assert both.missing == {"power.rapl": "b: no permission"}
    assert [one.boundary for one in both.power or ()] == ["GPU board"]
    alone = found.completed(asked(spec), ran(("a", GPU0, 0.0)))
    assert alone.missing == {}
    assert [one.boundary for one in alone.power or ()] == ["GPU board", "CPU package"]


def test_a_device_that_is_not_read_leaves_the_sum_out(tmp_path: Path, spec: TrialSpec) -> None:
    outcome = ran(("a", GPU0, 0.0), ("b", "GPU-9", 3600.0))
    done = metering(tmp_path, spec).completed(asked(spec), outcome)
    assert done.missing == {"power.nvml (GPU board)": "b shows none, and ranks ran there too"}
    assert [one.boundary for one in done.power or ()] == ["CPU package"]


def test_where_nothing_is_left_the_reasons_stand_for_power(tmp_path: Path, spec: TrialSpec) -> None:
    found = metering(tmp_path, spec, rapl="no permission")
    done = found.completed(asked(spec), ran(("a", GPU0, 0.0), ("b", "GPU-9", 3600.0)))
    assert done.power is None
    assert done.missing["power"] == (
        "no meter of the study reads all that this trial ran on; rapl: b: no permission;"
        " nvml (GPU board): b shows none, and ranks ran there too"
    )
    lost = found.completed(asked(spec), ran(("c", GPU0, 0.0)))
    assert (lost.power, lost.missing) == (None, {"power": "c: no meter"})


def test_clocks_that_do_not_agree_leave_no_power(tmp_path: Path, spec: TrialSpec) -> None:
    found = metering(tmp_path, spec, wall_apart_s=0.5)
    done = found.completed(asked(spec), ran(("a", GPU0, 0.0), ("b", GPU1, 3600.0)))
    assert done.power is None
    assert done.missing["power"].startswith("the wall clocks of a and b are 0.50 s apart")


def test_an_idle_is_read_for_as_long_as_a_trial_may_place_it_on_any_host(
    tmp_path: Path, spec: TrialSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, awaited = metering(tmp_path, spec), list[int]()
    monkeypatch.setattr(found, "_await", awaited.append)
    assert found._idle(0.0, 170 * S).span == (170 * S, 170 * S)
    assert awaited == [170 * S + int(APART_S * 1e9)]


def test_only_devices_that_trials_ran_on_decide_when_power_has_settled(
    tmp_path: Path, spec: TrialSpec
) -> None:
    found = metering(tmp_path, spec)
    primary = [one.channel for one in found.readings.head.channels if one.channel.primary]
    assert all(found._counts(one) for one in primary)  # as long as none is known
    found._section = SECTION.model_copy(update={"settle_max_s": 0.0})
    found._idle = lambda *_: Idle(AFTER)  # type: ignore[method-assign]
    found.after([ran(("b", GPU1, 0.0))])
    assert [one.part for one in primary if found._counts(one)] == ["a: package-0", GPU1, "b: package-0"]

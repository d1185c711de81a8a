"""One outcome of a trial from those of its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.environment.differences import differences
from inferometer.environment.load import CpuClock, load_between
from inferometer.errors import InferometerError, StoreError
from inferometer.joint import joint, joint_load_window, shifted
from inferometer.measure import Measurement, latency_of
from inferometer.ranks import RankLost
from inferometer.records import HOSTS_DIFFER, LoadWindow, Memory, Outcome, RankResult, Sidecar, Status
from inferometer.store import read_sidecar
from inferometer.trials.accuracy import joined as joined_shards
from inferometer.trials.accuracy import read_shard, shard_path
from inferometer.trials.spec import TrialSpec
from inferometer.trials.speed import read_stamps

__all__ = ["joined"]

# Of several ranks that failed in several ways, the one that says most.
_WORST: tuple[Status, ...] = ("out_of_memory", "unsupported", "failed", "timeout")


def joined(spec: TrialSpec, ranks: Sequence[Outcome]) -> Outcome:
    """Put the outcomes of all ranks together, in the order of the ranks.

    Raises:
        StoreError: What the ranks wrote cannot be read, or what it makes together cannot be written.
    """
    broken = _broken(ranks)
    if broken is not None:
        return broken
    first = ranks[0]
    told = [one.ranks[0] for one in ranks]
    try:
        made, results = _figures(spec, ranks, told)
    except StoreError:  # no trial can end well then
        raise
    except InferometerError as error:
        return Outcome(status="failed", reason=str(error), error=type(error).__name__)
    except ValueError as error:
        return Outcome(status="failed", reason=str(error))
    apart = _apart(ranks, told)
    session = {**(first.session or {}), HOSTS_DIFFER: apart} if apart else first.session
    missing: dict[str, str] = {}
    for one in reversed(ranks):
        missing |= one.missing
    if first.precision_mac_share is not None:
        missing.pop("precision_mac_share", None)
    update: dict[str, Any] = {
        "ranks": tuple(results),
        "memory": _largest(ranks),
        "load_s": max((one.load_s for one in ranks if one.load_s is not None), default=None),
        "compile_s": max((one.compile_s for one in ranks if one.compile_s is not None), default=None),
        "session": session,
        "state": _state(ranks, told),
        "sidecars": tuple(sidecar for one in ranks for sidecar in one.sidecars),
        "missing": missing,
    }
    if first.feeding is not None:
        update["feeding"] = _feeding(ranks)
    update |= made
    update["sidecars"] = (*update["sidecars"], *made.get("more", ()))
    update.pop("more", None)
    return first.model_copy(update=update)


def _broken(ranks: Sequence[Outcome]) -> Outcome | None:
    """The outcome of a trial that some rank could not do."""
    bad = [(rank, one) for rank, one in enumerate(ranks) if one.status != "ok"]
    own = [(rank, one) for rank, one in bad if one.error != RankLost.__name__] or bad
    if not own:
        return None
    rank, worst = min(own, key=lambda item: _WORST.index(item[1].status))
    host = worst.ranks[0].host if worst.ranks else "?"
    where = (
        f"rank {rank}"
        if len({one.ranks[0].host for one in ranks if one.ranks}) < 2
        else f"rank {rank} on {host}"
    )
    facts = ranks[0]
    return worst.model_copy(
        update={
            "reason": f"{where}: {worst.reason}",
            "ranks": (),
            "probe": facts.probe,
            "state": facts.state,
            "environment": facts.environment,
        }
    )


def _figures(
    spec: TrialSpec, ranks: Sequence[Outcome], told: Sequence[RankResult]
) -> tuple[dict[str, Any], list[RankResult]]:
    """What the kind of trial measures, and each rank's part in it."""
    kind, folder = spec.trial.kind, Path(spec.folder)
    if kind == "accuracy":
        shards = [read_shard(shard_path(spec, rank).read_bytes()) for rank in range(len(ranks))]
        for rank in range(len(ranks)):
            shard_path(spec, rank).unlink(missing_ok=True)
        accuracy, sidecar = joined_shards(spec, shards)
        return {"accuracy": accuracy, "more": (sidecar,)}, list(told)
    measured = [_measured(spec, folder, one) for one in ranks]
    if kind == "latency":
        segments = tuple(segment for one in measured for segment in one.segments)
        pooled = latency_of(replace(measured[0], segments=segments))
        own = [latency_of(one).p50 for one in measured]
        results = [
            one.model_copy(update={"median_latency_s": p50}) for one, p50 in zip(told, own, strict=True)
        ]
        return {"latency_s": pooled}, results
    found = joint(measured)
    results = [
        one.model_copy(update={"images_per_s": rate, "skew_s": skew})
        for one, rate, skew in zip(told, found.rates, found.skews_s, strict=True)
    ]
    made: dict[str, Any] = {"throughput": found.throughput}
    if spec.power is not None:
        idle = _common_idle([one.load_window for one in ranks], told)
        window = joint_load_window(measured, found.throughput)
        made["load_window"] = window.model_copy(update={"idle_loaded": idle})
    return made, results


def _measured(spec: TrialSpec, folder: Path, outcome: Outcome) -> Measurement:
    """A rank's time stamps, on the clock of the first rank's host."""
    sidecar = _stamps_of(outcome)
    in_flight = outcome.throughput.in_flight if outcome.throughput else 1
    steady = outcome.throughput.warmup_steady if outcome.throughput else True
    assert spec.trial.batch is not None
    own = read_stamps(read_sidecar(folder, sidecar), spec.trial.batch, in_flight, steady)
    return shifted(own, outcome.ranks[0].clock_offset_s)


def _stamps_of(outcome: Outcome) -> Sidecar:
    return next(one for one in outcome.sidecars if one.path.endswith(".stamps.npz"))


def _common_idle(windows: Sequence[LoadWindow | None], told: Sequence[RankResult]) -> tuple[int, int] | None:
    """The time in which every rank was loaded and idle."""
    spans = [
        tuple(int(end - one.clock_offset_s * 1e9) for end in window.idle_loaded)
        for window, one in zip(windows, told, strict=True)
        if window is not None and window.idle_loaded is not None
    ]
    if len(spans) < len(windows):
        return None
    begin, end = max(span[0] for span in spans), min(span[1] for span in spans)
    return (begin, end) if end > begin else None


def _largest(ranks: Sequence[Outcome]) -> Memory | None:
    """Of the rank that needed most."""
    known = [one.memory for one in ranks if one.memory is not None]

    def most(name: str) -> int | None:
        return max((value for one in known if (value := getattr(one, name)) is not None), default=None)

    if not known:
        return None
    return Memory(device_peak_bytes=most("device_peak_bytes"), host_peak_bytes=most("host_peak_bytes"))


def _feeding(ranks: Sequence[Outcome]) -> Any:
    """Of all ranks: shares are means, rates add up, and the worst bottleneck counts."""
    found = [one.feeding for one in ranks if one.feeding is not None]
    alone = [one.images_per_s for one in found]
    order = ("device", "both", "images")
    return found[0].model_copy(
        update={
            "images": sum(one.images for one in found),
            "wait_share": float(np.mean([one.wait_share for one in found])),
            "prepare_share": float(np.mean([one.prepare_share for one in found])),
            "images_per_s": None if None in alone else float(sum(one for one in alone if one is not None)),
            "bottleneck": max((one.bottleneck for one in found), key=order.index),
        }
    )


def _state(ranks: Sequence[Outcome], told: Sequence[RankResult]) -> dict[str, Any] | None:
    """That of the first rank's host, in which its other ranks are no load by others."""
    first = ranks[0].state
    near = [
        outcome.state
        for outcome, one in zip(ranks, told, strict=True)
        if one.host == told[0].host and outcome.state
    ]
    if first is None or len(near) < 2:
        return first

    def clock(when: str) -> CpuClock:
        own_s = sum(float(one[when]["clock"]["own_s"]) for one in near)
        return CpuClock.model_validate(first[when]["clock"]).model_copy(update={"own_s": own_s})

    load = load_between(clock("before"), clock("after"))
    return {**first, "load": load.model_dump(mode="json")}


def _apart(ranks: Sequence[Outcome], told: Sequence[RankResult]) -> list[str]:
    """In what the hosts differ from the first rank's."""
    hosts: dict[str, Mapping[str, Any]] = {}
    for outcome, one in zip(ranks, told, strict=True):
        if outcome.environment is not None:
            hosts.setdefault(one.host, outcome.environment)
    (first, base), *others = hosts.items() or [("", {})]
    return [
        f"{name}: {ours} on {first}, {theirs} on {host}"
        for host, environment in others
        for name, ours, theirs in differences(base, environment)
    ]

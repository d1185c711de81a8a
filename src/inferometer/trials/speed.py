"""Throughput and latency trials: one session, one batch, seeded feeds, raw stamps kept."""

from __future__ import annotations

import json
import time
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

import numpy as np

from inferometer.contracts import ExecutedLayer, Session
from inferometer.data.synthetic import synthetic_feeds
from inferometer.measure import (
    ONE_RANK,
    Measurement,
    Segment,
    Together,
    WarmUp,
    latency_of,
    load_window_of,
    measure_latency,
    measure_throughput,
    throughput_of,
)
from inferometer.records import Feeding, Latency, LoadWindow, Outcome, Sidecar, Throughput
from inferometer.store import arrays, write_sidecar
from inferometer.trials.feeding import FedSession, fed, feeding_of
from inferometer.trials.session import open_session, what_it_tells
from inferometer.trials.spec import PowerTask, TrialSpec

__all__ = ["mac_share", "read_stamps", "run_speed"]

# An NVIDIA H200 fell from 691 W of load to 123 W of idle with a context open within 2 s.
_SETTLE_S = 3.0


def run_speed(spec: TrialSpec, together: Together = ONE_RANK, rank: int | None = None) -> Outcome:
    """Measure one point; ``spec.trial.kind`` says whether throughput or latency.

    Args:
        spec: The trial.
        together: The ranks of a trial of several.
        rank: Which of them this is; None: the only one. The first alone reads back what ran.
    """
    batch = spec.trial.batch
    assert batch is not None, "planning gives every speed trial a batch"
    opened = open_session(spec, batch)
    window: LoadWindow | None = None
    feeding: Feeding | None = None
    with opened.session as session:
        feeds = synthetic_feeds(session.inputs, spec.seed, ranges=spec.ranges)
        for slot in range(session.in_flight):
            session.prepare(slot, feeds)
        with fed(spec, session, batch, rank or 0) if spec.feed else nullcontext(session) as driven:
            if spec.trial.kind == "latency":
                measurement = measure_latency(driven, batch, spec.measure, together)
            else:
                together.begin()
                idle = _idle(spec.power)
                min_s = spec.power.min_s if spec.power else 0.0
                measurement = measure_throughput(driven, batch, spec.measure, min_s, together)
                if spec.power is not None:
                    window = load_window_of(measurement).model_copy(update={"idle_loaded": idle})
            memory, missing = opened.peak.taken(spec.trial.device, session.device_peak_bytes())
            together.all(True)  # what follows is untimed, and the others still run
            if isinstance(driven, FedSession):
                feeding = feeding_of(driven, measurement, together, on_cpu=spec.trial.device == "cpu")
        stamps = _stamps(spec, measurement, rank)
        share, layers, unread = _what_ran(spec, session, rank)
        told, untold = what_it_tells(session)  # reading back may have added to it
    throughput = throughput_of(measurement) if spec.trial.kind == "throughput" else None
    latency = latency_of(measurement) if spec.trial.kind == "latency" else None
    missing |= unread | untold | _too_few(throughput, latency)
    return Outcome(
        status="ok",
        throughput=throughput,
        latency_s=latency,
        memory=memory,
        load_window=window,
        feeding=feeding,
        load_s=opened.load_s,
        compile_s=told.compile_s,
        session=told.session,
        calibration=opened.calibration,
        precision_mac_share=share,
        sidecars=(stamps, *layers),
        missing=missing,
    )


def _idle(task: PowerTask | None) -> tuple[int, int] | None:
    """Do nothing with the model loaded, for as long as power wants it; begin and end, CLOCK_MONOTONIC ns."""
    if task is None or not task.idle_loaded_s:
        return None
    time.sleep(_SETTLE_S)  # of loading
    begin_ns = time.monotonic_ns()
    time.sleep(task.idle_loaded_s)
    return begin_ns, time.monotonic_ns()


def _what_ran(
    spec: TrialSpec, session: Session, rank: int | None
) -> tuple[dict[str, float] | None, tuple[Sidecar, ...], dict[str, str]]:
    """The share of the multiply-accumulates by precision, the layers' sidecar, and why either lacks."""
    if rank:
        return None, (), {"precision_mac_share": "read back by the first rank"}
    if spec.detail == "none":
        where = "throughput trials" if spec.trial.kind == "latency" else "first repeat of this point"
        return None, (), {"precision_mac_share": f"read back in the {where}"}
    layers = session.executed()
    share = mac_share(layers)
    unknown = {"precision_mac_share": "the engine does not tell what ran"} if share is None else {}
    return share, (_layers(spec, session, layers),), unknown


def _too_few(throughput: Throughput | None, latency: Latency | None) -> dict[str, str]:
    """What too few calls did not give."""
    missing = {}
    if throughput is not None and throughput.ci95 is None:
        missing["throughput.ci95"] = f"{len(throughput.windows)} windows are too few for an interval"
    if latency is not None:
        for name in ("p50", "p90", "p95", "p99"):
            if getattr(latency, name) is None:
                missing[f"latency_s.{name}"] = f"{latency.n} calls are too few for this percentile"
    return missing


def mac_share(layers: Sequence[ExecutedLayer]) -> dict[str, float] | None:
    """Share of the multiply-accumulates by the precision that ran; None when the engine does not tell."""
    macs: dict[str, int] = defaultdict(int)
    for layer in layers:
        if layer.macs is None:
            return None
        macs[layer.precision] += layer.macs
    total = sum(macs.values())
    if total == 0:
        return None
    return {precision: count / total for precision, count in sorted(macs.items()) if count}


def read_stamps(content: bytes, batch: int, in_flight: int, steady: bool) -> Measurement:
    """A measurement from its sidecar, and from what the rank's own figures tell.

    Raises:
        ValueError: It is none.
    """
    try:
        with np.load(BytesIO(content), allow_pickle=False) as data:
            submitted, completed, segment = (
                data[name] for name in ("submitted_ns", "completed_ns", "segment")
            )
            warmups, count = int(data["warmup_segments"]), int(segment[-1]) + 1
    except (KeyError, IndexError, zipfile.BadZipFile) as error:
        raise ValueError(f"no time stamps: {error}") from error
    parts = [Segment(submitted[segment == one], completed[segment == one]) for one in range(count)]
    return Measurement(WarmUp(tuple(parts[:warmups]), steady), tuple(parts[warmups:]), batch, in_flight)


def _stamps(spec: TrialSpec, measurement: Measurement, rank: int | None) -> Sidecar:
    """All submission and completion times, warm-up included, and which segment each belongs to."""
    parts = [*measurement.warmup.segments, *measurement.segments]
    content = arrays(
        submitted_ns=np.concatenate([part.submitted for part in parts]),
        completed_ns=np.concatenate([part.completed for part in parts]),
        segment=np.repeat(np.arange(len(parts)), [part.calls for part in parts]),
        warmup_segments=np.array(len(measurement.warmup.segments)),
    )
    name = f"{spec.id}.stamps.npz" if rank is None else f"{spec.id}.rank{rank}.stamps.npz"
    return write_sidecar(Path(spec.folder), name, content)


def _layers(spec: TrialSpec, session: Session, layers: Sequence[ExecutedLayer]) -> Sidecar:
    content = {
        "executed": [asdict(layer) for layer in layers],
        "profile": [asdict(layer) for layer in session.profile()] if spec.detail == "profile" else None,
    }
    text = json.dumps(content, separators=(",", ":")) + "\n"
    return write_sidecar(Path(spec.folder), f"{spec.id}.layers.json", text.encode())

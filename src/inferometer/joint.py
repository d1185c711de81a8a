"""Several ranks as one measurement: what all of them did in the time in which all of them ran.

Each rank's calls are a curve, images done by time, straight between the moments at which whole rounds were
done. A segment counts from when the last rank's pipeline was full to when the first one's last round was
done; the sum of the curves over that time is what the devices delivered together. Pure: stamps in, figures
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from inferometer.measure import Measurement, Segment
from inferometer.records import LoadWindow, Throughput
from inferometer.stats import rate_interval

__all__ = ["Joint", "joint", "joint_load_window", "shifted"]

_WINDOWS = 20  # pieces of a whole run, as of one rank
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Joint:
    """What ranks did together.

    Attributes:
        throughput: Of all ranks.
        rates: Images/s of each rank in the same time.
        skews_s: How much later than the first of them each rank made its first call, at most of all segments.
    """

    throughput: Throughput
    rates: tuple[float, ...]
    skews_s: tuple[float, ...]


@dataclass(frozen=True)
class _Curve:
    """Images done by one rank in one segment: ``images`` at ``times`` (ns), both ``[points] float64``."""

    times: Floats
    images: Floats

    def at(self, times: Floats) -> Floats:
        return np.interp(times, self.times, self.images)


def shifted(measurement: Measurement, offset_s: float) -> Measurement:
    """The same on a clock that is behind by ``offset_s``: of another host."""
    by = np.int64(round(offset_s * 1e9))
    segments = tuple(Segment(one.submitted - by, one.completed - by) for one in measurement.segments)
    return replace(measurement, segments=segments)


def joint(measurements: Sequence[Measurement]) -> Joint:
    """Put ranks together; all on one clock, with the same number of segments.

    Raises:
        ValueError: In no segment did all of them run at the same time.
    """
    per_segment = list(zip(*(_curves(one) for one in measurements), strict=True))
    spans = [_span(curves) for curves in per_segment]
    if not any(end > begin for begin, end in spans):
        raise ValueError("the ranks never ran at the same time")
    seconds = sum(max(0.0, end - begin) for begin, end in spans) * 1e-9
    own = np.zeros(len(measurements))
    windows: list[float] = []
    for curves, (begin, end) in zip(per_segment, spans, strict=True):
        if end <= begin:
            continue
        edges = np.linspace(begin, end, _pieces(curves, end - begin, len(spans)) + 1)
        done = np.array([np.diff(curve.at(edges)) for curve in curves])
        own += done.sum(axis=1)
        windows += [float(value) for value in done.sum(axis=0) / (np.diff(edges) * 1e-9)]
    images = float(own.sum())
    warmups = [one.warmup for one in measurements]
    first = measurements[0]
    return Joint(
        Throughput(
            images_per_s=images / seconds,
            median_images_per_s=float(np.median(windows)),
            ci95=rate_interval(round(images), seconds, windows),
            ci_kind="within_run",
            windows=tuple(windows),
            in_flight=first.in_flight,
            images=round(images),
            seconds=seconds,
            warmup_calls=sum(one.calls for one in warmups),
            warmup_steady=all(one.steady for one in warmups),
        ),
        tuple(float(value) for value in own / seconds),
        tuple(float(value) for value in _skews_s(measurements)),
    )


def joint_load_window(measurements: Sequence[Measurement], throughput: Throughput) -> LoadWindow:
    """From when all pipelines were full to when the first rank's last round was done, pauses included."""
    curves = [_curves(one) for one in measurements]
    begin_ns = int(max(one[0].times[0] for one in curves))
    end_ns = int(min(one[-1].times[-1] for one in curves))
    images = 0
    for one in measurements:
        completed = np.concatenate([segment.completed for segment in one.segments])
        images += int(((completed > begin_ns) & (completed <= end_ns)).sum()) * one.batch
    rate = images / ((end_ns - begin_ns) * 1e-9)
    half = None if throughput.ci95 is None else (throughput.ci95[1] - throughput.ci95[0]) / 2
    # Half of a 95 % interval is about two standard uncertainties.
    u = None if half is None else half / 2 * rate / throughput.images_per_s
    return LoadWindow(begin_ns=begin_ns, end_ns=end_ns, images=images, images_per_s=rate, u_images_per_s=u)


def _curves(measurement: Measurement) -> list[_Curve]:
    slots, batch = measurement.in_flight, measurement.batch
    found = []
    for segment in measurement.segments:
        times = segment.edges(slots)[::slots].astype(np.float64)
        found.append(_Curve(times, np.arange(len(times), dtype=np.float64) * (slots * batch)))
    return found


def _span(curves: Sequence[_Curve]) -> tuple[float, float]:
    return max(float(one.times[0]) for one in curves), min(float(one.times[-1]) for one in curves)


def _pieces(curves: Sequence[_Curve], length_ns: float, segments: int) -> int:
    """Windows of a segment: about 20 in the whole run, none shorter than the longest round."""
    longest_ns = max(float(np.diff(one.times).max()) for one in curves)
    return max(1, min(-(-_WINDOWS // segments), int(length_ns / max(longest_ns, 1.0))))


def _skews_s(measurements: Sequence[Measurement]) -> Floats:
    first = np.array([[segment.submitted.min() for segment in one.segments] for one in measurements])
    return np.asarray((first - first.min(axis=0)).max(axis=1) * 1e-9)

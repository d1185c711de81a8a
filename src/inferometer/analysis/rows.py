"""The frozen rows that analyses hand to reports: numbers and verdicts, no formatting.

Plain dataclasses of plain values throughout, so that ``dataclasses.asdict`` of a summary is JSON.
Rates are in images/s, times in seconds, sizes in bytes; shares, ``top1``, ``top5`` and ``delta`` are
fractions. An interval is 95 % and two-sided. What is not known is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from inferometer.analysis.setup import Setup
from inferometer.records import Precision, Status

if TYPE_CHECKING:
    from inferometer.analysis.feeding import FeedingRow
    from inferometer.analysis.loadgen import LoadGenRow
    from inferometer.analysis.power import PowerRow
    from inferometer.analysis.power_gains import PowerGain
    from inferometer.analysis.scaling_rows import ScalingRow

__all__ = [
    "AccuracyRow",
    "CalibrationRow",
    "DifferenceRow",
    "Fact",
    "Finding",
    "LatencyRepeat",
    "LatencyRow",
    "Machine",
    "MachineChange",
    "ModelRow",
    "NotMeasured",
    "Proportion",
    "Setup",
    "SpeedUp",
    "SpeedVerdict",
    "Summary",
    "ThroughputRow",
]

SpeedVerdict = Literal[
    "faster",
    "slower",
    "no difference seen",
    "one repeat: no verdict",
    "inconclusive: machine changed",
]


@dataclass(frozen=True)
class ThroughputRow:
    """Images/s of one setup.

    Attributes:
        setup: Which one.
        status: ``ok`` when at least one repeat gave a rate, else that of the last repeat.
        reason: Why there is no rate, or why some repeats gave none.
        repeats: Images/s of each repeat that ran, in the order of the repeats.
        calls: Timed calls of all these repeats together.
        mean: Arithmetic mean of ``repeats``.
        median: Their median.
        interval: Of ``ci_kind``.
        ci_kind: ``between_repeats`` (t interval of the mean) with two repeats or more; with one its own
            ``within_run`` interval, which supports no verdict.
        mac_share: Least share of the MACs that ran at the precision asked for.
        mac_share_missing: Why ``mac_share`` is None.
        host_peak_bytes: Largest of the repeats.
        device_peak_bytes: Largest of the repeats.
        load_s: Median of the repeats.
        record_ids: The trials behind it.
    """

    setup: Setup
    status: Status
    reason: str | None
    repeats: tuple[float, ...]
    calls: int
    mean: float | None
    median: float | None
    interval: tuple[float, float] | None
    ci_kind: Literal["between_repeats", "within_run"] | None
    mac_share: float | None
    mac_share_missing: str | None
    host_peak_bytes: int | None
    device_peak_bytes: int | None
    load_s: float | None
    record_ids: tuple[str, ...]


@dataclass(frozen=True)
class MachineChange:
    """How far the machine's fixed probe moved between sets of trials, as medians over each set.

    Attributes:
        change: Highest median / lowest median - 1, of the probe that moved most in proportion to its limit;
            None when the readings do not compare.
        limit: Above it the machine counts as changed.
        probe: That probe's name.
        low: Its lowest median, bytes/s.
        high: Its highest.
        readings: How many there were in all.
        reason: Why the readings do not compare: then the machine counts as changed.
    """

    change: float | None
    limit: float | None
    probe: str | None
    low: float | None
    high: float | None
    readings: int
    reason: str | None = None

    @property
    def severity(self) -> float:
        """``change`` over ``limit``; infinite when the readings do not compare."""
        if self.change is None or self.limit is None:
            return math.inf
        return self.change / self.limit

    @property
    def changed(self) -> bool:
        """Whether the machine counts as changed."""
        return self.severity > 1


@dataclass(frozen=True)
class SpeedUp:
    """A precision against ``baseline`` in otherwise the same setup.

    Attributes:
        setup: The faster or slower one.
        baseline: The precision it is compared with.
        ratio: Images/s over those of the baseline: geometric means of the repeats.
        interval: Welch's, on logarithms; None with one repeat on a side.
        p: Two-sided, corrected by Holm for the number of ratios in the summary.
        repeats: How many the baseline has, and how many this one.
        verdict: What may be said of it.
        machine_change: How far the machine's probe differed between the two; None without a probe.
        held: The machine changed, and interval and p are also those of the ratio with it held at one state.
        mac_share: Share of the MACs that ran at this precision.
        baseline_mac_share: Share of the baseline's MACs that ran at the baseline's precision.
        baseline_ids: The trials behind the baseline.
        own_ids: Those behind this one.
    """

    setup: Setup
    baseline: Precision
    ratio: float
    interval: tuple[float, float] | None
    p: float | None
    repeats: tuple[int, int]
    verdict: SpeedVerdict
    machine_change: MachineChange | None
    held: bool
    mac_share: float | None
    baseline_mac_share: float | None
    baseline_ids: tuple[str, ...]
    own_ids: tuple[str, ...]


@dataclass(frozen=True)
class LatencyRepeat:
    """Seconds per request in one repeat, of ``n`` requests; a percentile is None with too few of them."""

    min: float
    mean: float
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float
    n: int


@dataclass(frozen=True)
class LatencyRow:
    """Seconds per request of one setup, one request at a time.

    Each of ``p50``, ``p90``, ``p95``, ``p99`` and ``mean`` is the median over the repeats; a percentile
    is None unless every repeat had enough calls for it. ``calls`` are all repeats' together. ``mac_share`` is
    the share of the MACs at the precision asked for, by the throughput trials of the same setup.
    """

    setup: Setup
    status: Status
    reason: str | None
    repeats: tuple[LatencyRepeat, ...]
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    mean: float | None
    min: float | None
    max: float | None
    calls: int
    mac_share: float | None
    record_ids: tuple[str, ...]


@dataclass(frozen=True)
class Proportion:
    """A share of images with its Wilson interval."""

    value: float
    lo: float
    hi: float


@dataclass(frozen=True)
class AccuracyRow:
    """Top-1 and top-5 of one setup on ``images`` images.

    ``excluded`` images had served the calibration, ``skipped`` could not be decoded. ``mac_share`` is as in
    `LatencyRow`.
    """

    setup: Setup
    status: Status
    reason: str | None
    images: int | None
    classes: int | None
    top1: Proportion | None
    top5: Proportion | None
    excluded: int | None
    skipped: int | None
    skipped_files: tuple[str, ...]
    mac_share: float | None
    record_id: str


@dataclass(frozen=True)
class DifferenceRow:
    """Two accuracy trials, ``a`` and ``b``, on the same images.

    Attributes:
        setup_a: What ``b`` is held against.
        setup_b: What is judged.
        metric: ``top1`` or ``top5``.
        images: Images that both have seen.
        only_a: Images that only ``a`` got right.
        only_b: Images that only ``b`` got right.
        delta: Accuracy of ``b`` minus that of ``a``.
        interval: Of ``delta``.
        p: McNemar's.
        verdict: In words.
        images_to_settle: About how many more images would settle it; None when it is settled, or
            when there is nothing to settle.
        agreement: Share of the images to which both give the same first class.
        left_out: Images that only one of them has seen, or whose labels differ.
        mac_shares: Of ``a`` and of ``b``, as in `LatencyRow`.
        record_ids: The two trials.
    """

    setup_a: Setup
    setup_b: Setup
    metric: Literal["top1", "top5"]
    images: int
    only_a: int
    only_b: int
    delta: float
    interval: tuple[float, float]
    p: float
    verdict: str
    images_to_settle: int | None
    agreement: float
    left_out: int
    mac_shares: tuple[float | None, float | None]
    record_ids: tuple[str, str]


@dataclass(frozen=True)
class ModelRow:
    """One model file: content hash, multiply-accumulates per image, parameters."""

    model: str
    sha256: str
    macs: int | None
    parameters: int | None


@dataclass(frozen=True)
class CalibrationRow:
    """Where the activation ranges of a model's INT8 form came from (see ``records.CalibrationInfo``)."""

    model: str
    engine: str
    source: Literal["images", "synthetic", "cache", "model"]
    method: str | None
    images: int | None
    scheme: str | None
    weight_bits: int | None
    table_sha256: str | None
    reason: str | None


@dataclass(frozen=True)
class NotMeasured:
    """Trials of one setup that gave no number, and why; ``trials`` of them."""

    kind: str
    setup: Setup
    status: Status
    reason: str | None
    trials: int


@dataclass(frozen=True)
class Fact:
    """One fact about a machine in words; ``value`` None is not known, and ``reason`` says why."""

    name: str
    value: str | None
    reason: str | None = None


@dataclass(frozen=True)
class Machine:
    """One machine that records come from.

    ``key`` tells machines apart, ``title`` is one line for people, ``trials`` how many records it gave,
    ``int8_dot`` whether its CPU multiplies INT8 directly (None: not known).
    """

    key: str
    title: str
    facts: tuple[Fact, ...]
    trials: int
    int8_dot: bool | None


@dataclass(frozen=True)
class Finding:
    """One computed sentence and the trials that it rests on.

    ``figure`` is its one number as text, for display beside it, or a few words where a number would claim
    too much; None when it has none. ``settled`` is False for a comparison without a verdict, or within noise.
    ``marked`` is True where less ran at the precision asked for than the mark's limit.
    """

    about: Literal["speed", "scaling", "feeding", "latency", "accuracy", "memory", "power", "disturbance"]
    figure: str | None
    sentence: str
    record_ids: tuple[str, ...]
    settled: bool = True
    marked: bool = False


@dataclass(frozen=True)
class Summary:
    """All that a report shows.

    ``names`` are short display names by model, ``started`` and ``ended`` the ends of the first and the
    last trial (ISO 8601, UTC), ``trials`` the number of records, ``statuses`` how many have which.
    """

    studies: tuple[str, ...]
    names: Mapping[str, str]
    started: str | None
    ended: str | None
    trials: int
    statuses: Mapping[Status, int]
    machines: tuple[Machine, ...]
    throughput: tuple[ThroughputRow, ...]
    speed_ups: tuple[SpeedUp, ...]
    latency: tuple[LatencyRow, ...]
    accuracy: tuple[AccuracyRow, ...]
    differences: tuple[DifferenceRow, ...]
    models: tuple[ModelRow, ...]
    calibrations: tuple[CalibrationRow, ...]
    not_measured: tuple[NotMeasured, ...]
    machine_change: MachineChange | None
    findings: tuple[Finding, ...]
    cautions: tuple[str, ...]
    loadgen: tuple[LoadGenRow, ...] = ()
    power: tuple[PowerRow, ...] = ()
    power_gains: tuple[PowerGain, ...] = ()
    scaling: tuple[ScalingRow, ...] = ()
    feeding: tuple[FeedingRow, ...] = ()

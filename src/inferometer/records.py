"""Frozen record types: all that is known of one trial. Statistics are derived from its raw values.

A value that is absent is None, and ``Record.missing`` says why; it is never 0. Field names carry
units (SI inside). ``top1``, ``top5`` are fractions.

History of ``SCHEMA_VERSION``:
    1: first.
    2: a calibration trial says its ``forward_batch``, ``threads`` and ``stages_s``.
    3: accuracy and calibration on images name the ``decoder``; ``accuracy.classes`` may be None.
    4: ``compile_s``, ``session`` and, of the new kind ``loadgen``, ``loadgen``.
    5: ``power`` and ``load_window``.
    6: ``ranks``, ``trial.place``, ``power.by_part``, ``feeding``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "FINAL_STATUSES",
    "HOSTS_DIFFER",
    "SCHEMA_VERSION",
    "Accuracy",
    "BesideReading",
    "CalibrationInfo",
    "ConditionShare",
    "Feeding",
    "Frozen",
    "Kind",
    "Latency",
    "LoadGenLatency",
    "LoadGenResult",
    "LoadWindow",
    "Memory",
    "ModelInfo",
    "Outcome",
    "PartPower",
    "PowerFigure",
    "PowerResult",
    "Precision",
    "RankResult",
    "Record",
    "Sidecar",
    "Status",
    "Throughput",
    "Trial",
]

SCHEMA_VERSION = 6

Precision = Literal["fp32", "tf32", "fp16", "bf16", "int8"]
Kind = Literal["throughput", "latency", "accuracy", "calibration", "loadgen"]
Status = Literal["ok", "out_of_memory", "unsupported", "failed", "timeout", "skipped", "interrupted"]

FINAL_STATUSES: frozenset[str] = frozenset(
    {"ok", "out_of_memory", "unsupported", "failed", "timeout", "skipped"}
)

HOSTS_DIFFER = "hosts differ"
"""Key of ``Outcome.session``: in what the machines of a trial's ranks differ, a list of words."""


Rate = Annotated[float, Field(ge=1e-9)]
"""Per second: what ended well did something."""

Duration = Annotated[float, Field(ge=1e-12)]
"""Seconds: a call takes some."""


class Frozen(BaseModel):
    """Base of all data that is read from files: immutable, unknown keys refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), populate_by_name=True, allow_inf_nan=False
    )


class Trial(Frozen):
    """The labels of one trial: where it stands in the study's matrix.

    ``ranks`` devices work at once. In a study of several ranks each device is measured alone as well:
    ``place`` says which, as the rank that it has in the trials of several; None for these, and in studies of
    one rank.
    """

    kind: Kind
    study: str
    model: str
    engine: str
    device: str
    precision: Precision
    batch: int | None
    ranks: int = 1
    place: int | None = None
    copies: Literal["included", "excluded"] = "included"
    input: Literal["synthetic", "images"] = "synthetic"
    repeat: int = 0


class Throughput(Frozen):
    """Images per second: total images over total time of the timed segments.

    ``ci95`` is a 95 % interval of ``ci_kind`` ``within_run``: from the windows of this one run (it
    says nothing about other runs); None when there were too few windows.
    ``windows`` are the images/s of equal pieces of the run, in order.
    """

    images_per_s: Rate
    median_images_per_s: float
    ci95: tuple[float, float] | None
    ci_kind: Literal["within_run"]
    windows: tuple[float, ...]
    in_flight: int
    images: int
    seconds: float
    warmup_calls: int
    warmup_steady: bool


class Latency(Frozen):
    """Seconds from submit to completion, one request at a time.

    A percentile q is None unless n (1 - q) >= 5.
    """

    min: Duration
    mean: Duration
    p50: Duration | None
    p90: Duration | None
    p95: Duration | None
    p99: Duration | None
    max: Duration
    n: int


class Memory(Frozen):
    """Peak bytes from loading to the end of the measurement: resident in the worker, and on the device."""

    device_peak_bytes: int | None
    host_peak_bytes: int | None


class Accuracy(Frozen):
    """Fractions of ``images`` whose label is the first, or among the first five, of the outputs.

    ``excluded`` images were left out because they served the calibration; ``skipped`` could not be
    decoded and are named in ``skipped_files``. ``top5`` is None with fewer than six classes;
    it and ``classes`` are when the model gives the class alone. ``decoder`` is what decoded the images.
    """

    images: int
    top1: float
    top5: float | None
    classes: int | None
    excluded: int
    skipped: int
    skipped_files: tuple[str, ...]
    decoder: str | None = None


class ModelInfo(Frozen):
    """The model file: content hash, multiply-accumulates per image, parameters."""

    sha256: str
    macs: int | None
    parameters: int | None


class CalibrationInfo(Frozen):
    """Where the activation ranges of an ``int8`` trial came from.

    ``source`` is ``images`` (of a data set), ``synthetic`` (seeded random input: fine for speed, of
    no meaning for accuracy), ``cache`` (a calibration cache of TensorRT, whose images are unknown), or
    ``model`` (the file was already quantized).

    Of a calibration trial only: ``forward_batch`` images went through the engine at once on each of
    ``threads`` threads; ``stages_s`` are seconds by stage, summed over the threads, and ``wall``; ``decoder``
    decoded the images.
    """

    table_sha256: str | None
    source: Literal["images", "synthetic", "cache", "model"]
    method: str | None
    images: int | None
    scheme: str | None = None
    weight_bits: int | None = None
    reason: str | None = None
    forward_batch: int | None = None
    threads: int | None = None
    stages_s: dict[str, float] | None = None
    decoder: str | None = None


class RankResult(Frozen):
    """One rank of a trial of several: one process on one device.

    Attributes:
        rank: From 0.
        host: Name of its machine.
        device: Where it ran, by the engine's name.
        uuid: Of an accelerator.
        cores: Processors that it was pinned to, as Linux lists them; None: not pinned.
        images_per_s: In the time in which all ranks ran; None for kinds without a rate.
        median_latency_s: Of its own calls; None for kinds other than latency.
        skew_s: How much later than the first rank it made its first call, at most, of the segments.
        load_s: Seconds that it took to load the model.
        host_peak_bytes: Largest resident size.
        device_peak_bytes: On its device.
        clock_offset_s: Its host's monotonic clock less that of rank 0's host.
        clock_u_s: Largest error of that; 0 on the same host.
    """

    rank: int
    host: str
    device: str
    uuid: str | None
    cores: str | None
    images_per_s: float | None
    median_latency_s: float | None
    skew_s: float | None
    load_s: float | None
    host_peak_bytes: int | None
    device_peak_bytes: int | None
    clock_offset_s: float
    clock_u_s: float


class Feeding(Frozen):
    """How images came to the device in a trial with ``input: images``.

    Attributes:
        images: Different files that were gone through, again and again.
        workers: Threads that read, decode and preprocess, of each rank.
        wait_share: Share of the slots' time spent waiting for a ready batch (a fraction).
        prepare_share: Share of it spent handing batches to the session.
        images_per_s: That the same workers decode with nothing else to do, all ranks together.
        bottleneck: What bounds the rate.
        decoder: What decoded them.
    """

    images: int
    workers: int
    wait_share: float
    prepare_share: float
    images_per_s: float | None
    bottleneck: Literal["images", "device", "both"]
    decoder: str


class LoadGenLatency(Frozen):
    """Seconds per query as MLPerf's LoadGen gives them, on its own clock.

    A percentile q is None unless n (1 - q) >= 5; LoadGen's log beside the record has all that it gave.
    """

    min: float
    mean: float
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float


class LoadGenResult(Frozen):
    """One run of MLPerf's LoadGen, in its own words: measured with MLPerf's LoadGen; not an MLPerf result.

    All figures are read from LoadGen's log and rest on LoadGen's clock; they are not to be mixed with those
    of the other kinds of trials.

    Attributes:
        scenario: ``offline``: all samples at once, in whole batches; ``single-stream``: one call at a time.
        samples_per_s: Of ``offline``, a sample being one image.
        latency_s: Of ``single-stream``, a query being one call.
        p90_estimate_s: LoadGen's cautious estimate of the 90th percentile for so many queries (its early
            stopping), not below ``latency_s.p90``; None when it makes none.
        result_valid: Whether LoadGen calls the run VALID by the settings it was given.
        constraints: LoadGen's conditions for that, and whether each was met.
        invalid_reason: What LoadGen says when it was not.
        version: LoadGen's.
        min_duration_s: How long the run had to take.
        queries: Issued.
        samples: In all of these; of ``single-stream`` one in each.
        clock: Whose time stamps the figures rest on.
    """

    scenario: Literal["offline", "single-stream"]
    samples_per_s: float | None
    latency_s: LoadGenLatency | None
    p90_estimate_s: float | None
    result_valid: bool
    constraints: dict[str, bool]
    invalid_reason: str | None
    version: str
    min_duration_s: float
    queries: int
    samples: int
    clock: Literal["loadgen"] = "loadgen"


class LoadWindow(Frozen):
    """The part of a throughput trial that power is read in: nanoseconds of CLOCK_MONOTONIC.

    Attributes:
        begin_ns: Of the first segment, when its pipeline was full.
        end_ns: Of the last segment, when its last whole round was done.
        images: Completed after ``begin_ns``, up to ``end_ns``.
        images_per_s: These over that time, all that lies between segments included.
        u_images_per_s: Its standard uncertainty, from the windows of the run; None where they were too few.
        idle_loaded: Begin and end of a time with the model loaded and nothing to do; None: not measured.
    """

    begin_ns: int
    end_ns: int
    images: int
    images_per_s: float
    u_images_per_s: float | None
    idle_loaded: tuple[int, int] | None = None


class PowerFigure(Frozen):
    """The mean power of one window: watts, and the audit of the readings that it rests on.

    Attributes:
        begin_ns: CLOCK_MONOTONIC.
        end_ns: CLOCK_MONOTONIC.
        mean_w: Energy over time.
        u_w: Standard uncertainty of it, the random part alone.
        samples: Readings within the window.
        distinct: How many of them differ from the one before.
        rate_hz: Readings per second.
        largest_gap_s: Between two readings.
        coverage: Share of the window that is not in gaps (a fraction).
        correlation_s: How long readings resemble each other; None where that cannot be told.
        flags: What to know before relying on it.
    """

    begin_ns: int
    end_ns: int
    mean_w: float
    u_w: float
    samples: int
    distinct: int
    rate_hz: float
    largest_gap_s: float
    coverage: float
    correlation_s: float | None
    flags: tuple[str, ...] = ()


class BesideReading(Frozen):
    """Another channel of the same boundary over the same load window: W, and its excess over the primary
    channel as a fraction of that."""

    semantics: str
    load_w: float
    disagreement: float


class ConditionShare(Frozen):
    """For which share of the load window (a fraction) the device said so, such as ``power limit reached``.

    ``slows``: the clock is held down by it. Such are listed with 0 too, where the meter tells them at all.
    """

    name: str
    share: float
    slows: bool


class PartPower(Frozen):
    """What one part, such as a GPU, adds to a result: mean W under load and in the bare idle, and its clock.

    None: the result says why.
    """

    part: str
    load_w: float | None
    idle_bare_w: float | None
    clock_hz: tuple[float, float] | None = None


class PowerResult(Frozen):
    """Power of one boundary over one trial; several parts (GPUs, sockets, supplies) are added up.

    Attributes:
        meter: Its name.
        boundary: What the figures cover.
        parts: What was added up.
        semantics: How a reading comes about.
        gain_error: Relative error of the meter's scale, about 95 % within; stated apart, since subtracting
            does not cancel it. None: not known.
        load_w: Mean power in the load window.
        idle_bare_w: Mean of the idle before and after, with no process of the study on the device.
        idle_loaded_w: Idle with the model loaded.
        drift_w: The idle after less that before.
        net_w: ``load_w`` less ``idle_bare_w``.
        u_net_w: Standard uncertainty of it, drift included.
        net_ci95_w: Its 95 % interval.
        images_per_s: Of the same window.
        images_per_s_per_w: Images/s over ``net_w``; None unless that exceeds three times its uncertainty.
        images_per_s_per_w_ci95: Its 95 % interval.
        j_per_image: ``net_w`` over images/s.
        j_per_image_ci95: Its 95 % interval.
        images_per_s_per_load_w: Images/s over ``load_w``: idle not subtracted.
        load: The figure behind ``load_w``; of several parts, their sum.
        idle_before: Likewise, before the trial or the series.
        idle_after: Likewise, after it.
        idle_loaded: Likewise.
        idle_age_s: From the end of the idle before to the load; long where trials share one.
        by_part: Each of several parts by itself; empty for one.
        beside: Other channels of the same boundary.
        conditions: What held clocks back.
        temperature_c: Lowest and highest in the load window.
        clock_hz: Lowest and highest.
        power_limit_w: Enforced.
        performance_states: Lowest and highest number.
        facts: What the meter tells of itself.
        missing: Field to the reason why it is None.
    """

    meter: str
    boundary: str
    parts: tuple[str, ...]
    semantics: str
    gain_error: float | None = None
    load_w: float | None = None
    idle_bare_w: float | None = None
    idle_loaded_w: float | None = None
    drift_w: float | None = None
    net_w: float | None = None
    u_net_w: float | None = None
    net_ci95_w: tuple[float, float] | None = None
    images_per_s: float | None = None
    images_per_s_per_w: float | None = None
    images_per_s_per_w_ci95: tuple[float, float] | None = None
    j_per_image: float | None = None
    j_per_image_ci95: tuple[float, float] | None = None
    images_per_s_per_load_w: float | None = None
    load: PowerFigure | None = None
    idle_before: PowerFigure | None = None
    idle_after: PowerFigure | None = None
    idle_loaded: PowerFigure | None = None
    idle_age_s: float | None = None
    by_part: tuple[PartPower, ...] = ()
    beside: tuple[BesideReading, ...] = ()
    conditions: tuple[ConditionShare, ...] = ()
    temperature_c: tuple[float, float] | None = None
    clock_hz: tuple[float, float] | None = None
    power_limit_w: float | None = None
    performance_states: tuple[int, int] | None = None
    facts: dict[str, Any] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)


class Sidecar(Frozen):
    """A file beside the store that holds raw values: path relative to the store's folder, SHA-256."""

    path: str
    sha256: str


class Outcome(Frozen):
    """What became of one trial: what a worker found out, or why it could not.

    Fields that belong to another kind of trial are None; so are all when ``status`` is not ``ok``, for
    which ``reason`` is the reason. Any other absent value has its reason in ``missing``.

    Attributes:
        status: How the trial ended.
        reason: Why, when it did not end ``ok``.
        error: The exception of ``inferometer.errors`` behind that, if any.
        load_window: Of a throughput trial of a study that measures power: when it was under load.
        power: One result for each boundary that the study's meters read; None where power was not asked for,
            or could not be measured at all.
        ranks: Of a trial of several ranks, each by itself.
        feeding: Of a trial with ``input: images``: how they came to the device.
        load_s: Seconds that the engine took to load the model; of several ranks the longest.
        compile_s: The part of them that went into compiling it, where the engine tells; 0 from a cache.
        session: What the engine settled on, in its own words: threads, streams, kernels' precision, ...
        precision_mac_share: Each precision that ran, with its share of the multiply-accumulates.
        probe: The fixed machine probe ``before`` and ``after`` the trial.
        state: Clocks, temperature, throttling and load average ``before`` and ``after``, and the ``load``
            by other processes meanwhile.
        environment: The machine's inventory.
        sidecars: Files with the raw values.
        missing: Field to the reason why it is None.
    """

    status: Status
    reason: str | None = None
    error: str | None = None
    throughput: Throughput | None = None
    latency_s: Latency | None = None
    memory: Memory | None = None
    load_window: LoadWindow | None = None
    power: tuple[PowerResult, ...] | None = None
    ranks: tuple[RankResult, ...] = ()
    feeding: Feeding | None = None
    load_s: float | None = None
    compile_s: float | None = None
    session: dict[str, Any] | None = None
    accuracy: Accuracy | None = None
    loadgen: LoadGenResult | None = None
    precision_mac_share: dict[str, float] | None = None
    calibration: CalibrationInfo | None = None
    probe: dict[str, Any] | None = None
    state: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    sidecars: tuple[Sidecar, ...] = ()
    missing: dict[str, str] = Field(default_factory=dict)


class Record(Outcome):
    """All that is known of one trial; one line of ``records.jsonl``.

    Attributes:
        schema_version: ``schema`` in the file.
        id: The trial's identity: the resume key.
        time: When the trial ended, ISO 8601, UTC.
        trial: Where it stands in the matrix.
        model: The model file.
        wall_s: Seconds from the start of the worker (or the end of the trial before it in the same
            worker) to the result; None when nothing was run.
        config: The settings behind the trial.
    """

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema")
    id: str
    time: str
    trial: Trial
    model: ModelInfo | None = None
    wall_s: float | None = None
    config: dict[str, Any] | None = None

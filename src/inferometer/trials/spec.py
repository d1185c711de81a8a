"""What a worker is told about one trial, what it answers, and the trial's identity."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from inferometer.config import (
    CALIBRATION_MEMORY_BYTES,
    InputEntry,
    Limits,
    LoadGenSection,
    MeasureSection,
    MeterEntry,
    PowerSection,
)
from inferometer.data.preprocess import Preprocessing
from inferometer.errors import EngineError
from inferometer.records import Frozen, Kind, ModelInfo, Trial

__all__ = [
    "SPEED_KINDS",
    "AccuracyTask",
    "CalibrationTask",
    "FeedTask",
    "Job",
    "Place",
    "PowerTask",
    "TrialSpec",
    "identity_of",
]

SPEED_KINDS: frozenset[Kind] = frozenset({"throughput", "latency", "loadgen"})
"""Kinds of trials that time the model, as often as the study repeats."""


class CalibrationTask(Frozen):
    """Which images choose the ranges; ``data`` None means seeded synthetic input.

    ``split_sha256`` is the content of a file that names them, when ``split`` is one. ``percentile`` is given
    for the method of that name alone.
    """

    data: str | None
    labels: str | None = None
    listing_sha256: str | None
    images: int
    method: Literal["kl", "minmax", "percentile", "mse"]
    split: str
    split_sha256: str | None = None
    percentile: float | None = None
    memory_bytes: int = CALIBRATION_MEMORY_BYTES


class AccuracyTask(Frozen):
    """Which images are scored: all of ``data`` but those whose file hash is in ``exclude``."""

    data: str
    labels: str | None = None
    listing_sha256: str
    images: int | None
    exclude: tuple[str, ...]


class FeedTask(Frozen):
    """Which images a throughput trial is fed with, by how many threads (None: one for each of its cores)."""

    data: str
    labels: str | None = None
    listing_sha256: str
    workers: int | None = None


class PowerTask(Frozen):
    """That meters run beside the trial: the study's section, and seconds as the slowest meter needs them."""

    section: PowerSection
    min_s: float
    idle_loaded_s: float


class Place(Frozen):
    """What one rank runs on: the engine's name of a device, and its UUID where the engine tells it."""

    device: str
    uuid: str | None = None


class TrialSpec(Frozen):
    """One trial, with everything resolved: a worker looks nothing up.

    ``table`` is the calibration table's file of a float model at ``int8``, else None. ``device_uuid`` is the
    accelerator's, where its engine tells it.
    ``detail`` asks for separate passes that read back what ran (``executed``), and how long each layer
    took as well (``profile``).
    In a study of several ranks ``places`` are their devices on this host, in the order of the ranks there,
    and ``cores_per_rank`` how many processors each is pinned to (None: it is not); with ``oversubscribe``
    ranks share them where there are too few. ``template`` launches the trial (None: mpiexec, or nothing for
    one rank).
    """

    id: str
    trial: Trial
    folder: str
    model_path: str
    model: ModelInfo
    quantized: bool
    preprocess: Preprocessing | None
    engine_version: str
    options: dict[str, Any]
    output: str | None
    seed: int
    inputs: dict[str, InputEntry] = Field(default_factory=dict)
    label_offset: int | None = None
    measure: MeasureSection
    limits: Limits
    isolation: Literal["trial", "series"]
    calibration: CalibrationTask | None = None
    accuracy: AccuracyTask | None = None
    loadgen: LoadGenSection | None = None
    feed: FeedTask | None = None
    power: PowerTask | None = None
    device_uuid: str | None = None
    places: tuple[Place, ...] = ()
    cores_per_rank: int | None = None
    oversubscribe: bool = False
    template: str | None = None
    table: str | None = None
    table_sha256: str | None = None
    detail: Literal["none", "executed", "profile"] = "none"

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """By input: what synthetic feeds lie between, where the user said so."""
        return {name: entry.range for name, entry in self.inputs.items() if entry.range is not None}

    @property
    def processes(self) -> int:
        """How many a launcher has to start: with a template also those before the one rank that works."""
        alone = (self.trial.place or 0) + 1 if self.template is not None else 1
        return self.trial.ranks if self.trial.ranks > 1 else alone

    @property
    def launched(self) -> bool:
        """Whether a launcher starts it, or this host's Python directly."""
        return self.trial.ranks > 1 or self.template is not None

    @property
    def uuids(self) -> frozenset[str]:
        """Of the accelerators that it runs on, as far as they are known."""
        if self.trial.ranks > 1:
            return frozenset(one.uuid for one in self.places[: self.trial.ranks] if one.uuid)
        if self.trial.place is not None and self.trial.place < len(self.places):
            uuid = self.places[self.trial.place].uuid
            return frozenset((uuid,) if uuid else ())
        return frozenset((self.device_uuid,) if self.device_uuid else ())

    def on(self, index: int) -> TrialSpec:
        """As the rank does it that has the host's device of that number.

        Raises:
            EngineError: The host has fewer devices.
        """
        if not self.places:
            return self
        if index >= len(self.places):
            raise EngineError(
                f"{self.trial.engine}: the host has {len(self.places)} devices, none for its rank {index}"
            )
        place = self.places[index]
        trial = self.trial.model_copy(update={"device": place.device})
        return self.model_copy(update={"trial": trial, "device_uuid": place.uuid})

    @property
    def keeps_many_in_flight(self) -> bool:
        """Whether it is about throughput: else it runs one request at a time, and the engine is told."""
        offline = self.loadgen is not None and self.loadgen.scenario == "offline"
        return self.trial.kind == "throughput" or offline


# Options of meters that change how a reading is had, not what it means.
_NO_MEANING = frozenset(
    {"auth", "ca_file", "cipher", "credentials_file", "devices", "fingerprint", "insecure", "password_env",
     "period_s", "privilege", "timeout_s", "user_env"}
)  # fmt: skip


def _metered(entry: MeterEntry) -> list[Any]:
    """A meter in a trial's identity: what its readings mean, such as a unit, zone or address."""
    options = {key: value for key, value in entry.options.items() if key not in _NO_MEANING}
    if isinstance(file := options.get("file"), str):
        options["file"] = Path(file).name  # wherever it lies
    return [entry.meter, options]


class Job(Frozen):
    """What worker processes do: trials in order, in the one process that must not outlive its parent, or in
    ``processes`` that a launcher starts and that find one another by MPI (``parent_pid`` None)."""

    parent_pid: int | None
    processes: int = 1
    trials: tuple[TrialSpec, ...]


def identity_of(spec: TrialSpec) -> str:
    """The resume key: 16 hex digits of the SHA-256 of all that makes a trial what it is.

    Not part of it: names, paths, the output folder, limits, and whether details are read.
    """
    trial = spec.trial
    how = spec.preprocess.model_dump(mode="json", exclude={"name"}) if spec.preprocess else None
    if how is not None and how["decode"] == "exact":  # so that older trials keep their identity
        del how["decode"]
    content: dict[str, Any] = {
        "kind": trial.kind,
        "model": spec.model.sha256,
        "preprocess": how,
        "engine": [trial.engine, spec.engine_version, spec.options],
        "device": trial.device,
        "precision": trial.precision,
        "table": spec.table_sha256,
        "output": spec.output,
    }
    if spec.inputs:
        content["inputs"] = {name: entry.model_dump(mode="json") for name, entry in spec.inputs.items()}
    if trial.kind in SPEED_KINDS:
        content |= {
            "copies": trial.copies,
            "input": trial.input,
            "batch": trial.batch,
            "ranks": trial.ranks,
            "isolation": spec.isolation,
            "measure": spec.measure.model_dump(mode="json"),
            "seed": spec.seed,
            "repeat": trial.repeat,
        }
        if trial.place is not None:
            content["place"] = trial.place
        if spec.template is not None:
            content["launch"] = spec.template
    if spec.feed is not None:
        content["feed"] = spec.feed.model_dump(mode="json", include={"listing_sha256", "workers"})
    if spec.power is not None:
        section = spec.power.section.model_dump(mode="json", exclude={"settle_max_s"})
        content["power"] = section | {"meters": [_metered(one) for one in spec.power.section.meters]}
    if spec.loadgen is not None:
        content["loadgen"] = spec.loadgen.model_dump(mode="json")
    if spec.calibration is not None:
        no_matter = {"data", "labels", "split", "memory_bytes"}
        if spec.calibration.percentile is None:  # so that trials of the other methods keep their identity
            no_matter.add("percentile")
        content["calibration"] = spec.calibration.model_dump(mode="json", exclude=no_matter) | {
            "split": spec.calibration.split_sha256 or spec.calibration.split
        }
        content["seed"] = spec.seed
    if spec.accuracy is not None:
        if spec.label_offset:
            content["label_offset"] = spec.label_offset
        content["accuracy"] = spec.accuracy.model_dump(mode="json", exclude={"data", "labels"})
        content["seed"] = spec.seed
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]

"""From a study's words to what its trials need: files, hashes, engines, devices, data listings."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer import registry
from inferometer.config import AccuracySection, CalibrationSection, EngineEntry, ImagesSection, Study
from inferometer.contracts import Engine
from inferometer.data.imageset import ImageSet, check_labels, open_set
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import ConfigError, EngineError, Unsupported
from inferometer.study.launch import check_launcher
from inferometer.study.model import ResolvedModel, resolve_model
from inferometer.trials.loadgen import loadgen_library
from inferometer.trials.spec import Place

__all__ = ["Resolved", "ResolvedEngine", "fed_from", "resolve"]


@dataclass(frozen=True)
class ResolvedEngine:
    """One engine on one device with its options, the number of threads among them.

    ``version`` is the engine's, followed by that of what the options choose, if it has one of its own.
    ``absent`` says why the device is not there: its trials are then not supported. ``uuid`` is the device's.
    In a study of several ranks ``device`` is the study's word for all of them (``cuda``), ``places`` are the
    devices by rank, as many as there are, and CPU ranks are pinned to ``cores_per_rank`` processors.
    """

    name: str
    engine: Engine
    device: str
    options: Mapping[str, Any]
    version: str
    absent: str | None = None
    uuid: str | None = None
    places: tuple[Place, ...] = ()
    cores_per_rank: int | None = None

    @property
    def one_device(self) -> str:
        """A device by the engine's own name, for what holds for all of them."""
        return self.places[0].device if self.places else self.device


@dataclass(frozen=True)
class Resolved:
    """A study with everything looked up; ``sets`` are the image sets by the paths of data and labels."""

    study: Study
    folder: Path
    models: tuple[ResolvedModel, ...]
    engines: tuple[ResolvedEngine, ...]
    sets: Mapping[tuple[str, str | None], ImageSet]


def resolve(study: Study, folder: Path) -> Resolved:
    """Look everything up, and refuse what cannot work before any trial starts.

    Built-in networks are written to ``folder/models``.

    Raises:
        InferometerError: A model, engine, device, preset or image set is not there or not usable.
    """
    if study.loadgen is not None:
        loadgen_library()  # told now, not trial by trial
    engines = tuple(_engine(entry, study) for entry in study.engines)
    if max(study.ranks) > 1 or study.launch.template is not None:  # after what costs nothing to see
        check_launcher(study.launch.template, max(study.ranks))
    if all(entry.absent for entry in engines):  # else the others run: the same study serves several machines
        raise EngineError("; ".join(dict.fromkeys(str(entry.absent) for entry in engines)))
    models = tuple(resolve_model(entry, study, folder) for entry in study.models)
    _distinct(models)
    sections = [one for model in models for one in (model.calibration, model.accuracy) if one is not None]
    scored = {(one.data, one.labels) for one in sections if isinstance(one, AccuracySection)}
    fed = [fed_from(study, model) for model in models] if "images" in study.input else []
    sets = {
        place: open_set(*place, labelled=place in scored)
        for place in dict.fromkeys((one.data, one.labels) for one in (*sections, *fed))
    }
    for model in models:
        if model.accuracy is not None and model.classes is not None and model.not_scored is None:
            images = sets[model.accuracy.data, model.accuracy.labels]
            check_labels(images, model.classes, model.label, model.label_offset)
    return Resolved(study, folder, models, engines, sets)


def fed_from(study: Study, model: ResolvedModel) -> ImagesSection | AccuracySection | CalibrationSection:
    """Where the images lie that a model's throughput trials are fed with.

    Raises:
        ConfigError: The study names none.
    """
    section = study.images or model.accuracy or model.calibration
    if section is None:
        raise ConfigError(f"{model.label}: input: images wants to know which: give images: {{data: DIR}}")
    return section


def _engine(entry: EngineEntry, study: Study) -> ResolvedEngine:
    engine = registry.engine(entry.engine)
    uuids = {device.name: device.uuid for device in engine.devices()}
    devices = list(uuids)
    device = entry.device or (devices[0] if devices else "none")
    if device == "cuda":  # all CUDA devices; one rank takes the first
        device = next((name for name in devices if name.startswith("cuda:")), device)
    absent = None
    if device not in devices:
        absent = _why_absent(entry, engine, device, devices)
    cores = _cores_per_rank(study) if max(study.ranks) > 1 and device == "cpu" else None
    options = {"threads": study.threads or cores or usable_cores(), **entry.options}
    with contextlib.suppress(Unsupported):  # of this device: the trials say so
        engine.check(device, options)
    version = _version(engine, options)
    places = _places(entry, study, device, uuids) if absent is None else ()
    word = (entry.device or device) if places else device
    return ResolvedEngine(
        entry.engine, engine, word, options, version, absent, uuids.get(device), places, cores
    )


def _cores_per_rank(study: Study) -> int:
    """How many processors each CPU rank gets, in the whole study.

    Raises:
        ConfigError: There are fewer than ranks, and the study does not say that they may share.
    """
    most, cores = max(study.ranks), usable_cores()
    wanted = most * (study.threads or 1)
    # With a template ranks may be on several hosts: each sees whether its own has enough.
    if wanted > cores and not study.launch.oversubscribe and study.launch.template is None:
        of = f" of {study.threads} threads" if (study.threads or 1) > 1 else ""
        raise ConfigError(
            f"{most} ranks{of} want {wanted} cores, and there are {cores}: fewer ranks, or launch:"
            " {oversubscribe: true}, with which ranks share cores"
        )
    return study.threads or max(1, cores // most)


def _places(
    entry: EngineEntry, study: Study, device: str, uuids: Mapping[str, str | None]
) -> tuple[Place, ...]:
    """The device of each rank on this host; empty in a study of one rank."""
    most = max(study.ranks)
    if most == 1:
        return ()
    if device == "cpu":
        return (Place(device="cpu"),) * most
    alike = device.split(":")[0] + ":"
    names = [name for name in uuids if name.startswith(alike)] if entry.device == alike[:-1] else [device]
    return tuple(Place(device=name, uuid=uuids[name]) for name in names[:most])


def _why_absent(entry: EngineEntry, engine: Engine, device: str, devices: list[str]) -> str:
    """In the engine's words, if it has any."""
    why = None
    with contextlib.suppress(Unsupported):
        why = engine.precisions(entry.device or "", entry.options).get("fp32")
    if not devices:
        return f"{entry.engine}: {why or 'finds no device on this machine'}"
    there = f"there is no device {device!r}; known are {', '.join(devices)}"
    return f"{entry.engine}: {there}" + (f" ({why})" if why else "")


def _version(engine: Engine, options: Mapping[str, Any]) -> str:
    for variant in engine.variants():
        chosen = bool(variant.options) and variant.options.items() <= options.items()
        if chosen and variant.version not in (None, engine.version):
            return f"{engine.version} with {variant.version}"
    return engine.version


def _distinct(models: tuple[ResolvedModel, ...]) -> None:
    labels: dict[str, ResolvedModel] = {}
    for model in models:
        if model.label in labels:
            raise ConfigError(f"two models are called {model.label!r}: give one of them a name")
        labels[model.label] = model
    hashes: dict[str, str] = {}
    for model in models:
        other = hashes.setdefault(model.info.sha256, model.label)
        if other != model.label:
            raise ConfigError(f"models {other!r} and {model.label!r} are the same file")

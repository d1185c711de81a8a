"""From a study's words to what its trials need: files, hashes, engines, devices, data listings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer import registry
from inferometer.config import AccuracySection, CalibrationSection, EngineEntry, ModelEntry, Study
from inferometer.contracts import Engine
from inferometer.data import preprocess
from inferometer.data.imageset import ImageSet, check_labels, open_set
from inferometer.data.preprocess import Preprocessing
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import ConfigError, DataError, EngineError, ModelError, nearest
from inferometer.models import networks
from inferometer.models.files import load as load_model
from inferometer.models.files import save
from inferometer.models.inspection import describe
from inferometer.models.rebatch import set_batch
from inferometer.models.summary import ModelSummary
from inferometer.quantize.insert import calibration_of
from inferometer.records import ModelInfo, Precision

__all__ = ["Resolved", "ResolvedEngine", "ResolvedModel", "resolve"]


@dataclass(frozen=True)
class ResolvedModel:
    """One model as its trials see it.

    Attributes:
        label: Its name in records.
        path: The ONNX file that engines load (a fixed batch made symbolic where that was possible).
        info: Content hash of the original file, MACs per image, parameters.
        quantized: Whether the file already holds QDQ or integer operators.
        seeded: Whether its weights are random, so that accuracy has no meaning.
        fixed_batch: The only batch it can run, or None.
        calibrated_on: SHA-256 of the images that a quantized file says it was calibrated on.
    """

    label: str
    path: Path
    info: ModelInfo
    quantized: bool
    seeded: bool
    fixed_batch: int | None
    calibrated_on: tuple[str, ...]
    preprocess: Preprocessing | None
    kinds: tuple[str, ...]
    precisions: tuple[Precision, ...]
    calibration: CalibrationSection | None
    accuracy: AccuracySection | None
    output: str | None
    classes: int | None


@dataclass(frozen=True)
class ResolvedEngine:
    """One engine on one device with its options, the number of threads among them."""

    name: str
    engine: Engine
    device: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Resolved:
    """A study with everything looked up; ``sets`` are the image sets by the path that names them."""

    study: Study
    folder: Path
    models: tuple[ResolvedModel, ...]
    engines: tuple[ResolvedEngine, ...]
    sets: Mapping[str, ImageSet]


def resolve(study: Study, folder: Path) -> Resolved:
    """Look everything up, and refuse what cannot work before any trial starts.

    Built-in networks are written to ``folder/models``.

    Raises:
        InferometerError: A model, engine, device, preset or image set is not there or not usable.
    """
    engines = tuple(_engine(entry, study.threads) for entry in study.engines)
    models = tuple(_model(entry, study, folder) for entry in study.models)
    _distinct(models)
    sets = {
        section.data: open_set(section.data)
        for model in models
        for section in (model.calibration, model.accuracy)
        if section is not None
    }
    for model in models:
        _needs_preprocessing(model)
        if model.accuracy is not None and model.classes is not None:
            check_labels(sets[model.accuracy.data], model.classes, model.label)
    return Resolved(study, folder, models, engines, sets)


def _engine(entry: EngineEntry, threads: int | None) -> ResolvedEngine:
    engine = registry.engine(entry.engine)
    devices = [device.name for device in engine.devices()]
    if not devices:
        refused = engine.precisions(entry.device or "", entry.options).get("fp32")
        raise EngineError(f"{entry.engine}: {refused or 'finds no device on this machine'}")
    device = entry.device or devices[0]
    if device not in devices:
        raise EngineError(f"{entry.engine}: there is no device {device!r}{nearest(device, devices)}")
    return ResolvedEngine(
        entry.engine, engine, device, {"threads": threads or usable_cores(), **entry.options}
    )


def _model(entry: ModelEntry, study: Study, folder: Path) -> ResolvedModel:
    built_in = entry.model in networks.names()
    path, default_preset = _file(entry.model, study.seed, folder) if built_in else (_given(entry.model), None)
    summary = describe(path)
    preset = entry.preprocess or default_preset
    note = calibration_of(load_model(path)) if summary.is_quantized else None
    path, fixed = _any_batch(path, summary, folder)
    return ResolvedModel(
        label=entry.name or (entry.model if built_in else Path(entry.model).stem),
        path=path,
        info=ModelInfo(sha256=_sha256(summary), macs=summary.macs, parameters=summary.parameters),
        quantized=summary.is_quantized,
        seeded=summary.metadata.get("inferometer.weights", "").startswith("untrained"),
        fixed_batch=fixed,
        calibrated_on=note.image_hashes if note else (),
        preprocess=preprocess.load(preset) if preset else None,
        kinds=study.kinds if entry.kinds is None else entry.kinds,
        precisions=entry.precisions or study.precisions,
        calibration=entry.calibration or study.calibration,
        accuracy=entry.accuracy or study.accuracy,
        output=entry.output,
        classes=_classes(summary, entry.output),
    )


def _classes(summary: ModelSummary, output: str | None) -> int | None:
    """Width of the output that will be scored; None when the file does not tell."""
    chosen = [one for one in summary.outputs if output in (None, one.name)]
    last = chosen[0].shape[-1] if len(chosen) == 1 and chosen[0].shape else None
    return last if isinstance(last, int) else None


def _file(name: str, seed: int, folder: Path) -> tuple[Path, str]:
    path = folder / "models" / f"{name}-seed{seed}.onnx"
    if not path.exists():
        networks.export(name, path, seed=seed)
    return path, networks.network(name).preprocess


def _given(text: str) -> Path:
    path = Path(text)
    if not path.exists() and path.suffix == "" and "/" not in text:
        raise ConfigError(f"unknown model {text!r}{nearest(text, networks.names())}, or give an ONNX file")
    return path


def _any_batch(path: Path, summary: ModelSummary, folder: Path) -> tuple[Path, int | None]:
    """The file with a symbolic batch, or the file as it is and the one batch that it can run."""
    if summary.batch is None:
        return path, None
    free = folder / "models" / f"{_sha256(summary)[:12]}-any-batch.onnx"
    if not free.exists():
        try:
            model = set_batch(load_model(path), None)
        except ModelError:
            return path, summary.batch
        save(model, free)
    return free, None


def _sha256(summary: ModelSummary) -> str:
    assert summary.sha256 is not None, "a summary of a file has the file's hash"
    return summary.sha256


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


def _needs_preprocessing(model: ResolvedModel) -> None:
    wants_images = model.accuracy is not None or (model.calibration is not None and not model.quantized)
    if wants_images and model.preprocess is None:
        raise DataError(
            f"{model.label}: how are images preprocessed for it? Give --preprocess, or preprocess: in the "
            f"study ({', '.join(sorted(preprocess.PRESETS))}, or a YAML file)"
        )

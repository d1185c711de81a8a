"""From a study's words about one model to what its trials need: a file, its hash, and what it is for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inferometer.config import (
    AccuracySection,
    CalibrationSection,
    InputEntry,
    ModelEntry,
    Study,
)
from inferometer.data import preprocess
from inferometer.data.preprocess import Preprocessing
from inferometer.data.synthetic import check_range
from inferometer.errors import ConfigError, DataError, ModelError, nearest
from inferometer.models import networks
from inferometer.models.files import load as load_model
from inferometer.models.files import save
from inferometer.models.fix import fix_shapes
from inferometer.models.inspection import describe
from inferometer.models.rebatch import ImagesJoined, set_batch
from inferometer.models.roles import ClassOutput, class_output, image_input
from inferometer.models.summary import ModelSummary, TensorInfo
from inferometer.models.weights import weights_sha256
from inferometer.quantize.insert import calibration_of
from inferometer.records import ModelInfo, Precision
from inferometer.trials.images import image_input_of

__all__ = ["ResolvedModel", "resolve_model"]


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
        fixed_why: Why it can run no other.
        calibrated_on: SHA-256 of the images that a quantized file says it was calibrated on.
        classes: How many the scored output has; None when the file does not tell.
        inputs: What the user said of the inputs, and the open sizes that follow from the preprocessing.
        takes_images: Whether one input is an image.
        not_scored: Why no accuracy can be told; None when it can.
    """

    label: str
    path: Path
    info: ModelInfo
    quantized: bool
    seeded: bool
    fixed_batch: int | None
    fixed_why: str | None
    calibrated_on: tuple[str, ...]
    preprocess: Preprocessing | None
    kinds: tuple[str, ...]
    precisions: tuple[Precision, ...]
    calibration: CalibrationSection | None
    accuracy: AccuracySection | None
    output: str | None
    classes: int | None
    label_offset: int | None
    inputs: Mapping[str, InputEntry]
    takes_images: bool
    not_scored: str | None


def resolve_model(entry: ModelEntry, study: Study, folder: Path) -> ResolvedModel:
    """Look up one model; files made from it are written to ``folder/models``.

    Raises:
        InferometerError: It is not there, not usable, or the study's images cannot be fed to it.
    """
    built_in = entry.model in networks.names()
    path, default_preset = _file(entry, study.seed, folder) if built_in else (_given(entry), None)
    summary = describe(path)
    preset = entry.preprocess or default_preset
    how = preprocess.load(preset, entry.decode) if preset else None
    label = entry.name or (entry.model if built_in else Path(entry.model).stem)
    sha256 = _sha256(summary)
    inputs = _inputs(entry, summary, how, label)
    path, summary = _with_shapes(path, summary, inputs, folder)
    scored, why = _scored(summary, entry.output, label)
    note = calibration_of(load_model(path)) if summary.is_quantized else None
    path, fixed, fixed_why = _any_batch(path, summary, folder)
    if isinstance(fixed_why, ImagesJoined) and fixed != 1:
        why = f"what it makes of an image depends on the others in its batch: {fixed_why}"
    calibration = entry.calibration if "calibration" in entry.model_fields_set else study.calibration
    accuracy = entry.accuracy if "accuracy" in entry.model_fields_set else study.accuracy
    sections = accuracy is not None or (calibration is not None and not summary.is_quantized)
    resolved = ResolvedModel(
        label=label,
        path=path,
        info=ModelInfo(sha256=sha256, macs=summary.macs, parameters=summary.parameters),
        quantized=summary.is_quantized,
        seeded=summary.metadata.get("inferometer.weights", "").startswith("untrained"),
        fixed_batch=fixed,
        fixed_why=None if fixed_why is None else str(fixed_why),
        calibrated_on=note.image_hashes if note else (),
        preprocess=how,
        kinds=study.kinds if entry.kinds is None else entry.kinds,
        precisions=entry.precisions or study.precisions,
        calibration=calibration,
        accuracy=accuracy,
        output=entry.output,
        classes=scored.classes if scored else None,
        label_offset=entry.label_offset,
        inputs=inputs,
        takes_images=image_input(summary.inputs) is not None,
        not_scored=why,
    )
    _fits(resolved, summary, sections)
    return resolved


def _inputs(
    entry: ModelEntry, summary: ModelSummary, how: Preprocessing | None, label: str
) -> dict[str, InputEntry]:
    """What is known of the inputs: the user's words, and the size of images where the file leaves it open.

    Raises:
        ConfigError: A name is no input's, a range does not fit, or an axis stays open.
    """
    known = {one.name: one for one in summary.inputs}
    found = dict(entry.inputs)
    for name, given in entry.inputs.items():
        if name not in known:
            raise ConfigError(f"{label}: there is no input {name!r}{nearest(name, known)}")
        if given.range is not None:
            check_range(name, known[name].dtype or "object", given.range)
    image = image_input(summary.inputs)
    if image is not None and how is not None and image.shape is not None and image.dtype is not None:
        size = how.for_input(image.shape, image.dtype).output_shape if _is_open(image) else None
        before = found.get(image.name, _NOTHING_SAID)
        if size is not None and before.shape is None:
            found[image.name] = before.model_copy(update={"shape": size})
    for name, one in known.items():
        if one.shape is not None and _is_open(one) and found.get(name, _NOTHING_SAID).shape is None:
            spelled = "[" + ", ".join("?" if side is None else str(side) for side in one.shape) + "]"
            raise ConfigError(
                f"{label}: the input {name!r} {spelled} leaves sizes open: give them without the batch, such "
                f"as --input-shape {name}={'x'.join(_example(side) for side in one.shape[1:])}"
            )
    return found


_NOTHING_SAID = InputEntry.model_construct(range=None, shape=None)


def _is_open(one: TensorInfo) -> bool:
    """Whether a file leaves a size beside the batch open."""
    return any(not isinstance(side, int) for side in (one.shape or ())[1:])


def _example(side: int | str | None) -> str:
    return str(side) if isinstance(side, int) else "224"


def _with_shapes(
    path: Path, summary: ModelSummary, inputs: Mapping[str, InputEntry], folder: Path
) -> tuple[Path, ModelSummary]:
    """The file with its open sizes fixed, and what it is then; the file itself when none is to be fixed."""
    shapes = {name: one.shape for name, one in inputs.items() if one.shape is not None}
    known = {one.name: one.shape for one in summary.inputs}
    if all(tuple((known[name] or ())[1:]) == shape for name, shape in shapes.items()):
        return path, summary
    text = json.dumps(sorted(shapes.items()))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    fixed = folder / "models" / f"{_sha256(summary)[:12]}-shapes-{digest}.onnx"
    if not fixed.exists():
        save(fix_shapes(load_model(path, weights=False), shapes), fixed, source=path)
    return fixed, describe(fixed)


def _scored(summary: ModelSummary, output: str | None, label: str) -> tuple[ClassOutput | None, str | None]:
    """The output that is scored, or why none can be."""
    try:
        return class_output(summary.outputs, output), None
    except ModelError as error:
        return None, str(error)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from error


def _fits(model: ResolvedModel, summary: ModelSummary, sections: bool) -> None:
    """Refuse before any trial starts what the images of the study's sections could not be fed to."""
    if not sections or not model.takes_images:
        return
    if model.preprocess is None:
        raise DataError(
            f"{model.label}: how are images preprocessed for it? Give --preprocess, or preprocess: in the "
            f"study ({', '.join(sorted(preprocess.PRESETS))}, or a YAML file); inferometer doctor finds out"
        )
    image_input_of(summary.inputs, model.preprocess, model.inputs, model.label)


def _file(entry: ModelEntry, seed: int, folder: Path) -> tuple[Path, str]:
    name, weights = entry.model, entry.weights
    kept = f"seed{seed}" if weights is None else f"weights-{weights_sha256(Path(weights))[:16]}"
    path = folder / "models" / f"{name}-{kept}.onnx"
    if not path.exists():
        if weights is None:
            networks.export(name, path, seed=seed)
        else:
            networks.export_trained(name, weights, path)
    return path, networks.network(name).preprocess


def _given(entry: ModelEntry) -> Path:
    path = Path(entry.model)
    if not path.exists() and path.suffix == "" and "/" not in entry.model:
        known = nearest(entry.model, networks.names())
        raise ConfigError(f"unknown model {entry.model!r}{known}, or give an ONNX file")
    if entry.weights is not None:
        raise ConfigError(
            f"{entry.model}: weights ({entry.weights}) are for a built-in network, an ONNX file has its own: "
            "leave them out"
        )
    return path


def _any_batch(path: Path, summary: ModelSummary, folder: Path) -> tuple[Path, int | None, ModelError | None]:
    """The file with a symbolic batch; or the file as it is, the one batch that it can run, and why."""
    if summary.batch is None:
        return path, None, None
    free = folder / "models" / f"{_sha256(summary)[:12]}-any-batch.onnx"
    if not free.exists():
        try:
            model = set_batch(load_model(path, weights=False), None)
        except ModelError as error:
            return path, summary.batch, error
        save(model, free, source=path)
    return free, None, None


def _sha256(summary: ModelSummary) -> str:
    assert summary.sha256 is not None, "a summary of a file has the file's hash"
    return summary.sha256

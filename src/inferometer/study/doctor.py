"""From a model and a set of images to what fits: whether that can be told, and on which sample."""

from __future__ import annotations

from pathlib import Path

from inferometer import registry
from inferometer.analysis.diagnosis import Diagnosis
from inferometer.config import InputEntry, ModelEntry
from inferometer.data.decode import decode
from inferometer.data.imageset import ImageSet, ordered
from inferometer.data.preprocess import load as load_preprocessing
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import ConfigError, DataError
from inferometer.models import networks
from inferometer.models.inspection import describe
from inferometer.models.roles import Tensor, class_output, image_axes, image_input
from inferometer.models.summary import ModelSummary, TensorInfo
from inferometer.records import Precision
from inferometer.study.diagnose import Given, Progress, diagnose
from inferometer.study.examine import Examiner
from inferometer.study.model import ResolvedModel

__all__ = ["described", "diagnosed", "undiagnosable"]

_BATCH = 4  # images per call: results do not depend on it
_LOOKED_AT = 32  # images whose size is looked at
_OPEN_SIDE = 224  # where a file leaves height and width open


def described(entry: ModelEntry) -> tuple[ModelSummary, ModelEntry, tuple[str, ...]]:
    """The model's summary, and its entry with a size where the file leaves that of images open."""
    built_in = entry.model in networks.names() and not Path(entry.model).exists()
    summary = describe(networks.shapes_only(entry.model) if built_in else Path(entry.model))
    image = image_input(summary.inputs)
    axes = image_axes(image.shape) if image is not None and image.shape is not None else None
    if image is None or axes is None or None not in axes[1:] or image.name in entry.inputs:
        return summary, entry, ()
    channels, *sides = axes
    height, width = (_OPEN_SIDE if side is None else side for side in sides)
    first = image.shape is not None and image.shape[1] == channels
    shape = (channels, height, width) if first else (height, width, channels)
    inputs = {**entry.inputs, image.name: InputEntry(shape=shape)}
    said = (
        f"The file leaves the size of images open: {width} x {height} pixels are tried; "
        "--input-shape sets another."
    )
    return summary, entry.model_copy(update={"inputs": inputs}), (said,)


def undiagnosable(resolved: ResolvedModel, image: TensorInfo | None, there: ImageSet | None) -> str | None:
    """Why what fits cannot be found out by accuracy."""
    if image is None or image.shape is None:
        return "the model takes no images"
    if resolved.not_scored is not None:
        return resolved.not_scored
    axes = image_axes(image.shape)
    if axes is None:
        return f"its input {image.name!r} has neither 1 nor 3 channels"
    if axes[1] != axes[2]:
        return f"its images are not square ({axes[2]} x {axes[1]}): only square ones are tried"
    if resolved.seeded:
        return "the weights of this network are random"
    return None if there is None else _misfit(resolved, there)


def _misfit(resolved: ResolvedModel, there: ImageSet) -> str | None:
    """Why the labels say nothing of this model."""
    labels = {entry.class_index for entry in there.entries}
    if len(labels) == 1:
        return "all images are of one class"
    if resolved.classes is not None and max(labels) > resolved.classes:
        return f"the labels reach {max(labels)}, and the model has {resolved.classes} classes"
    return None


def _given(preprocess: str | None, label_offset: int | None, image: Tensor) -> Given | None:
    """What the user has so far, fit for the model's input."""
    if preprocess is None and label_offset is None:
        return None
    if preprocess is None:
        raise ConfigError("doctor: --label-offset is judged together with --preprocess: give both")
    fitting = load_preprocessing(preprocess).for_input(image.shape or (), image.dtype or "float32")
    return Given(fitting, label_offset or 0)


def diagnosed(
    resolved: ResolvedModel,
    there: ImageSet,
    engine: str,
    images: int,
    preprocess: str | None,
    label_offset: int | None,
    seed: int,
    say: Progress,
) -> Diagnosis:
    """Open the model on an engine and find out what fits the images.

    Args:
        resolved: The model.
        there: The images.
        engine: What runs it.
        images: How many to use at most.
        preprocess: What the user has so far, a preset or a file; None when that is not to be judged.
        label_offset: The same of the labels.
        seed: Chooses the images.
        say: Told of progress.

    Raises:
        InferometerError: The engine does not run it, or no image can be used.
    """
    runner = registry.engine(engine)
    precision: Precision = "int8" if resolved.quantized else "fp32"
    batch = resolved.fixed_batch or _BATCH
    options = {"threads": usable_cores(), "in_flight": 1}
    entries = ordered(there, seed)
    with runner.load(resolved.path, runner.devices()[0].name, precision, batch, options) as session:
        image = image_input(session.inputs)
        assert image is not None
        axes = image_axes(image.shape)
        assert axes is not None
        channels, side, _ = axes
        assert side is not None
        examiner = Examiner(
            session,
            class_output(session.outputs, resolved.output),
            batch,
            there.source,
            entries,
            resolved.inputs,
            resolved.label,
        )
        sizes = _sizes(there, images)
        return diagnose(
            examiner,
            side,
            channels,
            resolved.classes,
            integers=not image.dtype.startswith("float"),
            as_they_are=sizes == {(side, side)},
            images=images,
            given=_given(preprocess, label_offset, image),
            on_progress=say,
        )


def _sizes(there: ImageSet, images: int) -> set[tuple[int, int]]:
    """(width, height) of some of the images, those that cannot be decoded left out."""
    step = max(1, len(there.entries) // min(images, _LOOKED_AT))
    found = set()
    for entry in there.entries[::step]:
        try:
            found.add(decode(there.source.read(entry.file), entry.file, "RGB").size)
        except DataError:
            continue
    return found

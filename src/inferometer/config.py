"""The frozen, strict study schema, and reading YAML.

Validators only validate: nothing here looks at the machine, opens a model or writes anything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from inferometer.errors import ConfigError, nearest
from inferometer.records import Frozen, Precision

__all__ = [
    "CALIBRATION_MEMORY_BYTES",
    "METER_FILES",
    "SPLIT_RULES",
    "AccuracySection",
    "CalibrationSection",
    "EngineEntry",
    "ImagesSection",
    "InputEntry",
    "LaunchSection",
    "Limits",
    "LoadGenSection",
    "MeasureSection",
    "MeterEntry",
    "ModelEntry",
    "PowerSection",
    "Study",
    "duration_s",
    "load_study",
    "matching",
    "parse",
    "read_yaml",
]


def matching(pattern: str, wants: str) -> AfterValidator:
    """For a text that matches the whole of ``pattern``; ``wants`` says to people what it may be."""

    def checked(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(wants)
        return text

    return AfterValidator(checked)


Positive = Annotated[int, Field(ge=1, le=2**62, strict=True)]
Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Repeats = Annotated[int, Field(ge=1, le=1000, strict=True)]
Ranks = Annotated[int, Field(ge=1, le=10_000, strict=True)]
Option = str | int | float | bool | None
SpeedKind = Literal["throughput", "latency", "loadgen"]
Seconds = Annotated[float, Field(gt=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

_MAX_NODES = 100_000
SPLIT_RULES = frozenset({"first", "even"})

METER_FILES = frozenset({"file", "ca_file", "credentials_file"})
"""Options of meters that are paths: relative ones start at the study's file."""

CALIBRATION_MEMORY_BYTES = 256 * 1024**2
"""For activations and images of forward passes with many tensors exposed, unless another size is given."""

T = TypeVar("T", bound=BaseModel)
Pictures = TypeVar("Pictures", "AccuracySection", "ImagesSection")


class EngineEntry(Frozen):
    """One engine on one device (None: the engine's first), with the engine's own options."""

    engine: str
    device: str | None = None
    options: dict[str, Option] = Field(default_factory=dict)


class CalibrationSection(Frozen):
    """Which images choose the activation ranges. ``split``: ``first``, ``even`` or a file of names.

    ``labels`` is a file of labels beside ``data`` (None: found in it, or next to it).
    ``percentile`` belongs to the method of that name (None: its default): per cent of the values other
    than 0 that do not saturate.
    ``memory_bytes`` bounds what the forward passes hold of activations and images; the ranges do not
    depend on it.
    """

    data: str
    labels: str | None = None
    images: Positive = 1250
    method: Literal["kl", "minmax", "percentile", "mse"] = "kl"
    percentile: Annotated[float, Field(ge=50, le=100)] | None = None
    split: str = "first"
    memory_bytes: Positive = CALIBRATION_MEMORY_BYTES

    @model_validator(mode="after")
    def _percentile_fits(self) -> CalibrationSection:
        if self.percentile is not None and self.method != "percentile":
            raise ValueError(f"the method {self.method} takes no percentile: leave it out")
        return self


class AccuracySection(Frozen):
    """Which labelled images are scored, and how many of them at most (None: all); ``labels`` as above."""

    data: str
    labels: str | None = None
    images: Positive | None = None


class ImagesSection(Frozen):
    """The images that throughput trials with ``input: images`` are fed with; they need no labels.

    ``workers``: threads of each rank that read, decode and preprocess (None: one for each of its cores).
    """

    data: str
    labels: str | None = None
    workers: Count | None = None


class InputEntry(Frozen):
    """What a model's input is fed with where no image is, and its open dimensions.

    ``range`` bounds uniform numbers, both ends included; the same number twice is a constant. None:
    standard-normal floats, 8-bit integers over their range, zeros of other types. ``shape`` are the lengths
    of all axes but the first, which is the batch.
    """

    range: tuple[Finite, Finite] | None = None
    shape: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None

    @field_validator("range")
    @classmethod
    def _ascends(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and value[0] > value[1]:
            raise ValueError("wants the lower end first")
        return value

    @model_validator(mode="after")
    def _says_something(self) -> InputEntry:
        if self.range is None and self.shape is None:
            raise ValueError("wants a range, a shape, or both")
        return self


class ModelEntry(Frozen):
    """One model: a built-in name or an ONNX file, and how its input is preprocessed.

    ``preprocess`` is a preset's name or a YAML file; None means the built-in network's own, or none.
    ``decode`` takes the place of its own. ``weights`` is a file of trained weights for a built-in network
    (None: seeded ones). ``name`` is its label in records (None: the built-in name or the file's stem).
    ``output`` names the class scores of a model with several outputs. ``label_offset`` is added to the labels
    of the images to get the model's class: 1 for a model whose class 0 is the background. ``inputs`` says
    what the inputs are fed with, by name. ``kinds``, ``precisions``, ``calibration`` and ``accuracy``, where
    given, take the place of the study's; None, when given, means none of the latter two.
    """

    model: str
    name: Annotated[str, Field(min_length=1)] | None = None
    weights: str | None = None
    preprocess: str | None = None
    decode: Literal["exact", "scaled"] | None = None
    output: str | None = None
    label_offset: Annotated[int, Field(ge=-1000, le=1000, strict=True)] | None = None
    inputs: dict[str, InputEntry] = Field(default_factory=dict)
    kinds: tuple[SpeedKind, ...] | None = None
    precisions: Annotated[tuple[Precision, ...], Field(min_length=1)] | None = None
    calibration: CalibrationSection | None = None
    accuracy: AccuracySection | None = None


class MeasureSection(Frozen):
    """When a measurement ends: at the relative half-width ``interval``, or after ``max_s`` seconds.

    ``warmup_max_s`` bounds the warm-up, which ends by itself when the rate is steady.
    """

    max_s: Seconds = 30.0
    interval: Annotated[float, Field(gt=0, lt=1)] = 0.02
    warmup_max_s: Seconds = 10.0


class LoadGenSection(Frozen):
    """What MLPerf's LoadGen asks for, over at least ``measure.max_s``: all samples at once, or one by one."""

    scenario: Literal["offline", "single-stream"]


class MeterEntry(Frozen):
    """One meter, with its own options. No option holds a secret: they name where one is.

    ``period_s``: seconds between readings (None: as the meter itself would).
    """

    meter: str
    options: dict[str, Option] = Field(default_factory=dict)
    period_s: Annotated[float, Field(ge=0.01, le=60)] | None = None

    @property
    def source(self) -> dict[str, Option]:
        """The options that say what is read, without those that say how it is called."""
        named = {"boundary", "gain_error", "part", "semantics"}
        return {key: value for key, value in self.options.items() if key not in named}


class PowerSection(Frozen):
    """Which meters run beside the throughput trials, and for how long.

    ``idle_s`` is how long idle is measured, with no process of the study on the device, before the trials and
    again where a trial left the device warmer; ``min_s`` how long a load lasts at least, whatever
    ``measure`` says; ``idle_loaded_s`` how long idle is measured with the model loaded (0: not at all).
    After a load nothing is measured until power has fallen back and stays, for ``settle_max_s`` at most.
    """

    meters: Annotated[tuple[MeterEntry, ...], Field(min_length=1)]
    idle_s: Annotated[float, Field(ge=1)] = 30.0
    min_s: Annotated[float, Field(ge=1)] = 60.0
    idle_loaded_s: Annotated[float, Field(ge=0)] = 10.0
    settle_max_s: Annotated[float, Field(ge=0)] = 60.0

    @field_validator("meters", mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        return _spelled_out(value, "meter")

    @field_validator("meters")
    @classmethod
    def _none_twice(cls, value: tuple[MeterEntry, ...]) -> tuple[MeterEntry, ...]:
        for place, one in enumerate(value):
            if any(one.meter == other.meter and one.source == other.source for other in value[:place]):
                raise ValueError(f"{one.meter} stands twice, and would count twice")
        return value


class Limits(Frozen):
    """Bounds on one trial: seconds, and bytes of the worker's private memory (None: no bound)."""

    trial_s: Seconds = 600.0
    memory_bytes: Positive | None = None


class LaunchSection(Frozen):
    """How the ranks of a trial are started.

    ``template`` is a command line with ``{ranks}``, their number, and ``{command}``, what each runs; None:
    ``mpiexec -n {ranks} {command}``, and trials of one rank run without MPI. With a template every trial goes
    through it, so that the parent may stand on a login node. ``oversubscribe`` allows more CPU ranks than
    cores: several then share one.
    """

    template: str | None = None
    oversubscribe: bool = False

    @field_validator("template")
    @classmethod
    def _has_its_fields(cls, value: str | None) -> str | None:
        if value is None:
            return None
        words = shlex.split(value)
        if "{command}" not in words:
            raise ValueError("wants {command} as a word of its own")
        if not any("{ranks}" in word for word in words):
            raise ValueError("wants {ranks}, the number of ranks")
        return value


class Study(Frozen):
    """A matrix of trials. Lists must not be empty; entries may be written short, as plain names."""

    name: Annotated[str, matching(r"[A-Za-z0-9._-]+", "wants letters, digits and . _ - alone")] = "study"
    models: Annotated[tuple[ModelEntry, ...], Field(min_length=1)]
    engines: Annotated[tuple[EngineEntry, ...], Field(min_length=1)] = (EngineEntry(engine="onnxruntime"),)
    precisions: Annotated[tuple[Precision, ...], Field(min_length=1)] = ("fp32",)
    batches: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 8, 32)
    ranks: Annotated[tuple[Ranks, ...], Field(min_length=1)] = (1,)
    copies: Literal["included", "excluded"] = "included"
    repeats: Repeats = 3
    calibration: CalibrationSection | None = None
    accuracy: AccuracySection | None = None
    power: PowerSection | None = None
    measure: MeasureSection = MeasureSection()
    limits: Limits = Limits()
    kinds: tuple[SpeedKind, ...] = ("throughput", "latency")
    loadgen: LoadGenSection | None = None
    input: Annotated[tuple[Literal["synthetic", "images"], ...], Field(min_length=1)] = ("synthetic",)
    images: ImagesSection | None = None
    isolation: Literal["trial", "series"] = "trial"
    launch: LaunchSection = LaunchSection()
    threads: Count | None = None
    seed: Annotated[int, Field(ge=0, strict=True)] = 0

    @field_validator("models", "engines", mode="before")
    @classmethod
    def _short_forms(cls, value: object, info: ValidationInfo) -> object:
        return _spelled_out(value, str(info.field_name).removesuffix("s"))

    @field_validator("input", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _images_fit(self) -> Study:
        if "images" in self.input and self.copies == "excluded":
            raise ValueError("input: images wants copies: included: pictures have to get to the device")
        if self.images is not None and "images" not in self.input:
            raise ValueError("images: serves input: images alone: add it to input, or leave the section out")
        return self

    @model_validator(mode="after")
    def _loadgen_fits(self) -> Study:
        named = any("loadgen" in (self.kinds if one.kinds is None else one.kinds) for one in self.models)
        if named != (self.loadgen is not None):
            raise ValueError(
                "kinds: [loadgen] and loadgen: {scenario: offline} go together: give both or none"
            )
        return self

    @model_validator(mode="after")
    def _power_fits(self) -> Study:
        if self.power is None:
            return self
        if not any("throughput" in (self.kinds if one.kinds is None else one.kinds) for one in self.models):
            raise ValueError("power is measured in throughput trials: add throughput to kinds")
        if self.power.min_s + self.power.idle_loaded_s >= self.limits.trial_s:
            raise ValueError("power.min_s wants longer trials than limits.trial_s allows: raise the limit")
        return self

    @field_validator("precisions", "batches", "ranks", "kinds", "input")
    @classmethod
    def _no_repeats(cls, value: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(value)) != len(value):
            raise ValueError("an entry stands twice")
        return value


def load_study(path: Path) -> Study:
    """Read and check one study file; relative paths in it are taken from the file's folder.

    Raises:
        ConfigError: The file is unreadable, not YAML, or does not fit the schema.
    """
    content = read_yaml(path)
    study = parse(Study, content, str(path))
    return _paths_from(study, path.parent)


def read_yaml(path: Path) -> dict[str, Any]:
    """One YAML mapping from a file; a key that stands twice is refused.

    Raises:
        ConfigError: The file is unreadable, not YAML, or no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
        _check_size(yaml.compose(text, Loader=yaml.SafeLoader), {})
        content = yaml.load(text, Loader=_UniqueKeys)
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: is nested too deep") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: wants a mapping of keys to values at its top")
    return content


def parse(schema: type[T], content: Mapping[str, Any], where: str) -> T:
    """Check ``content`` against ``schema``; all faults in one line.

    Raises:
        ConfigError: Something does not fit; an unknown key comes with the nearest known one.
    """
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        found: list[dict[str, Any]] = [dict(item) for item in error.errors()]
        inside = {tuple(item["loc"][:end]) for item in found for end in range(len(item["loc"]))}
        # A list whose only entry is wrong is reported as too short as well, which it is not.
        told = [item for item in found if not (item["type"] == "too_short" and item["loc"] in inside)]
        faults = "; ".join(_fault(schema, item) for item in told)
        raise ConfigError(f"{where}: {faults}") from error


def duration_s(text: str) -> float:
    """Seconds from ``90``, ``90s``, ``9m``, ``1.5h``.

    Raises:
        ConfigError: It is no positive duration.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match or float(match[1]) <= 0:
        raise ConfigError(f"{text!r} is no duration: write for example 90s, 9m or 1.5h")
    return float(match[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]


def _spelled_out(value: object, key: str) -> object:
    if not isinstance(value, list | tuple):
        return value
    return [{key: item} if isinstance(item, str) else item for item in value]


def _fault(schema: type[BaseModel], item: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in item["loc"]) or "the file"
    if item["type"] == "extra_forbidden":
        return f"unknown key {place!r}{nearest(str(item['loc'][-1]), _keys(schema, item['loc'][:-1]))}"
    if item["type"] == "literal_error":
        known = re.findall(r"'([^']*)'", str(item["ctx"]["expected"]))
        return f"{place}: {item['input']!r} is not known{nearest(str(item['input']), known)}"
    if item["type"] in ("tuple_type", "list_type"):
        return f"{place}: wants a list, such as [{item['input']}]"
    if item["type"] in ("dict_type", "model_type", "model_attributes_type"):
        return f"{place}: wants a mapping of keys to values (got {item['input']!r})"
    if item["type"] == "missing":
        return f"{place!r} is missing"
    message = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:  # of the whole, whose content would be a page
        return f"{message[0].lower()}{message[1:]}"
    return f"{place}: {message[0].lower()}{message[1:]} (got {item['input']!r})"


def _keys(schema: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """The keys known at ``path`` inside ``schema``, for the nearest match."""
    for part in path:
        if isinstance(part, int):
            continue
        field = schema.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return []
        schema = inner
    return list(schema.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def _paths_from(study: Study, folder: Path) -> Study:
    """Make the file's relative paths relative to the working directory."""

    def place(text: str) -> str:
        looks_like_a_file = "/" in text or Path(text).suffix != "" or (folder / text).exists()
        return str(folder / text) if looks_like_a_file and not Path(text).is_absolute() else text

    def calibration(section: CalibrationSection | None) -> CalibrationSection | None:
        if section is None:
            return None
        split = section.split if section.split in SPLIT_RULES else place(section.split)
        labels = place(section.labels) if section.labels else None
        return section.model_copy(update={"data": place(section.data), "labels": labels, "split": split})

    def pictures(section: Pictures | None) -> Pictures | None:
        if section is None:
            return None
        labels = place(section.labels) if section.labels else None
        return section.model_copy(update={"data": place(section.data), "labels": labels})

    def power(section: PowerSection | None) -> PowerSection | None:
        if section is None:
            return None
        meters = []
        for entry in section.meters:
            files = {
                key: str(folder / value)  # an absolute one stays as it is
                for key, value in entry.options.items()
                if key in METER_FILES and isinstance(value, str)
            }
            meters.append(entry.model_copy(update={"options": entry.options | files}))
        return section.model_copy(update={"meters": tuple(meters)})

    def model(entry: ModelEntry) -> ModelEntry:
        placed = {
            "model": place(entry.model),
            "preprocess": place(entry.preprocess) if entry.preprocess else None,
            "weights": place(entry.weights) if entry.weights else None,
            "calibration": calibration(entry.calibration),
            "accuracy": pictures(entry.accuracy),
        }
        # What was not given must not look as if: null is an answer too.
        return entry.model_copy(update={key: placed[key] for key in placed.keys() & entry.model_fields_set})

    return study.model_copy(
        update={
            "models": tuple(model(entry) for entry in study.models),
            "calibration": calibration(study.calibration),
            "accuracy": pictures(study.accuracy),
            "images": pictures(study.images),
            "power": power(study.power),
        }
    )


def _check_size(node: yaml.Node | None, known: dict[int, int]) -> int:
    """Nodes below ``node`` with every alias written out; refuses what would grow without bound."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        children = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        known[id(node)] = 1 + sum(_check_size(child, known) for child in children)
        if known[id(node)] > _MAX_NODES:
            raise yaml.YAMLError(f"with its aliases written out it has more than {_MAX_NODES} entries")
    return known[id(node)]


class _UniqueKeys(yaml.SafeLoader):
    """SafeLoader that refuses a key that stands twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)

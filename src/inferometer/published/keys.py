"""Figures of a study's file to points: where a figure stands is spelt by the keys above it.

A key may name a metric, a section with a condition (``int8_batch_128_by_gpus``), a network, a precision, an
accelerator (with ``-x8`` for eight of them), a batch or a count. Every key must be understood and every
figure must end up with accelerator, network, precision and metric, or the file is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from inferometer.errors import ConfigError
from inferometer.published.points import Metric, PublishedPoint

__all__ = ["SECTIONS", "read_section"]

# Top-level sections of figures, and what their own keys say.
SECTIONS: dict[str, dict[str, Any]] = {
    "images_per_s": {"metric": "images_per_s"},
    "images_per_s_batch_128": {"metric": "images_per_s", "batch": 128},
    # A sample of an image classifier is one image; `total` and `per_gpu` tell the metric.
    "samples_per_s": {},
    "figures": {},
    "accuracy_percent": {},
}

_METRICS: dict[str, Metric] = {
    "images_per_s": "images_per_s",
    "images_per_s_per_w": "images_per_s_per_w",
    "total": "images_per_s",
    "per_gpu": "images_per_s_per_device",
    "top1": "top1",
    "top5": "top5",
}
_CONDITION = re.compile(
    r"""
    (?:figure_\d+_?)?
    (?:(?P<model>alexnet|googlenet|vgg16|vgg19|resnet50|resnet101|resnet152)_?)?
    (?:(?P<precision>fp32|tf32|fp16|bf16|int8)_?)?
    (?:one_(?P<one>[a-z0-9]+)_?)?
    (?:batch_?(?P<batch>\d+)_?)?
    (?:by_(?P<by>gpus|batch))?
    """,
    re.VERBOSE,
)
# What studies say in prose only, and their keys leave out.
_IN_PROSE: dict[str, dict[str, str]] = {
    # Its INT8 figures by number of GPUs are of the P40, the only accelerator there with INT8.
    "dell-2017-03-p40": {"accelerator": "tesla-p40"},
    # Its platform is one TITAN X of the Pascal generation.
    "nvidia-2017-gtc-8bit-inference": {"accelerator": "titan-x-pascal"},
    # Its title names the network, its head comment the precision.
    "mlperf-resnet50-offline": {"model": "resnet50", "precision": "int8"},
}
_ACCURACY = ("top1", "top5")


@dataclass(frozen=True)
class _Place:
    """What the keys down to here have said."""

    study: str
    keys: tuple[str, ...]
    accelerators: tuple[str, ...]
    metric: Metric | None = None
    accelerator: str | None = None
    model: str | None = None
    precision: str | None = None
    batch: int | None = None
    count: int | None = None
    numbers: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    def refuse(self, what: str) -> NoReturn:
        raise ConfigError(f"published study {self.study}: {' / '.join(self.keys)}: {what}")

    def told(self, **said: Any) -> _Place:
        """The place with more said; the same thing said twice is a contradiction."""
        for name in said:
            if getattr(self, name) is not None:
                self.refuse(f"{name} is named twice on the way to here")
        return replace(self, **said)


def read_section(
    study: str, section: str, content: object, accelerators: Mapping[str, object]
) -> list[PublishedPoint]:
    """Turn one top-level section into points, one for each figure in it.

    Args:
        study: The study's name.
        section: The section's key, one of `SECTIONS`.
        content: What lies below it.
        accelerators: The accelerators that the study specifies.

    Raises:
        ConfigError: A key or a figure is not understood.
    """
    place = _Place(study, (section,), tuple(accelerators), **SECTIONS[section])
    if section != "figures":
        return list(_points(place, content))
    points: list[PublishedPoint] = []
    for key, figure in _items(place, content):
        named = _descend(place, key)
        for metric, values in _items(named, figure):
            points += _relative(_descend(named, metric), values)
    return points


def _items(place: _Place, content: object) -> Iterator[tuple[object, object]]:
    if not isinstance(content, dict) or not content:
        place.refuse(f"expected a mapping, found {content!r}")
    yield from content.items()


def _points(place: _Place, content: object) -> Iterator[PublishedPoint]:
    if isinstance(content, dict):
        notes = {key: value for key, value in content.items() if key == "round" and isinstance(value, str)}
        place = replace(place, notes={**place.notes, **notes})
        for key, below in _items(place, content):
            if key not in notes:
                yield from _points(_descend(place, key), below)
    else:
        yield _point(place, content)


def _descend(place: _Place, key: object) -> _Place:
    """Go one key down and take in what it says."""
    place = replace(place, keys=(*place.keys, str(key)))
    if isinstance(key, int) and not isinstance(key, bool):
        return _number(place, key)
    if not isinstance(key, str):
        place.refuse("a key must be a word or a whole number")
    if key in _METRICS:
        return place.told(metric=_METRICS[key])
    if key in place.accelerators:
        return place.told(accelerator=key)
    several = re.fullmatch(r"([a-z0-9]+(?:-[a-z0-9]+)*)-x(\d+)", key)
    if several:
        return place.told(accelerator=several[1], count=int(several[2]))
    said = _CONDITION.fullmatch(key)
    if not said or not key:
        place.refuse("this key is not understood")
    return _condition(place, said)


def _number(place: _Place, key: int) -> _Place:
    """A whole number is what the section's name says, or else whichever of batch and count is still open."""
    meaning = place.numbers or {(True, False): "batch", (False, True): "count"}.get(
        (place.batch is None, place.count is None)
    )
    if meaning is None:
        place.refuse(f"it is not clear whether {key} is a batch or a count")
    if key < 1:
        place.refuse("a batch or a count is at least 1")
    return place.told(**{meaning: key})


def _condition(place: _Place, said: re.Match[str]) -> _Place:
    found: dict[str, Any] = {name: said[name] for name in ("model", "precision") if said[name]}
    if said["batch"]:
        found["batch"] = int(said["batch"])
    if said["by"]:
        found["numbers"] = "count" if said["by"] == "gpus" else "batch"
    if said["one"]:
        found["count"] = 1
        if said["one"] != "gpu":
            named = [name for name in place.accelerators if name.endswith(f"-{said['one']}")]
            if len(named) != 1:
                place.refuse(f"{said['one']!r} names none or several of the study's accelerators")
            found["accelerator"] = named[0]
    return place.told(**found)


def _point(place: _Place, figure: object) -> PublishedPoint:
    prose = _IN_PROSE.get(place.study, {})
    found = {name: getattr(place, name) or prose.get(name) for name in ("accelerator", "model", "precision")}
    for name, value in {**found, "metric": place.metric}.items():
        if value is None:
            place.refuse(f"no key tells the {name} of this figure")
    value = _value(place, figure)
    return PublishedPoint.model_validate(
        {
            **found,
            "batch": place.batch,
            # A throughput with no number of accelerators is that of one.
            "count": place.count or (None if place.metric in _ACCURACY else 1),
            "metric": place.metric,
            "value": value,
            "status": "out_of_memory" if value is None else "ok",
            "relative_to": None,
            "section": " / ".join(place.keys),
            "notes": dict(place.notes),
        }
    )


def _value(place: _Place, figure: object) -> float | None:
    """The figure in our units; ``None`` for one that ran out of memory."""
    if figure == "out_of_memory":
        return None
    if isinstance(figure, bool) or not isinstance(figure, (int, float)):
        place.refuse(f"expected a number or 'out_of_memory', found {figure!r}")
    if not 0 <= figure < math.inf:
        place.refuse(f"{figure} is no throughput or accuracy")
    if place.metric not in _ACCURACY:
        return float(figure)
    if figure > 100:
        place.refuse(f"{figure} is no percentage")
    return figure / 100


def _relative(place: _Place, content: object) -> list[PublishedPoint]:
    """Points whose values are multiples of the first of them, which is therefore 1."""
    points = list(_points(place, content))
    base = points[0]
    if base.value != 1:
        place.refuse(f"figures are multiples of the first one, which must be 1 and is {base.value}")
    return [point.model_copy(update={"relative_to": base.coordinates}) for point in points]

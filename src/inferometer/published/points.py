"""What a published study says, as points that stand beside measured records."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["Coordinates", "Metric", "PublishedPoint", "PublishedStudy"]

Metric = Literal["images_per_s", "images_per_s_per_device", "images_per_s_per_w", "top1", "top5"]
"""What a point's value is; ``top1`` and ``top5`` are fractions."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Coordinates(_Frozen):
    """Where a point stands.

    Attributes:
        accelerator: Name in the specification data, such as ``tesla-p4``.
        model: Network, such as ``googlenet``.
        precision: ``fp32``, ``int8``, ...
        batch: Images per inference call; ``None`` where the study states none, and for accuracy.
        count: Accelerators at work at once; ``None`` for accuracy, on which it has no bearing.
    """

    accelerator: str
    model: str
    precision: str
    batch: int | None
    count: int | None


class PublishedPoint(Coordinates):
    """One figure of a study.

    Attributes:
        metric: What the value is; its unit is in the name, unless the point is relative.
        value: The figure; ``None`` when the status is not ``ok``.
        status: ``ok``, or ``out_of_memory`` where the study reports that.
        relative_to: The point, of the same metric, that this value is a multiple of; ``None``: the value is
            absolute.
        section: Where in the study's file the figure lies, keys joined by `` / ``.
        notes: What the file says beside the figure, such as the round of a benchmark.
    """

    metric: Metric
    value: float | None
    status: Literal["ok", "out_of_memory"]
    relative_to: Coordinates | None
    section: str
    notes: dict[str, str]

    @property
    def coordinates(self) -> Coordinates:
        """Where the point stands, without what it says."""
        return Coordinates(**{name: getattr(self, name) for name in Coordinates.model_fields})


class PublishedStudy(_Frozen):
    """One published study. ``None`` means that the study's file does not state it.

    Attributes:
        name: The file's stem.
        title: The publication's title.
        source: Who published it and where: the comment at the head of the file.
        date: ``YYYY-MM``.
        platform: Machine and software measured on.
        engine: Inference engine.
        accelerators: Specifications as the study gives them, by accelerator; units are in the keys.
        points: All figures, in the file's order.
        facts: What else the file holds, as it stands there (``accuracy_protocol``, ...).
    """

    name: str
    title: str
    source: str
    date: str | None
    platform: str | None
    engine: str | None
    accelerators: dict[str, dict[str, float | int | str | None]]
    points: tuple[PublishedPoint, ...]
    facts: dict[str, Any]

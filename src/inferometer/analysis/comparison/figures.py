"""The figures of the 2017 studies from any points: images/s and images/s/W, by devices and by batch.

Everything is relative to one figure of the first series, as there: one device at the same batch, or one
device at the smallest batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inferometer.analysis.comparison.compare import Comparison
from inferometer.analysis.comparison.differences import told
from inferometer.analysis.comparison.points import Metric, Point
from inferometer.analysis.comparison.ratios import RatioRow
from inferometer.analysis.comparison.subjects import subject_names, subject_words
from inferometer.analysis.wording import joined, model_names

__all__ = ["Bar", "StudyFigure", "comparison_figures", "study_figures"]

By = Literal["devices", "batch"]


@dataclass(frozen=True)
class Bar:
    """One place of a figure.

    Attributes:
        series: What is compared, in words.
        at: Devices, or the batch.
        rate: Images/s, relative; None where it is not known.
        efficiency: Images/s/W, likewise.
        status: As of a record.
    """

    series: str
    at: int
    rate: float | None
    efficiency: float | None
    status: str = "ok"


@dataclass(frozen=True)
class StudyFigure:
    """One figure.

    Attributes:
        by: What runs along it.
        title: The network, precision and batch or devices.
        rate_base: What images/s are relative to, in words; None: none are known.
        efficiency_base: What images/s/W are relative to.
        bars: In the order of the series, then along the figure.
        note: What stands side by side in it and is not comparable, and why.
    """

    by: By
    title: str
    rate_base: str | None
    efficiency_base: str | None
    bars: tuple[Bar, ...]
    note: str | None = None

    @property
    def name(self) -> str:
        """For a file: letters, digits and hyphens."""
        plain = "".join(sign if sign.isalnum() else " " for sign in f"{self.title} by {self.by}".lower())
        return "-".join(plain.split())


def comparison_figures(found: Comparison) -> tuple[StudyFigure, ...]:
    """The figures of a comparison: the baseline first, and what is not comparable said on each."""
    name = subject_names(found.sources, found.axis)
    points = [point for source in found.sources for point in source.points]
    points.sort(key=lambda one: name(one) != found.baseline)
    refused = {id(row.own): row for row in found.ratios if row.ratio is None}
    made = []
    for one, drawn in _figures(points, by_precision=found.axis == "precision"):
        rows = [refused[id(point)] for point in drawn if id(point) in refused]
        note = "; ".join(
            _refusal(found, rows, subject) for subject in dict.fromkeys(row.subject for row in rows)
        )
        made.append(replace(one, note=note or None))
    return tuple(made)


def _refusal(found: Comparison, rows: Sequence[RatioRow], subject: str) -> str:
    every = (each for row in rows if row.subject == subject for each in row.comparability.refusing)
    reasons = list(dict.fromkeys(every))
    both = f"{subject_words(subject)} against {subject_words(found.baseline)}"
    return f"{both} is not comparable: {joined(told(reasons))}"


def study_figures(points: Sequence[Point], *, by_precision: bool = False) -> tuple[StudyFigure, ...]:
    """Figures of every network and precision that has several devices at work, or several batches.

    Args:
        points: Relative to the first of them.
        by_precision: Precisions are series of one figure, rather than each a figure of its own.
    """
    return tuple(one for one, _ in _figures(points, by_precision=by_precision))


def _figures(points: Sequence[Point], *, by_precision: bool) -> Iterable[tuple[StudyFigure, Sequence[Point]]]:
    """With the points drawn. Where batch or devices differ there are several figures."""
    names = model_names(one.model for one in points)

    def kind(point: Point) -> tuple[str, str | None]:
        return point.model, None if by_precision else point.precision

    for model, precision in dict.fromkeys(kind(one) for one in points if one.count is not None):
        own = [one for one in points if kind(one) == (model, precision)]
        what = names[model] + (f", {precision.upper()}" if precision else "")
        for batch in sorted({one.batch for one in own if one.batch is not None}):
            at = [one for one in own if one.batch == batch]
            made = _figure("devices", f"{what}, batch {batch}", at, lambda one: one.count)
            yield from ((one, at) for one in made)
        single = [one for one in own if one.count == 1]
        made = _figure("batch", f"{what}, one device", single, lambda one: one.batch)
        yield from ((one, single) for one in made)


def _figure(
    by: By, title: str, points: Sequence[Point], at: Callable[[Point], int | None]
) -> Iterable[StudyFigure]:
    """The figure, if one of the two has at least two places along it."""
    series = _series(points)
    rates, rate_base = _relative(points, "images_per_s", at, by)
    efficiencies, efficiency_base = _relative(points, "images_per_s_per_w", at, by)
    bars = []
    for key, name in series.items():
        mine = [one for one in points if _key(one) == key]
        for place in sorted({value for one in mine if (value := at(one)) is not None}):
            here = [one for one in mine if at(one) == place]
            lost = next((one.status for one in here if one.status != "ok"), "ok")
            rate, efficiency = rates.get((key, place)), efficiencies.get((key, place))
            status = lost if rate is None and efficiency is None else "ok"
            if rate is not None or efficiency is not None or status != "ok":
                bars.append(Bar(name, place, rate, efficiency, status))
    if rate_base is not None or efficiency_base is not None:
        yield StudyFigure(by, title, rate_base, efficiency_base, tuple(bars))


Key = tuple[object, ...]


def _key(point: Point) -> Key:
    place = point.source, point.machine_key, point.device, point.engine
    return *place, point.precision, point.settings


def _series(points: Sequence[Point]) -> dict[Key, str]:
    """What is compared, named by what tells it apart."""
    keys = list(dict.fromkeys(_key(one) for one in points))
    firsts = {key: next(one for one in points if _key(one) == key) for key in keys}

    def differ(value: Callable[[Point], object]) -> bool:
        return len({value(one) for one in firsts.values()}) > 1

    def alike() -> bool:
        return len({tuple(part(one) for part in parts) for one in firsts.values()}) < len(keys)

    parts: list[Callable[[Point], str | None]] = []
    if differ(lambda one: one.precision):
        parts.append(lambda one: one.precision.upper())
    if not parts or differ(lambda one: one.device):
        parts.append(lambda one: one.device)
    if differ(lambda one: one.engine):
        parts.append(lambda one: one.engine)
    for part in _MORE:
        if alike() and differ(part):
            parts.append(part)
    return {key: ", ".join(text for part in parts if (text := part(one))) for key, one in firsts.items()}


_MORE: tuple[Callable[[Point], str | None], ...] = (
    lambda one: one.source,
    lambda one: f"machine {one.machine_key[:6]}" if one.machine_key else None,
    lambda one: ", ".join(f"{name} {value}" for name, value in one.settings),
)


def _relative(
    points: Sequence[Point], metric: Metric, at: Callable[[Point], int | None], by: By
) -> tuple[dict[tuple[Key, int], float], str | None]:
    """Each figure over one of the first series that has any: its first along the figure."""
    known = _of_one_scale([one for one in points if one.metric == metric and one.value is not None], at)
    if len({at(one) for one in known}) < 2:
        return {}, None
    first = _key(known[0])
    base = min((one for one in known if _key(one) == first), key=lambda one: at(one) or 0)
    assert base.value is not None
    name = _series(points)[first]
    place = "one device" if by == "devices" and at(base) == 1 else f"{at(base)} devices"
    words = f"{name}, {place if by == 'devices' else f'batch {at(base)}'}"
    values = {
        (_key(one), spot): one.value / base.value
        for one in known
        if one.value is not None and (spot := at(one)) is not None
    }
    return values, words


def _of_one_scale(points: Sequence[Point], at: Callable[[Point], int | None]) -> list[Point]:
    """Multiples of different things have no common scale: those that cover most of the figure."""
    groups: dict[object, list[Point]] = {}
    for one in points:
        if at(one) is not None:
            groups.setdefault(one.relative_to, []).append(one)
    return max(groups.values(), key=lambda group: len({at(one) for one in group}), default=[])

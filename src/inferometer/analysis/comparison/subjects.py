"""What stands beside what: the axis of a comparison, the subject of each point, and the baseline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

from inferometer.analysis.comparison.matters import Axis
from inferometer.analysis.comparison.points import Point, Source
from inferometer.analysis.grouping import PRECISION_ORDER
from inferometer.analysis.wording import joined
from inferometer.errors import ConfigError, nearest

__all__ = ["Namer", "apart_in", "axes_of", "baseline_of", "subject_names", "subject_words", "subjects_of"]

Namer = Callable[[Point], str]
"""Says something of a point in words."""

_NOT_KNOWN = "not known"


def axes_of(sources: Sequence[Source]) -> tuple[Axis, ...]:
    """What varies, the likeliest question first.

    Of several sources it is the machine, or the store where all come from one.

    Raises:
        ConfigError: One source, in which nothing does.
    """
    points = [point for source in sources for point in source.points]
    if not points:
        raise ConfigError(
            f"{joined([source.label for source in sources])} {'holds' if len(sources) == 1 else 'hold'} no"
            " figure: nothing to compare"
        )
    if len(sources) > 1:
        keys = {point.machine_key for point in points}
        return ("store",) if len(keys) == 1 and None not in keys else ("machine",)
    varied: dict[Axis, set[str | None]] = {
        "machine": {point.machine_key for point in points},
        "device": {point.device for point in points},
        "engine": {point.engine for point in points},
        "precision": {point.precision for point in points},
    }
    found = tuple(axis for axis, values in varied.items() if len(values) > 1)
    if found:
        return found
    raise ConfigError(
        f"{joined([source.label for source in sources])} holds one machine, device, engine and precision:"
        " name a second study to compare it with"
    )


def subject_names(sources: Sequence[Source], axis: Axis) -> Namer:
    """The subject that each point belongs to, as a function of the point."""
    if axis == "device":
        return lambda point: point.device
    if axis == "engine":
        return lambda point: point.engine or _NOT_KNOWN
    if axis == "precision":
        return lambda point: point.precision
    if axis == "store":
        return lambda point: point.source
    return _machine_namer(sources)


def subjects_of(sources: Sequence[Source], axis: Axis) -> tuple[str, ...]:
    """All subjects in order of first appearance; precisions from the widest on.

    Raises:
        ConfigError: There is but one.
    """
    name = subject_names(sources, axis)
    found = list(dict.fromkeys(name(point) for source in sources for point in source.points))
    if axis == "precision":
        found.sort(key=lambda one: PRECISION_ORDER.index(one) if one in PRECISION_ORDER else 99)
    if len(found) < 2:
        what = f"one {axis}, {found[0]}" if found else "no figure"
        raise ConfigError(
            f"nothing to compare by {axis}: {joined([one.label for one in sources])}"
            f" {'holds' if len(sources) == 1 else 'hold'} {what}"
        )
    return tuple(found)


def apart_in(sources: Sequence[Source], name: Namer) -> Namer:
    """What tells figures of one subject apart that come from several places; mostly there is nothing to say.

    By precision, those of two folders would otherwise read as one, and so would those of two devices.

    Args:
        sources: Stores and studies.
        name: The subject that a point belongs to.
    """
    points = [point for source in sources for point in source.points]
    told: list[Namer] = []
    for part in _PARTS:
        groups: dict[Hashable, set[str]] = defaultdict(set)
        for point in points:
            groups[(name(point), *(other(point) for other in told))].add(part(point))
        if any(len(found) > 1 for found in groups.values()):
            told.append(part)
    return lambda point: ", ".join(text for part in told if (text := part(point)))


_PARTS: tuple[Namer, ...] = (
    lambda point: point.source,
    lambda point: f"machine {point.machine_key[:6]}" if point.machine_key else "",
    lambda point: point.device,
    lambda point: point.engine or "",
    lambda point: ", ".join(f"{setting} {value}" for setting, value in point.settings),
)


def subject_words(subject: str) -> str:
    """In sentences and tables precisions are written large."""
    return subject.upper() if subject in PRECISION_ORDER else subject


def baseline_of(subjects: Sequence[str], wanted: str | None) -> str:
    """The subject of that name, or of which it is an unambiguous part; the first without a wish.

    Raises:
        ConfigError: None or several are.
    """
    if wanted is None:
        return subjects[0]
    if wanted in subjects:
        return wanted
    fitting = [one for one in subjects if wanted.lower() in one.lower()] if wanted else []
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ConfigError(
            f"--baseline: {wanted!r} may be any of {', '.join(fitting)}; write more of the name"
        )
    raise ConfigError(f"--baseline: there is no {wanted!r}{nearest(wanted, subjects)}")


def _machine_namer(sources: Sequence[Source]) -> Namer:
    """The source's label where it holds one machine; each accelerator of a study stands for a machine."""
    titles: Mapping[str, Mapping[str | None, str]] = {source.label: _titles(source) for source in sources}
    kinds = {source.label: {point.machine or point.device for point in source.points} for source in sources}

    def name(point: Point) -> str:
        known = titles[point.source]
        part = known.get(point.machine_key if point.machine_key is not None else point.device)
        if len(known) < 2 or part is None:
            return point.source
        if len(sources) == 1:
            return part
        return f"{point.source} {part if len(kinds[point.source]) > 1 else f'[{_key(point)}]'}"

    return name


def _key(point: Point) -> str:
    return (point.machine_key or point.device)[:6]


def _titles(source: Source) -> dict[str | None, str]:
    """The machines of a source by what tells them apart, each by a title of its own."""
    if source.study is not None:
        return {point.device: point.device for point in source.points}
    found = {point.machine_key: point.machine or _NOT_KNOWN for point in source.points}
    twins = len(set(found.values())) < len(found)
    return {key: f"{title} [{(key or '')[:6]}]" if twins else title for key, title in found.items()}

"""Which measured setup meets a need, with how many devices; and which are beaten in everything (pure).

Only what was measured counts. A need is met when the cautious end of a figure meets it: the lower end of its
interval for a rate, the upper one for watts, joules and losses, the worst repeat for a percentile. What is
not known meets nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from inferometer.analysis.choose_candidates import Stamped, candidates
from inferometer.analysis.choose_needs import judged
from inferometer.analysis.choose_rows import Candidate, Choice, Need, Source
from inferometer.analysis.choose_words import why_not
from inferometer.analysis.rows import Summary
from inferometer.analysis.wording import joined, percent, plural
from inferometer.errors import ConfigError, nearest

__all__ = ["choose"]

_RIVALS = 3
_NULL = "null"  # computes nothing: it bounds the harness beside engines that do


def choose(
    sources: Sequence[Source], need: Need, stamped: Sequence[Stamped], prices: Mapping[str, float]
) -> Choice:
    """Judge every throughput setup of some stores by a need.

    Args:
        sources: The stores.
        need: What is asked for; None in it: no matter.
        stamped: For each source, how long the calls of its throughput trials took.
        prices: Of one device, by the source's name.

    Raises:
        ConfigError: There are several models and none is named, or no setup has a rate.
    """
    model = _model(sources, need.model)
    found = [
        judged(
            replace(one, name=f"{source.name}: {one.title}") if len(sources) > 1 else one,
            need,
            source.summary,
        )
        for source, calls in zip(sources, stamped, strict=True)
        for one in candidates(source, model, need, calls, prices.get(source.name))
    ]
    found = [one for one in found if one.setup.engine != _NULL] or found
    if not found:
        raise ConfigError(f"no throughput trial of {model or 'any model'} in these studies gave a rate")
    order = sorted(_pareto(found), key=lambda one: _order(one, need))
    verdict = order[0].verdict
    first = order[0] if verdict == "meets" else None
    told = tuple(replace(one, why_not=why_not(one, first, need)) for one in order)
    names = next(one.summary.names for one in sources if model in one.summary.names)
    return Choice(
        need=need,
        model=model,
        model_name=names[model],
        candidates=told,
        best=told[0] if first else None,
        nearest=None if first else told[0],
        verdict=verdict,
        rivals=tuple(_rivals(told, need)) if first else (),
        notes=tuple(_notes(sources, model)),
        folders=tuple((one.name, one.folder) for one in sources),
    )


def _model(sources: Sequence[Source], wanted: str | None) -> str:
    """The model as the records name it, asked for so or by its short name."""
    rows = [(one.summary, row) for one in sources for row in one.summary.throughput]
    known = list(dict.fromkeys(row.setup.model for _, row in rows))
    if wanted is None and len(known) > 1:
        raise ConfigError(f"these studies hold several models: give --model, one of {', '.join(known)}")
    if wanted is None:
        return known[0] if known else ""
    short = {summary.names[row.setup.model]: row.setup.model for summary, row in rows}
    if wanted not in known and wanted not in short:
        raise ConfigError(f"--model: there is no {wanted!r}{nearest(wanted, known)}")
    return wanted if wanted in known else short[wanted]


def _order(one: Candidate, need: Need) -> tuple[float, ...]:
    """Those that meet the need first, the least costly first; of those that fail, what misses by least."""
    rank = ("meets", "not known", "fails").index(one.verdict)
    misses = [each for each in one.judged if each.verdict == one.verdict != "meets"]
    excess = max((each.excess for each in misses if each.excess is not None), default=0.0)
    return (rank, len(misses), excess, *_cost(one, need))


def _cost(one: Candidate, need: Need) -> tuple[float, ...]:
    """What it takes: price, devices, watts; where no rate is asked for, first what a device gives."""
    price = math.inf if one.price is None else one.price
    watts = math.inf if one.load_w is None else one.load_w
    devices = math.inf if one.devices is None else float(one.devices)
    if need.images_per_s is None:
        given = one.crew.images_per_s
        return (price / given if given > 0 else math.inf, -one.rate, watts)
    return (price, devices, watts, -one.rate)


def _rivals(order: Sequence[Candidate], need: Need) -> list[Candidate]:
    """Those not known to meet the need that would do it with less than the first; the least first."""
    unknown = [one for one in order if one.verdict == "not known"]
    least = [one for one in unknown if _cost(one, need)[:2] < _cost(order[0], need)[:2]]
    return sorted(least, key=lambda one: _cost(one, need))[:_RIVALS]


def _pareto(found: Sequence[Candidate]) -> list[Candidate]:
    """With, for each that another beats, one that does: where it can be, one that none beats."""
    front = [one for one in found if not any(_beats(other, one) for other in found)]
    made = []
    for one in found:
        better = next((other for other in (*front, *found) if _beats(other, one)), None)
        made.append(replace(one, beaten_by=None if better is None else better.name))
    return made


def _beats(other: Candidate, one: Candidate) -> bool:
    """Whether it is no worse in anything that ``one`` tells, and better in something.

    One whose trials left out what those of ``one`` included, such as copies, beats nothing.
    """
    theirs, mine = _goods(other), _goods(one)
    if not mine.keys() <= theirs.keys() or not set(one.hard) <= set(other.hard):
        return False
    if not _within_least(other, one):
        return False
    pairs = [(theirs[name], mine[name]) for name in mine]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _within_least(other: Candidate, one: Candidate) -> bool:
    """Whether its calls under load are no longer than the least that is known of ``one``, if no more is."""
    mine, theirs = one.crew.latency, other.crew.latency
    if mine is None or not mine.under_load or mine.p99_s is not None:
        return True
    if theirs is None or not theirs.under_load:
        return False
    return (theirs.least_s if theirs.p99_s is None else theirs.p99_s) <= mine.least_s


def _goods(one: Candidate) -> dict[str, float]:
    """What is known of it, the more the better: images/s of a device, less p99 and joules, top-1.

    Joules of another boundary, and calls that were not under load, are other figures.
    """
    values = {
        "rate": one.rate,
        "p99": None if one.loaded_s is None else -one.loaded_s,
        f"joules of {one.crew.boundary}": None if one.crew.j_per_image is None else -one.crew.j_per_image,
        "top-1": one.top1,
    }
    return {name: value for name, value in values.items() if value is not None}


def _notes(sources: Sequence[Source], model: str) -> Iterable[str]:
    """What holds for all candidates, or keeps others from being one."""
    files = {row.sha256 for one in sources for row in one.summary.models if row.model == model}
    if len(files) > 1:
        yield f"{len(files)} different model files go by this name: their accuracy may differ"
    yield from _one_machine(sources)
    for one in sources:
        change = one.summary.machine_change
        if change is not None and change.changed:
            moved = change.reason or f"its {change.probe} probe moved by {percent(change.change or 0)}"
            yield f"{one.name}: the machine changed while it was measured: {moved}"
        yield from _lost(one.name, one.summary, model)


def _one_machine(sources: Sequence[Source]) -> Iterable[str]:
    """Two folders of one machine are no two machines to choose from."""
    found: dict[str, list[str]] = {}
    for one in sources:
        for machine in one.summary.machines:
            found.setdefault(machine.key, []).append(one.name)
    for names in dict.fromkeys(tuple(dict.fromkeys(names)) for names in found.values() if len(names) > 1):
        if len(names) > 1:
            yield f"{joined(names)} come from one machine: whether it is faster in one, compare tells"


def _lost(name: str, summary: Summary, model: str) -> Iterable[str]:
    rows = [row for row in summary.throughput if row.setup.model == model and row.mean is None]
    ended: dict[str, list[str]] = {}
    for row in rows:
        where = f"{row.setup.precision.upper()} batch {row.setup.batch}"
        ended.setdefault(row.status.replace("_", " "), []).append(where)
    if ended:
        told = [f"{status}: {joined(where)}" for status, where in ended.items()]
        yield f"{name}: {plural(len(rows), 'setup')} gave no rate ({'; '.join(told)})"

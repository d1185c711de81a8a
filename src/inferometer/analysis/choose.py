"""Which measured setup meets a need, with how many devices; and which are beaten in everything (pure).

Only what was measured counts. A need is met when the cautious end of a figure meets it: the lower end of the
interval between repeats for a rate, the upper one for joules, the worst repeat for a percentile. What is not
known meets nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from inferometer.analysis.choose_rows import Candidate, Choice, Judged, Need, NeedVerdict, Source
from inferometer.analysis.grouping import first_places, place_of
from inferometer.analysis.marks import is_marked
from inferometer.analysis.power import PowerRow
from inferometer.analysis.rows import AccuracyRow, Summary, ThroughputRow
from inferometer.analysis.setup import Setup
from inferometer.analysis.wording import joined, milliseconds, percent, plural, rate, significant
from inferometer.errors import ConfigError

__all__ = ["LoadedLatency", "choose", "sentence"]

LoadedLatency = Callable[[str], float | None]
"""The 99th percentile of a trial's calls under load, s, by the record's id; None: too few, or not kept."""


def choose(
    sources: Sequence[Source], need: Need, p99_s: Sequence[LoadedLatency], prices: Mapping[str, float]
) -> Choice:
    """Judge every throughput setup of some stores by a need.

    Args:
        sources: A summary each, with the name that people know it by.
        need: What is asked for; None in it: no matter.
        p99_s: For each source, the latency under load.
        prices: Of one device, by the source's name.

    Raises:
        ConfigError: There are several models and none is named, or no setup has a rate.
    """
    model = _model(sources, need.model)
    found: list[Candidate] = []
    for source, latency in zip(sources, p99_s, strict=True):
        found += _candidates(source, model, need, latency, prices.get(source.name))
    if not found:
        raise ConfigError(f"there is no throughput of {model or 'any model'} in these studies")
    fair = _pareto(found)
    order = sorted(fair, key=_order)
    verdicts = {one.verdict for one in order}
    word = next(word for word in ("meets", "not known", "fails") if word in verdicts)
    return Choice(
        need=need,
        model=model,
        candidates=tuple(order),
        best=order[0] if word == "meets" else None,
        nearest=None if word == "meets" else order[0],
        verdict=word,
    )


def _model(sources: Sequence[Source], wanted: str | None) -> str:
    known = list(dict.fromkeys(row.setup.model for one in sources for row in one.summary.throughput))
    if wanted is None and len(known) > 1:
        raise ConfigError(f"these studies hold several models: give --model, one of {', '.join(known)}")
    if wanted is not None and wanted not in known:
        raise ConfigError(f"--model: there is no {wanted!r}; known are {', '.join(known) or 'none'}")
    return wanted or (known[0] if known else "")


def _candidates(
    source: Source, model: str, need: Need, latency: LoadedLatency, price: float | None
) -> Iterable[Candidate]:
    summary = source.summary
    rated = [row for row in summary.throughput if row.mean is not None and row.setup.model == model]
    told = first_places(row.setup for row in rated)
    for row in rated:
        if row.setup in told and row.mean is not None:
            yield _judged(_candidate(source, row, row.mean, latency, price), need, summary)


def _candidate(
    source: Source, row: ThroughputRow, mean: float, latency: LoadedLatency, price: float | None
) -> Candidate:
    """One setup with all that is known of it; needs are judged later."""
    setup, summary = row.setup, source.summary
    p99 = [latency(name) for name in row.record_ids]
    known = [one for one in p99 if one is not None]
    power = next((one for one in summary.power if one.setup == setup and one.first), None)
    scored = _scored(summary, setup)
    low = row.interval[0] if row.interval and row.ci_kind == "between_repeats" else mean
    return Candidate(
        source=source.name,
        machine=summary.machines[setup.machine].title if summary.machines else "not known",
        setup=setup,
        name=summary.names[setup.model],
        devices=setup.ranks,
        images_per_s=mean,
        least_images_per_s=max(low, 0.0),
        p99_s=max(known) if known and len(known) >= len(row.repeats) else None,
        load_w=power.load_w if power else None,
        boundary=power.boundary if power else None,
        j_per_image=_joules(power),
        most_j_per_image=power.j_interval[1] if power and power.j_interval else _joules(power),
        top1=scored.top1.value if scored and scored.top1 else None,
        price=None if price is None else price * setup.ranks,
        units=None,
        cautions=_cautions(row, source.settings),
        judged=(),
        verdict="not known",
        beaten_by=None,
        record_ids=row.record_ids,
    )


def _joules(power: PowerRow | None) -> float | None:
    return power.j_per_image if power else None


def _scored(summary: Summary, setup: Setup) -> AccuracyRow | None:
    """The accuracy of the same model, engine, device and precision, where it is one."""
    found = [
        one
        for one in summary.accuracy
        if place_of(one.setup) == place_of(setup)
        and one.setup.precision == setup.precision
        and one.top1 is not None
    ]
    return found[0] if len(found) == 1 else None


def _cautions(row: ThroughputRow, settings: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    copies, fed = settings.get(row.record_ids[0], ("included", "synthetic"))
    made = []
    if copies == "excluded" and row.setup.device != "cpu":
        made.append("copies to and from the device are not in it")
    if fed == "synthetic":
        made.append("synthetic input: decoding pictures is not in it")
    if len(row.repeats) < 2:
        made.append("one repeat: how far others would differ is not known")
    if is_marked(row.mac_share):
        made.append(f"only {percent(row.mac_share or 0, 0)} of the arithmetic ran at the precision")
    return tuple(made)


def _judged(one: Candidate, need: Need, summary: Summary) -> Candidate:
    """With a verdict on each need, and the number of units that the rate wants."""
    units = 1
    judged: list[Judged] = []
    if need.images_per_s is not None:
        units = math.ceil(need.images_per_s / one.least_images_per_s) if one.least_images_per_s > 0 else 0
        told: NeedVerdict = "meets" if units else "not known"
        wanted = plural(units * one.devices, "device") if units else "the interval of its rate reaches 0"
        judged.append(Judged("rate", told, wanted))
    one = replace(one, units=units or None)
    if units > 1:
        one = replace(one, cautions=(*one.cautions, f"{units} times as many devices: linear is assumed"))
    if need.p99_s is not None:
        judged.append(_at_most("p99", one.p99_s, one.p99_s, need.p99_s, milliseconds, "ms"))
    if need.watts is not None:
        total = None if one.load_w is None or not units else one.load_w * units
        judged.append(_at_most("watts", total, total, need.watts, significant, "W"))
    if need.j_per_image is not None:
        judged.append(
            _at_most("joules", one.j_per_image, one.most_j_per_image, need.j_per_image, significant, "J")
        )
    if need.min_top1 is not None:
        judged.append(_accuracy(one, need.min_top1))
    if need.max_drop is not None:
        judged.append(_drop(one, summary, need.max_drop))
    words = {each.verdict for each in judged}
    verdict: NeedVerdict = "fails" if "fails" in words else "not known" if "not known" in words else "meets"
    return replace(one, judged=tuple(judged), verdict=verdict)


def _at_most(
    what: str,
    value: float | None,
    cautious: float | None,
    limit: float,
    text: Callable[[float], str],
    unit: str,
) -> Judged:
    if value is None or cautious is None:
        return Judged(what, "not known", "not measured")
    if cautious <= limit:
        return Judged(what, "meets", f"{text(value)} {unit}")
    if value <= limit:
        return Judged(what, "not known", f"{text(value)} {unit}, up to {text(cautious)} within its interval")
    return Judged(what, "fails", f"{text(value)} {unit}, {value / limit:.2g} times what is allowed")


def _accuracy(one: Candidate, least: float) -> Judged:
    if one.top1 is None:
        return Judged("top-1", "not known", "not measured")
    return Judged("top-1", "meets" if one.top1 >= least else "fails", percent(one.top1))


def _drop(one: Candidate, summary: Summary, most: float) -> Judged:
    """Against fp32, image by image: the cautious end of the difference counts."""
    if one.setup.precision == "fp32":
        return Judged("drop", "meets", "it is FP32")
    row = next(
        (
            each
            for each in summary.differences
            if each.metric == "top1"
            and place_of(each.setup_b) == place_of(one.setup)
            and each.setup_b.precision == one.setup.precision
            and each.setup_a.precision == "fp32"
        ),
        None,
    )
    if row is None:
        return Judged("drop", "not known", "its accuracy was not compared with FP32's")
    told = f"{-row.delta * 100:+.2f} points (up to {-row.interval[0] * 100:+.2f}), {row.verdict}"
    if -row.interval[0] <= most:
        return Judged("drop", "meets", told)
    return Judged("drop", "fails" if -row.delta > most else "not known", told)


def _pareto(found: Sequence[Candidate]) -> list[Candidate]:
    """With, for each that another beats, one that does."""
    made = []
    for one in found:
        better = next((other for other in found if other is not one and _beats(other, one)), None)
        made.append(replace(one, beaten_by=None if better is None else _title(better)))
    return made


def _beats(other: Candidate, one: Candidate) -> bool:
    """Whether it is no worse in anything that ``one`` tells, and better in something."""
    theirs, mine = _goods(other), _goods(one)
    shared = [(theirs[name], mine[name]) for name in mine if name in theirs]
    whole = len(shared) == len(mine)
    return (
        whole
        and all(a >= b for a, b in shared)
        and (any(a > b for a, b in shared) or len(theirs) > len(mine))
    )


def _goods(one: Candidate) -> dict[str, float]:
    """What is known of it, the more the better: images/s of a device, less p99 and joules, top-1."""
    values = {
        "rate": one.images_per_s / one.devices,
        "p99": None if one.p99_s is None else -one.p99_s,
        "joules": None if one.j_per_image is None else -one.j_per_image,
        "top-1": one.top1,
    }
    return {name: value for name, value in values.items() if value is not None}


def _title(one: Candidate) -> str:
    setup = one.setup
    return f"{one.source}: {setup.engine} {setup.device} {setup.precision.upper()} batch {setup.batch}"


def _order(one: Candidate) -> tuple[float, ...]:
    """Those that meet the need first: the cheapest, with the fewest devices, watts, then the fastest."""
    rank = ("meets", "not known", "fails").index(one.verdict)
    units = one.units or math.inf
    failed = sum(each.verdict == "fails" for each in one.judged)
    price = math.inf if one.price is None else one.price * units
    watts = math.inf if one.load_w is None else one.load_w * units
    return (rank, failed, price, units * one.devices, watts, -one.images_per_s / one.devices)


def sentence(choice: Choice) -> str:
    """What to take, or what comes nearest and why it is not enough."""
    one = choice.best or choice.nearest
    assert one is not None
    number = plural((one.units or 1) * one.devices, "device")
    told = "; ".join(f"{each.what} {each.evidence}" for each in one.judged if each.what != "rate")
    what = f"{_title(one)}, {number} ({one.machine})"
    per = (
        f"{rate(one.images_per_s)} images/s each"
        if one.devices == 1
        else f"{rate(one.images_per_s)} images/s"
    )
    if choice.verdict == "meets":
        return f"Take {what}: {per}{'; ' + told if told else ''}."
    if choice.verdict == "fails":
        wrong = joined([f"{each.what} ({each.evidence})" for each in one.judged if each.verdict == "fails"])
        return f"None meets the need. Nearest comes {what}: it fails by {wrong}."
    unknown = joined([f"{each.what} ({each.evidence})" for each in one.judged if each.verdict == "not known"])
    return f"It cannot be told: {what} would do, but for {unknown}."

"""A choice in sentences: what to take and why, why the others lose, and what would tell more (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from inferometer.analysis.cautions import listed
from inferometer.analysis.choose_rows import Candidate, Choice, Need, What
from inferometer.analysis.wording import (
    count,
    joined,
    milliseconds,
    percent,
    plural,
    range_text,
    rate,
    significant,
)

__all__ = ["advice", "need_text", "sentence", "why_not"]

_P99_CALLS = 500  # the fewest that tell a 99th percentile
_ROOM = 1.2  # more than the time that so many calls took
_NAMES: dict[What, str] = {"joules": "energy", "watts": "power"}


def need_text(need: Need) -> str:
    """What was asked for: ``50,000 images/s or more, p99 10 ms or less``."""
    told = [
        text
        for value, text in (
            (need.images_per_s, f"{significant(need.images_per_s or 0)} images/s or more"),
            (need.p99_s, f"p99 {milliseconds(need.p99_s or 0)} ms or less"),
            (need.watts, f"{significant(need.watts or 0)} W or less"),
            (need.j_per_image, f"{significant(need.j_per_image or 0)} J/image or less"),
            (need.min_top1, f"top-1 {percent(need.min_top1 or 0)} or more"),
            (need.max_drop, f"{(need.max_drop or 0) * 100:g} points of top-1 lost at most"),
        )
        if value is not None
    ]
    return ", ".join(told) or "Nothing in particular is asked for: most images/s of a device"


def sentence(choice: Choice) -> str:
    """What to take, or what comes nearest and why it is not enough."""
    one = choice.best or choice.nearest
    assert one is not None
    if choice.verdict == "meets":
        rest = [_told(each.what, each.evidence) for each in one.judged if each.what != "rate"]
        price = [f"price {significant(one.price)}"] if one.price is not None else []
        return f"Take {_what(one)}. {'; '.join([_rate(one), *rest, *price])}."
    misses = [_told(each.what, each.evidence) for each in one.judged if each.verdict == choice.verdict]
    if choice.verdict == "fails":
        return f"None meets the need. Nearest comes {_what(one)}; what limits it: {'; '.join(misses)}."
    return f"It cannot be told: {_what(one)} would do, but for this: {'; '.join(misses)}."


def why_not(one: Candidate, best: Candidate | None, need: Need) -> str | None:
    """Why it is not the one to take: the need that it misses, or what it takes more than the best."""
    if one is best:
        return None
    if one.verdict != "meets" or best is None:
        misses = [_told(each.what, each.evidence) for each in one.judged if each.verdict == one.verdict]
        return "; ".join(misses)
    if need.images_per_s is None:
        if one.price is not None and best.price is not None:
            return f"price of an image/s {significant(_per(one))}, not {significant(_per(best))}"
        return f"{rate(one.rate)} images/s a device, not {rate(best.rate)}"
    if one.price != best.price and best.price is not None:
        own = "no price is known" if one.price is None else f"price {significant(one.price)}"
        return f"{own}, not {significant(best.price)}"
    if one.devices != best.devices:
        return f"{plural(one.devices or 0, 'device')}, not {count(best.devices or 0)}"
    if one.load_w != best.load_w and best.load_w is not None:
        own = "its watts are not known" if one.load_w is None else f"{significant(one.load_w)} W"
        return f"{own}, not {significant(best.load_w)}"
    return f"{rate(one.rate)} images/s a device, not {rate(best.rate)}"


def advice(choice: Choice) -> list[str]:
    """What would do with less if it were known, and what to measure where something is not."""
    found = []
    if choice.best is not None and choice.rivals:
        what = "With less than that might do" if choice.need.images_per_s is not None else "More might give"
        found.append(f"{what}: {'; '.join(map(_rival, choice.rivals))}.")
    unknown = [one for one in choice.candidates if one.verdict == "not known"]
    for what, text in _REMEDIES.items():
        lacking = [one for one in unknown if one.verdict_on(what) == "not known"]
        found += text(choice, lacking) if lacking else []
    return found


def _what(one: Candidate) -> str:
    if one.devices is None:
        return f"{one.name} ({one.machine})"
    number = plural(one.devices, "device")
    if one.per_machine is not None and one.devices > one.per_machine:
        machines = math.ceil(one.devices / one.per_machine)
        held = f"{plural(one.per_machine, 'device')} each" if one.per_machine > 1 else "one each"
        number += f" in {plural(machines, 'machine')}, {held}"
    return f"{one.name}, {number} ({one.machine})"


def _rate(one: Candidate) -> str:
    """What a device gives, by its interval, and so all of them."""
    crew = one.crew
    each = "one gives" if crew.devices == 1 else f"{count(crew.devices)} together gave"
    spread = plural(crew.repeats, "repeat")
    if crew.interval is not None:
        spread = f"{range_text(*crew.interval, like=crew.images_per_s)}, {spread}"
    told = f"{each} {rate(crew.images_per_s)} images/s ({spread})"
    if one.devices is not None and one.devices != crew.devices and one.least_images_per_s is not None:
        told += f", so {count(one.devices)} give {rate(one.least_images_per_s)} or more"
    return told[0].upper() + told[1:]


def _per(one: Candidate) -> float:
    return (one.price or 0.0) / max(one.crew.images_per_s, 1e-9)


def _rival(one: Candidate) -> str:
    unknown = [_NAMES.get(each.what, each.what) for each in one.judged if each.verdict == "not known"]
    return f"{one.name}, {plural(one.devices or 0, 'device')} (not known: {joined(unknown)})"


def _told(what: What, evidence: str) -> str:
    return f"{_NAMES.get(what, what)}: {evidence}"


def _run(choice: Choice, lacking: Sequence[Candidate], *, again: bool = False) -> str:
    """The command, with the study's own folder, or another where all is measured again."""
    if again:
        return "inferometer run STUDY.yaml --out NEW"
    folders = dict(choice.folders)
    names = dict.fromkeys(one.source for one in lacking)
    return joined([f"inferometer run STUDY.yaml --out {folders[name]}" for name in names])


def _of(lacking: Sequence[Candidate]) -> str:
    return listed(one.name for one in lacking)


def _more_repeats(choice: Choice, lacking: Sequence[Candidate]) -> list[str]:
    most = max(one.crew.repeats for one in lacking) * 2
    return [f"rate of {_of(lacking)}: repeats: {most} in the study, then {_run(choice, lacking)}"]


def _p99(choice: Choice, lacking: Sequence[Candidate]) -> Iterable[str]:
    few = [one for one in lacking if one.crew.latency is not None and one.crew.latency.under_load]
    others = [one for one in lacking if one not in few]
    if few:
        seconds = max(_seconds(one) for one in few)
        yield (
            f"p99 of {_of(few)}: measure: {{max_s: {seconds}, interval: 0.0001}} in the study ({_P99_CALLS}"
            f" calls in each repeat), then {_run(choice, few, again=True)}"
        )
    if others:
        again = _run(choice, others, again=True)
        yield f"p99 of {_of(others)}: copy sidecars/ along with records.jsonl, or {again}"


def _seconds(one: Candidate) -> int:
    """How long so many calls take on each device."""
    return math.ceil(_P99_CALLS * (one.setup.batch or 1) / max(one.rate, 1e-9) * _ROOM)


def _power(choice: Choice, lacking: Sequence[Candidate], what: What) -> Iterable[str]:
    metered = [one for one in lacking if _is_metered(one, what)]
    others = [one for one in lacking if one not in metered]
    name = _NAMES[what]
    if metered:
        yield f"{name} of {_of(metered)}: more repeats: in the study, then {_run(choice, metered)}"
    if others:
        meter = "rapl" if all(one.setup.device == "cpu" for one in others) else "nvml"
        yield (
            f"{name} of {_of(others)}: power: {{meters: [{meter}]}} in the study (docs/power.md), then"
            f" {_run(choice, others, again=True)}"
        )


def _is_metered(one: Candidate, what: What) -> bool:
    return bool(one.crew.watts) if what == "watts" else one.crew.j_per_image is not None


def _accuracy(choice: Choice, lacking: Sequence[Candidate], what: What) -> Iterable[str]:
    scored = [one for one in lacking if (one.top1 if what == "top-1" else one.loss) is not None]
    others = [one for one in lacking if one not in scored]
    precisions = listed(one.setup.precision.upper() for one in others)
    base = " and FP32 among its precisions" if what == "loss" else ""
    if scored:
        own = "a larger folder as accuracy: {data: DIR} in the study"
        yield f"{what} of {_of(scored)}: {own}, then {_run(choice, scored)}"
    if others:
        own = f"accuracy: {{data: DIR}} in the study{base}"
        yield f"{what} of {precisions}: {own}, then {_run(choice, others)}"


_REMEDIES: dict[What, Callable[[Choice, Sequence[Candidate]], Iterable[str]]] = {
    "rate": _more_repeats,
    "p99": _p99,
    "watts": lambda choice, lacking: _power(choice, lacking, "watts"),
    "joules": lambda choice, lacking: _power(choice, lacking, "joules"),
    "top-1": lambda choice, lacking: _accuracy(choice, lacking, "top-1"),
    "loss": lambda choice, lacking: _accuracy(choice, lacking, "loss"),
}

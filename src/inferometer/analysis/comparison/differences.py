"""Are two points like for like? Every difference that matters, ranked, and what is not known of either."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from inferometer.analysis.comparison.facts import SETTLED, Fact, Facts, facts_of, is_cpu
from inferometer.analysis.comparison.matters import Axis, Context, matter_of
from inferometer.analysis.comparison.points import Point, Source
from inferometer.analysis.wording import joined, percent, significant

__all__ = ["Comparability", "Difference", "Likeness", "Side", "by_name", "likeness", "most_of", "told"]

Likeness = Literal["like for like", "comparable along the axis", "comparable, but marked", "not comparable"]


@dataclass(frozen=True)
class Side:
    """One side of a pair: a point, and the source that it is of."""

    point: Point
    source: Source

    @cached_property
    def facts(self) -> Facts:
        """All that could move its value."""
        return facts_of(self.point, self.source)


@dataclass(frozen=True)
class Difference:
    """One thing in which two points differ.

    Attributes:
        name: What it is.
        own: Of the point that is judged, in words.
        base: Of the other.
        bound: How much it could move the number (a fraction; infinite: another quantity).
        along_axis: It is what was asked about, or comes with it.
        refuses: The two cannot be compared for it.
        measured: A number that was read off and differs from trial to trial, not a setting.
    """

    name: str
    own: str
    base: str
    bound: float
    along_axis: bool
    refuses: bool
    measured: bool = False

    @property
    def text(self) -> str:
        """``threads: 1 against 2 (up to 100 %)``."""
        return f"{self.name}: {self.own} against {self.base}{self.bound_text}"

    @property
    def bound_text(self) -> str:
        """How much it could move the number, in brackets; empty where that has no limit."""
        if math.isinf(self.bound):
            return ""
        return f" (up to {percent(self.bound, 1 if self.bound < 0.01 else 0)})"


@dataclass(frozen=True)
class Comparability:
    """What may be said of a pair, or of all pairs of two subjects.

    Attributes:
        likeness: The verdict.
        differences: Largest bound first, those off the axis before those along it.
        unknown: Names of what is not known of one side at least: not taken to be equal.
        pairs: How many pairs of points this is of.
        refused: How many of them are not comparable.
    """

    likeness: Likeness
    differences: tuple[Difference, ...]
    unknown: tuple[str, ...]
    pairs: int = 1
    refused: int = 0

    @property
    def refusing(self) -> tuple[Difference, ...]:
        """Those for which the two cannot be compared."""
        return tuple(one for one in self.differences if one.refuses)

    @property
    def marking(self) -> tuple[Difference, ...]:
        """Those off the axis that leave the ratio standing, with a mark."""
        return tuple(one for one in self.differences if not one.refuses and not one.along_axis)

    @property
    def text(self) -> str:
        """The verdict with its reason."""
        if self.refusing:
            return f"not comparable: {joined(told(self.refusing))}"
        if self.marking:
            return f"comparable, but marked: {joined(told(self.marking))}"
        return self.likeness


def by_name(differences: Sequence[Difference]) -> list[tuple[Difference, int]]:
    """Each thing once, by the difference that could move a figure most, and how many others there are."""
    groups: dict[str, list[Difference]] = defaultdict(list)
    for one in differences:
        groups[one.name].append(one)
    return [(max(members, key=lambda one: one.bound), len(members) - 1) for members in groups.values()]


def told(differences: Sequence[Difference]) -> list[str]:
    """The same in words."""
    return [one.text + (f" and {more} more" if more else "") for one, more in by_name(differences)]


def likeness(own: Side, base: Side, axis: Axis, *, as_populated: bool = False) -> Comparability:
    """Hold the facts behind two points against one another.

    Args:
        own: The one that is judged.
        base: What it is held against.
        axis: What is asked about: differences that belong to it do no harm.
        as_populated: Each with all devices that it has: their number is no difference then.
    """
    context = _context(own, base)
    found = sorted(
        (
            one
            for one in _differences(own.facts, base.facts, context, axis)
            if not (as_populated and one.name == "devices at once")
        ),
        key=_rank,
    )
    unknown = tuple(
        name
        for name in dict.fromkeys([*own.facts, *base.facts])
        if _unknown(name, own.facts) or _unknown(name, base.facts)
    )
    relative = _relative(own.point, base.point)
    if relative is not None:
        found.insert(0, relative)
    refused = any(one.refuses for one in found)
    return Comparability(_verdict(found), tuple(found), unknown, refused=int(refused))


def most_of(pairs: Sequence[Comparability]) -> Comparability:
    """All pairs of two subjects in one: each difference once, and of what was measured the largest.

    Args:
        pairs: At least one.
    """
    found: dict[tuple[str, ...], Difference] = {}
    for pair in pairs:
        for one in pair.differences:
            key = (one.name,) if one.measured else (one.name, one.own, one.base)
            if key not in found or one.bound > found[key].bound:
                found[key] = one
    ranked = sorted(found.values(), key=_rank)
    refused = sum(bool(pair.refusing) for pair in pairs)
    # One pair that fits is enough to speak of the two; the table tells which do not.
    verdict = _verdict(ranked) if refused in (0, len(pairs)) else "comparable, but marked"
    unknown = dict.fromkeys(name for pair in pairs for name in pair.unknown)
    return Comparability(verdict, tuple(ranked), tuple(unknown), len(pairs), refused)


def _verdict(found: Sequence[Difference]) -> Likeness:
    if any(one.refuses for one in found):
        return "not comparable"
    if any(not one.along_axis for one in found):
        return "comparable, but marked"
    return "comparable along the axis" if found else "like for like"


def _rank(one: Difference) -> tuple[bool, bool, float, str]:
    return not one.refuses, one.along_axis, -one.bound, one.name


def _context(own: Side, base: Side) -> Context:
    cpus = [is_cpu(one.point) for one in (own, base)]
    return Context(
        accuracy=own.point.metric in ("top1", "top5"),
        cpu=all(cpus),
        mixed=any(cpus) and not all(cpus),
        int8="int8" in (own.point.precision, base.point.precision),
        images="images" in (own.facts.get("input"), base.facts.get("input")),
    )


def _differences(own: Facts, base: Facts, context: Context, axis: Axis) -> Iterator[Difference]:
    for name in dict.fromkeys([*base, *own]):
        if name.startswith(SETTLED) or _unknown(name, own) or _unknown(name, base):
            continue
        if own.get(name) == base.get(name):  # what ``auto`` came to on each side comes with the two
            continue
        ours, theirs = _fact(name, own), _fact(name, base)
        if ours == theirs:
            continue
        matter = matter_of(name)
        bound = matter.bound(ours, theirs, context)
        if not bound > matter.from_:
            continue
        along = axis in matter.axes or _comes_with(name, own, base, context, axis)
        refuses = (matter.refuses or math.isinf(bound)) and not along
        # A setting that hardly bears on these figures is no reason to refuse them.
        refuses = refuses and bound > _SMALL
        own_words, base_words = _pair_of_words(name, ours, theirs)
        yield Difference(
            name=_title(name),
            own=own_words,
            base=base_words,
            bound=bound,
            along_axis=along,
            refuses=refuses,
            measured=isinstance(ours, float) and isinstance(theirs, float),
        )


def _fact(name: str, facts: Facts) -> Fact:
    """Of an option what it came to, where the engine tells."""
    prefix, _, option = name.partition(".")
    settled = facts.get(f"{SETTLED}{option}") if prefix == "options" else None
    return settled or facts.get(name, "not given" if prefix == "options" else "none")


_SMALL = 0.1
"""Up to this bound a difference marks a ratio rather than refusing it (a fraction). Source: chosen."""


def _comes_with(name: str, own: Facts, base: Facts, context: Context, axis: Axis) -> bool:
    """What follows from the axis without belonging to it by nature."""
    if axis == "machine" and name == "threads":
        # Each machine's own cores, all of them.
        return all(one.get("threads") == one.get("cores usable") for one in (own, base))
    return (
        axis in ("machine", "device")
        and context.mixed
        and name.partition(".")[0] in ("threads", "options", "copies")
    )


def _unknown(name: str, facts: Facts) -> bool:
    """Of ``preprocess.crop`` it is enough that ``preprocess`` is not known."""
    return any(key in facts and facts[key] is None for key in (name, name.partition(".")[0]))


def _relative(own: Point, base: Point) -> Difference | None:
    """A multiple has no unit: only those of one figure of one study can be held against each other."""
    if own.relative_to == base.relative_to and (own.relative_to is None or own.source == base.source):
        return None
    return Difference("kind of figure", _kind(own), _kind(base), math.inf, along_axis=False, refuses=True)


def _kind(point: Point) -> str:
    if point.relative_to is None:
        return "absolute"
    place = point.relative_to
    batch = f", batch {place.batch}" if place.batch is not None else ""
    return f"a multiple of {place.count or 1} x {place.accelerator}{batch} in {point.source}"


def _title(name: str) -> str:
    prefix, _, key = name.partition(".")
    if prefix in ("options", "preprocess", "measure", "settings") and key:
        return {"options": f"option {key}", "preprocess": f"preprocessing, {key}"}.get(prefix, f"{key}")
    return name.partition(",")[0].replace("_", " ")


def _pair_of_words(name: str, ours: Fact, theirs: Fact) -> tuple[str, str]:
    """Both facts; of two machines of one kind what tells them apart."""
    words = _words(name, ours), _words(name, theirs)
    if name == "machine":
        (title, _, key), (other, _, other_key) = (one.removesuffix("]").rpartition(" [") for one in words)
        if title == other:
            return key, other_key
    return words


def _words(name: str, fact: Fact) -> str:
    if isinstance(fact, float):
        if name.endswith("Hz"):
            return f"{significant(fact / 1e6)} MHz"
        if name.endswith("bytes/s"):
            return f"{significant(fact / 1e9)} GB/s"
        return percent(fact, 1) if name.startswith("share") else significant(fact)
    return str(fact)

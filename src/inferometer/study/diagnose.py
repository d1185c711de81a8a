"""Finding the preprocessing and the numbering of labels that fit a model, by what it gets right.

Ways to feed the model race on the same images: all of them on a few, those that are still in it on all. First
the normalisations in every order of the channels, each under several numberings of the labels; then, with the
best of these, the ways to resize and crop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inferometer.accuracy import PairedDifference, wilson_interval
from inferometer.analysis.diagnosis import (
    Alternative,
    Aspect,
    AspectName,
    Diagnosis,
    Evidence,
    Fault,
    beats_chance,
    best_of,
    compared,
    hopeless,
    tied,
    worse,
)
from inferometer.data.hypotheses import (
    Framing,
    Hypothesis,
    Numbering,
    framings,
    normalisations,
    numberings,
    offset_by,
    orders,
)
from inferometer.data.preprocess import Preprocessing
from inferometer.errors import DataError
from inferometer.study.examine import Examiner

__all__ = ["Given", "diagnose"]

_FIRST = 96  # images on which every way is tried
_SURVIVORS = 4  # ways that are tried on all of them, and presets if they are still in it

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Given:
    """What the user feeds the model so far."""

    preprocessing: Preprocessing
    label_offset: int


def diagnose(
    examiner: Examiner,
    side: int,
    channels: int,
    classes: int | None,
    *,
    integers: bool,
    as_they_are: bool,
    images: int,
    given: Given | None,
    on_progress: Progress,
) -> Diagnosis:
    """Find what fits.

    Args:
        examiner: The model and the images.
        side: Height and width of the model's input, pixels.
        channels: 1 or 3.
        classes: How many the model has; None when that is not known.
        integers: Whether the input takes pixels as they are, so that there is nothing to normalise.
        as_they_are: Whether all images have the size of the input already.
        images: How many to use at most.
        given: What the user feeds so far, if that is to be judged.
        on_progress: Told what is tried, and how much of it is done.

    Raises:
        DataError: No image can be used.
    """
    shapes = framings(side, as_they_are)
    known = normalisations(channels, integers)
    levels = [Hypothesis(shapes[0], one, order) for one in known for order in orders(channels)]
    examiner.settle(levels[0].preprocessing, images)
    search = _Search(examiner, on_progress)
    numbering, labels, best = search.labels(levels, numberings(classes))
    found = search.race("normalisation and channels", levels, numbering)
    level = _chosen(found, _levels_of(given, levels))
    shaped = [Hypothesis(one, level.normalisation, level.channels) for one in shapes]
    by_shape = search.race("resize and crop", shaped, numbering)
    final = _chosen(by_shape, _shapes_of(given, shaped))
    aspects = [labels, *_level_aspects(level, found), _framing_aspect(final, by_shape)]
    judged = _judged(search, given, final, numbering)
    evidence = judged.evidence
    return Diagnosis(
        fits=beats_chance(evidence) or beats_chance(best),
        images=len(evidence.hits),
        preprocessing=judged.preprocessing,
        label_offset=numbering.offset,
        devkit_labels=numbering.devkit is not None,
        top1=evidence.top1,
        ci95=wilson_interval(int(evidence.hits.sum()), len(evidence.hits)),
        aspects=tuple(one for one in aspects if one.alternatives),
        broken=int(evidence.broken.sum()),
        given_fits=judged.given_fits,
        given_top1=judged.top1,
        given_difference=judged.difference,
        faults=judged.faults,
        skipped=tuple(examiner.skipped),
    )


class _Search:
    """Runs ways through the model and remembers them."""

    def __init__(self, examiner: Examiner, on_progress: Progress) -> None:
        self._examiner, self._say = examiner, on_progress
        self._first = min(_FIRST, examiner.images)

    def labels(
        self, levels: Sequence[Hypothesis], known: Sequence[Numbering]
    ) -> tuple[Numbering, Aspect, Evidence]:
        """Which numbering of the labels fits best, whatever else does."""
        what = "ways to feed the model"
        done = 0

        def count(images: int) -> None:
            nonlocal done
            done += images
            self._say(what, done, len(levels) * self._first)

        seen = {
            (one, numbering): self._examiner.evidence(one.preprocessing, self._first, numbering, count)
            for one in levels
            for numbering in known
        }
        way, numbering = best_of(seen)
        rows = {other: seen[way, other] for other in known}
        best = rows.pop(numbering)
        others = tuple(_alternative(key.words, best, one) for key, one in rows.items())
        return numbering, Aspect("labels", numbering.words, best.top1, self._first, others), best

    def race(self, what: str, ways: Sequence[Hypothesis], numbering: Numbering) -> dict[Hypothesis, Evidence]:
        """All ways on a few images, the best of them on all; ways that do not fit the images are left out."""
        seen = {}
        for number, way in enumerate(ways):
            try:
                seen[way] = self._examiner.evidence(way.preprocessing, self._first, numbering, _quiet)
            except DataError:
                continue  # too small for this crop, for example
            self._say(what, number + 1, 2 * len(ways))
        best = seen[best_of(seen)]
        alive = [way for way in seen if not hopeless(best, seen[way])]
        alive.sort(key=lambda way: float(seen[way].log_likelihood.mean()), reverse=True)
        alive = alive[:_SURVIVORS] + [way for way in alive[_SURVIVORS:] if way.preset]
        for number, way in enumerate(alive):
            try:
                seen[way] = self.evidence(way, numbering)
            except DataError:
                del seen[way]
            self._say(what, len(ways) + number + 1, len(ways) + len(alive))
        return seen

    def evidence(self, way: Hypothesis | Preprocessing, numbering: Numbering) -> Evidence:
        """On all images."""
        how = way if isinstance(way, Preprocessing) else way.preprocessing
        return self._examiner.evidence(how, self._examiner.images, numbering, _quiet)


def _chosen(found: Mapping[Hypothesis, Evidence], given: Sequence[Hypothesis]) -> Hypothesis:
    """The best; among those that cannot be told from it what the user has, else a preset's, else the best."""
    full = max(len(one.hits) for one in found.values())
    whole = {way: one for way, one in found.items() if len(one.hits) == full}
    best = best_of(whole)
    equals = [way for way in whole if way == best or tied(whole[best], whole[way])]
    equals.sort(key=lambda way: whole[way].merit, reverse=True)
    for way in equals:
        if way in given:
            return way
    for way in equals:
        if way.preset:
            return way
    for way in equals:
        if way.channels == way.normalisation.preset_order:
            return way
    return best


def _levels_of(given: Given | None, ways: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The ways that normalise as the user does."""
    if given is None:
        return []
    wanted = given.preprocessing
    key = (wanted.channels, wanted.mean, wanted.std)
    return [
        one
        for one in ways
        if (one.preprocessing.channels, one.preprocessing.mean, one.preprocessing.std) == key
    ]


def _shapes_of(given: Given | None, ways: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The ways that resize and crop as the user does."""
    return [one for one in ways if given and _framing(one.preprocessing) == _framing(given.preprocessing)]


def _framing(how: Preprocessing) -> tuple[object, ...]:
    crop = None if how.crop == how.resize_exact else how.crop
    return how.resize_short, how.resize_exact, how.interpolation, crop


def _level_aspects(level: Hypothesis, found: Mapping[Hypothesis, Evidence]) -> list[Aspect]:
    """The other orders of the channels with this normalisation, and the other way round."""
    same_level = {one: seen for one, seen in found.items() if one.normalisation == level.normalisation}
    same_order = {one: seen for one, seen in found.items() if one.channels == level.channels}
    return [
        _aspect("channels", level, same_level, lambda one: one.channels),
        _aspect("normalisation", level, same_order, lambda one: one.normalisation.words),
    ]


def _framing_aspect(final: Hypothesis, found: Mapping[Hypothesis, Evidence]) -> Aspect:
    return _aspect("resize and crop", final, found, lambda one: one.framing.words)


def _aspect(
    name: AspectName,
    chosen: Hypothesis,
    found: Mapping[Hypothesis, Evidence],
    words: Callable[[Hypothesis], str],
) -> Aspect:
    best = found[chosen]
    others = sorted((way for way in found if way != chosen), key=lambda way: found[way].merit, reverse=True)
    rows = tuple(_alternative(words(way), best, found[way]) for way in others)
    return Aspect(name, words(chosen), best.top1, len(best.hits), rows)


def _alternative(value: str, best: Evidence, other: Evidence) -> Alternative:
    return Alternative(value, other.top1, compared(best, other), tied(best, other))


@dataclass(frozen=True)
class _Judged:
    """What fits, how good what the user feeds is, and what is wrong with it."""

    preprocessing: Preprocessing
    evidence: Evidence
    given_fits: bool = False
    top1: float | None = None
    difference: PairedDifference | None = None
    faults: tuple[Fault, ...] = ()


def _judged(search: _Search, given: Given | None, final: Hypothesis, numbering: Numbering) -> _Judged:
    """Compare what the user feeds with what fits, and put each difference into what fits, alone."""
    fits, evidence = final.preprocessing, search.evidence(final, numbering)
    if given is None:
        return _Judged(fits, evidence)
    renumbered = search.evidence(given.preprocessing, numbering)
    if not worse(evidence, renumbered):
        # What the user has goes before what is merely common, and needs not be common itself.
        fits, evidence = given.preprocessing, renumbered
    said = offset_by(given.label_offset)
    theirs = search.evidence(given.preprocessing, said)
    swaps: list[tuple[AspectName, str, str, Preprocessing, Numbering]] = []
    if said != numbering:
        swaps.append(("labels", said.words, numbering.words, fits, said))
    mine, own = given.preprocessing, fits
    if mine.channels != own.channels:
        turned = own.model_copy(
            update={"channels": mine.channels, "mean": own.mean[::-1], "std": own.std[::-1]}
        )
        if len(mine.channels) == len(own.channels):
            swaps.append(("channels", mine.channels, own.channels, turned, numbering))
    levels = (mine.mean, mine.std) if mine.channels == own.channels else (mine.mean[::-1], mine.std[::-1])
    if levels != (own.mean, own.std) and len(mine.mean) == len(own.mean):
        other = own.model_copy(update={"mean": levels[0], "std": levels[1]})
        swaps.append(("normalisation", _levels(*levels), _levels(own.mean, own.std), other, numbering))
    if _framing(mine) != _framing(own):
        shape = {key: getattr(mine, key) for key in ("resize_short", "resize_exact", "crop", "size")}
        other = own.model_copy(update={**shape, "interpolation": mine.interpolation})
        swaps.append(("resize and crop", _shape_words(mine), final.framing.words, other, numbering))
    faults = []
    for aspect, theirs_words, own_words, how, moved in swaps:
        seen = search.evidence(how, moved)
        if worse(evidence, seen):
            faults.append(Fault(aspect, theirs_words, own_words, seen.top1, compared(evidence, seen)))
    faults.sort(key=lambda fault: fault.difference.delta)
    same = fits == given.preprocessing and said == numbering
    return _Judged(fits, evidence, same, theirs.top1, compared(evidence, theirs), tuple(faults))


def _levels(mean: tuple[float, ...], std: tuple[float, ...]) -> str:
    def numbers(values: tuple[float, ...]) -> str:
        return ", ".join(f"{value:.5g}" for value in (values[:1] if len(set(values)) == 1 else values))

    return f"mean {numbers(mean)}, std {numbers(std)}"


def _shape_words(how: Preprocessing) -> str:
    side = how.crop if isinstance(how.crop, int) else how.resize_exact
    if side is None:
        return "images as they are"
    interpolation: Literal["bilinear", "bicubic"] = (
        "bicubic" if how.interpolation == "bicubic" else "bilinear"
    )
    words = Framing(side, interpolation, how.resize_short, how.resize_exact).words
    return words if how.interpolation != "nearest" else words.replace("bilinear", "nearest")


def _quiet(images: int) -> None:
    """Progress is told by the way, not by the image."""

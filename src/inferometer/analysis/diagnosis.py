"""Which of several ways to feed a model fits it: by what it got right, image by image.

Two ways are told apart by paired accuracy, or, where that is within noise, by the likelihood that the
model gives to the labels, which moves before the first class does.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from inferometer.accuracy import PairedDifference, paired_difference
from inferometer.analysis.wording import percent, plural, points
from inferometer.data.preprocess import Preprocessing

__all__ = [
    "Alternative",
    "Aspect",
    "AspectName",
    "Diagnosis",
    "Evidence",
    "Fault",
    "beats_chance",
    "best_of",
    "compared",
    "hopeless",
    "sentences",
    "tied",
    "worse",
]

K = TypeVar("K", bound=Hashable)

# A likelihood counts when it is beyond doubt and worth something: a shift of a thousandth of a nat, which
# hundreds of images show without doubt, is a matter of contrast and not of fit.
_LIKELIHOOD_T = 4.0
_LIKELIHOOD_NATS = 0.02
_CHANCE_P = 1e-6  # dozens of ways are tried
_DROPPED_P = 0.01
_NAMED = 3  # things that a sentence lists


AspectName = Literal["labels", "channels", "normalisation", "resize and crop"]


@dataclass(frozen=True)
class Alternative:
    """Another way, against the one that was chosen, on the images that both saw."""

    value: str
    top1: float
    difference: PairedDifference
    tied: bool


@dataclass(frozen=True)
class Aspect:
    """One question, its answer, and what else was tried.

    Attributes:
        name: Of the question.
        value: The answer.
        top1: With it, the other questions answered as they were when this one was asked.
        images: On so many.
        alternatives: The others, compared with it.
    """

    name: AspectName
    value: str
    top1: float
    images: int
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class Fault:
    """One aspect in which what the user feeds differs from what fits.

    Attributes:
        aspect: Which.
        given: What the user has.
        fits: What fits.
        top1: With everything as it fits but for this.
        difference: Of that against what fits.
    """

    aspect: AspectName
    given: str
    fits: str
    top1: float
    difference: PairedDifference


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Attributes:
        fits: Whether any way beats chance; if none does, the rest tells the best of them.
        images: How many were used.
        preprocessing: What fits, named after its preset if it is one.
        label_offset: To be added to labels.
        devkit_labels: Whether the labels are ids of the ILSVRC2012 development kit, which no offset mends.
        top1: With these.
        ci95: Its 95 % interval (Wilson).
        aspects: Question by question.
        broken: For how many of the images the model's output holds NaN.
        given_fits: Whether what the user gave is what fits.
        given_top1: With what the user gave; None when nothing was given.
        given_difference: Of that against what fits.
        faults: What is wrong with what the user gave, the worst first.
        skipped: Images that could not be used, and why.
    """

    fits: bool
    images: int
    preprocessing: Preprocessing
    label_offset: int
    devkit_labels: bool
    top1: float
    ci95: tuple[float, float]
    aspects: tuple[Aspect, ...]
    broken: int
    given_fits: bool
    given_top1: float | None
    given_difference: PairedDifference | None
    faults: tuple[Fault, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """What a model made of the images when fed in one way.

    Attributes:
        hits: [n] bool: whether the first class is the label.
        log_likelihood: [n] float64: natural logarithm of the probability given to the label.
        first: [n] int64: the first class.
        labels: [n] int64: the labels, numbered as the model numbers its classes.
        broken: [n] bool: whether the output holds NaN.
    """

    hits: npt.NDArray[np.bool_]
    log_likelihood: npt.NDArray[np.float64]
    first: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    broken: npt.NDArray[np.bool_]

    @property
    def top1(self) -> float:
        """Fraction of the images that are right."""
        return float(self.hits.mean())

    @property
    def merit(self) -> tuple[float, float]:
        """To order ways by: accuracy, then likelihood."""
        return self.top1, float(self.log_likelihood.mean())

    def head(self, count: int) -> Evidence:
        """Of the first images alone."""
        return Evidence(
            self.hits[:count],
            self.log_likelihood[:count],
            self.first[:count],
            self.labels[:count],
            self.broken[:count],
        )


def compared(one: Evidence, other: Evidence) -> PairedDifference:
    """How ``other`` differs from ``one`` on the images that both saw."""
    count = min(len(one.hits), len(other.hits))
    return paired_difference(one.hits[:count], other.hits[:count])


def tied(best: Evidence, other: Evidence) -> bool:
    """Whether neither accuracy nor likelihood tells two ways apart."""
    difference = compared(best, other)
    if difference.verdict != "within noise":
        return False
    count = difference.n
    gains = best.log_likelihood[:count] - other.log_likelihood[:count]
    spread = float(gains.std(ddof=1)) if count > 1 else 0.0
    mean = float(gains.mean())
    if abs(mean) <= _LIKELIHOOD_NATS:
        return True
    return spread > 0 and abs(mean) < _LIKELIHOOD_T * spread / math.sqrt(count)


def worse(one: Evidence, other: Evidence) -> bool:
    """Whether ``other`` is certainly worse than ``one``: in accuracy or, if that is noise, in likelihood."""
    difference = compared(one, other)
    if difference.verdict != "within noise":
        return difference.delta < 0
    count = difference.n
    return not tied(one, other) and float((one.log_likelihood - other.log_likelihood)[:count].mean()) > 0


def hopeless(best: Evidence, other: Evidence) -> bool:
    """Whether ``other`` is so much worse that more images would not change it."""
    difference = compared(best, other)
    return difference.delta < 0 and difference.p < _DROPPED_P


def best_of(found: Mapping[K, Evidence]) -> K:
    """The way with the highest merit; of equals the first."""
    return max(found, key=lambda key: found[key].merit)


def beats_chance(evidence: Evidence) -> bool:
    """Whether more is right than a model would get that knew how often classes occur, and no image.

    Returns:
        Whether P(X >= hits) < 1e-6, X binomial with the chance that a random image's first class is a random
        image's label. One-sided exact test, summed in logarithms.
    """
    count, right = len(evidence.hits), int(evidence.hits.sum())
    classes, times = np.unique(evidence.first, return_counts=True)
    chance = sum(
        float(n) / count * float(np.mean(evidence.labels == c)) for c, n in zip(classes, times, strict=True)
    )
    chance = min(max(chance, 1e-9), 1 - 1e-9)
    terms = [
        math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        + k * math.log(chance) + (count - k) * math.log1p(-chance)
        for k in range(right, count + 1)
    ]  # fmt: skip
    top = max(terms, default=-math.inf)
    tail = math.exp(top) * sum(math.exp(term - top) for term in terms) if terms else 0.0
    return right > 0 and tail < _CHANCE_P


def sentences(found: Diagnosis) -> list[str]:
    """What was found, in words: what fits, what is wrong with what the user has, what cannot be told."""
    low, high = found.ci95
    score = (
        f"{percent(found.top1)} top-1 on {found.images} images "
        f"(95 % interval {percent(low)} to {percent(high)})"
    )
    if not found.fits and found.broken:
        return [f"The model's output is NaN for {found.broken} of {found.images} images: nothing can fit it."]
    if not found.fits:
        return [
            f"Nothing fits: the best of all ways gives {score}, no better than chance. The model may be "
            "untrained, made for other classes, or its classes may be in another order than the labels."
        ]
    labels = "" if not found.label_offset else f", label_offset {found.label_offset}"
    how = "a preprocessing of its own" if found.preprocessing.name == "custom" else found.preprocessing.name
    lines = [f"What fits: preprocess {how}{labels}: {score}."]
    if found.devkit_labels:
        lines.append(
            "Labels: they are ids of the ILSVRC2012 development kit, which are in another order than the "
            "model's classes: give WordNet ids in their place (a column wnid), or the kit's own ground "
            "truth file."
        )
    if found.label_offset and not any(one.aspect == "labels" for one in found.faults):
        by = "one lower" if found.label_offset > 0 else "one higher"
        lines.append(
            f"Labels: the images' labels are {by} than the model's classes: use label_offset "
            f"{found.label_offset}."
        )
    lines += [_fault(found, one) for one in found.faults]
    if found.given_fits:
        lines.append("What you use fits: none of the common ways is certainly better.")
    if found.broken:
        lines.append(
            f"The model's output is NaN for {plural(found.broken, 'image')}: its arithmetic overflows there, "
            "and accuracy refuses it."
        )
    for aspect in found.aspects:
        same = [one.value for one in aspect.alternatives if one.tied]
        if same:
            more = f" and {len(same) - _NAMED} more" if len(same) > _NAMED else ""
            lines.append(
                f"{aspect.name.capitalize()}: {aspect.value}. {plural(found.images, 'image')} cannot tell it "
                f"from: {'; '.join(same[:_NAMED])}{more}."
            )
    if found.skipped:
        lines.append(
            f"{plural(len(found.skipped), 'image')} could not be used: {'; '.join(found.skipped[:3])}."
        )
    return lines


def _mend(found: Diagnosis) -> str:
    return f" (label_offset: {found.label_offset})" if found.label_offset else ""


def _fault(found: Diagnosis, fault: Fault) -> str:
    low, high = fault.difference.ci95
    cost = (
        f"top-1 {percent(fault.top1)} instead of {percent(found.top1)}, {points(fault.difference.delta)} "
        f"points (95 % interval {points(low)} to {points(high)})"
    )
    if fault.difference.verdict == "within noise":
        cost = f"as many are right ({percent(fault.top1)}), but the labels are given lower probabilities"
    what = {
        "labels": f"Wrong labels: taken {fault.given}, but they are {fault.fits}{_mend(found)}",
        "channels": f"Wrong order of channels: {fault.given}, the model wants {fault.fits}",
        "normalisation": f"Wrong normalisation: {fault.given}; the model wants {fault.fits}",
        "resize and crop": f"Wrong resizing or cropping: {fault.given}; the model wants {fault.fits}",
    }[fault.aspect]
    if fault.aspect == "normalisation" and fault.given == "mean 0, std 1":
        what = f"Normalisation is missing: the pixels are fed as they are; the model wants {fault.fits}"
    return f"{what}: {cost}."

"""Top-k accuracy, and whether two models that saw the same images really differ. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inferometer.errors import DataError

__all__ = [
    "PairedDifference",
    "Verdict",
    "agreement",
    "hits",
    "mcnemar_p",
    "paired_difference",
    "score",
    "tango_interval",
    "top_k",
    "wilson_interval",
]

Verdict = Literal["within noise", "a real loss", "a real gain"]

_Z95 = NormalDist().inv_cdf(0.975)  # 1.95996...: both tails of 5 %
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class PairedDifference:
    """How model b differs from model a on the same images.

    Attributes:
        n: Images.
        only_a: Images that a alone got right.
        only_b: Images that b alone got right.
        delta: Accuracy of b minus that of a, a fraction: (only_b - only_a) / n.
        ci95: 95 % interval of delta: Tango's score interval for paired proportions.
        p: Two-sided exact McNemar test of "no difference".
        verdict: ``within noise`` unless p < 0.05; then the interval excludes 0 too. Near the threshold the
            exact test is the stricter of the two: an interval that just excludes 0 can still be within noise.
        images_to_settle: About how many more images would make the observed difference significant; None when
            it is already, or when there is no difference to settle.
    """

    n: int
    only_a: int
    only_b: int
    delta: float
    ci95: tuple[float, float]
    p: float
    verdict: Verdict
    images_to_settle: int | None


def top_k(logits: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64]:
    """The k classes with the largest outputs, best first; of equal outputs the lower class first.

    Args:
        logits: [N, C] numbers (trailing dimensions of 1 are dropped); infinities are values like any other.
        k: 1..C.

    Returns:
        [N, k] int64.

    Raises:
        DataError: NaN among the outputs, another shape, or k outside 1..C.
    """
    if logits.ndim < 2 or any(length != 1 for length in logits.shape[2:]):
        raise DataError(f"outputs of shape {list(logits.shape)} are no class scores: wants [images, classes]")
    count, classes = logits.shape[:2]
    scores = logits.reshape(count, classes)
    if not 1 <= k <= classes:
        raise DataError(f"the best {k} of {classes} classes cannot be taken")
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    bad = np.flatnonzero(np.isnan(scores).any(axis=1))
    if bad.size:
        raise DataError(
            f"the model's output is NaN for {bad.size} of {count} images (first: number {bad[0]}): "
            "its arithmetic overflows at this precision, or the preprocessing is not its own"
        )
    return np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int64)


def hits(top: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], k: int) -> npt.NDArray[np.bool_]:
    """Whether each image's label is among its first k classes.

    Args:
        top: [N, >= k] int64, from ``top_k``.
        labels: [N] int64.
        k: 1 or more.

    Returns:
        [N] bool.

    Raises:
        DataError: The shapes do not fit.
    """
    if top.ndim != 2 or labels.shape != top.shape[:1] or not 1 <= k <= top.shape[1]:
        raise DataError(
            f"top-{k}: classes of shape {list(top.shape)} do not fit labels of shape {list(labels.shape)}"
        )
    found: npt.NDArray[np.bool_] = np.any(top[:, :k] == labels[:, np.newaxis], axis=1)
    return found


def score(top: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> tuple[float, float | None]:
    """Top-1 and top-5 accuracy, fractions.

    Args:
        top: [N, k] int64, from ``top_k``.
        labels: [N] int64.

    Returns:
        (top1, top5); top5 is None when k is below 5.

    Raises:
        DataError: No images, or the shapes do not fit.
    """
    if len(labels) == 0:
        raise DataError("no image to score")
    top1 = float(np.mean(hits(top, labels, 1)))
    return top1, float(np.mean(hits(top, labels, 5))) if top.shape[1] >= 5 else None


def agreement(top1_a: npt.NDArray[np.int64], top1_b: npt.NDArray[np.int64]) -> float:
    """Fraction of images for which both models give the same first class, right or wrong.

    Args:
        top1_a: [N] int64.
        top1_b: [N] int64.

    Raises:
        DataError: No images, or different numbers of them.
    """
    _check_pairs(top1_a, top1_b)
    return float(np.mean(top1_a == top1_b))


def paired_difference(correct_a: npt.NDArray[np.bool_], correct_b: npt.NDArray[np.bool_]) -> PairedDifference:
    """Compare two models on the same images in the same order.

    Args:
        correct_a: [N] bool: what ``hits`` gives for model a.
        correct_b: [N] bool: the same for model b.

    Raises:
        DataError: No images, or different numbers of them.
    """
    _check_pairs(correct_a, correct_b)
    n = len(correct_a)
    only_a = int(np.sum(correct_a & ~correct_b))
    only_b = int(np.sum(correct_b & ~correct_a))
    p = mcnemar_p(only_a, only_b)
    real = p < _SIGNIFICANT
    verdict: Verdict = "within noise" if not real else "a real gain" if only_b > only_a else "a real loss"
    return PairedDifference(
        n=n,
        only_a=only_a,
        only_b=only_b,
        delta=(only_b - only_a) / n,
        ci95=tango_interval(only_b, only_a, n),
        p=p,
        verdict=verdict,
        images_to_settle=None if real else _images_to_settle(only_a, only_b, n),
    )


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Two-sided exact McNemar test: each image that one model alone got right is a fair coin.

    Returns:
        min(1, 2 P(X <= min(only_a, only_b))), X binomial with only_a + only_b throws; 1 when there are none.
        Summed in integers and rounded once. Not the mid-p variant: it errs towards "within noise".

    Source: McNemar, Psychometrika 12 (1947) 153-157; exact form: Fagerland, Lydersen, Laake, BMC Medical
        Research
    Methodology 13:91 (2013), section "exact conditional test".
    """
    throws = only_a + only_b
    ways = total = 1
    for heads in range(min(only_a, only_b)):
        ways = ways * (throws - heads) // (heads + 1)
        total += ways
    return min(1.0, 2 * total / (1 << throws))


def tango_interval(only_b: int, only_a: int, n: int) -> tuple[float, float]:
    """95 % score interval of (only_b - only_a) / n, the difference of two paired proportions.

    Its bounds are the differences at which the score statistic is +-1.96. It stays within -1..1 and holds its
    coverage with few discordant pairs, where the Wald interval does not (it is [0, 0] when there are none).

    Args:
        only_b: Pairs that count for the difference.
        only_a: Pairs that count against it.
        n: All pairs, 1 or more.

    Source: Tango, Statistics in Medicine 17 (1998) 891-908, equations 11-14; compared with others in
        Fagerland,
    Lydersen, Laake, Statistics in Medicine 33 (2014) 2850-2875.
    """
    observed = (only_b - only_a) / n
    low = -1.0 if only_a == n else _bound(only_b, only_a, n, -1.0, observed, _Z95)
    high = 1.0 if only_b == n else _bound(only_b, only_a, n, observed, 1.0, -_Z95)
    return low, high


def wilson_interval(k: int, n: int) -> tuple[float, float]:
    """95 % interval of the accuracy k / n of one model; for a difference use ``paired_difference``.

    Args:
        k: Images that are right, 0..n.
        n: Images, 1 or more.

    Raises:
        DataError: k and n are no such numbers.

    Source: Wilson, Journal of the American Statistical Association 22 (1927) 209-212.
    """
    if not 0 <= k <= n or n < 1:
        raise DataError(f"{k} right of {n} images is no accuracy")
    share, z2 = k / n, _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return 0.0 if k == 0 else centre - half, 1.0 if k == n else centre + half


def _tango_score(only_b: int, only_a: int, n: int, delta: float) -> float:
    """Tango's score statistic of the hypothesis that the difference is ``delta``; falls as delta grows.

    The variance uses the maximum-likelihood probability of "only a" under that hypothesis, the larger root of
    a quadratic equation.
    """
    b = -only_b - only_a + (2 * n - only_b + only_a) * delta
    c = -only_a * delta * (1 - delta)
    probability = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
    variance = n * (2 * probability + delta * (1 - delta))
    distance = only_b - only_a - n * delta
    if variance <= 0:
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def _bound(only_b: int, only_a: int, n: int, low: float, high: float, wanted: float) -> float:
    """Where the falling score crosses ``wanted`` between low and high, by bisection to double precision."""
    for _ in range(60):
        middle = (low + high) / 2
        if _tango_score(only_b, only_a, n, middle) > wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _images_to_settle(only_a: int, only_b: int, n: int) -> int | None:
    """Solve (s |only_b - only_a| - 1) / sqrt(s (only_a + only_b)) = 1.96 for s, the factor on all counts.

    The 1 is Edwards' continuity correction, which brings the normal approximation to the exact test.
    Source: Edwards, Psychometrika 13 (1948) 185-187.
    """
    difference = abs(only_b - only_a)
    if difference == 0:
        return None
    spread = _Z95 * math.sqrt(only_a + only_b)
    root = (spread + math.sqrt(spread**2 + 4 * difference)) / (2 * difference)
    return max(1, math.ceil(n * root**2) - n)


def _check_pairs(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> None:
    if a.ndim != 1 or a.shape != b.shape:
        raise DataError(
            f"results of shape {list(a.shape)} and {list(b.shape)} are no pairs of the same images"
        )
    if len(a) == 0:
        raise DataError("no image to compare on")

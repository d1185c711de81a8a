"""The one entrance: sources in, everything that a comparison shows out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inferometer.analysis.comparison.accuracy import AccuracyGap, accuracy_gaps
from inferometer.analysis.comparison.differences import Comparability, most_of
from inferometer.analysis.comparison.findings import (
    accuracy_findings,
    disturbance_findings,
    efficiency_findings,
    growth_findings,
    memory_findings,
    speed_findings,
)
from inferometer.analysis.comparison.growth import Growth, Sweep, growth_rows, sweeps
from inferometer.analysis.comparison.matters import Axis
from inferometer.analysis.comparison.points import Metric, Source
from inferometer.analysis.comparison.ratios import RatioRow, ratio_rows
from inferometer.analysis.comparison.subjects import (
    Namer,
    apart_in,
    axes_of,
    baseline_of,
    subject_names,
    subjects_of,
)
from inferometer.analysis.rows import Finding
from inferometer.errors import ConfigError, nearest

__all__ = ["Comparison", "Verdict", "compare"]

_SWEPT: tuple[Metric, ...] = ("images_per_s", "latency_p50_s", "images_per_s_per_w")


@dataclass(frozen=True)
class Verdict:
    """Whether a subject and the baseline are like for like, over all their pairs of points."""

    subject: str
    baseline: str
    comparability: Comparability


@dataclass(frozen=True)
class Comparison:
    """All that a comparison shows.

    Attributes:
        axis: What was asked about.
        subjects: What stands side by side.
        baseline: The one that the others are held against.
        sources: The stores and studies, with all their points.
        verdicts: For each subject but the baseline that shares a point with it.
        unmatched: Subjects that share none.
        ratios: Point by point.
        accuracy: Point by point.
        growth: Several devices against one.
        sweeps: Batches of each subject.
        findings: In sentences.
        apart: What tells figures of one subject apart that come from several places, in words; often empty.
    """

    axis: Axis
    subjects: tuple[str, ...]
    baseline: str
    sources: tuple[Source, ...]
    verdicts: tuple[Verdict, ...]
    unmatched: tuple[str, ...]
    ratios: tuple[RatioRow, ...]
    accuracy: tuple[AccuracyGap, ...]
    growth: tuple[Growth, ...]
    sweeps: tuple[Sweep, ...]
    findings: tuple[Finding, ...]
    apart: Namer


def compare(
    sources: Sequence[Source],
    axis: Axis | None = None,
    baseline: str | None = None,
    prices: Mapping[str, float] | None = None,
) -> Comparison:
    """Put sources side by side.

    Args:
        sources: Stores and studies, with labels of their own.
        axis: What is asked about; by default what varies.
        baseline: A subject, or an unambiguous part of its name; the first by default.
        prices: By subject, in any one currency: of the baseline and of one more at least.

    Raises:
        ConfigError: There is nothing to compare, a name is not known, or a price is lacking.
    """
    chosen = axis or _first_with_pairs(sources)
    subjects = subjects_of(sources, chosen)
    base = baseline_of(subjects, baseline)
    known = _prices(prices or {}, subjects, base)
    name = subject_names(sources, chosen)
    apart = apart_in(sources, name)
    ratios = ratio_rows(sources, chosen, name, base, known)
    gaps = accuracy_gaps(sources, chosen, name, base)
    growth = growth_rows(sources, name)
    swept = tuple(sweep for metric in _SWEPT for sweep in sweeps(sources, name, metric))
    verdicts = _verdicts(ratios, gaps, subjects, base)
    matched = {one.subject for one in verdicts}
    return Comparison(
        axis=chosen,
        subjects=subjects,
        baseline=base,
        sources=tuple(sources),
        verdicts=verdicts,
        unmatched=tuple(one for one in subjects if one != base and one not in matched),
        ratios=ratios,
        accuracy=gaps,
        growth=growth,
        sweeps=swept,
        findings=(
            *speed_findings(ratios, sources, apart),
            *growth_findings(growth, apart),
            *efficiency_findings(
                ratios, [one for one in swept if one.metric == "images_per_s_per_w"], sources, apart
            ),
            *memory_findings(sources, name, apart),
            *accuracy_findings(gaps, apart),
            *_int8(sources, chosen),
            *disturbance_findings(sources, name),
        ),
        apart=apart,
    )


def _first_with_pairs(sources: Sequence[Source]) -> Axis:
    """The first axis along which two figures meet; a store of two machines may have shared out its models."""
    axes = axes_of(sources)
    for axis in axes[:-1]:
        base = subjects_of(sources, axis)[0]
        if ratio_rows(sources, axis, subject_names(sources, axis), base):
            return axis
    return axes[-1]


def _int8(sources: Sequence[Source], axis: Axis) -> list[Finding]:
    """What INT8 gained and cost in each source by itself; by precision that is told already."""
    found: list[Finding] = []
    for source in sources if axis != "precision" else ():
        name = subject_names([source], "precision")
        rows = [
            row
            for row in ratio_rows([source], "precision", name, "fp32")
            if row.subject == "int8" and row.per == "like count" and row.ratio is not None
        ]
        gaps = [one for one in accuracy_gaps([source], "precision", name, "fp32") if one.subject == "int8"]
        apart = apart_in([source], name)
        told = (*speed_findings(rows, [source], apart), *accuracy_findings(gaps, apart))
        found += [replace(one, sentence=f"{source.label}: {one.sentence}") for one in told]
    return found


def _verdicts(
    ratios: Sequence[RatioRow], gaps: Sequence[AccuracyGap], subjects: Sequence[str], baseline: str
) -> tuple[Verdict, ...]:
    pairs: dict[str, list[Comparability]] = defaultdict(list)
    for row in ratios:
        if row.per != "price":  # the same pair once more
            pairs[row.subject].append(row.comparability)
    for gap in gaps:
        pairs[gap.subject].append(gap.comparability)
    return tuple(Verdict(one, baseline, most_of(pairs[one])) for one in subjects if one in pairs)


def _prices(prices: Mapping[str, float], subjects: Sequence[str], baseline: str) -> dict[str, float]:
    for label, price in prices.items():
        if label not in subjects:
            raise ConfigError(f"--price: there is no {label!r}{nearest(label, subjects)}")
        if not price > 0:
            raise ConfigError(f"--price {label}: a price is above 0, and not {price:g}")
    if prices and (baseline not in prices or len(prices) < 2):
        lacking = next(one for one in (baseline, *subjects) if one not in prices)
        raise ConfigError(
            f"--price: a ratio to {baseline} wants the price of both sides; add --price {lacking}=NUMBER"
        )
    return dict(prices)

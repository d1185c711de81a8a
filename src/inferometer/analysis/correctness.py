"""Rows of accuracy, and paired differences between two trials on the same images."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from inferometer.accuracy import agreement, hits, paired_difference, wilson_interval
from inferometer.analysis.grouping import comparable
from inferometer.analysis.rows import AccuracyRow, DifferenceRow, Proportion, Setup
from inferometer.records import Record
from inferometer.store import PerImage

__all__ = ["Scored", "Top5", "accuracy_row", "differences", "pair_difference"]

Top5 = Callable[[Record], PerImage | None]
"""Gives the per-image outcome of an accuracy record; None when it has none."""

_SAME_MACS = 0.01  # Source: chosen; leaves room for small layers that a quantizer folds or adds


@dataclass(frozen=True)
class Scored:
    """An accuracy trial that ran, its setup, what became of each image, and the share at its precision."""

    setup: Setup
    record: Record
    outcome: PerImage
    mac_share: float | None = None


def accuracy_row(setup: Setup, record: Record, share: float | None = None) -> AccuracyRow:
    """The row of one accuracy trial; ``share`` of the MACs ran at the precision asked for."""
    found = record.accuracy if record.status == "ok" else None
    return AccuracyRow(
        setup=setup,
        status=record.status,
        reason=record.reason,
        images=found.images if found else None,
        classes=found.classes if found else None,
        top1=_proportion(found.top1, found.images) if found else None,
        top5=_proportion(found.top5, found.images) if found else None,
        excluded=found.excluded if found else None,
        skipped=found.skipped if found else None,
        skipped_files=found.skipped_files if found else (),
        mac_share=share,
        record_id=record.id,
    )


def differences(
    rows: Sequence[tuple[Setup, Record]],
    top5: Top5,
    shares: Mapping[str, float | None] | None = None,
    *,
    all_pairs: bool = False,
) -> tuple[DifferenceRow, ...]:
    """The pairs that belong together, each compared on the images that both have seen.

    These are two precisions of otherwise one setup, and a float model with a file that was already
    quantized, under the same options of the same engine. Which of several float models that was made from
    is not known: those with as many multiply-accumulates count, since quantizing leaves these as they are.

    Args:
        rows: Accuracy trials with their setups, in the order wanted: the earlier of a pair is its ``a``, but
            a quantized file is always ``b``.
        top5: Their per-image outcomes; trials without one are left out.
        shares: Of the MACs that ran at the precision asked for, by record id.
        all_pairs: Compare whatever has common images, the earlier one always ``a``.
    """
    ran = [
        Scored(setup, record, outcome, (shares or {}).get(record.id))
        for setup, record in rows
        if record.status == "ok" and (outcome := top5(record)) is not None
    ]
    found: list[DifferenceRow] = []
    for one, other in combinations(ran, 2):
        if all_pairs or _belong_together(one, other):
            found += pair_difference(one, other)
        elif _belong_together(other, one):
            found += pair_difference(other, one)
    return tuple(found)


def pair_difference(a: Scored, b: Scored) -> tuple[DifferenceRow, ...]:
    """How ``b`` differs from ``a`` in top-1, and in top-5 where both know it.

    Returns:
        One row per metric; none when they have no image in common.
    """
    in_a, in_b = _common(a.outcome, b.outcome)
    if not len(in_a):
        return ()
    labels, top_a, top_b = a.outcome.labels[in_a], a.outcome.top[in_a], b.outcome.top[in_b]
    # None with fewer than six classes, where five of them say nothing.
    knows_top5 = all(one.record.accuracy and one.record.accuracy.top5 is not None for one in (a, b))
    metrics: tuple[Literal["top1", "top5"], ...] = ("top1", "top5") if knows_top5 else ("top1",)
    rows = []
    for metric in metrics:
        k = 1 if metric == "top1" else 5
        outcome = paired_difference(hits(top_a, labels, k), hits(top_b, labels, k))
        rows.append(
            DifferenceRow(
                setup_a=a.setup,
                setup_b=b.setup,
                metric=metric,
                images=outcome.n,
                only_a=outcome.only_a,
                only_b=outcome.only_b,
                delta=outcome.delta,
                interval=outcome.ci95,
                p=outcome.p,
                verdict=outcome.verdict,
                images_to_settle=outcome.images_to_settle,
                agreement=agreement(top_a[:, 0], top_b[:, 0]),
                left_out=len(a.outcome.hashes) + len(b.outcome.hashes) - 2 * len(in_a),
                mac_shares=(a.mac_share, b.mac_share),
                record_ids=(a.record.id, b.record.id),
            )
        )
    return tuple(rows)


def _belong_together(a: Scored, b: Scored) -> bool:
    if a.setup.model == b.setup.model:
        return a.setup.precision != b.setup.precision and comparable(b.setup, a.setup)
    places = ((one.setup.engine, one.setup.device, one.setup.machine, _classes(one)) for one in (a, b))
    alike = len(set(places)) == 1 and _same_options(a, b) and _may_be_one_network(a.record, b.record)
    return alike and _is_quantized_file(b) and a.setup.precision != "int8"


def _same_options(a: Scored, b: Scored) -> bool:
    """By their records: a setup names only what varies within its own model."""
    first, second = (one.record.config or {} for one in (a, b))
    return all(first.get(name) == second.get(name) for name in ("engine_version", "options"))


def _is_quantized_file(one: Scored) -> bool:
    return one.record.calibration is not None and one.record.calibration.source == "model"


def _may_be_one_network(a: Record, b: Record) -> bool:
    """Not when both tell their multiply-accumulates and these differ."""
    macs_a, macs_b = (one.model.macs if one.model else None for one in (a, b))
    return macs_a is None or macs_b is None or math.isclose(macs_a, macs_b, rel_tol=_SAME_MACS)


def _classes(one: Scored) -> int | None:
    return one.record.accuracy.classes if one.record.accuracy else None


def _proportion(share: float | None, images: int) -> Proportion | None:
    if share is None or images < 1:
        return None
    lo, hi = wilson_interval(round(share * images), images)
    return Proportion(share, lo, hi)


def _common(a: PerImage, b: PerImage) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Positions in ``a`` and in ``b`` of the images of both, in the order of ``a``.

    An image counts as the same when its file's hash and its label agree; a file that a set holds
    several times is paired copy by copy.
    """
    places: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, (digest, label) in enumerate(zip(b.hashes, b.labels.tolist(), strict=True)):
        places[digest, label].append(place)
    in_a, in_b = [], []
    for place, (digest, label) in enumerate(zip(a.hashes, a.labels.tolist(), strict=True)):
        copies = places.get((digest, label))
        if copies:
            in_a.append(place)
            in_b.append(copies.pop(0))
    return np.asarray(in_a, np.intp), np.asarray(in_b, np.intp)

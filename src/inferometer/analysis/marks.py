"""Which numbers carry the mark that most of the arithmetic did not run at the precision asked for.

The share of the multiply-accumulates is read back in throughput trials alone. A trial of another kind takes
that of the throughput trials of the same setup.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from inferometer.analysis.speed import MIN_MAC_SHARE, asked_share
from inferometer.analysis.wording import percent
from inferometer.records import Precision, Record

__all__ = [
    "MARK",
    "MARK_NOTE",
    "asked_shares",
    "is_marked",
    "ran_text",
    "share_text",
    "with_mark",
]

MARK = "\N{DAGGER}"
"""Stands behind whatever ran less than `MIN_MAC_SHARE` of its MACs at the precision asked for."""

MARK_NOTE = (
    f"{MARK}: less than {percent(MIN_MAC_SHARE, 0)} of the multiply-accumulates ran"
    " at the precision asked for."
)
"""The one sentence that explains the mark wherever it appears."""


def is_marked(*shares: float | None) -> bool:
    """Whether one of the shares is known and under the limit; an unknown share is no mark."""
    return any(share is not None and share < MIN_MAC_SHARE for share in shares)


def with_mark(text: str, *shares: float | None) -> str:
    """``text``, followed by the mark where it is due."""
    return f"{text} {MARK}" if is_marked(*shares) else text


def ran_text(share: float | None, precision: Precision) -> str:
    """The share in words, for a tooltip: ``84 % in INT8``, ``not known``."""
    return "not known" if share is None else f"{share_text(share)} in {precision.upper()}"


def share_text(share: float) -> str:
    """A share of the MACs in whole percent, with decimals where rounding would say what is not so.

    A share under the limit never reads as the limit, one above 0 not as 0 %, and one under 1 not as 100 %.
    """
    for decimals in (0, 1, 2):
        text = percent(share, decimals)
        shown = float(text.removesuffix(" %")) / 100
        if (
            is_marked(share) == is_marked(shown)
            and (share <= 0) == (shown <= 0)
            and (share < 1) == (shown < 1)
        ):
            return text
    if is_marked(share):
        return f"under {percent(MIN_MAC_SHARE, 0)}" if share > MIN_MAC_SHARE / 2 else "under 0.01 %"
    return "over 99.99 %"


def asked_shares(records: Sequence[Record], machines: Mapping[str, int]) -> dict[str, float | None]:
    """The share that counts for each record, by id; None for one that did not end ok.

    Its own where it has one; else the least of the throughput trials of the same setup and batch. A trial
    that is not of throughput, where no throughput trial has its batch, takes the least of all batches.

    Args:
        records: Of all kinds.
        machines: Index of the machine by record id.
    """
    at_batch: dict[tuple[object, ...], list[float]] = defaultdict(list)
    anywhere: dict[str, list[float]] = defaultdict(list)
    for record in records:
        share = asked_share(record)
        if share is not None and record.status == "ok" and record.trial.kind == "throughput":
            place = _place(record, machines)
            at_batch[place, record.trial.batch].append(share)
            anywhere[place].append(share)

    def of(record: Record) -> float | None:
        own = asked_share(record)
        if own is not None or record.status != "ok":
            return own
        place = _place(record, machines)
        same = at_batch.get((place, record.trial.batch), [])
        return _least(same or ([] if record.trial.kind == "throughput" else anywhere.get(place, [])))

    return {record.id: of(record) for record in records}


def _place(record: Record, machines: Mapping[str, int]) -> str:
    """What decides which kernels run, besides the batch."""
    trial, config = record.trial, record.config or {}
    parts = [
        trial.model,
        record.model.sha256 if record.model else None,
        trial.engine,
        config.get("engine_version"),
        config.get("options"),
        trial.device,
        trial.precision,
        record.calibration.table_sha256 if record.calibration else None,
        machines[record.id],
    ]
    return json.dumps(parts, sort_keys=True, default=str)


def _least(shares: Iterable[float]) -> float | None:
    return min(shares, default=None)

"""A comparison as one JSON document, and its ratios as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from inferometer.analysis.comparison.accuracy import AccuracyGap
from inferometer.analysis.comparison.compare import Comparison
from inferometer.analysis.comparison.points import Point
from inferometer.analysis.comparison.ratios import RatioRow

__all__ = ["comparison_csv", "comparison_document"]


def comparison_document(found: Comparison) -> dict[str, Any]:
    """Everything as plain values for JSON; an unlimited bound is null."""
    return {
        "axis": found.axis,
        "subjects": list(found.subjects),
        "baseline": found.baseline,
        "sources": [
            {"label": one.label, "kind": "store" if one.study is None else "published"}
            for one in found.sources
        ],
        "comparability": [
            {"subject": one.subject, "baseline": one.baseline, **_plain(one.comparability)}
            for one in found.verdicts
        ],
        "unmatched": list(found.unmatched),
        "findings": [asdict(one) for one in found.findings],
        "ratios": [_plain(one) for one in found.ratios],
        "accuracy": [_plain(one) for one in found.accuracy],
        "scaling": [_plain(one) for one in found.growth],
        "sweeps": [_plain(one) for one in found.sweeps],
        "points": [_plain(point) for source in found.sources for point in source.points],
    }


def comparison_csv(found: Comparison) -> str:
    """One line per ratio and accuracy gap, every number raw; what is absent is empty."""
    rows = [*(_ratio_line(one) for one in found.ratios), *(_gap_line(one) for one in found.accuracy)]
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["subject", "baseline"]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _safe(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """Plain values of a frozen row: infinite bounds become null, models their content."""
    return _jsonable(asdict(value))


def _jsonable(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _ratio_line(row: RatioRow) -> dict[str, Any]:
    low, high = row.interval or (None, None)
    return {
        "subject": row.subject,
        "baseline": row.baseline,
        "per": row.per,
        **dict(_sides(row.own, row.base)),
        "ratio": row.ratio,
        "ci95_lo": low,
        "ci95_hi": high,
        "p": row.p,
        "verdict": row.verdict,
        "comparability": row.comparability.text,
    }


def _gap_line(row: AccuracyGap) -> dict[str, Any]:
    return {
        "subject": row.subject,
        "baseline": row.baseline,
        **dict(_sides(row.own, row.base)),
        "delta": row.delta,
        "verdict": row.verdict,
        "comparability": row.comparability.text,
    }


def _sides(own: Point, base: Point) -> Iterator[tuple[str, Any]]:
    for name in ("model", "metric", "batch", "boundary"):
        yield name, getattr(own, name)
    for prefix, point in (("", own), ("baseline_", base)):
        for name in ("source", "machine", "device", "engine", "precision", "count", "value"):
            yield f"{prefix}{name}", getattr(point, name)
        yield f"{prefix}evidence", " ".join(point.record_ids) or point.section


def _safe(value: Any) -> str:
    """Spreadsheets take a text that starts so for a formula."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return "" if value is None else repr(value)

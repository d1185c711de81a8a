"""Records as CSV: one line each, every number raw, the columns always the same."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inferometer.analysis.grouping import PRECISION_ORDER
from inferometer.analysis.machines import machines_of
from inferometer.analysis.marks import asked_shares, is_marked
from inferometer.records import (
    Accuracy,
    CalibrationInfo,
    Feeding,
    Latency,
    LoadGenLatency,
    LoadGenResult,
    LoadWindow,
    Memory,
    ModelInfo,
    PowerResult,
    Record,
    Throughput,
    Trial,
)

__all__ = ["csv_text"]

# Spreadsheets run what starts so as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Of a power result: what has a low and a high end; the windows, of which the audit is told; what has many.
_POWER_PAIRS = (
    "net_ci95_w", "images_per_s_per_w_ci95", "j_per_image_ci95", "temperature_c", "clock_hz",
    "performance_states",
)  # fmt: skip
_POWER_FIGURES = ("load", "idle_before", "idle_after", "idle_loaded")
_POWER_LISTS = ("parts", "by_part", "beside", "conditions", "facts", "missing")


def csv_text(records: Sequence[Record]) -> str:
    """One line per record under a line of column names; what is absent is empty.

    Units are those of the record (SI, in the names). A text that a spreadsheet would take for a
    formula is led by an apostrophe; the JSON has it as it is.
    """
    shares = asked_shares(records, machines_of(records)[1])
    rows = [dict(_flat(record, shares[record.id])) for record in records]
    buffer = io.StringIO()
    # Every record gives the same names in the same order; without records, those of the types remain.
    names = list(rows[0]) if rows else _names()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _text(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def _flat(record: Record, asked: float | None = None) -> Iterator[tuple[str, Any]]:
    yield "schema", record.schema_version
    yield "id", record.id
    yield "time", record.time
    yield from _fields(Trial, record.trial, "")
    yield "status", record.status
    yield "reason", record.reason
    yield from _fields(Throughput, record.throughput, "throughput_", leave=("windows", "ci95"))
    low, high = (record.throughput and record.throughput.ci95) or (None, None)
    yield "throughput_ci95_lo", low
    yield "throughput_ci95_hi", high
    yield from _fields(Latency, record.latency_s, "latency_s_")
    yield from _ranks(record)
    yield from _fields(Feeding, record.feeding, "feeding_")
    yield from _fields(Memory, record.memory, "memory_")
    yield from _fields(LoadWindow, record.load_window, "load_window_", leave=("idle_loaded",))
    yield from _power(record)
    yield "load_s", record.load_s
    yield "compile_s", record.compile_s
    yield "wall_s", record.wall_s
    yield from _fields(Accuracy, record.accuracy, "accuracy_", leave=("skipped_files",))
    yield from _fields(LoadGenResult, record.loadgen, "loadgen_", leave=("latency_s", "constraints"))
    by_loadgen = record.loadgen and record.loadgen.latency_s
    yield from _fields(LoadGenLatency, by_loadgen, "loadgen_latency_s_")
    yield from _fields(ModelInfo, record.model, "model_")
    for precision in PRECISION_ORDER:
        yield f"mac_share_{precision}", (record.precision_mac_share or {}).get(precision)
    # Of latency and accuracy that of the same setup's throughput trials; the mark is "under 90 %".
    yield "mac_share_at_precision", asked
    yield "mac_share_marked", None if asked is None else is_marked(asked)
    yield from _fields(CalibrationInfo, record.calibration, "calibration_", leave=("stages_s",))
    stages = (record.calibration and record.calibration.stages_s) or {}
    for stage in ("decode", "forward", "statistics", "search", "wall"):
        yield f"calibration_{stage}_s", stages.get(stage)
    for moment in ("before", "after"):
        taken = (record.probe or {}).get(moment) or {}
        for name in ("compute_bytes_per_s", "copy_bytes_per_s"):
            yield f"probe_{moment}_{name}", taken.get(name)
    environment = record.environment or {}
    yield "machine_key", environment.get("machine_key")
    yield "cpu_model", (environment.get("cpu") or {}).get("model")
    config = record.config or {}
    installed = (environment.get("libraries") or {}).get(record.trial.engine)
    yield "engine_version", config.get("engine_version", installed)
    yield "options", _compact(config.get("options"))
    yield "session", _compact(record.session)


def _fields(kind: type[Any], value: Any, prefix: str, leave: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    for name in kind.model_fields:
        if name not in leave:
            yield f"{prefix}{name}", None if value is None else getattr(value, name)


def _ranks(record: Record) -> Iterator[tuple[str, Any]]:
    """The ranks as one JSON text, and what is most asked of them in columns of its own."""
    content = [one.model_dump(mode="json") for one in record.ranks]
    rates = [one.images_per_s for one in record.ranks if one.images_per_s is not None]
    skews = [one.skew_s for one in record.ranks if one.skew_s is not None]
    yield "hosts", " ".join(dict.fromkeys(one.host for one in record.ranks)) or None
    yield "slowest_rank_images_per_s", min(rates, default=None)
    yield "largest_skew_s", max(skews, default=None)
    yield "rank_results", _compact(content or None)


def _power(record: Record) -> Iterator[tuple[str, Any]]:
    """The first boundary in columns of its own, its lists as JSON; all other boundaries as one JSON text."""
    first, *others = record.power or (None,)
    yield from _fields(PowerResult, first, "power_", leave=(*_POWER_PAIRS, *_POWER_FIGURES, *_POWER_LISTS))
    for name in _POWER_PAIRS:
        low, high = (first and getattr(first, name)) or (None, None)
        yield f"power_{name}_lo", low
        yield f"power_{name}_hi", high
    for name in _POWER_FIGURES:
        figure = first and getattr(first, name)
        for part in ("u_w", "samples", "distinct", "rate_hz", "largest_gap_s", "coverage", "correlation_s"):
            yield f"power_{name}_{part}", figure and getattr(figure, part)
        yield f"power_{name}_flags", "; ".join(figure.flags) if figure and figure.flags else None
    content = first.model_dump(mode="json") if first is not None else {}
    for name in _POWER_LISTS:
        yield f"power_{name}", _compact(content.get(name) or None)
    rest = [one.model_dump(mode="json") for one in others if one is not None]
    yield "power_other_boundaries", _compact(rest or None)
    yield "power_absent", record.missing.get("power")


def _compact(value: Mapping[str, Any] | Sequence[Any] | None) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))


def _names() -> list[str]:
    trial = Trial(kind="throughput", study="", model="", engine="", device="", precision="fp32", batch=None)
    return [name for name, _ in _flat(Record(id="", time="", trial=trial, status="skipped"))]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return str(value).lower() if isinstance(value, bool) else repr(value)

"""Reading what MLPerf's LoadGen says of a run from its detailed log: one JSON object a line, led by a tag.

Source: the ``LogDetail`` functions of LoadGen's results.cc and test_settings_internal.cc (version 6.0).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from inferometer.errors import EngineError
from inferometer.records import LoadGenLatency, LoadGenResult

__all__ = ["read_log"]

_TAG = ":::MLLOG"
_CONSTRAINTS = {
    "min_duration": "result_min_duration_met",
    "min_queries": "result_min_queries_met",
    "early_stopping": "early_stopping_met",
}
_BEYOND = 5  # calls beyond a percentile that make it worth showing, as in all records


def read_log(detail: str, scenario: Literal["offline", "single-stream"]) -> LoadGenResult:
    """The figures of one run, as LoadGen gives them: none is computed here.

    Args:
        detail: The content of ``mlperf_log_detail.txt``.
        scenario: The one that was run.

    Raises:
        EngineError: The log is not whole: LoadGen gave no result.
    """
    said = _values(detail)
    try:
        return _result(said, scenario)
    except KeyError as error:
        faults = "; ".join(str(said[name]) for name in said if name.startswith("error"))
        why = f": {faults}" if faults else ""
        raise EngineError(f"LoadGen gave no result: its log has no {error.args[0]!r}{why}") from error


def _result(said: Mapping[str, Any], scenario: Literal["offline", "single-stream"]) -> LoadGenResult:
    valid, queries = said["result_validity"] == "VALID", int(said["result_query_count"])
    constraints = {name: bool(said[key]) for name, key in _CONSTRAINTS.items()}
    offline = scenario == "offline"
    estimated = not offline and constraints["early_stopping"]
    return LoadGenResult(
        scenario=scenario,
        samples_per_s=float(said["result_samples_per_second"]) if offline else None,
        latency_s=None if offline else _latency(said, queries),
        p90_estimate_s=said["early_stopping_latency_ss"] / 1e9 if estimated else None,
        result_valid=valid,
        constraints=constraints,
        invalid_reason=None if valid else _reason(said, constraints),
        version=str(said["loadgen_version"]),
        min_duration_s=said["effective_min_duration_ms"] / 1e3,
        queries=queries,
        samples=queries * int(said["generated_samples_per_query"]),
    )


def _latency(said: Mapping[str, Any], queries: int) -> LoadGenLatency:
    def seconds(name: str) -> float:
        return float(said[f"result_{name}_latency_ns"] / 1e9)

    def percentile(q: int) -> float | None:
        # In whole per cents, so that 50 queries have their 90th percentile, whatever 1 - 0.9 is in binary.
        enough = queries * (100 - q) >= _BEYOND * 100
        return seconds(f"{q}.00_percentile") if enough else None

    return LoadGenLatency(
        min=seconds("min"),
        mean=seconds("mean"),
        p50=percentile(50),
        p90=percentile(90),
        p95=percentile(95),
        p99=percentile(99),
        max=seconds("max"),
    )


def _reason(said: Mapping[str, Any], constraints: Mapping[str, bool]) -> str:
    """What was not met, and LoadGen's own words on it, in one line."""
    unmet = ", ".join(name.replace("_", " ") for name, met in constraints.items() if not met)
    words = [said.get("result_invalid_reason")]
    if not constraints["early_stopping"]:
        words.append(said.get("early_stopping_result"))
    text = " ".join(" ".join(str(word) for word in words if word).replace("*", " ").split())
    return f"not met: {unmet}" + (f" ({text})" if text else "")


def _values(detail: str) -> dict[str, Any]:
    """By key; the last of several counts. Lines that are no JSON, such as one with nan, say nothing."""
    found: dict[str, Any] = {}
    for line in detail.splitlines():
        if not line.startswith(_TAG):
            continue
        try:
            entry = json.loads(line.removeprefix(_TAG))
            found[entry["key"]] = entry["value"]
        except (ValueError, KeyError, TypeError):
            continue
    return found

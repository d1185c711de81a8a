"""Reading LoadGen's own log: lines of logs that LoadGen 6.0.17 wrote."""

from pathlib import Path

import pytest

from inferometer.errors import EngineError
from inferometer.trials.loadgen_log import read_log

LOGS = Path(__file__).with_name("loadgen_logs")


def log(name: str) -> str:
    return (LOGS / f"{name}.txt").read_text()


def test_an_offline_run_has_samples_per_second_and_no_latency() -> None:
    found = read_log(log("offline"), "offline")
    assert (found.scenario, found.samples_per_s, found.latency_s) == ("offline", 31313.3, None)
    assert (found.queries, found.samples, found.min_duration_s) == (1, 20394, 0.5)
    assert (found.result_valid, found.invalid_reason, found.p90_estimate_s) == (True, None, None)
    assert found.constraints == {"min_duration": True, "min_queries": True, "early_stopping": True}
    assert (found.version, found.clock) == ("6.0.17 @ d6147c7eb7", "loadgen")


def test_a_single_stream_has_percentiles_in_seconds_and_loadgens_estimate() -> None:
    found = read_log(log("single_stream"), "single-stream")
    assert found.samples_per_s is None
    assert found.latency_s is not None
    assert found.latency_s.model_dump() == {
        "min": 17409e-9,
        "mean": 50070e-9,
        "p50": 18295e-9,
        "p90": 25985e-9,
        "p95": 29428e-9,
        "p99": 77352e-9,
        "max": 16302401e-9,
    }
    assert (found.p90_estimate_s, found.queries, found.samples) == (26499e-9, 9422, 9422)


def test_a_run_that_ended_early_is_invalid_in_loadgens_words() -> None:
    found = read_log(log("too_short"), "single-stream")
    assert not found.result_valid
    assert found.invalid_reason == (
        "not met: min duration (Decrease the expected latency so the loadgen pre-generates more queries.)"
    )
    assert found.constraints["min_duration"] is False
    assert found.latency_s is not None
    assert (found.latency_s.p95, found.latency_s.p99) == (1894e-9, None)  # 401 queries: four beyond p99


def test_too_few_queries_give_no_estimate_and_no_percentile() -> None:
    found = read_log(log("too_few"), "single-stream")
    assert found.latency_s is not None
    assert (found.queries, found.latency_s.p50, found.latency_s.p90) == (40, 1084963e-9, None)
    assert found.p90_estimate_s is None
    assert found.invalid_reason is not None
    assert found.invalid_reason.startswith("not met: min duration, early stopping (")
    assert "Need to process at least 64 queries for early stopping." in found.invalid_reason
    assert "\n" not in found.invalid_reason


def test_a_log_without_a_result_is_no_result() -> None:
    whole = log("too_short")
    torn = "".join(line for line in whole.splitlines(keepends=True) if "result_query_count" not in line)
    with pytest.raises(EngineError, match="no 'result_query_count': Ending early: Ran out of generated"):
        read_log(torn, "single-stream")
    with pytest.raises(EngineError, match="no 'result_validity'"):
        read_log("", "offline")


def test_lines_that_are_not_json_say_nothing() -> None:
    torn = log("offline") + ':::MLLOG {"key": "result_mean_latency_ns", "value": -nan, "x": 1}\nfree text\n'
    assert read_log(torn, "offline") == read_log(log("offline"), "offline")

"""The gate: pass, fail and inconclusive by hand, and how often it errs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from inferometer.analysis.gate import gate, repeats_wanted
from inferometer.errors import ConfigError
from inferometer.records import ModelInfo, Record
from inferometer.stats import Difference, share_upper, t_quantile
from tests.unit.report.sample_records import ENVIRONMENT, latency, probe, record, throughput

STEADY = (100.0, 100.2, 99.8, 100.1, 99.9)


def rates(values: Sequence[float], batch: int = 1, **fields: Any) -> list[Record]:
    return [
        record(batch=batch, repeat=repeat, throughput=throughput(value), **fields)
        for repeat, value in enumerate(values)
    ]


def latencies(values: Sequence[float]) -> list[Record]:
    return [record("latency", repeat=repeat, latency_s=latency(value)) for repeat, value in enumerate(values)]


def times(values: Sequence[float], factor: float) -> list[float]:
    return [value * factor for value in values]


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "pass"), (1.2, "pass"), (0.98, "pass"), (0.96, "fail"), (0.5, "fail")]
)
def test_steady_repeats_are_judged_by_the_limit(factor: float, verdict: str) -> None:
    found = gate(rates(STEADY), rates(times(STEADY, factor)), 0.03)
    assert found.verdict == verdict
    (point,) = found.points
    assert point.slowdown == pytest.approx(1 - factor)
    assert point.bounds is not None
    assert point.bounds[0] < 1 - factor < point.bounds[1]


def test_a_longer_latency_is_slower() -> None:
    assert gate(latencies(STEADY), latencies(times(STEADY, 1.1)), 0.03).verdict == "fail"
    assert gate(latencies(STEADY), latencies(times(STEADY, 0.9)), 0.03).verdict == "pass"
    found = gate(latencies(STEADY), latencies(times(STEADY, 1 / 0.98)), 0.03)
    assert found.verdict == "pass"
    assert found.points[0].slowdown == pytest.approx(0.02)


def test_what_scatters_is_inconclusive_and_wants_more_repeats() -> None:
    noisy = (100.0, 110.0, 92.0, 104.0, 95.0)
    found = gate(rates(noisy), rates(noisy[::-1]), 0.03)
    assert found.verdict == "inconclusive"
    more = found.more_repeats
    assert more is not None
    assert found.points[0].reason == (
        f"the repeats scatter too much to tell; about {more} more on each side would tell"
    )
    assert 60 < more < 200


def test_at_the_limit_no_number_of_repeats_tells() -> None:
    found = gate(rates(STEADY), rates(times(STEADY, 0.97)), 0.03)
    assert (found.verdict, found.more_repeats) == ("inconclusive", None)
    assert "more than 1000 would be wanted" in (found.points[0].reason or "")


def test_one_repeat_supports_no_verdict_in_either_direction() -> None:
    for factor in (1.0, 0.5):
        found = gate(rates([100.0]), rates([100.0 * factor]), 0.03)
        assert (found.verdict, found.more_repeats) == ("inconclusive", 4)


def test_equal_to_the_last_bit_is_judged_exactly() -> None:
    assert gate(rates([50.0] * 3), rates([50.0] * 3), 0.03).verdict == "pass"
    assert gate(rates([50.0] * 3), rates([48.0] * 3), 0.03).verdict == "fail"


def test_one_reading_far_off_does_no_harm_from_five_on() -> None:
    disturbed = (100.0, 100.2, 60.0, 100.1, 99.9)
    assert gate(rates(STEADY), rates(disturbed), 0.03).verdict == "pass"
    assert gate(rates(STEADY[:4]), rates(disturbed[:4]), 0.03).verdict == "inconclusive"


def test_one_point_that_fails_is_enough_and_all_have_to_pass() -> None:
    base = rates(STEADY) + rates(STEADY, batch=8)
    assert gate(base, rates(STEADY) + rates(times(STEADY, 0.9), batch=8), 0.03).verdict == "fail"
    noisy = (100.0, 120.0, 80.0, 104.0, 95.0)
    assert gate(base, rates(STEADY) + rates(noisy, batch=8), 0.03).verdict == "inconclusive"
    assert gate(base, base, 0.03).verdict == "pass"


def test_a_point_that_new_lost_or_does_not_have_fails() -> None:
    base = rates(STEADY) + rates(STEADY, batch=8)
    lost = [record(batch=8, status="out_of_memory", reason="the kernel killed the worker")]
    found = gate(base, rates(STEADY) + lost, 0.03)
    assert [one.verdict for one in found.points] == ["pass", "fail"]
    assert found.points[1].reason == "out of memory: the kernel killed the worker"
    found = gate(base, rates(STEADY), 0.03)
    assert [one.verdict for one in found.points] == ["pass", "fail"]
    assert found.points[1].reason == "NEW has no record of it: run the study to its end"
    assert gate([*rates(STEADY), *lost], [*rates(STEADY), *lost], 0.03).notes == (
        "1 point of BASE has no figure: not judged",
    )


def test_repeats_that_new_lost_fail_it_unless_base_lost_as_many() -> None:
    lost = record(repeat=5, status="failed", reason="it broke")
    found = gate(rates(STEADY), [*rates(STEADY), lost, *rates(STEADY, batch=4)], 0.03)
    assert found.verdict == "fail"
    assert found.points[0].reason == "1 of 6 repeats of NEW did not end well; failed: it broke"
    assert found.notes == ("1 point of NEW is not in BASE: not judged",)
    assert gate([*rates(STEADY), lost], [*rates(STEADY), lost], 0.03).verdict == "pass"


def test_a_study_that_has_not_come_to_its_end_is_not_judged() -> None:
    found = gate(rates(STEADY), rates(STEADY[:3]), 0.03)
    assert (found.verdict, found.points[0].reason) == (
        "inconclusive",
        "NEW has 3 of 5 repeats: run the study to its end",
    )


def test_a_machine_that_changed_supports_no_verdict() -> None:
    slow = rates(times(STEADY, 0.8), probe=probe(compute=9.0e9))
    found = gate(rates(STEADY), slow, 0.03)
    assert (found.verdict, found.points[0].reason) == (
        "inconclusive",
        "the machine changed between the two",
    )


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "pass"), (0.8, "fail"), (0.972, "inconclusive")], ids=str
)
@pytest.mark.parametrize("kind", ["throughput", "latency"])
def test_a_probe_that_moved_is_allowed_for_where_both_sides_met_both_states(
    kind: str, factor: float, verdict: str
) -> None:
    """Memory copying went to and fro, and no figure followed it."""

    def made(values: Sequence[float], speeds: Sequence[float]) -> list[Record]:
        records = rates(values) if kind == "throughput" else latencies([1 / one for one in values])
        return [
            one.model_copy(update={"probe": probe(copy=speed)})
            for one, speed in zip(records, speeds, strict=True)
        ]

    slow, fast = [20e9, 20.1e9, 20.3e9, 41e9, 20.2e9], [40e9, 41e9, 20.4e9, 40.5e9, 39e9]
    found = gate(made(STEADY, slow), made(times(STEADY, factor), fast), 0.03)
    (point,) = found.points
    assert point.machine_change is not None
    assert point.machine_change.changed
    assert point.verdict == verdict
    plain = gate(made(STEADY, slow), made(times(STEADY, factor), slow), 0.03).points[0]
    assert point.bounds is not None
    assert plain.bounds is not None
    assert point.bounds[0] <= plain.bounds[0]
    assert point.bounds[1] >= plain.bounds[1]


def test_one_of_many_points_that_is_beyond_by_itself_says_why_it_does_not_fail() -> None:
    noisy = (100.0, 101.5, 98.5, 100.5, 99.5)
    many = [one for batch in range(1, 41) for one in rates(noisy, batch=batch)]
    slower = [
        one for batch in range(1, 41) for one in rates(times(noisy, 0.95 if batch == 7 else 1.0), batch=batch)
    ]
    found = gate(many, slower, 0.03)
    point = found.points[6]
    assert point.bounds is not None
    assert point.bounds[0] > 0.03
    assert point.verdict == "inconclusive"
    assert (point.reason or "").startswith("beyond what is allowed by itself, but one of so many points")
    assert gate(rates(noisy), rates(times(noisy, 0.95)), 0.03).verdict == "fail"


def test_only_what_differs_between_judged_points_is_told() -> None:
    old, new = ([*rates(STEADY, config={"engine_version": "1.20"})] for _ in range(2))
    other = rates(STEADY, batch=64, config={"engine_version": "2026.4"})
    assert gate(old, [*new, *other], 0.03).differences == ()


def test_another_machine_is_refused() -> None:
    other = {**ENVIRONMENT, "machine_key": "another"}
    with pytest.raises(ConfigError, match=r"two machines like .*: a gate wants one and the same machine"):
        gate(rates(STEADY), rates(STEADY, environment=other), 0.03)


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(ConfigError, match="no throughput or latency point in common"):
        gate(rates(STEADY), rates(STEADY, batch=2), 0.03)


def test_what_differs_is_told() -> None:
    def version(text: str) -> list[Record]:
        return rates(STEADY, config={"engine_version": text, "options": {"threads": 2}})

    found = gate(version("1.0"), version("1.1"), 0.03)
    assert found.differences == ("engine_version: 1.0 in BASE, 1.1 in NEW",)
    assert found.verdict == "pass"


@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"config": {"options": {"threads": 1}}}, "options.threads: 2 in BASE, 1 in NEW"),
        (
            {"config": {"options": {"threads": 2, "hint": "latency"}}},
            "options.hint: default in BASE, latency in NEW",
        ),
        (
            {"model": ModelInfo(sha256="ab" * 32, macs=1, parameters=1)},
            "resnet50's file: 3c3c3c3c3c3c in BASE, abababababab in NEW",
        ),
    ],
)
def test_other_options_or_another_model_file_support_no_verdict(
    factor: float, change: dict[str, Any], named: str
) -> None:
    config = {"options": {"threads": 2}}
    new = [one.model_copy(update=change) for one in rates(times(STEADY, factor), config=config)]
    found = gate(rates(STEADY, config=config), new, 0.03)
    assert (found.verdict, found.more_repeats) == ("inconclusive", None)
    assert found.points[0].reason == f"another trial in NEW: {named}"
    assert found.differences == (named,)


def test_options_are_held_against_those_of_the_same_point() -> None:
    def of(threads: int, engine: str) -> list[Record]:
        return rates(STEADY, config={"options": {"threads": threads}}, trial_engine=engine)

    found = gate(of(1, "openvino") + of(2, "torch"), of(1, "openvino") + of(4, "torch"), 0.03)
    assert [one.verdict for one in found.points] == ["pass", "inconclusive"]
    assert found.points[1].reason == "another trial in NEW: options.threads: 2 in BASE, 4 in NEW"


def test_settings_that_vary_within_new_are_no_missing_point() -> None:
    def of(version: str, batch: int) -> list[Record]:
        return rates(STEADY, batch, config={"engine_version": version})

    found = gate(of("1.0", 1) + of("1.0", 8), of("1.0", 1) + of("1.1", 8), 0.03)
    assert [one.verdict for one in found.points] == ["pass", "pass"]
    assert found.differences == ("engine_version: 1.0 in BASE, 1.0 and 1.1 in NEW",)
    mixed = [*of("1.1", 8)[:2], *of("1.2", 8)[2:]]
    found = gate(of("1.0", 1) + of("1.0", 8), of("1.0", 1) + mixed, 0.03)
    assert [one.verdict for one in found.points] == ["pass", "inconclusive"]
    assert found.points[1].reason == (
        "NEW has it under other settings alone: engine_version: 1.0 in BASE, 1.1 and 1.2 in NEW"
    )


def test_of_several_settings_in_both_one_that_new_lost_fails() -> None:
    def of(threads: int) -> list[Record]:
        return rates(STEADY, threads, config={"options": {"threads": threads}})

    found = gate(of(1) + of(2) + of(4), of(1) + of(2), 0.03)
    assert [one.verdict for one in found.points] == ["pass", "pass", "fail"]


def test_repeats_wanted_reach_from_the_difference_to_the_limit() -> None:
    found, limit = Difference(0.0, 0.01, 8), math.log(0.97)
    count = repeats_wanted(found, limit, 5)
    assert count is not None

    def reach(n: int) -> float:
        df = 2 * (n - 1)
        return (t_quantile(0.95, df) + t_quantile(0.9, df)) * 0.01 * math.sqrt(5 / n)

    assert reach(count) <= -limit < reach(count - 1)


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [3, 5, 8])
def test_how_often_it_errs_on_noise_of_1_percent_with_outliers(repeats: int) -> None:
    """2000 simulated pairs: identical ones seldom fail, ones 10 % slower seldom pass, and both mostly end."""
    chance = np.random.default_rng(7)

    def repeated(speed: float) -> list[Record]:
        values = speed * np.exp(chance.normal(0, 0.01, repeats)) * np.where(
            chance.random(repeats) < 0.03, chance.uniform(0.6, 0.95, repeats), 1.0
        )  # fmt: skip
        return rates([float(one) for one in values])

    same = Counter(gate(repeated(100), repeated(100), 0.03).verdict for _ in range(2000))
    slow = Counter(gate(repeated(100), repeated(90), 0.03).verdict for _ in range(2000))
    assert share_upper(same["fail"], 2000) < 0.05
    assert share_upper(slow["pass"], 2000) < 0.05
    if repeats >= 5:
        assert slow["inconclusive"] / 2000 < 0.2
    if repeats >= 8:
        assert same["inconclusive"] / 2000 < 0.2

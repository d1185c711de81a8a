"""Whether the machine changed: medians of its probe by hand, on both sides of each limit."""

import math

import pytest

from inferometer.analysis.probe import change_between, change_over_rounds
from inferometer.analysis.summary import summarise
from tests.unit.report.sample_records import ENVIRONMENT, probe, record, throughput


def trials(*probes, precision="fp32", rates=(100.0, 101.0, 102.0), **fields):
    """One repeat per probe."""
    return [
        record(
            "throughput", "resnet50", precision, 8, repeat, throughput=throughput(rate), probe=one, **fields
        )
        for repeat, (one, rate) in enumerate(zip(probes, rates, strict=False))
    ]


def readings(*pairs, copy=9.5e9):
    """Probes whose compute readings before and after are these, in GB/s."""
    return [
        {
            moment: {"compute_bytes_per_s": value * 1e9, "copy_bytes_per_s": copy}
            for moment, value in zip(("before", "after"), pair, strict=True)
        }
        for pair in pairs
    ]


def test_medians_of_all_readings_of_a_side_are_compared():
    a = trials(*readings((10.0, 12.0), (11.0, 6.0)))  # 6, 10, 11, 12: 10.5
    b = trials(*readings((12.0, 12.0), (12.0, 30.0)))  # 12
    found = change_between(a, b)
    assert (found.probe, found.limit, found.readings) == ("compute", 0.10, 8)
    assert (found.low, found.high) == (10.5e9, 12e9)
    assert found.change == pytest.approx(12 / 10.5 - 1)
    assert found.changed


def test_single_outliers_do_not_make_a_change():
    a = trials(*readings((10.0, 6.0), (10.0, 10.1), (9.9, 10.0)))
    b = trials(*readings((10.0, 10.0), (10.1, 9.9), (17.0, 10.0)))
    found = change_between(a, b)
    assert found.change == pytest.approx(0.0)
    assert not found.changed


@pytest.mark.parametrize(
    ("compute", "copy", "name", "changed"),
    [
        (1.099, 1.0, "compute", False),
        (1.101, 1.0, "compute", True),
        (0.9, 1.0, "compute", True),  # 1 / 0.9 is 11 % apart
        (1.0, 1.39, "memory copying", False),
        (1.0, 1.41, "memory copying", True),
        (1.05, 1.3, "memory copying", False),  # 75 % of its limit, against 50 %
        (1.09, 1.3, "compute", False),  # 90 % of its limit, against 75 %
        (1.2, 1.5, "compute", True),  # twice its limit, against 1.25 times
    ],
)
def test_each_probe_has_its_own_limit_and_the_one_that_exceeds_it_most_is_named(compute, copy, name, changed):
    a = trials(*[probe(10e9, 10e9)] * 3)
    b = trials(*[probe(10e9 * compute, 10e9 * copy)] * 3)
    found = change_between(a, b)
    assert (found.probe, found.changed) == (name, changed)
    assert found.severity == pytest.approx(found.change / {"compute": 0.1, "memory copying": 0.4}[name])


@pytest.mark.parametrize("field", ["version", "threads", "copy_bytes"])
def test_unlike_probes_do_not_compare(field):
    work = {"version": 1, "threads": 2, "copy_bytes": 64}
    one, other = probe(), probe()
    for moment in ("before", "after"):
        one[moment] |= work
        other[moment] |= work | {field: 99}
    found = change_between(trials(one), trials(other))
    name = "bytes copied" if field == "copy_bytes" else field
    assert found.reason == f"the probe did not do the same work throughout ({name}: {work[field]} and 99)"
    assert (found.change, found.probe, found.severity, found.changed) == (None, None, math.inf, True)
    same = change_between(trials(one), trials(one))
    assert (same.change, same.reason, same.changed) == (0.0, None, False)


def test_without_a_reading_on_a_side_nothing_is_known():
    assert change_between(trials(probe()), trials(None)) is None
    assert (
        change_between(trials(probe()), trials({"before": None, "after": {"compute_bytes_per_s": 0}})) is None
    )


def test_rounds_of_repeats_are_compared_highest_against_lowest():
    rounds = [
        trials(*[probe(speed * 1e9) for speed in (10.0, 10.5, 11.2)], trial_model=name) for name in "ab"
    ]
    found = change_over_rounds([*rounds[0], *rounds[1]])
    assert (found.low, found.high, found.readings) == (10e9, 11.2e9, 12)
    assert found.change == pytest.approx(0.12)
    assert change_over_rounds(trials(probe())) is None


def test_trials_without_rounds_do_not_count():
    slow = record("accuracy", "digits", status="ok", probe=probe(1e9))
    assert change_over_rounds([*trials(probe(), probe()), slow]).change == 0.0


def test_a_ratio_whose_sides_met_another_machine_is_inconclusive():
    found = summarise(
        trials(*[probe()] * 3) + trials(*[probe(13.3e9)] * 3, precision="int8", rates=(300, 301, 302)),
        lambda _: None,
    )
    (gain,) = found.speed_ups
    assert gain.verdict == "inconclusive: machine changed"
    assert gain.machine_change.change == pytest.approx(13.3 / 12 - 1)
    # Each round saw both speeds alike.
    assert not found.machine_change.changed
    assert found.cautions[0] == (
        "1 of 1 ratio is inconclusive: the machine's own probe differed too much between the two sides."
        " Stop other programs and measure again."
    )


def test_a_drift_that_both_sides_met_alike_leaves_the_verdict_to_the_interval():
    drift = [probe(speed * 1e9) for speed in (12, 11, 10)]
    found = summarise(
        trials(*drift) + trials(*drift, precision="int8", rates=(300, 301, 302)), lambda _: None
    )
    assert found.speed_ups[0].verdict == "faster"
    assert found.cautions[0] == (
        "The machine changed while it was measured: the medians of its compute probe per round of repeats"
        " ranged from 10.0 to 12.0 GB/s, 20 % apart where more than 10 % counts as a change."
        " Stop other programs and measure again."
    )


def test_two_machines_are_not_one_that_changed():
    other = ENVIRONMENT | {"machine_key": "other"}
    found = summarise(
        trials(probe(), probe()) + trials(probe(3e9), probe(3e9), environment=other), lambda _: None
    )
    assert found.machine_change.change == 0.0

"""Ratios with the machine held at one state: by hand, and as verdicts of summaries and comparisons."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inferometer.analysis.comparison.compare import compare
from inferometer.analysis.held import held, widened
from inferometer.analysis.probe import change_between
from inferometer.analysis.summary import summarise
from inferometer.records import Record
from inferometer.stats import Difference, covariance_difference, ratio_interval, share_upper
from tests.unit.analysis.comparison.sample_sources import store, trials

BASE = (100.0, 101.0, 99.0)
OWN = (300.0, 302.0, 299.0)
SLOW, FAST = 10e9, 20e9  # of copying; limit 40 %
MORE_SLOW, MORE_FAST = (SLOW, 10.1e9, FAST), (19.9e9, FAST, 10.2e9)


def copying(speed: float, compute: float = 12e9) -> dict[str, object]:
    reading = {"compute_bytes_per_s": compute, "copy_bytes_per_s": speed, "version": 1, "threads": 2,
               "copy_bytes": 2**26}  # fmt: skip
    return {"before": reading, "after": reading}


def side(rates, speeds, precision="fp32", **probe) -> list[Record]:
    made = trials(rates, precision=precision)
    return [
        one.model_copy(update={"probe": copying(speed, **probe)})
        for one, speed in zip(made, speeds, strict=True)
    ]


def rate(record: Record) -> float | None:
    return record.throughput.images_per_s if record.throughput else None


def test_the_slope_within_both_sides_takes_the_covariate_away():
    """Values are 2 + 3 x, and 5 + 3 x: at one x they are 3 apart, though their means are 12 apart."""
    a = [(2.0 + 3 * x, x) for x in (0.0, 1.0, 2.0)]
    b = [(5.0 + 3 * x, x) for x in (3.0, 4.0, 5.0)]
    found = covariance_difference(a, b)
    assert found.value == pytest.approx(3.0)
    assert found.error == pytest.approx(0.0, abs=1e-7)
    assert found.df == 3.0


def test_its_error_is_that_of_the_textbook():
    a, b = [(1.0, 0.0), (3.0, 1.0), (2.0, 2.0)], [(6.0, 1.0), (8.0, 2.0)]
    # Sums within: xx 2 + 0.5 = 2.5, xy 1 + 1 = 2, yy 2 + 2 = 4; slope 0.8, left 4 - 0.8 * 2 = 2.4, df 2.
    error = math.sqrt(2.4 / 2 * (1 / 3 + 1 / 2 + 0.5**2 / 2.5))
    found = covariance_difference(a, b)
    assert (found.value, found.error, found.df) == (
        pytest.approx(7 - 2 - 0.8 * 0.5), pytest.approx(error), 2.0
    )  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([(1.0, 0.0), (2.0, 1.0)], [(3.0, 0.0)]),
        ([(1.0, 5.0), (2.0, 5.0)], [(3.0, 7.0), (4.0, 7.0)]),
        ([], [(3.0, 0.0), (3.0, 1.0), (3.0, 2.0), (3.0, 4.0)]),
    ],
    ids=["too few", "no spread within", "one side alone"],
)
def test_without_a_slope_there_is_no_difference(a, b):
    assert covariance_difference(a, b) is None


def test_a_verdict_stands_where_rates_do_not_follow_the_probe():
    found = summarise(side(BASE, MORE_SLOW) + side(OWN, MORE_FAST, "int8"), lambda _: None)
    (gain,) = found.speed_ups
    assert gain.machine_change.changed
    assert (gain.verdict, gain.held) == ("faster", True)
    plain = ratio_interval(BASE, OWN)
    assert gain.interval[0] <= plain.lo
    assert gain.interval[1] >= plain.hi
    assert gain.p >= plain.p
    assert found.findings[0].sentence.count("the machine's change allowed for") == 1
    assert found.cautions[0] == (
        "The machine's own probe differed between the two sides of 1 ratio, which is told from 1 with it held"
        " at one speed as well."
    )


def test_a_verdict_falls_where_the_machine_explains_the_ratio():
    """Rates are the probe's, with no difference between the sides at one speed."""
    scatter = (1.0, 1.004, 0.997)
    rates = [
        [100.0 * speed / SLOW * factor for speed, factor in zip(speeds, scatter, strict=True)]
        for speeds in (MORE_SLOW, MORE_FAST)
    ]
    found = summarise(side(rates[0], MORE_SLOW) + side(rates[1], MORE_FAST, "int8"), lambda _: None)
    assert found.speed_ups[0].verdict == "inconclusive: machine changed"


def test_it_falls_where_no_side_met_the_others_state():
    apart = side(BASE, (SLOW, 10.1e9, 10.2e9)) + side(OWN, (FAST, 19.9e9, 20.1e9), "int8")
    gain = summarise(apart, lambda _: None).speed_ups[0]
    assert (gain.verdict, gain.held) == ("inconclusive: machine changed", False)


def test_two_repeats_a_side_are_too_few():
    few = side(BASE[:2], (SLOW, FAST * 0.6)) + side(OWN[:2], (FAST, FAST * 0.6), "int8")
    gain = summarise(few, lambda _: None).speed_ups[0]
    assert (gain.verdict, gain.held) == ("inconclusive: machine changed", False)


def test_each_probe_that_moved_must_leave_it():
    """Computing moved too, and no side met the other's."""
    both = side(BASE, MORE_SLOW) + side(OWN, MORE_FAST, "int8", compute=15e9)
    gain = summarise(both, lambda _: None).speed_ups[0]
    assert (gain.verdict, gain.held) == ("inconclusive: machine changed", False)


def test_readings_that_do_not_compare_leave_nothing():
    base, own = side(BASE, MORE_SLOW), side(OWN, MORE_FAST)
    other = [one.model_copy(update={"probe": None}) for one in own]
    assert held(base, other, rate, change_between(base, own)) == ()
    assert held(base, own, lambda _: None, change_between(base, own)) == ()
    assert held(base, own, rate, None) == ()
    assert held(base, base, rate, change_between(base, base)) == ()


def test_the_widest_interval_and_the_largest_p_count():
    one = Difference(math.log(2.0), 0.1, 4.0)
    (low, high), p = widened((1.9, 2.1), 0.001, [one])
    assert low == pytest.approx(2 * math.exp(-0.27764), rel=1e-4)
    assert high == pytest.approx(2 * math.exp(0.27764), rel=1e-4)
    assert p == pytest.approx(0.00228, abs=5e-5)  # t = 6.931, df 4
    assert widened((1.5, 4.0), 0.04, [one]) == ((1.5, 4.0), 0.04)
    assert widened((0.95, 1.05), 0.9, [one], factor=0.5)[1] == 1.0
    assert widened((1.9, 2.1), 0.001, []) == ((1.9, 2.1), 0.001)


def test_stores_are_compared_at_one_state_too():
    a, b = store("a", side(BASE, MORE_SLOW)), store("b", side(OWN, MORE_FAST))
    (row,) = compare([a, b]).ratios
    assert row.machine_change.changed
    assert row.verdict == "faster"
    assert len(row.held) == 1
    (priced,) = [one for one in compare([a, b], prices={"a": 1.0, "b": 6.0}).ratios if one.per == "price"]
    assert priced.verdict == "less for the price"
    assert priced.interval[0] < 0.5 < priced.interval[1]
    assert priced.ratio == pytest.approx(row.ratio / 6)


@pytest.mark.parametrize("follows", [0.0, 0.5, 1.0], ids="follows {}".format)
def test_it_seldom_calls_alike_sides_different_however_rates_follow_the_probe(follows):
    """Copying goes to and fro between two speeds; of 1500 pairs without a difference few are told apart."""
    dice = np.random.default_rng(7)
    wrong = judged = 0
    for _ in range(1500):
        sides = []
        for _ in range(2):
            speeds = np.where(dice.random(4) < 0.5, SLOW, 2 * SLOW) * np.exp(dice.normal(0, 0.05, 4))
            rates = 100 * (speeds / SLOW) ** follows * np.exp(dice.normal(0, 0.02, 4))
            sides.append(side([float(one) for one in rates], [float(one) for one in speeds]))
        base, own = sides
        kept = held(base, own, rate, change_between(base, own))
        if not kept:
            continue
        judged += 1
        plain = ratio_interval(*([rate(one) for one in each] for each in sides))
        wrong += widened((plain.lo, plain.hi), plain.p, kept)[1] < 0.05
    assert judged > 100
    assert share_upper(wrong, judged) < 0.05

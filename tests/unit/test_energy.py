"""Energy and its uncertainty against traces of known joules, closed forms and simulated runs."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferometer.energy import (
    Audit,
    Trace,
    WindowPower,
    agreement,
    audit,
    efficiency,
    energy_j,
    mean_w,
    measured,
    net_power,
    overlap_share,
    summed,
)
from inferometer.energy_windows import Readings, satterthwaite
from inferometer.stats import t_quantile

COVERAGE = Path(__file__).parents[2] / "benchmarks" / "power" / "coverage.py"
ORIGIN_S = 1_000_000.0  # a clock that has run for days
SOUND = Audit(300, 300, 10.0, 0.1, 1.0, None)


def ns(seconds):
    return round((ORIGIN_S + seconds) * 1e9)


def span(begin, end):
    return ns(begin), ns(end)


def power_trace(power, end=120.0, *, period=0.1, jitter=0.0, missing=0.0, call=0.003, step=None):
    """``power`` (of an array of seconds, W) read at 0..end; ``missing``: that share of readings is NaN."""
    rng = np.random.default_rng(7)
    at = np.arange(0.0, end + period / 2, period)
    at = at + rng.uniform(-jitter, jitter, at.size)
    values = np.asarray(power(at), np.float64)
    values[1:-1][rng.random(at.size - 2) < missing] = math.nan
    return from_arrays("power", at, values, period, call=call, step=step)


def from_arrays(kind, at, values, period, *, call=0.0, step=None):
    begin = np.array([ns(each) for each in np.asarray(at) - call / 2], np.int64)
    return Trace(kind, begin, begin + round(call * 1e9), np.asarray(values, np.float64), period, step)


def stepped(at):
    """20 W, 140 W from second 30 to 90, 20 W."""
    return np.where((at >= 30) & (at < 90), 140.0, 20.0)


def ramp(at):
    return 20 + 120 * at / at[-1]


def counter(power, end=120.0, *, period=0.1, step=0.1, jitter=0.0):
    """The joules of ``power``, renewed every ``step``."""
    fine = np.arange(0.0, end + 1e-9, 0.001)
    joules = np.append(0.0, np.cumsum(power(fine[:-1] + 0.0005) * 0.001))
    rng = np.random.default_rng(8)
    at = np.arange(0.0, end + period / 2, period) + rng.uniform(0, jitter)
    at = np.clip(at + rng.uniform(-jitter, jitter, at.size), 0, end)
    renewed = np.floor(at / step + 1e-9) * step
    return from_arrays("energy", at, np.interp(renewed, fine, joules), period, call=0.003, step=step)


@pytest.mark.parametrize("jitter", [0.0, 0.04])
@pytest.mark.parametrize("missing", [0.0, 0.05])
@pytest.mark.parametrize(
    ("window", "joules"),
    [((1, 29), 560), ((31, 89), 58 * 140), ((0.5, 119.5), 29.5 * 20 * 2 + 60 * 140), ((91, 119), 560)],
)
def test_steps_give_their_known_energy(window, joules, jitter, missing):
    trace = power_trace(stepped, jitter=jitter, missing=missing, step=0.1)
    assert audit(trace, span(*window)).fault is None
    assert energy_j(trace, span(*window)) == pytest.approx(joules, rel=0.005)
    assert mean_w(trace, span(*window)) == pytest.approx(joules / (window[1] - window[0]), rel=0.005)


def test_a_ramp_is_exact_between_readings_too():
    trace = power_trace(lambda at: 20 + at, period=0.7, jitter=0.2, call=0.0)
    begin, end = 3.123, 101.777
    assert energy_j(trace, span(begin, end)) == pytest.approx(
        20 * (end - begin) + (end**2 - begin**2) / 2, rel=1e-7
    )


def test_repeated_identical_readings_all_count():
    # A source that renews every second, polled ten times as often, holding 140 W for one second in ten.
    def held(at):
        return np.where(np.floor(at + 1e-9) % 10 == 0, 140.0, 20.0)

    trace = power_trace(held, period=0.1)
    assert energy_j(trace, span(5, 115)) == pytest.approx(11 * (140 + 9 * 20), rel=0.005)
    constant = power_trace(lambda at: np.full(at.size, 33.0))
    assert energy_j(constant, span(10, 70)) == pytest.approx(1980.0, rel=1e-12)


def test_absent_readings_are_bridged_like_nan():
    whole = power_trace(lambda at: 50 + np.sin(at))
    keep = np.random.default_rng(1).random(whole.values.size) > 0.05
    keep[[0, -1]] = True
    absent = replace(
        whole, begin_ns=whole.begin_ns[keep], end_ns=whole.end_ns[keep], values=whole.values[keep]
    )
    nan = replace(whole, values=np.where(keep, whole.values, math.nan))
    window = span(5.05, 95.03)
    assert energy_j(absent, window) == energy_j(nan, window)
    assert energy_j(nan, window) == pytest.approx(energy_j(whole, window), rel=0.0005)
    assert audit(nan, window) == audit(absent, window)


@pytest.mark.parametrize(("period", "jitter"), [(0.1, 0.0), (0.1, 0.02), (0.02, 0.0), (0.5, 0.1)])
def test_a_counter_gives_its_known_energy(period, jitter):
    trace = counter(stepped, period=period, jitter=jitter)
    assert energy_j(trace, span(31, 89)) == pytest.approx(58 * 140, rel=0.005)
    assert energy_j(trace, span(2, 28)) == pytest.approx(26 * 20, rel=0.005)
    late = 2 * 0.1 * 140  # two steps at most
    assert abs(energy_j(trace, span(31, 89)) - 58 * 140) <= late


@pytest.mark.parametrize("kind", ["power", "energy"])
@pytest.mark.parametrize("cut", [30.0, 47.123456789, 60.05, 118.9])
def test_two_parts_sum_to_the_whole(kind, cut):
    trace = power_trace(stepped, jitter=0.03) if kind == "power" else counter(stepped)
    whole = energy_j(trace, span(1, 119))
    parts = energy_j(trace, span(1, cut)) + energy_j(trace, span(cut, 119))
    assert parts == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize(
    ("window", "words", "gap", "coverage"),
    [
        ((-1, 5), "readings begin 1 s after", 1, 5 / 6),
        ((5, 125), "readings end 5 s before", 5, 115 / 120),
        ((130, 140), "readings end 20 s before", 20, 0),
    ],
)
def test_readings_that_do_not_span_the_window_give_no_figure(window, words, gap, coverage):
    trace = power_trace(stepped, call=0.0)
    found = audit(trace, span(*window))
    assert words in found.fault
    assert (found.largest_gap_s, found.coverage) == pytest.approx((gap, coverage), abs=1e-6)
    assert measured(trace, [span(*window), span(5, 25)])[0] is None
    with pytest.raises(ValueError, match=words):
        energy_j(trace, span(*window))


@pytest.mark.parametrize("values", [[], [50.0], [math.nan] * 5])
def test_an_empty_trace_has_a_fault(values):
    trace = from_arrays("power", np.arange(len(values)), values, 1.0)
    found = audit(trace, span(0, 4))
    assert "cannot span" in found.fault
    assert (found.largest_gap_s, found.coverage) == pytest.approx((4.0, 0.0))
    assert measured(trace, [span(0, 4)]) == (None,)
    with pytest.raises(ValueError, match="cannot span"):
        mean_w(trace, span(0, 4))


def test_the_audit_counts_and_measures_gaps():
    values = [10, 10, 11, 12, math.nan, math.nan, math.nan, 12, 13, 14, 15]
    trace = from_arrays("power", range(11), values, 1.0, step=1.0)
    found = audit(trace, span(0.5, 9.5))
    assert (found.samples, found.distinct) == (6, 5)
    assert found.rate_hz == pytest.approx(6 / 9)
    assert found.largest_gap_s == pytest.approx(4.0)
    assert found.coverage == pytest.approx(1 - 4 / 9)
    assert "cover 56%" in found.fault
    assert audit(trace, span(7, 10)).coverage == 1.0  # the gap only touches it


@pytest.mark.parametrize(("gap", "fault"), [(0.2, None), (0.5, None), (0.6, "over 5 periods")])
def test_a_gap_over_five_periods_is_a_fault(gap, fault):
    at = np.append(np.arange(0, 10.05, 0.1), 10 + gap + np.arange(0, 110, 0.1))
    noise = np.random.default_rng(3).standard_normal(at.size)
    found = audit(from_arrays("power", at, 50 + noise, 0.1), span(1, 100))
    assert (found.fault is None) if fault is None else (fault in found.fault)
    assert found.largest_gap_s == pytest.approx(gap)


def test_too_few_distinct_readings_are_a_fault_unless_the_source_is_known_to_renew():
    trace = power_trace(lambda at: 100 + np.floor(at / 10))
    assert "too few distinct readings: 3 in 30 s" in audit(trace, span(0, 29.99)).fault
    stuck = power_trace(lambda at: np.full(at.size, 33.0))
    assert "too few distinct readings: 1 in" in audit(stuck, span(10, 70)).fault
    known = replace(stuck, step_s=0.1)
    assert audit(known, span(10, 70)).fault is None
    (found,) = measured(known, [span(10, 70)])
    assert found.flags == (f"all {found.audit.samples} readings are the same",)


def test_a_counter_that_falls_is_a_fault():
    trace = counter(stepped)
    values = trace.values.copy()
    values[600:] -= 5000.0
    fallen = replace(trace, values=values)
    assert audit(fallen, span(31, 89)).fault == "the energy counter went backwards"
    assert audit(fallen, span(1, 29)).fault is None


@pytest.mark.parametrize("window", [(5, 5), (6, 5)])
def test_an_empty_window_is_refused(window):
    trace = power_trace(stepped)
    for function in (audit, energy_j, mean_w):
        with pytest.raises(ValueError, match="must end after it begins"):
            function(trace, span(*window))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"values": np.zeros(3)}, "one length"),
        ({"period_s": 0.0}, "positive"),
        ({"step_s": 0.0}, "positive"),
        ({"end_ns": np.array([0, 1], np.int64)}, "order of time"),
        ({"begin_ns": np.array([9, 1], np.int64), "end_ns": np.array([9, 1], np.int64)}, "order of time"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(change, words):
    begin = np.array([5, 6], np.int64)
    fields = {"begin_ns": begin, "end_ns": begin + 1, "values": np.zeros(2), "period_s": 1.0, **change}
    with pytest.raises(ValueError, match=words):
        Trace("power", **fields)


def test_noise_free_readings_have_no_random_part():
    before, load, after = measured(power_trace(stepped, step=0.1), [span(1, 29), span(31, 89), span(91, 119)])
    assert (before.u_w, load.u_w, load.df, load.correlation_s) == (0.0, 0.0, math.inf, None)
    net = net_power(load, before, after)
    assert net.net_w == pytest.approx(120.0)
    assert net.u_net_w == pytest.approx(0, abs=1e-12)
    assert net.ci95_w == pytest.approx((120.0, 120.0))
    assert net.resolved
    assert efficiency(1000.0, 0.0, net.net_w, net.u_net_w, net.df).j_per_image == pytest.approx(0.12)


def test_a_noise_free_ramp_is_flagged_and_measured():
    trace = power_trace(ramp)
    (found,) = measured(trace, [span(30, 60)])
    assert found.mean_w == pytest.approx(65.0, rel=1e-3)
    assert found.u_w > 1.0
    assert "is too long for a window of 30 s" in found.flags[0]


def test_a_wave_that_fits_the_blocks_breaks_nothing():
    (found,) = measured(power_trace(lambda at: 50 + np.sin(2 * np.pi * at / 6), step=0.1), [span(0.5, 60.5)])
    assert found.mean_w == pytest.approx(50, abs=0.01)
    assert 0 <= found.u_w < 1


def test_the_resolution_is_the_floor_of_coarse_readings():
    def coarse(at):
        noise = np.random.default_rng(2).normal(0, 6, at.size)
        return np.where((at > 30) & (at < 90), np.round(140 + noise), 20.0)

    trace = power_trace(coarse)
    before, load = measured(trace, [span(1, 29), span(31, 89)])
    assert before.u_w == pytest.approx(1 / math.sqrt(12))
    assert before.df == math.inf
    assert load.u_w == pytest.approx(6 / math.sqrt(580), rel=0.5)  # scatter averages the steps out


def test_a_counter_is_late_at_both_edges():
    (found,) = measured(counter(lambda at: np.full(at.size, 140.0)), [span(31, 61)])
    assert found.u_w == pytest.approx(140 * 0.1 / math.sqrt(6) / 30, rel=0.02)


@pytest.mark.parametrize("stated", [None, 1.0])
def test_polling_faster_than_the_source_renews_narrows_nothing(stated):
    at = np.arange(0.0, 120.0, 0.1)
    renewed = 100 + np.random.default_rng(5).standard_normal(120)
    fast = from_arrays("power", at, np.repeat(renewed, 10), 0.1, step=stated)
    slow = from_arrays("power", np.arange(120) + 0.45, renewed, 1.0)
    (quick,), (plain,) = measured(fast, [span(10, 40)]), measured(slow, [span(10, 40)])
    assert quick.audit.distinct == pytest.approx(30, abs=1)
    assert quick.u_w == pytest.approx(plain.u_w, rel=0.3)
    assert Readings(fast).renewals(30.0, 300) == 30


def test_the_uncertainty_of_white_noise_is_the_textbooks():
    noise = np.random.default_rng(11).normal(0, 5, 1201)
    (found,) = measured(power_trace(lambda at: 100 + noise), [span(10, 110)])
    assert found.u_w == pytest.approx(5 / math.sqrt(1000), rel=0.35)
    assert found.flags == ()


def coverage_benchmark():
    spec = importlib.util.spec_from_file_location("power_coverage", COVERAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["power", "energy"])
@pytest.mark.parametrize("tau_s", [0.3, 1.0, 3.0])
def test_the_95_percent_interval_covers_the_truth(kind, tau_s):
    found = coverage_benchmark().simulate(kind, tau_s, 300, seed=20)
    # 93 to 98 %, and two binomial standard deviations of 300 runs.
    assert 0.93 - 0.03 <= found.covered <= 0.98 + 0.016
    assert found.resolved == 1.0
    assert found.correlation_s == pytest.approx(tau_s, rel=0.35)


@pytest.mark.parametrize("kind", ["power", "energy"])
def test_a_correlation_time_of_ten_seconds_is_flagged(kind):
    simulate = coverage_benchmark().simulate
    assert simulate(kind, 10.0, 150, seed=21).flagged > 0.8
    assert simulate(kind, 1.0, 150, seed=21).flagged < 0.03


def test_windows_that_differ_in_correlation_do_not_mislead_each_other():
    bench = coverage_benchmark()
    rng = np.random.default_rng(30)
    quiet, slow = bench.ar1(rng, 2, 400, 0.1), bench.ar1(rng, 1, 1200, 4.0)
    values = np.concatenate([50 + quiet[0], 200 + slow[0], 50 + quiet[1]])
    trace = from_arrays("power", np.arange(values.size) * 0.1, values, 0.1)
    windows = [span(2, 38), span(42, 158), span(162, 198)]
    pooled = measured(trace, windows)
    assert pooled[0].correlation_s < 0.6 < 1.5 < pooled[1].correlation_s
    assert pooled[1].u_w == pytest.approx(measured(trace, windows[1:2])[0].u_w, rel=0.3)


def part(mean, u, df, **changes):
    return replace(WindowPower(span(0, 30), mean, u, df, 1.0, (), SOUND), **changes)


def test_net_power_by_hand():
    load, before, after = part(140.0, 1.0, 10.0), part(20.0, 0.8, 5.0), part(20.5, 0.6, 5.0)
    net = net_power(load, before, after)
    assert (net.load_w, net.idle_w, net.drift_w, net.net_w) == (140.0, 20.25, 0.5, 119.75)
    # The drift of 0.5 W is within the scatter of sqrt(0.64 + 0.36) = 1 W: no term of its own.
    assert net.u_net_w == pytest.approx(math.sqrt(1 + 0.16 + 0.09))
    assert net.df == pytest.approx(1.25**2 / (1 / 10 + 0.16**2 / 5 + 0.09**2 / 5))
    half = t_quantile(0.975, net.df) * net.u_net_w
    assert net.ci95_w == pytest.approx((119.75 - half, 119.75 + half))
    assert net.resolved


def test_drift_beyond_scatter_is_a_term_of_its_own():
    net = net_power(part(140.0, 1.0, 10.0), part(20.0, 0.8, 5.0), part(26.0, 0.6, 5.0))
    assert net.drift_w == 6.0
    assert net.u_net_w == pytest.approx(math.sqrt(1.25 + (36 - 1) / 12))
    falling = net_power(part(140.0, 1.0, 10.0), part(26.0, 0.8, 5.0), part(20.0, 0.6, 5.0))
    assert (falling.drift_w, falling.u_net_w) == (-6.0, net.u_net_w)


def test_one_idle_alone_leaves_the_drift_unknown():
    net = net_power(part(140.0, 1.0, 10.0), part(138.0, 0.8, 5.0), None)
    assert (net.idle_w, net.drift_w, net.net_w) == (138.0, None, 2.0)
    assert net.u_net_w == pytest.approx(math.sqrt(1.64))
    assert not net.resolved


def test_efficiency_by_hand():
    found = efficiency(1000.0, 0.0, 100.0, 5.0, math.inf)
    z = t_quantile(0.975, math.inf)
    assert (found.images_per_s_per_w, found.j_per_image) == (10.0, 0.1)
    assert found.u_relative == pytest.approx(0.05)
    assert found.ci95_j_per_image == pytest.approx(((100 - 5 * z) / 1000, (100 + 5 * z) / 1000))
    assert found.ci95_images_per_s_per_w == pytest.approx((1000 / (100 + 5 * z), 1000 / (100 - 5 * z)))


def test_efficiency_with_both_uncertain_is_fiellers():
    found = efficiency(1000.0, 40.0, 100.0, 3.0, 12.0)
    assert found.u_relative == pytest.approx(0.05)
    t = t_quantile(0.975, 12.0)
    for joules in found.ci95_j_per_image:  # at each limit, power - joules x rate is t of its uncertainties
        assert abs(100 - joules * 1000) == pytest.approx(t * math.hypot(3.0, joules * 40.0))
    low, high = found.ci95_j_per_image
    assert found.ci95_images_per_s_per_w == pytest.approx((1 / high, 1 / low))


@pytest.mark.parametrize(
    "figures",
    [
        (1000.0, 0.0, 15.0, 5.0, math.inf),  # 3 u
        (1000.0, 0.0, -100.0, 1.0, math.inf),
        (1000.0, 0.0, 0.0, 0.0, math.inf),
        (1000.0, 0.0, 100.0, 20.0, 1.0),  # t is 12.7: the interval reaches 0 W
        (1000.0, 600.0, 100.0, 1.0, math.inf),
        (0.0, 0.0, 100.0, 1.0, math.inf),
    ],
)
def test_efficiency_is_none_where_it_has_no_bound(figures):
    assert efficiency(*figures) is None


def test_devices_sum_with_uncertainties_in_quadrature():
    faulty = Audit(250, 40, 8.0, 0.4, 0.97, None)
    one, two = part(300.0, 3.0, 8.0, flags=("a", "b")), part(310.0, 4.0, 4.0, flags=("b",), audit=faulty)
    whole = summed([one, replace(two, correlation_s=None)])
    assert (whole.mean_w, whole.u_w, whole.correlation_s, whole.flags) == (610.0, 5.0, 1.0, ("a", "b"))
    assert whole.df == pytest.approx(25**2 / (81 / 8 + 256 / 4))
    assert whole.audit == faulty
    assert summed([one]) == one
    with pytest.raises(ValueError, match="same window"):
        summed([])
    with pytest.raises(ValueError, match="same window"):
        summed([one, replace(two, window=span(0, 31))])


def test_satterthwaite_of_nothing_uncertain_is_infinite():
    assert satterthwaite([]) == math.inf
    assert satterthwaite([(0.0, 3.0), (2.0, math.inf)]) == math.inf
    assert satterthwaite([(2e-200, 3.0), (0.0, 1.0)]) == pytest.approx(3.0)
    assert satterthwaite([(1.0, 1.0)]) == 1.0


def test_overlap_share_holds_each_sample_until_the_next():
    at = np.array([ns(0), ns(2), ns(5), ns(9)], np.int64)
    held = np.array([True, False, True, True])
    assert overlap_share(at, held, span(0, 10)) == pytest.approx(0.7)
    assert overlap_share(at, held, span(1, 6)) == pytest.approx(0.4)
    assert overlap_share(at, held, span(-5, 5)) == pytest.approx(0.2)
    assert overlap_share(at, held, span(20, 30)) == 1.0
    assert overlap_share(at, held, span(-9, -5)) == 0.0
    assert overlap_share(at, ~held, span(20, 30)) == 0.0
    assert overlap_share(at[:0], held[:0], span(0, 1)) == 0.0
    with pytest.raises(ValueError, match="one length"):
        overlap_share(at, held[:2], span(0, 1))


def test_agreement_is_relative_to_the_counter():
    assert agreement(200.0, 210.0) == pytest.approx(0.05)
    assert agreement(200.0, 180.0) == pytest.approx(-0.1)
    assert (agreement(0.0, 0.0), agreement(0.0, 5.0)) == (0.0, math.inf)

"""Where missing percents went: each cause only where the records show it, its part only by arithmetic."""

import pytest

from inferometer.analysis.scaling_ranks import processors_of
from inferometer.analysis.summary import summarise
from inferometer.records import Feeding
from tests.unit.report.power_records import held, result
from tests.unit.report.scaling_records import (
    alone,
    cpu_rank,
    cpu_study,
    feeding,
    gpu_study,
    rank_result,
    state,
    together,
)


def causes_of(records):
    return {one.name: one for one in summarise(records, lambda _: None).scaling[-1].causes}


def parts(records):
    return {name: one.points for name, one in causes_of(records).items()}


def test_evenly_slower_ranks_leave_all_to_what_remains():
    found = causes_of(cpu_study((17.0, 17.0)))
    assert list(found) == ["what remains", "skew"]
    assert found["what remains"].points == pytest.approx(0.15)
    assert found["what remains"].evidence == (
        "not measured; on CPU ranks it is usually memory bandwidth or shared cache; all ranks slow down"
        " alike, to 85.0 % of their own rate; right after the trials the processors' clock was the same"
        " (2,600 MHz)"
    )


def test_skew_takes_nothing():
    skew = causes_of(cpu_study((17.0, 17.0)))["skew"]
    assert skew.points == 0.0
    assert skew.evidence.startswith(
        "ranks began up to 0.400 ms apart in 18.8 s; the rate counts only the time"
    )


def test_what_is_linear_is_not_explained():
    assert parts(cpu_study((20.0, 20.0))) == {}
    assert parts(cpu_study((20.5, 20.5))) == {}
    assert parts(cpu_study((17.0, 17.0), repeats=1)) == {}


def test_one_slow_rank_takes_what_it_is_behind_the_middle():
    found = causes_of(gpu_study())
    # Ranks keep 98, 98, 98 and 66 %: (98 - 66) / 4 = 8 of the 10 points.
    assert {name: one.points for name, one in found.items()} == pytest.approx(
        {"uneven ranks": 0.08, "what remains": 0.02, "skew": 0.0}
    )
    assert found["uneven ranks"].evidence == (
        "rank 3 (cuda:3 of node1) keeps 66.0 % of what its device does alone; the middle of the ranks keeps"
        " 98.0 %"
    )
    # Of two ranks the better is the measure: 90 and 70 % are 10 points for both alike, 10 for the slower.
    assert parts(cpu_study((18.0, 14.0))) == pytest.approx(
        {"uneven ranks": 0.1, "what remains": 0.1, "skew": 0.0}
    )


def test_ranks_that_share_processors_could_not_do_better():
    found = causes_of(cpu_study((11.0, 11.0), shared=True))
    assert (found["shared processors"].points, found["shared processors"].bound) == (
        pytest.approx(0.45), "at most",
    )  # fmt: skip
    assert "they could reach 50 % of linear" in found["shared processors"].evidence
    assert "what remains" not in found
    # Two of three ranks on one processor: two thirds at most, and 50 % are there.
    worse = [alone(place, 20.0 * by, repeat, ranks=(cpu_rank(place, 20.0),), trial_device="cpu")
             for repeat, by in enumerate((0.999, 1.001)) for place in range(3)]  # fmt: skip
    three = [cpu_rank(0, 10.0, "0"), cpu_rank(1, 10.0, "1"), cpu_rank(2, 10.0, "0")]
    worse += [together(three, repeat, trial_device="cpu") for repeat in range(2)]
    found = causes_of(worse)
    assert found["shared processors"].points == pytest.approx(1 / 3)
    assert (found["what remains"].points, found["what remains"].bound) == (
        pytest.approx(1 / 6), "at least",
    )  # fmt: skip


def test_waiting_for_images_bounds_its_part():
    def fed(wait_together, wait_alone):
        records = cpu_study((15.0, 15.0), trial_input="images")
        return [
            one.model_copy(
                update={"feeding": feeding_of(wait_together if one.trial.ranks > 1 else wait_alone)}
            )
            for one in records
        ]

    # 75 % of linear; waiting 10 instead of 28 % of the time, rates are at most 90 / 72 = 1.25 times as high.
    found = causes_of(fed(0.28, 0.10))
    assert found["host preprocessing"].points == pytest.approx(0.75 * 0.25)
    assert found["host preprocessing"].bound == "at most"
    assert found["what remains"].points == pytest.approx(0.25 - 0.1875)
    assert "host preprocessing" not in causes_of(fed(0.11, 0.10))


def feeding_of(wait):
    return Feeding.model_validate(feeding(wait))


def test_clocks_under_a_power_limit_are_seen_and_not_counted():
    def metered(cap, low):
        found = []
        for repeat in range(2):
            for place in range(2):
                one = result(400.0, 1000.0, parts=(f"GPU-{place}",), clock_hz=(1.9e9, 1.98e9))
                found.append(alone(place, 1000.0 + repeat, repeat, power=(one,)))
            both = result(800.0, 1800.0, parts=("GPU-0", "GPU-1"), clock_hz=(low, 1.98e9),
                          conditions=held(cap=cap))  # fmt: skip
            found.append(
                together([rank_result(rank, 900.0 + repeat) for rank in range(2)], repeat, power=(both,))
            )
        return found

    found = causes_of(metered(0.6, 1.5e9))["device clocks"]
    assert (found.points, found.evidence) == (
        None,
        "the power limit held clocks down for 60 % of the load together, 0 % alone; the clock was 1,500 to"
        " 1,980 MHz together, 1,900 to 1,980 MHz alone",
    )
    assert (
        "here beside what was seen (device clocks)" in causes_of(metered(0.6, 1.5e9))["what remains"].evidence
    )
    assert "device clocks" not in causes_of(metered(0.02, 1.9e9))


@pytest.mark.parametrize(
    ("ours", "name", "evidence"),
    [
        (
            state(cpu_hz=2.2e9),
            "CPU clock",
            "right after the trials the processors ran at 2,200 MHz, 2,600 MHz alone",
        ),
        (
            state(throttled_s=0.5),
            "CPU quota",
            "the CPU quota held processes back for 5 % of the time together, 0 % alone",
        ),
        (
            state(busy=8.0),
            "load by others",
            "other processes kept 8.00 cores busy meanwhile, 0.0500 alone",
        ),
        (
            state(steal=9.0),
            "load by others",
            "the hypervisor gave 9.00 cores to other machines meanwhile, 0 alone",
        ),
    ],
)
def test_what_was_seen_beside_is_named_without_a_part(ours, name, evidence):
    found = causes_of(cpu_study(ours=ours))
    assert list(found) == [name, "what remains", "skew"]
    assert (found[name].points, found[name].evidence) == (None, evidence)
    assert found["what remains"].points == pytest.approx(0.15)


def test_what_both_sides_met_alike_is_no_cause():
    alike = state(cpu_hz=1.2e9, busy=9.0, steal=5.0, throttled_s=3.0)
    assert list(parts(cpu_study(ours=alike, theirs=alike))) == ["what remains", "skew"]


def test_processors_as_linux_lists_them():
    assert processors_of("0-3,8") == {0, 1, 2, 3, 8}
    assert processors_of(None) == frozenset()

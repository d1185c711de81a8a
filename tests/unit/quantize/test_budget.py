import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, strategies

from inferometer.errors import CalibrationError
from inferometer.quantize.budget import BudgetResult, fewest_float

RANKING = tuple(f"layer{number:02}" for number in range(20))


class Meter:
    """A drop function that notes what it was asked."""

    def __init__(self, drop: Callable[[frozenset[str]], float]) -> None:
        self.asked: list[frozenset[str]] = []
        self._drop = drop

    def __call__(self, float_layers: frozenset[str]) -> float:
        self.asked.append(float_layers)
        return self._drop(float_layers)


def additive(drops: Mapping[str, float]) -> Meter:
    """Each layer on integers costs its own drop."""
    return Meter(lambda float_layers: sum(drop for name, drop in drops.items() if name not in float_layers))


def falling() -> dict[str, float]:
    return {name: 0.02 / 2**place for place, name in enumerate(RANKING)}


def test_nothing_stays_in_float_when_nothing_needs_to() -> None:
    meter = additive(dict.fromkeys(RANKING, 0.0001))
    result = fewest_float(RANKING, meter, 0.005)
    assert result.met
    assert result.float_layers == ()
    assert result.drop == pytest.approx(0.002)
    assert meter.asked == [frozenset()]


@pytest.mark.parametrize("needed", range(1, len(RANKING) + 1))
def test_the_shortest_prefix_is_found_and_one_fewer_was_measured(needed: int) -> None:
    meter = Meter(lambda float_layers: 0.0 if set(RANKING[:needed]) <= float_layers else 0.1)
    result = fewest_float(RANKING, meter, 0.005, give_back=0)
    assert result.met
    assert result.float_layers == RANKING[:needed]
    assert {evaluation.prefix for evaluation in result.evaluations} >= {0, needed - 1, needed}
    assert len(meter.asked) <= 1 + math.ceil(math.log2(len(RANKING) + 1))


def test_every_evaluation_is_kept_and_none_is_made_twice() -> None:
    meter = additive(falling())
    result = fewest_float(RANKING, meter, 0.003)
    assert [frozenset(evaluation.float_layers) for evaluation in result.evaluations] == meter.asked
    assert len(set(meter.asked)) == len(meter.asked)
    for evaluation in result.evaluations:
        assert evaluation.float_layers == tuple(
            name for name in RANKING if name in set(evaluation.float_layers)
        )
        is_prefix = evaluation.float_layers == RANKING[: len(evaluation.float_layers)]
        assert evaluation.prefix == (len(evaluation.float_layers) if is_prefix else None)
    assert result.float_layers == RANKING[:4]  # 0.02 (1/16 + 1/32 + ...) = 0.0025


def test_layers_that_the_ranking_overrates_are_given_back() -> None:
    # Only the first and the tenth matter, which no prefix shorter than ten can give.
    meter = additive({RANKING[0]: 0.03, RANKING[9]: 0.03})
    result = fewest_float(RANKING, meter, 0.005)
    assert result.met
    assert result.float_layers == (RANKING[0], RANKING[9])
    assert result.drop == 0


def test_giving_back_stops_at_its_number_of_evaluations() -> None:
    meter = additive({RANKING[0]: 0.03, RANKING[9]: 0.03})
    without = len(fewest_float(RANKING, meter, 0.005, give_back=0).evaluations)
    result = fewest_float(RANKING, meter, 0.005, give_back=3)
    assert len(result.evaluations) == without + 3
    # Without the tenth is the prefix of nine, known to fail; then the 9th, 8th and 7th went back.
    assert result.float_layers == (*RANKING[:6], RANKING[9])


def test_when_not_even_all_layers_suffice_the_best_is_told() -> None:
    meter = Meter(lambda float_layers: 0.05 - 0.001 * len(float_layers))
    result = fewest_float(RANKING, meter, 0.005)
    assert not result.met
    assert result.float_layers == RANKING
    assert result.drop == pytest.approx(0.03)
    # Of equal drops, the one with fewer layers in float.
    flat = fewest_float(RANKING, Meter(lambda float_layers: 0.05), 0.005)
    assert (flat.met, flat.float_layers, flat.drop) == (False, (), 0.05)


def test_an_empty_ranking_measures_the_model_as_it_is() -> None:
    assert fewest_float((), Meter(lambda float_layers: 0.001), 0.005).met
    assert not fewest_float((), Meter(lambda float_layers: 0.01), 0.005).met


def test_a_drop_at_the_limit_is_accepted_and_a_gain_is_no_drop() -> None:
    for drop, limit in ((0.005, 0.005), (-0.01, 0.0)):
        result = fewest_float(RANKING, Meter(lambda float_layers, drop=drop: drop), limit)
        assert (result.met, result.float_layers, result.drop) == (True, (), drop)


@given(
    strategies.integers(0, 2**32 - 1), strategies.sampled_from([0.0, 0.002, 0.01]), strategies.integers(0, 6)
)
def test_noise_never_breaks_what_is_promised(seed: int, noise: float, give_back: int) -> None:
    rng = np.random.default_rng(seed)
    drops = {
        name: float(drop) for name, drop in zip(RANKING, rng.exponential(0.002, len(RANKING)), strict=True)
    }
    known: dict[frozenset[str], float] = {}

    def measure(float_layers: frozenset[str]) -> float:
        exact = sum(drop for name, drop in drops.items() if name not in float_layers)
        return known.setdefault(float_layers, exact + noise * float(rng.standard_normal()))

    meter = Meter(measure)
    result: BudgetResult = fewest_float(RANKING, meter, 0.01, give_back=give_back)
    assert len(meter.asked) == len(set(meter.asked)) <= 1 + 5 + give_back
    assert result.drop == known[frozenset(result.float_layers)]
    assert result.met == (result.drop <= 0.01)
    if result.met:
        meeting = [evaluation for evaluation in result.evaluations if evaluation.drop <= 0.01]
        assert len(result.float_layers) == min(len(evaluation.float_layers) for evaluation in meeting)
    else:
        assert result.drop == min(known.values())


def test_faults_say_what_is_wrong() -> None:
    with pytest.raises(CalibrationError, match="twice"):
        fewest_float(("a", "b", "a"), Meter(lambda float_layers: 0.0), 0.005)
    with pytest.raises(CalibrationError, match="no number: nan"):
        fewest_float(RANKING, Meter(lambda float_layers: 0.0), math.nan)
    with pytest.raises(CalibrationError, match="with no layer in float is no number: nan"):
        fewest_float(RANKING, Meter(lambda float_layers: math.nan), 0.005)

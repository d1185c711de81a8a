"""The fewest layers to leave in float so that accuracy drops by no more than is allowed. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from inferometer.errors import CalibrationError

__all__ = ["BudgetResult", "DropOf", "Evaluation", "fewest_float"]

DropOf = Callable[[frozenset[str]], float]
"""The accuracy lost with these layers in float: a fraction, negative for a gain."""


@dataclass(frozen=True)
class Evaluation:
    """One measured choice.

    Attributes:
        float_layers: What stayed in float, in the order of the ranking.
        prefix: How many layers of the ranking's start these are; None when one of them was given back.
        drop: The accuracy lost, a fraction.
    """

    float_layers: tuple[str, ...]
    prefix: int | None
    drop: float


@dataclass(frozen=True)
class BudgetResult:
    """The outcome of the search.

    Attributes:
        met: Whether ``drop`` is within ``max_drop``.
        max_drop: What was allowed, a fraction.
        float_layers: The choice, in the order of the ranking: of those that meet ``max_drop`` the one with
            the fewest layers in float; when none does, the one with the smallest drop.
        drop: Its accuracy loss, a fraction.
        evaluations: All that was measured, in order. The choice is the best of so many, so its drop looks
            smaller than it is: measure it again on images that no evaluation saw.
    """

    met: bool
    max_drop: float
    float_layers: tuple[str, ...]
    drop: float
    evaluations: tuple[Evaluation, ...]


def fewest_float(
    ranking: Sequence[str], drop_of: DropOf, max_drop: float, *, give_back: int = 8
) -> BudgetResult:
    """Leave the fewest layers in float that keep the drop within ``max_drop``.

    None is tried first; then the ranking's prefixes are bisected. That assumes that a longer prefix never
    drops more. Where noise breaks this, the outcome is still a prefix that was measured to meet ``max_drop``
    beside one layer fewer that was measured not to; only an even shorter one could have met it unseen.
    At last layers are given back one at a time, the least damaging first, as long as ``max_drop`` is met:
    the ranking takes each layer by itself, and what was spared for one may no longer need another.

    Args:
        ranking: Layers, the most damaging first.
        drop_of: Measures one choice, which may be all of ``ranking``. Costly: asked once for each.
        max_drop: The largest drop that is accepted, a fraction (0.005 is half a percentage point).
        give_back: How many evaluations may be spent on giving layers back; 0 for none.

    Returns:
        The choice, whether it meets ``max_drop``, and all evaluations: at most about log2(layers) + 2 +
        ``give_back``.

    Raises:
        CalibrationError: A layer is ranked twice, ``max_drop`` is no number, or a measured drop is none.
    """
    if len(set(ranking)) != len(ranking):
        raise CalibrationError("a layer stands in the ranking twice: rank each once")
    if not math.isfinite(max_drop):
        raise CalibrationError(f"the largest accepted drop is no number: {max_drop}")
    search = _Search(ranking, drop_of, max_drop)
    shortest = search.shortest_prefix()
    if shortest is None:
        # Prefixes grew while they failed, so of equal drops the first has the fewest layers in float.
        chosen = min(search.evaluations, key=lambda item: item.drop)
    else:
        chosen = search.give_back(shortest, give_back)
    return BudgetResult(
        met=shortest is not None,
        max_drop=max_drop,
        float_layers=chosen.float_layers,
        drop=chosen.drop,
        evaluations=tuple(search.evaluations),
    )


class _Search:
    """Measures choices, each once."""

    def __init__(self, ranking: Sequence[str], drop_of: DropOf, max_drop: float) -> None:
        self._ranking = tuple(ranking)
        self._drop_of, self._max_drop = drop_of, max_drop
        self._known: dict[tuple[str, ...], Evaluation] = {}

    @property
    def evaluations(self) -> list[Evaluation]:
        """All so far, in order."""
        return list(self._known.values())

    def shortest_prefix(self) -> Evaluation | None:
        """The shortest prefix that meets the budget, found by bisection; None when not even all do."""
        found = self._prefix(0)
        if self._meets(found):
            return found
        # Prefixes up to `failing` fail; `meeting` is one that meets, or one more than there are.
        failing, meeting, best = 0, len(self._ranking) + 1, None
        while meeting - failing > 1:
            middle = (failing + meeting) // 2
            found = self._prefix(middle)
            if self._meets(found):
                meeting, best = middle, found
            else:
                failing = middle
        return best

    def give_back(self, start: Evaluation, evaluations: int) -> Evaluation:
        """Return single layers to INT8, the least damaging first, while the budget is met."""
        best, limit = start, len(self._known) + evaluations
        for layer in reversed(start.float_layers):
            layers = tuple(name for name in best.float_layers if name != layer)
            if layers not in self._known and len(self._known) >= limit:
                break
            found = self._measure(layers)
            if self._meets(found):
                best = found
        return best

    def _meets(self, found: Evaluation) -> bool:
        return found.drop <= self._max_drop

    def _prefix(self, length: int) -> Evaluation:
        return self._measure(self._ranking[:length])

    def _measure(self, layers: tuple[str, ...]) -> Evaluation:
        if layers not in self._known:
            drop = float(self._drop_of(frozenset(layers)))
            if not math.isfinite(drop):
                raise CalibrationError(f"the drop with {_listed(layers)} in float is no number: {drop}")
            prefix = len(layers) if layers == self._ranking[: len(layers)] else None
            self._known[layers] = Evaluation(layers, prefix, drop)
        return self._known[layers]


def _listed(layers: Iterable[str]) -> str:
    return ", ".join(layers) or "no layer"

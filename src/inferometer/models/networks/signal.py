"""How the values of a tensor are distributed, so that weights can be scaled without running the network.

The seeded networks are scaled analytically: each layer's weights are chosen from the mean and variance of
its input, which this module follows through rectification, max pooling, addition and averaging. Pooling
candidates are taken as independent; they are not quite, which costs a factor well under two, far inside
what the networks promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

__all__ = ["Signal"]

_STEPS = 400  # trapezoid steps of the quadrature; 1e-4 relative is far more than the scaling needs
_REACH = 7.0  # standard deviations; the tail beyond holds under 1e-10


@dataclass(frozen=True)
class Signal:
    """The law of a tensor's values: a Gaussian, or the largest of several Gaussians, cut off below zero.

    Attributes:
        mean: Mean of the Gaussian underneath.
        variance: Variance of the Gaussian underneath.
        rectified: Whether a ReLU has been applied.
        candidates: Over how many values a max pooling took the largest; 1 without pooling.
    """

    mean: float
    variance: float
    rectified: bool = False
    candidates: int = 1

    def relu(self) -> Signal:
        """After a ReLU; a law that is not Gaussian any more is replaced by one of equal mean and variance."""
        mean, variance = (self.mean, self.variance) if self.candidates == 1 else self.moments()
        return Signal(mean, variance, rectified=True)

    def max_pool(self, window: int) -> Signal:
        """After max pooling over ``window`` values (ReLU and maximum commute, so their order is free)."""
        return Signal(self.mean, self.variance, self.rectified, self.candidates * window)

    def plus(self, other: Signal) -> Signal:
        """Of the sum with an independent tensor, taken as Gaussian."""
        (mean_a, variance_a), (mean_b, variance_b) = self.moments(), other.moments()
        return Signal(mean_a + mean_b, variance_a + variance_b)

    def averaged(self, shared: float) -> Signal:
        """Of the mean over positions, when only a fraction ``shared`` of the variance does not average out.

        To first order the rectifier passes that fraction with the square of its mean slope, Phi(mean/std).
        """
        slope = _normal_cdf(self.mean / math.sqrt(self.variance)) if self.rectified else 1.0
        return Signal(self.moments()[0], shared * slope * slope * self.variance)

    def moments(self) -> tuple[float, float]:
        """Mean and variance of the values themselves."""
        if not self.rectified and self.candidates == 1:
            return self.mean, self.variance
        return _moments(self.mean, math.sqrt(self.variance), self.rectified, self.candidates)


@cache
def _moments(mean: float, std: float, rectified: bool, candidates: int) -> tuple[float, float]:
    """Mean and variance of max(0, X) or X, X the largest of independent Gaussians, by quadrature.

    Source: for any law with distribution function F and lower end a,
    E[X] = a + integral of (1 - F) and E[(X - a)^2] = integral of 2 (x - a) (1 - F), x from a.
    """
    low = max(0.0, mean - _REACH * std) if rectified else mean - _REACH * std
    high = max(mean + _REACH * std, low + std)
    step = (high - low) / _STEPS
    first = second = 0.0
    for index in range(_STEPS + 1):
        above = index * step
        tail = 1.0 - _normal_cdf((low + above - mean) / std) ** candidates
        weight = step * (0.5 if index in (0, _STEPS) else 1.0)
        first += weight * tail
        second += weight * 2.0 * above * tail
    return low + first, second - first * first


def _normal_cdf(value: float) -> float:
    return 0.5 * (1.0 + math.erf(value / math.sqrt(2.0)))

"""Which differences matter, by how much they could move a number, and along which axis they belong.

A bound is the most that such a difference is known, or must be feared, to change a figure by: a fraction of
it (0.3: 30 %), infinite where it is another quantity. They are chosen, not measured in the study at hand:
they rank the differences and say what is small; they correct nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from inferometer.analysis.comparison.facts import Fact
from inferometer.analysis.probe import PROBE_LIMITS

__all__ = ["AXES", "Axis", "Context", "Matter", "matter_of"]

Axis = Literal["store", "machine", "device", "engine", "precision"]
AXES: tuple[Axis, ...] = ("store", "machine", "device", "engine", "precision")
"""What may be compared along; ``store`` is one machine at two times, or under two settings."""


@dataclass(frozen=True)
class Context:
    """What decides whether a fact bears on a pair of points.

    Attributes:
        accuracy: The figures are of accuracy.
        cpu: Both ran on a processor.
        mixed: One did, the other on an accelerator.
        images: One of them was fed images.
        int8: One of them is of INT8.
    """

    accuracy: bool
    cpu: bool
    mixed: bool
    images: bool
    int8: bool


Bound = Callable[[Fact, Fact, Context], float]


@dataclass(frozen=True)
class Matter:
    """One kind of difference.

    Attributes:
        bound: How much it could move the number; 0: not at all, and it is not listed.
        axes: Along these it is what is asked about, or comes with it.
        refuses: Off the axis it makes the two incomparable; else the ratio is marked.
        from_: Bounds below this are not worth a mark (a fraction).
    """

    bound: Bound
    axes: frozenset[Axis] = frozenset()
    refuses: bool = False
    from_: float = 0.0


def matter_of(name: str) -> Matter:
    """The kind of difference that a fact of this name makes; ``options.provider`` counts as ``options``."""
    return _MATTERS.get(name) or _MATTERS.get(name.partition(".")[0]) or _OTHER


def _fixed(speed: float, accuracy: float = 0.0) -> Bound:
    return lambda own, base, context: accuracy if context.accuracy else speed


def _quotient(own: Fact, base: Fact, context: Context) -> float:
    """Of numbers the larger over the smaller, less one; of words there is no telling."""
    numbers = [value for one in (own, base) if (value := _number(one)) is not None]
    if context.accuracy:
        return 0.0
    if len(numbers) < 2 or min(numbers) <= 0:
        return math.inf
    return max(numbers) / min(numbers) - 1


def _threads(own: Fact, base: Fact, context: Context) -> float:
    """On an accelerator threads prepare the calls alone."""
    return _quotient(own, base, context) if context.cpu else _fixed(0.05)(own, base, context)


def _mac_share(own: Fact, base: Fact, context: Context) -> float:
    """What the rest costs when one precision is four times as fast as the other, as INT8 is than FP32.

    Source: Amdahl's law; the factor is that of NVIDIA's and Intel's peaks of INT8 over FP32.
    """
    shares = [value for one in (own, base) if (value := _number(one)) is not None]
    if len(shares) < 2 or abs(shares[0] - shares[1]) < 0.005:
        return 0.0
    slow, fast = ((1 - share) + share / 4 for share in (min(shares), max(shares)))
    return slow / fast - 1


def _load(own: Fact, base: Fact, context: Context) -> float:
    """Cores that others kept busy in one case and not in the other; the smallest machine here has two."""
    numbers = [_number(one) or 0.0 for one in (own, base)]
    return 0.0 if context.accuracy else abs(numbers[0] - numbers[1]) / 2


def _probe(name: str) -> Bound:
    """It counts from the limit on beyond which a machine counts as changed."""

    def bound(own: Fact, base: Fact, context: Context) -> float:
        moved = _quotient(own, base, context)
        return moved if moved > PROBE_LIMITS[name] else 0.0

    return bound


def _machine(own: Fact, base: Fact, context: Context) -> float:
    """Of an accelerator the host moves little; of a processor it is everything. Of accuracy: rounding."""
    if context.accuracy:
        return 0.001
    return math.inf if context.cpu or context.mixed else 0.2


def _preprocessing(own: Fact, base: Fact, context: Context) -> float:
    """Other pixels; where nothing is decoded in the timed part they move a rate not at all."""
    return math.inf if context.accuracy else 0.5 if context.images else 0.0


def _vnni(own: Fact, base: Fact, context: Context) -> float:
    """VNNI takes one instruction where INT8 otherwise takes three, and FP32 is as before.

    Source: Intel 64 and IA-32 Architectures Software Developer's Manual, VPDPBUSD: it does the work of
    VPMADDUBSW, VPMADDWD and VPADDD.
    """
    return 2.0 if context.int8 and not context.accuracy else 0.0


def _copies(own: Fact, base: Fact, context: Context) -> float:
    """Transfers between host and device; a processor has none, so that its word is the device's."""
    return 0.0 if context.accuracy else 0.1 if context.mixed else 1.0


_ENGINE: frozenset[Axis] = frozenset({"engine"})
_PRECISION: frozenset[Axis] = frozenset({"precision"})
_PLACE: frozenset[Axis] = frozenset({"machine", "device"})

_MATTERS: Mapping[str, Matter] = {
    # Another quantity.
    "model": Matter(_fixed(math.inf, math.inf), refuses=True),
    "model file": Matter(_fixed(math.inf, math.inf), refuses=True),
    "precision": Matter(_fixed(math.inf, math.inf), _PRECISION, refuses=True),
    "batch": Matter(_fixed(9.0), refuses=True),
    "devices at once": Matter(_quotient, refuses=True),
    "power boundary": Matter(_fixed(math.inf), refuses=True),
    # Where and with what.
    "device": Matter(_fixed(math.inf, 0.001), _PLACE, refuses=True),
    "machine": Matter(_machine, _PLACE),
    "engine": Matter(_fixed(9.0, 0.01), _ENGINE, refuses=True),
    "engine_version": Matter(_fixed(0.3, 0.005), _ENGINE),
    "options": Matter(_fixed(2.0, 0.005), _ENGINE, refuses=True),
    "calls in flight": Matter(_fixed(0.3), _ENGINE | _PLACE),
    "share of the MACs at the precision": Matter(_mac_share, _ENGINE | _PRECISION),
    "INT8 dot product in hardware (VNNI)": Matter(_vnni, _PLACE, refuses=True),
    "threads": Matter(_threads, refuses=True),
    "CPU": Matter(_fixed(math.inf), _PLACE, refuses=True),
    "cores usable": Matter(_threads, _PLACE),
    "CPU clock, Hz": Matter(_quotient, _PLACE, from_=0.03),
    "GPU clock, Hz": Matter(_quotient, _PLACE | _PRECISION | _ENGINE, from_=0.03),
    "power limit, W": Matter(_quotient, _PLACE, from_=0.01),
    "driver": Matter(_fixed(0.1), _PLACE),
    "kernel": Matter(_fixed(0.03), _PLACE),
    "machine probe, bytes/s": Matter(_probe("compute"), _PLACE),
    "memory copying probe, bytes/s": Matter(_probe("memory copying"), _PLACE),
    "load by others, cores": Matter(_load, from_=0.1),
    # How it was measured.
    "copies": Matter(_copies, refuses=True),
    "input": Matter(_fixed(9.0), refuses=True),
    "preprocess": Matter(_preprocessing, refuses=True),
    "isolation": Matter(_fixed(0.05)),
    "measure": Matter(_fixed(0.05)),
    "meter": Matter(_fixed(0.1)),
    "harness version": Matter(_fixed(0.02, 0.001)),
    "record schema": Matter(_fixed(0.0)),
    "decoder": Matter(_fixed(0.3, 0.002)),
    "images scored": Matter(_fixed(0.0, 0.01)),
    # Which ranges INT8 has decides little of its speed.
    "calibration images": Matter(_fixed(0.02, 0.05), _PRECISION | _ENGINE),
    "calibration method": Matter(_fixed(0.02, 0.05), _PRECISION | _ENGINE),
    "calibration table": Matter(_fixed(0.02, 0.02), _PRECISION | _ENGINE),
    # Rounds of a benchmark are years apart, and its software with them.
    "settings": Matter(_fixed(0.5)),
}
_OTHER = Matter(_fixed(0.1, 0.01))


def _number(fact: Fact) -> float | None:
    try:
        return None if fact is None else float(fact)
    except ValueError:
        return None

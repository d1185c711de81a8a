"""How often the 95 % interval of net power covers the truth, on simulated readings of known mean power.

Idle 30 s, load 60 s, idle 30 s, read at 10 Hz with jittered time stamps. Power is 60 W idle and 180 W under
load plus an AR(1) process of a known correlation time; it is read as power, and as an energy counter whose
value steps every 0.1 s. The truth is 120 W. ``flagged`` is the share of runs in which some window is said
to be too short for its correlation time.

    python benchmarks/power/coverage.py --runs 2000
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from inferometer.energy import Trace, Window, WindowPower, measured, net_power

STEP_S = 0.1
PHASES_S = (31.0, 62.0, 31.0)  # each window lies half a second within its phase
MARGIN_S = 0.5
LEVELS_W = (60.0, 180.0, 60.0)
Kind = Literal["power", "energy"]


@dataclass(frozen=True)
class Outcome:
    """Shares of the runs, and the median half width of the interval, W."""

    runs: int
    covered: float
    resolved: float
    flagged: float
    half_w: float
    correlation_s: float


def ar1(rng: np.random.Generator, runs: int, count: int, tau_s: float) -> npt.NDArray[np.float64]:
    """[runs, count] of a stationary AR(1) process of unit variance, one value each ``STEP_S``."""
    phi = math.exp(-STEP_S / tau_s)
    values = rng.standard_normal((runs, count))
    values[:, 1:] *= math.sqrt(1 - phi**2)
    for place in range(1, count):
        values[:, place] += phi * values[:, place - 1]
    return values


def powers_w(
    rng: np.random.Generator, runs: int, tau_s: float, sigmas_w: Sequence[float], white_w: float, joined: bool
) -> npt.NDArray[np.float64]:
    """[runs, n] of power; ``joined``: one process throughout, else each phase has one of its own."""
    counts = [round(phase / STEP_S) for phase in PHASES_S]
    if joined:
        noise = np.split(ar1(rng, runs, sum(counts), tau_s), np.cumsum(counts)[:-1], axis=1)
    else:
        noise = [ar1(rng, runs, count, tau_s) for count in counts]
    parts = [level + sigma * each for level, sigma, each in zip(LEVELS_W, sigmas_w, noise, strict=True)]
    whole = np.concatenate(parts, axis=1)
    return whole + white_w * rng.standard_normal(whole.shape) if white_w else whole


def trace_of(rng: np.random.Generator, power_w: npt.NDArray[np.float64], kind: Kind) -> Trace:
    """One run's readings, from second 1 of the clock on.

    A value holds from each multiple of ``STEP_S`` to the next; polls come at the same rate, at some phase,
    with a jitter of 2 ms; a call takes 3 ms.
    """
    at_s = np.arange(power_w.size) * STEP_S + rng.uniform(0, STEP_S) + rng.normal(0, 0.002, power_w.size)
    at_s = np.maximum.accumulate(np.maximum(at_s, 0.0))
    held = np.minimum((at_s / STEP_S).astype(np.int64), power_w.size - 1)
    values = power_w if kind == "power" else np.concatenate([[0.0], np.cumsum(power_w[:-1] * STEP_S)])
    begin_ns = 1_000_000_000 + np.round((at_s - 0.0015) * 1e9).astype(np.int64)
    return Trace(kind, begin_ns, begin_ns + 3_000_000, values[held], STEP_S, STEP_S)


def windows() -> tuple[Window, ...]:
    edges = np.cumsum((0.0, *PHASES_S)) + 1.0
    return tuple(
        (round((begin + MARGIN_S) * 1e9), round((end - MARGIN_S) * 1e9)) for begin, end in pairwise(edges)
    )


def simulate(
    kind: Kind,
    tau_s: float,
    runs: int,
    *,
    seed: int = 0,
    sigmas_w: Sequence[float] = (3.0, 6.0, 3.0),
    white_w: float = 0.0,
    joined: bool = False,
) -> Outcome:
    """Measure ``runs`` simulated runs; raises ValueError where a window comes out unmeasured."""
    rng = np.random.default_rng(seed)
    truth_w = LEVELS_W[1] - (LEVELS_W[0] + LEVELS_W[2]) / 2
    covered, resolved, flagged, halves, times = 0, 0, 0, [], []
    for power_w in powers_w(rng, runs, tau_s, sigmas_w, white_w, joined):
        before, load, after = _all(measured(trace_of(rng, power_w, kind), windows()))
        net = net_power(load, before, after)
        covered += net.ci95_w[0] <= truth_w <= net.ci95_w[1]
        resolved += net.resolved
        flagged += any("too long" in flag for each in (before, load, after) for flag in each.flags)
        halves.append((net.ci95_w[1] - net.ci95_w[0]) / 2)
        times.append(load.correlation_s or 0.0)
    return Outcome(
        runs,
        covered / runs,
        resolved / runs,
        flagged / runs,
        float(np.median(halves)),
        float(np.median(times)),
    )


def _all(found: Sequence[WindowPower | None]) -> list[WindowPower]:
    if any(each is None for each in found):
        raise ValueError("a window is unmeasured")
    return [each for each in found if each is not None]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000, help="for each kind and time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tau", type=float, nargs="+", default=[0.3, 1.0, 3.0, 10.0], help="correlation, s")
    parser.add_argument("--sigma", type=float, nargs=3, default=[3.0, 6.0, 3.0], help="W, of each phase")
    parser.add_argument("--white", type=float, default=0.0, help="uncorrelated noise on top, W")
    parser.add_argument("--joined", action="store_true", help="one process through all phases")
    options = parser.parse_args()
    started = time.monotonic()
    print(f"{'kind':8}{'tau s':>7}{'covered':>10}{'flagged':>9}{'half W':>8}{'median tau s':>14}")
    for kind in ("power", "energy"):
        for tau_s in options.tau:
            found = simulate(
                kind,
                tau_s,
                options.runs,
                seed=options.seed,
                sigmas_w=options.sigma,
                white_w=options.white,
                joined=options.joined,
            )
            print(
                f"{kind:8}{tau_s:7g}{found.covered:10.2%}{found.flagged:9.1%}{found.half_w:8.2f}"
                f"{found.correlation_s:14.2f}",
                flush=True,
            )
    print(f"{options.runs} runs each, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

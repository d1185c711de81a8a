"""The frozen rows of scaling: what several devices do together, held against what each does alone.

Rates are in images/s, power in W, clocks in Hz; shares, efficiencies and points are fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inferometer.analysis.power import Span
from inferometer.analysis.rows import MachineChange
from inferometer.analysis.setup import Setup

__all__ = ["Cause", "CauseName", "Circumstances", "RankRow", "ScalingPower", "ScalingRow", "ScalingVerdict"]

ScalingVerdict = Literal[
    "less than linear",
    "more than linear",
    "no difference from linear seen",
    "one repeat: no verdict",
    "inconclusive: machine changed",
    "not compared",
]

CauseName = Literal[
    "uneven ranks",
    "shared processors",
    "host preprocessing",
    "device clocks",
    "CPU clock",
    "CPU quota",
    "load by others",
    "what remains",
    "skew",
]


@dataclass(frozen=True)
class Cause:
    """Where a part of what is missing to linear went.

    Attributes:
        name: Which cause.
        points: The part of linear that it accounts for by arithmetic; None: it is seen, its part unknown.
        bound: Whether ``points`` are just that, or a bound of it.
        evidence: What the records show, in words.
    """

    name: CauseName
    points: float | None
    bound: Literal["exactly", "at most", "at least"]
    evidence: str


@dataclass(frozen=True)
class RankRow:
    """One rank of the trials of several: means over their repeats.

    Attributes:
        rank: From 0.
        host: Of the last repeat.
        device: By the engine's name.
        uuid: Of an accelerator.
        cores: Processors that it was pinned to, as Linux lists them.
        images_per_s: Together with the others.
        alone: The same device's alone.
        kept: ``images_per_s`` over ``alone``.
        skew_s: Largest delay of its first call behind the first rank's.
        clock_u_s: Largest error of its host's clock against the first rank's host.
        load_s: Longest time to load the model.
        load_w: Mean power of its accelerator under load.
        clock_hz: Lowest and highest clock of its accelerator.
    """

    rank: int
    host: str
    device: str
    uuid: str | None
    cores: str | None
    images_per_s: float | None
    alone: float | None
    kept: float | None
    skew_s: float | None
    clock_u_s: float
    load_s: float | None
    load_w: float | None
    clock_hz: Span | None


@dataclass(frozen=True)
class Circumstances:
    """What else was the case during some trials; what no record tells is None.

    Attributes:
        capped: Mean share of the load in which a power limit held clocks down.
        slowed: Mean share in which heat or hardware did, of the condition that held longest.
        clock_hz: Lowest and highest clock of the accelerators under load.
        cpu_hz: Mean clock of the processors right after the trials.
        quota_share: Time in which the CPU quota held the processes back over the trials' time.
        busy_cores: Cores that other processes kept busy, mean.
        steal_cores: Cores that the hypervisor gave to other machines, mean.
        usable_cores: Of the first machine.
        wait_share: Share of the slots' time spent waiting for decoded images, mean.
    """

    capped: float | None
    slowed: float | None
    clock_hz: Span | None
    cpu_hz: float | None
    quota_share: float | None
    busy_cores: float | None
    steal_cores: float | None
    usable_cores: int | None
    wait_share: float | None


@dataclass(frozen=True)
class ScalingPower:
    """Images/s per net watt of several devices together and of the same alone, one after another.

    Attributes:
        meter: Its name.
        boundary: What the figures cover.
        first: Whether findings speak of this boundary.
        together: Images/s/W.
        alone: Sum of the devices' rates over the sum of their net watts.
        ratio: The one over the other.
        interval: Of ``ratio``, from both sides' own intervals; the devices' errors are taken to go together.
        repeats: Least of all sides.
        net_w: Of the devices together.
    """

    meter: str
    boundary: str
    first: bool
    together: float
    alone: float
    ratio: float
    interval: Span | None
    repeats: int
    net_w: float


@dataclass(frozen=True)
class ScalingRow:
    """Several ranks at once, against the sum of the same devices alone.

    Attributes:
        setup: That of the trials of several.
        repeats: Images/s of all ranks, of each repeat.
        rate: Their mean.
        alone: Mean images/s of the devices alone, in the order of the ranks; empty unless all are known.
        alone_sum: Their sum.
        why_no_sum: Why there is none.
        alone_repeats: Least repeats of a device alone.
        efficiency: ``rate`` over ``alone_sum``; 1 is linear.
        interval: Its 95 % interval between repeats; None with one repeat on a side.
        p: Two-sided, of an efficiency of 1, corrected by Holm for the number of rows with one.
        verdict: What may be said of it.
        machine_change: How far the machine's probe differed between the two sides.
        slowest: The rank with the lowest rate, and its share below the ranks' mean; None without rates.
        skew_s: Largest of the ranks.
        timed_s: Median seconds in which all ranks ran.
        ranks: Each by itself.
        together: What was the case in these trials.
        apart: What was in those of the devices alone.
        power: One for each boundary in which all sides have a ratio.
        causes: Where what is missing to linear went, largest first; empty unless less than linear.
        mac_share: Least share of the MACs that ran at the precision asked for.
        record_ids: The trials of several.
        alone_ids: Those of the devices alone.
    """

    setup: Setup
    repeats: tuple[float, ...]
    rate: float
    alone: tuple[float, ...]
    alone_sum: float | None
    why_no_sum: str | None
    alone_repeats: int
    efficiency: float | None
    interval: Span | None
    p: float | None
    verdict: ScalingVerdict
    machine_change: MachineChange | None
    slowest: tuple[int, float] | None
    skew_s: float | None
    timed_s: float
    ranks: tuple[RankRow, ...]
    together: Circumstances
    apart: Circumstances | None
    power: tuple[ScalingPower, ...]
    causes: tuple[Cause, ...]
    mac_share: float | None
    record_ids: tuple[str, ...]
    alone_ids: tuple[str, ...]

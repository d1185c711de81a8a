"""The frozen rows of an explanation: figures alone, from which words, tables and charts are made.

Seconds throughout; a side's and a part's are those of one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from inferometer.analysis.explain_layers import Layer, PairedLayers
from inferometer.analysis.rows import Setup, SpeedUp
from inferometer.records import Precision

__all__ = ["LOSES", "PARTS", "AtBatch", "Bound", "Explanation", "Part", "PartName", "Side", "Single"]

LOSES = 1.1
"""A layer counts as slower from this ratio. Source: chosen; a profile is the median of up to three calls."""

PartName = Literal["at_precision", "otherwise", "unmatched", "quantize", "reorder", "no_macs", "unknown"]
PARTS: tuple[PartName, ...] = (
    "at_precision", "otherwise", "unmatched", "quantize", "reorder", "no_macs", "unknown",
)  # fmt: skip
"""In the order in which tables show them."""


@dataclass(frozen=True)
class Side:
    """One precision of a comparison.

    Attributes:
        setup: Which one.
        rate: Images/s: geometric mean of the repeats.
        ran: Each precision that ran with its share of the MACs; None when not known.
        mac_share: The share at the precision asked for.
        record_id: The trial that the rest is of: the one with the profile, else the first repeat.
        in_flight: Requests under way at once in it.
        call_s: What one call took: batch times requests in flight over ``rate``, that of all repeats.
        profile_s: Sum of the profile's seconds, one call alone; None without a profile.
        layers: The profile; empty without one.
        roles_told: Whether the profile says which layers reorder or quantize.
        session: What the engine settled on; None when it does not tell.
        why_no_profile: Why there is none.
    """

    setup: Setup
    rate: float
    ran: Mapping[str, float] | None
    mac_share: float | None
    record_id: str
    in_flight: int
    call_s: float
    profile_s: float | None
    layers: tuple[Layer, ...]
    roles_told: bool
    session: Mapping[str, Any] | None
    why_no_profile: str | None

    @property
    def covered(self) -> float | None:
        """The profile's sum over the time of a call."""
        return None if self.profile_s is None else self.profile_s / self.call_s


@dataclass(frozen=True)
class Part:
    """Seconds of one call that belong together, on either side; each layer is in one part.

    ``at_precision`` are layers that multiply and ran at the precision asked for, ``otherwise`` those that
    ran at another, each with its counterpart; ``unmatched`` layers multiply and have none; ``no_macs``
    compute without multiplying; of ``unknown`` ones it is not known whether they multiply.
    """

    name: PartName
    base_s: float
    own_s: float
    difference_s: float
    base_layers: tuple[Layer, ...]
    own_layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Bound:
    """The most that could be gained (Amdahl): ``ratio`` is the base's profile over ``rest_s``.

    ``rest_s`` are the seconds of the layers that are known not to multiply at the precision asked for.
    """

    rest_s: float
    ratio: float


@dataclass(frozen=True)
class AtBatch:
    """How the two compare at one batch."""

    batch: int
    ratio: float
    verdict: str


@dataclass(frozen=True)
class Explanation:
    """One precision against the float precision that it must beat.

    Attributes:
        name: The model's short name.
        gain: Against the baseline at the batch that is explained.
        others: Against the other float precisions there.
        base: The baseline: the fastest float precision at this batch for INT8, else FP32.
        own: The precision that is explained.
        parts: Where the seconds of a call go; empty without both profiles.
        pairs: Layers that are the same in both profiles.
        slower: Those that take at least `LOSES` times as long, by the seconds lost.
        bound: The most that could be gained; None without profiles, or where nothing is left to bound it.
        batches: The ratio at every batch at which both ran.
        environment: Of the trial, as its record has it.
        weight_bits: Of INT8 weights; None when not known or not INT8.
        calibration_source: Where INT8 ranges came from.
        machine: Which one, in words; None where all records are of one.
    """

    name: str
    gain: SpeedUp
    others: tuple[SpeedUp, ...]
    base: Side
    own: Side
    parts: tuple[Part, ...]
    pairs: tuple[PairedLayers, ...]
    slower: tuple[PairedLayers, ...]
    bound: Bound | None
    batches: tuple[AtBatch, ...]
    environment: Mapping[str, Any] | None
    weight_bits: int | None
    calibration_source: str | None
    machine: str | None = None

    @property
    def setup(self) -> Setup:
        """That of the precision that is explained."""
        return self.own.setup


@dataclass(frozen=True)
class Single:
    """A setup with nothing to compare, or a precision of it that no explanation holds.

    Attributes:
        name: The model's short name.
        setup: One of its rows.
        precisions: Those that gave a rate there.
        batches: At which batches each did, in rising order.
        left_out: The precision that no explanation holds, where others of the setup are explained.
        machine: As in `Explanation`.
    """

    name: str
    setup: Setup
    precisions: tuple[Precision, ...]
    batches: Mapping[Precision, tuple[int, ...]]
    left_out: Precision | None = None
    machine: str | None = None

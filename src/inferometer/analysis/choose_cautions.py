"""What to know before relying on a choice: of the trials behind it, and of the number of devices (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from inferometer.analysis.cautions import DISTURBING_SHARE, FEW_CALLS
from inferometer.analysis.choose_rows import Crew, Need, Scale
from inferometer.analysis.circumstances import circumstances
from inferometer.analysis.marks import is_marked, share_text
from inferometer.analysis.power_words import HELD_SHARE
from inferometer.analysis.rows import ThroughputRow
from inferometer.analysis.setup import Setup
from inferometer.analysis.speed import timed_calls
from inferometer.analysis.wording import count, milliseconds, percent, plural, significant
from inferometer.records import Record

__all__ = ["crew_cautions", "plan_cautions"]


def plan_cautions(
    crews: Sequence[Crew], scale: Scale, crew: Crew, devices: int | None, setup: Setup, need: Need
) -> tuple[str, ...]:
    """Of the number of devices, and of what the need itself leaves out."""
    made = []
    if scale == "between":
        made.append(
            f"{plural(devices or 0, 'device')} were not measured together: each is taken to give what one of"
            f" {crew.devices} does"
        )
    if scale == "linear" and devices is not None:
        gave = f" ({percent(crew.efficiency)} of linear)" if crew.efficiency is not None else ""
        known = f"beyond the {crew.devices} measured{gave}" if crew.devices > 1 else "beyond one"
        made.append(f"{count(devices)} devices: linear scaling is assumed {known}")
    if crews[0].devices > 1 and devices is not None and devices < crews[0].devices:
        made.append("one device alone was not measured")
    batch = setup.batch or 1
    if need.p99_s is not None and need.images_per_s and batch > 1 and devices:
        wait = batch * devices / need.images_per_s
        made.append(
            f"a batch of {count(batch)} takes {milliseconds(wait)} ms to come together at this rate, before"
            " its call begins: that is not in p99"
        )
    if crew.latency is not None and not crew.latency.under_load:
        made.append("p99 is of one request at a time: no time stamps of calls under load were found")
    if need.watts is not None or need.j_per_image is not None:
        gains = [one.gain_error for one in crew.watts if one.gain_error]
        if gains:
            made.append(f"the meter's own scale, about {percent(max(gains), 0)}, is in no interval of watts")
    return tuple(made)


def crew_cautions(row: ThroughputRow, ran: Sequence[Record]) -> tuple[str, ...]:
    """Of the trials that the figures rest on."""
    made = []
    if row.setup.engine == "null":
        made.append("the engine null computes nothing: it shows what the harness costs")
    if row.setup.device != "cpu" and any(record.trial.copies == "excluded" for record in ran):
        made.append("copies to and from the device are not in it")
    if any(record.trial.input == "synthetic" for record in ran):
        made.append("synthetic input: decoding pictures is not in it")
    if len(row.repeats) < 2:
        made.append("one repeat: how far others would differ is not known")
    if is_marked(row.mac_share):
        made.append(
            f"only {share_text(row.mac_share or 0.0)} of the multiply-accumulates ran in"
            f" {row.setup.precision.upper()}"
        )
    if any(record.calibration and record.calibration.source == "synthetic" for record in ran):
        made.append("INT8 was calibrated on synthetic input: of its accuracy this tells nothing")
    made += _disturbed(ran)
    return tuple(made)


def _disturbed(ran: Sequence[Record]) -> list[str]:
    found = circumstances(ran)
    made = []
    if (found.capped or 0.0) >= HELD_SHARE:
        made.append(
            f"the power limit held clocks down for {percent(found.capped or 0.0)} of the load: under"
            " another limit the rate is another"
        )
    if (found.slowed or 0.0) >= HELD_SHARE:
        made.append(f"heat or hardware held clocks down for {percent(found.slowed or 0.0)} of the load")
    if found.busy_cores is not None and found.busy_cores > DISTURBING_SHARE * (found.usable_cores or 1):
        made.append(f"other processes kept {significant(found.busy_cores)} cores busy: rates may be too low")
    if any((timed_calls(record) or 0) < FEW_CALLS * record.trial.ranks for record in ran):
        made.append("fewer than ten calls were timed: measure longer")
    if any(record.throughput and not record.throughput.warmup_steady for record in ran):
        made.append("the rate was not steady yet when the warm-up ended")
    return made

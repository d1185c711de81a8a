"""``inferometer meters [list | watch METER]``: sources of power readings, and their readings live."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from inferometer.cli.console import live_table, note, print_block, print_json
from inferometer.cli.options import JsonOption, options_of
from inferometer.clock_events import named
from inferometer.config import duration_s
from inferometer.contracts import Quantity
from inferometer.errors import MeterError
from inferometer.meters.readings import Readings
from inferometer.meters.sampler import MeterJob
from inferometer.report.tables import Cell, Column, Table
from inferometer.study.meters import MeterFacts, meter_facts
from inferometer.study.sampling import Sampler

__all__ = ["app"]

_LOOK_S = 0.5
_OVER_NS = 1_000_000_000  # what "now" means for a counter: the last second
MeterOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="An option of the meter, such as url=https://bmc."),
]

app = typer.Typer(help="Sources of power and energy readings.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _top(context: typer.Context, as_json: JsonOption = False) -> int | None:
    """Without a command: the list."""
    return _listed(None, None, as_json) if context.invoked_subcommand is None else None


@app.command("list")
def list_meters(
    meter: Annotated[str | None, typer.Argument(help="One meter alone.")] = None,
    option: MeterOptions = None,
    as_json: JsonOption = False,
) -> int:
    """Each meter: available here or not, why, and what to do about it."""
    return _listed(meter, option, as_json)


@app.command("watch")
def watch(
    meter: Annotated[str, typer.Argument(help="The meter, such as nvml.")],
    option: MeterOptions = None,
    seconds: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End after 30s, 5m; until Ctrl-C if left out.")
    ] = None,
    period: Annotated[
        str | None, typer.Option("--period", metavar="TIME", help="Between readings, if not the meter's own.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Show readings live, as a study would take them.

    --json prints the readings of the whole time in one document at its end.
    """
    end = time.monotonic() + (duration_s(seconds) if seconds else math.inf)
    options = options_of(option)
    job = MeterJob(meter=meter, options=options, period_s=duration_s(period) if period else None)
    meter_facts(meter, options)  # a name or an option that is wrong is told before anything starts
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inferometer-")))
        sampler = stack.enter_context(Sampler([job], folder))
        live = None if as_json else stack.enter_context(Live(refresh_per_second=4))
        try:
            while time.monotonic() < end:
                time.sleep(min(_LOOK_S, max(0.0, end - time.monotonic())))
                sampler.readings.refresh()
                if not sampler.running:
                    raise MeterError(f"{meter}: the sampler ended by itself")
                if live is not None:
                    live.update(live_table(_table(meter, sampler.readings)))
        except KeyboardInterrupt:
            note("ended")
        for text, count in sampler.readings.faults(meter).items():
            note(f"{count} readings failed: {text}")
        if as_json:
            print_json(_document(sampler.readings))
    return 0


def _listed(meter: str | None, option: list[str] | None, as_json: bool) -> int:
    found = meter_facts(meter, options_of(option))
    if as_json:
        print_json({"meters": [one.document() for one in found]})
        return 0
    for one in found:
        print_block(one.name + ("" if one.available else " (not available)"), list(_rows(one)))
    return 0


def _rows(meter: MeterFacts) -> Iterator[tuple[str, str]]:
    if meter.reason is not None:
        yield "because", meter.reason
    for one in meter.subjects:
        if one.reason is None:
            yield "reads", f"{one.subject}: {', '.join(one.reads)}" if one.reads else one.subject
        else:
            yield "because", f"{one.subject}: {one.reason}"
        if one.remedy is not None:
            yield "do", one.remedy


def _table(meter: str, readings: Readings) -> Table:
    columns = (
        Column("Part"), Column("Reading"), Column("Now", None, "right"), Column("Lowest", None, "right"),
        Column("Highest", None, "right"), Column("Readings", None, "right"),
    )  # fmt: skip
    rows = tuple(_row(readings, place) for place in range(len(readings.head.channels)))
    return Table("meter", f"{meter}, live", columns, rows)


def _row(readings: Readings, place: int) -> tuple[Cell, ...]:
    channel = readings.head.channels[place].channel
    values = _shown(readings, place)
    good = [value for value in values if math.isfinite(value)]
    shown = [good[-1], min(good), max(good)] if good else []
    if channel.quantity == "clock_events":
        shown = shown[:1]  # bits have no order
    texts = [_text(channel.quantity, value) for value in shown]
    what = channel.quantity.replace("_", " ")
    if channel.quantity in ("power", "energy"):
        what += f", {channel.semantics}"
    cells = (channel.part, what, *(texts + ["\N{EN DASH}"] * 3)[:3], f"{len(values):,}")
    return tuple(Cell(text, text) for text in cells)


def _text(quantity: Quantity, value: float) -> str:
    if quantity in ("power", "energy", "power_limit"):
        return f"{value:,.1f} W"
    if quantity == "temperature":
        return f"{value:.0f} \N{DEGREE SIGN}C"
    if quantity == "clock":
        return f"{value / 1e6:,.0f} MHz"
    if quantity == "clock_events":
        return ", ".join(named(int(value))) or "none"
    return f"P{value:.0f}" if quantity == "performance_state" else f"{value:.0f}"


def _shown(readings: Readings, place: int) -> list[float]:
    """A channel's values; a counter's as watts over about a second."""
    found = readings.values(place)
    if readings.head.channels[place].channel.quantity != "energy":
        return [float(value) for value in found["value"]]
    watts, first = [], 0
    for last in range(len(found)):
        if found["end_ns"][last] - found["end_ns"][first] >= _OVER_NS:
            seconds = (found["end_ns"][last] - found["end_ns"][first]) * 1e-9
            watts.append(float((found["value"][last] - found["value"][first]) / seconds))
            first = last
    return watts


def _document(readings: Readings) -> dict[str, Any]:
    return {
        "clock_ns": {"monotonic": readings.head.clock[0], "wall": readings.head.clock[1]},
        "facts": {name: dict(facts) for name, facts in readings.head.facts.items()},
        "channels": [
            {
                **one.document(),
                "readings": [
                    {
                        "begin_ns": int(row["begin_ns"]),
                        "end_ns": int(row["end_ns"]),
                        "value": float(row["value"]) if math.isfinite(row["value"]) else None,
                    }
                    for row in readings.values(place)
                ],
            }
            for place, one in enumerate(readings.head.channels)
        ],
    }

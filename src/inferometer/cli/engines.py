"""``inferometer engines [NAME]``: every declared engine, and what it runs on this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from inferometer.cli.console import print_block, print_json
from inferometer.cli.options import JsonOption
from inferometer.study.engines import DeviceFacts, EngineFacts, VariantFacts, engine_facts

__all__ = ["NAME", "command"]

NAME = "engines"

Row = tuple[str, str]


def command(
    name: Annotated[str | None, typer.Argument(help="One engine, told in full.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Show the engines: which are there, on which devices, at which precisions.

    What an engine cannot do here comes with the reason.
    """
    found = engine_facts(name)
    if as_json:
        print_json({"engines": [one.document() for one in found]})
        return 0
    for one in found:
        print_block(_title(one), list(_rows(one, full=name is not None)))
    return 0


def _title(engine: EngineFacts) -> str:
    version = f" {engine.version}" if engine.version not in (None, "none") else ""
    note = "" if engine.available else " (not available)"
    return f"{engine.name}{version}{note}"


def _rows(engine: EngineFacts, *, full: bool) -> Iterator[Row]:
    if engine.computes is False:
        yield "for", "measuring the harness: it computes nothing"
    if engine.reason is not None:
        yield "because", engine.reason
    for variant in engine.variants:
        yield from _variant(engine, variant, full)


def _variant(engine: EngineFacts, variant: VariantFacts, full: bool) -> Iterator[Row]:
    """The devices and precisions of one way to use the engine; those of the first need no heading."""
    options = ", ".join(f"{key}: {value}" for key, value in variant.options.items())
    version = f" ({variant.version})" if variant.version not in (None, engine.version) else ""
    if options:
        state = "" if variant.reason is None else f": {variant.reason}"
        yield "options", f"{{{options}}}{version}{state}"
    elif variant.reason is not None:
        yield "because", variant.reason
    for device in variant.devices:
        yield from _device(device, full)


def _device(device: DeviceFacts, full: bool) -> Iterator[Row]:
    uuid = f", {device.uuid}" if full and device.uuid else ""
    yield device.name, device.description + uuid
    if device.precisions is None:
        yield "", device.reason or "its precisions are not told"
        return
    if full:
        yield from ((f"  {name}", why or "yes") for name, why in device.precisions.items())
        return
    runs = [name for name, why in device.precisions.items() if why is None]
    yield "", f"runs {', '.join(runs) or 'nothing'}"
    yield from (("", f"not {', '.join(names)}: {why}") for why, names in _grouped(device.precisions).items())


def _grouped(precisions: Mapping[str, str | None]) -> dict[str, list[str]]:
    """By reason, the precisions that do not run for it."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, why in precisions.items():
        if why is not None:
            found[why].append(name)
    return dict(found)

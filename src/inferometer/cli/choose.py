"""``inferometer choose DIR [DIR ...]``: which measured setup meets a need, and how many devices it wants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from inferometer.analysis.choose import choose, sentence
from inferometer.analysis.choose_rows import Choice, Need, Source
from inferometer.cli.console import note, print_json, print_line, print_sentences, print_tables
from inferometer.cli.options import JsonOption, fraction_of, refuse_overwriting
from inferometer.cli.outcome import summary_of
from inferometer.errors import ConfigError
from inferometer.measure import latency_of
from inferometer.records import Record
from inferometer.report.choose import choice_png, choice_table
from inferometer.store import read_sidecar, read_store, write_atomically
from inferometer.trials.speed import read_stamps

NAME = "choose"
_EXIT = {"meets": 0, "fails": 1, "not known": 10}
_MEASURE = {
    "p99": "measure longer, and keep sidecars/: it is read from the stamps of 500 calls or more a repeat",
    "watts": "power: {meters: [nvml]} in the study (docs/power.md)",
    "joules": "power: {meters: [nvml]} in the study (docs/power.md), two repeats or more",
    "top-1": "accuracy: {data: DIR} in the study",
    "drop": "accuracy: {data: DIR} in the study, with fp32 among its precisions",
}


def command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of studies.")],
    images_per_s: Annotated[
        float | None, typer.Option("--images-per-s", min=0, help="At least, of all devices together.")
    ] = None,
    p99: Annotated[
        str | None, typer.Option("--p99", help="Of a call under load, at most: 10ms, 0.5s.")
    ] = None,
    watts: Annotated[
        float | None, typer.Option("--watts", min=0, help="Of all devices under load, at most.")
    ] = None,
    j_per_image: Annotated[
        float | None, typer.Option("--j-per-image", min=0, help="Net of idle, at most.")
    ] = None,
    max_drop: Annotated[
        str | None, typer.Option("--max-drop", help="Of top-1 against FP32, at most: 0.5%.")
    ] = None,
    min_top1: Annotated[str | None, typer.Option("--min-top1", help="At least: 75%.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Where the studies hold several.")] = None,
    price: Annotated[
        list[str] | None, typer.Option("--price", metavar="DIR=NUMBER", help="Of one device. Repeatable.")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write the chart into this file.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Choose a machine, precision, batch and number of devices for a need.

    Exit codes: 0 one is recommended, 1 none meets the need, 10 it cannot be told.
    """
    refuse_overwriting({"--png": png}, [folder / "records.jsonl" for folder in folders])
    need = Need(
        images_per_s=images_per_s,
        p99_s=None if p99 is None else _seconds(p99),
        watts=watts,
        j_per_image=j_per_image,
        max_drop=None if max_drop is None else fraction_of(max_drop, "--max-drop"),
        min_top1=None if min_top1 is None else fraction_of(min_top1, "--min-top1"),
        model=model,
    )
    places = [folder.resolve() for folder in folders]
    if (twice := next((one for one in folders if places.count(one.resolve()) > 1), None)) is not None:
        raise ConfigError(f"{twice} is named twice")
    sources = [_source(folder, folders) for folder in folders]
    latencies = [_Latency(folder) for folder in folders]
    choice = choose(sources, need, latencies, _prices(price or (), sources))
    if as_json:
        print_json(asdict(choice))
    else:
        print_tables([choice_table(choice)])
        best = choice.best or choice.nearest
        print_sentences("Before you rely on it", best.cautions if best else ())
        print_sentences("To know more", _wanting(choice))
        print_line(sentence(choice))
    picture = choice_png(choice) if png is not None else None
    if png is not None and picture is not None:
        write_atomically(png, picture)
        note(f"wrote {png}")
    elif png is not None:
        note("nothing is drawn: neither latency, nor power, nor accuracy is known")
    return _EXIT[choice.verdict]


class _Latency:
    """The 99th percentile of each trial's calls under load, from the time stamps in a store's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records = {record.id: record for record in read_store(folder).records}

    def __call__(self, name: str) -> float | None:
        record = self._records[name]
        found = [self._of(record, one.path) for one in record.sidecars if one.path.endswith(".stamps.npz")]
        return None if not found or None in found else max(one for one in found if one is not None)

    def _of(self, record: Record, path: str) -> float | None:
        """Of one rank."""
        assert record.trial.batch is not None
        in_flight = record.throughput.in_flight if record.throughput else 1
        sidecar = next(one for one in record.sidecars if one.path == path)
        stamps = read_stamps(read_sidecar(self._folder, sidecar), record.trial.batch, in_flight, True)
        return latency_of(stamps).p99


def _source(folder: Path, folders: Sequence[Path]) -> Source:
    """A store under its folder's name, or its path where two share that."""
    names = [one.resolve().name for one in folders]
    name = folder.resolve().name
    settings = {record.id: (record.trial.copies, record.trial.input) for record in read_store(folder).records}
    return Source(name if names.count(name) == 1 else str(folder), summary_of(folder), settings)


def _prices(given: Sequence[str], sources: Sequence[Source]) -> dict[str, float]:
    known, found = [one.name for one in sources], {}
    for text in given:
        name, _, number = text.rpartition("=")
        if name not in known or not re.fullmatch(r"\d+(\.\d+)?", number):
            raise ConfigError(
                f"--price: {text!r} is no price: write DIR=NUMBER, with one of {', '.join(known)}"
            )
        if name in found:
            raise ConfigError(f"--price: {name} has two prices")
        found[name] = float(number)
    return found


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip())
    if match is None:
        raise ConfigError(f"--p99: {text!r} is no time: write for example 10ms or 0.5s")
    return float(match[1]) * {"ms": 1e-3, "s": 1.0}[match[2]]


def _wanting(choice: Choice) -> list[str]:
    """What would have to be measured to judge those of which it is not known."""
    unknown = {each.what for one in choice.candidates for each in one.judged if each.verdict == "not known"}
    return [f"{what}: {_MEASURE[what]}" for what in _MEASURE if what in unknown]

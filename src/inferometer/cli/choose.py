"""``inferometer choose DIR [DIR ...]``: which measured setup meets a need, and how many devices it wants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from inferometer.analysis.choose import choose
from inferometer.analysis.choose_rows import Choice, Need, Source
from inferometer.analysis.choose_words import advice, sentence
from inferometer.cli.console import note, print_json, print_line, print_sentences, print_tables
from inferometer.cli.options import (
    LARGEST,
    JsonOption,
    fraction_of,
    prices_of,
    refuse_overwriting,
    refuse_twins,
)
from inferometer.cli.outcome import read_and_tell, summary_of
from inferometer.errors import ConfigError, nearest
from inferometer.measure import latency_of
from inferometer.records import Latency, Record, Sidecar
from inferometer.report.characters import page_bytes
from inferometer.report.choose_charts import choice_png
from inferometer.report.choose_page import choice_page
from inferometer.report.choose_tables import choice_document, choice_table
from inferometer.store import SidecarMissing, read_sidecar, write_atomically
from inferometer.trials.speed import read_stamps

NAME = "choose"
_EXIT = {"meets": 0, "fails": 1, "not known": 10}
_PICTURE = "choice.png"


def command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of studies.")],
    images_per_s: Annotated[
        float | None, typer.Option("--images-per-s", help="At least, of all devices together.")
    ] = None,
    p99: Annotated[
        str | None, typer.Option("--p99", help="Of a call under load, at most: 10ms, 0.5s.")
    ] = None,
    watts: Annotated[
        float | None, typer.Option("--watts", help="Of all devices under load, at most.")
    ] = None,
    j_per_image: Annotated[float | None, typer.Option("--j-per-image", help="Net of idle, at most.")] = None,
    max_drop: Annotated[
        str | None, typer.Option("--max-drop", help="Of top-1 against FP32, at most: 0.5%.")
    ] = None,
    min_top1: Annotated[str | None, typer.Option("--min-top1", help="At least: 75%.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Where the studies hold several.")] = None,
    price: Annotated[
        list[str] | None, typer.Option("--price", metavar="DIR=NUMBER", help="Of one device. Repeatable.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained page.")] = None,
    png: Annotated[
        Path | None,
        typer.Option("--png", help=f"Write the chart into this file, or as {_PICTURE} into a folder."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Choose a machine, precision, batch and number of devices for a need.

    Exit codes: 0 one is recommended, 1 none meets the need, 10 it cannot be told.
    """
    png = png / _PICTURE if png is not None and png.is_dir() else png
    kept = [
        folder / name for folder in folders for name in ("records.jsonl", "study.json", "sidecars", "models")
    ]
    refuse_overwriting({"--html": html, "--png": png}, kept)
    need = Need(
        images_per_s=_above_0(images_per_s, "--images-per-s"),
        p99_s=None if p99 is None else _seconds(p99),
        watts=_above_0(watts, "--watts"),
        j_per_image=_above_0(j_per_image, "--j-per-image"),
        max_drop=None if max_drop is None else fraction_of(max_drop, "--max-drop"),
        min_top1=None if min_top1 is None else fraction_of(min_top1, "--min-top1"),
        model=model,
    )
    refuse_twins(folders)
    sources = [_source(folder, folders) for folder in folders]
    stamped = [_Stamps(folder, source.records) for folder, source in zip(folders, sources, strict=True)]
    choice = choose(sources, need, stamped, _prices(price or (), sources))
    written = _write(choice, html, png)
    if as_json:
        print_json({**choice_document(choice), "written": [str(path) for path in written]})
    else:
        _show(choice)
    for path in written:
        note(f"wrote {path}")
    if png is not None and png not in written:
        note(f"{png} is not written: neither latency under load, nor energy, nor accuracy is known")
    return _EXIT[choice.verdict]


def _show(choice: Choice) -> None:
    print_tables([choice_table(choice)])
    one = choice.best or choice.nearest
    print_sentences("Before you rely on it", [*(one.cautions if one else ()), *choice.notes])
    print_sentences("To know more", advice(choice))
    print_line(sentence(choice))


def _write(choice: Choice, html: Path | None, png: Path | None) -> list[Path]:
    written = []
    if html is not None:
        write_atomically(html, page_bytes(choice_page(choice)))
        written.append(html)
    picture = choice_png(choice) if png is not None else None
    if png is not None and picture is not None:
        write_atomically(png, picture)
        written.append(png)
    return written


class _Stamps:
    """How long the calls of each throughput trial took, from the time stamps in a store's folder."""

    def __init__(self, folder: Path, records: Sequence[Record]) -> None:
        self._folder = folder
        self._records = {record.id: record for record in records if record.status == "ok"}

    def __call__(self, name: str) -> tuple[Latency, ...]:
        """Rank by rank; empty where not all of them are there."""
        record = self._records[name]
        kept = [one for one in record.sidecars if one.path.endswith(".stamps.npz")]
        try:
            return tuple(self._of(record, one) for one in kept) if len(kept) == record.trial.ranks else ()
        except SidecarMissing:
            return ()

    def _of(self, record: Record, kept: Sidecar) -> Latency:
        in_flight = record.throughput.in_flight if record.throughput else 1
        content = read_sidecar(self._folder, kept)
        return latency_of(read_stamps(content, record.trial.batch or 1, in_flight, True))


def _source(folder: Path, folders: Sequence[Path]) -> Source:
    """A store under its folder's name, or its path where two share that."""
    names = [one.resolve().name for one in folders]
    name = folder.resolve().name
    shown = name if names.count(name) == 1 else str(folder)
    records = read_and_tell(folder).records
    return Source(shown, str(folder), summary_of(folder, records), records)


def _prices(given: Sequence[str], sources: Sequence[Source]) -> dict[str, float]:
    known, found = [one.name for one in sources], prices_of(given)
    for name in found:
        if name not in known:
            raise ConfigError(f"--price: there is no {name!r}{nearest(name, known)}")
    return found


def _above_0(value: float | None, option: str) -> float | None:
    if value is not None and not 1 / LARGEST <= value <= LARGEST:
        raise ConfigError(f"{option}: {value:g} is no such number: wants one above 0, at most {LARGEST:g}")
    return value


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"--p99: {text!r} is no time: write for example 10ms or 0.5s")
    return float(match[1]) * {"ms": 1e-3, "s": 1.0}[match[2]]

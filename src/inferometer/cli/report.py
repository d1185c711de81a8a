"""``inferometer report DIR``: tables, one HTML page, PNG charts and CSV from a store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from inferometer.cli.console import note, print_findings, print_json, print_tables
from inferometer.cli.options import JsonOption, refuse_overwriting
from inferometer.cli.outcome import read_and_tell, summary_of
from inferometer.report.html import write_html
from inferometer.report.png import write_pngs
from inferometer.report.power_trace import Traces, traces_of
from inferometer.report.tables import csv_text, tables
from inferometer.store import write_atomically

NAME = "report"


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained page.")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write the charts into this folder.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write one line per record.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Show what a study found.

    Reads the store alone: tables here, and on request a page, charts and CSV.
    """
    kept = [folder / name for name in ("records.jsonl", "study.json", "sidecars", "models")]
    refuse_overwriting({"--html": html, "--csv": csv}, kept)
    contents = read_and_tell(folder)
    summary = summary_of(folder, contents.records)
    written: list[Path] = []
    traces = traces_of(contents.records, folder) if html or png else Traces()
    if html:
        write_html(summary, contents.records, html, traces)
        written.append(html)
    if png:
        written += write_pngs(summary, png, traces.drawn)
    if csv:
        write_atomically(csv, csv_text(contents.records).encode())
        written.append(csv)
    if as_json:
        print_json({"summary": asdict(summary), "written": [str(path) for path in written]})
    else:
        print_tables(tables(summary))
        print_findings(summary)
    if traces.note:
        note(f"power traces: {len(traces.drawn)} drawn. {traces.note}")
    for path in written:
        note(f"wrote {path}")
    return 0

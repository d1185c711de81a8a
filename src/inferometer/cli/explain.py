"""``inferometer explain DIR``: why a precision is or is not faster, from a study's records and profiles."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from inferometer.analysis.explain import explain
from inferometer.analysis.explain_advice import advice
from inferometer.analysis.explain_rows import Explanation
from inferometer.analysis.explain_words import any_marked, headlines, missing, reasons, single_words
from inferometer.analysis.marks import MARK_NOTE
from inferometer.analysis.rows import Summary
from inferometer.cli.console import note, print_json, print_sentences, print_tables
from inferometer.cli.options import JsonOption, refuse_overwriting
from inferometer.cli.outcome import read_and_tell, summary_of
from inferometer.errors import ConfigError, nearest
from inferometer.report.characters import page_bytes
from inferometer.report.explain import document, explanation_tables
from inferometer.report.explain_charts import explanation_png
from inferometer.report.explain_page import explanation_page
from inferometer.store import read_layers, write_atomically

NAME = "explain"


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")],
    model: Annotated[
        list[str] | None, typer.Option("--model", help="Of these models alone. Repeatable.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained page.")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write the charts into this file.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Say why INT8 (or FP16, BF16, TF32) is or is not faster.

    For every model and engine: the verdict, where a call's time goes at both precisions, which layers lose,
    what bounds the gain, and from which batch it is ahead. Reads the store alone.
    """
    kept = [folder / name for name in ("records.jsonl", "study.json", "sidecars", "models")]
    refuse_overwriting({"--html": html, "--png": png}, kept)
    records = read_and_tell(folder).records
    summary = summary_of(folder, records)
    found, singles = explain(summary, records, partial(read_layers, folder), _models(summary, model))
    written: list[Path] = []
    if html is not None:
        title = ", ".join(summary.studies) or "Empty study"
        write_atomically(html, page_bytes(explanation_page(found, singles, title)))
        written.append(html)
    picture = explanation_png(found) if png is not None else None
    if png is not None and picture is not None:
        write_atomically(png, picture)
        written.append(png)
    if as_json:
        print_json({**document(found, singles), "written": [str(path) for path in written]})
    else:
        for one in found:
            _show(one)
        print_sentences("Not compared", [single_words(one) for one in singles])
        if not found and not singles:
            print_sentences("Not compared", ["No throughput trial gave a rate."])
    for path in written:
        note(f"wrote {path}")
    if png is not None and picture is None:
        note(f"{png} is not written: there are no times of layers to draw")
    return 0


def _models(summary: Summary, wanted: list[str] | None) -> list[str] | None:
    """The models as the records name them, given so or by their short names.

    Raises:
        ConfigError: One is not in the store.
    """
    if not wanted:
        return None
    known = {name: model for model, name in summary.names.items()} | {model: model for model in summary.names}
    for name in wanted:
        if name not in known:
            raise ConfigError(f"--model: the study has no {name!r}{nearest(name, known)}")
    return [known[name] for name in wanted]


def _show(one: Explanation) -> None:
    first, *others = headlines(one)
    tables = explanation_tables(one)
    # Tables explain the mark themselves, but not where it stands in a sentence on a third precision alone.
    mark = any_marked(one) and not any(MARK_NOTE in (table.note or "") for table in tables)
    print_sentences(first, [*others, *(reason.text for reason in reasons(one)), *[MARK_NOTE] * mark])
    print_tables(tables)
    print_sentences("What would help", advice(one))
    print_sentences("What is missing", missing(one))

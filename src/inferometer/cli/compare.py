"""``inferometer compare A [B ...]``: machines, months, engines and precisions side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from inferometer import published
from inferometer.analysis.comparison.compare import Comparison, compare
from inferometer.analysis.comparison.figures import comparison_figures
from inferometer.analysis.comparison.matters import AXES, Axis
from inferometer.analysis.comparison.points import Source, store_source, study_source
from inferometer.analysis.findings import headlines
from inferometer.analysis.marks import MARK_NOTE
from inferometer.analysis.wording import plural
from inferometer.cli.console import note, print_json, print_sentences, print_tables
from inferometer.cli.options import JsonOption, prices_of, refuse_overwriting, refuse_twins
from inferometer.cli.outcome import read_and_tell
from inferometer.errors import ConfigError, nearest
from inferometer.report.characters import page_bytes
from inferometer.report.comparison_flat import comparison_csv, comparison_document
from inferometer.report.comparison_page import comparison_page
from inferometer.report.comparison_tables import comparison_tables, verdict_sentences
from inferometer.report.study_figures import write_figures
from inferometer.store import read_per_image, write_atomically

NAME = "compare"

_ALL_SHOWN = 24
"""So many findings are shown; of more the first few of each kind."""


def command(
    names: Annotated[
        list[str], typer.Argument(metavar="A [B ...]", help="Studies' folders, or published studies' names.")
    ],
    by: Annotated[
        str | None,
        typer.Option("--by", help=f"What is asked about: {', '.join(AXES)}. Default: what varies."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="What the others are held against. Default: the first.")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price", metavar="LABEL=NUMBER", help="Of a subject, in any one currency. Repeatable."
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write one line per ratio.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained page.")] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures", help="Draw the 2017 studies' figures into this folder, as PNG, SVG and PDF each."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Put machines, months, engines and precisions side by side.

    Says first whether they are like for like, then what was found, then the figures.
    """
    folders = [Path(name) for name in names if Path(name).is_dir()]
    refuse_overwriting(
        {"--csv": csv, "--html": html, "--figures": figures},
        [one / kept for one in folders for kept in ("records.jsonl", "study.json")],
    )
    found = compare(sources_of(names), _axis(by), baseline, prices_of(price or ()))
    written: list[Path] = []
    if csv is not None:
        write_atomically(csv, comparison_csv(found).encode())
        written.append(csv)
    if html is not None:
        write_atomically(html, page_bytes(comparison_page(found)))
        written.append(html)
    if figures is not None:
        written += write_figures(comparison_figures(found), figures)
    if as_json:
        print_json({**comparison_document(found), "written": [str(path) for path in written]})
    else:
        _show(found)
    for path in written:
        note(f"wrote {path}")
    return 0


def sources_of(names: Sequence[str]) -> list[Source]:
    """Folders of studies and published studies, each under a label of its own.

    Raises:
        ConfigError: A name is neither, or stands twice.
        StoreError: A store cannot be read.
    """
    # A store may be given by its records.jsonl.
    paths = [path.parent if (path := Path(name)).is_file() else path for name in names]
    refuse_twins(paths)
    # Folders of one name, such as runs/mon/out and runs/tue/out, keep what tells them apart.
    stems = Counter(path.name for path in paths)
    found = [
        _source(name, path, path.name if path.name and stems[path.name] == 1 else name)
        for name, path in zip(names, paths, strict=True)
    ]
    for label, times in Counter(source.label for source in found).items():
        if times > 1:  # two beginnings of one published study's name
            raise ConfigError(f"{label} is named twice")
    return found


def _source(name: str, folder: Path, label: str) -> Source:
    if not folder.exists():
        return study_source(_published(name))
    return store_source(label, read_and_tell(folder).records, partial(read_per_image, folder))


def _published(name: str) -> published.PublishedStudy:
    known = published.studies()
    if name and any(study.startswith(name) for study in known):
        return published.load(name)
    raise ConfigError(f"{name} is neither a study's folder nor a published study{nearest(name, known)}")


def _axis(by: str | None) -> Axis | None:
    if by is None:
        return None
    for axis in AXES:
        if by == axis:
            return axis
    raise ConfigError(f"--by: there is no {by!r}{nearest(by, AXES)}")


def _show(found: Comparison) -> None:
    print_sentences("Is it like for like?", verdict_sentences(found))
    first, rest = (found.findings, []) if len(found.findings) <= _ALL_SHOWN else headlines(found.findings)
    sentences = [one.sentence for one in first] or ["No figure stands on both sides."]
    if rest:
        sentences.append(f"{plural(len(rest), 'more finding')} in the JSON document (--json).")
    if any(one.marked for one in first):
        sentences.append(MARK_NOTE)
    print_sentences("What was found", sentences)
    print_tables(comparison_tables(found))

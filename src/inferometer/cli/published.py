"""``inferometer published [NAME]``: published studies, as data."""

from __future__ import annotations

from typing import Annotated

import typer

from inferometer import published
from inferometer.cli.console import print_json, print_line, print_tables
from inferometer.cli.options import JsonOption
from inferometer.report.tables import Cell, Column, Table

NAME = "published"


def command(
    name: Annotated[
        str | None, typer.Argument(help="A study, or an unambiguous beginning of its name.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Show published studies.

    Lists them, or the points of one.
    """
    if name is None:
        return _list(as_json)
    study = published.load(name)
    if as_json:
        print_json(study.model_dump(mode="json"))
        return 0
    print_tables([_table(study)])
    return 0


def _list(as_json: bool) -> int:
    studies = {stem: published.load(stem) for stem in published.studies()}
    if as_json:
        print_json([{"name": stem, "title": study.title} for stem, study in studies.items()])
        return 0
    for stem, study in studies.items():
        print_line(f"{stem:34} {study.title}, {len(study.points)} points")
    return 0


def _table(study: published.PublishedStudy) -> Table:
    numbers = ("batch", "count", "value")
    names = ("accelerator", "model", "precision", "batch", "count", "metric", "value", "status")
    relative = any(point.relative_to is not None for point in study.points)
    columns = [Column(name, None, "right" if name in numbers else "left") for name in names]

    def cells(point: published.PublishedPoint) -> tuple[Cell, ...]:
        own = tuple(Cell(_shown(getattr(point, name)), getattr(point, name)) for name in names)
        return (*own, Cell(_place(point.relative_to), None)) if relative else own

    return Table(
        id="published",
        title=f"{study.title} ({study.date})" if study.date else study.title,
        columns=(*columns, Column("relative to")) if relative else tuple(columns),
        rows=tuple(cells(point) for point in study.points),
        note=". ".join(fact for fact in (study.platform, study.engine) if fact) or None,
    )


def _place(point: published.Coordinates | None) -> str:
    if point is None:
        return "-"
    return f"{point.count or 1} x {point.accelerator}, batch {point.batch}"


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

"""Fitting a table into a terminal: which columns go when it is too narrow."""

from __future__ import annotations

from dataclasses import replace

from rich.cells import cell_len

from inferometer.report.cells import Table

__all__ = ["fitted", "natural_width"]

_GAP = 2  # columns between two columns of a table
_PROSE = 30  # terminal columns under which prose is not squeezed


def natural_width(table: Table) -> int:
    """Terminal columns that a table takes without breaking a cell; prose counts 30 at most.

    A column's unit stands in a line of its own under its name.
    """
    widths = [_width(table, place) for place in range(len(table.columns))]
    return sum(widths) + _GAP * (len(widths) - 1)


def fitted(table: Table, width: int) -> tuple[Table, tuple[str, ...]]:
    """The table without its most spare columns, as far as it must be narrower.

    Args:
        table: Any.
        width: Terminal columns there are.

    Returns:
        The table, and the names of the columns left out, in the order in which they stood. It may still be
        too wide: columns that are not spare always stay. Those that are equally spare go together.
    """
    left = table
    while natural_width(left) > width:
        most = max(column.spare for column in left.columns)
        if most == 0:
            break
        left = _without(left, most)
    return left, tuple(column.name for column in table.columns if column not in left.columns)


def _width(table: Table, place: int) -> int:
    column = table.columns[place]
    cells = max((cell_len(row[place].text) for row in table.rows), default=0)
    if column.prose:
        cells = min(cells, _PROSE)
    return max(cell_len(column.name), cell_len(column.unit or ""), cells)


def _without(table: Table, spare: int) -> Table:
    keep = [place for place, column in enumerate(table.columns) if column.spare != spare]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in keep),
        rows=tuple(tuple(row[place] for place in keep) for row in table.rows),
    )

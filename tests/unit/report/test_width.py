"""Tables in narrow terminals: which columns go, in which order, and when none can."""

import pytest

from inferometer.report.cells import Cell, Column, Table
from inferometer.report.tables import result_tables
from inferometer.report.width import fitted, natural_width


def table(*columns, cells):
    return Table("t", "T", columns, (tuple(Cell(text, text) for text in cells),))


SAMPLE = table(
    Column("Model"), Column("Rate", "images/s"), Column("Repeats", spare=2), Column("Memory", spare=1),
    cells=("ResNet-50", "9.1", "9.1 and 9.2", "-"),
)  # fmt: skip


def test_a_width_is_that_of_cells_names_and_units_with_gaps():
    # 9 of the cell, 8 of the unit, 11 of the cell, 6 of the name, and three gaps of 2.
    assert natural_width(SAMPLE) == 9 + 8 + 11 + 6 + 6
    assert natural_width(table(Column("a"), cells=("\u5b57\u5b57",))) == 4
    assert natural_width(table(Column("Reason", prose=True), cells=("x" * 200,))) == 30


@pytest.mark.parametrize(
    ("width", "dropped"),
    [
        (40, ()),
        (39, ("Repeats",)),
        (27, ("Repeats",)),
        (26, ("Repeats", "Memory")),
        (5, ("Repeats", "Memory")),
    ],
)
def test_the_most_spare_columns_go_first_and_no_more_than_needed(width, dropped):
    shown, names = fitted(SAMPLE, width)
    assert names == dropped
    assert [one.name for one in shown.columns] == [
        one.name for one in SAMPLE.columns if one.name not in dropped
    ]
    assert len(shown.rows[0]) == len(shown.columns)


def test_every_table_of_results_fits_a_hundred_columns(summary):
    for one in result_tables(summary):
        shown, _ = fitted(one, 100)
        assert natural_width(shown) <= 100
        assert {column.name for column in shown.columns} >= {
            column.name
            for column in one.columns
            if column.name in ("Model", "Verdict", "Rate", "Ratio", "Top-1")
        }

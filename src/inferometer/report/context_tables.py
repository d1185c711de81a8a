"""Tables of what stands behind the numbers: trials without one, models, calibrations, machines."""

from __future__ import annotations

from collections.abc import Iterable

from inferometer.analysis.rows import Summary
from inferometer.analysis.wording import count, large
from inferometer.report.cells import Cell, Column, Place, Table, optional, status_cell

__all__ = ["calibrations", "machines", "models", "not_measured"]

_SOURCES = {
    "images": Cell("images of the data set", "images"),
    "synthetic": Cell("synthetic input: speed only", "synthetic", "bad"),
    "cache": Cell("a TensorRT calibration cache", "cache"),
    "model": Cell("the model file was already quantized", "model"),
}


def not_measured(summary: Summary) -> Table:
    """Trials that gave no number, with status and reason."""
    place = Place(summary, [row.setup for row in summary.not_measured])
    return Table(
        "not-measured",
        "Trials without a number",
        (
            Column("Kind"),
            *place.columns,
            Column("Trials", None, "right"),
            Column("Status"),
            Column("Reason", prose=True),
        ),
        tuple(
            (
                Cell(row.kind, row.kind),
                *place.cells(row.setup),
                Cell(count(row.trials), row.trials),
                status_cell(row.status),
                Cell(row.reason, row.reason)
                if row.reason
                else Cell("the record does not say", None, "muted"),
            )
            for row in summary.not_measured
        ),
        place.note("Out of memory, unsupported and skipped are results; failed and time limit are faults."),
    )


def models(summary: Summary) -> Table:
    """The model files, by content."""
    return Table(
        "models",
        "Models",
        (
            Column("Model", header=True),
            Column("Multiply-accumulates", "per image", "right"),
            Column("Parameters", None, "right"),
            Column("SHA-256 of the file"),
        ),
        tuple(
            (
                Cell(summary.names[row.model], row.model),
                optional(row.macs, large),
                optional(row.parameters, large),
                Cell(row.sha256[:16], row.sha256),
            )
            for row in summary.models
        ),
    )


def calibrations(summary: Summary) -> Table:
    """Where the activation ranges of INT8 came from."""
    several = len({row.engine for row in summary.calibrations}) > 1
    return Table(
        "calibration",
        "Calibration of INT8",
        (
            Column("Model", header=True),
            *((Column("Engine"),) if several else ()),
            Column("Source"),
            Column("Method"),
            Column("Images", None, "right"),
            Column("Weights", "bits", "right"),
            Column("Scheme", spare=1),
            Column("Table", spare=2),
        ),
        tuple(
            (
                Cell(summary.names[row.model], row.model),
                *((Cell(row.engine, row.engine),) if several else ()),
                _SOURCES[row.source],
                optional(row.method, str),
                optional(row.images, count),
                optional(row.weight_bits, count),
                optional(row.scheme, str),
                optional(row.table_sha256, lambda digest: str(digest)[:16]),
            )
            for row in summary.calibrations
        ),
    )


def machines(summary: Summary) -> Iterable[Table]:
    """One table of facts per machine."""
    several = len(summary.machines) > 1
    for number, machine in enumerate(summary.machines, start=1):
        yield Table(
            f"machine-{number}" if several else "machine",
            f"Machine {number}" if several else "Machine",
            (Column("What", header=True), Column("Value", prose=True)),
            tuple(
                (
                    Cell(fact.name, fact.name),
                    Cell(fact.value, fact.value)
                    if fact.value is not None
                    else Cell(f"not known: {fact.reason}", None, "muted"),
                )
                for fact in machine.facts
            ),
        )

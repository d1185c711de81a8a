"""A gate as a table, as a Markdown summary for a pull request, and as JUnit's XML for a CI server."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from inferometer.analysis.findings import crew_text, settings_text
from inferometer.analysis.gate_rows import Gate, GatePoint
from inferometer.analysis.wording import milliseconds, percent, plural, rate
from inferometer.report.cells import NONE, Cell, Column, Table, Tone
from inferometer.report.characters import allowed, one_line
from inferometer.stats import trimmed_mean

__all__ = ["gate_junit", "gate_markdown", "gate_sentence", "gate_table"]

_TONES: dict[str, Tone] = {"pass": "good", "fail": "bad", "inconclusive": "muted"}


def gate_sentence(gate: Gate) -> str:
    """The verdict, and what follows from it."""
    counts = {word: sum(one.verdict == word for one in gate.points) for word in _TONES}
    of = plural(len(gate.points), "point")
    allowed_words = f"{percent(gate.max_slowdown)} slower"
    if gate.verdict == "pass":
        return f"Pass: none of {of} is more than {allowed_words} (95 % confidence)."
    if gate.verdict == "fail":
        return f"Fail: {counts['fail']} of {of} more than {allowed_words}, or without a figure."
    unknown = f"{counts['inconclusive']} of {of}"
    text = f"Inconclusive: {unknown} cannot be told to be within {allowed_words}, or beyond."
    if gate.more_repeats is not None:
        text += f" About {plural(gate.more_repeats, 'more repeat')} on each side would tell."
    return text


def gate_table(gate: Gate) -> Table:
    """A row for each point."""
    columns = (
        Column("Point", header=True, prose=True),
        Column("BASE", "images/s, ms", "right", spare=1),
        Column("NEW", "images/s, ms", "right", spare=1),
        Column("Repeats", None, "right", spare=2),
        Column("Slowdown", "%", "right"),
        Column("95 % bounds", "%", "right", spare=1),
        Column("Verdict"),
        Column("Why", prose=True),
    )
    note = (
        f"Allowed: {percent(gate.max_slowdown)}. Slowdown: of images/s, or of the median latency; under 0 is"
        " faster. Bounds: each holds with 95 % confidence. BASE and NEW: the means that it compares, of"
        " logarithms, without the highest and lowest fifth."
    )
    return Table("gate", "Gate", columns, tuple(_cells(gate, one) for one in gate.points), note)


def gate_markdown(gate: Gate) -> str:
    """GitHub-flavoured; what did not pass comes first."""
    table = gate_table(gate)
    order = sorted(range(len(gate.points)), key=lambda place: gate.points[place].verdict == "pass")
    lines = [
        f"### Inferometer gate: {gate.verdict}",
        "",
        gate_sentence(gate),
        "",
        "| " + " | ".join(_head(column) for column in table.columns) + " |",
        "|" + "|".join("--:" if column.align == "right" else "---" for column in table.columns) + "|",
        *("| " + " | ".join(_escaped(cell.text) for cell in table.rows[place]) + " |" for place in order),
        "",
        table.note or "",
    ]
    for title, sentences in (("What differs", gate.differences), ("Notes", gate.notes)):
        if sentences:
            lines += ["", f"**{title}**", "", *(f"- {_escaped(one)}" for one in sentences)]
    return "\n".join(lines) + "\n"


def gate_junit(gate: Gate) -> bytes:
    """A test case for each point: a failure, skipped where it is inconclusive, or passed."""
    counts = [sum(one.verdict == word for one in gate.points) for word in ("fail", "inconclusive")]
    suite = ElementTree.Element(
        "testsuite",
        name="inferometer gate",
        tests=str(len(gate.points)),
        failures=str(counts[0]),
        errors="0",
        skipped=str(counts[1]),
    )
    for one in gate.points:
        case = ElementTree.SubElement(
            suite, "testcase", classname="inferometer.gate", name=allowed(_title(gate, one))
        )
        said = allowed(one_line(_figures(one)))
        if one.verdict == "fail":
            ElementTree.SubElement(case, "failure", message=said)
        elif one.verdict == "inconclusive":
            ElementTree.SubElement(case, "skipped", message=said)
        else:
            ElementTree.SubElement(case, "system-out").text = said
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)) + b"\n"


def _title(gate: Gate, one: GatePoint) -> str:
    setup = one.setup
    what = "latency" if one.metric == "latency_s" else "throughput"
    return (
        f"{gate.names[setup.model]} on {setup.engine} {setup.device} in {setup.precision.upper()}, batch"
        f" {setup.batch}{crew_text(setup)}{settings_text(setup)}: {what}"
    )


def _figures(one: GatePoint) -> str:
    parts = [] if one.slowdown is None else [f"slowdown {percent(one.slowdown)}"]
    if one.bounds is not None:
        parts.append(f"bounds {percent(one.bounds[0])} to {percent(one.bounds[1])}")
    return "; ".join([*parts, *([one.reason] if one.reason else [])])


def _cells(gate: Gate, one: GatePoint) -> tuple[Cell, ...]:
    def middle(values: tuple[float, ...]) -> Cell:
        if not values:
            return Cell(NONE, None, "muted")
        value = math.exp(trimmed_mean([math.log(one) for one in values]))
        return Cell(milliseconds(value) if one.metric == "latency_s" else rate(value), value)

    def points(value: float) -> str:
        return f"{value * 100:z.1f}".replace("-", "\N{MINUS SIGN}")

    bounds = one.bounds
    return (
        Cell(_title(gate, one), _title(gate, one)),
        middle(one.base),
        middle(one.new),
        Cell(f"{len(one.base)} \N{MIDDLE DOT} {len(one.new)}", f"{len(one.base)}..{len(one.new)}"),
        Cell(NONE, None, "muted") if one.slowdown is None else Cell(points(one.slowdown), one.slowdown),
        Cell(NONE, None, "muted")
        if bounds is None
        else Cell(f"{points(bounds[0])} to {points(bounds[1])}", f"{bounds[0]}..{bounds[1]}"),
        Cell(one.verdict, one.verdict, _TONES[one.verdict]),
        Cell(one.reason or "", one.reason),
    )


def _head(column: Column) -> str:
    return f"{column.name} ({column.unit})" if column.unit else column.name


def _escaped(text: str) -> str:
    """For a cell: no new cell, line, tag, link or emphasis comes of it."""
    plain = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{sign}" if sign in "\\|`*_[]~#" else sign for sign in plain)

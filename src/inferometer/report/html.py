"""The report as one HTML file that opens from disk, needs no network, and runs nothing from the records.

Every text from a record is escaped where it is placed; data stands in JSON blocks in which no ``<`` is
left; and the page's content security policy allows only the page's own scripts and style, by their hashes,
and no connection at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from inferometer.analysis.rows import Summary
from inferometer.analysis.wording import plural
from inferometer.records import Record
from inferometer.report.characters import page_bytes
from inferometer.report.charts import DRAWN, Chart, charts
from inferometer.report.document import Top, drawing_of, figure, frame, heading, prose, sheet
from inferometer.report.flat import csv_text
from inferometer.report.page_findings import findings_section
from inferometer.report.power_trace import CAPTION, Traces, trace_chart
from inferometer.report.tables import Table, result_tables, tables
from inferometer.store import write_atomically

__all__ = ["page", "write_html"]

_UNITS = {"speed": "images/s", "scaling": "images/s", "accuracy": "points", "power": "images/s/W"}


def write_html(summary: Summary, records: Sequence[Record], path: Path, traces: Traces | None = None) -> None:
    """Write the report (see `page`); readers see the old file or the new one, never a part.

    Raises:
        StoreError: It could not be written.
    """
    write_atomically(path, page_bytes(page(summary, records, traces)))


def page(summary: Summary, records: Sequence[Record], traces: Traces | None = None) -> str:
    """The whole document as text.

    Args:
        summary: What is shown.
        records: What it was made from; they are part of the page.
        traces: Of power, read from the store's folder; None: the page has none.
    """
    drawn = charts(summary)
    traces = traces or Traces()
    drawings = {chart.id: drawing_of(chart.id, chart.chart) for chart in drawn}
    traced = [
        drawing_of(f"power-trace-{number}", trace_chart(one)) for number, one in enumerate(traces.drawn, 1)
    ]
    sections = _sections(summary, drawn)
    any_loadgen = any(row.runs for row in summary.loadgen)
    nothing = "LoadGen alone gave numbers: see its tables." if any_loadgen else "No trial gave a number."
    shown = (
        *findings_section(summary.findings, nothing, units=_UNITS, cautions=summary.cautions),
        *(part for one in sections for part in _section(one, drawings)),
        *_traces(traces, traced),
        *_facts(summary, sections),
        *_data_section(records),
    )
    blocks = {
        "charts": [*drawings.values(), *traced],
        "records": [json.loads(record.model_dump_json(by_alias=True)) for record in records],
        "records-csv": csv_text(records),
    }
    return frame(f"{_title(summary)}: inference report", _top(summary, sections, traces), shown, blocks)


def _sections(summary: Summary, drawn: Sequence[Chart]) -> tuple[Chart | Table, ...]:
    """A chart with its table, or the table alone where it holds nothing to draw, such as too few calls."""
    by_table = {chart.table.id: chart for chart in drawn}
    results = [table for table in result_tables(summary) if table.id != "not-measured"]
    return tuple(by_table.get(table.id, table) for table in results)


def _table_in(section: Chart | Table) -> Table:
    return section.table if isinstance(section, Chart) else section


def _top(summary: Summary, sections: Sequence[Chart | Table], traces: Traces) -> Top:
    machine = " and ".join(one.title for one in summary.machines) or "a machine that is not known"
    when = " to ".join(dict.fromkeys(_moment(time) for time in (summary.started, summary.ended) if time))
    links = [("findings", "Findings"), *((table.id, table.title) for table in map(_table_in, sections))]
    links += [("power-traces", "Power traces")] if traces.drawn else []
    links += [("machine", "Machine and models"), ("data", "Data")]
    origin = plural(summary.trials, "trial") + (f", {when}" if when else "")
    return Top("Inference study", _title(summary), links, machine, origin)


def _section(section: Chart | Table, drawings: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    if isinstance(section, Chart):
        yield from _chart_section(section, drawings[section.id])
        return
    name = escape(section.id)
    yield f"<section id='{name}' aria-labelledby='{name}-title' class='wide'>"
    yield heading(section.id, section.title)
    if section.id in DRAWN:
        yield "<p class='lead'>There is nothing to draw here; the table holds what was measured.</p>"
    yield sheet(section, titled=False)
    yield "</section>"


def _chart_section(chart: Chart, drawing: Mapping[str, Any]) -> Iterator[str]:
    name = escape(chart.id)
    wide = "" if chart.beside else " class='wide'"
    label = f"Chart: {chart.title}. {chart.caption} The table after it holds the same numbers."
    yield f"<section id='{name}' aria-labelledby='{name}-title'{wide}>"
    yield heading(chart.id, chart.title)
    yield f"<p class='lead'>{prose(chart.caption)}</p>"
    yield "<div class='pair'>"
    yield figure(chart.id, chart.title, label, drawing["specification"])
    yield sheet(chart.table, titled=False)
    yield "</div></section>"


def _traces(traces: Traces, drawings: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not traces.drawn:
        return
    yield "<section id='power-traces' aria-labelledby='power-traces-title' class='wide'>"
    yield heading("power-traces", "Power traces")
    yield f"<p class='lead'>{prose(' '.join(filter(None, (CAPTION, traces.note))))}</p>"
    for trace, drawing in zip(traces.drawn, drawings, strict=True):
        label = f"Chart: power during {trace.title}. The tables have the figures."
        yield f"<h3>{escape(trace.title)}</h3>"
        yield figure(drawing["id"], trace.title, label, drawing["specification"])
    yield "</section>"


def _facts(summary: Summary, sections: Sequence[Chart | Table]) -> Iterator[str]:
    """Every table that has no section of its own."""
    shown = {table.id for table in map(_table_in, sections)}
    rest = [table for table in tables(summary) if table.id not in shown]
    yield "<section id='machine' aria-labelledby='machine-title'>"
    yield heading("machine", "Behind the numbers")
    yield "<div class='facts'>"
    yield from (sheet(table, titled=True) for table in rest)
    yield "</div></section>"


def _data_section(records: Sequence[Record]) -> Iterator[str]:
    yield "<section id='data' aria-labelledby='data-title'>"
    yield heading("data", "Raw data")
    yield (
        f"<p class='lead'>{escape(plural(len(records), 'record'))}, each with all its values, inside this"
        " file. The time stamps of single calls and the outcomes of single images are not: those stay in the"
        " study's folder, under sidecars/. Paired differences derive from these outcomes, all other numbers"
        " above from the records.</p>"
    )
    yield "<div class='actions'><button type='button' id='save-json'>Save records as JSON</button>"
    yield "<button type='button' id='save-csv'>Save records as CSV</button></div>"
    yield "</section>"


def _title(summary: Summary) -> str:
    return ", ".join(summary.studies) or "Empty study"


def _moment(time: str) -> str:
    """``2026-03-14 09:01 UTC`` from ISO 8601 in UTC; anything else as it is."""
    whole = len(time) >= 16 and time[10] == "T"
    return f"{time[:10]} {time[11:16]} UTC" if whole else time

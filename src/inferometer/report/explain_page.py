"""Explanations as one HTML file that opens from disk; see ``document``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from inferometer.analysis.explain_advice import advice
from inferometer.analysis.explain_rows import Explanation, Single
from inferometer.analysis.explain_words import (
    any_marked,
    headlines,
    marked,
    missing,
    place,
    reasons,
    single_words,
)
from inferometer.analysis.marks import MARK_NOTE
from inferometer.analysis.wording import milliseconds
from inferometer.report.document import Top, drawing_of, figure, frame, heading, prose, sheet
from inferometer.report.explain import document, explanation_tables
from inferometer.report.explain_charts import CAPTION, explanation_chart

__all__ = ["explanation_page"]


def explanation_page(found: Sequence[Explanation], singles: Sequence[Single], title: str) -> str:
    """The whole page as text.

    Args:
        found: What is explained.
        singles: What had nothing to compare.
        title: The study's name.
    """
    charts = [(number, explanation_chart(one)) for number, one in enumerate(found, start=1)]
    drawn: list[dict[str, Any]] = [
        drawing_of(str(number), chart) for number, chart in charts if chart is not None
    ]
    by_number = {one["id"]: one["specification"] for one in drawn}
    links = [(f"explained-{number}", _title(one)) for number, one in enumerate(found, start=1)]
    sections = (
        *(
            part
            for number, one in enumerate(found, start=1)
            for part in _section(one, number, by_number.get(str(number)))
        ),
        *_rest(singles, bool(found)),
    )
    blocks = {"charts": drawn, "records": document(found, singles)}
    return frame(f"{title}: explanation", Top("Explanation of a study", title, links), sections, blocks)


def _title(one: Explanation) -> str:
    return f"{place(one)}: {marked(one.own)} against {marked(one.base)}"


def _section(one: Explanation, number: int, drawing: dict[str, Any] | None) -> Iterator[str]:
    name = f"explained-{number}"
    yield f"<section id='{name}' aria-labelledby='{name}-title' class='wide'>"
    yield heading(name, _title(one))
    yield from (f"<p class='lead'>{prose(line)}</p>" for line in headlines(one))
    yield f"<ul class='findings'>{''.join(map(_reason, reasons(one)))}</ul>"
    yield from _list("What would help", advice(one))
    yield from _list("What is missing", missing(one))
    if any_marked(one):
        yield f"<p class='note'>{prose(MARK_NOTE)}</p>"
    tables = explanation_tables(one, number)
    if tables and drawing is not None:
        label = f"Chart: {CAPTION} The tables after it hold the same numbers."
        yield f"<p class='lead'>{prose(CAPTION)}</p>"
        yield "<div class='pair'>"
        yield figure(str(number), _title(one), label, drawing)
        yield from (sheet(table, titled=True, of=_title(one)) for table in tables)
        yield "</div>"
    yield "</section>"


def _reason(one: Any) -> str:
    figure = "" if one.seconds is None else f"{milliseconds(one.seconds)} <small>ms</small>"
    return f"<li><span class='figure' aria-hidden='true'>{figure}</span><p>{prose(one.text)}</p></li>"


def _list(title: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        items = "".join(f"<li>{prose(sentence)}</li>" for sentence in sentences)
        yield f"<h3>{escape(title)}</h3><ul>{items}</ul>"


def _rest(singles: Sequence[Single], any_found: bool) -> Iterator[str]:
    if not singles and any_found:
        return
    yield "<section id='not-compared' class='wide'><h2>Not compared</h2>"
    if singles:
        yield from _list("", [single_words(one) for one in singles])
    else:
        yield "<p class='lead'>No throughput trial gave a rate.</p>"
    yield "</section>"

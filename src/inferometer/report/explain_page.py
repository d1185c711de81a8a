"""Explanations as one HTML file that opens from disk; see ``document``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from inferometer import __version__
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
from inferometer.report.document import asset, json_block, prose, sheet, vega, whole
from inferometer.report.explain import document, explanation_tables
from inferometer.report.explain_charts import CAPTION, explanation_chart
from inferometer.report.theme import with_variables

__all__ = ["explanation_page"]


def explanation_page(found: Sequence[Explanation], singles: Sequence[Single], title: str) -> str:
    """The whole page as text.

    Args:
        found: What is explained.
        singles: What had nothing to compare.
        title: The study's name.
    """
    charts = [(number, explanation_chart(one)) for number, one in enumerate(found, start=1)]
    drawn = [
        {"id": str(number), "specification": with_variables(chart.to_dict())}
        for number, chart in charts
        if chart is not None
    ]
    scripts = [vega(), asset("page.js")]
    items = "".join(
        f"<li><a href='#explained-{number}'>{escape(_title(one))}</a></li>"
        for number, one in enumerate(found, start=1)
    )
    body = "\n".join(
        (
            "<a class='skip' href='#main'>Skip to the results</a>",
            "<header>",
            "<p class='kind'>Explanation of a study</p>",
            f"<h1>{escape(title)}</h1>",
            f"<nav aria-label='Sections'><ul>{items}</ul></nav>",
            "</header>",
            "<main id='main'>",
            *(part for number, one in enumerate(found, start=1) for part in _section(one, number)),
            *_rest(singles, bool(found)),
            "</main>",
            f"<footer><p>Made by Inferometer {escape(__version__)}. This page stands alone:"
            " it needs no network and sends nothing.</p></footer>",
            json_block("charts", drawn),
            json_block("records", document(found, singles)),
            *(f"<script>{script}</script>" for script in scripts),
        )
    )
    return whole(f"{title}: explanation", scripts, body)


def _title(one: Explanation) -> str:
    return f"{place(one)}: {marked(one.own)} against {marked(one.base)}"


def _section(one: Explanation, number: int) -> Iterator[str]:
    name = f"explained-{number}"
    yield f"<section id='{name}' aria-labelledby='{name}-title' class='wide'>"
    yield f"<h2 id='{name}-title'>{escape(_title(one))}</h2>"
    yield from (f"<p class='lead'>{prose(line)}</p>" for line in headlines(one))
    yield f"<ul class='findings'>{''.join(map(_reason, reasons(one)))}</ul>"
    yield from _list("What would help", advice(one))
    yield from _list("What is missing", missing(one))
    if any_marked(one):
        yield f"<p class='note'>{prose(MARK_NOTE)}</p>"
    tables = explanation_tables(one, number)
    if tables:
        label = escape(f"Chart: {CAPTION} The tables after it hold the same numbers.")
        yield f"<p class='lead'>{prose(CAPTION)}</p>"
        yield "<div class='pair'>"
        yield f"<figure><div class='chart' id='chart-{number}' role='img' aria-label='{label}'>"
        yield "<div></div></div><noscript><p class='muted'>Charts need JavaScript; the tables have the same"
        yield "numbers.</p></noscript>"
        yield "</figure>"
        yield from (sheet(table, titled=True) for table in tables)
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

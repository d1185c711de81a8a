"""A comparison as one HTML file that opens from disk; see ``document``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from itertools import count
from typing import Any

from inferometer.analysis.comparison.compare import Comparison
from inferometer.analysis.comparison.figures import StudyFigure, study_figures
from inferometer.analysis.findings import headlines
from inferometer.analysis.marks import MARK_NOTE
from inferometer.analysis.rows import Finding
from inferometer.analysis.wording import joined, plural
from inferometer.report.comparison_flat import comparison_document
from inferometer.report.comparison_tables import comparison_tables, verdict_sentences
from inferometer.report.document import (
    asset,
    drawing_of,
    figure,
    footer,
    heading,
    json_block,
    link,
    look,
    prose,
    sheet,
    vega,
    whole,
)
from inferometer.report.study_figures import figure_caption, figure_chart

__all__ = ["comparison_page"]

_LONG = 9  # letters of a figure that stand beside its sentence at full size


def comparison_page(found: Comparison) -> str:
    """The whole page as text: the verdict, the findings, the figures of the study, the tables."""
    figures = study_figures([point for source in found.sources for point in source.points])
    drawings = {one.name: drawing_of(one.name, figure_chart(one)) for one in figures}
    tables = comparison_tables(found)
    links = [("verdict", "Is it like for like?"), ("findings", "Findings")]
    links += [("figures", "Figures")] if figures else []
    links += [(table.id, table.title) for table in tables]
    items = "".join(f"<li><a href='#{escape(name)}'>{escape(title)}</a></li>" for name, title in links)
    title = (
        " and ".join(found.subjects) if len(found.subjects) < 4 else plural(len(found.subjects), found.axis)
    )
    scripts = [vega(), asset("page.js")]
    body = "\n".join(
        (
            "<a class='skip' href='#main'>Skip to the results</a>",
            "<header>",
            look(),
            f"<p class='kind'>Comparison by {escape(found.axis)}</p>",
            f"<h1>{escape(title)}</h1>",
            f"<p class='machine'>Against {escape(found.baseline)}</p>",
            f"<p class='origin'>From {escape(joined([one.label for one in found.sources]))}</p>",
            f"<nav aria-label='Sections'><ul>{items}</ul></nav>",
            "</header>",
            "<main id='main' tabindex='-1'>",
            *_verdict(found),
            *_findings(found),
            *_figures(figures, drawings),
            *(part for table in tables for part in _table(table)),
            "</main>",
            footer(),
            json_block("charts", list(drawings.values())),
            json_block("records", comparison_document(found)),
            *(f"<script>{script}</script>" for script in scripts),
        )
    )
    return whole(f"{title}: comparison", scripts, body)


def _verdict(found: Comparison) -> Iterator[str]:
    yield "<section id='verdict' aria-labelledby='verdict-title' class='wide'>"
    yield heading("verdict", "Is it like for like?")
    items = "".join(f"<li>{prose(sentence)}</li>" for sentence in verdict_sentences(found))
    yield f"<ul>{items}</ul></section>"


def _findings(found: Comparison) -> Iterator[str]:
    yield "<section id='findings' aria-labelledby='findings-title'>"
    yield heading("findings", "What was found")
    first, rest = headlines(found.findings)
    items = list(map(_finding, (*first, *rest), count(1)))
    if not first:
        yield "<p class='lead'>No figure stands on both sides.</p>"
    yield f"<ul class='findings'>{''.join(items[: len(first)])}</ul>"
    if rest:
        yield f"<details><summary>{escape(plural(len(rest), 'more finding'))}</summary>"
        yield f"<ul class='findings'>{''.join(items[len(first) :])}</ul></details>"
    if any(one.marked for one in found.findings):
        yield f"<p class='note'>{prose(MARK_NOTE)}</p>"
    yield "</section>"


def _finding(one: Finding, number: int) -> str:
    # The sentence holds the number too, so readers of the page aloud need it only once.
    tone = ("" if one.settled else " muted") + (" long" if len(one.figure or "") > _LONG else "")
    shown = f"<span class='figure{tone}' aria-hidden='true'>{escape(one.figure or '')}</span>"
    name = f"finding-{number}"
    return f"<li id='{name}'>{shown}<p>{prose(one.sentence)} {link(name, f'finding {number}')}</p></li>"


def _figures(figures: tuple[StudyFigure, ...], drawings: Mapping[str, Any]) -> Iterator[str]:
    if not figures:
        return
    yield "<section id='figures' aria-labelledby='figures-title' class='wide'>"
    yield heading("figures", "Figures")
    for one in figures:
        caption = figure_caption(one)
        label = f"Chart: {one.title}. {caption} The tables hold the same numbers."
        yield f"<h3>{escape(one.title)}</h3><p class='lead'>{prose(caption)}</p>"
        yield figure(one.name, one.title, label, drawings[one.name]["specification"])
    yield "</section>"


def _table(table: Any) -> Iterator[str]:
    name = escape(table.id)
    yield f"<section id='{name}' aria-labelledby='{name}-title' class='wide'>"
    yield heading(table.id, table.title)
    yield sheet(table, titled=False)
    yield "</section>"

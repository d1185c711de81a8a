"""A comparison as one HTML file that opens from disk; see ``document``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from inferometer.analysis.comparison.compare import Comparison
from inferometer.analysis.comparison.figures import StudyFigure, comparison_figures
from inferometer.analysis.comparison.subjects import subject_words
from inferometer.analysis.wording import joined, plural
from inferometer.report.comparison_flat import comparison_document
from inferometer.report.comparison_tables import comparison_tables, verdict_sentences
from inferometer.report.document import Top, drawing_of, figure, frame, heading, prose, sheet
from inferometer.report.page_findings import findings_section
from inferometer.report.study_figures import figure_caption, figure_chart

__all__ = ["comparison_page"]


def comparison_page(found: Comparison) -> str:
    """The whole page as text: the verdict, the findings, the figures of the study, the tables."""
    figures = comparison_figures(found)
    drawings = {one.name: drawing_of(one.name, figure_chart(one)) for one in figures}
    tables = comparison_tables(found)
    links = [("verdict", "Is it like for like?"), ("findings", "Findings")]
    links += [("figures", "Figures")] if figures else []
    links += [(table.id, table.title) for table in tables]
    title = (
        " and ".join(map(subject_words, found.subjects))
        if len(found.subjects) < 4
        else plural(len(found.subjects), found.axis)
    )
    top = Top(
        f"Comparison by {found.axis}",
        title,
        links,
        f"Against {subject_words(found.baseline)}",
        f"From {joined([one.label for one in found.sources])}",
    )
    sections = (
        *_verdict(found),
        *findings_section(found.findings, "No figure stands on both sides."),
        *_figures(figures, drawings),
        *(part for table in tables for part in _table(table)),
    )
    blocks = {"charts": list(drawings.values()), "records": comparison_document(found)}
    return frame(f"{title}: comparison", top, sections, blocks)


def _verdict(found: Comparison) -> Iterator[str]:
    yield "<section id='verdict' aria-labelledby='verdict-title' class='wide'>"
    yield heading("verdict", "Is it like for like?")
    items = "".join(f"<li>{prose(sentence)}</li>" for sentence in verdict_sentences(found))
    yield f"<ul>{items}</ul></section>"


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

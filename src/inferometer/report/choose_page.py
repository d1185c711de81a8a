"""A choice as one HTML file that opens from disk; see ``document``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from inferometer.analysis.choose_rows import Choice
from inferometer.analysis.choose_words import advice, need_text, sentence
from inferometer.analysis.wording import joined
from inferometer.report.choose_charts import choice_caption, choice_chart
from inferometer.report.choose_tables import choice_document, choice_table
from inferometer.report.document import Top, drawing_of, figure, frame, heading, prose, sheet

__all__ = ["choice_page"]

_CHART = "pareto"


def choice_page(choice: Choice) -> str:
    """The whole page as text: what to take, what to know before, the chart, every setup."""
    chart = choice_chart(choice)
    drawn: list[dict[str, Any]] = [] if chart is None else [drawing_of(_CHART, chart)]
    known = advice(choice)
    links = [("answer", "What to take"), *([("more", "To know more")] if known else [])]
    links += [("pareto", "What is bought with what")] if drawn else []
    links += [("choice", "Setups")]
    title = f"{choice.model_name}: which setup?"
    top = Top(
        "Choice of a setup",
        title,
        links,
        need_text(choice.need),
        f"From {joined([name for name, _ in choice.folders])}",
    )
    sections = (
        *_answer(choice),
        *_more(known),
        *(_figure(choice, drawn[0]) if drawn else ()),
        "<section id='choice' aria-labelledby='choice-title' class='wide'>",
        heading("choice", "Setups"),
        sheet(choice_table(choice), titled=False),
        "</section>",
    )
    return frame(title, top, sections, {"charts": drawn, "records": choice_document(choice)})


def _answer(choice: Choice) -> Iterator[str]:
    one = choice.best or choice.nearest
    yield "<section id='answer' aria-labelledby='answer-title' class='wide'>"
    yield heading("answer", "What to take")
    yield f"<p class='lead'>{prose(sentence(choice))}</p>"
    cautions = [*(one.cautions if one else ()), *choice.notes]
    if cautions:
        yield "<aside class='cautions' aria-labelledby='cautions-title'>"
        yield "<h3 id='cautions-title'>Before you rely on it</h3>"
        yield f"{_list(cautions)}</aside>"
    yield "</section>"


def _more(known: Sequence[str]) -> Iterator[str]:
    if known:
        yield "<section id='more' aria-labelledby='more-title' class='wide'>"
        yield f"{heading('more', 'To know more')}{_list(known)}</section>"


def _figure(choice: Choice, drawing: dict[str, Any]) -> Iterator[str]:
    caption = choice_caption(choice)
    label = f"Chart: what is bought with what. {caption} The table after it holds the same numbers."
    yield "<section id='pareto' aria-labelledby='pareto-title' class='wide'>"
    yield heading("pareto", "What is bought with what")
    yield f"<p class='lead'>{prose(caption)}</p>"
    yield figure(_CHART, "What is bought with what", label, drawing["specification"])
    yield "</section>"


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{prose(one)}</li>' for one in sentences)}</ul>"

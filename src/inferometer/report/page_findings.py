"""Findings as a section of a page: the headlines open, the rest folded, each with its figure and a link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape
from itertools import count
from types import MappingProxyType

from inferometer.analysis.findings import headlines
from inferometer.analysis.marks import MARK_NOTE
from inferometer.analysis.rows import Finding
from inferometer.analysis.wording import plural
from inferometer.report.document import heading, link, prose

__all__ = ["findings_section"]

_LONG = 9
"""Letters of a figure that stand beside its sentence at full size."""

_NO_UNITS: Mapping[str, str] = MappingProxyType({})


def findings_section(
    findings: Sequence[Finding],
    nothing: str,
    *,
    units: Mapping[str, str] = _NO_UNITS,
    cautions: Sequence[str] = (),
) -> Iterator[str]:
    """The section called ``findings``.

    Args:
        findings: In their order.
        nothing: Said where there is none.
        units: Of figures that end in a digit, by what the finding is about.
        cautions: Sentences to be read before.
    """
    yield "<section id='findings' aria-labelledby='findings-title'>"
    yield heading("findings", "What was found")
    first, rest = headlines(findings)
    items = list(map(partial(_finding, units), (*first, *rest), count(1)))
    if first:
        yield f"<ul class='findings'>{''.join(items[: len(first)])}</ul>"
    else:
        yield f"<p class='lead'>{prose(nothing)}</p>"
    if rest:
        yield f"<details><summary>{escape(plural(len(rest), 'more finding'))}</summary>"
        yield f"<ul class='findings'>{''.join(items[len(first) :])}</ul></details>"
    if any(one.marked for one in findings):
        yield f"<p class='note'>{prose(MARK_NOTE)}</p>"
    if cautions:
        yield "<aside class='cautions' aria-labelledby='cautions-title'>"
        yield "<h3 id='cautions-title'>Before you rely on these numbers</h3><ul>"
        yield from (f"<li>{prose(sentence)}</li>" for sentence in cautions)
        yield "</ul></aside>"
    yield "</section>"


def _finding(units: Mapping[str, str], one: Finding, number: int) -> str:
    # The sentence holds the number too, so readers of the page aloud need it only once.
    figure = escape(one.figure or "")
    unit = units.get(one.about) if figure and figure[-1].isdigit() else None
    small = f" <small>{unit}</small>" if unit else ""
    tone = ("" if one.settled else " muted") + (" long" if len(one.figure or "") > _LONG else "")
    shown = f"<span class='figure{tone}' aria-hidden='true'>{figure}{small}</span>"
    name = f"finding-{number}"
    return f"<li id='{name}'>{shown}<p>{prose(one.sentence)}&nbsp;{link(name, f'finding {number}')}</p></li>"

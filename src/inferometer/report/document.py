"""What every page is made of: one HTML file that opens from disk and runs nothing from the records.

Every text from a record is escaped where it is placed; data stands in JSON blocks in which no ``<`` is
left; and the content security policy allows only the page's own scripts and style, by their hashes, and
no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from typing import Any

import vl_convert

from inferometer import __version__
from inferometer.report.cells import Cell, Column, Table
from inferometer.report.characters import unturned
from inferometer.report.keys import series_buttons, without_legends
from inferometer.report.theme import css_variables, with_variables

__all__ = [
    "Top",
    "drawing_of",
    "figure",
    "frame",
    "heading",
    "link",
    "prose",
    "sheet",
]

# Longer texts may be broken into lines.
_SHORT = 28


@dataclass(frozen=True)
class Top:
    """What stands above a page's sections.

    Attributes:
        kind: What sort of page it is.
        title: Its heading.
        links: To its sections: their names and titles.
        machine: What it is about, in a line of its own.
        origin: Where it comes from, likewise.
    """

    kind: str
    title: str
    links: Sequence[tuple[str, str]]
    machine: str | None = None
    origin: str | None = None


def frame(window: str, top: Top, sections: Iterable[str], blocks: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        window: The title of its window.
        top: What stands above the sections.
        sections: Their HTML, in parts.
        blocks: Data of the page by name; ``charts`` are drawn.
    """
    scripts = [_vega(), _asset("page.js")]
    items = "".join(f"<li><a href='#{escape(name)}'>{escape(title)}</a></li>" for name, title in top.links)
    lines = (("machine", top.machine), ("origin", top.origin))
    body = "\n".join(
        (
            "<a class='skip' href='#main'>Skip to the results</a>",
            "<header>",
            _look(),
            f"<p class='kind'>{escape(top.kind)}</p>",
            f"<h1>{escape(top.title)}</h1>",
            *(f"<p class='{name}'>{prose(text)}</p>" for name, text in lines if text is not None),
            f"<nav aria-label='Sections'><ul>{items}</ul></nav>",
            "</header>",
            "<main id='main' tabindex='-1'>",
            *sections,
            "</main>",
            _footer(),
            *(_json_block(name, content) for name, content in blocks.items()),
            *(f"<script>{script}</script>" for script in scripts),
        )
    )
    return f"<!doctype html>\n<html lang='en'>\n{_head(window, scripts)}\n<body>\n{body}\n</body>\n</html>\n"


def _head(title: str, scripts: Sequence[str]) -> str:
    """The head of a page: its title, style, and a policy that lets its own scripts run and nothing else."""
    light, dark = css_variables()
    style = (
        f"\n:root {{ {light} }}\n"
        f"@media screen {{ :root[data-look=dark] {{ {dark} }} }}\n"
        "@media screen and (prefers-color-scheme: dark)"
        f" {{ :root:not([data-look=light]):not([data-look=dark]) {{ {dark} }} }}\n"
        f"{_asset('page.css')}"
    )
    hashes = " ".join(map(_source, scripts))
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src {_source(style)};"
        " base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        (
            "<head>",
            "<meta charset='utf-8'>",
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
        )
    )


def prose(text: str) -> str:
    """Escaped, with numbers kept on one line with their unit."""
    return re.sub(r"(?<=\d) (?=%|ms\b|W\b|images/s|points)", "&nbsp;", escape(text))


def heading(name: str, title: str) -> str:
    """The title of the section called ``name``, with a link to it."""
    own = f"<h2 id='{escape(name)}-title'>{escape(title)}</h2>"
    return f"<div class='heading'>{own}{link(name, title)}</div>"


def link(name: str, title: str, text: str = "#") -> str:
    """A link to the element called ``name``, to be copied or kept as a bookmark."""
    aloud = f"<span class='unseen'> Link to: {escape(title)}</span>"
    return f"<a class='link' href='#{escape(name)}'>{text}{aloud}</a>"


def _look() -> str:
    """The choice between light and dark."""
    options = (("", "as the system"), ("light", "light"), ("dark", "dark"))
    items = "".join(f"<option value='{value}'>{text}</option>" for value, text in options)
    return f"<p class='look'><label>Colours <select id='look'>{items}</select></label></p>"


def _footer() -> str:
    """What stands under every page."""
    return (
        f"<footer><p>Made by Inferometer {escape(__version__)}. This page stands alone:"
        " it needs no network and sends nothing.</p></footer>"
    )


def drawing_of(name: str, chart: Any) -> dict[str, Any]:
    """An Altair chart as the page has it: colours as variables, and no legend of what has buttons."""
    specification = without_legends(with_variables(chart.to_dict()))
    return {"id": name, "specification": unturned(specification)}


def figure(name: str, title: str, label: str, specification: Mapping[str, Any]) -> str:
    """Where the chart called ``name`` is drawn, with a button per series and a slider through its values.

    Args:
        name: Of the chart in the page's block ``charts``.
        title: Of the chart.
        label: What it shows and where the same numbers stand, for readers of the page aloud.
        specification: As the page has it.
    """
    aloud = escape(f"Values of {title}")
    return (
        f"<figure>{series_buttons(specification, title)}"
        f"<div class='chart' id='chart-{escape(name)}' role='img' aria-label='{escape(label)}'>"
        "<div class='panels' aria-hidden='true'></div></div>"
        f"<label class='values'>Values<input type='range' min='0' max='0' value='0' aria-label='{aloud}'>"
        "<span></span></label>"
        "<noscript><p class='muted'>Charts need JavaScript; the table has the same numbers.</p></noscript>"
        "</figure>"
    )


def sheet(table: Table, *, titled: bool, of: str = "") -> str:
    """A table with its note; ``titled``: its title is shown, rather than read aloud alone.

    ``of``: what it is about, where a page has several of one title.
    """
    name = escape(f"table-{table.id}")
    head = "".join(_column(column) for column in table.columns)
    rows, before = [], None
    for row in table.rows:
        # A line of its own where the next model begins.
        start = " class='first'" if before is not None and before != row[0].text else ""
        cells = "".join(_cell(cell, column) for cell, column in zip(row, table.columns, strict=True))
        rows.append(f"<tr{start}>{cells}</tr>")
        before = row[0].text if any(column.name == "Batch" for column in table.columns) else None
    caption = f"<caption{'' if titled else ' class=unseen'}>{escape(table.title)}</caption>"
    note = f"<p class='note'>{prose(table.note)}</p>" if table.note else ""
    about = f"{table.title}: {of}" if of else table.title
    return (
        f"<div class='sheet'><div class='scroll' id='{name}' role='region' tabindex='0'"
        f" aria-label='{escape(f'Table: {about}')}'>"
        f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f"<div class='tools'>{link(f'table-{table.id}', f'table {about}', 'Link')}</div>{note}</div>"
    )


def _json_block(name: str, content: Any) -> str:
    """A block of data that no parser takes for markup: ``<``, ``>`` and ``&`` are written as \\u00xx."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"<script type='application/json' id='{name}'>{text}</script>"


@cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets ``vegaEmbed``."""
    bundle = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    # Inside a script element only these end it or change how it is read.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _column(column: Column) -> str:
    unit = f"<small>{escape(column.unit)}</small>" if column.unit else ""
    right = " class='right'" if column.align == "right" else ""
    return f"<th scope='col'{right}>{escape(column.name)}{unit}</th>"


def _cell(cell: Cell, column: Column) -> str:
    tag = "th" if column.header else "td"
    kinds = ["right"] if column.align == "right" else ["text"]
    if column.align == "left" and len(cell.text) <= _SHORT:
        kinds.append("short")
    if cell.tone != "plain":
        kinds.append(cell.tone)
    scope = " scope='row'" if column.header else ""
    raw = "" if cell.raw is None else f" data-raw='{escape(str(cell.raw))}'"
    hint = "" if cell.hint is None else f" title='{escape(cell.hint)}'"
    return f"<{tag}{scope} class='{' '.join(kinds)}'{raw}{hint}>{escape(cell.text)}</{tag}>"


@cache
def _asset(name: str) -> str:
    """The text of one of the package's own files."""
    return resources.files("inferometer.report").joinpath("assets", name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """What a policy calls the script or style with this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}'"

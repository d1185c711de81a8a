"""What every page is made of: one HTML file that opens from disk and runs nothing from the records.

Every text from a record is escaped where it is placed; data stands in JSON blocks in which no ``<`` is
left; and the content security policy allows only the page's own scripts, by their hashes, and no
connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Any

import vl_convert

from inferometer.report.cells import Cell, Column, Table
from inferometer.report.theme import css_variables

__all__ = ["asset", "json_block", "prose", "sheet", "vega", "whole"]

# Longer texts may be broken into lines.
_SHORT = 28


def whole(title: str, scripts: Sequence[str], body: str) -> str:
    """The whole page around ``body``, which holds the scripts."""
    return f"<!doctype html>\n<html lang='en'>\n{_head(title, scripts)}\n<body>\n{body}\n</body>\n</html>\n"


def _head(title: str, scripts: Sequence[str]) -> str:
    """The head of a page: its title, style, and a policy that lets its own scripts run and nothing else."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline';"
        " base-uri 'none'; form-action 'none'"
    )
    light, dark = css_variables()
    colours = (
        f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    return "\n".join(
        (
            "<head>",
            "<meta charset='utf-8'>",
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<title>{escape(title)}</title>",
            f"<style>\n{colours}{asset('page.css')}</style>",
            "</head>",
        )
    )


def prose(text: str) -> str:
    """Escaped, with numbers kept on one line with their unit."""
    return re.sub(r"(?<=\d) (?=%|ms\b|W\b|images/s|points)", "&nbsp;", escape(text))


def sheet(table: Table, *, titled: bool) -> str:
    """A table with its note; ``titled``: its title is shown, rather than read aloud alone."""
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
    return (
        f"<div class='sheet'><div class='scroll' id='{name}' role='region' tabindex='0'"
        f" aria-label='{escape('Table: ' + table.title)}'>"
        f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{note}</div>"
    )


def json_block(name: str, content: Any) -> str:
    """A block of data that no parser takes for markup: ``<``, ``>`` and ``&`` are written as \\u00xx."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"<script type='application/json' id='{name}'>{text}</script>"


@cache
def vega() -> str:
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
def asset(name: str) -> str:
    """The text of one of the package's own files."""
    return resources.files("inferometer.report").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()

# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Pages of HTML: the status page on nodes, and the report on the operator's machine. They refer to no other file."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any


def text(value: Any) -> str:
    """Return a value as text in HTML: escaped, and without characters that do not print."""
    return html.escape("".join(each if each.isprintable() else "?" for each in str(value)))


def table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. The cells of its rows are HTML."""
    head = "".join(f"<th>{text(name)}</th>" for name in header)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def bullets(items: Iterable[str]) -> str:
    """Return a list. Its items are HTML."""
    return "<ul>\n" + "".join(f"<li>{item}</li>\n" for item in items) + "</ul>"


def document(title: str, style: str, body: str, head: str = "") -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}<title>{text(title)}</title>'
        f"<style>{style}</style></head><body>\n{body}\n</body></html>\n"
    )

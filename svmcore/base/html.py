"""Small tables for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"
_CAPTION = "caption-side:top;text-align:left;font-weight:bold;color:inherit;padding:2px 8px 4px"
_NAME = "text-align:left;font-weight:normal;opacity:0.7;vertical-align:top;white-space:nowrap;padding:2px 16px 2px 8px"
_VALUE = "text-align:left;max-width:60ch;overflow-wrap:anywhere;padding:2px 8px"
"""Colours are those of the page, so that the table can be read on light and on dark ones."""


def html_table(title: str, rows: Mapping[str, Any]) -> str:
    """A table of names and values; nothing in them is taken for markup."""
    body = "".join(
        f'<tr><th scope="row" style="{_NAME}">{escape(str(name))}</th><td style="{_VALUE}">{escape(_text(value))}</td></tr>'
        for name, value in rows.items()
    )
    caption = f'<caption style="{_CAPTION}">svmcore.{escape(title)}</caption>'
    return f'<table style="{_TABLE}">{caption}<tbody>{body}</tbody></table>'


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

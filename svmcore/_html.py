"""Small tables for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any


def html_table(title: str, rows: Mapping[str, Any]) -> str:
    """A table of names and values; nothing in them is taken for markup."""
    left = 'style="text-align:left"'
    body = "".join(
        f"<tr><th {left}>{escape(str(name))}</th><td {left}>{escape(_text(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>svmcore.{escape(title)}</caption><tbody>{body}</tbody></table>"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""One report, two dresses: Markdown with pictures beside it, and a single HTML file."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass, field
from typing import Any

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem; color: #222; }
h1 { font-size: 1.9rem; line-height: 1.25; margin: 0 0 .3rem; } h2 { margin-top: 2.6rem; border-bottom: 2px solid #d1495b; }
.lead { font-size: 1.15rem; color: #444; margin-top: 0; } .note { color: #555; font-size: .92rem; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .22rem .7rem; text-align: right; border-bottom: 1px solid #e2e2e2; } th { border-bottom: 2px solid #999; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr.strong td { font-weight: 700; background: #fdf1f2; }
img { max-width: 100%; } summary { cursor: pointer; color: #30638e; margin: .6rem 0; } .wide { overflow-x: auto; }
nav a { margin-right: 1rem; color: #30638e; }
"""


@dataclass
class Grid:
    """A table; `strong` marks rows that are ours."""

    columns: list[str]
    rows: list[list[str]]
    strong: set[int] = field(default_factory=set)

    def markdown(self) -> str:
        align = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = [self.columns, align, *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

    def html(self) -> str:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        body = "".join(
            f"<tr{' class=strong' if number in self.strong else ''}>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
            + "</tr>"
            for number, row in enumerate(self.rows)
        )
        return f"<div class=wide><table><tr>{head}</tr>{body}</table></div>"


@dataclass
class Picture:
    """A PNG with the words that stand for it."""

    name: str
    alt: str
    png: bytes

    def markdown(self) -> str:
        return f"![{self.alt}]({self.name}.png)"

    def html(self) -> str:
        data = base64.b64encode(self.png).decode()
        return f'<img alt="{html.escape(self.alt)}" src="data:image/png;base64,{data}">'


@dataclass
class Text:
    """A paragraph."""

    words: str
    note: bool = False

    def markdown(self) -> str:
        return self.words

    def html(self) -> str:
        return f"<p{' class=note' if self.note else ''}>{html.escape(self.words)}</p>"


@dataclass
class Folded:
    """What only some readers want."""

    title: str
    blocks: list[Any]

    def markdown(self) -> str:
        return "\n\n".join([f"**{self.title}**", *(block.markdown() for block in self.blocks)])

    def html(self) -> str:
        inside = "".join(block.html() for block in self.blocks)
        return f"<details><summary>{html.escape(self.title)}</summary>{inside}</details>"


@dataclass
class Section:
    """A heading with blocks below it."""

    title: str
    blocks: list[Any]


def markdown(title: str, lead: str, sections: list[Section]) -> str:
    """The report as Markdown."""
    parts = [f"# {title}", lead]
    for section in sections:
        parts += [f"## {section.title}", *(block.markdown() for block in section.blocks)]
    return "\n\n".join(parts) + "\n"


def page(title: str, lead: str, sections: list[Section]) -> str:
    """The report as one HTML file."""
    marks = {section.title: f"s{number}" for number, section in enumerate(sections)}
    links = "".join(f'<a href="#{mark}">{html.escape(name)}</a>' for name, mark in marks.items())
    body = "".join(
        f'<h2 id="{marks[section.title]}">{html.escape(section.title)}</h2>'
        + "".join(block.html() for block in section.blocks)
        for section in sections
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><p class=lead>{html.escape(lead)}</p><nav>{links}</nav>{body}</html>\n"
    )


def pictures(sections: list[Section]) -> list[Picture]:
    """Every picture of a report."""
    found: list[Picture] = []

    def collect(blocks: list[Any]) -> None:
        for block in blocks:
            if isinstance(block, Picture):
                found.append(block)
            elif isinstance(block, Folded):
                collect(block.blocks)

    for section in sections:
        collect(section.blocks)
    return found

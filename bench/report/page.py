"""The report as Markdown, with its pictures beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Grid:
    """A table."""

    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        align = ["---", *["---:"] * (len(self.columns) - 1)]
        lines = [self.columns, align, *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


@dataclass
class Picture:
    """A PNG with the words that stand for it."""

    name: str
    alt: str
    png: bytes

    def markdown(self) -> str:
        return f"![{self.alt}]({self.name}.png)"


@dataclass
class Part:
    """Blocks of a section that have a title of their own."""

    title: str
    blocks: list[Any]

    def markdown(self) -> str:
        return f"**{self.title}**\n\n{_joined(self.blocks)}"


@dataclass
class Section:
    """A heading with blocks below it: paragraphs, which are strings, tables, pictures and parts."""

    title: str
    blocks: list[Any]

    def markdown(self) -> str:
        return f"## {self.title}\n\n{_joined(self.blocks)}"


def _joined(blocks: list[Any]) -> str:
    return "\n\n".join(block if isinstance(block, str) else block.markdown() for block in blocks)


def markdown(title: str, lead: str, sections: list[Section]) -> str:
    """The report."""
    return _joined([f"# {title}", lead, *sections]) + "\n"


def pictures(blocks: list[Any]) -> list[Picture]:
    """Every picture of sections, or of blocks."""
    found: list[Picture] = []
    for block in blocks:
        if isinstance(block, Picture):
            found.append(block)
        elif isinstance(block, Section | Part):
            found += pictures(block.blocks)
    return found

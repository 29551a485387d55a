"""Do the links of the built site lead somewhere?

    python -m sphinx docs build/site
    python tools/check_links.py build/site

Every link to a page, a picture or a script, and to a place within a page, is followed. Links to other servers are not: a
build needs no network.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page, and the places in it that others can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag links to, and what it is called."""
        for name, value in attrs:
            if value is None:
                continue
            if name in ("href", "src"):
                self.links.append(value)
            elif name in ("id", "name"):
                self.places.add(value)


def faults(site: Path) -> list[str]:
    """The links that lead nowhere, each with its page."""
    files = [file for file in sorted(site.rglob("*.html")) if "_static" not in file.parts]  # parts of the theme
    pages = {file.resolve(): Page(file.read_text(encoding="utf-8")) for file in files}
    found = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target /= "index.html"
            missing = not target.exists()
            place = unquote(parts.fragment)
            if missing or (place and target in pages and place not in pages[target].places):
                found.append(f"{file.relative_to(site.resolve())}: {link} leads nowhere")
    return sorted(set(found))


def main(site: str) -> int:
    """Say what is wrong; the exit status."""
    wrong = faults(Path(site))
    count = sum(1 for _ in Path(site).rglob("*.html"))
    print("\n".join(wrong) or f"the links of {count} pages lead somewhere")
    return int(bool(wrong) or not count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

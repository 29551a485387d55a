"""What notebooks show: everything that a repr says, and no markup from labels or names."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import svmcore

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
EVIL = '<script>alert("x")</script>&amp;\''
Y = np.where(X[:, 0] > 0, EVIL, "no")
THREE = np.where(X[:, 1] > 0.7, "other", Y)


class Reader(HTMLParser):
    """The tags of a page, and its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)
        self.cells += [""] if tag in ("th", "td", "caption") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells[-1] += data


MADE = {
    "Solution": lambda: svmcore.train_svc(X, Y, 2.0),
    "Machines": lambda: svmcore.train_classes(X, THREE, 2.0),
    "Path": lambda: svmcore.svm_path(X, Y, C_max=5.0),
    "PathCV": lambda: svmcore.cv_path(X, Y, C_max=5.0, cv=3),
}


@pytest.mark.parametrize("kind", MADE)
def test_tables_of_notebooks(kind):
    page = Reader()
    page.feed(MADE[kind]()._repr_html_())
    page.close()
    assert page.open == []
    assert page.seen == {"table", "caption", "tbody", "tr", "th", "td"}
    assert page.cells[0] == f"svmcore.{kind}"
    rows = dict(zip(page.cells[1::2], page.cells[2::2], strict=True))
    assert any(EVIL in value for value in rows.values())  # as text
    assert "rbf" in rows.values()
    assert not {"", "nan", "None"} & set(rows.values())


def test_a_table_computes_nothing():
    solution = svmcore.train_svc(X, Y, 2.0, solver="block")
    assert callable(solution.measured)
    assert "relative gap" not in solution._repr_html_()
    assert solution.relative_gap >= 0.0
    assert "relative gap" in solution._repr_html_()

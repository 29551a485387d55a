"""The Python examples of README and docs/python.md run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.compiled
def test_python_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile(example, str(README), "exec"), names)
    assert names["machine"].converged
    assert names["path"].certify().relative_gap < 1e-8


@pytest.mark.compiled
def test_the_page_on_python_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    page = README.parent / "docs" / "python.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile(example, str(page), "exec"), names)
    assert names["again"].feature_names == ("age", "income")
    assert capsys.readouterr().out.startswith("{'C': 10.0, 'loss': 'hinge', 'kernel': 'rbf', 'gamma': 0.5")

"""The README's Python example runs as printed."""

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

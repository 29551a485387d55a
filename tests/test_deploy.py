"""The page on deployment: what its C source computes."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.once
PAGE = Path(__file__).parents[1] / "docs" / "deploy.md"


def test_the_c_source_of_the_page_is_the_machine(tmp_path, monkeypatch, capsys):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(compile(code, str(PAGE), "exec"), names)
    subprocess.run(
        [
            compiler,
            "-O2",
            "-Wall",
            "-Wno-missing-braces",
            "-Werror",
            "-shared",
            "-fPIC",
            "machine.c",
            "-o",
            "machine.so",
            "-lm",
        ],
        check=True,
    )
    decision = ctypes.CDLL(str(tmp_path / "machine.so")).decision
    decision.restype = ctypes.c_double
    X = names["X"]
    found = [decision((ctypes.c_double * X.shape[1])(*row)) for row in X]
    np.testing.assert_allclose(found, names["machine"].decision_function(X), atol=1e-9)

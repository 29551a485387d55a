"""The examples of README, docs/python.md and docs/cli.md run as printed, and their figures are true. Commands exist."""

from __future__ import annotations

import ast
import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from svmcore.cli import main, parsed

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CLI = ROOT / "docs" / "cli.md"


def blocks(language: str, file: Path = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", file.read_text(encoding="utf-8"), re.DOTALL)


def literal(comment: str):
    """The value that a comment states, or None where it is prose."""
    try:
        return ast.literal_eval(comment)
    except (ValueError, SyntaxError):
        return None


@pytest.mark.compiled
def test_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("python")
    names: dict = {}
    stated = 0
    for line in example.splitlines():
        code, _, comment = line.partition("  # ")
        value = literal(comment)
        if value is None:
            exec(compile(code, str(README), "exec"), names)
        else:
            assert eval(code, names) == value, line
            stated += 1
    assert stated == 4
    assert names["machine"].converged


def test_commands_are_known():
    found = {}
    for file in [README, *(ROOT / "docs").glob("*.md")]:
        commands = [line for block in blocks("sh", file) for line in block.splitlines() if line.startswith("svmcore ")]
        for command in commands:
            parsed(command.partition("#")[0].split()[1:])
        found[file] = len(commands)
    assert found[README] == 2
    assert found[CLI] >= 8  # they are found at all; a page may gain one


def figures(text: str) -> list[str]:
    """The lines of an output, without those figures that differ between machines."""
    text = re.sub(r"^(seconds +).*", r"\1", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(changes +)[\d,]+ at [\d,]+ values(.* at most )[\d,]+", r"\1\2", text, flags=re.MULTILINE
    )  # ties are broken by rounding
    text = re.sub(
        r"(at most )\S+( % from)|(gap )\S+?(,)|(violation )\S+?(\)| \()|(infeasibility )\S+", r"\1\2\3\4\5\6\7", text
    )
    text = re.sub(r"(\(dual )[\d.]+", r"\1", text)
    return text.splitlines()


@pytest.mark.compiled
def test_sessions_of_the_command_line_are_true(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sessions = [block for block in blocks("text", CLI) if block.startswith("$ svmcore ")]
    assert len(sessions) == 4
    for session in sessions:
        command, _, expected = session.partition("\n")
        words = command.split()[2:]
        assert main(words if words[0] in ("predict", "verify") else [*words, "-q"]) == 0
        assert figures("".join(capsys.readouterr())) == figures(expected)


def test_description_for_an_index_needs_nothing_beside_it():
    """There a relative link, or a picture, leads nowhere."""
    text = (ROOT / "docs" / "description.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r"^readme = \"docs/description.md\"$", project, re.MULTILINE)
    for link in re.findall(r"\]\(([^)]*)\)", text):
        assert link.startswith("https://")
    (example,) = blocks("python", ROOT / "docs" / "description.md")
    compile(example, "description.md", "exec")


def test_relative_links_lead_somewhere():
    for file in [README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", file.read_text(encoding="utf-8")):
            target = re.sub(
                r"^auto_examples/(plot_\w+)\.rst$", r"gallery/\1.py", link
            )  # pages made of the gallery's scripts
            target = target.replace("auto_examples/index.rst", "gallery")
            assert link.startswith("https://") or (file.parent / target).exists(), f"{file.name}: {link}"


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


# ---- the page on deployment ------------------------------------------------------------------------------------------


PAGE = Path(__file__).parents[1] / "docs" / "deploy.md"


def test_the_c_source_of_the_page_is_the_machine(tmp_path, monkeypatch, capsys):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(compile(code, str(PAGE), "exec"), names)
    flags = "-O2 -Wall -Wno-missing-braces -Werror -shared -fPIC machine.c -o machine.so -lm"
    subprocess.run([compiler, *flags.split()], check=True)
    decision = ctypes.CDLL(str(tmp_path / "machine.so")).decision
    decision.restype = ctypes.c_double
    X = names["X"]
    found = [decision((ctypes.c_double * X.shape[1])(*row)) for row in X]
    np.testing.assert_allclose(found, names["machine"].decision_function(X), atol=1e-9)

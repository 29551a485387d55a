"""README's examples run as printed, and the figures in their comments are true. Its commands exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from svmcore.cli.parser import build

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


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
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("svmcore ")]
    assert len(commands) == 2
    for command in commands:
        build().parse_args(command.partition("#")[0].split()[1:])


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
            assert link.startswith("https://") or (file.parent / link).exists(), f"{file.name}: {link}"

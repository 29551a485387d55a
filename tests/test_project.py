"""What stands around the library agrees with it: extras, versions, the reference, the workflows."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import svmcore
import svmcore.distributed
from svmcore.compiler import fast as _fast

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

IMPORTED_AS = {
    "scikit-learn": "sklearn", "scikit-learn-intelex": "sklearnex", "libsvm-official": "libsvm",
    "liblinear-official": "liblinear", "thundersvm-cpu": "thundersvm", "svmcore-compiled": "svmcore_compiled",
    "myst-parser": "myst_parser", "pydata-sphinx-theme": "pydata_sphinx_theme", "sphinx-copybutton": "sphinx_copybutton",
    "sphinx-gallery": "sphinx_gallery", "pytest-xdist": "xdist", "pytest-cov": "pytest_cov", "pre-commit": "pre_commit",
}  # fmt: skip
USED_IN = {  # where an extra's packages are used; the default is the library
    "bench": ["bench"],
    "test": ["tests"],
    "docs": ["docs/conf.py", "docs/gallery", "docs/start.md", "docs/python.md", ".ci/run"],
    "dev": [".ci/run", "pyproject.toml", "CONTRIBUTING.md", ".github"],
}
TYPES_ONLY = {"scipy-stubs"}  # read by mypy
BY_OPTION = {"pytest-xdist": r"-n 2", "pytest-cov": r"--cov"}


def texts(places: list[str]) -> list[str]:
    paths = [
        path for place in places for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))
    ]
    return [
        path.read_text(encoding="utf-8")
        for path in paths
        if path.is_file() and path.suffix in ("", ".py", ".md", ".toml", ".yml")
    ]


@functools.cache
def imported(text: str) -> set[str]:
    """The packages that a program imports, or names in a string, as Sphinx's settings do."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return set(re.findall(r"^(?:>>> )?(?:import|from) (\w+)", text, re.MULTILINE))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {name.split(".")[0] for name in names}


def packages(extra: str) -> list[str]:
    names = [re.match(r"[\w-]+", item)[0] for item in PROJECT["project"]["optional-dependencies"][extra]]
    return [name for name in names if name != "svmcore"]


def test_nothing_is_asked_for_in_vain():
    for extra in PROJECT["project"]["optional-dependencies"]:
        something_needs(extra)


def something_needs(extra):
    found = texts(USED_IN.get(extra, ["svmcore"]))
    names = set().union(*(imported(text) for text in found))
    whole = "\n".join(found)
    for package in packages(extra):
        used = IMPORTED_AS.get(package, package).replace("-", "_") in names
        said = extra in ("dev", "docs", "test") and (
            package in whole or re.search(BY_OPTION.get(package, r"\Z\w"), whole)
        )
        assert used or said or package in TYPES_ONLY, f"nothing uses {package} of [{extra}]"


def test_all_has_what_users_need():
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(re.search(r"\[(.*)\]", everything)[1].split(","))
    assert named == set(extras) - {"all", "bench", "test", "docs", "dev", "fast-start"}


def test_the_version_is_one():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == svmcore.__version__
    newest = re.search(r"^## (\d+\.\d+\.\d+) - ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest[1] == svmcore.__version__


def test_workflows_test_the_pythons_that_are_promised():
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert PROJECT["project"]["requires-python"] == f">={promised[0]}"  # no end: the next Python is not refused
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {promised[0]} and later." in readme
    for name in ("test.yml", "release.yml"):
        text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
        assert re.findall(r"python: \[(.*)\]", text) == [", ".join(f'"{python}"' for python in promised)]


def test_numba_has_no_upper_bound_but_where_it_has_no_wheels():
    """The oldest that is allowed is the first of those that were tested."""
    wanted = [item.split("; ") for item in PROJECT["project"]["dependencies"] if item.startswith("numba")]
    major, minor = min(_fast.TESTED)
    oldest = f"numba>={major}.{minor}"
    assert [bounds for bounds, _ in wanted] == [oldest, f"{oldest},<0.63"]
    intel = "sys_platform == 'darwin' and platform_machine == 'x86_64'"
    assert [where for _, where in wanted] == ["sys_platform != 'darwin' or platform_machine != 'x86_64'", intel]


def test_every_numba_of_the_table_is_tested():
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"numba: \[(.*)\]", text)
    assert listed == ", ".join(f'"{major}.{minor}"' for major, minor in sorted(_fast.TESTED))
    page = (ROOT / "docs" / "compile.md").read_text(encoding="utf-8")
    for (major, minor), obstacle in _fast.TESTED.items():
        assert re.search(rf"\| {major}\.{minor}\.\d+ \| {'plain' if obstacle else 'fast'} \|", page)


def test_the_reference_names_everything_public():
    reference = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   (\w+)$", reference, re.MULTILINE)) | set(
        re.findall(r"py:function:: (\w+)", reference)
    )
    assert listed == (set(dir(svmcore)) | set(svmcore.distributed.__all__)) - {"__version__"}


def test_every_page_is_in_the_guide():
    """A page that no table of contents names is found by nobody; Sphinx would say so, too, but later."""
    contents = set()
    for page in ("index", "guide", "how"):
        (block,) = re.findall(
            r"```\{toctree\}\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL
        )
        contents |= {
            re.sub(r".*<(.*)>", r"\1", line) for line in block.splitlines() if line and not line.startswith(":")
        }
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index", "description"} <= contents


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check_dist():
    return tool("check_dist")


def test_dead_links_are_noticed(tmp_path, capsys):
    check = tool("check_links")
    (tmp_path / "a.html").write_text('<p id="one"><a href="b.html#two"><a href="#one"><a href="https://x.org/none">')
    (tmp_path / "b.html").write_text('<p id="two"><img src="a.html"><a href="a.html#one">')
    assert check.main(str(tmp_path)) == 0
    (tmp_path / "b.html").write_text('<img src="none.png"><a href="a.html#nowhere">')
    assert check.faults(tmp_path) == [
        "a.html: b.html#two leads nowhere", "b.html: a.html#nowhere leads nowhere", "b.html: none.png leads nowhere",
    ]  # fmt: skip
    assert check.main(str(tmp_path)) == 1
    assert "none.png" in capsys.readouterr().out


def test_a_distribution_that_lacks_a_file_is_noticed(check_dist, tmp_path):
    wheel = tmp_path / "svmcore-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in sorted(check_dist.contents() - {"svmcore/py.typed"}):
            archive.writestr(name, "")
        archive.writestr("tests/test_smo.py", "")
        archive.writestr(
            "svmcore-9.9.9.dist-info/METADATA", "License-Expression: BSD-3-Clause\nRequires-Python: >=3.11\n"
        )
        archive.writestr("svmcore-9.9.9.dist-info/licenses/LICENSE", "")
    faults = check_dist.wheel_faults(wheel)
    assert [fault.partition(" ")[2] for fault in faults] == [
        "lacks svmcore/py.typed",
        "holds tests/test_smo.py",
        "lacks entry_points.txt",
    ]

    sdist = tmp_path / "svmcore-9.9.9.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in sorted({*check_dist.NEEDED, *check_dist.sources(), "docs/auto_examples/x.rst"} - {"README.md"}):
            entry = tarfile.TarInfo(f"svmcore-9.9.9/{name}")
            archive.addfile(entry)
    assert [fault.partition(" ")[2] for fault in check_dist.sdist_faults(sdist)] == [
        "lacks README.md",
        "holds docs/auto_examples/x.rst",
    ]


def test_every_compiled_home_is_broken_by_the_tests_of_tests():
    """`tools/mutate.py` names each home, and tests that exist."""
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "tools" / "mutate.py")
    mutate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutate)
    sources = {
        file.relative_to(ROOT / "svmcore").with_suffix("").as_posix() for file in (ROOT / "svmcore").rglob("*.py")
    }
    homes = {name for name in sources if name.endswith(("_jit", "_kernels")) or name.startswith("simd/")}
    only_compiled = {"simd/__init__", "simd/lanes"}
    assert homes - only_compiled <= set(mutate.TESTS) <= sources
    words = {word.partition(":")[0] for row in mutate.TESTS.values() for word in row.split()}
    assert [word for word in words if not (ROOT / "tests" / f"test_{word}.py").is_file()] == []

"""The documentation site: `python -m sphinx -W -n docs build/site` (extra `docs`). Nothing is downloaded."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("SVMCORE_QUIET", "1")

import matplotlib as mpl

mpl.use("agg")

from sphinx_gallery.sorting import ExplicitOrder

import svmcore

project = "svmcore"
author = "The svmcore developers"
copyright = author  # noqa: A001
version = release = svmcore.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["description.md", "gallery"]
default_role = "code"
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]  # the function `last_modified` of the gallery cannot be pickled

# Own names must exist; those of numpy, scipy and Python are not looked up, because that needs a network.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!svmcore\b).*")]

autodoc_typehints = "none"  # the docstrings say it in words
autodoc_member_order = "bysource"
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist", "substitution"]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# In the order in which a person needs them. A script that is missing here ends the build.
GALLERY = [
    "spirals", "path_in_pictures", "gamma", "tolerance", "classes", "weights", "probabilities", "permutation_test",
    "searchlight", "text", "wrong_labels", "regression_path", "quantiles", "one_class", "gaussian_process", "own_kernel",
]  # fmt: skip

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": ExplicitOrder([f"plot_{name}.py" for name in GALLERY]),
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_",),
    "doc_module": ("svmcore",),
    "backreferences_dir": "auto_examples/backreferences",
    "inspect_global_variables": True,
    "matplotlib_animations": (True, "jshtml"),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "plot_gallery": "True",
    "remove_config_comments": True,
    "reset_modules": ("matplotlib",),
}
warnings.filterwarnings("error", module=r"svmcore|__main__")


def speed() -> dict[str, str]:
    """The front page's row, from README's table: for every peer the least and the largest of its means."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    table = re.search(r"(?:^\|.*\n)+", text[text.index("| class of problems |") :], re.MULTILINE)
    assert table is not None
    head, _, *rows = [line.strip("| ").split("|") for line in table[0].splitlines()]
    peers = {name.strip(): k for k, name in enumerate(head) if k > 1 and not name.strip().startswith("worst")}
    cells = {}
    for peer, k in peers.items():
        found = [float(row[k].strip(" *").rstrip("x")) for row in rows if row[k].strip() != "-"]
        if found:
            cells[peer] = f"{min(found):g} to {max(found):g}"
    lines = [list(cells), ["---"] * len(cells), list(cells.values())]
    return {"speed": "\n".join(f"| {' | '.join(line)} |" for line in lines), "n_classes": str(len(rows))}


myst_substitutions = speed()

html_theme = "pydata_sphinx_theme"
html_title = f"svmcore {release}"
html_static_path = ["_static"]
html_css_files = ["svmcore.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "start", "cli", "changes")}
html_theme_options = {
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


_ENTRY = re.compile(r"^(\S.*?) : (.*)$")
_CODE = re.compile(r"(``.*?``)")
_SECTIONS = {"Parameters", "Attributes"}


def plain(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain English: `name : sentences`, of which numpydoc would take the first line for a type, and bars."""
    section = ""
    result: list[str] = []
    for k, line in enumerate(lines):
        if k + 1 < len(lines) and lines[k + 1] and set(lines[k + 1]) == {"-"}:
            section = line
        entry = _ENTRY.match(line) if section in _SECTIONS else None
        if entry:
            result += [entry[1], f"    {entry[2]}"]
        elif section in _SECTIONS and line.startswith("        "):
            result.append(line[4:])
        else:
            result.append(line)
    lines[:] = [
        "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in _CODE.split(line))
        for line in result
    ]


def unmade(app: Any, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:
    """Results are made by functions: nobody calls their constructors."""
    made = {
        "Solution",
        "Machines",
        "Path",
        "OneClassPath",
        "PathCV",
        "LeaveOneOut",
        "GPSolution",
        "StepCurve",
        "LossCurve",
    }
    return ("", None) if what == "class" and name.rpartition(".")[2] in made else None


def inherited(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """What estimators have from scikit-learn is described there."""
    return True if (getattr(obj, "__module__", None) or "").startswith("sklearn") else None


def setup(app: Any) -> None:
    """Before numpydoc, whose hook has the default priority of 500."""
    app.connect("autodoc-process-signature", unmade)
    app.connect("autodoc-skip-member", inherited)
    app.connect("autodoc-process-docstring", plain, priority=400)

"""scikit-learn's own tests of its support vector machines, with the classes of this library in place of theirs.

docs/sklearn.md lists the tests that do not hold, with the reasons. A listed test that passes is an error, and so is a name in
the list that no test has. The list is about the tests of scikit-learn 1.9; older ones ask for other things.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import sklearn.svm
from sklearn.svm import tests as theirs
from sklearn.utils.fixes import parse_version

import svmcore
from svmcore.compiler.jit import DISABLED

NAMES = ("SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM", "LinearSVC", "LinearSVR")
MODULES = ("test_svm", "test_sparse", "test_bounds")
PAGE = Path(__file__).parents[1] / "docs" / "sklearn.md"
LISTED = dict(re.findall(r"^\| `(test_[^`]*)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))

if DISABLED:
    pytest.skip("needs compiled code", allow_module_level=True)
if parse_version(sklearn.__version__) < parse_version("1.9"):
    pytest.skip("the page lists tests of scikit-learn 1.9", allow_module_level=True)
pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]


def loaded(name):
    """A module of scikit-learn's tests, read anew while its library has our classes."""
    original = {each: getattr(sklearn.svm, each) for each in NAMES}
    ours = {each: getattr(svmcore, each) for each in NAMES}
    spec = importlib.util.spec_from_file_location(f"theirs_{name}", Path(theirs.__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    try:
        vars(sklearn.svm).update(ours)
        spec.loader.exec_module(module)
    finally:
        vars(sklearn.svm).update(original)
    if hasattr(module, "svm"):
        module.svm = SimpleNamespace(**{**vars(sklearn.svm), **ours})
    return module


def few(mark):
    """Its parameters: of several kinds of sparse arrays the first runs here, the others in the gate."""
    name, values = mark.args[0], list(mark.args[1])
    if isinstance(name, str) and name.endswith("_container") and "," not in name:
        values[1:] = [pytest.param(value, marks=pytest.mark.ci) for value in values[1:]]
    return pytest.mark.parametrize(name, values, *mark.args[2:], **mark.kwargs).mark


def collected():
    for name in MODULES:
        for key, function in vars(loaded(name)).items():
            if key.startswith("test_") and callable(function):
                function.pytestmark = [
                    few(mark) if mark.name == "parametrize" else mark for mark in getattr(function, "pytestmark", [])
                ]
                yield key.replace("test_", f"{name}__", 1), function


for _name, _function in collected():
    globals()[f"test_{_name.removeprefix('test_')}"] = _function


def test_the_example_of_the_page_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    score, gap, converged = capsys.readouterr().out.split()
    assert float(score) > 0.95
    assert float(gap) < 1.0
    assert converged == "True"


def reason(name):
    return next(
        (why for pattern, why in LISTED.items() if fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))), None
    )


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture(autouse=True)
def _listed(request):
    why = reason(request.node.name)
    if why is not None:
        request.applymarker(pytest.mark.xfail(reason=why, strict=True))


def test_every_name_in_the_list_is_a_test(request):
    names = [item.name for item in request.session.items if item.fspath == request.node.fspath]
    if len(names) < 200:
        pytest.skip("only some of the tests were asked for")
    unknown = [each for each in LISTED if not any(reason(name) == LISTED[each] for name in names)]
    assert unknown == []
    assert LISTED

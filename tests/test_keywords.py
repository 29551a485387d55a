"""Words that users of other libraries type, and slips: each refused with the right word, in the name of what was called."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from refusals import refused
from warned import heard

import svmcore
from svmcore import _keywords, solvers
from svmcore.problem import border, formulations

pytestmark = pytest.mark.once

X = np.random.default_rng(0).normal(size=(300, 3))
Y = np.where(X[:, 0] * X[:, 1] + 0.2 * X[:, 2] > 0, 1, -1)
FUNCTIONS = {
    "train_svc": lambda **more: svmcore.train_svc(X, Y, **more),
    "train_svr": lambda **more: svmcore.train_svr(X, X[:, 0], **more),
    "svm_path": lambda **more: svmcore.svm_path(X, Y, **more),
    "leave_one_out": lambda **more: svmcore.leave_one_out(X, Y, **more),
    "certificate": lambda **more: svmcore.certificate(X, Y, np.zeros(300), 0.0, **more),
    "duality_gap": lambda **more: svmcore.duality_gap(X, Y, np.zeros(300), 0.0, **more),
    "kkt_violation": lambda **more: svmcore.kkt_violation(X, Y, np.zeros(300), **more),
    "gp_regression": lambda **more: svmcore.gp_regression(X, X[:, 0], noise=0.1, **more),
    "svr_path": lambda **more: svmcore.svr_path(X, X[:, 0], **more),
    "epsilon_path": lambda **more: svmcore.epsilon_path(X, X[:, 0], **more),
    "quantile_path": lambda **more: svmcore.quantile_path(X, X[:, 0], **more),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_refuses_slips_in_its_own_name(name):
    refused(f"^{name} has no parameter 'gama'; did you mean 'gamma'\\?$", FUNCTIONS[name], gama=1.0)
    refused(f"^{name} has no parameter 'n_jobs'; it is called n_threads here$", FUNCTIONS[name], n_jobs=2)
    refused(f"^{name} has no parameter 'probability'; it is not there; use ", FUNCTIONS[name], probability=True)
    refused(f"^{name} has no parameter 'zzz'; its parameters are X, y, ", FUNCTIONS[name], zzz=True)


@pytest.mark.parametrize(
    ("name", "word", "answer"),
    [
        ("train_svc", "cache_size", "it is called cache_mb here"),
        (
            "train_svc",
            "engine",
            "the functions and estimators of svmcore.distributed, which train over parts and files, have it",
        ),
        ("train_svc", "class_weigth", "did you mean 'class_weight'?"),
        ("train_svc", "Gamma", "did you mean 'gamma'?"),
        ("train_svc", "c", "did you mean 'C'?"),
        ("train_svc", "shrinkage", "did you mean 'shrinking'?"),
        ("train_svc", "decision_function_shape", "it is not there: two classes have one decision value a row"),
        ("svm_path", "nu", "train_svc, train_svr, train_one_class have it"),
        ("train_svc", "epsilon", "train_svr, cv_path, leave_one_out, certificate, svr_path have it"),
        ("train_svc", "lambda_min", "svm_path, cv_path, svr_path, quantile_path, one_class_path have it"),
        ("train_svc", "noise", "gp_regression has it"),
        ("train_svr", "class_weight", "train_svc, svm_path, cv_path have it"),
        (
            "svm_path",
            "C",
            "train_svc, train_svr, leave_one_out, certificate, duality_gap, kkt_violation, epsilon_path have it",
        ),
        ("svm_path", "c_max", "did you mean 'C_max'?"),
        ("gp_regression", "class_weight", "train_svc, svm_path, cv_path have it"),
    ],
)
def test_words_of_other_libraries_and_functions(name, word, answer):
    refused(f"^{re.escape(f'{name} has no parameter {word!r}; {answer}')}$", FUNCTIONS[name], **{word: 1})


def test_a_regression_has_no_class_weights():
    for function in (svmcore.leave_one_out, svmcore.duality_gap):
        more = {} if function is svmcore.leave_one_out else {"alpha": np.zeros(300), "intercept": 0.0}
        with pytest.raises(svmcore.InputError, match="class_weight belongs to classification; with epsilon"):
            function(X, X[:, 0], **more, epsilon=0.1, class_weight="balanced")


def test_the_words_in_the_signatures_are_the_words_that_are_known():
    assert set(get_args(_keywords.SolverName)) == {"auto", *solvers.names()}
    assert set(get_args(_keywords.KernelName)) == set(border.KERNELS)
    assert get_args(_keywords.Stopping) == border.STOPPING
    assert get_args(_keywords.SVCLoss) == formulations.SVC_LOSSES
    assert get_args(_keywords.SVRLoss) == formulations.SVR_LOSSES
    assert set(_keywords.SolverOptions.__annotations__) == {
        key for name in solvers.names() for key in solvers.options(name)
    }
    assert set(_keywords._FUNCTIONS) - {"cv_path", "train_one_class", "one_class_path"} == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names_and_signatures_are_those_of_the_function(name):
    function = getattr(svmcore, name)
    assert function.__name__ == name
    assert list(inspect.signature(function).parameters)[:2] == ["X", "y"]
    assert "Examples" in function.__doc__ or ">>>" in function.__doc__


@pytest.mark.parametrize("options", [{"shrinking": True}, {"face_steps": True, "max_passes": 5}, {"rule": "mvp"}])
def test_an_option_does_not_change_what_auto_runs(options):
    plain, given = svmcore.train_svc(X, Y), svmcore.train_svc(X, Y, **options)
    assert plain.solver == given.solver == "small"
    assert np.array_equal(plain.alpha, given.alpha)


def test_auto_hands_an_option_to_the_solver_that_has_it():
    few = svmcore.train_svc(X[:50], Y[:50], tol=1e-9, rule="simplified", max_iter=-1)
    assert few.solver == "smo"
    assert few.n_iter != svmcore.train_svc(X[:50], Y[:50], tol=1e-9).n_iter
    refused("rule='best' is not known", svmcore.train_svc, X, Y, rule="best")


def test_options_of_other_solvers_are_refused_with_their_owners():
    refused(r"^solver 'auto' has no option 'omega'; .*; solver='adatron' has it$", svmcore.train_svc, X, Y, omega=1.0)
    with pytest.raises(svmcore.InputError, match=r"^solver 'block' has no option 'rule'; it has no .*'smo' has it$"):
        svmcore.train_svc(X, Y, solver="block", rule="mvp")


# ---- the ends of a path in terms of C ----------------------------------------------------------------------------------


def test_the_ends_of_a_path_may_be_given_as_C():
    ours, theirs = (
        svmcore.svm_path(X, Y, C_min=0.5, C_max=20.0),
        svmcore.svm_path(X, Y, lambda_max=2.0, lambda_min=0.05),
    )
    assert np.array_equal(ours.lambdas, theirs.lambdas)
    assert ours.C_range[1] == 20.0
    mixed = svmcore.svm_path(X, Y, lambda_max=2.0, C_max=20.0)
    assert np.array_equal(mixed.lambdas, theirs.lambdas)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (
            {"C_max": 10.0, "lambda_min": 0.5},
            "C_max=10.0 and lambda_min=0.5 say the same, since C = 1 / lambda; give one",
        ),
        ({"C_min": 1.0, "lambda_max": 2.0}, "C_min=1.0 and lambda_max=2.0 say the same"),
        ({"C_max": 0.0}, "C_max=0.0 is out of range; it must be greater than 0"),
        ({"C_max": np.inf}, "C_max=inf is not finite"),
        ({"C_min": "low"}, "C_min='low' is not a number"),
        ({"C_min": 5.0, "C_max": 2.0}, "C_min=5.0 lies above the other end, C = 2; give a larger C_max"),
    ],
)
def test_ends_that_contradict_are_refused(ends, message):
    refused(message, svmcore.svm_path, X, Y, **ends)


# ---- warnings and names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: svmcore.train_svc(X, Y, max_iter=1),
        lambda: svmcore.train_svr(X, X[:, 0], max_iter=1),
        lambda: svmcore.svm_path(X, Y, max_events=3),
        lambda: svmcore.leave_one_out(X, Y, time_limit=0.0),
        lambda: svmcore.gp_regression(X, X[:, 0], noise=0.1, max_iter=1),
        lambda: svmcore.cv_path(X, Y, callback=lambda progress: progress.n_done == 2),
        lambda: svmcore.svm_path(X, Y).certify(np.geomspace(0.1, 1.0, 5000), time_limit=0.0),
    ],
)
def test_a_warning_points_at_the_line_of_the_caller(call):
    with heard() as caught:
        call()
    assert {warning.filename for warning in caught} == {__file__}
    assert all(issubclass(warning.category, svmcore.ConvergenceWarning) for warning in caught)


def test_names_of_the_package():
    names = dir(svmcore)
    assert "solvers" in names
    assert set(svmcore.__all__) < set(names)
    assert not {"Any", "annotations", "importlib", "TYPE_CHECKING"} & {*names, *vars(svmcore)} - {"annotations"}
    for name in ("InputError", "SVMError", "ConvergenceWarning", "ScaleWarning", "MissingExtraError"):
        assert repr(getattr(svmcore, name)) == f"<class 'svmcore.{name}'>"


# ---- types ---------------------------------------------------------------------------------------------------------------

PROGRAM = """
import numpy as np
import svmcore

X, y = svmcore.load_data("demo:monk1")
names: list[str] = list(svmcore.solvers())
solution = svmcore.train_svc(X, y, kernel="rbf", gamma="scale", loss="hinge", solver="smo", rule="mvp", stopping="gap")
path = svmcore.svm_path(X, y, kernel=lambda A, B: A @ B.T, C_max=10.0)
reveal_type(path.at(1.0))
reveal_type(path.intercept(1.0))
reveal_type(path.intercept(np.ones(2)))
reveal_type(path.error_curve()(1.0))
reveal_type(svmcore.load("machine.npz"))
reveal_type(solution.coef_)
"""
LOADED = "solution.Solution | svmcore.train.machines.Machines | svmcore.path.result.Path"
REVEALED = ["solution.Solution", "float", "ndarray", "float", LOADED, "ndarray"]
FAULTS = """
import svmcore
svmcore.train_svc([[0.0]], [1], kernel="gauss")
svmcore.train_svc([[0.0]], [1], gamma="wide")
svmcore.train_svc([[0.0]], [1], loss="epsilon_insensitive")
svmcore.train_svc([[0.0]], [1], gama=1.0)
svmcore.train_svr([[0.0]], [1], solver="magic")
svmcore.svm_path([[0.0]], [1], C_mx=1.0)
svmcore.train_svr([[0.0]], [1], stopping="never")
"""


def checked_types(folder, program):
    api = pytest.importorskip("mypy.api")
    file = folder / "program.py"
    file.write_text(program)
    out, _, _ = api.run(["--strict", "--cache-dir", str(folder), "--no-color-output", "--no-pretty", str(file)])
    return [line for line in out.splitlines() if line.startswith(str(file))]


@pytest.mark.ci
def test_types_tell_what_functions_take_and_give(tmp_path):
    lines = checked_types(tmp_path, PROGRAM)
    assert not [line for line in lines if ": error:" in line]
    notes = [line for line in lines if "Revealed type" in line]
    assert len(notes) == len(REVEALED)
    for note, kind in zip(notes, REVEALED, strict=True):
        assert kind in note
    faults = [line for line in checked_types(tmp_path, FAULTS) if ": error:" in line]
    assert sorted({int(line.split(":")[1]) for line in faults}) == list(range(3, 10))


# ---- documents and names ---------------------------------------------------------------------------------------------


def test_every_option_of_every_solver_is_in_the_documents():
    page = (Path(__file__).parents[1] / "docs" / "solvers.md").read_text(encoding="utf-8")
    rows, owners = page.split("## Options")[1].split("\n##")[0].splitlines(), []
    found = {name: {} for name in solvers.names()}
    for row in (row for row in rows if row.startswith(("| `", "| | `"))):
        who, option, default = (cell.strip() for cell in row.split("|")[1:4])
        owners = re.findall(r'"([a-z-]+)"', who) or owners
        for owner in owners:
            found[owner][option.strip("`")] = default.strip("`").replace('"', "")
    for name, options in found.items():
        assert options == {key: str(parameter.default) for key, parameter in solvers.options(name).items()}, name


@pytest.mark.parametrize(
    ("name", "meant"),
    [("train_svm", "'train_svc'"), ("load_modle", "'load'"), ("svc", "'SVC'"), ("LinearSvc", "'LinearSVC'")],
)
def test_a_slip_in_a_name_of_the_library_is_answered(name, meant):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; did you mean {meant}\\?$"):
        getattr(svmcore, name)


@pytest.mark.parametrize("name", ["_train_svc", "zzz"])
def test_a_name_like_no_other_has_no_answer(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'$"):
        getattr(svmcore, name)


def test_a_star_brings_the_estimators():
    room = {}
    exec("from svmcore import *", room)
    assert room["SVC"] is svmcore.SVC
    assert room["train_svc"] is svmcore.train_svc


@pytest.mark.parametrize(("word", "called"), [("folds", "cv"), ("n_splits", "cv"), ("scoring", "score")])
def test_words_for_folds_and_scores_are_answered(word, called):
    refused(f"^cv_path has no parameter '{word}'; it is called {called} here$", svmcore.cv_path, X, Y, **{word: 5})


def test_search_is_named_where_it_is_known():
    refused(r"gamma='search' is not known.*cv_path and SVCPathCV", svmcore.train_svc, X, Y, gamma="search")

"""Whatever a user calls an array: complex numbers, dates, times and masked values come in nowhere, and never silently."""

from __future__ import annotations

import inspect
import tempfile
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from warned import quiet

import svmcore
from svmcore import distributed, estimators
from svmcore.base.door import entered, reals

# ---- arrays that are spoiled -----------------------------------------------------------------------------------------


def a_complex_one(good):
    return good + 1e-3j


def listed_complex_ones(good):
    return a_complex_one(good).tolist()


def complex_objects(good):
    out = np.empty(good.shape, object)
    for place in np.ndindex(good.shape):
        out[place] = np.complex128(good[place] + 0.5j)
    return out


def dates(good):
    out = np.round(1000.0 * good).astype(np.int64).astype("M8[s]")
    out.flat[0] = np.datetime64("NaT", "s")
    return out


def times(good):
    return np.round(1000.0 * good).astype(np.int64).astype("m8[s]")


def times_of_days(good):
    out = np.empty(good.shape, object)
    for place in np.ndindex(good.shape):
        out[place] = np.timedelta64(int(1000.0 * good[place]), "D")
    return out


def masked(good):
    return np.ma.array(good, mask=np.arange(good.size).reshape(good.shape) == 0)


def dates_of_a_frame(good):
    pandas = pytest.importorskip("pandas")
    made = pandas.DataFrame if good.ndim == 2 else pandas.Series
    return made(dates(good))


SPOILED = (
    a_complex_one, listed_complex_ones, complex_objects, dates, times, times_of_days, masked, dates_of_a_frame,
)  # fmt: skip

# ---- everything that takes one ---------------------------------------------------------------------------------------

N = 12
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
NUMBERS = X[:, 0] + 0.1 * RNG.normal(size=N)
LABELS = np.where(np.median(NUMBERS) < NUMBERS, 1.0, 0.0)
THREE = np.arange(N) % 3.0
WEIGHTS = RNG.uniform(0.5, 1.5, size=N)


def fitted_functions():
    """Functions of X, y and weights, with the y that suits them."""
    many = svmcore.train_many
    return {
        "train_svc": (svmcore.train_svc, LABELS),
        "train_classes": (svmcore.train_classes, THREE),
        "train_svr": (svmcore.train_svr, NUMBERS),
        "train_one_class": (lambda X, y, **words: svmcore.train_one_class(X, **words), None),
        "train_many": (many, LABELS),
        "train_many of numbers": (lambda X, y, **words: many(X, y, loss="pinball", **words), NUMBERS),
        "cross_val_many": (lambda X, y, **words: svmcore.cross_val_many(X, y, cv=2, **words), LABELS),
        "permutation_test": (
            lambda X, y, **words: svmcore.permutation_test(X, y, cv=2, n_permutations=2, **words), LABELS,
        ),
        "searchlight": (
            lambda X, y, **words: svmcore.searchlight(X, y, [np.arange(2)], cv=2, **words), LABELS,
        ),
        "permutation_test of numbers": (
            lambda X, y, **words: svmcore.permutation_test(
                X, y, cv=2, n_permutations=2, loss="epsilon_insensitive", **words
            ), NUMBERS,
        ),
        "svm_path": (svmcore.svm_path, LABELS),
        "svr_path": (svmcore.svr_path, NUMBERS),
        "epsilon_path": (svmcore.epsilon_path, NUMBERS),
        "quantile_path": (svmcore.quantile_path, NUMBERS),
        "one_class_path": (lambda X, y, **words: svmcore.one_class_path(X, **words), None),
        "cv_path": (lambda X, y, **words: svmcore.cv_path(X, y, cv=2, **words), LABELS),
        "cv_path of numbers": (lambda X, y, **words: svmcore.cv_path(X, y, cv=2, loss="pinball", **words), NUMBERS),
        "leave_one_out": (svmcore.leave_one_out, LABELS),
        "gp_regression": (lambda X, y, **words: svmcore.gp_regression(X, y, noise=0.1, **words), NUMBERS),
        "distributed.train_svc": (lambda X, y, **words: distributed.train_svc(X, y, parts=2, **words), LABELS),
        "distributed.train_svr": (lambda X, y, **words: distributed.train_svr(X, y, parts=2, **words), NUMBERS),
        "distributed.train_linear": (lambda X, y, **words: distributed.train_linear(X, y, parts=2, **words), LABELS),
    }  # fmt: skip


def halves(array):
    return [array[: N // 2], array[N // 2 :]]


def of_functions():
    found = {}
    for name, (function, y) in fitted_functions().items():
        found[f"{name}: X"] = (lambda bad, f=function, y=y: f(bad, y), X)
        if y is not None:
            found[f"{name}: y"] = (lambda bad, f=function: f(X, bad), y)
        if name != "gp_regression":
            found[f"{name}: weights"] = (lambda bad, f=function, y=y: f(X, y, sample_weight=bad), WEIGHTS)
        if not name.startswith("distributed"):
            found[f"{name}: kernel values"] = (lambda bad, f=function, y=y: f(X, y, kernel=lambda A, B: bad), X @ X.T)
    found["exemplars: Q"] = (lambda bad: svmcore.exemplars(bad, X), X)
    found["exemplars: X"] = (lambda bad: svmcore.exemplars(X, bad), X)
    found["exemplars: weights"] = (lambda bad: svmcore.exemplars(X, X, sample_weight=bad), WEIGHTS)
    for name in ("svc", "svr"):
        function, y = getattr(distributed, f"train_{name}"), {"svc": LABELS, "svr": NUMBERS}[name]
        found[f"parts of {name}: X"] = (
            lambda bad, f=function, y=y: f([bad, X[N // 2 :]], halves(y)), X[: N // 2],
        )  # fmt: skip
        found[f"parts of {name}: y"] = (lambda bad, f=function, y=y: f(halves(X), [bad, y[N // 2 :]]), y[: N // 2])
        found[f"parts of {name}: weights"] = (
            lambda bad, f=function, y=y: f(halves(X), halves(y), sample_weight=[bad, WEIGHTS[N // 2 :]]), WEIGHTS[: N // 2],
        )  # fmt: skip
    return found


def of_answers():
    """Points that answers take, and functions that look at answers."""
    machine = svmcore.train_svc(X, LABELS)
    several = svmcore.train_classes(X, THREE)
    sure = replace(machine, calibration=(-1.0, 0.0))
    all_sure = replace(several, machines=tuple(replace(one, calibration=(-1.0, 0.0)) for one in several))
    path = svmcore.svm_path(X, LABELS)
    share = svmcore.one_class_path(X)
    cv = svmcore.cv_path(X, LABELS, cv=2)
    calibrator = cv.calibrate()
    gp = svmcore.gp_regression(X, NUMBERS, noise=0.1)
    parts = distributed.train_svc(X, LABELS, parts=2)
    alpha = np.abs(machine.alpha)
    return {
        f"{name}: X": (ask, X)
        for name, ask in {
            "Solution.decision_function": machine.decision_function,
            "Solution.predict": machine.predict,
            "Solution.predict_proba": sure.predict_proba,
            "Machines.predict_proba": all_sure.predict_proba,
            "Machines.votes": several.votes,
            "Machines.decision_function": several.decision_function,
            "Machines.predict": several.predict,
            "Path.decision_function": lambda X: path.decision_function(X, 1.0),
            "Path.predict": lambda X: path.predict(X, 1.0),
            "Path.error_curve": lambda X: path.error_curve(X, LABELS),
            "OneClassPath.predict": lambda X: share.predict(X, 0.5),
            "OneClassPath.depth": share.depth,
            "Calibrator.predict_proba": calibrator.predict_proba,
            "GPSolution.predict": gp.predict,
            "GPSolution.variance": gp.variance,
            "PartsSolution.predict": parts.predict,
            "Solution.add": lambda X: machine.add(X, LABELS),
            "certificate": lambda X: svmcore.certificate(X, LABELS, alpha, 0.0, C=1.0),
            "verify": lambda X: verified(machine, X, LABELS),
            "save_data": lambda X: svmcore.save_data("never.npz", X, LABELS),
        }.items()
    }


def of_words():
    """Everything else that is an array: what belongs to points, starts, values of parameters."""
    machine, path, cv = svmcore.train_svc(X, LABELS), svmcore.svm_path(X, LABELS), svmcore.cv_path(X, LABELS, cv=2)
    share, calibrator, curve = svmcore.one_class_path(X), cv.calibrate(), path.error_curve(X, LABELS)
    loss = svmcore.svr_path(X, NUMBERS).error_curve(X, NUMBERS)
    alpha, Cs = np.abs(machine.alpha), np.array([0.5, 1.0])
    return {
        "Path.error_curve: y": (lambda y: path.error_curve(X, y), LABELS),
        "Path.error_curve: weights": (lambda w: path.error_curve(X, LABELS, sample_weight=w), WEIGHTS),
        "Solution.add: y": (lambda y: machine.add(X, y), LABELS),
        "Solution.add: weights": (lambda w: machine.add(X, LABELS, sample_weight=w), WEIGHTS),
        "certificate: y": (lambda y: svmcore.certificate(X, y, alpha, 0.0, C=1.0), LABELS),
        "certificate: alpha": (lambda a: svmcore.certificate(X, LABELS, a, 0.0, C=1.0), alpha),
        "duality_gap: alpha": (lambda a: svmcore.duality_gap(X, LABELS, a, 0.0, C=1.0), alpha),
        "kkt_violation: alpha": (lambda a: svmcore.kkt_violation(X, LABELS, a, C=1.0), alpha),
        "train_svc: alpha0": (lambda a: svmcore.train_svc(X, LABELS, alpha0=a), alpha),
        "gp_regression: alpha0": (lambda a: svmcore.gp_regression(X, NUMBERS, noise=0.1, alpha0=a), NUMBERS),
        "train_svc: learning_rate": (
            lambda a: svmcore.train_svc(X, LABELS, solver="adatron", fit_intercept=False, learning_rate=a), WEIGHTS,
        ),
        "cv_path: groups": (lambda g: svmcore.cv_path(X, LABELS, groups=g, cv=2), THREE),
        "cv_path: costs": (lambda c: svmcore.cv_path(X, LABELS, costs=c, cv=2), np.array([[0.0, 2.0], [1.0, 0.0]])),
        "save_data: y": (lambda y: svmcore.save_data("never.npz", X, y), LABELS),
        "verify: y": (lambda y: verified(machine, X, y), LABELS),
        "Path.alpha: C": (path.alpha, Cs),
        "Path.certify: Cs": (path.certify, Cs),
        "PathCV.error: C": (cv.error, Cs),
        "StepCurve: C": (curve, Cs),
        "LossCurve: C": (loss, Cs),
        "OneClassPath.C_of: nu": (share.C_of, np.array([0.3, 0.5])),
        "Calibrator.from_scores: scores": (calibrator.from_scores, X[:, 0]),
    }  # fmt: skip


def verified(machine, X, y):
    with tempfile.TemporaryDirectory() as folder:
        machine.save(Path(folder) / "m.npz")
        return svmcore.verify(Path(folder) / "m.npz", (X, y), C=1.0)


def of_estimators():
    pytest.importorskip("sklearn")
    from svmcore import estimators

    found = {}
    for name in estimators.__all__:
        kind = getattr(estimators, name)
        words = {"cv": 2} if name.endswith("CV") else {}
        y = LABELS if hasattr(kind, "classes_") or "SVC" in name else NUMBERS

        def made(kind=kind, words=words):
            return kind(**words)

        known = made().fit(X, y)
        found[f"{name}: X"] = (lambda bad, made=made, y=y: made().fit(bad, y), X)
        if name != "OneClassSVM":
            found[f"{name}: y"] = (lambda bad, made=made: made().fit(X, bad), y)
        if "sample_weight" in inspect.signature(kind.fit).parameters:
            found[f"{name}: weights"] = (lambda bad, made=made, y=y: made().fit(X, y, sample_weight=bad), WEIGHTS)
        found[f"{name}: X of predict"] = (known.predict, X)
        if hasattr(known, "partial_fit"):
            found[f"{name}: X of partial_fit"] = (lambda bad, made=made, y=y: made().fit(X, y).partial_fit(bad, y), X)
            if name != "OneClassSVM":
                found[f"{name}: y of partial_fit"] = (
                    lambda bad, made=made, y=y: made().fit(X, y).partial_fit(X, bad), y,
                )  # fmt: skip
        if "kernel" in known.get_params():
            found[f"{name}: kernel values"] = (
                lambda bad, kind=kind, words=words, y=y: kind(kernel=lambda A, B: bad, **words).fit(X, y), X @ X.T,
            )  # fmt: skip
    return found


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
@pytest.mark.parametrize("entries", [of_functions, of_answers, of_words, of_estimators], ids=lambda made: made.__name__)
def test_what_is_no_real_number_comes_in_nowhere(entries, spoil):
    let_in, unclear = [], []
    with quiet(svmcore.ConvergenceWarning, svmcore.ScaleWarning):
        table = entries()
        for name, (ask, good) in table.items():
            bad = spoil(np.asarray(good))
            try:
                ask(bad)
            except (svmcore.InputError, ValueError, TypeError) as error:
                if not any(word in str(error) for word in WORDS):
                    unclear.append(f"{name}: {type(error).__name__}: {error}")
            except Warning as said:
                let_in.append(f"{name}: {said}")
            else:
                let_in.append(name)
    assert let_in == []
    assert unclear == []


WORDS = (
    "omplex", "dates or times", "masked values", "a missing value", "not a number", "is no table of costs",
    "one for every training point", "dimension(s)",
)  # fmt: skip


def test_good_arrays_come_in_everywhere(monkeypatch, tmp_path):
    """Or what the other test sees refused would say nothing."""
    monkeypatch.chdir(tmp_path)
    with quiet(svmcore.ConvergenceWarning, svmcore.ScaleWarning):
        for table in (of_functions(), of_answers(), of_words(), of_estimators()):
            for ask, good in table.values():
                ask(good)
                ask(np.ma.array(good))  # nothing is masked


def test_every_public_function_with_arrays_is_asked():
    asked = " ".join([*of_functions(), *of_answers(), *of_words()])
    for name in set(svmcore.__all__) - set(estimators.__all__):  # estimators have a table of their own
        value = getattr(svmcore, name)
        if inspect.isfunction(value) and {"X", "alpha"} & set(inspect.signature(value).parameters):
            assert name in asked
        elif inspect.isclass(value) and value not in (svmcore.LeaveOneOut, svmcore.Audit):
            for method, function in vars(value).items():
                if method[0] != "_" and inspect.isfunction(function) and "X" in inspect.signature(function).parameters:
                    assert f"{name}.{method}" in asked or method == "plot"


# ---- the door itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [X, X.astype(np.float32), LABELS > 0, np.array(["a", "b"]), np.arange(3)])
def test_a_plain_array_comes_in_as_it_is(array):
    assert entered(array, "X") is array


def test_reals_have_a_name():
    assert reals([1, 2.5], "C").tolist() == [1.0, 2.5]
    for bad in ("a", [[1.0], [2.0, 3.0]], [None, {}]):
        refused("C cannot be read as numbers", reals, bad, "C")


@pytest.mark.parametrize("value", [np.complex128(1 + 1j), np.timedelta64(3, "s"), 1j, timedelta(1), date(2020, 1, 1)])
def test_numbers_are_real(value):
    for words in ({"C": value}, {"tol": value}, {"max_iter": value}, {"gamma": value}):
        refused("number", svmcore.train_svc, X, LABELS, **words)


def test_dates_among_labels_are_refused_and_missing_ones_have_a_place():
    pandas = pytest.importorskip("pandas")
    some = [date(2020, 1, 1 + k % 2) for k in range(N)]
    refused("y holds dates or times; turn them into numbers", svmcore.train_svc, X, some)
    refused(r"y has no label at row 3 \(NaT\)", svmcore.train_svc, X, ["a", "b", "a", pandas.NaT, *"ab" * 4])

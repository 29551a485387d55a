"""`verify`: right answers are verified, wrong ones are not, whoever computed them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kept import file_of, stored
from refusals import refused
from scipy import sparse
from test_libsvm import KERNELS, TYPES, X, Y, needs_libsvm, trained

import svmcore

pytestmark = pytest.mark.once

PERMUTED = np.random.default_rng(3).permutation(len(X))


@needs_libsvm
@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
@pytest.mark.parametrize("kind", TYPES)
def test_what_libsvm_trained_is_verified_from_the_file_alone(kind, kernel, tmp_path):
    assert kernel in KERNELS
    _, file = trained(kind, kernel, tmp_path)
    y = Y[TYPES[kind][1]]
    found = svmcore.verify(file, (X[PERMUTED], y[PERMUTED]), tol=0.01)
    assert found.ok, str(found)
    assert found.found == found.n_support
    assert found.certificate.relative_gap < 0.05 or (kind, kernel) == ("one_class", "linear")
    assert found.inferred
    if kind in ("c_svc", "epsilon_svr"):
        assert pytest.approx(2.0, rel=1e-9) == found.C
    if kind == "epsilon_svr":
        assert found.epsilon == pytest.approx(0.05, abs=2e-3)
    if kind == "one_class":
        assert found.nu == pytest.approx(0.2, rel=1e-6)


MADE = {
    "classes": lambda **o: svmcore.train_svc(X, Y["two"], 3.0, **o),
    "weights": lambda **o: svmcore.train_svc(X, Y["two"], 3.0, class_weight={1: 0.25, -1: 2.0}, **o),
    "balanced": lambda **o: svmcore.train_classes(X, Y["three"], 3.0, class_weight="balanced", **o),
    "rest": lambda **o: svmcore.train_classes(X, Y["three"], 3.0, strategy="ovr", **o),
    "squared": lambda **o: svmcore.train_svc(X, Y["two"], 3.0, loss="squared_hinge", **o),
    "tilted": lambda **o: svmcore.train_svc(X, Y["two"], 3.0, fit_intercept=False, **o),
    "embedded": lambda **o: svmcore.train_svc(X, Y["two"], 3.0, fit_intercept=False, intercept_scaling=2.0, **o),
    "tube": lambda **o: svmcore.train_svr(X, Y["number"], 3.0, 0.05, **o),
    "quantile": lambda **o: svmcore.train_svr(X, Y["number"], 3.0, loss="pinball", tau=0.8, **o),
    "one class": lambda **o: svmcore.train_one_class(X + 1.0, 0.3, **o),
    "nu": lambda **o: svmcore.train_svc(X, Y["two"], nu=0.4, **o),
    "nu tube": lambda **o: svmcore.train_svr(X, Y["number"], 3.0, nu=0.4, **o),
}
LABELS = {"balanced": "three", "rest": "three", "tube": "number", "quantile": "number", "nu tube": "number"}


@pytest.mark.parametrize("options", [{}, {"kernel": "linear", "standardize": True}], ids=["rbf", "standardized"])
@pytest.mark.parametrize("kind", MADE)
def test_what_was_trained_here_is_verified_and_keeps_its_terms(kind, options):
    options = {} if kind in ("one class", "nu tube") else options
    machine = MADE[kind](tol=1e-4, **options)
    file = file_of(machine)
    data = X + 1.0 if kind == "one class" else X
    for rows in (slice(None), PERMUTED):
        file.seek(0)
        y = Y[LABELS.get(kind, "two")][rows]
        found = svmcore.verify(svmcore.load(file), (data[rows], None if kind == "one class" else y), tol=2e-4)
        assert found.ok, str(found)
        assert not found.inferred
        one = machine.machines[0] if isinstance(machine, svmcore.Machines) else machine
        if not isinstance(machine, svmcore.Machines):
            assert found.certificate.objective == pytest.approx(one.objective, rel=1e-9, abs=1e-9)


def test_wrong_answers_are_not_verified():
    machine = svmcore.train_svc(X, Y["two"], 3.0, tol=1e-6)
    worse = replace(machine, dual_coef=machine.dual_coef * 0.9)
    found = svmcore.verify(worse, (X, Y["two"]))
    assert not found.ok
    assert "not optimal" in str(found)
    found = svmcore.verify(machine, (X, Y["two"]), C=2.0)  # coefficients outside of the box
    assert not found.ok
    assert found.certificate.infeasibility == pytest.approx(1.0, rel=1e-6)
    shifted = replace(machine, intercept=machine.intercept + 0.5)
    found = svmcore.verify(shifted, (X, Y["two"]))
    assert found.certificate.relative_gap > 0.01
    assert found.intercept_error == pytest.approx(0.5, abs=1e-2)
    assert not found.ok
    assert "the intercept is off by" in str(found)


def test_other_data_are_noticed():
    machine = svmcore.train_svc(X, Y["two"], 3.0)
    found = svmcore.verify(machine, (X + 1e-3, Y["two"]))
    assert found.certificate is None
    assert not found.ok
    assert "are no rows of these data" in str(found)
    assert svmcore.verify(machine, (X, -Y["two"])).certificate is None  # other labels
    refused("hold the label", svmcore.verify, machine, (X, Y["three"]))
    refused("hold no labels", svmcore.verify, machine, (X, None))


FAR = np.random.default_rng(1).normal(size=(60, 3)) + 100.0  # a mean that is much larger than the spread
FAR_Y = {
    "two": (FAR[:, 0] > 100.1).astype(int),
    "three": np.digitize(FAR[:, 0] - 100.0 + 0.5 * (FAR[:, 1] - 100.0) ** 2, [-0.3, 0.6]),
    "number": FAR[:, 0] - FAR[:, 1] ** 2,
}


@pytest.mark.parametrize("form", ["npz", "libsvm"])
@pytest.mark.parametrize("kind", FAR_Y)
def test_data_far_from_zero_are_verified_in_any_order(kind, form):
    y, order = FAR_Y[kind], np.random.default_rng(2).permutation(60)
    train = {"two": svmcore.train_svc, "three": svmcore.train_classes, "number": svmcore.train_svr}[kind]
    machine = train(FAR, y, 2.0, kernel="linear")
    read = stored(machine, format=form)
    for rows in (slice(None), order):
        found = svmcore.verify(read, (FAR[rows], y[rows]), C=2.0, epsilon=0.1 if kind == "number" else None)
        assert found.ok, str(found)
    assert not svmcore.verify(read, (FAR + 3.0, y), C=2.0).ok  # moved: the coefficients would do, but not the rest


def test_paths_are_verified_at_a_C():
    path = svmcore.svm_path(X, Y["two"], C_max=10.0)
    found = svmcore.verify(path, (X, Y["two"]), C=2.0, tol=1e-8)
    assert found.ok
    refused("say with C where", svmcore.verify, path, (X, Y["two"]))


def test_sparse_rows_duplicates_and_weights():
    twice, y = np.concatenate([X, X[:40]]), np.concatenate([Y["two"], -Y["two"][:40]])
    machine = svmcore.train_svc(sparse.csr_matrix(twice), y, 3.0, tol=1e-6)
    found = svmcore.verify(stored(machine, format="libsvm"), (sparse.csr_matrix(twice[::-1]), y[::-1]), tol=1e-5)
    assert found.ok, str(found)
    assert svmcore.verify(machine, (sparse.csr_matrix(twice), y), tol=1e-5).ok
    weights = np.arange(len(X)) % 3 + 0.5
    machine = svmcore.train_svc(X, Y["two"], 3.0, sample_weight=weights, tol=1e-6)
    assert svmcore.verify(machine, (X, Y["two"]), sample_weight=weights, tol=1e-5).ok
    assert not svmcore.verify(machine, (X, Y["two"])).ok


def test_precomputed_kernels():
    K = X @ X.T + 1.0
    for machine, y in (
        (svmcore.train_svc(K, Y["two"], 2.0, kernel="precomputed", tol=1e-6), Y["two"]),
        (svmcore.train_classes(K, Y["three"], 2.0, kernel="precomputed", tol=1e-6), Y["three"]),
    ):
        assert svmcore.verify(machine, (K, y), tol=1e-5).ok


def test_a_large_gap_is_said():
    wide = np.random.default_rng(1).normal(size=(60, 200))
    y = (wide[:, 0] > 0).astype(int)
    with pytest.warns(svmcore.ConvergenceWarning):
        machine = svmcore.train_svc(wide, y, kernel="linear", tol=0.05, solver="smo")
    found = svmcore.verify(machine, (wide, y), tol=0.05)
    assert found.ok
    assert "may still be off by" in str(found)

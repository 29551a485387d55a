"""Rosen's projection against SMO: tables 1 and 2 of J. Lopez and J.R. Dorronsoro.

Stop: the maximal KKT violation is at most 2 eps (each side within eps of the bias), for every method. C and the kernel
width are Raetsch's; partitions are his first ten where the data folder has them, else substitutes of the same sizes.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

import svmcore
from bench import data
from bench.tables.base import Table, libsvm_seconds, ratio
from svmcore._keywords import SolverName

TITLE = "Rosen's projection"
SOURCE = "J. Lopez and J.R. Dorronsoro, Rosen's projection method for SVM training"

PARTITIONS = 20
ROSEN_STEPS = 60_000
TARGETS = {
    "heart": (1.3, 2.9),
    "cancer": (2.6, 10.0),
    "thyroid": (2.6, 5.5),
    "diabetis": (0.9, 1.7),
    "flare": (1.2, 2.8),
}


PARTS = "other partitions; the papers' tie-breaking and first pair are not known"
REASONS = {
    "heart": "the printed run's tie-breaking and first pair are not known",
    "cancer": "the printed run's tie-breaking and first pair are not known",
    "thyroid": PARTS,
    "diabetis": PARTS,
    "flare": PARTS + "; many duplicates: answers are not unique",
    "titanic": "at C = 1e5 a million steps of the maximal violating pair, 11 C from C = 100 on; 143.5 and 214.2 fit C = 5",
}


class Case(NamedTuple):
    """A data set with Raetsch's parameters and the printed figures at eps = 1e-3 and 1e-6: support vectors, iterations."""

    data: str
    C: float
    width: float
    scale: bool
    smo: tuple[tuple[float, float], tuple[float, float]]
    rosen: tuple[tuple[float, float], tuple[float, float]]


CASES = {
    "heart": Case("raetsch_heart", 3.162, 120.0, False, ((82.5, 149.8), (82.5, 331.9)), ((83.4, 65.6), (83.5, 65.7))),
    "cancer": Case(
        "raetsch_breast_cancer", 15.19, 50.0, False, ((114.1, 1431.5), (113.9, 4711.5)), ((116.4, 592.1), (116.4, 596.0))
    ),
    "thyroid": Case("raetsch_thyroid", 10.0, 3.0, True, ((25.3, 213.5), (25.3, 519.2)), ((24.8, 70.5), (24.8, 70.6))),
    "diabetis": Case(
        "raetsch_diabetis", 1.0, 20.0, False, ((264.9, 360.1), (264.8, 730.1)), ((266.5, 181.3), (266.5, 181.7))
    ),
    "flare": Case(
        "raetsch_flare_solar", 1.023, 30.0, True, ((480.7, 608.7), (481.2, 1837.3)), ((513.1, 339.8), (513.2, 394.6))
    ),
    "titanic": Case(
        "raetsch_titanic", 1e5, 2.0, False, ((69.3, 143.5), (69.3, 214.2)), ((92.0, 141.4), (92.4, 145.2))
    ),
}  # fmt: skip


def partitions(case: Case) -> list[tuple[Any, np.ndarray]]:
    """The training sets."""
    where = data.folder()
    assert where is not None
    with np.load(where / f"{case.data}.npz", allow_pickle=False) as stored:
        X, y = stored["X"], stored["y"].astype(float)
        index = stored["train_idx"] if "train_idx" in stored else stored["sub_train_idx"][:PARTITIONS]
    if case.scale:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return [(X[rows], y[rows]) for rows in index]


def fit(X: Any, y: Any, case: Case, eps: float, solver: SolverName, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return svmcore.train_svc(X, y, case.C, gamma=1.0 / case.width, solver=solver, tol=2.0 * eps, **options)


def mean(values: list[float]) -> float:
    return float(np.mean(values))


def median(values: list[float]) -> float:
    return float(np.median(values))


def row(name: str, case: Case, eps: float, which: int) -> list[Any]:
    """One data set at one tolerance."""
    parts = partitions(case)
    few = parts[:3] if name != "titanic" else []
    mvp = [
        fit(X, y, case, eps, "smo", rule="mvp", face_steps=False, shrinking=False)
        for X, y in parts
        if name != "titanic"
    ]
    auto = [fit(X, y, case, eps, "auto") for X, y in parts]
    cg = [fit(X, y, case, eps, "rosen-cg") for X, y in parts]
    literal = [fit(X, y, case, eps, "rosen", face_steps=False, max_iter=ROSEN_STEPS) for X, y in few]
    smo_iterations = mean([s.n_iter for s in mvp]) if mvp else None
    cg_iterations = mean([s.n_iter for s in cg])
    target = TARGETS.get(name, (None, None))[which]
    theirs = libsvm_seconds(parts, case.C, 1.0 / case.width, 2.0 * eps)
    steps = mean([s.n_iter for s in literal]) if literal else None
    return [
        name, case.smo[which][0], mean([len(s.support) for s in cg]), case.smo[which][1], smo_iterations,
        ratio(smo_iterations, case.smo[which][1]), case.rosen[which][1], steps, ratio(steps, case.rosen[which][1]),
        mean([s.stats["face_changes"] for s in literal]) if literal else None,
        f"{sum(not s.converged for s in literal)}/{len(literal)}", cg_iterations, ratio(cg_iterations, case.rosen[which][1]),
        mean([s.stats["face_changes"] for s in cg]), ratio(smo_iterations, cg_iterations), target,
        mean([s.stats["rows"] for s in cg]), median([1e3 * s.fit_seconds for s in cg]),
        median([1e3 * s.fit_seconds for s in auto]), None if theirs is None else 1e3 * theirs, REASONS[name],
    ]  # fmt: skip


def run(full: bool) -> list[Table]:
    if data.folder() is None:
        return []
    names = [name for name in CASES if name != "titanic" or full]
    tables = []
    for which, eps in enumerate((1e-3, 1e-6)):
        tables.append(
            Table(
                f"Table {which + 1}: eps = {eps:g}",
                [
                    "set", "SV printed", "SV", "SMO printed", "mvp", "ratio", "Rosen printed", "rosen", "ratio ", "its faces",
                    "unfinished", "rosen-cg", "ratio  ", "its faces ", "mvp / rosen-cg", "target", "its rows", "ms rosen-cg",
                    "ms auto", "ms LIBSVM", "why mvp differs",
                ],
                [row(name, CASES[name], eps, which) for name in names],
                note="The printed Rosen column does not reproduce as converged runs: steepest descent on the face needs "
                "more steps than SMO, not fewer (3 partitions, at most 60,000 steps). A fixed, loose tolerance for d = 0, "
                "or counting face changes, would give its shape. Conjugate directions give the advertised one. On titanic "
                "(C = 1e5) the maximal violating pair takes a million steps and is left out.",
            )
        )  # fmt: skip
    return tables

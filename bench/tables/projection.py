"""Rosen's projection against SMO: tables 1 and 2 of J. Lopez and J.R. Dorronsoro.

Stop: the maximal KKT violation is at most 2 eps (each side within eps of the bias), for every method. C and the kernel
width are Raetsch's; partitions are his first ten where the data folder has them, else substitutes of the same sizes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ranksums

import svmcore
from bench import data
from bench.tables.base import Table, libsvm_seconds, ratio, told
from svmcore._keywords import SolverName

TITLE = "Rosen's projection"
SOURCE = "J. Lopez and J.R. Dorronsoro, Rosen's projection method for SVM training"

PARTITIONS = 20
ROSEN_STEPS = 60_000
TIGHT = 3  # partitions for d = 0 to eps, which takes many steps
D_TOL = 0.5
REASONS = {
    "cancer": "many free vectors: steepest descent is slow there",
    "flare": "many duplicates: support vectors are not unique, and the projection leaves more of them, as printed",
    "titanic": "at C = 1e5 steps of the maximal violating pair (11 C of them from C = 100 on) and steepest descent do not "
    "arrive; 143.5 and 214.2 fit C = 5; the second-order rule is immune",
}


class Case(NamedTuple):
    """A data set with Raetsch's parameters and the printed figures at eps = 1e-3 and 1e-6.

    Support vectors and iterations of SMO, with the printed spread of the latter, and of Rosen's method.
    """

    data: str
    C: float
    width: float
    scale: bool
    smo: tuple[tuple[float, float, float], tuple[float, float, float]]
    rosen: tuple[tuple[float, float], tuple[float, float]]


CASES = {
    "heart": Case(
        "raetsch_heart", 3.162, 120.0, False,
        ((82.5, 149.8, 31.5), (82.5, 331.9, 119.4)), ((83.4, 65.6), (83.5, 65.7)),
    ),
    "cancer": Case(
        "raetsch_breast_cancer", 15.19, 50.0, False,
        ((114.1, 1431.5, 407.3), (113.9, 4711.5, 2704.7)), ((116.4, 592.1), (116.4, 596.0)),
    ),
    "thyroid": Case(
        "raetsch_thyroid", 10.0, 3.0, True,
        ((25.3, 213.5, 73.9), (25.3, 519.2, 222.3)), ((24.8, 70.5), (24.8, 70.6)),
    ),
    "diabetis": Case(
        "raetsch_diabetis", 1.0, 20.0, False,
        ((264.9, 360.1, 55.0), (264.8, 730.1, 193.1)), ((266.5, 181.3), (266.5, 181.7)),
    ),
    "flare": Case(
        "raetsch_flare_solar", 1.023, 30.0, True,
        ((480.7, 608.7, 141.7), (481.2, 1837.3, 1677.0)), ((513.1, 339.8), (513.2, 394.6)),
    ),
    "titanic": Case(
        "raetsch_titanic", 1e5, 2.0, False,
        ((69.3, 143.5, 20.9), (69.3, 214.2, 37.4)), ((92.0, 141.4), (92.4, 145.2)),
    ),
}  # fmt: skip


class Part(NamedTuple):
    """A training and a test set."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray


def partitions(case: Case, full: bool = False) -> list[Part]:
    """The originals that are known, else substitutes; a hundred of both with `full`."""
    where = data.folder()
    assert where is not None
    with np.load(where / f"{case.data}.npz", allow_pickle=False) as stored:
        X, y = stored["X"], stored["y"].astype(float)
        split = [
            (stored[f"{name}train_idx"], stored[f"{name}test_idx"])
            for name in ("", "sub_")
            if f"{name}train_idx" in stored
        ]
    if case.scale:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    pairs = [pair for both in split for pair in zip(*both, strict=True)]
    count = 100 if full else 10 if len(split) > 1 else PARTITIONS
    return [Part(X[train], y[train], X[test], y[test]) for train, test in pairs[:count]]


def fit(X: Any, y: Any, case: Case, eps: float, solver: SolverName, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return svmcore.train_svc(X, y, case.C, gamma=1.0 / case.width, solver=solver, tol=2.0 * eps, **options)


METHODS: dict[str, tuple[SolverName, dict[str, Any]]] = {
    "mvp": ("smo", {"rule": "mvp", "face_steps": False, "shrinking": False}),
    "second": ("smo", {"face_steps": False, "shrinking": False}),
    "rosen": ("rosen", {"d_tol": D_TOL, "face_steps": False, "max_iter": ROSEN_STEPS}),
    "tight": ("rosen", {"face_steps": False, "max_iter": ROSEN_STEPS}),
    "cg": ("rosen-cg", {}),
    "auto": ("auto", {}),
}


def steps(runs: list[Any]) -> float | None:
    """Mean iterations; None where not every run arrived."""
    return float(np.mean([s.n_iter for s in runs])) if all(s.converged for s in runs) else None


def mean_of(runs: list[Any], name: str) -> float:
    return float(np.mean([s.stats[name] for s in runs]))


def vectors(runs: list[Any]) -> float:
    return float(np.mean([len(s.support) for s in runs]))


def test_errors(runs: list[Any], parts: list[Part]) -> np.ndarray:
    """In per cent, one per partition."""
    return np.array([100.0 * np.mean(s.predict(p.X_test) != p.y_test) for s, p in zip(runs, parts, strict=True)])


def verdict(name: str, smo: float | None, rosen: float | None, which: int) -> str:
    """How far the steps of both are from the print, and whether the projection takes fewer steps than the pair."""
    _, printed, spread = CASES[name].smo[which]
    said = []
    if smo is None:
        said.append("SMO: cannot be reproduced")
    else:
        near = abs(smo - printed) <= spread
        said.append(f"SMO: {'close' if near else 'cannot be reproduced'}, {100.0 * (smo / printed - 1.0):+.0f} %")
    if rosen is None:
        said.append("Rosen: cannot be reproduced")
    else:
        theirs = CASES[name].rosen[which][1]
        near = abs(rosen / theirs - 1.0) <= 0.1
        said.append(f"Rosen: {'close' if near else 'cannot be reproduced'}, {100.0 * (rosen / theirs - 1.0):+.0f} %")
    if smo is not None and rosen is not None:
        said.append("fewer steps than SMO, as printed" if rosen < smo else "not fewer steps than SMO")
    return "; ".join(said) + (f": {REASONS[name]}" if name in REASONS else "")


def row(name: str, eps: float, which: int, full: bool) -> list[Any]:
    """One data set at one tolerance."""
    case = CASES[name]
    parts = partitions(case, full)
    runs = {
        method: [fit(p.X, p.y, case, eps, solver, **options) for p in (parts[:TIGHT] if method == "tight" else parts)]
        for method, (solver, options) in METHODS.items()
    }
    count = {method: steps(found) for method, found in runs.items()}
    base = runs["mvp"] if count["mvp"] else runs["second"]
    arrived = {"": True, "rosen": count["rosen"] is not None, "cg": count["cg"] is not None}
    errors = {m: test_errors(runs[m] if m else base, parts) for m in ("", "rosen", "cg")}
    (sv_smo, smo, _), (sv_rosen, rosen) = case.smo[which], case.rosen[which]
    pair = ratio(count["mvp"], count["rosen"])
    theirs = libsvm_seconds([(p.X, p.y) for p in parts], case.C, 1.0 / case.width, 2.0 * eps)
    return [
        name, len(parts), sv_smo, vectors(base), sv_rosen, vectors(runs["rosen"]) if count["rosen"] else None,
        smo, count["mvp"], count["second"], rosen, count["rosen"], mean_of(runs["rosen"], "face_changes"),
        f"{sum(not s.converged for s in runs['rosen'])}/{len(parts)}", count["tight"], count["cg"],
        mean_of(runs["cg"], "face_changes"), smo / rosen, pair, ratio(count["mvp"], count["cg"]),
        *(float(errors[m].mean()) if arrived[m] else None for m in errors),
        *(float(ranksums(errors[""], errors[m]).pvalue) if arrived[m] else None for m in ("rosen", "cg")),
        mean_of(runs["cg"], "rows"), *(1e3 * float(np.median([s.fit_seconds for s in runs[m]])) for m in ("cg", "auto")),
        None if theirs is None else 1e3 * theirs, verdict(name, count["mvp"], count["rosen"], which),
    ]  # fmt: skip


COLUMNS = [
    "set", "partitions", "SV printed, SMO", "SV SMO", "SV printed, Rosen", "SV rosen", "SMO printed", "mvp", "second order",
    "Rosen printed", "rosen", "its faces", "unfinished", "rosen, d = 0 to eps", "rosen-cg", "its faces ", "ratio printed",
    "mvp / rosen", "mvp / rosen-cg", "test error % SMO", "% rosen", "% rosen-cg", "p rosen", "p rosen-cg", "rows rosen-cg",
    "ms rosen-cg", "ms auto", "ms LIBSVM", "verdict",
]  # fmt: skip
NOTE = (
    "mvp: the maximal violating pair, which is the paper's SMO. rosen: the literal method, where d counts as 0 below 0.5 "
    "(d_tol; the paper does not say when): at eps = 1e-3 it takes fewer steps than mvp. With d = 0 to eps (three "
    "partitions) it takes several times as many. The printed independence of eps is that of conjugate directions on the "
    "face, rosen-cg. Tried without reaching the printed counts: d_tol from 0.2 to 1, other starts, counting faces. A dash: "
    "not all runs arrived (60,000 steps). p: Wilcoxon's rank-sum test of the test errors against SMO's (the paper: "
    "indistinguishable at 0.1). Verdict: SMO is close within its printed standard deviation, Rosen within 10 %."
)


def run(full: bool) -> Iterator[Table]:
    if data.folder() is None:
        return
    names = [name for name, case in CASES.items() if not data.missing(case.data)]
    tiny = data.load("clusters-60-5")
    for solver, options in METHODS.values():  # compiled before the clock runs
        fit(tiny.X, tiny.y, CASES["heart"], 1e-3, solver, **options)
    for which, eps in enumerate((1e-3, 1e-6)):
        yield Table(
            f"Table {which + 1}: eps = {eps:g}",
            COLUMNS,
            told(f"table {which + 1}", names, COLUMNS, partial(row, eps=eps, which=which, full=full)),
            NOTE,
        )

"""From the words of a user to a problem over parts: the engine, the sources, a first pass, and what all parts must know."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control, new_control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._types import NONZERO, Kernel, Status
from svmcore.distributed import files
from svmcore.distributed.engine import Serial, Threads, dask_engine
from svmcore.distributed.ledger import Ledger
from svmcore.distributed.parts import CLASSIFICATION, REGRESSION, Assignment, Whole, summary, together
from svmcore.distributed.sums import Standing
from svmcore.models.solution import Terms
from svmcore.problem import border, formulations, labelling
from svmcore.problem.advice import LARGE_GAP, MEANS_LITTLE
from svmcore.train.words import REMEDIES

ENGINES = ("serial", "threads", "dask")
KERNELS = ("linear", "rbf", "poly", "sigmoid", "laplacian")
# Words that not all functions and estimators have.
_PLAIN = {
    "kernel": "linear", "gamma": "scale", "degree": 3, "coef0": 0.0, "class_weight": None, "working_set": None,
    "certificate": "auto", "epsilon": 0.0,
}  # fmt: skip


class Setup(NamedTuple):
    """A problem over parts, checked."""

    engine: Serial
    sources: list[Any]
    whole: Whole
    task: Assignment
    terms: Terms
    tol: float
    control: Control
    ledger: Ledger
    verbose: int
    working_set: int | None = None
    certified: bool = False  # everything in float64
    begun: float = 0.0  # when the turn of this machine came; later than 0 where those of other classes are there

    @property
    def seconds(self) -> float:
        """Time since the work on this machine began."""
        return self.control.seconds - self.begun

    def say(self, number: int, state: str, at: Standing) -> None:
        """One line a round."""
        if self.verbose:
            relative = at.gap / max(abs(at.dual + at.gap), NONZERO)
            known = f"violation {at.violation:.2e}, {at.free} free, dual {at.dual:.8g}, relative gap {relative:.1e}"
            known = "a sample" if math.isnan(at.dual) else known
            sys.stderr.write(f"fit: {self.control.seconds:6.1f} s, round {number}, {known}{state}\n")


def _engine(X: Any, words: dict[str, Any]) -> Serial:
    name, client, n_threads = (words[name] for name in ("engine", "client", "n_threads"))
    if name is None:
        lazy = hasattr(X, "dask") or (isinstance(X, (list, tuple)) and any(hasattr(each, "dask") for each in X))
        name = "dask" if client is not None or lazy else "serial"
    border.choice("engine", name, ENGINES)
    if client is not None and name != "dask":
        raise InputError(f"client= belongs to engine='dask', and engine={name!r} is given; leave one of them out")
    threads = None if n_threads is None else border.threads(n_threads)
    if name == "serial":
        return Serial(threads)
    if name == "threads":
        return Threads(threads)
    return dask_engine().Dask(client, threads)  # type: ignore[no-any-return]


def _labels(whole: Whole, class_weight: Any, several: bool) -> tuple[Any, tuple[float, ...]]:
    labels = whole.labels
    if len(labels) > 2 and not several:
        shown = ", ".join(map(str, labels[:5].tolist())) + (", ..." if len(labels) > 5 else "")
        raise InputError(
            f"y holds {len(labels)} classes ({shown}); this function separates two; DaskSVC and DaskLinearSVC take several"
        )
    if len(labels) < 2:
        raise InputError(f"y holds one class only ({', '.join(map(str, labels))}) in all parts; a classifier needs two")
    if not whole.counts.all():
        gone = labels[int(np.argmin(whole.counts))]
        raise InputError(
            f"all samples of class {gone} have weight zero; every class needs a sample with positive weight"
        )
    factors = labelling.class_factors(class_weight, labels, np.arange(len(labels)), whole.counts)
    return labels, tuple(factors.tolist())


def _kernel(name: Any, gamma: Any, degree: Any, coef0: Any, whole: Whole) -> Kernel:
    if name not in KERNELS:
        raise InputError(f"kernel={name!r} is not known over parts; choose one of {', '.join(map(repr, KERNELS))}")
    if isinstance(gamma, str) and gamma == "scale":
        variance = whole.variance
        gamma = 1.0 / (whole.features * variance) if variance > 0 and math.isfinite(variance) else 1.0
    return border.kernel(name, np.empty((1, whole.features)), gamma, degree, coef0).kernel


def setup(
    X: Any, y: Any, sample_weight: Any, losses: tuple[str, ...], words: dict[str, Any], *, several: bool = False
) -> Setup:
    """Check everything, make the engine, read the parts once. With `several` classes the task is that of the first two.

    `words` are those of a user, by name.
    """
    words = _PLAIN | words
    loss = border.choice("loss", words["loss"], losses)
    kind = REGRESSION if loss in formulations.SVR_LOSSES else CLASSIFICATION
    C = border.cost(words["C"])
    if math.isinf(C):
        raise InputError(f"C={words['C']!r} is for rows in memory (svmcore.train_svc); over parts give a finite number")
    epsilon = border.number("epsilon", words["epsilon"], low=0.0) if kind == REGRESSION else 0.0
    equality = border.flag("fit_intercept", words["fit_intercept"])
    tol = border.number("tol", words["tol"], low=0.0, strict=True)
    parts = None if words["parts"] is None else border.integer("parts", words["parts"], low=1)
    size = None if words["working_set"] is None else border.integer("working_set", words["working_set"], low=2)
    certified = border.choice("certificate", words["certificate"], ("auto", "whole")) == "whole"
    verbose = border.verbosity(words["verbose"])
    control = new_control("fit", words["time_limit"], words["callback"], 0)
    files.refuse_among(X, Ledger(words["checkpoint"], {}).path)
    engine = _engine(X, words)
    try:
        found = engine.sources(X, y, sample_weight, words["label"], parts)
        whole = together(engine.gather(engine.run(summary, [(source, kind) for source in found])))
        labels, factors = (None, ()) if kind == REGRESSION else _labels(whole, words["class_weight"], several)
        kernel = _kernel(words["kernel"], words["gamma"], words["degree"], words["coef0"], whole)
    except BaseException:
        engine.close()
        raise
    classes = None if labels is None else labels[:2]
    task = Assignment(
        kind, kernel, C, loss, epsilon, equality, classes, labels, factors, whole.features, whole.mean, whole.sparse
    )
    terms = Terms(C, loss, epsilon if kind == REGRESSION else None)
    ledger = Ledger(words["checkpoint"], _described(task, whole))
    return Setup(engine, found, whole, task, terms, tol, control, ledger, verbose, size, certified)


def _described(task: Assignment, whole: Whole) -> dict[str, Any]:
    """What a checkpoint must agree with."""
    return {
        "rows of the parts": [part.rows for part in whole.parts],
        "classes": None if task.labels is None else [str(label) for label in task.labels],
        "checksum of y and sample_weight": [part.checksum for part in whole.parts],
        "kernel": [float(value) for value in task.kernel],
        "C": task.C,
        "loss": task.loss,
        "epsilon": task.epsilon,
        "fit_intercept": task.equality,
        "class_weight": list(task.factors),
        "features": task.n_features,
        "mean of the rows": whole.mean.tolist(),
    }


_AGAIN = "run it again; with checkpoint= it goes on from here"
_REMEDIES = REMEDIES | {
    Status.TIME_LIMIT: "raise time_limit or tol; with checkpoint= the next run goes on from here",
    Status.INTERRUPTED: _AGAIN,
    Status.CALLBACK: _AGAIN,
    Status.LIMITED: "raise working_set or tol",
}


def speak(status: Status, violation: float, relative: float, tol: float, estimated: bool = False) -> None:
    """Warn when the answer is not what was asked for, or when meeting the tolerance means little."""
    about = "about " if estimated else ""
    lost = f"KKT violation {about}{violation:.1e} (tol {tol:g}), relative gap {about}{relative:.1e}"
    if status in _REMEDIES:
        warn(f"{status}: {lost}. Remedy: {_REMEDIES[status]}.", ConvergenceWarning)
    elif abs(relative) > LARGE_GAP:
        warn(MEANS_LITTLE, ConvergenceWarning)

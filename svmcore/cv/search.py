"""`cv_path`: cross-validation over every C at once, exactly.

check -> folds -> a path and its exact curve per fold (and gamma), side by side -> `PathCV`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from svmcore import _check
from svmcore._columns import names_of
from svmcore._errors import ConvergenceWarning, InputError
from svmcore._types import FloatArray
from svmcore.cv.folds import LOO, Fold, check_training, make_folds
from svmcore.cv.grams import Grams
from svmcore.cv.members import Rest, Result, Study, Task, last_weight, run_task
from svmcore.cv.progress import CVProgress, Progress
from svmcore.cv.result import Curves, PathCV
from svmcore.cv.scores import Score, make_score
from svmcore.gram import available_threads
from svmcore.parallel import run_all, worker_count
from svmcore.solve import _checked_points

ALIGN = ("C", "C*n")
_WARN_GAP = 1e-6


def cv_path(
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    kernel: Any = "rbf",
    gamma: Any = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    fit_intercept: bool = True,
    intercept_scaling: float | None = None,
    standardize: bool = False,
    feature_names: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    weight_training: bool = True,
    weight_score: bool = True,
    score: str = "error",
    costs: Any = None,
    groups: Any = None,
    align: str = "C",
    lambda_max: float | None = None,
    lambda_min: float | None = None,
    C_min: float | None = None,
    C_max: float | None = None,
    n_jobs: int | None = None,
    random_state: int | None = None,
    time_limit: float | None = None,
    callback: Callable[[CVProgress], Any] | None = None,
    verbose: int = 0,
    cache_mb: float | None = None,
) -> PathCV:
    """Cross-validate a two-class support vector machine for every C at once, exactly.

    Every fold has the exact path of its training rows, and its score on the validation rows is an exact function of C: no
    grid, no tolerance. Folds share the kernel matrix where it fits into memory.

    Parameters
    ----------
    X, y, kernel, degree, coef0, fit_intercept, intercept_scaling, class_weight : as in `train_svc`.
    cv : the number of folds (stratified, shuffled by `random_state`); "loo", leave one out; a list of pairs of index
        arrays (train, test); or any scikit-learn splitter.
    groups : one group per row; rows of a group stay together. For a number of folds, "loo" or a splitter.
    gamma : "scale" or "auto", worked out once on all rows, or a number.
    standardize : give every feature mean 0 and standard deviation 1; in a fold by its training rows only.
    sample_weight : weights of the rows, in training (`weight_training`) and in the score (`weight_score`): two switches.
    score : "error", the share of wrong predictions; "balanced_error", its mean over the classes. Less is better.
    costs : for score="error": what a mistake costs, a mapping from true label to cost, or a matrix of true by predicted.
    align : folds have fewer rows than all. "C": the same C for all; "C*n": C times the weight of the rows is the same.
    lambda_max, lambda_min, C_min, C_max : the ends, lambda = 1 / C (default: up to C = 1000, from the smallest C).
    n_jobs : paths side by side, in threads (joblib's `parallel_backend` may choose processes); -1: one per processor. The
        result does not depend on it.
    random_state : seed of the folds; None is 0.
    time_limit, callback, Ctrl-C : end early and keep the folds that are complete. verbose : a progress line on stderr.
    cache_mb : memory for kernel rows of one path.

    Returns
    -------
    PathCV

    Examples
    --------
    >>> import svmcore
    >>> X, y = svmcore.load_data("demo:spirals")
    >>> cv = svmcore.cv_path(X, y, gamma=0.5, C_max=100.0)
    >>> cv.error(cv.best_C) == cv.best_error
    True
    >>> machine = cv.refit()
    """
    number = None if random_state is None else _check.integer("random_state", random_state, low=0, high=2**32 - 1)
    low, high = _ends(lambda_max, lambda_min, C_min, C_max)
    align = _check.choice("align", align, ALIGN)
    workers = worker_count(n_jobs)
    if callback is not None and not callable(callback):
        raise InputError(f"callback={callback!r} cannot be called; give a function of one progress report")
    limit = None if time_limit is None else _check.number("time_limit", time_limit, low=0.0)
    names = names_of(X, feature_names)
    X = _checked_points(X, kernel)
    n = X.shape[0]
    weights = _check.sample_weights(sample_weight, n)
    trained, scored = (
        weights if _check.flag(name, value) else None
        for name, value in (("weight_training", weight_training), ("weight_score", weight_score))
    )
    signs, classes = _check.labels(y, n, None if trained is None else trained > 0)
    codes = (signs > 0).astype(np.int64)
    form = {
        "kernel": kernel, "degree": degree, "coef0": coef0, "fit_intercept": fit_intercept,
        "intercept_scaling": intercept_scaling, "standardize": standardize,
    }  # fmt: skip
    factors = class_weight
    if class_weight is not None and not isinstance(class_weight, str):
        per_row = _check.class_weights(class_weight, classes, signs, trained)
        factors = np.array([per_row[codes == k][0] for k in range(classes.size)])
    elif class_weight is not None:
        _check.class_weights(class_weight, classes, signs, trained)
    study = Study(X, codes, classes, trained, factors, form, high, low, align == "C*n", cache_mb, names)
    folds = make_folds(cv, codes, classes, groups, number or 0)
    check_training(folds, codes, classes, trained)
    judge = make_score(score, costs, codes, classes, scored, folds)
    gammas = _gammas(study, gamma)
    progress = Progress(limit, callback, int(verbose))
    job = Job(study, folds, judge, progress, n_jobs, workers, isinstance(cv, str) and cv == LOO and groups is None)
    with progress.control:
        curves, stats = job.run(gammas)
    _speak(progress, stats, len(folds))
    return PathCV(study, judge, curves, stats, progress.reason or "done")


def _ends(lambda_max: Any, lambda_min: Any, C_min: Any, C_max: Any) -> tuple[float, float | None]:
    """The smallest lambda, and the largest (None: where the path begins)."""
    for C, lam, names in ((C_max, lambda_min, "C_max and lambda_min"), (C_min, lambda_max, "C_min and lambda_max")):
        if C is not None and lam is not None:
            raise InputError(f"{names} say the same, lambda = 1 / C; give one of them")
    if C_max is not None:
        low = 1.0 / _check.number("C_max", C_max, low=0.0, strict=True)
    else:
        low = _check.number("lambda_min", 1e-3 if lambda_min is None else lambda_min, low=0.0, strict=True)
    if C_min is not None:
        high = 1.0 / _check.number("C_min", C_min, low=0.0, high=1.0 / low, strict=True)
        return low, max(high, low)
    return low, None if lambda_max is None else _check.number("lambda_max", lambda_max, low=low)


def _gammas(study: Study, gamma: Any) -> list[float | None]:
    """The values of gamma as numbers; [None] for a kernel that has none."""
    spec = study.problem(gamma, np.arange(study.n)).spec  # for gamma="scale": standardised as the refit will be
    return [spec.kernel.gamma if spec.name in ("rbf", "poly", "sigmoid", "laplacian") else None]


class Job(NamedTuple):
    """One cross-validation on its way."""

    study: Study
    folds: list[Fold]
    score: Score
    progress: Progress
    n_jobs: int | None
    workers: int
    loo: bool

    def run(self, gammas: list[float | None]) -> tuple[list[Curves], dict[str, Any]]:
        """All paths, gamma by gamma."""
        study, progress = self.study, self.progress
        alone = study.form["standardize"]
        threads = max(1, available_threads() // self.workers)
        grams = Grams(study.X, threads, self.workers, 0 if alone else len(gammas))
        tasks = self._leave_one_out(gammas, grams) if self.loo else self._tasks(gammas)
        for gamma in gammas:
            grams.announce(gamma, sum(task.gamma == gamma for task in tasks))
        progress.more(len(tasks))
        results = list(run_all(run_task, [(study, task, grams, progress) for task in tasks], self.n_jobs))
        return self._collected(gammas, tasks, results)

    def _tasks(self, gammas: list[float | None]) -> list[Task]:
        study = self.study
        pairs = [(gamma, fold) for gamma in gammas for fold in self.folds]
        return [Task(k, gamma, fold, study.low / study.ratio(fold.train)) for k, (gamma, fold) in enumerate(pairs)]

    def _leave_one_out(self, gammas: list[float | None], grams: Grams) -> list[Task]:
        """The path of all rows says which rows matter, and up to which C."""
        study, every = self.study, np.arange(self.study.n)
        plain = self._tasks(gammas)
        low = min(task.low for task in plain)
        tasks = []
        for k, gamma in enumerate(gammas):
            grams.announce(gamma, 1)
            self.progress.more(1)
            result = run_task(study, Task(-1 - k, gamma, Fold(every, every), low), grams, self.progress)
            if result is None:
                return []
            assert result.member.path is not None
            light = result.member.path
            until = last_weight(light)
            until[until <= light.C_range[0]] = 0.0
            for task in plain[k * study.n : (k + 1) * study.n]:
                at = float(until[task.fold.test[0]])
                own = task._replace(low=max(task.low, 1.0 / at) if at > 0.0 else task.low)
                tasks.append(own._replace(rest=Rest(light, result.decisions, at)))
        return tasks

    def _collected(
        self, gammas: list[float | None], tasks: list[Task], results: list[Result | None]
    ) -> tuple[list[Curves], dict[str, Any]]:
        """Curves of the gammas all of whose folds are complete; else of the one with most."""
        k = len(self.folds)
        found = [[r for r in results[j * k : (j + 1) * k] if r is not None] for j in range(len(gammas))]
        most = max((len(each) for each in found), default=0)
        if most == 0:
            if self.progress.reason == "interrupted":
                raise KeyboardInterrupt
            raise InputError(
                f"the cross-validation ended ({self.progress.reason}) before the first of {k} folds was complete; raise "
                "time_limit, lower C_max, or use fewer rows"
            )
        chosen = [j for j in range(len(gammas)) if len(found[j]) == most]
        codes = self.study.codes
        curves = [
            Curves(
                gammas[j],
                [self.score.curve(r.decisions, codes, r.member.test, r.C_range) for r in found[j]],
                [r.support for r in found[j]],
                [r.member for r in found[j]],
            )
            for j in (chosen[:1] if most < k else chosen)
        ]
        done = [r for r in results if r is not None]
        stats = {
            "n_paths": len(done),
            "n_planned": len(tasks),
            "n_folds": most,
            "max_gap": max(r.max_gap for r in done),
            "n_loose": sum(r.max_gap > _WARN_GAP for r in done),
            "seconds": self.progress.control.seconds,
        }
        return curves, stats


def _speak(progress: Progress, stats: dict[str, Any], n_folds: int) -> None:
    if progress.reason is not None:
        warnings.warn(
            f"the cross-validation ended early ({progress.reason}): {stats['n_folds']} of {n_folds} folds are complete, "
            f"{stats['n_paths']} of {stats['n_planned']} paths. The error is the mean over these, and less certain. Remedy: "
            "a larger limit, a smaller C_max, or fewer folds or gammas.",
            ConvergenceWarning,
            stacklevel=3,
        )
    if stats["n_loose"]:
        warnings.warn(
            f"{stats['n_loose']} of {stats['n_paths']} paths have a relative duality gap of up to {stats['max_gap']:.1e}: "
            "points that are nearly equal, or a kernel matrix that is not positive semi-definite. The error may be off where "
            "they are. Remedy: scaled features, or a positive semi-definite kernel.",
            ConvergenceWarning,
            stacklevel=3,
        )


__all__ = ["FloatArray", "cv_path"]

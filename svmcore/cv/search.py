"""`cv_path`: cross-validation over every C at once, exactly.

check -> folds -> a path and its exact curve per fold (and gamma), side by side -> `PathCV`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._keywords import checked
from svmcore._types import FloatArray
from svmcore.base.parallel import worker_count
from svmcore.cv.folds import check_training, leaves_one_out, make_folds
from svmcore.cv.gammas import plan_of
from svmcore.cv.goals import HINGE, ONE_CLASS, Goal, divided, goal_of
from svmcore.cv.job import FoundCurves, Job
from svmcore.cv.members import Span, Study
from svmcore.cv.progress import CVProgress, SharedProgress
from svmcore.cv.result import PathCV
from svmcore.cv.scores import make_score
from svmcore.path.data import row_keys
from svmcore.path.driver import LAMBDA_MIN, ends_of
from svmcore.problem import border, labelling
from svmcore.problem.columns import names_of
from svmcore.problem.division import STRATEGIES
from svmcore.problem.intercept import by_size, wanted
from svmcore.problem.scales import warn_of_scales
from svmcore.train.forms import checked_points

ALIGN = ("C", "C*n")
_SPREADS = 100.0
"""Numbers are tuned up to so many times their standard deviation. The best C of noisy targets lies below a tenth of that."""
_FALLS = 0.01  # share by which a score falls from half of the largest C on, from which the end of the range matters


@checked()
def cv_path(
    X: Any, y: Any, *, cv: Any = 5, kernel: Any = "rbf", gamma: Any = "scale", degree: int = 3, coef0: float = 0.0,
    fit_intercept: bool | Literal["embedded"] = True, intercept_scaling: float | None = None, standardize: bool = False,
    feature_names: Any = None, sample_weight: Any = None, class_weight: Any = None, weight_training: bool = True,
    weight_score: bool = True, loss: str = "hinge", epsilon: float | None = None, tau: float | None = None,
    score: str | None = None, costs: Any = None, groups: Any = None, align: str | None = None,
    lambda_max: float | None = None, lambda_min: float | None = None, C_min: float | None = None,
    C_max: float | None = None, n_jobs: int | None = None, random_state: int | None = None,
    time_limit: float | None = None, callback: Callable[[CVProgress], Any] | None = None, verbose: int = 0,
    cache_mb: float | None = None, classes: str = "ovo",
) -> PathCV:  # fmt: skip
    """Cross-validate a support vector machine, for classes or for numbers, for every C at once, exactly.

    Every fold has the exact path of its training rows, and its score on the validation rows is an exact function of C: no
    grid, no tolerance. Folds share the kernel matrix where it fits into memory.

    Parameters
    ----------
    X, y, kernel, degree, coef0, fit_intercept, intercept_scaling, class_weight : as in `train_svc`.
    loss : what machines learn. "hinge", classes; "epsilon_insensitive", numbers, with a tube of the half-width `epsilon`
        (default 0.1), as `train_svr`; "pinball", the quantile `tau` of numbers (default 0.5); "one_class", the second of two
        classes alone, as `one_class_path`: rows of the first are there for validation only.
    cv : the number of folds (of classes stratified, shuffled by `random_state`; None: 5); "loo", leave one out; a list of
        pairs of index arrays (train, test); or any scikit-learn splitter.
    groups : one group per row; rows of a group stay together. For a number of folds, "loo" or a splitter.
    gamma : "scale" or "auto", worked out once on all rows; a number; a list of these; or "search": from coarse to fine,
        around the distances of the data. Every gamma has its exact curve.
    standardize : give every feature mean 0 and standard deviation 1; in a fold by its training rows only.
    sample_weight : weights of the rows, in training (`weight_training`) and in the score (`weight_score`): two switches.
    score : less is better. Of classes: "error", the share of wrong predictions; "balanced_error", its mean over the
        classes; "hinge", the mean of max(0, 1 - y f(x)); "auc", one minus the area under the ROC curve. Of numbers, by the
        distance |y - f(x)|: "absolute_error", "squared_error", "epsilon_insensitive" (what is beyond `epsilon`) and "pinball"
        (with `tau`), all means. Default: "error", "absolute_error", or for loss="pinball" the same. scikit-learn's names,
        "accuracy", "balanced_accuracy", "roc_auc", "neg_mean_absolute_error", "neg_mean_squared_error", are known, too.
    costs : for score="error": what a mistake costs, a mapping from true label to cost, or a matrix of true by predicted.
    align : folds have fewer rows than all. "C": the same C for all; "C*n": C times the weight of the rows is the same (the
        default of "one_class", where that is the same nu).
    lambda_max, lambda_min, C_min, C_max : the ends, lambda = 1 / C (default: from the smallest C up to C = 1000; of numbers
        up to 100 times their standard deviation, where that is above 1000).
    n_jobs : paths side by side, in threads (joblib's `parallel_backend` may choose processes); -1: one per processor. The
        result does not depend on it.
    random_state : seed of the folds; None is 0.
    time_limit, callback, Ctrl-C : end early and keep the folds that are complete. verbose : a progress line on stderr.
    cache_mb : memory for kernel rows of one path.
    classes : how more than two classes are told apart, all machines at the same C: "ovo", by a vote of one machine for every
        pair; or "ovr", by the largest value of one machine for every class. See `train_classes`.

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
    form = {
        "kernel": kernel, "degree": degree, "coef0": coef0, "fit_intercept": fit_intercept,
        "intercept_scaling": intercept_scaling, "standardize": standardize,
    }  # fmt: skip
    if by_size(fit_intercept, intercept_scaling):
        raise InputError(
            "tau = R would be another in each fold; give intercept_scaling, a number, which is one for all"
        )
    if intercept_scaling is not None:
        border.number("intercept_scaling", intercept_scaling, low=0.0)
    form["fit_intercept"] = wanted(fit_intercept, intercept_scaling, None).found
    seed = 0 if random_state is None else border.integer("random_state", random_state, low=0, high=2**32 - 1)
    if cache_mb is not None:
        cache_mb = border.number("cache_mb", cache_mb, low=0.0, strict=True)
    goal, score = goal_of(loss, score, epsilon, tau)
    align = border.choice("align", align or ALIGN[goal.loss == ONE_CLASS], ALIGN)
    high, low = ends_of(lambda_max, LAMBDA_MIN if lambda_min is None else lambda_min, C_min, C_max)
    span = Span(low, high, align == "C*n", cache_mb)
    weighing = Weighing(sample_weight, weight_training, weight_score, class_weight)
    strategy = border.choice("classes", classes, STRATEGIES)
    study, scored = _study(X, y, form, span, weighing, feature_names, strategy, goal)
    target = study.goal.target
    if C_max is None and lambda_min is None and target is not None:  # C is in units of the targets
        study = study._replace(span=span._replace(low=span.low / max(1.0, _SPREADS * span.low * float(np.std(target)))))
    progress = SharedProgress(border.time_limit(time_limit), border.callback(callback), border.verbosity(verbose))
    worker_count(n_jobs)  # a wrong one is named before the work begins
    learned = study.goal.learned(study.classes.size)
    folds = make_folds(cv, study.codes, study.classes, groups, seed, study.goal.target, learned)
    check_training(folds, study.codes, study.classes, study.weights, learned)
    judge = make_score(score, costs, study.codes, study.classes, scored, folds, study.goal)
    shared = study.rowwise and leaves_one_out(folds, study.n)
    job = Job(study, folds, judge, progress, n_jobs, worker_count(n_jobs), shared)
    plan = plan_of(study, gamma)
    found = job.run_exact(plan)
    _speak(found, len(folds))
    if not study.form["standardize"]:
        by_scale = isinstance(gamma, str) and gamma == "scale"
        warn_of_scales(study.X, study.spec(None).kernel, by_scale, names=study.names)
    answer = PathCV(study, judge, found.curves, found.stats, found.ended)
    if study.goal.target is not None and found.ended == "done":
        _speak_of_the_end(answer)
    return answer


class Weighing(NamedTuple):
    """How rows are weighed, as the user said it."""

    sample_weight: Any
    training: Any
    score: Any
    class_weight: Any


def _study(
    X: Any, y: Any, form: dict[str, Any], span: Span, weighing: Weighing, feature_names: Any, strategy: str, goal: Goal
) -> tuple[Study, FloatArray | None]:
    """The checked data, and the weights in the score."""
    names = names_of(X, feature_names)
    X = _own(checked_points(X, form["kernel"])[0])
    weights = _own(border.sample_weights(weighing.sample_weight, X.shape[0]))
    trained = weights if border.flag("weight_training", weighing.training) else None
    scored = weights if border.flag("weight_score", weighing.score) else None
    factors = weighing.class_weight
    if goal.loss in (HINGE, ONE_CLASS):
        codes, classes = labelling.class_codes(y, X.shape[0], trained)
    else:
        codes, classes = np.zeros(X.shape[0], dtype=np.int64), np.zeros(1)
        goal = goal._replace(target=_own(border.vector(y, "y", X.shape[0])))
    if factors is not None and goal.loss != HINGE:
        raise InputError(f"class_weight goes with loss={HINGE!r}; with loss={goal.loss!r} use sample_weight")
    if goal.loss == ONE_CLASS:
        if classes.size != 2:
            raise InputError(f"loss={ONE_CLASS!r} validates on rows of two classes, and y holds {classes.size}")
        form = {**form, "fit_intercept": False}
    checked = None if factors is None else labelling.class_factors(factors, classes, codes, trained)
    which = divided(goal, classes.size, strategy)
    by_fold = factors if isinstance(factors, str) else checked  # "balanced" depends on the training rows
    keys, numbers = np.unique(row_keys(X, codes if goal.target is None else goal.target), return_inverse=True)
    same = None if keys.size == numbers.size else np.reshape(numbers, -1)
    return Study(X, codes, classes, trained, by_fold, form, span, names, which, goal, same), scored


def _own(array: Any) -> Any:
    """A copy: a `PathCV` looks at the data again, and the caller's array may have changed by then."""
    return None if array is None else array.copy()


def _speak(found: FoundCurves, n_folds: int) -> None:
    stats = found.stats
    if found.ended != "done":
        warn(
            f"the cross-validation ended early ({found.ended}): {stats['n_folds']} of {n_folds} folds are complete, "
            f"{stats['n_paths']} of {stats['n_planned']} paths. The error is the mean over these, and less certain. Remedy: "
            "a larger limit, a smaller C_max, or fewer folds or gammas.",
            ConvergenceWarning,
        )
    if stats["n_loose"]:
        warn(
            f"{stats['n_loose']} of {stats['n_paths']} paths have a relative duality gap of up to {stats['max_gap']:.1e}: "
            "points that are nearly equal, or a kernel matrix that is not positive semi-definite. The error may be off where "
            "they are. Remedy: scaled features, or a positive semi-definite kernel.",
            ConvergenceWarning,
        )


def _speak_of_the_end(answer: PathCV) -> None:
    """Warn where numbers are best at the largest C and the score still falls there."""
    most = answer.C_range[1]
    if most / 2.0 > answer.C_range[0] and answer.error(most) < (1.0 - _FALLS) * answer.error(most / 2.0):
        warn(
            f"the score still falls at the end of the range, C = {most:g}: a larger C may be better. Remedy: a larger C_max, "
            "or targets divided by their spread.",
            ConvergenceWarning,
        )

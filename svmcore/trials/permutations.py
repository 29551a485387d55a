"""Permutation tests: is a cross-validated score better than those of permuted labels?

The shuffles, the folds and the p-value are those of scikit-learn's `permutation_test_score`, run for run, for the same seed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import EVERY, Control, new_control
from svmcore._errors import InputError
from svmcore._keywords import Gamma, KernelLike, checked
from svmcore._types import NONZERO, FloatArray, IntArray, Status
from svmcore.base.frames import frame
from svmcore.base.parallel import worker_count
from svmcore.base.threads import one_blas_thread
from svmcore.cv.trials import COUNTED, FoldNumbers
from svmcore.kernel.matrix import available_threads
from svmcore.kernel.points import is_sparse
from svmcore.problem import border
from svmcore.solvers._crowd import Manner, Matrices, harvest, pilot
from svmcore.train.functions import train_svc
from svmcore.trials.labellings import Trial, Wording, checked_matrices, gram_of_rows, learned, setting_of
from svmcore.trials.shuffles import _own_order, shuffles
from svmcore.trials.slices import Violations, labellings_of_a_slice, parts, pilots, pooled_scores

TIE = 1e-12  # scores that are nearer are equal: the same counts in other folds round differently
BLOCK = 16  # slices between two looks at the rule of stopping, and of shuffles that are made at a time
_MAPS = 256  # machines whose weights are made at a time, as one product of matrices
SIDES = ("greater", "less", "two-sided")
STOPS = (None, "besag-clifford")
_USUAL, _AS_SCIKIT = 1000, 100  # permutations, by form of the call
_MACHINES = {"SVC": "hinge", "SVR": "epsilon_insensitive"}
_OF_LINEAR = ": it also makes its intercept small. SVC(kernel='linear'), or SVR, does not, and has the fast way"
_AS_THEY_ARE = {"max_iter": -1, "break_ties": False, "multi_class": "ovo"}
_THEIR_WORDS = ("C", "kernel", "gamma", "degree", "coef0")
_WORDS = {
    "C": 1.0, "loss": "hinge", "epsilon": None, "kernel": "rbf", "gamma": "scale", "degree": 3, "coef0": 0.0,
    "class_weight": None, "tol": None,
}  # fmt: skip
"""Words of the problem that an estimator may say, and what they are where nobody does."""


class _Triple(NamedTuple):
    score: Any
    permutation_scores: Any
    pvalue: Any


class PermutationTest(_Triple):
    """What `permutation_test` returns. It unpacks as scikit-learn's result does: score, permutation_scores, pvalue.

    Attributes
    ----------
    score : that of the labels as they are; (m,) for m columns.
    permutation_scores : (permutations,), or (permutations, m); with statistic="max" the largest over the columns.
    pvalue : (1 + the number of permutations that reach the score) / (1 + permutations); NaN without permutations.
    n_permutations : how many are complete. n_reached : how many of them reach the score.
    C : the value of C that gives the score.
    violation, relative_gap : the largest of all machines. With C="path" there are paths, and of these the gap alone.
    n_fits : the machines that were trained; with C="path" the labellings. seconds : the time for all.
    status : why it ended.
    map, map_pvalues, map_maxima : with maps=True, see there.
    """

    n_permutations: int
    n_reached: Any
    C: Any
    violation: float
    relative_gap: float
    n_fits: int
    seconds: float
    status: Status
    scoring: str
    alternative: str
    map: FloatArray | None
    map_pvalues: FloatArray | None
    map_maxima: FloatArray | None

    def __repr__(self) -> str:
        count = f"{self.n_permutations} permutations"
        if np.ndim(self.score):
            return f"<PermutationTest: {len(self.score)} columns, {count}, least p {np.min(self.pvalue):.4g}>"
        return f"<PermutationTest: {self.scoring} {self.score:.4g}, p {self.pvalue:.4g} of {count}>"

    def to_frame(self) -> Any:
        """A pandas DataFrame: the scores of all permutations, a column for each column of Y."""
        scores = np.asarray(self.permutation_scores)
        if scores.ndim == 1:
            return frame({"score": scores})
        return frame({f"column {k}": column for k, column in enumerate(scores.T)})

    def plot(self, ax: Any = None, *, column: int = 0, of: str = "score", level: float = 0.05) -> Any:
        """The null distribution, with the score and its p-value. Returns the axes. Needs matplotlib.

        of="map": the weight of every feature, and the null distribution of the largest one. Those above the line are
        significant at this level, for all features together.
        """
        from svmcore.plots.null import draw_null

        return draw_null(self, ax, column, of, level)


class PermutationProgress(NamedTuple):
    """What a callback receives. Return True (or any true value) to stop; what is complete is kept."""

    n_done: int
    n_permutations: int
    pvalue: float
    """Of what is complete; the least one of several columns."""
    done: float
    """Share of the permutations."""
    seconds: float


class _TestPlan(NamedTuple):
    """How many permutations there are, how they count, and when to stop."""

    n: int
    alternative: str
    largest: bool
    exceed: int  # 0: no rule of stopping
    tie: float
    pooled: bool

    @property
    def side(self) -> int:
        """0: what reaches a score from above counts; 1: from below."""
        return 1 if self.alternative == "less" else 0


@checked(train_svc)
def permutation_test(
    *data: Any, X: Any = None, y: Any = None, cv: Any = None, n_permutations: int | None = None, C: Any = None,
    loss: str | None = None, epsilon: float | None = None, kernel: KernelLike | None = None, gamma: Gamma | None = None,
    degree: int | None = None, coef0: float | None = None, standardize: bool = False, feature_names: Any = None,
    sample_weight: Any = None, class_weight: Any = None, score: Any = None, scoring: Any = None, groups: Any = None,
    permutations: Any = None, pooled: bool = False, alternative: str = "greater", statistic: str | None = None,
    stop: str | None = None, exceed: int = 10, maps: bool = False, tol: float | None = None, random_state: Any = 0,
    n_jobs: int | None = None, time_limit: float | None = None, callback: Any = None, verbose: int = 0,
) -> PermutationTest:  # fmt: skip
    """Test a cross-validated score against those of permuted labels: `permutation_test(X, y, cv=5, n_permutations=1000)`.

    With a machine first, `permutation_test(SVC(...), X, y, ...)`, it is the call of scikit-learn's `permutation_test_score`:
    100 permutations, and its scores. The machine is an SVC or SVR, scikit-learn's or this library's. Its gamma="scale" looks
    at the rows that train in a fold; without a machine first, at all rows.

    Parameters
    ----------
    X : at most 2,000 rows. y : labels (two classes or several), or targets with loss="epsilon_insensitive"; (n,), or (n, m)
        for m columns, which one permutation shuffles alike.
    cv, C, loss, epsilon, kernel, gamma, degree, coef0, standardize, sample_weight, class_weight, score, tol : as in
        `cross_val_many`; `scoring` is another name of score. Weights stay with their rows.
    C : of a list, the score of a labelling is its best one over C: the p-value is that of the tuned machine. A single C that
        was chosen with the true labels gives p-values that are too small. C="path": the best over every C up to 1,000,
        exactly, for labels; score "accuracy" or "balanced_accuracy". A labelling then takes as long as `cv_path`.
    groups : labels are shuffled within groups, and splitters get them.
    permutations : (permutations, n), your own shuffles as indices of rows, in place of random ones.
    pooled : the score of all decision values out of fold at once, instead of the mean over folds.
    alternative : "greater", "less", or "two-sided" (twice the smaller one).
    statistic : "max": permutation_scores are the largest over the columns, and p-values hold for all columns together.
    stop, exceed : stop="besag-clifford" ends when `exceed` permutations have reached the score: p = exceed / permutations,
        which is exact (Besag and Clifford, 1991). It goes by the order of permutations, so threads change nothing.
    maps : also train on all rows. `map` has the weights of the features (the sum of coefficients times rows, for kernels that
        are not linear), `map_maxima` the largest size of a weight for each permutation, `map_pvalues` how often a permuted
        weight is as large.
    random_state : as in scikit-learn; the same number gives the same shuffles.
    n_jobs : threads; results do not depend on it.
    time_limit, callback : as in `train_svc`. Then, and after Ctrl-C, what is complete is returned, with the p-value of that.
    verbose : lines of progress.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> score, permutation_scores, pvalue = svmcore.permutation_test(X, X[:, 0] > 0, n_permutations=200, kernel="linear")
    >>> float(pvalue) < 0.01
    True
    """
    begin = time.perf_counter()
    X, y, cv, n_permutations, words, exact = _sorted_words(data, (X, y, cv, n_permutations), locals())
    C, tol = words.pop("C"), words.pop("tol")
    form = Wording(**words, standardize=standardize, feature_names=feature_names, sample_weight=sample_weight)
    gram, weights = gram_of_rows(X, form, max(1, available_threads() // worker_count(n_jobs)))
    n = len(gram)
    codes, classes = learned(y, n, form.loss, weights)
    if score is not None and scoring is not None:
        raise InputError("score and scoring are two names of one thing; give one of them")
    setting = setting_of(form, codes, classes, weights, C, cv, groups, score if scoring is None else scoring, tol)
    setting = replace(setting, word="permutation", keep=border.flag("pooled", pooled))
    if setting.all_costs and (pooled or maps or exact or setting.judge not in COUNTED):
        raise InputError(
            'C="path" is for X and y without a machine, for "accuracy" and "balanced_accuracy", and not with pooled or maps; '
            "give a list of numbers"
        )
    if exact and form.gamma == "scale" and form.kernel in ("rbf", "poly", "sigmoid"):
        setting = setting.with_own_gamma(X, form)
    plan = _plan(n_permutations, permutations, alternative, statistic, stop, exceed, exact, pooled)
    order = _own_order(permutations, n) if permutations is not None else shuffles(n, plan.n, groups, random_state)
    matrices = checked_matrices(gram)
    with new_control("permutation_test", time_limit, callback, 0) as control:
        run = _NullRun(setting, matrices, codes, plan, n_jobs, control, bool(border.verbosity(verbose)))
        run.go(order, _Maps(X, form, codes, setting, matrices) if maps else None)
        return run.result(time.perf_counter() - begin)


def _sorted_words(data: tuple[Any, ...], named: tuple[Any, ...], words: dict[str, Any]) -> tuple[Any, ...]:
    """Both forms of the call: (X, y, cv, n_permutations, the words of the problem, whether an estimator came first)."""
    own = {name: words[name] for name in _WORDS if words[name] is not None}
    estimator = hasattr(data[0], "get_params") if data else False
    names = ("X", "y", "cv", "n_permutations")
    given = data[1:] if estimator else data
    if len(given) > len(names):
        raise InputError(f"permutation_test takes {', '.join(names)} without names; name the others")
    twice = [name for name, old, _ in zip(names, named, given, strict=False) if old is not None]
    if twice:
        raise InputError(f"{twice[0]} is given twice")
    X, y, cv, count = (*given, *named[len(given) :])
    if X is None or y is None:
        raise InputError("give X and y: permutation_test(X, y, ...), or permutation_test(estimator, X, y, ...)")
    if estimator and own:
        raise InputError(f"{next(iter(own))} is a parameter of the estimator; set it there")
    found = _WORDS | (words_of(data[0]) if estimator else own)
    return X, y, cv, (_AS_SCIKIT if estimator else _USUAL) if count is None else count, found, estimator


def words_of(estimator: Any) -> dict[str, Any]:
    """The problem of an SVC or SVR, scikit-learn's or this library's; InputError for others."""
    kind = type(estimator)
    name = kind.__name__
    if name not in _MACHINES or kind.__module__.split(".")[0] not in ("sklearn", "svmcore"):
        more = _OF_LINEAR if name in ("LinearSVC", "LinearSVR") else ""
        raise InputError(f"{name} is not an SVC or SVR{more}")
    params = estimator.get_params()
    for word, usual in _AS_THEY_ARE.items():
        if params.get(word, usual) != usual:
            raise InputError(f"{name}({word}={params[word]!r}) is not what all fits share; leave {word} at {usual!r}")
    words = {name: params[name] for name in _THEIR_WORDS} | {"loss": _MACHINES[name]}
    return words | {name: params[name] for name in ("epsilon", "class_weight") if params.get(name) is not None}


def _plan(
    n_permutations: Any, permutations: Any, alternative: Any, statistic: Any, stop: Any, exceed: Any, exact: bool,
    pooled: bool,
) -> _TestPlan:  # fmt: skip
    count = border.integer("n_permutations", n_permutations, low=0) if permutations is None else len(permutations)
    alternative = border.choice("alternative", alternative, SIDES)
    if statistic not in (None, "max"):
        raise InputError(f'statistic={statistic!r} is not known; use "max", or leave it out')
    if stop not in STOPS:
        raise InputError(f'stop={stop!r} is not known; use "besag-clifford", or leave it out')
    if stop is not None and (statistic is not None or alternative == "two-sided"):
        raise InputError(
            'stop="besag-clifford" decides every column by itself and on one side; leave out stop, or the other word'
        )
    exceed = border.integer("exceed", exceed, low=1) if stop is not None else 0
    return _TestPlan(count, alternative, statistic == "max", exceed, 0.0 if exact else TIE, pooled)


class _Maps:
    """Weights of the features of machines trained on all rows, made in blocks."""

    def __init__(self, X: Any, form: Wording, codes: Any, setting: Trial, matrices: Matrices) -> None:
        if form.kernel == "precomputed" or callable(form.kernel):
            raise InputError(
                f"maps=True needs features, and kernel={form.kernel!r} has none; give X and a kernel by name"
            )
        if len(codes) > 1 or len(setting.costs) > 1 or len(setting.pairs) > 1:
            raise InputError(
                "maps=True is for one column of two classes or of targets, and one value of C; call it for each"
            )
        if form.standardize:
            raise InputError(
                "maps=True gives weights of the features as they are; standardize X first, and leave standardize out"
            )
        points = border.features(X)
        self.X = points if is_sparse(points) else np.asarray(points, np.float32)
        self.setting, self.matrices = setting, matrices
        self.folds = FoldNumbers(np.ones((1, codes.shape[1]), np.int64), 1)
        self.inverse = pilot(matrices, self._crowd(codes[:1]), setting.tol)
        self.map = self._of(codes)[0]
        self.maxima: list[FloatArray] = []
        self.reached = np.zeros(self.map.shape)

    def _crowd(self, codes: Any) -> Any:
        return self.setting.crowd(codes, (1, 0), self.folds, self.setting.costs[0])

    def _of(self, codes: Any) -> FloatArray:
        way = Manner(self.setting.tol, self.inverse, False, True)
        coef = harvest(self.matrices, self._crowd(codes), way).coef
        if is_sparse(self.X):
            return np.asarray((self.X.T @ coef.T).T)
        return np.asarray(coef.astype(np.float32) @ self.X)

    def add(self, codes: Any) -> None:
        """Count what some permutations reach."""
        for k in range(0, len(codes), _MAPS):
            weights = np.abs(self._of(codes[k : k + _MAPS]))
            self.maxima.append(weights.max(axis=1))
            self.reached += (weights >= np.abs(self.map)).sum(axis=0)


class _NullRun:
    """One test: what is complete, and the p-value of that."""

    def __init__(
        self, setting: Trial, matrices: Matrices, codes: Any, plan: _TestPlan, n_jobs: Any, control: Control,
        verbose: bool,
    ) -> None:  # fmt: skip
        self.setting, self.matrices, self.codes, self.plan, self.n_jobs = setting, matrices, codes, plan, n_jobs
        self.control, self.verbose, self.said = control, verbose, time.perf_counter()
        self.violations, self.relative_gap, self.n_fits = Violations(setting.tol), 0.0, 0
        self.scores: list[FloatArray] = []  # (permutations, columns)
        self.reached = np.zeros((2, len(codes)), np.int64)  # from above, from below
        self.n, self.status = 0, Status.CONVERGED
        self.maps: _Maps | None = None

    def go(self, order: Iterator[IntArray], maps: _Maps | None) -> None:
        """The true labels, and then permutations in blocks, until all are done or a reason comes up."""
        codes, self.maps = self.codes, maps
        inverse = pilots(self.setting, self.matrices, codes)
        self.true, self.C = self._judged(codes, inverse, 0, lambda _: False)
        m = len(codes)
        step = max(1, labellings_of_a_slice(self.setting, codes) * (1 if self.plan.exceed else BLOCK) // m)
        while self.n < self.plan.n and self.status.ok:
            if self.plan.exceed and (self.reached[self.plan.side] >= self.plan.exceed).all():
                break
            rows = np.array([next(order) for _ in range(min(step, self.plan.n - self.n))])
            shuffled = np.ascontiguousarray(codes[:, rows].transpose(1, 0, 2).reshape(-1, codes.shape[1]))
            scores, _ = self._judged(shuffled, inverse, 1 + self.n, self._poll)
            whole = len(scores) // m
            self._count(scores[: whole * m].reshape(whole, m))
            if maps is not None:
                with one_blas_thread:
                    maps.add(shuffled[: whole * m])
            if self.status.ok:
                self._poll(0)

    def _judged(
        self, codes: Any, inverse: list[bool], first: int, ended: Callable[[int], bool]
    ) -> tuple[FloatArray, FloatArray]:
        """(the best score over C, where it is) of every labelling that is complete."""
        found, places = [np.empty(0)], [np.empty(0)]
        for part in parts(self.setting, self.matrices, inverse, codes, self.n_jobs, ended, first):
            self.violations.add(part.violation)
            ratio = part.gap / np.maximum(np.abs(part.primal), NONZERO)
            self.relative_gap = max(self.relative_gap, float(ratio.max()))
            self.n_fits += part.violation.size * len(self.setting.pairs)
            done = sum(map(len, found))
            own = codes[done : done + len(part.scores)]
            scores = pooled_scores(self.setting, part.decisions, own) if self.plan.pooled else part.scores
            means, wrong = scores.mean(axis=-1), ~np.isfinite(scores)
            if wrong.any():  # as of a fold that validates one class only
                p, _, fold = (int(k[0]) for k in np.nonzero(wrong))
                judge = self.setting.judge
                raise InputError(
                    f"permutation {first + done + p}: {judge if isinstance(judge, str) else 'the score'} of fold {fold} is "
                    f"{scores[wrong][0]}: it validates rows of one class or one value only; use stratified folds (cv=5), "
                    "fewer of them, or pooled=True"
                )
            best = means.argmax(axis=1)
            places.append(self.setting.costs[best] if part.best is None else part.best)
            found.append(means[np.arange(len(means)), best])
        return np.concatenate(found), np.concatenate(places)

    def _count(self, scores: FloatArray) -> None:
        """Take scores of further permutations, in their order, up to where every column is decided."""
        if self.plan.exceed and len(scores):
            hits = self.reached[self.plan.side] + np.cumsum(self._hits(scores)[self.plan.side], axis=0)
            decided = (hits >= self.plan.exceed).all(axis=1)
            if decided.any():
                scores = scores[: int(np.argmax(decided)) + 1]
        self.scores.append(scores)
        statistic = scores.max(axis=1, keepdims=True) if self.plan.largest and len(scores) else scores
        self.reached = self.reached + [each.sum(axis=0) for each in self._hits(statistic)]
        self.n += len(scores)

    def _hits(self, scores: FloatArray) -> tuple[Any, Any]:
        return scores >= self.true - self.plan.tie, scores <= self.true + self.plan.tie

    def _pvalues(self) -> FloatArray:
        if not self.n:
            return np.full(len(self.true), np.nan)
        above, below = (self.reached + 1.0) / (self.n + 1.0)
        if self.plan.alternative == "two-sided":
            return np.asarray(np.minimum(1.0, 2.0 * np.minimum(above, below)))
        if not self.plan.exceed:
            return np.asarray((above, below)[self.plan.side])
        hits = self._hits(np.concatenate(self.scores))[self.plan.side]
        reached = np.cumsum(hits, axis=0)
        last = np.argmax(reached >= self.plan.exceed, axis=0) + 1  # the permutation that decided the column
        over = (hits.sum(axis=0) + 1.0) / (self.n + 1.0)
        return np.asarray(np.where(reached[-1] >= self.plan.exceed, self.plan.exceed / last, over))

    def _poll(self, done: int) -> bool:
        """Tell the user how far it is; whether to stop."""
        reached = self.n + done // len(self.true)
        pvalue = float(np.min(self._pvalues())) if self.n else float("nan")
        report = PermutationProgress(reached, self.plan.n, pvalue, reached / max(1, self.plan.n), self.control.seconds)
        if self.verbose and time.perf_counter() - self.said >= EVERY:
            self.said = time.perf_counter()
            about = "" if np.isnan(pvalue) else f", p about {pvalue:.2g}"
            sys.stderr.write(f"permutation {reached:,} of {self.plan.n:,}{about}\n")
        status = self.control.poll(report, str)
        if status is not None:
            self.status = status
        return status is not None

    def result(self, seconds: float) -> PermutationTest:
        """What is complete."""
        self.violations.machines = self.n_fits
        self.violations.speak()
        m, maps, setting = len(self.true), self.maps, self.setting
        every = np.concatenate(self.scores) if self.scores else np.empty((0, m))
        if self.plan.largest:
            every = every.max(axis=1) if len(every) else np.empty(0)
        elif m == 1:
            every = every[:, 0]
        told: Any = self.true, self._pvalues(), self.C, self.reached[self.plan.side]
        score, pvalue, C, reached = told if m > 1 else (each[0].item() for each in told)
        out = PermutationTest(score, every, pvalue)
        vars(out).update(
            n_permutations=self.n, n_reached=reached, C=C, violation=np.nan if setting.all_costs else self.violations.worst,
            relative_gap=self.relative_gap, n_fits=self.n_fits, seconds=seconds, status=self.status, scoring=setting.score,
            alternative=self.plan.alternative, map=None if maps is None else maps.map,
            map_pvalues=None if maps is None else (maps.reached + 1.0) / (self.n + 1.0),
            map_maxima=None if maps is None else np.concatenate([np.empty(0), *maps.maxima]),
        )  # fmt: skip
        return out

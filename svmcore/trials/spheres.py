"""`searchlight`: a cross-validated score for every group of features, or for every matrix of a stack, and p-values."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from svmcore._control import new_control
from svmcore._errors import InputError
from svmcore._keywords import Gamma, KernelLike, checked
from svmcore._types import FloatArray, IntArray, Status
from svmcore.kernel.points import is_sparse
from svmcore.problem import border
from svmcore.train.functions import train_svc
from svmcore.trials.labellings import Stack, Trial, Wording, demand_size, gram_of_rows, learned, setting_of
from svmcore.trials.permutations import TIE
from svmcore.trials.shuffles import shuffles
from svmcore.trials.slices import CHUNK, Ending, Judged, Violations, in_slices, of_gram


@dataclass(frozen=True)
class Searchlight:
    """What `searchlight` returns.

    Attributes
    ----------
    scores : (m,), the score of every group; NaN for a group without features, and where the work ended before.
    pvalues : (m,), of every group by itself; NaN without permutations.
    corrected : (m,), for all groups together: how often the largest permuted score reaches that of the group.
    permutation_maxima : (permutations,), the largest score over all groups.
    violation : the largest of all machines. n_fits : their number.
    score : its name. status : why it ended. Where that was early, nothing is corrected. seconds : the time for all.
    """

    scores: FloatArray
    pvalues: FloatArray
    corrected: FloatArray
    permutation_maxima: FloatArray
    violation: float
    n_fits: int
    score: str
    status: Status
    seconds: float = field(compare=False)

    def __repr__(self) -> str:
        known = self.scores[np.isfinite(self.scores)]
        best = f", largest {self.score} {known.max():.4g}" if known.size else ""
        least = f", least corrected p {np.nanmin(self.corrected):.4g}" if np.isfinite(self.corrected).any() else ""
        return f"<Searchlight: {known.size} of {self.scores.size} groups{best}{least}>"

    def plot(self, ax: Any = None, *, level: float = 0.05) -> Any:
        """The score of every group, and the null distribution of the largest one. Returns the axes. Needs matplotlib.

        Groups above the line are significant at this level, for all of them together.
        """
        from svmcore.plots.null import draw_light

        return draw_light(self, ax, level)


@checked(train_svc)
def searchlight(
    X: Any, y: Any, neighbours: Any = None, *, cv: Any = 5, n_permutations: int = 0, C: float = 1.0, loss: str = "hinge",
    epsilon: float | None = None, kernel: KernelLike = "linear", gamma: Gamma = "scale", degree: int = 3,
    coef0: float = 0.0, sample_weight: Any = None, class_weight: Any = None, score: Any = None, groups: Any = None,
    tol: float | None = None, random_state: Any = 0, n_jobs: int | None = None, time_limit: float | None = None,
    callback: Any = None, verbose: int = 0,
) -> Searchlight:  # fmt: skip
    """Cross-validate a machine on every group of features, and test all of them by the same permutations of the labels.

    Parameters
    ----------
    X : rows and features, at most 2,000 rows. Or a stack of kernel matrices, (m, n, n), with kernel="precomputed".
    y : labels or targets, (n,).
    neighbours : the features of every group: a sparse or dense matrix (groups, features), whose entries that are not zero
        count, or a list of arrays of indices. None for a stack.
    n_permutations : 0: scores alone.
    cv, C, loss, epsilon, kernel, gamma, degree, coef0, sample_weight, class_weight, score, tol : as in `cross_val_many`.
    groups, random_state : as in `permutation_test`.
    n_jobs : threads; results do not depend on it. time_limit, callback, verbose : as in `train_svc`.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> X = np.random.default_rng(0).normal(size=(40, 30))
    >>> spheres = [np.arange(k, k + 3) for k in range(0, 30, 3)]
    >>> found = svmcore.searchlight(X, X[:, 4] > 0, spheres, n_permutations=50)
    >>> int(found.scores.argmax()), bool(found.corrected[1] < 0.05)
    (1, True)
    """
    begin = time.perf_counter()
    form = Wording(loss, epsilon, kernel, gamma, degree, coef0, False, None, sample_weight, class_weight)
    source: Any = Stack(X, kernel) if neighbours is None else _SphereGroups(X, neighbours, form)
    n = source.n
    weights = border.sample_weights(sample_weight, n)
    columns, classes = learned(y, n, loss, weights)
    if len(columns) > 1:
        raise InputError(f"y has {len(columns)} columns, and searchlight tests one; call it for each")
    if np.asarray(C).dtype.kind == "U" or np.ndim(C):
        raise InputError(f"searchlight takes one number for C, not {C!r}; call it for each")
    setting = replace(setting_of(form, columns, classes, weights, C, cv, groups, score, tol), word="permutation")
    count = border.integer("n_permutations", n_permutations, low=0)
    rows = np.array([np.arange(n), *shuffles(n, count, groups, random_state)])
    codes = np.ascontiguousarray(columns[0][rows])
    scores, reached = np.full(source.m, np.nan), np.zeros(source.m)
    maxima, violations = np.full(count, -np.inf), Violations(setting.tol)
    with new_control("searchlight", time_limit, callback, verbose) as control:
        ended = Ending(control, source.m)
        for first, part in in_slices(
            _some, lambda a, b: (setting, source, codes, a, b), CHUNK, source.m, n_jobs, ended
        ):
            for k, each in enumerate(part, first):
                if each is not None:
                    means = each.scores[:, 0].mean(axis=1)
                    scores[k], reached[k] = means[0], np.count_nonzero(means[1:] >= means[0] - TIE)
                    np.maximum(maxima, means[1:], out=maxima)
                    violations.add(each.violation)
    violations.speak()
    known, corrected = np.isfinite(scores), np.full(source.m, np.nan)
    pvalues = np.where(known & (count > 0), (1.0 + reached) / (1.0 + count), np.nan)
    if count and ended.status.ok:
        over = count - np.searchsorted(np.sort(maxima), np.where(known, scores, np.inf) - TIE)
        corrected = np.where(known, (1.0 + over) / (1.0 + count), np.nan)
    return Searchlight(
        scores, pvalues, corrected, maxima if ended.status.ok else np.full(count, np.nan), violations.worst,
        violations.machines, setting.score, ended.status, time.perf_counter() - begin,
    )  # fmt: skip


class _SphereGroups:
    """Groups of the features of the same rows."""

    def __init__(self, X: Any, neighbours: Any, form: Wording) -> None:
        if form.kernel == "precomputed":
            raise InputError(
                "kernel='precomputed' knows no features; use another kernel, or a stack without neighbours"
            )
        points = border.features(X)
        self.X = np.asfortranarray(points.toarray() if is_sparse(points) else points)
        self.form = form
        self.n = self.X.shape[0]
        demand_size(self.n)
        self.members = _members(neighbours, self.X.shape[1])
        self.m = len(self.members)

    def gram(self, k: int) -> FloatArray | None:
        """The kernel matrix of group k; None for one without features."""
        own = self.members[k]
        return gram_of_rows(self.X[:, own], self.form, 1)[0] if len(own) else None


def _members(neighbours: Any, width: int) -> list[IntArray]:
    if hasattr(neighbours, "tocsr"):
        rows = neighbours.tocsr()
        if rows.shape[1] != width:
            raise InputError(f"neighbours has {rows.shape[1]} columns, and X {width} features; give as many")
        rows.eliminate_zeros()
        return [
            np.sort(rows.indices[a:b]).astype(np.int64) for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        ]
    if isinstance(neighbours, np.ndarray) and neighbours.ndim == 2 and neighbours.shape[1] == width:
        return [np.flatnonzero(row) for row in neighbours]
    out = []
    for k, own in enumerate(neighbours):
        index = np.asarray(own)
        if index.size and (index.ndim != 1 or index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= width):
            raise InputError(f"group {k} of neighbours is {own!r:.60}; give indices of features from 0 to {width - 1}")
        out.append(index.reshape(-1).astype(np.int64))
    if not out:
        raise InputError("neighbours is empty; give at least one group of features")
    return out


def _some(setting: Trial, source: Any, codes: Any, begin: int, end: int) -> list[Judged | None]:
    """All labellings over the groups begin .. end - 1."""
    grams = map(source.gram, range(begin, end))
    return [None if gram is None else of_gram(setting, gram, codes) for gram in grams]

"""Folds: from an integer, "loo", index pairs or a splitter to checked pairs of training and validation rows."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.base.door import entered
from svmcore.problem import border

LOO = "loo"
_DEFAULT = 5  # what None means to scikit-learn
_WAYS = 'give a number of folds, "loo", a list of index pairs (train, test), or a scikit-learn splitter'
_ALONE = "its only row cannot be both trained on and validated: leave this row out, or join its class to another"


class Fold(NamedTuple):
    """Rows to train on and rows to validate on."""

    train: IntArray
    test: IntArray


def make_folds(
    cv: Any, codes: IntArray, classes: NDArray[Any], groups: Any, seed: int, target: FloatArray | None = None,
    learned: IntArray | None = None,
) -> list[Fold]:  # fmt: skip
    """The folds that `cv` stands for; `codes` are the labels as positions in `classes`, `target` those of a regression.

    Machines are trained on the classes `learned` (default: all).
    """
    n = codes.size
    learned = np.arange(classes.size) if learned is None else learned
    owner = None if groups is None else group_numbers(groups, n)
    cv = _DEFAULT if cv is None else cv
    if isinstance(cv, str):
        if cv != LOO:
            raise InputError(f"cv={cv!r} is not known; {_WAYS}")
        if owner is None:
            return [Fold(np.delete(np.arange(n), i), np.array([i])) for i in range(n)]
        return _pairs(owner, int(owner.max()) + 1)
    if isinstance(cv, (numbers.Integral, np.integer, bool)):
        k = border.integer("cv", cv, low=2)
        rng = np.random.default_rng(seed)
        if owner is None:
            return _pairs(_stratified(codes, classes, k, rng, learned), k)
        return _pairs(_by_group(codes, classes.size, owner, k, rng), k)
    if hasattr(cv, "split"):
        y = classes[codes] if target is None else target
        given = _split(cv, n, y, groups)
        return [_checked(pair, k, n, "cv.split yielded") for k, pair in enumerate(given)]
    if groups is not None:
        raise InputError('groups go with a number of folds, "loo" or a splitter; index pairs are folds already')
    pairs = list(_iterate(cv, "cv"))
    folds = [_checked(pair, k, n, "cv holds") for k, pair in enumerate(pairs)]
    _partition(folds, n)
    return folds


def leaves_one_out(folds: list[Fold], n: int) -> bool:
    """Whether every fold validates one row and trains on all others: by "loo", a splitter, or index pairs."""
    return len(folds) > 1 and all(fold.test.size == 1 and fold.train.size == n - 1 for fold in folds)


def check_training(
    folds: list[Fold], codes: IntArray, classes: NDArray[Any], weights: FloatArray | None, learned: IntArray
) -> None:
    """Refuse folds that train without one of the classes `learned`."""
    for k, fold in enumerate(folds):
        rows = fold.train if weights is None else fold.train[weights[fold.train] > 0]
        count = np.bincount(codes[rows], minlength=classes.size)
        if not count.any():
            raise InputError(
                f"all training rows of fold {k} have weight zero; use other folds, or weight_training=False"
            )
        missing = learned[count[learned] == 0]
        if missing.size:
            there = ", ".join(repr(label) for label in classes[count > 0].tolist()) or "no class"
            name, every = classes.tolist()[missing[0]], codes == missing[0]
            total = int(np.count_nonzero(every if weights is None else every & (weights > 0)))
            raise InputError(
                f"fold {k} trains without a row of class {name!r} (on {there} only); "
                + (_ALONE if total == 1 else "use fewer folds, other groups, or stratified folds (cv=5)")
            )


def _pairs(owner: IntArray, k: int) -> list[Fold]:
    return [Fold(np.flatnonzero(owner != j), np.flatnonzero(owner == j)) for j in range(k)]


def _stratified(
    codes: IntArray, classes: NDArray[Any], k: int, rng: np.random.Generator, learned: IntArray
) -> IntArray:
    """The fold of every row: each class shuffled and dealt out in turn, going on where the class before ended."""
    count = np.bincount(codes, minlength=classes.size)
    if classes.size == 1 and codes.size < k:
        raise InputError(f'cv={k} needs at least {k} rows, and y holds {codes.size}; use fewer folds, or cv="loo"')
    rare = int(learned[count[learned].argmin()])
    if count[rare] < k:
        every = "every class" if learned.size == classes.size else "the class that is learned"
        raise InputError(
            f"cv={k} needs at least {k} rows of {every}, and y holds {count[rare]} of {classes.tolist()[rare]!r}; "
            + (f'use cv={count[rare]} or cv="loo"' if count[rare] > 1 else _ALONE)
        )
    owner = np.empty(codes.size, dtype=np.int64)
    turn = 0
    for code in range(classes.size):
        rows = rng.permutation(np.flatnonzero(codes == code))
        owner[rows] = (turn + np.arange(rows.size)) % k
        turn += rows.size
    return owner


def group_numbers(groups: Any, n: int) -> IntArray:
    """The group of every row, by number."""
    values = entered(groups, "groups").reshape(-1)
    if values.size != n:
        raise InputError(f"groups has {values.size} entries for {n} rows; give one group per row")
    try:
        _, owner = np.unique(values, return_inverse=True)
    except TypeError:
        raise InputError("groups mixes values of different types that cannot be sorted; use one type") from None
    return np.reshape(owner, -1).astype(np.int64)


def _by_group(codes: IntArray, n_classes: int, owner: IntArray, k: int, rng: np.random.Generator) -> IntArray:
    """Whole groups to folds, the most uneven group first, each to where the shares of the classes stay most even."""
    count = np.zeros((int(owner.max()) + 1, n_classes))
    np.add.at(count, (owner, codes), 1.0)
    if count.shape[0] < k:
        raise InputError(f"cv={k} needs at least {k} groups, and groups holds {count.shape[0]}; use fewer folds")
    share = count / count.sum(axis=0)
    order = rng.permutation(count.shape[0])
    order = order[np.argsort(-share[order].std(axis=1), kind="stable")]
    filled = np.zeros((k, n_classes))
    size = np.zeros(k)
    place = np.empty(count.shape[0], dtype=np.int64)
    for left, g in zip(range(count.shape[0], 0, -1), order, strict=True):
        free = np.flatnonzero(size == 0)
        open_folds = free if free.size >= left else np.arange(k)  # no fold may stay empty
        spread = []
        for j in open_folds:
            after = filled.copy()
            after[j] += share[g]
            spread.append((round(float(after.std(axis=0).mean()), 12), size[j], j))
        j = min(spread)[2]
        filled[j] += share[g]
        size[j] += count[g].sum()
        place[g] = j
    return place[owner]


def _split(cv: Any, n: int, y: Any, groups: Any) -> list[Any]:
    """What a splitter yields."""
    name = f"{type(cv).__module__}.{type(cv).__qualname__}"
    try:
        given = list(cv.split(np.zeros((n, 1)), y, groups))
    except Exception as error:  # of another library: anything may happen there
        raise InputError(
            f"cv is a {name}, whose split(X, y, groups) fails: {error}; give groups= where it needs them, a scikit-learn "
            "splitter that fits these data, or a list of index pairs (train, test)"
        ) from error
    if not given:
        raise InputError(
            f"cv is a {name}, whose split(X, y, groups) yields no folds; give another one, or a number of folds"
        )
    return given


def _iterate(values: Any, name: str) -> Iterator[Any]:
    try:
        yield from values
    except TypeError:
        raise InputError(f"{name}={values!r} is no way to make folds; {_WAYS}") from None


def _checked(pair: Any, k: int, n: int, source: str) -> Fold:
    try:
        train, test = pair
    except (TypeError, ValueError):
        raise InputError(
            f"{source} {pair!r:.80} as fold {k}; every fold is a pair of index arrays (train, test)"
        ) from None
    fold = Fold(_indices(train, "training", k, n), _indices(test, "validation", k, n))
    common = np.intersect1d(fold.train, fold.test)
    if common.size:
        raise InputError(
            f"fold {k} trains and validates on row {common[0]} ({common.size} rows overlap); a row of the validation part "
            "must not be trained on"
        )
    return fold


def _indices(values: Any, part: str, k: int, n: int) -> IntArray:
    array = np.asarray(values)
    if array.dtype == bool and array.shape == (n,):
        array = np.flatnonzero(array)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InputError(
            f"the {part} part of fold {k} has shape {array.shape} and type {array.dtype}; give at least one row, as whole "
            f"numbers from 0 to {n - 1} or as a mask of {n}"
        )
    index = array.astype(np.int64)
    if index.min() < 0 or index.max() >= n:
        wrong = int(index[(index < 0) | (index >= n)][0])
        raise InputError(f"the {part} part of fold {k} names row {wrong}; rows go from 0 to {n - 1}")
    if np.unique(index).size < index.size:
        twice = int(np.flatnonzero(np.bincount(index) > 1)[0])
        raise InputError(f"the {part} part of fold {k} names row {twice} twice; name every row once")
    return index


def _partition(folds: list[Fold], n: int) -> None:
    """Index pairs validate every row once: what is left out or counted twice in a list is most often a mistake."""
    if len(folds) < 2:
        raise InputError(f"cv holds {len(folds)} folds; give at least two pairs (train, test)")
    count = np.bincount(np.concatenate([fold.test for fold in folds]), minlength=n)
    if (count > 1).any():
        row = int(np.flatnonzero(count > 1)[0])
        raise InputError(
            f"the validation parts of cv overlap: row {row} is in {count[row]} of them; put every row into one, or give a "
            "splitter such as RepeatedStratifiedKFold, where that is meant"
        )
    if (count == 0).any():
        row = int(np.flatnonzero(count == 0)[0])
        raise InputError(
            f"cv leaves out {int((count == 0).sum())} of {n} rows (row {row} is the first): they are in no validation part; "
            "put every row into one, or give a splitter such as ShuffleSplit, where that is meant"
        )

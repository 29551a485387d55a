"""Rows added to and removed from a trained estimator, exactly.

Each machine whose rows change is moved by `Solution.add` and `Solution.remove`; the others stay. Where a change of rows
changes the problem of the rest (nu, balanced class weights, kernel values that are given or come from a function), the
machine of all rows is trained anew: with the same gamma, so that the answer is that of the same problem.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from svmcore._errors import InputError, listening
from svmcore._types import FloatArray, IntArray
from svmcore.estimators import _base as base
from svmcore.estimators import _sklearn as sk
from svmcore.estimators._base import TrainingData
from svmcore.estimators._fitted import count, stacked, taken
from svmcore.models.incremental import positions
from svmcore.models.solution import Solution
from svmcore.problem import border
from svmcore.problem.division import Sides
from svmcore.train.forms import Training
from svmcore.train.machines import Machines

if TYPE_CHECKING:
    from svmcore.estimators._machine import Machine

_FORM = (
    "C",
    "loss",
    "kernel",
    "gamma",
    "degree",
    "coef0",
    "intercept_scaling",
)  # class weights are in those of the rows
Told = list[tuple[str, type[Warning]]]


def add(machine: Machine, X: Any, y: Any, sample_weight: Any) -> Told:
    """The machine of the rows so far and these."""
    old = _rows(machine)
    new = _checked(machine, old, X, y, sample_weight)
    n, m = count(old.X), count(new.X)
    w = None
    if old.w is not None or new.w is not None:
        w = np.concatenate([np.ones(n) if old.w is None else old.w, np.ones(m) if new.w is None else new.w])
    both = old._replace(X=stacked(old.X, new.X), y=None if old.y is None else np.concatenate([old.y, new.y]), w=w)
    return _changed(machine, both, np.arange(n))


def remove(machine: Machine, indices: Any) -> Told:
    """The machine of the rows so far without some."""
    machine._known  # noqa: B018  (an estimator without a fit says so)
    old = _rows(machine)
    n = count(old.X)
    gone = positions(indices, n)
    if not gone.size:
        return []
    keep = np.setdiff1d(np.arange(n), gone)
    if not keep.size:
        raise InputError("indices names all rows; at least one row must stay")
    X = np.ascontiguousarray(old.X[np.ix_(keep, keep)]) if machine._given else taken(old.X, keep)
    rest = old._replace(X=X, y=None if old.y is None else old.y[keep], w=None if old.w is None else old.w[keep])
    if rest.classes is not None and np.unique(rest.y).size < len(rest.classes):
        left = rest.classes[np.unique(rest.y)].tolist()
        raise InputError(
            f"indices names all rows of a class, and only {left} would stay; fit anew on the other classes"
        )
    with base.as_it_was(machine):
        if machine._given:
            machine.n_features_in_ = keep.size
        return _changed(machine, rest, keep)


def _rows(machine: Machine) -> TrainingData:
    """The training data, as long as the kernel is one of such data."""
    rows = machine.__dict__.get("_rows")
    if rows is None:
        raise InputError(
            "this estimator does not carry its training data (it was copied, pickled or converted), so rows can be neither "
            "added nor removed; fit it again"
        )
    asked = base.asked(machine)
    was = asked.get("kernel")
    kinds = [
        callable(kernel) or (isinstance(kernel, str) and kernel == "precomputed") for kernel in (was, machine.kernel)
    ]
    if any(kinds) and not _same(was, machine.kernel) and "kernel" in asked:
        raise InputError(
            f"kernel={machine.kernel!r} came after the fit, and its training data are those of kernel={was!r}; fit it again"
        )
    return rows  # type: ignore[no-any-return]


def _same(a: Any, b: Any) -> bool:
    """Whether two values of a parameter are one, also where they are arrays."""
    return a is b or (type(a) is type(b) and bool(np.all(a == b)))


def _unchanged(machine: Machine, names: tuple[str, ...] = ()) -> bool:
    """Whether parameters, or some of them, are still those of the fit."""
    asked = base.asked(machine)
    return all(_same(asked[name], getattr(machine, name)) for name in names or asked if name in asked)


def _checked(machine: Machine, old: TrainingData, X: Any, y: Any, sample_weight: Any) -> TrainingData:
    """Further rows as arrays."""
    if callable(machine.kernel):
        X = X if hasattr(X, "shape") else list(X)
    else:
        base.come_in(X, "X")
        X = sk.validate_data(machine, X, accept_sparse="csr", dtype=np.float64, order="C", reset=False)
    if y is not None and machine._targets != "none":
        base.come_in(y, "y")
        sk.check_consistent_length(X, y)
        y = sk.column_or_1d(y)
    elif machine._targets != "none":
        raise InputError("y is missing: every new row needs a label or a target")
    if old.classes is not None:
        places = np.searchsorted(old.classes, y)
        strange = old.classes[np.minimum(places, len(old.classes) - 1)] != y
        if strange.any():
            raise InputError(
                f"y contains {np.asarray(y)[strange].tolist()[0]!r}, and the classes of the first rows are "
                f"{old.classes.tolist()}; fit on all rows to have another class"
            )
        y = places
    elif machine._targets == "numbers":
        y = border.vector(y, "y", count(X))
    w = None if sample_weight is None else base.weights_of(sample_weight, count(X))
    return TrainingData(X, y, w, old.classes)


def _changed(machine: Machine, rows: TrainingData, keep: IntArray) -> Told:
    """The machine of `rows`, whose first are the rows `keep` of the old ones."""
    with base.as_it_was(machine), listening() as told:
        if machine._form.targets == "none" or not _moves(machine):
            asked = machine.get_params(deep=False).get("gamma")
            if asked is not None:
                machine.gamma = _same_gamma(machine)
            try:
                machine._solve(rows, None)
            finally:
                if asked is not None:
                    machine.gamma = asked
        else:
            found = _moved(machine, rows, keep)
            machine._store(found, rows)
        machine._asked = base.values_of(machine)
    return told


def _same_gamma(machine: Machine) -> Any:
    """The gamma of the machine as a number, where it has one and nobody asks for another."""
    kept = _unchanged(machine, ("kernel", "gamma"))
    gamma = None if callable(machine.kernel) or not kept else machine._known.machines[0].gamma
    return machine.gamma if gamma is None else gamma


def _moves(machine: Machine) -> bool:
    """Whether the problem of rows that stay depends neither on the others nor on a parameter that came after the fit."""
    balanced = isinstance(getattr(machine, "class_weight", None), str)
    given = callable(machine.kernel) or machine._given
    return machine._movable and not (balanced or given or "nu" in machine._form.words) and _unchanged(machine)


def _moved(machine: Machine, rows: TrainingData, keep: IntArray) -> Solution | Machines:
    """Every machine of the estimator, moved to the new rows."""
    found = machine._known.found
    if not isinstance(found, Machines):
        return _step(machine, found, _whole(_rows(machine), None), _whole(rows, None), keep)
    moved = []
    for one, part in zip(found.machines, machine._known.division.parts, strict=True):
        moved.append(_step(machine, one, _whole(_rows(machine), part), _whole(rows, part), keep))
    return replace(found, machines=tuple(moved))


class _WholeUpdate(NamedTuple):
    """All rows, and what one machine sees of them: the places of its rows, and what they are told apart by."""

    rows: TrainingData
    mine: IntArray
    targets: Any
    part: Sides | None


def _whole(rows: TrainingData, part: Sides | None) -> _WholeUpdate:
    if part is None:
        return _WholeUpdate(rows, np.arange(count(rows.X)), rows.y, None)
    mine = np.flatnonzero(part.holds(rows.y))
    return _WholeUpdate(rows, mine, part.positive(rows.y).astype(np.int64), part)


def _step(machine: Machine, one: Solution, old: _WholeUpdate, new: _WholeUpdate, keep: IntArray) -> Solution:
    """One machine, in terms of all rows, moved to the new rows. Where none of its rows changes, only their places do."""
    local = _local(machine, one, old)
    stay = np.isin(old.mine, keep)
    added = new.mine[new.mine >= keep.size]
    if not stay.all():
        local = local.remove(np.flatnonzero(~stay))
    if added.size:
        weights = _weights(machine, new)
        weights = None if weights is None else weights[added]
        local = local.add(new.rows.X[added], new.targets[added], sample_weight=weights)
    support = new.mine[local.support]
    training = local.training if new.part is None else None
    return replace(local, n_points=count(new.rows.X), support=support, classes=one.classes, training=training)


def _local(machine: Machine, one: Solution, old: _WholeUpdate) -> Solution:
    """A machine in terms of its own rows, with what it was trained on."""
    if one.training is not None and old.part is None:
        return one
    weights = _weights(machine, old)
    form = {name: value for name, value in one.params.items() if name in _FORM}
    form |= {"sample_weight": None if weights is None else weights[old.mine], "fit_intercept": machine._free_intercept}
    training = Training(old.rows.X[old.mine], old.targets[old.mine], form, machine.tol, one.columns)
    return replace(
        one, n_points=len(old.mine), support=np.searchsorted(old.mine, one.support), training=training,
        classes=np.array([0, 1]),
    )  # fmt: skip


def _weights(machine: Machine, whole: _WholeUpdate) -> FloatArray | None:
    """The weights of all rows; of a machine of several classes with the factors of their classes."""
    if whole.part is None:
        return whole.rows.w
    factors: FloatArray = machine._factors_of(whole.rows.y, whole.part)
    return factors if whole.rows.w is None else factors * whole.rows.w

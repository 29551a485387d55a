"""`verify`: how good the answer in a file is, whoever computed it, recomputed from the data it was trained on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import InputError
from svmcore._keywords import TOL
from svmcore._types import NONZERO, FloatArray, IntArray, KernelKind
from svmcore.data import Table, Wanted
from svmcore.models.files import load, read_like
from svmcore.models.solution import ONE_CLASS, Solution
from svmcore.path.result import Path
from svmcore.problem import border, formulations, labelling
from svmcore.problem.certify import Certificate
from svmcore.train.certificates import measured
from svmcore.train.forms import one_class_problem, svc_problem, svr_problem
from svmcore.train.machines import Machines

_SLACK = 1.1  # a violation may be so many times the tolerance, because the file may have been rounded
_ROUNDED = 1e-5  # an intercept may be off by this share of itself: older versions of LIBSVM write six digits
_OFF = 0.01  # relative gap from which a word is said of it, as after a fit
_OUTSIDE = 1e-6  # share of the largest coefficient by which a bound may be missed
_AT_BOUND = 1e-9  # a coefficient this close to C, relatively, is at its bound: its error says nothing of epsilon
_TILTED = 1e-9  # a sum of coefficients above this share of the sum of their sizes says: no intercept was trained


@dataclass(frozen=True)
class Audit:
    """What `verify` found.

    Attributes
    ----------
    certificate : objectives, gap and KKT violation, from the data; of several machines the worst. None where support
        vectors are missing from the data.
    C, epsilon, nu : of the problem that was measured. class_C : C by label, where the classes have different ones.
    inferred : which of these the file does not say: they are read off the coefficients. The C is the smallest
        that these allow; where none of them is at its bound, any larger C is as good.
    intercept_error : how far the intercept is from those that are optimal for the coefficients.
    found, n_support : how many support vectors are rows of the data, and how many there are.
    error : on the data: the share of wrong classes, the root mean square error, or the share of points outside.
    tol : what `ok` asks of the KKT violation.
    """

    certificate: Certificate | None
    C: float | None
    epsilon: float | None
    nu: float | None
    class_C: dict[Any, float] | None
    inferred: tuple[str, ...]
    found: int
    n_support: int
    n_points: int
    n_machines: int
    error: float | None
    kind: str
    tol: float
    intercept_error: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the answer is feasible, and optimal to the tolerance."""
        c = self.certificate
        if c is None:
            return False
        largest = max([NONZERO, *(value for value in (self.C, *(self.class_C or {}).values()) if value is not None)])
        outside = _OUTSIDE * (largest if np.isfinite(largest) else 1.0)
        return bool(self._violation <= _SLACK * self.tol and c.infeasibility <= max(outside, _OUTSIDE))

    @property
    def _violation(self) -> float:
        """Of the coefficients or of the intercept: the larger one."""
        c = self.certificate
        return np.inf if c is None else max(c.kkt_violation, self.intercept_error - _ROUNDED * abs(c.intercept))

    def __str__(self) -> str:
        if self.certificate is None:
            missing = self.n_support - self.found
            return (
                f"{missing:,} of {self.n_support:,} support vectors are no rows of these data, or have another label there: "
                "the machine was trained on other data, and these cannot tell how good its answer is"
            )
        c = self.certificate
        word = "verified" if self.ok else "not optimal to the tolerance"
        off = f"; the intercept is off by {self.intercept_error:.2g}" if self.intercept_error > self.tol else ""
        if self.ok and c.relative_gap > _OFF:
            off += f"; the objective may still be off by {100 * c.relative_gap:.2g} %"
        return (
            f"{word}: KKT violation {c.kkt_violation:.2e} (tolerance {self.tol:g}), relative duality gap "
            f"{c.relative_gap:.2e}, infeasibility {c.infeasibility:.1e}{off}"
        )


class _Case(NamedTuple):
    """One machine, and the rows that it was trained on: raw `X`, as the machine sees them `Z`, their labels or targets."""

    machine: Solution
    X: Any
    Z: Any
    y: Any
    weights: FloatArray | None


def verify(
    model_file: Any, data: Any, *, C: float | None = None, epsilon: float | None = None, class_weight: Any = None,
    sample_weight: Any = None, tol: float = TOL, label: int | str | None = -1, header: bool | None = None,
    drop: Sequence[int | str] = (), n_threads: int | None = None,
) -> Audit:  # fmt: skip
    """Recompute the certificate of a model from the data it was trained on. The model may be LIBSVM's.

    Parameters
    ----------
    model_file : what `save` or LIBSVM wrote; or a `Solution`, `Machines`, or a `Path` (then `C` says where).
    data : the training data: a file that `load_data` reads, or a pair (X, y) (for one class, X may stand alone as (X, None)).
        Rows may be in another order: support vectors are found among them.
    C, epsilon, class_weight, sample_weight : of the training, where the file does not say. LIBSVM's files do not. Then C is
        the largest coefficient of each class, and epsilon what the errors of free support vectors agree on.
    tol : the KKT violation up to which an answer counts as optimal.
    label, header, drop : as in `load_data`.

    Returns
    -------
    Audit : its `certificate` has the figures, `ok` the verdict; printed, it is a sentence.

    Examples
    --------
    >>> import svmcore
    >>> X, y = svmcore.load_data("demo:monk1")
    >>> machine = svmcore.train_svc(X, y, C=10.0)
    >>> svmcore.verify(machine, (X, y)).ok
    True
    """
    model = load(model_file) if isinstance(model_file, str | PathLike) or hasattr(model_file, "read") else model_file
    tol = border.number("tol", tol, low=0.0, strict=True)
    if isinstance(model, Path):
        if C is None:
            raise InputError("the model is a path; say with C where it shall be verified")
        model, C = model.at(C), None
    if not isinstance(model, (Solution, Machines)):
        remedy = "; verify the one that its refit gives" if hasattr(model, "refit") else ""
        raise InputError(f"a {type(model).__name__} is no machine of support vectors{remedy}")
    first = model.machines[0] if isinstance(model, Machines) else model
    table = data_of(data, first, Wanted(label, header, tuple(drop)))
    given_weights = border.sample_weights(sample_weight, table.X.shape[0])
    extra = {"C": C, "epsilon": epsilon, "class_weight": class_weight, "threads": border.threads(n_threads)}
    cases = _cases(model, table, given_weights)
    audits = [_audited(case, tol, extra) for case in cases]
    worst = max(audits, key=lambda audit: audit._violation)
    told, error = model.predict(table.X), None  # how predictions agree with the labels
    if isinstance(model, Solution) and model.terms.loss == ONE_CLASS:
        error = float((told < 0).mean())
    elif table.y is not None and model.classes is None:
        error = float(np.sqrt(np.mean((told - table.y) ** 2)))
    elif table.y is not None and model.classes is not None:
        error = float((told != _like(table.y, model.classes)).mean())
    return replace(
        worst, error=error, n_machines=len(audits),
        found=sum(audit.found for audit in audits), n_support=sum(audit.n_support for audit in audits),
    )  # fmt: skip


def data_of(data: Any, machine: Solution, wanted: Wanted) -> Table:
    """Data from a file, or from arrays."""
    if isinstance(data, Table):
        return data
    if not isinstance(data, tuple):
        if machine.terms.loss == ONE_CLASS and wanted.label == -1:
            wanted = wanted._replace(label=None)
        return read_like(data, machine, wanted)
    if len(data) != 2:
        raise InputError(f"data holds {len(data)} things; give a file, or the pair (X, y)")
    X, y = data
    if machine.kernel.kind != KernelKind.PRECOMPUTED and not hasattr(X, "shape"):
        X = border.features(X)
    return Table(X, None if y is None else labelling.label_array(y))


def _cases(model: Solution | Machines, table: Table, weights: FloatArray | None) -> list[_Case]:
    one = model.machines[0] if isinstance(model, Machines) else model
    Z = one.columns.apply(table.X)
    y = table.y
    if y is None and one.terms.loss != ONE_CLASS:
        raise InputError("the data hold no labels; the training data are needed, with theirs")
    if table.known is not None:
        raise InputError("some rows of the data have no label; the training data are needed, with all of theirs")
    if not isinstance(model, Machines):
        return [_Case(model, table.X, Z, y, weights)]
    y = _like(y, model.classes)
    cases, given = [], one.kernel.kind == KernelKind.PRECOMPUTED
    for part, machine in zip(model.division.parts, model.machines, strict=True):
        pair = len(part.minus) == 1
        labels = model.classes[list(part.minus + part.plus)]
        rows = np.flatnonzero(np.isin(y, labels))
        own = y[rows] if pair else y[rows] == model.classes[part.plus[0]]
        own_Z = Z[np.ix_(rows, rows)] if given else Z[rows]
        if given:  # in terms of its rows
            machine = replace(machine, support=np.searchsorted(rows, machine.support))
        cases.append(_Case(machine, table.X[rows], own_Z, own, None if weights is None else weights[rows]))
    return cases


def _like(y: Any, classes: Any) -> Any:
    if (y.dtype.kind in "US") != (classes.dtype.kind in "US"):
        return y.astype(str) if classes.dtype.kind in "US" else y
    return y


def _audited(case: _Case, tol: float, extra: dict[str, Any]) -> Audit:
    machine, n = case.machine, case.Z.shape[0]
    y = case.y
    sides = None
    if machine.kind == "classification":
        assert machine.classes is not None
        y = _like(y, machine.classes)
        sides = np.where(y == machine.classes[1], 1.0, -1.0)
        strange = np.setdiff1d(y, machine.classes)
        if strange.size:
            raise InputError(f"the data hold the label {strange.tolist()[0]!r}, which is no class of the machine")
    place = _places(machine, case.Z, sides)
    found = int((place >= 0).sum())
    audit = Audit(
        None, machine.C, machine.epsilon, machine.nu, None, (), found, len(place), n, 1, None, machine.kind, tol
    )
    if found < len(place):
        return audit
    coef = np.zeros(n)
    np.add.at(coef, place, machine.dual_coef)
    settled = _terms(case, coef, sides, extra)
    form = _form(case, y if sides is None else sides > 0.0, coef, settled)
    certificate, off = measured(form, coef, machine.intercept, extra["threads"])
    return replace(audit, certificate=certificate, intercept_error=off, **settled)


def _terms(case: _Case, coef: FloatArray, sides: Any, extra: dict[str, Any]) -> dict[str, Any]:
    """C, epsilon and nu: given, of the file, or read off the answer."""
    machine, inferred, nu = case.machine, [], case.machine.nu
    C, epsilon = (getattr(machine, name) if extra[name] is None else extra[name] for name in ("C", "epsilon"))
    if machine.terms.loss == ONE_CLASS:
        if nu is None:
            nu = float(coef.sum() / (coef.size if case.weights is None else case.weights.sum()))
            inferred.append("nu")
        return {"nu": nu, "C": None, "epsilon": None, "inferred": tuple(inferred), "class_C": None}
    costs: list[float] = []  # of the classes, where they have their own
    if C is None:
        inferred.append("C")
        own = [coef if sides is None else coef[sides == sign] for sign in (-1, 1)]
        costs = [float(np.abs(part).max(initial=0.0)) or 1.0 for part in own]
        C = max(costs)
    elif sides is not None and extra["class_weight"] is not None:
        codes = (sides > 0).astype(np.int64)
        factors = labelling.class_factors(extra["class_weight"], machine.classes, codes, case.weights)
        costs = [C * float(factor) for factor in factors]
    elif machine.terms.factors is not None and extra["C"] is None:
        costs = [C * factor for factor in machine.terms.factors]
    classes = machine.classes if costs and sides is not None else None
    class_C = None if classes is None else dict(zip(classes.tolist(), costs, strict=True))
    if sides is None and epsilon is None and machine.terms.tau is None:
        inferred.append("epsilon")
        epsilon = _epsilon(case, coef, float(C or 1.0))
    return {"C": C, "epsilon": epsilon, "nu": nu, "inferred": tuple(inferred), "class_C": class_C}


def _epsilon(case: _Case, coef: FloatArray, C: float) -> float:
    """What the errors of free support vectors agree on."""
    distance = np.abs(np.asarray(case.y, dtype=np.float64) - case.machine.decision_function(case.X))
    size = np.abs(coef)
    free = (size > 0.0) & (size < C * (1.0 - _AT_BOUND))
    if free.any():
        return float(np.median(distance[free]))
    inside, outside = distance[size == 0.0].max(initial=0.0), distance[size > 0.0].min(initial=np.inf)
    return float(inside if not np.isfinite(outside) else 0.5 * (inside + outside))


def _form(case: _Case, y: Any, coef: FloatArray, settled: dict[str, Any]) -> Any:
    """The training problem; labels are truths: is it the second class?"""
    machine = case.machine
    form = border.kernel_params(machine.kernel, machine.function)
    form["sample_weight"] = case.weights
    if machine.terms.loss == ONE_CLASS:
        return one_class_problem(case.Z, settled["nu"], **form)
    fixed = machine.terms.fixed_intercept or 0.0
    tilted = abs(float(coef.sum())) > _TILTED * float(np.abs(coef).sum())
    if "intercept_scaling" in form or (machine.intercept == fixed and tilted):
        form |= {"fit_intercept": False, "fixed_intercept": fixed or None}
    form["loss"] = machine.loss
    if machine.kind == "classification":
        if settled["class_C"] is not None:
            form["class_weight"] = dict(
                zip((False, True), np.array(list(settled["class_C"].values())) / settled["C"], strict=True)
            )
        return svc_problem(case.Z, y, settled["C"], **form)
    if machine.loss == formulations.PINBALL:
        form["tau"] = machine.tau
    targets = np.asarray(y, dtype=np.float64)
    return svr_problem(case.Z, targets, settled["C"], settled["epsilon"] or 0.0, **form)


# ---- support vectors among rows --------------------------------------------------------------------------------------


def _places(machine: Solution, Z: Any, sides: Any) -> IntArray:
    """For every support vector its row, or -1. With `sides`, the labels of rows as signs, that has the right label."""
    signs = np.sign(machine.dual_coef)
    n, support = Z.shape[0], machine.support
    if machine.kernel.kind == KernelKind.PRECOMPUTED:
        fits = support < n
        if sides is not None:
            fits[fits] = sides[support[fits]] == signs[fits]
        return np.where(fits, support, -1)
    if machine.n_points == n and len(support) and machine.solver != "LIBSVM":
        moved = machine.support_vectors - Z[support]
        same = not moved.nnz if hasattr(moved, "nnz") else not moved.any()
        if same and (sides is None or (sides[support] == signs).all()):
            return support
    return _matched(machine, Z, sides, signs)


def _matched(machine: Solution, Z: Any, sides: Any, signs: FloatArray) -> IntArray:
    """Support vectors looked up by their values: exactly, then with the eight digits that LIBSVM writes."""
    place = np.full(len(signs), -1)
    used = np.zeros(Z.shape[0], dtype=bool)
    for digits in (None, 8):
        left = np.flatnonzero(place < 0)
        if not len(left):
            break
        rows: dict[tuple[bytes, float], list[int]] = defaultdict(list)
        for k, key in enumerate(_keys(Z, digits)):
            if not used[k]:
                rows[key, 0.0 if sides is None else float(sides[k])].append(k)
        for waiting in rows.values():
            waiting.reverse()  # so that the first is taken first
        for t, key in zip(left.tolist(), _keys(machine.support_vectors[left], digits), strict=True):
            waiting = rows.get((key, 0.0 if sides is None else float(signs[t])), [])
            if waiting:
                place[t] = waiting.pop()
                used[place[t]] = True
    return place


def _keys(X: Any, digits: int | None) -> list[bytes]:
    """Every row as bytes: where it is not zero, and its values there."""
    from scipy import sparse

    X = sparse.csr_matrix(X, copy=True)
    X.eliminate_zeros()
    X.sort_indices()
    values = X.data
    if digits is not None:
        values = np.array([float(f"{value:.{digits}g}") for value in values.tolist()])
    columns = X.indices.astype(np.int64)
    ends = X.indptr.tolist()
    return [columns[a:b].tobytes() + values[a:b].tobytes() for a, b in pairwise(ends)]

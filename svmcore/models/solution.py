"""The answer of a fit: coefficients, a certificate, predictions, and a file format without pickle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray, Kernel, KernelKind, Status
from svmcore.base.html import html_table
from svmcore.kernel.points import is_sparse
from svmcore.kernel.table import name_of
from svmcore.models import archive
from svmcore.models.decision import Decision
from svmcore.models.sigmoid import probabilities
from svmcore.problem import border
from svmcore.problem import columns as _columns
from svmcore.problem.certify import Certificate, Certified
from svmcore.problem.columns import Columns, OfColumns
from svmcore.problem.division import division

_FORMAT = "svmcore-solution-3"  # 1: without names, scaling and the terms of the problem; 2: kernels had numbers
FORMATS = ("npz", "libsvm")  # the formats of files
ONE_CLASS = "one_class"
"""The loss, by name, of a machine of one class."""

_MOST_POINTS = 10**9  # a larger number in a file is damage, not data


class Terms(NamedTuple):
    """The terms of the training problem that its kernel does not tell; None where a file of an older format does not."""

    C: float | None
    loss: str | None
    epsilon: float | None = None
    fixed_intercept: float | None = None
    tau: float | None = None
    nu: float | None = None
    factors: tuple[float, float] | None = None  # what the classes multiply C by, where they do


class _MadeWhenAsked:
    """A field that takes a value, or a function that makes it when somebody first asks for it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, kind: type | None = None) -> Any:
        if obj is None:
            return self
        value = obj.__dict__[self.name]
        if callable(value):
            value = obj.__dict__[self.name] = value()
        return value

    def __set__(self, obj: Any, value: Any) -> None:
        obj.__dict__[self.name] = value


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Certified, OfColumns):
    """A trained machine with its certificate.

    Attributes
    ----------
    n_points : the number of training points.
    alpha : (n,) the dual variables, at least 0; for regression the absolute coefficients. Made when first asked for.
    intercept : float; the mean over free support vectors, or, when none is free, the midpoint of the optimal interval
        (with ``stopping="gap"`` the value of smallest gap). It belongs to scaled features where the machine scales them.
    support : indices of the training points with a coefficient.
    dual_coef : their signed coefficients: ``f(x) = sum dual_coef * k(support, x) + intercept``.
    support_vectors : their features, scaled where the machine scales them (``standardized`` has mean and scale).
    coef_, intercept_ : of a linear machine, for features as users give them: ``f(x) = coef_ @ x + intercept_``.
    C, loss, epsilon, tau, nu, kernel_name, gamma : the training problem; ``params`` has all of it. With ``nu``, C (of a
        classifier) or epsilon (of a regression) is what was found for it.
    kind : "classification", "regression" or "one class".
    feature_names : the columns' names, or None. A data frame with the same columns in another order is put right.
    objective, primal_objective : the dual objective in minimised form, and the primal.
    gap, relative_gap : ``primal_objective + objective``, and the same divided by ``|primal_objective|``.
    kkt_violation : LIBSVM's measure of optimality, recomputed in float64 from the data. Where a run was stopped and that
        would take long, it and the intercept are the solver's own; then the warning says "about", and ``stats`` has
        "estimated". The other measures are recomputed from the data all the same, when they are first asked for.
    status, converged : how the run ended (prints its own sentence), and whether it met its tolerance.
    calibration : what `-b 1` of `svmcore train` and of LIBSVM learns from rows left out: of a classifier a and b:
        the probability of the second class is 1 / (1 + exp(a f(x) + b)); of a regression the mean absolute error. Or None.
    n_iter, n_kernel_evals, fit_seconds, solver, trace, stats : the course of the run. Kernel values are counted each time
        that one is computed; a value of a stored row, or one used twice for symmetry, counts once. Those of the
        certificate are apart, in ``stats["certificate_evals"]``.
    """

    n_points: int
    intercept: float
    support: IntArray
    dual_coef: FloatArray
    kkt_violation: float
    measured: Certificate | Callable[[], Certificate]
    status: Status
    converged: bool
    n_iter: int
    n_kernel_evals: int
    fit_seconds: float
    solver: str
    classes: NDArray[Any] | None
    kernel: Kernel
    support_vectors: Any
    columns: Columns
    terms: Terms
    function: Callable[[Any, Any], Any] | None = None
    calibration: tuple[float, ...] | None = None
    n_threads: int = 1
    trace: dict[str, NDArray[Any]] | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    training: Any = None  # what `add` and `remove` need

    if not TYPE_CHECKING:

        def __init__(self, **fields):
            """All fields at once, which takes a third of the time; those that are left out are the class's."""
            self.__dict__.update(fields)
            self.__dict__.setdefault("stats", {})

    def add(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Solution:
        """The machine with further points, solved exactly from this one. One class has no y.

        `sample_weight`: weights of the new points.
        """
        from svmcore.models.incremental import add

        return add(self, X, y, sample_weight)

    def remove(self, indices: Any) -> Solution:
        """The machine without these training points, solved exactly from this one."""
        from svmcore.models.incremental import remove

        return remove(self, indices)

    @cached_property
    def alpha(self) -> FloatArray:
        """The dual variables of all training points. Of several machines over many rows all of them would be large."""
        out = np.zeros(self.n_points)
        out[self.support] = np.abs(self.dual_coef)
        return out

    @property
    def certificate(self) -> Certificate:
        """Objectives and gap, computed from the data when first asked for (the KKT violation always is at once)."""
        if callable(self.measured):
            object.__setattr__(self, "measured", self.measured())
        assert isinstance(self.measured, Certificate)
        return self.measured

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled. The training data stay behind, so a postponed certificate is computed now or never."""
        state: dict[str, Any] = {**self.__dict__, "measured": self.certificate, "training": None}
        state["support_vectors"] = self.support_vectors
        for made in ("_decision", "alpha"):
            state.pop(made, None)
        return state

    def __repr__(self) -> str:
        terms = [self.kernel_name]
        terms += [
            f"{name}={value:.6g}"
            for name in ("gamma", "C", "epsilon", "tau", "nu")
            if (value := getattr(self, name)) is not None
        ]
        terms += ["standardized"] if self.standardized is not None else []
        known = "" if callable(self.measured) else f"relative gap {self.relative_gap:.1e}, "  # computing it takes time
        if self.status is Status.UNKNOWN:
            return f"<Solution: {self.kind}, {' '.join(terms)}, {len(self.support)} support vectors, {self.solver}>"
        return (
            f"<Solution: {self.kind}, {' '.join(terms)}, {len(self.support)} of {self.n_points} support vectors, "
            f"{self.solver}, {known}KKT violation {self.kkt_violation:.1e}, {self.status.name.lower()}>"
        )

    def _repr_html_(self) -> str:
        rows: dict[str, Any] = {
            "kind": self.kind + (f": {', '.join(map(str, self.classes))}" if self.classes is not None else ""),
            **self.params,
            "support vectors": f"{len(self.support):,} of {self.n_points:,}",
            "features": f"{self.n_features:,}",
            "solver": f"{self.solver}, {self.n_iter:,} iterations, {self.fit_seconds:.3g} s",
            "KKT violation": f"{self.kkt_violation:.1e}",
        }
        if not callable(self.measured):
            rows["relative gap"] = f"{self.relative_gap:.1e}"
        if self.status is Status.UNKNOWN:
            rows = {
                name: value for name, value in rows.items() if name not in ("KKT violation", "relative gap", "solver")
            }
        return html_table("Solution", rows | {"status": self.status})

    # ---- the training problem ----------------------------------------------------------------------------------------

    @property
    def C(self) -> float | None:
        """The penalty."""
        return self.terms.C

    @property
    def loss(self) -> str | None:
        """The name of the loss."""
        return self.terms.loss

    @property
    def epsilon(self) -> float | None:
        """The half-width of a regression's tube; None for a classifier."""
        return self.terms.epsilon

    @property
    def tau(self) -> float | None:
        """The quantile of a regression with the pinball loss."""
        return self.terms.tau

    @property
    def nu(self) -> float | None:
        """The nu that the machine was trained with, if it was."""
        return self.terms.nu

    @property
    def kind(self) -> str:
        """ "classification", "regression" or "one class"."""
        if self.classes is None:
            return "regression"
        return "one class" if self.terms.loss == ONE_CLASS else "classification"

    @property
    def kernel_name(self) -> str:
        """The kernel as `train_svc` calls it; "callable" for a function."""
        return name_of(self.kernel)

    @property
    def gamma(self) -> float | None:
        """The kernel's gamma as a number; None for a kernel without one."""
        return border.kernel_params(self.kernel, None).get("gamma")

    @property
    def params(self) -> dict[str, Any]:
        """The training problem in the words of `train_svc` and `train_svr`: whatever is known and applies."""
        terms = {name: value for name, value in self.terms._asdict().items() if value is not None and name != "factors"}
        if self.terms.factors is not None and self.classes is not None:
            terms["class_weight"] = dict(zip(self.classes.tolist(), self.terms.factors, strict=True))
        kernel = border.kernel_params(self.kernel, self.function)
        return {**terms, **kernel, "standardize": self.standardized is not None}

    @property
    def coef_(self) -> FloatArray:
        """The weights of a linear machine for features as users give them, shape (d,): ``f(x) = coef_ @ x + intercept_``."""
        return self._linear()[0].copy()

    @property
    def intercept_(self) -> float:
        """The constant that belongs to `coef_`. It differs from `intercept` only where the machine scales its features."""
        return float(self._linear()[1])

    def _linear(self) -> tuple[FloatArray, float]:
        if self.kernel.kind != KernelKind.LINEAR:
            raise InputError(f"coef_ needs the linear kernel; this machine has kernel={self.kernel_name!r}")
        return self.columns.weights(self._decision.weights, self.intercept)

    # ---- predictions and files ---------------------------------------------------------------------------------------

    @cached_property
    def _decision(self) -> Decision:
        """The decision function with its support vectors packed, made when first needed."""
        return Decision(self.support_vectors, self.dual_coef, self.kernel, self.function)

    def decision_function(self, X: Any) -> FloatArray:
        """f(x) for every row of X; for a precomputed kernel X holds k(x, training point), shape (m, n)."""
        return self._decision(self._seen(X), self.n_threads) + self.intercept

    def _seen(self, X: Any) -> Any:
        """Rows as the decision function takes them."""
        X = self.columns.apply(X)
        if self.kernel.kind == KernelKind.PRECOMPUTED:
            return X[:, self.support]
        return X if self.function is not None else to_format_of(X, self.support_vectors)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every row of X (the value, for regression; 1 inside and -1 outside, for one class)."""
        if self.classes is None:
            return self.decision_function(X)
        return np.asarray(self.classes[self._places(X)])

    def _places(self, X: Any) -> IntArray:
        """The class of every row, as a place among the classes."""
        values = self._decision.signs(self._seen(X), self.intercept, self.n_threads)
        return (values >= 0.0 if self.terms.loss == ONE_CLASS else values > 0.0).astype(np.intp)

    def predict_proba(self, X: Any) -> FloatArray:
        """The probabilities of both classes (columns), for a machine that was trained with ``-b 1``, here or by LIBSVM."""
        sigmoid = demand_sigmoid(self)
        return probabilities(sigmoid[:, None], self.decision_function(X)[:, None], division(2, "ovo"))

    def plot(self, X: Any = None, y: Any = None, *, ax: Any = None) -> Any:
        """Draw the machine over one or two features, and return the Axes: boundary, margins and support vectors; or a
        regression over one feature, with its tube.

        The points are X (and y), those of training, or the support vectors where the machine comes from a file. Those that
        are support vectors are ringed. Needs matplotlib: ``pip install "svmcore[plot]"``.
        """
        from svmcore.plots.machine import plot_machine

        return plot_machine(self, X, y, ax=ax)

    def save(self, file: Any, *, format: Literal["npz", "libsvm"] = "npz") -> None:  # noqa: A002
        """Write the machine to an .npz file, or as a model of LIBSVM; `svmcore.load` reads both. Nothing is pickled.

        With the text file LIBSVM's tools predict what this machine predicts. It holds the decision function, but nothing of
        the training: no C, no names, no certificate. It has no place for scaled features, nor for kernels that LIBSVM lacks.
        """
        if border.choice("format", format, FORMATS) == "libsvm":
            from svmcore.models import libsvm

            libsvm.write(file, self)
        else:
            archive.write(file, self.fields())

    def fields(self) -> dict[str, Any]:
        """The machine as the arrays of a file."""
        archive.refuse("machine", self.function, self.classes)
        fields: dict[str, Any] = {
            "format": np.array(_FORMAT),
            **archive.kernel_fields(self.kernel),
            "numbers": np.array(
                [
                    self.intercept, self.objective, self.primal_objective, self.gap, self.relative_gap,
                    self.kkt_violation, self.n_iter, self.n_kernel_evals, self.fit_seconds, self.n_features,
                ]
            ),
            "n": np.array(self.n_points),
            "status": np.array(self.status.name),
            "solver": np.array(self.solver),
            "support": self.support,
            "dual_coef": self.dual_coef,
            **_columns.stored(self.columns),
            **{name: np.array(value) for name, value in self.terms._asdict().items() if value is not None},
        }  # fmt: skip
        if self.calibration is not None:
            fields["calibration"] = np.array(self.calibration)
        if self.classes is not None:
            fields["classes"] = self.classes
        return fields | _columns.feature_fields(self.support_vectors, "sv_", "support_vectors")


def demand_sigmoid(machine: Solution) -> FloatArray:
    """The a and b of a classifier; InputError where there are none."""
    if machine.calibration is None or machine.kind != "classification":
        raise InputError(
            "this machine has no probabilities; train it with svmcore train -b 1, or in Python use cv_path(...).calibrate() "
            "or SVC(probability=True)"
        )
    return np.array(machine.calibration)


Solution.support_vectors = _MadeWhenAsked("support_vectors")


def to_format_of(X: Any, like: Any) -> Any:
    """X as dense or sparse as `like`."""
    if is_sparse(X) == is_sparse(like):
        return X
    if is_sparse(like):
        from scipy import sparse

        return sparse.csr_matrix(X)
    return X.toarray()


def assembled(parts: dict[str, Any]) -> Solution:
    """The machine that `Solution.fields` wrote."""
    kernel = archive.read_kernel(parts)
    (intercept, objective, primal, gap, relative, violation, n_iter, n_evals, seconds, n_features) = parts[
        "numbers"
    ].tolist()
    status = Status[str(parts["status"])]
    support, dual_coef = parts["support"].astype(np.int64), parts["dual_coef"].astype(np.float64)
    n = int(parts["n"])
    if not 0 < n <= _MOST_POINTS or (len(support) and support.max() >= n):
        raise ValueError(f"it claims {n} training points")
    if support.shape != dual_coef.shape or support.ndim != 1 or (len(support) and support.min() < 0):
        raise ValueError("support and dual_coef do not belong together")
    columns = _columns.read(parts, int(n_features), kernel.kind == KernelKind.PRECOMPUTED)
    stored: dict[str, Any] = {
        name: float(parts[name]) for name in ("C", "epsilon", "fixed_intercept", "tau", "nu") if name in parts
    }
    terms = Terms(None, str(parts["loss"]) if "loss" in parts else None)._replace(**stored)
    if "factors" in parts:
        first, second = parts["factors"].astype(np.float64).tolist()
        terms = terms._replace(factors=(first, second))
    calibration = parts.get("calibration")
    if calibration is not None and not (calibration.shape in ((1,), (2,)) and np.isfinite(calibration).all()):
        raise ValueError("its probabilities are not those of a sigmoid")
    width = int(n_features) + columns.open
    vectors: Any
    if "sv_data" in parts:
        shape = (len(support), width)
        vectors = border.stored_csr(parts["sv_data"], parts["sv_indices"], parts["sv_indptr"], shape)
    else:
        vectors = np.ascontiguousarray(parts["support_vectors"], dtype=np.float64)
        if vectors.ndim != 2 or (kernel.kind != KernelKind.PRECOMPUTED and vectors.shape != (len(support), width)):
            raise ValueError("the support vectors have the wrong shape")
    return Solution(
        n_points=n, intercept=intercept, support=support, dual_coef=dual_coef, kkt_violation=violation,
        measured=Certificate(objective, primal, gap, relative, violation, 0.0, intercept), status=status,
        converged=status.ok, n_iter=int(n_iter), n_kernel_evals=int(n_evals), fit_seconds=seconds,
        solver=str(parts["solver"]), classes=parts.get("classes"),
        kernel=kernel, support_vectors=vectors, columns=columns, terms=terms,
        calibration=None if calibration is None else tuple(calibration.astype(np.float64).tolist()),
    )  # fmt: skip

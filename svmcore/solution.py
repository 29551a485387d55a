"""The answer of a fit: coefficients, a certificate, predictions, and a file format without pickle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore import _check
from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray, Kernel, KernelKind, Status
from svmcore.certify import Certificate
from svmcore.gram import decision_values, is_sparse

_FORMAT = "svmcore-solution-1"
_MOST_POINTS = 10**9  # a larger number in a file is damage, not data


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """A trained machine with its certificate.

    Attributes
    ----------
    alpha : (n,) the dual variables, at least 0; for regression the absolute coefficients.
    intercept : float; the mean over free support vectors, or, when none is free, the midpoint of the optimal interval
        (with ``stopping="gap"`` the value of smallest gap).
    support : indices of the training points with a coefficient.
    dual_coef : their signed coefficients: ``f(x) = sum dual_coef * k(support, x) + intercept``.
    objective, primal_objective : the dual objective in minimised form, and the primal.
    gap, relative_gap : ``primal_objective + objective``, and the same divided by ``|primal_objective|``.
    kkt_violation : LIBSVM's measure of optimality, recomputed in float64 from the data.
    status, converged : how the run ended (prints its own sentence), and whether it met its tolerance.
    n_iter, n_kernel_evals, fit_seconds, solver, trace, stats : the course of the run.
    """

    alpha: FloatArray
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
    n_features: int
    function: Callable[[Any, Any], Any] | None = None
    n_threads: int = 1
    trace: dict[str, NDArray[Any]] | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    training: Any = None  # what `add` and `remove` need

    def add(self, X: Any, y: Any, *, sample_weight: Any = None) -> Solution:
        """The machine with further points, solved exactly from this one. `sample_weight`: weights of the new points."""
        from svmcore.update import add

        return add(self, X, y, sample_weight)

    def remove(self, indices: Any) -> Solution:
        """The machine without these training points, solved exactly from this one."""
        from svmcore.update import remove

        return remove(self, indices)

    @property
    def certificate(self) -> Certificate:
        """Objectives and gap, computed from the data when first asked for (the KKT violation always is at once)."""
        if callable(self.measured):
            object.__setattr__(self, "measured", self.measured())
        assert isinstance(self.measured, Certificate)
        return self.measured

    @property
    def objective(self) -> float:
        """The dual objective in minimised form."""
        return self.certificate.objective

    @property
    def primal_objective(self) -> float:
        """The primal objective."""
        return self.certificate.primal_objective

    @property
    def gap(self) -> float:
        """primal_objective + objective: a bound on the error of either."""
        return self.certificate.gap

    @property
    def relative_gap(self) -> float:
        """The gap divided by |primal_objective|."""
        return self.certificate.relative_gap

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the certificate computed, the training data left behind."""
        return {**self.__dict__, "measured": self.certificate, "training": None}

    def __repr__(self) -> str:
        kind = "regression" if self.classes is None else "classification"
        return (
            f"<Solution: {kind}, {len(self.support)} of {len(self.alpha)} support vectors, {self.solver}, "
            f"objective {self.objective:.6g}, relative gap {self.relative_gap:.1e}, "
            f"KKT violation {self.kkt_violation:.1e}, {self.status.name.lower()}>"
        )

    def decision_function(self, X: Any) -> FloatArray:
        """f(x) for every row of X; for a precomputed kernel X holds k(x, training point), shape (m, n)."""
        X = _check.features(X)
        if X.shape[1] != self.n_features:
            what = "kernel values" if self.kernel.kind == KernelKind.PRECOMPUTED else "features"
            raise InputError(f"X has {X.shape[1]} {what} a row; this machine was trained with {self.n_features}")
        if self.kernel.kind == KernelKind.PRECOMPUTED:
            X = X[:, self.support]
        elif self.function is None and is_sparse(X) != is_sparse(self.support_vectors):
            X = _to_format_of(X, self.support_vectors)
        return self.intercept + decision_values(
            X, self.support_vectors, self.dual_coef, self.kernel, self.function, self.n_threads
        )

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every row of X (the value, for regression)."""
        values = self.decision_function(X)
        if self.classes is None:
            return values
        return np.asarray(self.classes[(values > 0).astype(int)])

    def save(self, file: Any) -> None:
        """Write the machine to an .npz file that `svmcore.load` reads. Nothing is pickled."""
        if self.function is not None:
            raise InputError("a machine with a Python kernel function cannot be saved: a file holds data, not code")
        fields: dict[str, Any] = {
            "format": np.array(_FORMAT),
            "kernel": np.array([float(value) for value in self.kernel]),
            "numbers": np.array(
                [
                    self.intercept, self.objective, self.primal_objective, self.gap, self.relative_gap,
                    self.kkt_violation, self.n_iter, self.n_kernel_evals, self.fit_seconds, self.n_features,
                ]
            ),
            "n": np.array(len(self.alpha)),
            "status": np.array(self.status.name),
            "solver": np.array(self.solver),
            "support": self.support,
            "dual_coef": self.dual_coef,
        }  # fmt: skip
        if self.classes is not None:
            if self.classes.dtype.kind == "O":
                raise InputError("labels of Python object type cannot be saved; train with numbers or strings")
            fields["classes"] = self.classes
        if is_sparse(self.support_vectors):
            S = self.support_vectors
            fields |= {"sv_data": S.data, "sv_indices": S.indices, "sv_indptr": S.indptr, "sv_shape": np.array(S.shape)}
        else:
            fields["support_vectors"] = self.support_vectors
        if hasattr(file, "write"):
            np.savez_compressed(file, **fields)
            return
        with open(file, "wb") as stream:  # given a name, numpy would append a suffix to it
            np.savez_compressed(stream, **fields)


def _to_format_of(X: Any, like: Any) -> Any:
    """X as dense or sparse as `like`."""
    if is_sparse(like):
        from scipy import sparse

        return sparse.csr_matrix(X)
    return X.toarray()


def load(file: Any) -> Any:
    """Read what `Solution.save` or `Path.save` wrote. Never unpickles."""
    try:
        # opened here: numpy leaves a file that is no archive open
        opened = nullcontext(file) if hasattr(file, "read") else open(file, "rb")  # noqa: SIM115
        with opened as stream, np.load(stream, allow_pickle=False) as stored:
            parts = {key: stored[key] for key in stored.files}
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:
        reason = "it is no archive of arrays" if "pickle" in str(error) else str(error)
        raise InputError(f"{file} is not a file that svmcore wrote ({reason})") from None
    for key, part in parts.items():
        if not isinstance(part, np.ndarray):  # numpy hands on what has no header of its own as bytes
            raise InputError(f"{file} is damaged: {key} is no array")
    if str(parts.get("format")).startswith("svmcore-path"):
        from svmcore._path_solution import assemble_path

        return assemble_path(file, parts)
    if str(parts.get("format")) != _FORMAT:
        raise InputError(f"{file} is not a file that this version of svmcore reads; it needs format {_FORMAT!r}")
    try:
        return _assemble(parts)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"{file} is damaged: {error}") from None


def check_kernel(kernel: Kernel) -> None:
    """Refuse the numbers of a kernel that none has."""
    if kernel.kind not in set(KernelKind) - {KernelKind.CALLABLE}:
        raise ValueError(f"it names kernel {kernel.kind}")
    if not (0 <= kernel.degree < 2**31 and np.isfinite([kernel.gamma, kernel.coef0, kernel.offset]).all()):
        raise ValueError(f"it names {kernel}")


def _assemble(parts: dict[str, Any]) -> Solution:
    kind, gamma, coef0, degree, offset = parts["kernel"].tolist()
    (intercept, objective, primal, gap, relative, violation, n_iter, n_evals, seconds, n_features) = parts[
        "numbers"
    ].tolist()
    status = Status[str(parts["status"])]
    support, dual_coef = parts["support"].astype(np.int64), parts["dual_coef"].astype(np.float64)
    n = int(parts["n"])
    if not 0 < n <= _MOST_POINTS or (len(support) and support.max() >= n):
        raise ValueError(f"it claims {n} training points")
    kernel = Kernel(int(kind), gamma, coef0, int(degree), offset)
    check_kernel(kernel)
    alpha = np.zeros(n)
    if support.shape != dual_coef.shape or support.ndim != 1 or (len(support) and support.min() < 0):
        raise ValueError("support and dual_coef do not belong together")
    alpha[support] = np.abs(dual_coef)
    vectors: Any
    if "sv_data" in parts:
        from scipy import sparse

        shape = (len(support), int(n_features))
        vectors = sparse.csr_matrix((parts["sv_data"], parts["sv_indices"], parts["sv_indptr"]), shape=shape)
        vectors.check_format()
    else:
        vectors = np.ascontiguousarray(parts["support_vectors"], dtype=np.float64)
        if vectors.ndim != 2 or (int(kind) != KernelKind.PRECOMPUTED and vectors.shape != (len(support), n_features)):
            raise ValueError("the support vectors have the wrong shape")
    return Solution(
        alpha=alpha, intercept=intercept, support=support, dual_coef=dual_coef, kkt_violation=violation,
        measured=Certificate(objective, primal, gap, relative, violation, 0.0, intercept), status=status,
        converged=status.ok, n_iter=int(n_iter), n_kernel_evals=int(n_evals), fit_seconds=seconds,
        solver=str(parts["solver"]), classes=parts.get("classes"),
        kernel=kernel, support_vectors=vectors, n_features=int(n_features),
    )  # fmt: skip

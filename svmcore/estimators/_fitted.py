"""What an estimator has found: trained machines, in the layout in which scikit-learn and LIBSVM show them.

Support vectors are sorted by class, then by row. Of a pair of classes LIBSVM calls the first one positive, and this library
the second one: signs differ where there are several pairs, and do not for two classes, where scikit-learn turns them round.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray, KernelKind
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import is_sparse
from svmcore.models import solution
from svmcore.models.solution import Solution
from svmcore.problem.division import Division, division
from svmcore.train.machines import Machines, assembled

_ROUNDING = 1e-12  # the rounding of decision values, relative to the sum of their absolute terms
_SHARP = 1e-10  # the largest KKT violation that counts as rounding


class Shown:
    """What estimators show of the support vectors of what is `_known`."""

    _known: Any

    @property
    def support_vectors_(self) -> Any:
        """The support vectors, in the order of `support_`; empty for given kernel values."""
        return self._known.support_vectors

    @property
    def n_support_(self) -> Any:
        """The number of support vectors of each class, or of all."""
        return self._known.n_support

    @property
    def dual_coef_(self) -> Any:
        """The coefficients of the support vectors."""
        return self._known.dual_coef


class Fitted:
    """Trained machines and the objects behind their support vectors.

    `found` is a `Solution`, or the `Machines` of several classes. `codes` are the classes of all training rows, as places
    among the classes. `points` are the training objects where the machines do not keep those of their support vectors.
    """

    def __init__(
        self, found: Solution | Machines, codes: IntArray | None = None, points: Any = None, sparse: bool = False
    ) -> None:
        self.found = found
        self.sparse = sparse
        self._codes = codes
        self._points = points

    @cached_property
    def objects(self) -> Any:
        """The objects behind the support vectors, when somebody first asks for them."""
        return None if self._points is None else taken(self._points, self.support)

    def plain(self) -> dict[str, Any]:
        """All of it as arrays, numbers and strings, but for the objects of a kernel function."""
        return {
            "arrays": self.found.fields(), "n_threads": self.machines[0].n_threads, "support": self.support,
            "support_codes": self.support_codes, "objects": self.objects, "sparse": self.sparse,
        }  # fmt: skip

    @classmethod
    def from_plain(cls, state: dict[str, Any]) -> Fitted:
        """What `plain` wrote."""
        arrays = state["arrays"]
        several = "n_machines" in arrays
        found: Any = assembled(arrays) if several else solution.assembled(arrays)
        machines = tuple(
            replace(one, n_threads=state["n_threads"]) for one in (found.machines if several else (found,))
        )
        made = cls(replace(found, machines=machines) if several else machines[0], sparse=state["sparse"])
        made.support, made.support_codes, made.objects = state["support"], state["support_codes"], state["objects"]
        return made

    @property
    def machines(self) -> tuple[Solution, ...]:
        """All of them."""
        return self.found.machines if isinstance(self.found, Machines) else (self.found,)

    @property
    def n(self) -> int:
        """The number of training rows."""
        return self.found.n_points

    @cached_property
    def support(self) -> IntArray:
        """The rows of the support vectors, by class."""
        support, codes = self.found.support, self._codes
        return support if codes is None else support[np.argsort(codes[support], kind="stable")]

    @cached_property
    def support_codes(self) -> IntArray | None:
        """Their classes, as places among the classes."""
        return None if self._codes is None else self._codes[self.support]

    @property
    def division(self) -> Division | None:
        """Which classes the machines tell apart."""
        return division(self.found.classes.size, self.found.strategy) if isinstance(self.found, Machines) else None

    @property
    def pairs(self) -> bool:
        """Whether there are several classes, and a machine for each pair of them."""
        return isinstance(self.found, Machines) and self.found.strategy == "ovo"

    @property
    def sign(self) -> float:
        """What turns our machines into LIBSVM's."""
        return -1.0 if self.pairs else 1.0

    # ---- values ------------------------------------------------------------------------------------------------------

    def values(self, X: Any) -> FloatArray:
        """The values of the machines at the rows of X, one column for each."""
        if isinstance(self.found, Machines):
            return self.found._values(X)
        return self.found.decision_function(X)[:, None]

    def choices(self, X: Any) -> IntArray:
        """The classes of the rows of X, as places among the classes."""
        return self.found._places(X)

    def values_of(self, kernel: FloatArray) -> FloatArray:
        """The same from kernel values, one column for each support vector."""
        with one_blas_thread:
            return np.asarray(kernel @ self.coef.T + self.constants)

    @cached_property
    def constants(self) -> FloatArray:
        """The intercepts of the machines."""
        return np.array([machine.intercept for machine in self.machines])

    @cached_property
    def coef(self) -> FloatArray:
        """The coefficients of the machines (rows) on all support vectors."""
        place = np.empty(self.n, dtype=np.int64)
        place[self.support] = np.arange(self.support.size)
        out = np.zeros((len(self.machines), self.support.size))
        for row, machine in zip(out, self.machines, strict=True):
            row[place[machine.support]] = machine.dual_coef
        return out

    @cached_property
    def edge(self) -> float:
        """How far values of the first machine may be from zero by rounding, and by what is left of its KKT violation."""
        machine = self.machines[0]
        scale = abs(machine.intercept)
        if machine.kernel.kind != KernelKind.PRECOMPUTED and machine.support.size:
            K = KernelMatrix(machine.support_vectors, machine.kernel, None, cache_bytes=0, n_threads=1)
            scale = max(scale, float(np.abs(machine.dual_coef) @ np.abs(K.diagonal)))
        return _ROUNDING * scale + min(machine.kkt_violation, _SHARP)

    # ---- as scikit-learn shows it ------------------------------------------------------------------------------------

    @cached_property
    def dual_coef(self) -> Any:
        """`dual_coef_`: with a machine for each pair of k classes k - 1 rows, that of another class each."""
        if not self.pairs:
            return self._shown(self.coef)
        which = self.division
        assert which is not None
        assert self.support_codes is not None
        out = np.zeros((which.n_classes - 1, self.support.size))
        for part, row in zip(which.parts, self.coef, strict=True):
            (first,), (second,) = part.minus, part.plus
            of_first, of_second = self.support_codes == first, self.support_codes == second
            out[second - 1, of_first] = 0.0 - row[of_first]
            out[first, of_second] = 0.0 - row[of_second]
        return self._shown(out)

    def _shown(self, values: FloatArray) -> Any:
        if not self.sparse:
            return values
        from scipy import sparse

        if not values.size:
            return sparse.csr_matrix((1, 0))
        rows, columns = values.shape  # zeros are written out, as LIBSVM does
        indices, starts = np.tile(np.arange(columns), rows), columns * np.arange(rows + 1)
        return sparse.csr_matrix((values.ravel(), indices, starts), shape=values.shape)

    @cached_property
    def intercept(self) -> FloatArray:
        """`intercept_`."""
        return self.sign * self.constants + 0.0

    @cached_property
    def n_support(self) -> IntArray:
        """`n_support_`: by class, or of all."""
        if self.support_codes is None:
            return np.array([self.support.size], dtype=np.int32)
        k = 2 if self.division is None else self.division.n_classes
        return np.bincount(self.support_codes, minlength=k).astype(np.int32)

    @cached_property
    def support_vectors(self) -> Any:
        """`support_vectors_`."""
        if self.objects is not None:
            return np.empty((0, 0)) if isinstance(self.objects, list) else self.objects
        found = self.found
        if found.kernel.kind == KernelKind.PRECOMPUTED:
            return np.empty((0, 0))
        return found.support_vectors[np.searchsorted(found.support, self.support)]

    @cached_property
    def weights(self) -> Any:
        """`coef_` of a linear kernel, one row for each machine."""
        rows = self.sign * np.stack([machine.coef_ for machine in self.machines]) + 0.0
        rows.flags.writeable = False
        if not self.sparse:
            return rows
        from scipy import sparse

        shown = sparse.csr_matrix(rows)
        shown.data.setflags(write=False)
        return shown

    @property
    def n_iter(self) -> IntArray:
        """Iterations of each machine."""
        return np.array(self.found.n_iter, dtype=np.int32, ndmin=1)

    @property
    def converged(self) -> bool:
        """Whether every machine met its tolerance."""
        return self.found.converged


def taken(points: Any, rows: IntArray) -> Any:
    """Some of the objects that a kernel function takes, as a container of the same kind where that can be."""
    if is_sparse(points) or hasattr(points, "tocsr"):
        return points.tocsr()[rows]
    if isinstance(points, np.ndarray):
        return points[rows]
    if hasattr(points, "iloc"):
        return points.iloc[rows]
    if hasattr(points, "columns"):
        return points[rows.tolist()]
    return [points[k] for k in rows.tolist()]


def stacked(old: Any, new: Any) -> Any:
    """The objects of two containers in one."""
    if is_sparse(old) or is_sparse(new):
        from scipy import sparse

        return sparse.vstack([old, new], format="csr")
    if isinstance(old, np.ndarray):
        return np.concatenate([old, np.asarray(new)])
    if isinstance(old, list | tuple):
        return [*old, *new]
    raise InputError(f"rows cannot be added to a {type(old).__name__}; give lists or arrays to a kernel function")


def own(points: Any) -> Any:
    """The same objects in memory that nobody else writes to, where their container can be copied."""
    return points.copy() if callable(getattr(points, "copy", None)) else points


def count(points: Any) -> int:
    """The number of objects in a container."""
    return int(points.shape[0]) if hasattr(points, "shape") else len(points)

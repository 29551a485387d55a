"""The answer of a fit over parts: its certificate, its course, predictions by blocks, and the same machine in one place."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray, Kernel, KernelKind, Status
from svmcore.base.html import html_table
from svmcore.distributed.engine import Serial, dask_engine
from svmcore.distributed.parts import Assignment, rows_of
from svmcore.kernel.points import is_sparse, stacked
from svmcore.models.solution import Solution, Terms
from svmcore.problem.certify import Certificate, Certified
from svmcore.problem.columns import Columns, OfColumns

_ROWS = 1 << 16  # rows predicted at a time


class Round(NamedTuple):
    """A round. What a sample does not tell is nan."""

    seconds: float
    violation: float
    free: int
    dual: float
    gap: float
    moved: int  # rows whose products went into the field, or that a linear machine's band held
    groups: int  # of variables that were improved side by side


class Vectors(NamedTuple):
    """Support vectors: their parts' rows, signed coefficients, features."""

    at: IntArray
    coef: FloatArray
    X: Any


class Apart(NamedTuple):
    """Support vectors of a linear machine: an engine keeps the coefficients, and rows are read again where they are."""

    engine: Serial
    sources: list[Any]
    kept: list[Any]
    task: Assignment

    def coefficients(self) -> list[tuple[IntArray, FloatArray]]:
        """Rows of every part, and their coefficients."""
        return self.engine.gather(self.kept)

    def vectors(self) -> list[Vectors]:
        """The same with features."""
        asked = [(self.task, *found) for found in self.coefficients()]
        return self.engine.read_again(_vectors, self.sources, asked)


def _vectors(source: Any, asked: tuple[Assignment, IntArray, FloatArray]) -> Vectors:
    """Rows of a source with their coefficients."""
    task, at, coef = asked
    return Vectors(at, coef, rows_of(source, task)[at])


@dataclass(frozen=True, eq=False, repr=False)
class PartsSolution(Certified, OfColumns):
    """A machine trained over parts, with its certificate.

    Attributes
    ----------
    objective, primal_objective, gap, relative_gap, kkt_violation, intercept : as those of `svmcore.Solution`. The violation
        and the intercept are always computed in float64 from the rows. The others are, where ``stats["exact"]``; else they
        are sums over the parts' single-precision fields, and may be off by ``stats["error"]`` times sum |alpha|.
    coef_ : the weights of a linear machine, else None.
    status, converged, fit_seconds : how the run ended.
    n_support, n_free : support vectors, and those of them strictly between their bounds.
    rounds : one `Round` each.
    rows, parts : rows of every part, and their names.
    feature_names : the columns' names, or None. A data frame with the same columns in another order is put right.
    stats : passes over the support vectors (or the data), rows the master has seen, bytes up and down, workers lost; the
        "method" of a linear machine, and the "reason" why it is not that of bands.
    """

    certificate: Certificate
    status: Status
    fit_seconds: float
    n_support: int
    n_free: int
    rounds: list[Round]
    rows: list[int]
    parts: list[str]
    classes: NDArray[Any] | None
    kernel: Kernel
    terms: Terms
    columns: Columns
    coef_: FloatArray | None
    engine: str
    found: list[Vectors] | Apart | None  # None: what is pickled in place of vectors that are on a cluster
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether the run met its tolerance."""
        return self.status.ok

    @property
    def intercept(self) -> float:
        """The constant of the decision function."""
        return self.certificate.intercept

    @property
    def kkt_violation(self) -> float:
        """The KKT violation."""
        return self.certificate.kkt_violation

    @cached_property
    def vectors(self) -> list[Vectors]:
        """The support vectors of every part, fetched from where they are when first asked for."""
        if self.found is None:
            raise InputError(
                "the support vectors of this linear machine stayed on the cluster; call to_local() before it is pickled"
            )
        return self.found.vectors() if isinstance(self.found, Apart) else self.found

    def __getstate__(self) -> dict[str, Any]:
        """With its support vectors, unless they are on a cluster; without the engine and the parts."""
        apart = "vectors" not in self.__dict__ and isinstance(self.found, Apart) and self.engine == "dask"
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_local", "machine")}
        return kept | {"found": None if apart or self.found is None else self.vectors}

    @property
    def alpha(self) -> list[FloatArray]:
        """The dual variables of the rows of every part, at least 0."""
        alphas = []
        parts: Any = self.found.coefficients() if isinstance(self.found, Apart) else self.vectors
        for count, (at, coef, *_) in zip(self.rows, parts, strict=True):
            alpha = np.zeros(count)
            alpha[at] = np.abs(coef)
            alphas.append(alpha)
        return alphas

    def _solution(self, support: IntArray, coef: FloatArray, X: Any) -> Solution:
        return Solution(
            n_points=sum(self.rows), intercept=self.intercept, support=support, dual_coef=coef,
            kkt_violation=self.kkt_violation, measured=self.certificate, status=self.status, converged=self.converged,
            n_iter=len(self.rounds), n_kernel_evals=0, fit_seconds=self.fit_seconds, solver=self.engine,
            classes=self.classes, kernel=self.kernel, support_vectors=X, columns=self.columns,
            terms=self.terms, stats=self.stats,
        )  # fmt: skip

    @cached_property
    def _local(self) -> Solution:
        firsts = np.cumsum([0, *self.rows])
        support = np.concatenate([part.at + first for part, first in zip(self.vectors, firsts, strict=False)])
        coef = np.concatenate([part.coef for part in self.vectors])
        X = stacked([part.X for part in self.vectors])
        return self._solution(support.astype(np.int64), coef, X if is_sparse(X) else X.astype(np.float64))

    @cached_property
    def machine(self) -> Solution:
        """What predicts. That of a linear machine has its weights as the only support vector."""
        if self.coef_ is None:
            return self._local
        return self._solution(np.zeros(1, np.int64), np.ones(1), self.coef_[None])

    def to_local(self) -> Solution:
        """The same machine as a `svmcore.Solution`, with its support vectors: to save, to predict, to keep.

        Its training points are the rows of all parts, one after the other.
        """
        return self._local

    def decision_function(self, X: Any) -> Any:
        """f(x) for every row of X, by blocks of rows; lazy where X is a collection of dask, a series for a data frame."""
        return by_blocks(X, self.machine, "decision_function")

    def predict(self, X: Any) -> Any:
        """The class (or value) of every row of X; lazy where X is a collection of dask, a series for a data frame."""
        return by_blocks(X, self.machine, "predict")

    def __str__(self) -> str:
        n, status = sum(self.rows), self.status.name.lower()
        return (
            f"{KernelKind(self.kernel.kind).name.lower()}, {n:,} rows in {len(self.rows)} parts, {len(self.rounds)} rounds, "
            f"{self.n_support:,} vectors ({self.n_free:,} free), relative gap {self.relative_gap:.1e}, "
            f"KKT violation {self.kkt_violation:.1e}, {status}"
        )

    def __repr__(self) -> str:
        return f"<PartsSolution: {self}>"

    def _repr_html_(self) -> str:
        rows = {
            "rows": f"{sum(self.rows):,} in {len(self.rows)} parts",
            "rounds": len(self.rounds),
            "support vectors": f"{self.n_support:,}, {self.n_free:,} free",
            "KKT violation": f"{self.kkt_violation:.1e}",
            "relative gap": f"{self.relative_gap:.1e}",
            "status": self.status,
        }
        return html_table("PartsSolution", rows)


def by_blocks(X: Any, machine: Any, method: str) -> Any:
    """What a method of a machine says of rows of any number: lazily of a collection, of a frame with its index."""
    if hasattr(X, "dask"):
        return dask_engine().map_rows(X, machine, method)
    X = X.tocsr() if hasattr(X, "tocsr") else X
    if not hasattr(X, "shape") or len(X.shape) != 2 or X.shape[0] <= _ROWS or hasattr(X, "iloc"):
        return of_rows(X, machine, method)
    return np.concatenate([of_rows(X[first : first + _ROWS], machine, method) for first in range(0, X.shape[0], _ROWS)])


def of_rows(X: Any, machine: Any, method: str) -> Any:
    """The same of rows in memory."""
    return framed(np.asarray(getattr(machine, method)(X)), X, machine)


def framed(found: NDArray[Any], X: Any, machine: Any) -> Any:
    """What was found for the rows of X: of a data frame a series, or a frame, with its index."""
    if not hasattr(X, "iloc"):
        return found
    pandas = importlib.import_module("pandas")
    return pandas.Series(found, X.index) if found.ndim == 1 else pandas.DataFrame(found, X.index, machine.classes)

"""Certificates: how good a dual answer is, recomputed in float64 from the problem and the answer alone.

Nothing here trusts a solver: kernel products are formed by blocks from the data (no n x n memory), and objective,
violation and gap follow from them by the formulas of `problem/measures`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._types import NONZERO, DualQP, FloatArray, IntArray
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.kernel.pairs import PairProduct
from svmcore.kernel.points import is_sparse
from svmcore.kernel.rough import RoughProduct
from svmcore.problem import measures

WORTH_IT = 0.7  # share of the entries from which recomputing them is no cheaper than the whole
_BRIEF = 3e6  # feature operations that are over before a second product has begun
_LONG = 5.0  # times that: what float32 passes over saves more than it costs to ask
_FEW = 192  # so many entries more cost less than to pack the sources once more
_AT_ONCE = 4096  # points whose rough product is computed together
_NORM_ERROR = 1e-12  # of the square of a norm: what rounding may hide, in units of that of the sum of |coef|
_FEW_OPEN = 0.05  # float32 costs more than it saves where integers leave no more than this share of all points open
_MANY_OPEN = 0.5  # it is of no use where it leaves more than this share of the first points open


class Certificate(NamedTuple):
    """`objective` is the dual's, minimised; `gap = primal_objective + objective`, at the given intercept.

    `kkt_violation` is LIBSVM's: the largest ``-y G`` among variables that can grow minus the smallest among those that can
    shrink (without an intercept: the largest distance of either from zero). `infeasibility` is the largest amount by
    which a bound or the equality row is missed: the gap is a bound only when it is (near) zero.
    """

    objective: float
    primal_objective: float
    gap: float
    relative_gap: float
    kkt_violation: float
    infeasibility: float
    intercept: float


class Certified:
    """What every answer says of its `certificate`."""

    if TYPE_CHECKING:

        @property
        def certificate(self) -> Certificate:
            """The measures."""

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


class Residual:
    """The residual c - K beta - diag beta of a dual point. Each entry is known to within its `error`.

    `exact` says which entries have been computed here, in float64 from the data. Nobody else's word makes them so.
    """

    def __init__(
        self,
        qp: DualQP,
        K: KernelMatrix,
        beta: FloatArray,
        v: FloatArray | float = 0.0,
        error: float | FloatArray = np.inf,
    ) -> None:
        self.qp, self.K, self.beta = qp, K, beta
        self.v, self.error = (np.array(np.broadcast_to(each, beta.shape), dtype=np.float64) for each in (v, error))
        self.exact = np.zeros(len(beta), np.bool_)
        coef: FloatArray = np.bincount(qp.point, weights=beta, minlength=K.n).astype(np.float64)
        self.support = np.flatnonzero(coef)
        self.coef = coef[self.support]
        self.up, self.down = beta < qp.upper, beta > qp.lower

    def settle(self, wanted: NDArray[np.bool_]) -> None:
        """Compute these entries in float64, as far as they are not known so."""
        chosen = np.flatnonzero(wanted & ~self.exact)
        if chosen.size:
            points, place = np.unique(self.qp.point[chosen], return_inverse=True)
            self._learn(chosen, self.K.product_at(points, self.support, self.coef)[place])
            self.exact[chosen], self.error[chosen] = True, 0.0

    def settle_all(self) -> None:
        """Compute all entries, from the product that the kernel matrix remembers."""
        everything = np.arange(len(self.beta))
        self._learn(everything, kernel_product(self.qp, self.K, self.beta)[self.qp.point])
        self.exact[:], self.error[:] = True, 0.0

    def _learn(self, chosen: IntArray, product: FloatArray) -> None:
        part = self.qp.part(chosen)._replace(point=np.arange(len(chosen)))
        self.v[chosen] = measures.residual(part, self.beta[chosen], product)

    def bounds(self) -> tuple[float, float]:
        """A lower bound on the largest entry that can grow, and an upper bound on the least entry that can shrink."""
        top = (self.v - self.error)[self.up].max(initial=-np.inf)
        return float(top), float((self.v + self.error)[self.down].min(initial=np.inf))

    def beyond(self, top: float, bottom: float) -> NDArray[np.bool_]:
        """Which variables may have an entry of at least `top` and grow, or of at most `bottom` and shrink."""
        low, high = self.v - self.error, self.v + self.error
        return np.asarray((self.up & ~(high < top)) | (self.down & ~(low > bottom)))

    def undecided(self, b: float) -> NDArray[np.bool_]:
        """Which variables without weight may add to the gap at the bias b, or be an extreme.

        A variable that could only grow adds nothing where its entry is below b. Nor does one that could only shrink, above b.
        """
        top, bottom = self.bounds()
        if not self.qp.equality:
            top, bottom = max(top, 0.0), min(bottom, 0.0)
        return self.beyond(min(top, b), max(bottom, b))

    def guess(self, b: float) -> None:
        """Learn all other entries roughly, each with a bound that holds for certain. No solver's word is used.

        Many features are read as integers first, and in float32 where these leave more than a few open.
        """
        K, open_ = self.K, np.flatnonzero(~self.exact)
        what, told = (K.kernel, K.X[self.support], self.coef), (self.v.copy(), self.error.copy())
        self.v[open_], self.error[open_] = 0.0, np.inf
        if PairProduct.serves(K.kernel, K.n_features, len(self.support)):
            self._estimate(PairProduct(*what, self._norm()), open_, b, *told)
            open_ = np.flatnonzero(self.undecided(b) & ~self.exact)
        if open_.size > _FEW_OPEN * K.n:
            self._estimate(RoughProduct(*what), open_, b, *told)

    def _norm(self) -> float:
        """The norm of the machine over the features of its kernel, or slightly more."""
        qp, own, total = self.qp, self.beta != 0.0, float(self.coef.sum())
        beta = self.beta[own]
        square = float(beta @ (qp.c[own] - self.v[own] - qp.diag[own] * beta)) - self.K.kernel.offset * total**2
        return float(np.sqrt(max(square, 0.0) + _NORM_ERROR * float(np.abs(self.coef).sum()) ** 2))

    def _estimate(self, rough: RoughProduct, open_: IntArray, b: float, told: FloatArray, most: FloatArray) -> None:
        """Learn these entries from a product with a bound.

        What a solver `told`, with its bound `most`, leaves an entry open where it contradicts. It ends early where the
        product decides too few.
        """
        K = self.K
        constant = K.kernel.offset * self.coef.sum()
        for start in range(0, len(open_), _AT_ONCE):
            some = open_[start : start + _AT_ONCE]
            values, bounds = rough(K.X, K.n_threads, self.qp.point[some])
            K.n_evals += len(some) * len(self.support)
            known = np.isfinite(bounds)
            self._learn(some[known], values[known] + constant)
            bounds[np.abs(self.v[some] - told[some]) > bounds + most[some]] = np.inf
            self.error[some] = bounds
            if not start and np.mean(self.undecided(b)[some]) > _MANY_OPEN:
                return

    def relative_gap(self, b: float) -> tuple[float, float, float]:
        """The relative gap at the bias b by what is known, and what it is at least and at most."""
        qp, beta = self.qp, self.beta
        gap, low, high = (float(each.sum()) for each in (measures.gap_terms(qp, beta, self.v, b), *self._terms(b)))
        dual = -measures.objective(qp, beta, self.v)
        blur = high - low + 0.5 * float(np.abs(beta) @ self.error)
        primal = abs(gap + dual)
        return gap / max(primal, NONZERO), low / max(primal + blur, NONZERO), high / max(primal - blur, NONZERO)

    def _terms(self, b: float) -> tuple[FloatArray, FloatArray]:
        """The least and the largest terms of the gap. A term is convex, and zero where the residual is b."""
        left, right = (measures.gap_terms(self.qp, self.beta, self.v + shift, b) for shift in (-self.error, self.error))
        least = np.where(np.abs(self.v - b) <= self.error, 0.0, np.minimum(left, right))
        return least, np.maximum(left, right)

    def sharpen(self, b: float) -> None:
        """Compute the entries whose terms of the gap at the bias b are not known."""
        least, largest = self._terms(b)
        self.settle(largest > least)


def confirm(known: Residual, most: float = WORTH_IT) -> tuple[float, float] | None:
    """The exact (KKT violation, intercept) of a point, from few exact entries of its residual.

    Only the entries that can decide are recomputed, in float64 from the data: those of free variables, and those that may be
    an extreme for all that is known. Where these take long, free variables come first: they narrow what others can decide.
    None where these are more than the share `most` of all.
    """
    qp, K, beta = known.qp, known.K, known.beta
    free = known.up & known.down
    top, bottom = known.bounds()
    if not (np.isfinite(known.error).all() and np.isfinite(top) and np.isfinite(bottom)):
        return None
    wanted = free | known.beyond(*known.bounds())
    if np.count_nonzero(wanted) > most * len(beta):
        return None
    others, width = np.count_nonzero(wanted & ~free), K.X.nnz / K.n if is_sparse(K.X) else K.n_features
    brief = K.function is None and (others <= _FEW or others * len(known.support) * width <= _BRIEF)
    if free.any() and not brief:
        known.settle(free)
        wanted = free | known.beyond(*known.bounds())
    known.settle(wanted)
    part, own, v = qp.part(wanted), beta[wanted], known.v[wanted]
    intercept = measures.bias(part, own, v) if qp.equality else K.kernel.offset * float(beta.sum())
    return measures.violation(part, own, v), intercept


def _what_matters(known: Residual, intercept: float | None, *, best: bool) -> tuple[NDArray[np.bool_], float]:
    """The variables that a certificate is made of, all of them exact, and the bias of the gap.

    All others have no weight, and are proved to be beyond the margin: they add nothing to any measure.
    """
    qp, K, beta = known.qp, known.K, known.beta
    matters = (beta != 0.0) | (known.up & known.down)

    def bias() -> float:
        part, own, v = qp.part(matters), beta[matters], known.v[matters]
        return (
            (measures.best_bias if best else measures.bias)(qp=part, beta=own, v=v) if intercept is None else intercept
        )

    passes = K.dense and RoughProduct.serves(K.kernel, K.n_features, len(known.support))
    work = K.n * len(known.support) * K.n_features
    if passes and work > _LONG * _BRIEF and not K.remembers(known.support, known.coef):
        known.settle(matters)
        known.guess(bias())
        more = (known.undecided(bias()) if (known.up & known.down).any() else known.beyond(*known.bounds())) & ~matters
        while more.any():
            known.settle(more)
            matters |= more
            more = known.undecided(bias()) & ~matters
    else:
        known.settle_all()
        matters[:] = True
    return matters, bias()


@one_blas_thread
def certificate(
    qp: DualQP, K: KernelMatrix, beta: FloatArray, intercept: float | None = None, *, best: bool = False,
    known: Residual | None = None,
) -> Certificate:  # fmt: skip
    """Measure a dual point. Without an `intercept`: the mean over free vectors, or the one of smallest gap (`best`).

    With no equality row the intercept is not free: it is the embedded one, offset * sum(beta), already part of K. Of what is
    `known` of its residual, only exact entries are used.
    """
    embedded = 0.0 if qp.equality else K.kernel.offset * float(beta.sum())
    given = intercept
    if not qp.equality:
        given = 0.0 if intercept is None else intercept - embedded
    known = known or Residual(qp, K, beta)
    matters, b = _what_matters(known, given, best=best)
    part, own, v = qp.part(matters), beta[matters], known.v[matters]
    dual = measures.objective(part, own, v)
    # A feasible beta has no excess. The primal of any other is that of the loss's definition, too.
    excess = qp.excess(beta) if qp.equality else float(beta.sum())
    gap = measures.gap(part, own, v, b) - b * excess
    primal = gap - dual
    outside = np.maximum(qp.lower - beta, beta - qp.upper)
    infeasibility = max(float(outside.max(initial=0.0)), abs(qp.excess(beta)))
    return Certificate(
        objective=dual,
        primal_objective=primal,
        gap=gap,
        relative_gap=gap / max(abs(primal), NONZERO),
        kkt_violation=measures.violation(part, own, v),
        infeasibility=infeasibility,
        intercept=b + embedded,
    )

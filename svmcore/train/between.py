"""Machines between classes that share what they read: one kernel matrix, or points that are packed once.

`together` chooses: tasks over one matrix where all points fit into one (`small`), machines over points near the margin where
they do not (`_near`). Where it has no answer, each machine is trained by itself.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Control
from svmcore._types import DualQP, FloatArray, IntArray, KernelKind, Status
from svmcore.base.threads import split
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.table import is_positive
from svmcore.kernel.tiles import DenseTiles, make_tiles
from svmcore.kernel.whole import gram_of, part_of
from svmcore.models.solution import Solution, Terms
from svmcore.problem import border, formulations
from svmcore.problem.advice import LARGE_GAP, out_of_reach
from svmcore.problem.border import KernelSpec
from svmcore.problem.columns import Columns
from svmcore.problem.division import Division, Sides
from svmcore.problem.scales import Look
from svmcore.solvers import _near, small
from svmcore.solvers._contract import Outcome
from svmcore.train import auto
from svmcore.train.solve import Run, certificate_of

_FEW = 16  # machines whose problems fits of the same classes share
_DEARER = 3  # what else takes as long as some pair steps, takes so many times as long by `train_svc`
_AT_ONCE = 1e7  # kernel values of the tasks between two looks at the clock


@dataclass(frozen=True, eq=False)
class Common:
    """What all machines are trained on: scaled features, labels as places in `classes`, weights, the kernel.

    `given` are the weights of the rows, `factors` those of the classes; None where all are one.
    """

    X: Any
    codes: IntArray
    classes: NDArray[Any]
    given: FloatArray | None
    factors: FloatArray | None
    spec: KernelSpec
    columns: Columns
    look: Look | None

    @functools.cached_property
    def weights(self) -> FloatArray:
        """What the rows of each machine weigh."""
        if self.factors is None:
            return np.ones(self.codes.size) if self.given is None else self.given
        return self.factors[self.codes] if self.given is None else self.factors[self.codes] * self.given

    def kernel_form(self) -> dict[str, Any]:
        """The kernel in the words of `train_svc`."""
        spec = self.spec
        if spec.function is not None or spec.kernel.kind == KernelKind.PRECOMPUTED:
            return {"kernel": spec.function or "precomputed"}
        form = border.kernel_params(spec.kernel, None)
        return {name: form[name] for name in ("kernel", "gamma", "degree", "coef0") if name in form}


def together(study: Common, gram: FloatArray | None, run: Run) -> OverMatrix | NearMargins | None:
    """Tasks over one kernel matrix; or, of more points, machines over points near the margin; or nothing.

    Where it has no answer, `train_svc` is asked.
    """
    n, kernel = study.codes.size, study.spec.kernel
    if n < small.LEAST:
        return None
    if n <= small.MOST_POINTS and gram is not None:
        return OverMatrix(study, gram, run)
    if study.spec.function is not None:
        return None
    if n <= small.MOST_POINTS and 8.0 * n * n <= run.cache_bytes and is_positive(kernel):
        return OverMatrix(study, None, run)
    K = KernelMatrix(study.X, kernel, cache_bytes=0, n_threads=run.n_threads)
    if run.max_iter >= 0 or not (small.reads_points(K) and is_positive(kernel)):
        return None
    tiles = make_tiles(K, centred=True)
    return NearMargins(study, tiles, K, run) if isinstance(tiles, DenseTiles) else None


class Pending(NamedTuple):
    """A machine that has been trained, and is put together when somebody asks for it, and what there is to say of it."""

    among: Any
    place: int
    n_iter: int
    said: str | None = None

    def make(self) -> Solution:
        """The machine."""
        return self.among.solution(self.place)  # type: ignore[no-any-return]


def _made(
    study: Common, part: Sides, C: float, run: Run, solver: str, rows: IntArray, found: Outcome, seconds: float,
    nu: float | None = None, own: Any = None, places: IntArray | None = None,
) -> Solution:  # fmt: skip
    """A machine in terms of all rows. `found` is over `rows`, or over those at `places`, where a copy `own` of X has them."""
    rows = rows if places is None else rows[places]
    held = np.flatnonzero(found.beta)
    held = held[np.argsort(rows[held])]
    support, found = rows[held], found._replace(beta=found.beta[held])
    measured = certificate_of(found)
    pair = len(part.minus) == 1
    given = study.spec.kernel.kind == KernelKind.PRECOMPUTED
    X, there = (study.X, support) if own is None or places is None else (own, places[held])
    terms = Terms(C, "hinge", nu=nu)
    return Solution(
        n_points=study.codes.size, intercept=found.bias, support=support, dual_coef=found.beta,
        kkt_violation=found.violation, measured=measured, status=Status.CONVERGED, converged=True, n_iter=found.n_iter,
        n_kernel_evals=found.n_evals, fit_seconds=seconds, solver=solver,
        classes=pair_of(study, part) if pair else np.array([False, True]), kernel=study.spec.kernel,
        support_vectors=np.empty((0, 0)) if given else X[there], columns=study.columns,
        terms=with_factors(terms, study, part) if pair else terms, function=study.spec.function, n_threads=run.n_threads,
        stats={
            "n_outer": found.n_rounds, "precision": "mixed", "exact": True, "certificate_evals": found.certificate_evals,
        },
    )  # fmt: skip


class OverMatrix:
    """Machines as tasks over one kernel matrix, whose rows are in the order of the classes."""

    def __init__(self, study: Common, gram: FloatArray | None, run: Run) -> None:
        self.study, self.run = study, run
        self.order = study.codes.argsort(kind="stable")
        self.sizes = np.bincount(study.codes, minlength=study.classes.size).tolist()
        self.edges = [0, *itertools.accumulate(self.sizes)]
        self.heaviest = [1.0] * len(self.sizes)
        self.weights = None
        if study.given is not None or study.factors is not None:
            self.weights = study.weights[self.order]
            self.heaviest = np.maximum.reduceat(self.weights, self.edges[:-1]).tolist()
        self.X: Any = None
        if gram is not None:
            self.gram = part_of(np.ascontiguousarray(gram), self.order, self.order)
        else:
            self.X = study.X[self.order]
            self.gram = gram_of(KernelMatrix(self.X, study.spec.kernel, cache_bytes=0, n_threads=run.n_threads))

    def machines(
        self, which: Division, costs: list[Any], nus: list[Any], control: Control
    ) -> list[Pending | Solution | None]:
        """The machines that take no more than the matrix, until the control says no."""
        out: list[Pending | Solution | None] = [None] * len(costs)
        same = all(C is costs[0] for C in costs)
        costs = [border.cost(costs[0])] * len(costs) if same else [border.cost(C) for C in costs]
        parts, todo = which.parts, list(range(len(costs)))
        if nus[0] is not None:
            nus = [border.share("nu", nu) for nu in nus]
            todo = [k for k in todo if costs[k] == 1.0]
        low, high = min(costs) * min(self.heaviest), max(costs) * max(self.heaviest)
        if not (low > formulations.NEGLIGIBLE and high < math.inf):
            todo = [k for k in todo if self._has_costs(parts[k], costs[k])]
        plain = self.weights is None and nus[0] is None  # no number overflows
        with control, nullcontext() if plain else np.errstate(all="ignore"):
            while todo and control.reason() is None:
                values, count = 0.0, 0
                while count < len(todo) and values < _AT_ONCE:
                    part = parts[todo[count]]
                    values += float(sum([self.sizes[c] for c in part.minus + part.plus])) ** 2
                    count += 1
                chosen, todo = todo[:count], todo[count:]
                some = _Some(
                    self, tuple(parts[k] for k in chosen), [costs[k] for k in chosen], [nus[k] for k in chosen]
                )
                for k, machine in zip(chosen, some.machines(), strict=True):
                    out[k] = machine
        return out

    def _has_costs(self, part: Sides, C: float) -> bool:
        """Whether both sides of a machine have costs, and all of them are finite."""
        most = [C * max(self.heaviest[c] for c in side) for side in (part.minus, part.plus)]
        return bool(min(most) > formulations.NEGLIGIBLE and max(most) < math.inf)

    def tasks(self, parts: tuple[Sides, ...], costs: list[float]) -> small.Joined:
        """The problems of some machines."""
        shape = (_kept_outline if len(parts) <= _FEW else _outline)(tuple(self.sizes), parts)
        C: Any = costs[0]
        if len(parts) > 1 and any(cost != C for cost in costs):
            C = np.array(costs).repeat(shape.lengths)
        if self.weights is not None:
            C = C * self.weights.take(shape.qp.point)
        return shape.several._replace(qp=shape.qp._replace(lower=C * shape.qp.lower, upper=C * shape.qp.upper))


class _Outline(NamedTuple):
    """The problems of machines between classes of these sizes, of costs that are one; and how many variables each has."""

    several: small.Joined
    lengths: IntArray

    @property
    def qp(self) -> DualQP:
        """All of them."""
        return self.several.qp


def _outline(sizes: tuple[int, ...], parts: tuple[Sides, ...]) -> _Outline:
    edges, spans, signs, first_span = [0, *itertools.accumulate(sizes)], [], [], [0]
    for part in parts:
        for c in sorted(part.minus + part.plus):
            spans.append((edges[c], edges[c + 1]))
            signs.append(1.0 if c in part.plus else -1.0)
        first_span.append(len(spans))
    lengths, point = [b - a for a, b in spans], np.concatenate([np.arange(a, b) for a, b in spans])
    first = np.array([0, *itertools.accumulate(lengths)])[first_span]
    signed = np.array(signs).repeat(lengths)
    zero = np.zeros(len(point))
    qp = DualQP(signed, np.minimum(signed, 0.0), np.maximum(signed, 0.0), zero, point, True)
    several = small.Joined(qp, first, np.array(spans), np.array(first_span), np.zeros(len(parts)))
    return _Outline(several, np.diff(first))


_kept_outline = functools.lru_cache(maxsize=8)(_outline)


class _Some:
    """Tasks over a matrix that have been solved together. Each becomes a machine when somebody asks for it."""

    def __init__(self, over: OverMatrix, parts: tuple[Sides, ...], costs: list[float], nus: list[float | None]) -> None:
        begin, run = time.perf_counter(), over.run
        self.study, self.run, self.X, self.order = over.study, run, over.X, over.order
        self.parts, self.nus, self.several = parts, nus, over.tasks(parts, costs)
        few = self.X is not None and self.X.shape[1] <= auto.MOST_FEATURES
        hasty = few and nus[0] is None and over.study.spec.kernel.kind == KernelKind.LINEAR
        patience = small.patience_of(auto.hasty(run.max_iter, _DEARER) if hasty else run.max_iter)
        if nus[0] is None:
            batch = small.Batch(over.gram, self.several, np.zeros(len(self.several.qp.c)))
            batch.solve(run.tol, run.n_threads, patience)
            self.found = list(zip(costs, batch.outcomes(run.tol), strict=True))
            self.said: list[str | None] = [None] * len(parts)
        else:
            shares = [float(nu or 0.0) for nu in nus]
            with_nu = small.with_nu(over.gram, self.several, shares, run.tol, run.n_threads, patience)
            self.found = [(0.0, None) if one is None else (1.0 / one[0], one[1]) for one in with_nu]
            self.said = [self._reach(k, nu, over) for k, nu in enumerate(shares)]
        self.seconds = (time.perf_counter() - begin) / len(parts)

    def _reach(self, k: int, nu: float, over: OverMatrix) -> str | None:
        """What there is to say of a nu that could not be had."""
        C, found = self.found[k]
        if found is None:
            return None
        mass = sum(
            float(over.sizes[c] if over.weights is None else over.weights[over.edges[c] : over.edges[c + 1]].sum())
            for c in self.parts[k].minus + self.parts[k].plus
        )
        return out_of_reach(nu, float(np.abs(found.beta).sum()) / (C * mass), C)

    def machines(self) -> list[Pending | None]:
        """Those that have met the tolerance, and of whose answer there is nothing else to say."""
        out: list[Pending | None] = []
        for k, (_, found) in enumerate(self.found):
            pending = None
            if found is not None and found.quiet(LARGE_GAP):
                pending = Pending(self, k, found.n_iter, self.said[k])
            out.append(pending)
        if self.X is None:  # the rows of X may be others later
            self.made = {k: self.solution(k) for k, one in enumerate(out) if one is not None}
        return out

    def solution(self, k: int) -> Solution:
        """A machine."""
        if self.X is None and k in self.__dict__.get("made", ()):
            return copy.copy(self.made[k])
        C, found = self.found[k]
        assert found is not None
        point = self.several.qp.point[self.several.first[k] : self.several.first[k + 1]]
        how = (self.parts[k], C, self.run, "small", self.order, found, self.seconds, self.nus[k], self.X, point)
        return _made(self.study, *how)


class NearMargins:
    """Machines between classes, each in a few compiled calls, over points that are packed once and in memory for one."""

    def __init__(self, study: Common, tiles: DenseTiles, K: KernelMatrix, run: Run) -> None:
        self.study, self.tiles, self.run = study, tiles, run
        self.classes = _near.Classes(K, tiles, study.codes, study.classes.size, study.weights)

    def machines(
        self, which: Division, costs: list[Any], nus: list[Any], control: Control
    ) -> list[Pending | Solution | None]:
        """As `OverMatrix.machines`; those of a thread one after the other."""
        out: list[Pending | Solution | None] = [None] * len(costs)
        costs = [border.cost(C) if nu is None else np.inf for C, nu in zip(costs, nus, strict=True)]

        def run(first: int, last: int) -> None:
            room = _near.Room(self.classes, self.run.cache_bytes)
            for k in range(first, last):
                if control.reason() is None and costs[k] < np.inf:
                    out[k] = self._machine(room, which.parts[k], costs[k])

        with control, np.errstate(all="ignore"):
            try:
                split(run, len(costs), np.inf, min(self.run.n_threads, len(costs)))
            finally:
                self.tiles.release()
        return out

    def _machine(self, room: _near.Room, part: Sides, C: float) -> Solution | None:
        begin = time.perf_counter()
        machine = room.solve(part.minus, part.plus, C, self.run.tol)
        if machine is None:
            return None
        support, found = machine
        if not found.quiet(LARGE_GAP) or abs(found.excess) > small.DRIFT * math.sqrt(np.dot(found.beta, found.beta)):
            return None
        return _made(self.study, part, C, self.run, "block", support, found, time.perf_counter() - begin)


def pair_of(study: Common, part: Sides) -> NDArray[Any]:
    """The labels of a pair of classes."""
    return np.asarray(study.classes[[part.minus[0], part.plus[0]]])


def with_factors(terms: Terms, study: Common, part: Sides) -> Terms:
    """The terms of a pair, with the weights of its classes."""
    if study.factors is None:
        return terms
    return terms._replace(factors=(float(study.factors[part.minus[0]]), float(study.factors[part.plus[0]])))

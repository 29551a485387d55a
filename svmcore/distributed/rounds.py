"""The master of a kernel machine over parts: rounds over a large working set, and the certificate.

A round takes the variables that violate, those that are free and a guard band of those nearest to violating, solves for their
best change while all others stay, and sends the rows that changed to all parts. Bounded variables are known to their parts
alone. While far more variables violate than a working set holds, several working sets are solved side by side as if the
Hessian were as many times larger, which makes the sum of their steps a descent step, whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control, PartControl
from svmcore._errors import InputError
from svmcore._types import DualQP, FloatArray, IntArray, KernelKind, Status
from svmcore.distributed import scan
from svmcore.distributed.answer import Round
from svmcore.distributed.engine import Halted
from svmcore.distributed.scan import Near, Survey
from svmcore.distributed.setup import Setup
from svmcore.distributed.sums import COUNT, Standing, Sums, bias_of, joined, standing
from svmcore.kernel.points import is_sparse, stacked
from svmcore.kernel.rough import exponential_error
from svmcore.kernel.table import is_positive
from svmcore.problem import measures

START_SHARE = 4  # the start of a part is solved with so many times its costs, or as many as there are parts
# A working set has at least LEAST_SET variables, one in SET_SHARE of all, and SET_FREE times as many as are free. It has at
# most MOST_SET, unless the user says another number.
LEAST_SET, SET_SHARE, SET_FREE = 4096, 16, 2.5
MOST_SET = 40_000
AT_ONCE = 1 << 14  # rows, of so few features that all of them are a working set, whatever they cost
# Groups are solved side by side where there are violators for CROWD working sets: at most MOST_GROUPS groups.
CROWD, MOST_GROUPS = 1.5, 8
# A working set is solved to the share INNER of the violation, or to the share INNER_TOL of the tolerance.
INNER, INNER_TOL = 0.1, 0.5
# All parts together offer CANDIDATES times as many variables as a working set has, and each part at least LEAST_CANDIDATES.
CANDIDATES, LEAST_CANDIDATES = 3, 1024
# After PATIENCE rounds in which the violation has not halved, the working set grows by the factor GROWTH. After IDLE such
# rounds the run is given up.
PATIENCE, GROWTH = 5, 2.0
IDLE = 40
BALANCE = 1e-9  # share of sum |beta| by which the equality may be missed in a checkpoint
RISE = 1e-7  # share of the objective by which rounding may lower it
ROUNDING = 2e-7  # typical error of float32 products, per unit of |beta|
ROUNDING_64 = 1e-15  # typical error of float64 products, per unit of sum |beta|
CLOSE = 20.0  # violations over that error from which float64 products are worth it
CROWDED = 0.5  # share of variables that could decide from which all are computed again
CHEAP = 2e9  # features of kernel values that the exact certificate may cost in any case


class Whereabouts(NamedTuple):
    """Where all parts stand, and what they have said of it together."""

    states: list[Any]
    sums: Sums
    near: Near
    at: Standing


class Rounds:
    """One fit."""

    def __init__(self, problem: Setup) -> None:
        self.problem, self.engine, self.task = problem, problem.engine, problem.task
        self.control: Control = problem.control
        self.linear = self.task.kernel.kind == KernelKind.LINEAR
        few = self.linear and self.task.n_features <= scan.MOST_FEATURES and problem.working_set is None
        self.at_once = few and problem.whole.rows <= AT_ONCE
        self.exact = not scan.is_single(self.task)
        self.convex = is_positive(self.task.kernel)  # else the steps of groups may add up to more than they promise
        self.bent = False  # a step has met negative curvature
        self.moved = self.moved_single = 0.0  # sum of |coefficients| that went into the fields, and those by float32
        self.seen: IntArray = np.empty(0, np.int64)  # names of rows that the master has asked for
        self.X: Any = None  # and these
        self.rounds: list[Round] = []
        self.rows_moved = self.bytes_up = self.bytes_down = 0
        self.previous: IntArray = np.empty(0, np.int64)
        self.growth = 1.0
        self.crowded = True  # far more variables may violate than a working set holds
        self.first_round = 0
        self.parts: list[Any] = []
        self.stand: Any = None  # `Whereabouts`, as soon as there is a point

    # ---- the start ---------------------------------------------------------------------------------------------------

    def run(self, begin: Callable[[], None]) -> Status:
        """Rounds from a beginning until the tolerance is met or nothing helps; where it stands is in `stand`."""
        self.engine.poll = lambda: self.control.reason() is not None
        try:
            begin()
            return self.go_on()
        except Halted:
            self.engine.poll = lambda: False
            if self.stand is None:  # a linear machine, and one beside those of other classes, is zero then
                if not self.problem.begun and not self.linear:
                    self.control.demand()
                self.begin(zero=True)
            return self.control.reason() or Status.INTERRUPTED
        finally:
            self.engine.poll = lambda: False

    def begin(self, *, zero: bool = False) -> None:
        """Load the parts and let each solve itself, or none with `zero`; or take the point of a checkpoint."""
        engine, problem, threads = self.engine, self.problem, self.engine.n_threads
        P = len(problem.sources)
        self.parts = engine.run(scan.load, [(k, source, self.task) for k, source in enumerate(problem.sources)])
        stored = problem.ledger.read()
        if stored is None or "round" not in stored:  # nothing, or where bands of a linear machine stood
            limit = self.control.time_limit
            left = None if limit is None else max(limit - self.control.seconds, 0.0)
            share = 0.0 if zero or self.at_once or not self.convex else float(min(P, START_SHARE))
            betas = engine.run(scan.start, [(part, share, problem.tol, left, threads) for part in self.parts])
        else:
            betas = engine.run(scan.unpack, [(stored[f"part_{k}"],) for k in range(P)])
            found = engine.total(engine.run(scan.balance, self.pairs(betas)))
            outside, total, size = found.totals.tolist()
            if outside or (self.task.equality and abs(total) > BALANCE * size):
                raise InputError(
                    f"checkpoint={problem.ledger.path!r} holds a point that this problem does not allow; "
                    "delete the file, or name another"
                )
            self.first_round = int(stored["round"])
        self.sum_up(betas, exact=self.exact)

    def sum_up(self, betas: list[Any], *, exact: bool) -> None:
        """Compute all fields from all supports: the one exchange of everybody with everybody."""
        engine = self.engine
        words = (exact, engine.n_threads, *engine.run(scan.support, self.pairs(betas)))
        states = engine.run(scan.begin, [(*pair, *words) for pair in self.pairs(betas)])
        first = self.survey(states, 0.0, 1, self.previous)
        size = float(first.sums.totals[COUNT])
        self.exact, self.moved, self.moved_single = exact, size, 0.0 if exact else size
        self.rows_moved += first.at.support
        self.stand = self.look(states, bias_of(first.sums, self.task.equality))

    def pairs(self, states: list[Any]) -> list[tuple[Any, Any]]:
        """Parts with their states."""
        return list(zip(self.parts, states, strict=True))

    def survey(self, states: list[Any], bias: float, most: int, also: IntArray) -> Whereabouts:
        """What all parts say of their states. Each is told which of its own variables are asked for by name."""
        owner = scan.owner_of(also)
        tasks = [(*pair, bias, most, also[owner == k]) for k, pair in enumerate(self.pairs(states))]
        found: list[Survey] = self.engine.gather(self.engine.run(scan.survey, tasks))
        near = Near(*(np.concatenate(arrays) for arrays in zip(*(part.near for part in found), strict=True)))
        sums = joined([part.sums for part in found])
        return Whereabouts(states, sums, near, standing(sums, bias, self.task.equality))

    def look(self, states: list[Any], bias: float) -> Whereabouts:
        """Ask all parts how they stand."""
        offers = MOST_GROUPS if self.crowded else CANDIDATES
        most = max(LEAST_CANDIDATES, offers * self.size(0) // len(self.parts))
        found = self.survey(states, bias, most, self.previous)
        self.bytes_up += sum(array.nbytes for array in found.near)
        return found._replace(at=found.at._replace(bias=bias_of(found.sums, self.task.equality)))

    def size(self, free: int) -> int:
        """Variables of the next working set. At first few of the free ones stay free: they are those of all starts."""
        n = self.problem.whole.rows
        if self.problem.working_set is not None:
            return int(self.growth * self.problem.working_set)
        if self.at_once:
            return 2 * n  # variables
        wanted = max(LEAST_SET, n // SET_SHARE, int(SET_FREE * free) if self.rounds else 0)
        return int(self.growth * min(wanted, MOST_SET))

    # ---- rounds ------------------------------------------------------------------------------------------------------

    def go_on(self) -> Status:
        """Round after round."""
        best, since, lowest = np.inf, 0, -np.inf
        while True:
            at = self.stand.at
            self.problem.say(self.first_round + len(self.rounds), "", at)
            if at.violation <= self.goal():
                return Status.CONVERGED
            if self.control.check(len(self.rounds), at.violation, -at.dual) is not None:
                raise Halted
            since = 0 if at.violation < 0.5 * best else since + 1
            best = min(best, at.violation)
            fell = at.dual < lowest - RISE * abs(lowest)
            lowest = max(lowest, at.dual)
            if not self.exact and (fell or self.blurred() or since >= IDLE // 2):
                self.refresh()
                best, since, lowest = np.inf, 0, -np.inf
                continue
            if since >= IDLE or (fell and self.exact):
                return Status.PRECISION if fell else Status.LIMITED
            if since and since % PATIENCE == 0:
                self.growth *= GROWTH
            self.round()

    def goal(self) -> float:
        """A violation by these fields at which the exact one is likely to be below the tolerance."""
        tol = self.problem.tol
        return tol if self.exact else max(INNER_TOL * tol, tol - 2.0 * self.rounding())

    def rounding(self) -> float:
        """How far float32 products have moved the residual, typically at most."""
        squares, diagonal = self.stand.sums.totals[COUNT + 1], self.stand.sums.high[2]
        return 0.0 if self.exact else float(ROUNDING * diagonal * np.sqrt(squares))

    def blurred(self) -> bool:
        """Whether float32 products hide what is left to do."""
        noise, tol = self.rounding(), self.problem.tol
        return noise > INNER_TOL * tol and bool(self.stand.at.violation <= max(tol, CLOSE * noise))

    def refresh(self) -> None:
        """All fields afresh in float64."""
        self.sum_up(self.engine.run(attrgetter("beta"), [(state,) for state in self.stand.states]), exact=True)

    def round(self) -> None:
        """Choose, fetch, correct, tell everybody."""
        engine, at, near = self.engine, self.stand.at, self.stand.near
        size = self.size(at.free)
        chosen, owner, groups = choose(near, at.bias, size, self.previous, len(self.rounds) if self.convex else None)
        self.crowded = groups > 1
        near = Near(*(array[chosen] for array in near))
        delta = self.correct(near, at.bias, owner, groups, at.violation)
        value = near.beta + delta
        value = np.where(delta == near.upper - near.beta, near.upper, value)
        value = np.where(delta == near.lower - near.beta, near.lower, value)
        changed = np.flatnonzero(value != near.beta)
        rows, which = np.unique(near.rows[changed], return_inverse=True)
        step = np.bincount(which, weights=value[changed] - near.beta[changed], minlength=len(rows)).astype(np.float64)
        told = step, near.ids[changed], value[changed]
        self.bytes_down += rows.nbytes + sum(array.nbytes for array in told)
        change = engine.run(scan.changed, [(*told, self.asked_for(rows))])[0] if len(rows) else None
        self.previous = near.ids
        words = (change, self.exact, engine.n_threads)
        states = engine.run(scan.advance, [(*pair, *words) for pair in self.pairs(self.stand.states)])
        size_moved = float(np.abs(step).sum())
        self.moved += size_moved
        self.moved_single += 0.0 if self.exact else size_moved
        self.rows_moved += len(rows)
        self.stand = self.look(states, at.bias)
        self.rounds.append(Round(self.problem.seconds, at.violation, at.free, at.dual, at.gap, len(rows), groups))
        self.keep()

    def asked_for(self, names: IntArray) -> list[Any]:
        """Handles of rows, in blocks by part."""
        owner = scan.owner_of(names)
        return self.engine.run(scan.fetch, [(self.parts[k], names[owner == k]) for k in np.unique(owner).tolist()])

    def fetched(self, names: IntArray) -> Any:
        """Rows; those that the master has not seen come from their parts."""
        new = np.setdiff1d(names, self.seen)
        if len(new):
            blocks = self.engine.gather(self.asked_for(new))
            self.bytes_up += sum(block.data.nbytes if is_sparse(block) else block.nbytes for block in blocks)
            rows = stacked(blocks if self.X is None else [self.X, *blocks])
            seen = np.concatenate([self.seen, new])
            order = np.argsort(seen, kind="stable")
            self.X, self.seen = rows[order], seen[order]
        return self.X[np.searchsorted(self.seen, names)]

    def correct(self, near: Near, bias: float, owner: IntArray, groups: int, violation: float) -> FloatArray:
        """The best change of each group, `groups` times as careful."""
        tol = max(INNER_TOL * self.problem.tol, 0.0 if self.at_once else INNER * violation) / groups
        names, where = np.unique(near.rows, return_inverse=True)
        tasks = []
        for group in range(groups):
            own = np.flatnonzero(owner == group)
            rows, point = np.unique(where[own], return_inverse=True)
            qp = DualQP(
                (near.v[own] - bias) / groups, near.lower[own] - near.beta[own], near.upper[own] - near.beta[own],
                near.diag[own], point.astype(np.int64), self.task.equality,
            )  # fmt: skip
            tasks.append((rows, self.task.kernel, qp, tol, self.engine.n_threads))
        delta: FloatArray = np.zeros(len(near.ids))
        if groups == 1:
            control = PartControl(self.control, f"round {len(self.rounds)}, {len(owner)} variables")
            found = [scan.correct(self.fetched(names), *tasks[0], control)]
            if self.control.reason() is not None:
                raise Halted
        else:
            X = self.engine.run(stacked, [(self.asked_for(names),)])[0]
            found = self.engine.gather(self.engine.run(scan.correct, [(X, *task) for task in tasks]))
        for group, (step, bent) in enumerate(found):
            delta[owner == group] = step
            self.bent |= bent
        return delta

    def keep(self) -> None:
        """Write the checkpoint."""
        if not self.problem.ledger:
            return
        packed = self.engine.gather(self.engine.run(scan.pack, [(state,) for state in self.stand.states]))
        points = {f"part_{k}": point for k, point in enumerate(packed)}
        self.problem.ledger.write(round=self.first_round + len(self.rounds), **points)


def choose(near: Near, bias: float, size: int, previous: IntArray, seed: int | None) -> tuple[IntArray, IntArray, int]:
    """The next working set: places in `near`, the group of each, the number of groups (one, without a `seed`)."""
    up, down = near.beta < near.upper, near.beta > near.lower
    pull = np.maximum(np.where(up, near.v - bias, -np.inf), np.where(down, bias - near.v, -np.inf))
    violating = pull > 0.0
    count = int(np.count_nonzero(violating))
    if len(pull) <= size:
        chosen = np.arange(len(pull))
    elif count > CROWD * size and seed is not None:
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.permutation(np.flatnonzero(violating))[: MOST_GROUPS * size])
        groups = -(-len(chosen) // size)
        return chosen, rng.permutation(len(chosen)) % groups, groups
    elif count <= size:  # all that violate or are free, and the guard band
        key = np.where(up & down, np.inf, pull)
        chosen = np.sort(np.argsort(-key, kind="stable")[:size])
    else:
        chosen = _worst(pull, near, bias, size, previous)
    return chosen, np.zeros(len(chosen), np.int64), 1


def _worst(pull: FloatArray, near: Near, bias: float, size: int, previous: IntArray) -> IntArray:
    """Half of it free variables of the last working set, the others the worst violators of both kinds."""
    up, down = near.beta < near.upper, near.beta > near.lower
    free = np.flatnonzero(up & down & np.isin(near.ids, previous))
    taken = np.zeros(len(pull), bool)
    taken[free[np.argsort(-pull[free], kind="stable")][: size // 2]] = True
    for want, share in ((up & (near.v > bias), 2), (down & (near.v < bias), 1)):
        open_ = np.flatnonzero(want & ~taken)
        room = (size - int(np.count_nonzero(taken))) // share
        taken[open_[np.argsort(-pull[open_], kind="stable")][:room]] = True
    return np.flatnonzero(taken)


# ---- the certificate -------------------------------------------------------------------------------------------------


class Proof(NamedTuple):
    """What is known of a point: violation and bias exactly unless `estimated`, the sums to within `error` sum |beta|."""

    at: Standing
    exact: bool
    estimated: bool
    error: float
    decisive: int


def error_of(fit: Rounds) -> float:
    """A bound on the error of every entry of the fields."""
    _, largest, diagonal = fit.stand.sums.high.tolist()
    double = ROUNDING_64 * diagonal * (fit.moved + 1.0)
    single = exponential_error(fit.task.n_features, largest) * fit.moved_single if fit.moved_single else 0.0
    return float(double + single)


def prove(fit: Rounds, *, whole: bool, brief: bool) -> Proof:
    """The certificate of where a fit stands.

    `whole`: all fields are computed again in float64. `brief`: somebody waits; as much as costs little.
    """
    engine, n = fit.engine, fit.problem.whole.rows
    work = float(n) * fit.stand.at.support * max(fit.task.n_features, 8)
    if whole or (work <= CHEAP and not fit.exact):
        fit.refresh()
        whole = True
    stand, error = fit.stand, error_of(fit)
    top, bottom = float(stand.sums.high[0]) - error, float(stand.sums.low[0]) + error
    violation, bias, estimated, count = stand.at.violation, stand.at.bias, stand.at.support > 0, 0
    if np.isfinite(top) and np.isfinite(bottom):
        estimated = True
        handles = engine.run(scan.decisive, [(*pair, error, top, bottom) for pair in fit.pairs(stand.states)])
        found: list[scan.Decisive] = engine.gather(
            engine.run(methodcaller("_replace", X=None), [(handle,) for handle in handles])
        )
        count = sum(len(part.beta) for part in found)
        if count > CROWDED * n and not fit.exact and not brief:
            fit.refresh()
            return prove(fit, whole=False, brief=brief)
        if not (brief and count * work / n > CHEAP):
            violation, bias = _decided(fit, found, handles)
            estimated = False
    at = fit.survey(stand.states, bias, 0, fit.previous[:0]).at
    return Proof(at._replace(violation=violation), whole or fit.exact, estimated, error, count)


def _decided(fit: Rounds, found: list[scan.Decisive], handles: list[Any]) -> tuple[float, float]:
    """Violation and bias from the exact residuals of the variables that decide. Their rows go from part to part."""
    engine = fit.engine
    c, beta, lower, upper, diag = (np.concatenate(arrays) for arrays in list(zip(*found, strict=True))[1:])
    X = engine.run(scan.rows_in, [(handles,)])[0]
    tasks = [(*pair, X, engine.n_threads) for pair in fit.pairs(fit.stand.states)]
    product = engine.total(engine.run(scan.share_of_product, tasks)).totals
    qp = DualQP(c, lower, upper, diag, np.arange(len(c)), fit.task.equality)
    v = measures.residual(qp, beta, product)
    return measures.violation(qp, beta, v), measures.bias(qp, beta, v)

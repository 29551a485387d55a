"""The master of a linear machine: Mehrotra's steps from sums over the parts, then the crossover to exact bounds.

The arithmetic is that of `solvers/interior`, up to the order of sums. Rows never travel, but for those of free variables at
the very end (a few hundred of millions). Squared losses have no bounds to cross over to: there Newton's steps on (w, bias)
end the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from svmcore._types import NONZERO, DualQP, FloatArray, Status
from svmcore.distributed.engine import Crew, Halted
from svmcore.distributed.stages import WITHOUT_A_PASS, Moments, PartMeasures, Worst
from svmcore.solvers import _ipm_jit as ipm
from svmcore.solvers._settle import settle
from svmcore.solvers.interior import (
    CLOSENESS,
    CROSSOVERS,
    FAR,
    FEASIBLE,
    MAX_STEPS,
    NEWTON_STEPS,
    ROUNDS,
    SHORTER,
    SMALLEST_SHARE,
    STEEPEST,
    STUCK,
)

_POLISH = 30  # Newton's steps at the end of a squared loss
NEAR = 1.0  # error of the margins, in units of |c|, from which a run that goes on sets out
_STILL = 1e-12  # relative change of (w, bias) at which they end


class ExactPoint(NamedTuple):
    """An exact dual point and its certificate, both where the parts are; w and bias are those of centred columns."""

    w: FloatArray
    bias: float
    violation: float
    dual: float
    gap: float
    free: int
    support: int


class Rest(NamedTuple):
    """(Z' beta, sum beta) of variables that stay where they are, and that no part of the crew holds."""

    w: Any
    total: float


class Stand(NamedTuple):
    """All that it takes to set out again from here: what a checkpoint of a linear machine holds."""

    w: FloatArray
    bias: float
    mu: float
    steps: int


def _sum(parts: list[Moments]) -> Moments:
    """Sums in the order of the parts."""
    total = parts[0]
    for part in parts[1:]:
        total = Moments(total.gram + part.gram, total.columns + part.columns, total.totals + part.totals)
    return total


class Linear:
    """One fit. `crew` holds the parts; `log` is called with every step; `stop` says whether to end."""

    def __init__(
        self, crew: Crew, equality: bool, tol: float, log: Callable[[int, float, float], Any], rest: Rest | None = None
    ) -> None:
        self.crew, self.equality, self.tol, self.log = crew, equality, tol, log
        self.rest = Rest(0.0, 0.0) if rest is None else rest
        self.syncs = self.passes = self.steps = self.crossovers = self.moved = self.bytes_up = 0
        self.stop: Callable[[], bool] = lambda: False

    def ask(self, name: str, *args: Any) -> list[Any]:
        """One stage of all parts."""
        return self._counted(name, self.crew.all(name, *args))

    def each(self, name: str, args: list[tuple[Any, ...]]) -> list[Any]:
        """One stage of all parts, each with arguments of its own."""
        return self._counted(name, self.crew.each(name, args))

    def _counted(self, name: str, answers: list[Any]) -> list[Any]:
        self.syncs += 1
        self.passes += name not in WITHOUT_A_PASS
        self.bytes_up += sum(map(_bytes, answers))
        return answers

    # ---- the start ---------------------------------------------------------------------------------------------------

    def begin(self, stand: Stand | None) -> None:
        """From a ridge fit, or from where a checkpoint stands, to the first interior point."""
        sizes = self.ask("sizes")
        self.m = sum(size[0] for size in sizes)
        energy, self.count = (float(sum(size[k] for size in sizes)) for k in (2, 3))
        self.unit = float(sum(size[1] for size in sizes)) / max(self.m, 1) or 1.0
        self.squared = min(size[4] for size in sizes) > 0.0
        self.least = SMALLEST_SHARE * sum(self.ask("begin", self.unit, energy / max(self.m, 1) + NONZERO)) / self.m
        if stand is None:
            fit = _sum(self.ask("ridge", STEEPEST * energy))
            w, bias = self._newton(fit.gram, fit.columns[0], fit.totals[0], fit.columns[1], fit.totals[1])
            mu = sum(self.ask("force", w, bias)) / self.m
        else:
            w, bias, mu, self.steps = stand
            pull = sum(self.ask("force", w, bias)) / self.m
            mu = mu or pull
        self._centre(w, bias, mu, FAR if stand is None else NEAR)

    def _newton(
        self, gram: FloatArray, columns: FloatArray, total: float, right: FloatArray, surplus: float
    ) -> tuple[FloatArray, float]:
        """The step of (w, bias); none where its matrix is singular to rounding."""
        d, bordered = len(right), int(self.equality)
        system = np.zeros((d + bordered, d + bordered))
        system[:d, :d] = gram
        system.flat[: d * (d + bordered) : d + bordered + 1] += 1.0
        system[d:, :d] = columns
        system[d:, d:] = total
        solution, failed = lapack.dposv(system, np.append(right, [surplus] * bordered), lower=1)[1:]
        if failed:
            return np.zeros(d), 0.0
        return solution[:d], float(solution[d:].sum())

    def _wrong(self, w: FloatArray, mu: float) -> tuple[FloatArray, float]:
        found = _sum(self.ask("centred", mu))
        return found.columns[0] + self.rest.w - w, float(found.totals[0]) + self.rest.total

    def _centre(self, w: FloatArray, bias: float, mu: float, far: float) -> None:
        """Newton steps on the smooth primal of the barrier while what is wrong with w is large; then the first point."""
        wrong, surplus = self._wrong(w, mu)
        for _ in range(NEWTON_STEPS):
            if not max(self.ask("farthest", wrong)) > far * self.unit:
                break
            found = _sum(self.ask("newton", mu))
            dw, db = self._newton(found.gram, found.columns[0], found.totals[0], wrong, surplus)
            slope, share = float(dw @ wrong) + db * surplus, 1.0
            before = w, bias
            for _ in range(SHORTER):
                w, bias = before[0] + share * dw, before[1] + share * db
                self.ask("force", w, bias)
                wrong, surplus = self._wrong(w, mu)
                if float(dw @ wrong) + db * surplus >= -0.3 * slope:
                    break
                share *= 0.4
        self.w, self.bias = wrong + w, bias
        self._take(self.ask("bounds", self.w, bias, mu))

    # ---- a step ------------------------------------------------------------------------------------------------------

    def _take(self, answers: list[tuple[ipm.Arrival, Moments]]) -> None:
        """What the parts say of the point they have come to."""
        self.system = _sum([moments for _, moments in answers])
        at = [progress for progress, _ in answers]
        self.excess = sum(part.excess for part in at) + self.rest.total
        self.size = sum(part.size for part in at)
        self.mu = sum(part.complementarity for part in at) / self.count
        self.dual_residual = max(part.dual for part in at)

    def step(self) -> float:
        """One predictor-corrector step: its length, or 0 where the system cannot be factorised."""
        d = len(self.system.gram)
        factor, failed = lapack.dpotrf(self.system.gram + np.eye(d), lower=1)
        if failed:
            return 0.0
        columns, totals = self.system.columns, self.system.totals

        def solved(right: FloatArray) -> FloatArray:
            return np.asarray(lapack.dpotrs(factor, right, lower=1)[0])

        h = np.stack([solved(columns[0]), solved(columns[1])])
        unit = max(float(totals[0] - columns[0] @ h[0]), NONZERO)
        before = float(totals[1] - columns[0] @ h[1] + self.excess) / unit if self.equality else 0.0
        answers = self.ask("predict", h, before, self.bias)
        least = min(answer[0] for answer in answers)
        curve = sum(answer[1] for answer in answers)
        pair = _sum([answer[2] for answer in answers])
        after = (1.0 - least) * self.mu + least * least * curve / self.count
        mu = self.mu * min((after / self.mu) ** 3, 1.0)
        last = solved(pair.columns[0] + mu * pair.columns[1])
        free = float(pair.totals[0] + mu * pair.totals[1] - columns[0] @ last) + self.excess
        db = free / unit if self.equality else 0.0
        reach: float = min(self.ask("correct", last, before, db, mu, self.bias))
        length = min(1.0, ipm.BACK_OFF * reach)
        self.bias += length * db
        self.w = self.w + length * (last - db * h[0])
        self._take(self.ask("advance", length, db, self.bias))
        self.steps += 1
        return length

    def run(self, stand: Stand | None, keep: Callable[[Stand], Any]) -> tuple[ExactPoint, Status]:
        """Solve: the best exact point and how it ended. `keep` is given what a checkpoint needs after every step."""
        self.begin(stand)
        barrier, length = CLOSENESS * self.tol, 1.0
        best: ExactPoint | None = None
        status: Status | None = None
        while status is None:
            if not np.isfinite(self.mu):
                return best or self.inside(), Status.PRECISION
            stuck = length < STUCK or self.steps >= MAX_STEPS
            scale = max(self.size / self.m, self.least)
            if (self.mu <= barrier * scale * self.unit and self.dual_residual <= 0.05 * self.tol) or stuck:
                found = self.polish() if self.squared else self.crossover()
                self.crossovers += 1
                if best is None or found.violation < best.violation:
                    best = found
                if found.violation <= self.tol:
                    return found, Status.CONVERGED
                if stuck or self.crossovers >= CROSSOVERS:
                    status = Status.PRECISION
                barrier *= 0.1
                continue
            if self.stop():
                raise Halted
            length = self.step()
            self.log(self.steps, self.mu, self.dual_residual)
            keep(Stand(self.w, self.bias, self.mu, self.steps))
        assert best is not None
        return best, status

    # ---- exact points ------------------------------------------------------------------------------------------------

    def measure(self, w: FloatArray, bias: float | None = None) -> tuple[ExactPoint, list[PartMeasures]]:
        """The certificate of the exact point the parts hold; at the mean residual of the free variables by default."""
        most = max(1, len(w) // 4)
        if bias is None and self.equality:
            answers = self.ask("measure", w, 0.0, 0)
            bias = _bias(answers)
        bias = bias if self.equality and bias is not None else 0.0
        answers = self.ask("measure", w, bias, most)
        return found_of(w, bias, answers, self.equality), answers

    def inside(self) -> ExactPoint:
        """The interior point itself, with sum(beta) = 0 as far as it has the room: what a run that is stopped has."""
        sums = np.sum(self.ask("inside"), axis=0)
        sums[0] += self.rest.total
        room = sums[1] if sums[0] > 0.0 else sums[2]
        if self.equality and room > abs(sums[0]):
            self.ask("spread", float(sums[0] / room))
        return self.exact()[0]

    def exact(self) -> tuple[ExactPoint, list[PartMeasures]]:
        """The certificate of the exact point; that of one which misses the equality row is worth nothing."""
        at = _sum(self.ask("weight"))
        found, answers = self.measure(at.columns[0] + self.rest.w)
        off = self.equality and abs(at.totals[0] + self.rest.total) > FEASIBLE * (1.0 + at.totals[1])
        return (found._replace(violation=np.inf, gap=np.inf) if off else found), answers

    def polish(self, most: int = _POLISH) -> ExactPoint:
        """Squared losses: Newton's steps on (w, bias) with the variables as these want them."""
        w, bias = self.w, self.bias
        for _ in range(most):
            at = _sum(self.ask("respond", w, bias))
            wrong = at.columns[1] - w
            surplus = float(at.totals[1])
            dw, db = self._newton(at.gram, at.columns[0], float(at.totals[0]), wrong, surplus)
            size = 1.0 + float(np.abs(w).max(initial=0.0)) + abs(bias)
            w, bias = w + dw, bias + db
            if max(float(np.abs(dw).max(initial=0.0)), abs(db)) <= _STILL * size or self.stop():
                break
        at = _sum(self.ask("respond", w, bias))
        return self.measure(at.columns[1])[0]

    def _others(self, parts: list[Moments]) -> Moments:
        """Sums of all variables but those that the master holds."""
        found = _sum(parts)
        return found._replace(columns=found.columns + self.rest.w, totals=found.totals + self.rest.total)

    def crossover(self) -> ExactPoint:
        """Variables exactly at their bounds, the others settled at the master; the worst violators freed in turn."""
        answers = self.ask("classify", max(self.size / self.m, NONZERO))
        held = _Free([worst for worst, _ in answers], self.equality)
        rest = self._others([moments for _, moments in answers])
        held.spread(float(rest.totals[0]))
        best: ExactPoint | None = None
        for round_ in range(ROUNDS):
            self.crew.each("place", held.owners())
            found, answers = self.exact()
            best = found if best is None or found.violation < best.violation else best
            if found.violation <= self.tol or self.stop():
                break
            if round_:
                worst = _worst([answer.worst for answer in answers], max(1, len(found.w) // 4))
                if not sum(len(part.at) for part in worst):
                    break
                held.add(worst)
                self.crew.each("place", held.owners())
                rest = self._others(self.ask("bounded"))
            held.settle(rest, self.stop)
        self.moved += len(held.beta)
        assert best is not None
        if best is not found:
            self.crew.each("place", held.owners())
        return best


def _bytes(answer: Any) -> int:
    """How much a part has sent."""
    return sum(map(_bytes, answer)) if isinstance(answer, tuple) else int(getattr(answer, "nbytes", 8))


def found_of(w: FloatArray, bias: float, answers: list[PartMeasures], equality: bool) -> ExactPoint:
    """What the parts say together."""
    top, bottom = max(a.top for a in answers), min(a.bottom for a in answers)
    return ExactPoint(
        w, bias, max(top - bottom, 0.0) if equality else max(top, -bottom, 0.0), sum(a.dual for a in answers),
        sum(a.gap for a in answers), sum(a.free for a in answers), sum(a.support for a in answers),
    )  # fmt: skip


def _bias(answers: list[PartMeasures]) -> float:
    """The mean residual of the free variables; the midpoint of what is optimal where there are none."""
    free = sum(answer.free for answer in answers)
    if free:
        return sum(answer.free_sum for answer in answers) / free
    top, bottom = max(a.top for a in answers), min(a.bottom for a in answers)
    if np.isinf(top):
        return 0.0 if np.isinf(bottom) else bottom
    return top if np.isinf(bottom) else 0.5 * (top + bottom)


def _worst(parts: list[Worst], most: int) -> list[Worst]:
    """The worst of what the parts offer; equal ones in the order of the parts."""
    pull = np.concatenate([part.pull for part in parts])
    owner = np.repeat(np.arange(len(parts)), [len(part.pull) for part in parts])
    place = np.concatenate([np.arange(len(part.pull)) for part in parts])
    chosen = np.argsort(-pull, kind="stable")[:most]
    return [Worst(*(array[np.sort(place[chosen[owner[chosen] == k]])] for array in p)) for k, p in enumerate(parts)]


class _Free:
    """The variables that the master holds, with their rows."""

    def __init__(self, parts: list[Worst], equality: bool) -> None:
        self.equality = equality
        self.owner, self.at = np.empty(0, np.int64), np.empty(0, np.int64)
        self.count = len(parts)
        self.Z = np.empty((0, parts[0].rows.shape[1]))
        self.beta, self.c, self.lower, self.upper = (np.empty(0) for _ in range(4))
        self.inside = np.empty(0, bool)
        self.add(parts)

    def add(self, parts: list[Worst]) -> None:
        """Take over more of them."""
        sizes = [len(part.at) for part in parts]
        self.owner = np.concatenate([self.owner, np.repeat(np.arange(self.count), sizes)])
        for name, key in (
            ("at", "at"), ("Z", "rows"), ("beta", "beta"), ("c", "c"), ("lower", "lower"), ("upper", "upper"),
        ):  # fmt: skip
            setattr(self, name, np.concatenate([getattr(self, name), *(getattr(part, key) for part in parts)]))
        self.inside = np.append(self.inside, np.ones(sum(sizes), bool))

    def owners(self) -> list[tuple[Any, ...]]:
        """What to tell each part: places and values."""
        return [(self.at[self.owner == k], self.beta[self.owner == k]) for k in range(self.count)]

    def spread(self, rest: float) -> None:
        """Make the sum zero, if the variables have the room: each gives the same share of its own."""
        excess = rest + float(self.beta.sum())
        if not self.equality:
            return
        bound = self.lower if excess > 0.0 else self.upper
        room = np.abs(np.where(np.isfinite(bound), self.beta - bound, self.beta))
        total = float(room.sum())
        if total > abs(excess):
            self.beta = self.beta - excess / total * room

    def settle(self, rest: Moments, poll: Callable[[], bool]) -> None:
        """Solve for those that are inside; the others of them stay where they are."""
        free = np.flatnonzero(self.inside)
        fixed = np.flatnonzero(~self.inside)
        base = rest.columns[0] + self.Z[fixed].T @ self.beta[fixed]
        surplus = float(rest.totals[0]) + float(self.beta[fixed].sum())
        qp = DualQP(self.c, self.lower, self.upper, np.zeros(len(self.c)), np.arange(len(self.c)), self.equality)
        found = settle(qp.part(free), self.Z[free], self.beta[free], base, surplus, poll)
        self.beta[free] = found.beta
        self.inside[free] = found.inside

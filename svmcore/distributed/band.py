"""The master of a linear machine, first choice: rounds over a band of rows around the margin.

A row far from the margin has its variable at a bound and adds a fixed vector to Z' beta. The rows of a band around the margin
go to the master, which solves for them by an interior point in memory. Then one pass of all parts shows which of the others
ended on the wrong side, and is the certificate. The first band is a sample of everything, with costs as many times larger.
Where a band is still too full, a sample stands for it; its noise shrinks with the band. The loss of the fixed rows bounds
their true loss from below, so every exact round bounds the optimum; a step that does not pay is cut short.

Bands become thin where features are many, and useless where rows lie on a few points. Then the rounds of kernel machines
take over (`rounds`). Squared losses need the first sample alone: from there Newton's steps on (w, bias) end the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from svmcore._control import PartControl
from svmcore._types import NONZERO, DualQP, FloatArray, Status
from svmcore.distributed import stages
from svmcore.distributed.answer import Round
from svmcore.distributed.engine import Halted
from svmcore.distributed.setup import Setup
from svmcore.distributed.stages import BINS, Taken
from svmcore.distributed.sums import COUNT, UNKNOWN, Standing, Sums, bias_of, standing
from svmcore.problem import measures
from svmcore.solvers import interior
from svmcore.solvers._ipm_start import Beside
from svmcore.solvers.interior import FEASIBLE

# A band has at least LEAST variables, and SPREAD times the root of features times variables. Their rows hold at most
# MOST_NUMBERS numbers.
LEAST, SPREAD = 1 << 14, 16.0
MOST_NUMBERS = 1 << 24
NOISE = 2.0  # share of all variables that a sample leaves undecided, in units of the root of (features / its size)
THICK = 0.5  # share of all variables that the first sample may leave undecided
MOST_ROUNDS = 12
MOST_CUTS = 3  # steps in a row that are cut short
PAYS = 0.3  # share of what the model promised that a step must give
NEWTON_STEPS = 12  # so many steps of Newton for a squared loss
# A band is solved to the share INNER of the tolerance, and to INNER_MOST in units of the targets.
INNER, INNER_MOST = 0.1, 1e-5
ROUGH = 1e-2  # tolerance of a sample, in units of the targets
CLOSE = 1e-8  # relative gap at which a run ends; one that stands still may be larger
ROOM = 1e-6  # share of its boxes that a band must be away from having no room for the balance of the classes
DRIFT = 1e-9  # relative error of w by which sums may drift from one pass to the next
STILL = 1e-12  # relative change of (w, bias) at which Newton's steps end
_NO_PASS = (stages.census, stages.rooms, stages.heap, stages.slope, stages.move, stages.take)
_SEARCHES = 3  # so many searches along a line, each in the best bin of the one before


class Fruitless(Exception):
    """Rounds lead nowhere."""


class _Centre(NamedTuple):
    """Where the rounds stand: (w, bias), and there the primal objective and the largest residual."""

    w: FloatArray
    bias: float
    primal: float = np.inf
    largest: float = np.inf


class ExactPoint(NamedTuple):
    """An exact dual point and how good it is, both where the parts are; w and the bias are those of centred columns."""

    w: FloatArray
    at: Standing


class Bands:
    """Rounds over the parts of a problem. Where they do not lead to the end they raise `Fruitless`."""

    def __init__(self, problem: Setup) -> None:
        self.problem, self.engine, self.control = problem, problem.engine, problem.control
        self.equality = problem.task.equality
        firsts = np.cumsum([0, *(part.rows for part in problem.whole.parts)]).tolist()
        members = [(*each, problem.task) for each in zip(firsts, problem.sources, strict=False)]
        self.parts = self.engine.run(stages.member, members)
        self.states = self.engine.run(stages.state_of, [(part,) for part in self.parts])
        self.rounds: list[Round] = []
        self.rest = Beside(np.zeros(problem.task.n_features), 0.0)
        self.syncs = self.passes = self.steps = self.bytes_up = self.rows_up = 0
        self.gathered = 0  # rows that parts looked at outside of their passes

    def run(self, stored: dict[str, Any] | None) -> tuple[ExactPoint, Status]:
        """Rounds until an exact point meets the tolerance, from the start or from a checkpoint."""
        try:
            return self._run(stored), Status.CONVERGED
        except Halted:
            return self.inside(), self.control.reason() or Status.INTERRUPTED

    def _run(self, stored: dict[str, Any] | None) -> ExactPoint:
        census = self.total(stages.census)
        self.m, self.rising = int(census.totals[0]), int(census.totals[1])
        self.upper, self.d = float(census.totals[2]), len(census.columns)
        self.most = max(1, MOST_NUMBERS // max(self.d, 1))
        self.size = min(max(LEAST, int(SPREAD * np.sqrt(float(self.d) * self.m))), self.most)
        at, share = _Centre(np.zeros(self.d), 0.0), 1.0
        if stored is not None:
            bias, steps, share = stored["numbers"].tolist()
            at, self.steps = _Centre(stored["w"], bias), int(steps)
        if census.low[0] > 0.0:
            return self._smooth(at, stored is None)
        if self.m > self.size and NOISE * np.sqrt(self.d / self.size) > THICK:
            raise Fruitless(f"a sample of {self.size} rows says little of {self.d} features")
        if stored is not None:
            self._look(at, None)
            at = self._move(at, at, 1.0)
        return self._exact(at, share)

    def stop(self) -> bool:
        """Whether somebody asks to end."""
        return self.control.check(self.steps, np.nan, np.nan) is not None

    def keep(self, at: _Centre, share: float = 0.0) -> None:
        """Write the checkpoint: all that it takes to set out again from here, with a band of this share."""
        self.problem.ledger.write(w=at.w, numbers=np.array([at.bias, self.steps, share]))

    def _exact(self, at: _Centre, share: float) -> ExactPoint:
        """Rounds of a loss with corners."""
        cuts, last = 0, np.inf
        for _ in range(MOST_ROUNDS):
            if self.stop():
                raise Halted
            taken, shares = self._take(at, share)
            if not self._has_room(taken, shares):
                ends = at.bias - at.largest, at.bias + at.largest
                bias = self._crossing("bias", ends, at, at, lambda _, below: below - self.upper)[0]
                at = self._move(at, at._replace(bias=bias), 0.0)._replace(bias=bias)  # where all sides sum to zero
                taken, shares = self._take(at, share)
                if not self._has_room(taken, shares):
                    raise Fruitless("a band does not hold the balance of the classes")
            exact = min(shares) == 1.0
            to, values = self._solve(taken, shares, at, exact)
            looked, to = self._look(to, values if exact else None)
            self.steps += 1
            found, dual = None, -np.inf
            if exact:
                found = self._found(to, looked)
                dual, relative = found.at.dual, found.at.gap / max(abs(found.at.gap + found.at.dual), NONZERO)
                if found.at.violation <= self.problem.tol and not CLOSE < relative <= 0.5 * last:
                    self._tell(found, values)
                    return found
                last = relative
            self._tell(found, values)
            pays = at.primal - to.primal > (PAYS * (at.primal - dual) if exact else 0.0)
            way = 1.0 if pays else self._way(at, to)
            cuts = cuts + 1 if way < 1.0 else 0
            at = self._move(at, to, way)
            share = min(0.5 * share, NOISE * float(np.sqrt(self.d * share / self.size)))
            self.keep(at, share)
            if cuts >= MOST_CUTS:
                raise Fruitless("bands are thinner than the steps")
        raise Fruitless(f"{MOST_ROUNDS} rounds were not enough")

    def _smooth(self, at: _Centre, fresh: bool) -> ExactPoint:
        """Newton's steps of a squared loss, from a sample or a checkpoint, with the variables as (w, bias) wants them."""
        if self.stop():
            raise Halted
        if fresh:
            at = self._solve(*self._take(at, 1.0), at, False)[0]
            self.keep(at)
        self.steps += 1
        w, bias = at.w, at.bias
        for _ in range(NEWTON_STEPS):
            dw, db = self._newton(self.turn_all(stages.respond, w, bias), w)
            size = 1.0 + float(np.abs(w).max(initial=0.0)) + abs(bias)
            w, bias = w + dw, bias + db
            if max(float(np.abs(dw).max(initial=0.0)), abs(db)) <= STILL * size or self.stop():
                break
        found = self.measure(self.turn_all(stages.respond, w, bias).columns[1])
        self._tell(found, [])
        if found.at.violation <= self.problem.tol:
            return found
        if self.stop():
            raise Halted
        raise Fruitless("Newton's steps did not settle")

    def _tell(self, found: ExactPoint | None, values: list[FloatArray]) -> None:
        at, rows = UNKNOWN if found is None else found.at, sum(map(len, values))
        self.rounds.append(Round(self.problem.seconds, at.violation, at.free, at.dual, at.gap, rows, 1))
        self.problem.say(len(self.rounds), f", {rows} rows", at)

    # ---- a band ------------------------------------------------------------------------------------------------------

    def _take(self, at: _Centre, share: float) -> tuple[list[Taken], tuple[float, float]]:
        """The band that holds this share of all variables, and what shares of those that grow and shrink stand for it."""
        wanted = self.m if share == 1.0 else max(self.size, int(share * self.m))
        falling = self.m - self.rising
        if wanted >= self.m:
            width, count, half = np.inf, self.m, self.size // 2
            some = tuple(
                min(1.0, max(half, self.size - other) / max(own, 1))
                for own, other in ((self.rising, falling), (falling, self.rising))
            )
        else:
            width, holds = self._crossing("distance", (0.0, at.largest), at, at, lambda _, below: below - wanted)
            count = int(holds) if at.largest else self.m
            some = (min(1.0, self.size / max(count, 1)),) * 2
        shares = (1.0, 1.0) if count <= (self.size if share == 1.0 else self.most) else (some[0], some[1])
        words = at.bias, width, shares, self.steps
        taken: list[Taken] = self.engine.gather(self.turn(stages.take, [words] * len(self.parts)))
        self.count(taken)
        self.gathered += sum(part.gathered for part in taken)
        self.rows_up += sum(len(part.at) for part in taken)
        w, total = sum(part.w for part in taken), sum(part.total for part in taken)
        self.rest = Beside(self.rest.w + w, self.rest.total + total)
        return taken, shares

    def _boxes(self, taken: list[Taken], shares: tuple[float, float]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Bounds and diagonal of a band. A variable of a sample stands for several."""
        lower, upper, diag = (np.concatenate([part[k] for part in taken]) for k in (3, 4, 5))
        times = np.where(lower >= 0.0, 1.0 / shares[0], 1.0 / shares[1])
        return lower * times, upper * times, diag / times

    def _has_room(self, taken: list[Taken], shares: tuple[float, float]) -> bool:
        """Whether the band can make the sum of all variables zero."""
        lower, upper, _ = self._boxes(taken, shares)
        least, most = float(lower.sum()), float(upper.sum())
        edge = ROOM * (most - least)
        return not self.equality or not self.rest.total or least + edge < -self.rest.total < most - edge

    def _solve(
        self, taken: list[Taken], shares: tuple[float, float], at: _Centre, exact: bool
    ) -> tuple[_Centre, list[FloatArray]]:
        """(w, bias) and the variables of the band, all others fixed."""
        Z, c = (np.concatenate([part[k] for part in taken]) for k in (1, 2))
        unit = float(np.abs(c).mean()) or 1.0
        tol = min(INNER * self.problem.tol, INNER_MOST * unit) if exact else ROUGH * unit
        qp = DualQP(c, *self._boxes(taken, shares), np.arange(len(c)), self.equality)
        near = (at.w, at.bias) if np.isfinite(at.primal) else None
        control = PartControl(self.control, f"round {self.steps}, {len(c)} variables")
        beta = interior.run_beside(Z, qp, Beside(self.rest.w, self.rest.total, near), control=control, tol=tol).beta
        w = beta @ Z + self.rest.w
        bias = measures.bias(qp, beta, c - Z @ w - qp.diag * beta)
        edges = np.cumsum([len(part.at) for part in taken])[:-1]
        return _Centre(w, bias), np.split(beta, edges)

    # ---- a pass ------------------------------------------------------------------------------------------------------

    def _look(self, to: _Centre, values: list[FloatArray] | None) -> tuple[Sums, _Centre]:
        """What the parts say of a point, and of their variables with those of the band, in one pass."""
        given: Any = [None] * len(self.parts) if values is None else values
        found = self.sum(self.turn(stages.look, [(to.w, to.bias, own) for own in given]))
        total, total_of_sides, size, loss = found.totals[COUNT:].tolist()
        self.sums = found.columns[0], total, size
        self.rest = Beside(found.columns[1], total_of_sides)
        return found, to._replace(primal=0.5 * float(to.w @ to.w) + loss)

    def _found(self, to: _Centre, looked: Sums) -> ExactPoint:
        """The certificate of the exact point. Where the sums have drifted, a pass with w as it is now says more."""
        w, total, size = self.sums
        if float(np.abs(w - to.w).max(initial=0.0)) > DRIFT * (1.0 + float(np.abs(w).max(initial=0.0))):
            found = self.measure(w, to.bias)
        else:
            found = ExactPoint(to.w, standing(looked, to.bias, self.equality))
        return self.unless_off(found, total, size)

    # ---- along a line ------------------------------------------------------------------------------------------------

    def _move(self, at: _Centre, to: _Centre, way: float) -> _Centre:
        w, bias = at.w + way * (to.w - at.w), at.bias + way * (to.bias - at.bias)
        moved = self.turn_all(stages.move, way, bias)
        return _Centre(w, bias, 0.5 * float(w @ w) + float(moved.totals[0]), float(moved.high[0]))

    def _way(self, at: _Centre, to: _Centre) -> float:
        """The share of the way at which the objective is smallest."""
        step = to.w - at.w
        first = float(at.w @ step) + float(self.total(stages.slope, at.bias, to.bias).totals[0])
        bend = float(step @ step)
        return self._crossing("way", (0.0, 1.0), at, to, lambda x, below: first + x * bend + below)[0]

    def _crossing(
        self, what: str, ends: tuple[float, float], at: _Centre, to: _Centre, missing: Callable[[Any, Any], Any]
    ) -> tuple[float, float]:
        """Where `missing` turns positive, and the weights below it."""
        low, high = ends
        below = 0.0
        for _ in range(_SEARCHES):
            if not high > low:
                break
            heaps = self.total(stages.heap, what, (low, high), at.bias, to.bias).totals
            edges, sums = np.linspace(low, high, BINS + 1)[1:], np.cumsum(heaps)[1:]
            enough = missing(edges, sums) >= 0.0
            k = int(np.argmax(enough)) if enough.any() else BINS - 1
            low, high, below = float(edges[k - 1]) if k else low, float(edges[k]), float(sums[k])
        return high, below

    # ---- stages of all parts -------------------------------------------------------------------------------------------

    def question(self, stage: Callable[..., Any], *args: Any) -> list[Any]:
        """Handles of the answers of all parts to a question."""
        self.passes += stage not in _NO_PASS
        return self.engine.run(stage, [(*pair, *args) for pair in zip(self.parts, self.states, strict=True)], ask=False)

    def turn(self, stage: Callable[..., Any], args: Sequence[tuple[Any, ...]]) -> list[Any]:
        """All parts go on to their next states, each with arguments of its own: handles of their answers.

        Each old state is let go of as soon as its part has the next one.
        """
        self.passes += stage not in _NO_PASS
        old = self.states
        tasks = ((part, old.pop(0), *own) for part, own in zip(self.parts, args, strict=True))
        turned = [(each,) for each in self.engine.run(stage, tasks, ask=False)]
        self.states = self.engine.run(itemgetter(0), turned, ask=False)
        return self.engine.run(itemgetter(1), turned, ask=False)

    def turn_all(self, stage: Callable[..., Any], *args: Any) -> Sums:
        """The same with the same arguments for all, and the sum of the answers."""
        return self.sum(self.turn(stage, [args] * len(self.parts)))

    def total(self, stage: Callable[..., Any], *args: Any) -> Sums:
        """The sum of all answers to a question."""
        return self.sum(self.question(stage, *args))

    def sum(self, handles: list[Any]) -> Sums:
        """The sum of answers."""
        found = self.engine.total(handles)
        self.count([found])
        return found

    def count(self, answers: list[Any]) -> None:
        """Answers have come."""
        self.syncs += 1
        self.bytes_up += sum(map(_bytes, answers))

    # ---- exact points ------------------------------------------------------------------------------------------------

    def measure(self, w: FloatArray, bias: float | None = None) -> ExactPoint:
        """The certificate of the exact point the parts hold; at the mean residual of the free variables by default."""
        if bias is None or not self.equality:
            bias = bias_of(self.total(stages.measure, w, 0.0), True) if self.equality else 0.0
        return ExactPoint(w, standing(self.total(stages.measure, w, bias), bias, self.equality))

    def unless_off(self, found: ExactPoint, total: float, size: float) -> ExactPoint:
        """The certificate of variables of this sum and size; where they miss the equality row it is worth nothing."""
        if self.equality and abs(total) > FEASIBLE * (1.0 + size):
            return found._replace(at=found.at._replace(violation=np.inf, gap=np.inf))
        return found

    def inside(self) -> ExactPoint:
        """The exact point with sum(beta) = 0, as far as it has the room: what a run that is stopped has."""
        total, below, above = self.total(stages.rooms).totals.tolist()
        room = below if total > 0.0 else above
        at = self.turn_all(stages.spread, total / room if self.equality and room > abs(total) else 0.0)
        return self.unless_off(self.measure(at.columns[0]), *at.totals.tolist())

    def _newton(self, sums: Sums, w: FloatArray) -> tuple[FloatArray, float]:
        """The step of (w, bias) by a normal matrix; none where it is singular to rounding."""
        d, bordered = len(w), int(self.equality)
        system = np.zeros((d + bordered, d + bordered))
        system[:d, :d] = sums.gram
        system.flat[: d * (d + bordered) : d + bordered + 1] += 1.0
        system[d:, :d] = sums.columns[0]
        system[d:, d:] = sums.totals[0]
        right = np.append(sums.columns[1] - w, [sums.totals[1]] * bordered)
        solution, failed = lapack.dposv(system, right, lower=1)[1:]
        return (np.zeros(d), 0.0) if failed else (solution[:d], float(solution[d:].sum()))


def _bytes(answer: Any) -> int:
    return sum(map(_bytes, answer)) if isinstance(answer, tuple) else int(getattr(answer, "nbytes", 8))

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

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import PartControl
from svmcore._types import NONZERO, DualQP, FloatArray
from svmcore.distributed import stages
from svmcore.distributed.engine import Halted
from svmcore.distributed.linear import ExactPoint, Linear
from svmcore.distributed.stages import BINS, Taken
from svmcore.distributed.sums import COUNT, UNKNOWN, Standing, Sums, standing
from svmcore.problem import measures
from svmcore.solvers import interior
from svmcore.solvers.interior import Beside

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
_SEARCHES = 3  # so many searches along a line, each in the best bin of the one before


class Fruitless(Exception):
    """Rounds lead nowhere."""


class _Centre(NamedTuple):
    """Where the rounds stand: (w, bias), and there the primal objective and the largest residual."""

    w: FloatArray
    bias: float
    primal: float = np.inf
    largest: float = np.inf


class Stand(NamedTuple):
    """All that it takes to set out again from here: what a checkpoint holds."""

    w: FloatArray
    bias: float
    steps: int
    share: float = 0.0  # of all variables, that the next band holds


class BandMaster:
    """Rounds over the parts of `fit`. Where they do not lead to the end they raise `Fruitless`."""

    def __init__(self, fit: Linear, log: Callable[[int, Standing], Any]) -> None:
        self.fit, self.log = fit, log
        self.rows_up = 0
        self.gathered = 0  # rows that parts looked at outside of their passes

    def run(self, stand: Stand | None, keep: Callable[[Stand], Any]) -> ExactPoint:
        """Rounds until an exact point meets the tolerance. `keep` is given what a checkpoint needs after every round."""
        fit = self.fit
        census = fit.total(stages.census)
        self.m, self.rising = int(census.totals[0]), int(census.totals[1])
        self.upper, self.d = float(census.totals[2]), len(census.columns)
        self.most = max(1, MOST_NUMBERS // max(self.d, 1))
        self.size = min(max(LEAST, int(SPREAD * np.sqrt(float(self.d) * self.m))), self.most)
        at = _Centre(np.zeros(self.d), 0.0) if stand is None else _Centre(stand.w, stand.bias)
        self.rest = Beside(np.zeros(self.d), 0.0)
        fit.steps = 0 if stand is None else int(stand.steps)
        if census.low[0] > 0.0:
            return self._smooth(at, stand is None, keep)
        if self.m > self.size and NOISE * np.sqrt(self.d / self.size) > THICK:
            raise Fruitless(f"a sample of {self.size} rows says little of {self.d} features")
        if stand is not None:
            self._look(at, None)
            at = self._move(at, at, 1.0)
        return self._exact(at, 1.0 if stand is None else stand.share, keep)

    def _exact(self, at: _Centre, share: float, keep: Callable[[Stand], Any]) -> ExactPoint:
        """Rounds of a loss with corners."""
        fit, cuts, last = self.fit, 0, np.inf
        for _ in range(MOST_ROUNDS):
            if fit.stop():
                raise Halted
            taken, shares = self._take(at, share)
            if not self._has_room(taken, shares):
                at = self._rebalanced(at)
                taken, shares = self._take(at, share)
                if not self._has_room(taken, shares):
                    raise Fruitless("a band does not hold the balance of the classes")
            exact = min(shares) == 1.0
            to, values = self._solve(taken, shares, at, exact)
            looked, to = self._look(to, values if exact else None)
            fit.steps += 1
            found, dual = None, -np.inf
            if exact:
                found = self._found(to, looked)
                dual, relative = found.at.dual, found.at.gap / max(abs(found.at.gap + found.at.dual), NONZERO)
                if found.at.violation <= fit.tol and not CLOSE < relative <= 0.5 * last:
                    self._tell(found, values)
                    return found
                last = relative
            self._tell(found, values)
            pays = at.primal - to.primal > (PAYS * (at.primal - dual) if exact else 0.0)
            way = 1.0 if pays else self._way(at, to)
            cuts = cuts + 1 if way < 1.0 else 0
            at = self._move(at, to, way)
            share = min(0.5 * share, NOISE * float(np.sqrt(self.d * share / self.size)))
            keep(Stand(at.w, at.bias, fit.steps, share))
            if cuts >= MOST_CUTS:
                raise Fruitless("bands are thinner than the steps")
        raise Fruitless(f"{MOST_ROUNDS} rounds were not enough")

    def _smooth(self, at: _Centre, fresh: bool, keep: Callable[[Stand], Any]) -> ExactPoint:
        """Newton's steps of a squared loss, from a sample or from where a checkpoint stands."""
        fit = self.fit
        if fit.stop():
            raise Halted
        if fresh:
            at = self._solve(*self._take(at, 1.0), at, False)[0]
            keep(Stand(at.w, at.bias, fit.steps))
        fit.steps += 1
        found = fit.polish(at.w, at.bias, NEWTON_STEPS)
        self._tell(found, [])
        if found.at.violation <= fit.tol:
            return found
        if fit.stop():
            raise Halted
        raise Fruitless("Newton's steps did not settle")

    def _tell(self, found: ExactPoint | None, values: list[FloatArray]) -> None:
        self.log(sum(map(len, values)), UNKNOWN if found is None else found.at)

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
        words = at.bias, width, shares, self.fit.steps
        taken: list[Taken] = self.fit.engine.gather(self.fit.turn(stages.take, [words] * len(self.fit.parts)))
        self.fit.count(taken)
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
        return not self.fit.equality or not self.rest.total or least + edge < -self.rest.total < most - edge

    def _rebalanced(self, at: _Centre) -> _Centre:
        """The bias at which the sum over the sides of the margin is zero."""
        ends = at.bias - at.largest, at.bias + at.largest
        bias = self._crossing("bias", ends, at, at, lambda _, below: below - self.upper)[0]
        return self._move(at, at._replace(bias=bias), 0.0)._replace(bias=bias)

    def _solve(
        self, taken: list[Taken], shares: tuple[float, float], at: _Centre, exact: bool
    ) -> tuple[_Centre, list[FloatArray]]:
        """(w, bias) and the variables of the band, all others fixed."""
        Z, c = (np.concatenate([part[k] for part in taken]) for k in (1, 2))
        unit = float(np.abs(c).mean()) or 1.0
        tol = min(INNER * self.fit.tol, INNER_MOST * unit) if exact else ROUGH * unit
        qp = DualQP(c, *self._boxes(taken, shares), np.arange(len(c)), self.fit.equality)
        near = (at.w, at.bias) if np.isfinite(at.primal) else None
        control = PartControl(self.fit.control, f"round {self.fit.steps}, {len(c)} variables")
        beta = interior.run_beside(Z, qp, Beside(self.rest.w, self.rest.total, near), control=control, tol=tol).beta
        w = beta @ Z + self.rest.w
        bias = measures.bias(qp, beta, c - Z @ w - qp.diag * beta)
        edges = np.cumsum([len(part.at) for part in taken])[:-1]
        return _Centre(w, bias), np.split(beta, edges)

    # ---- a pass ------------------------------------------------------------------------------------------------------

    def _look(self, to: _Centre, values: list[FloatArray] | None) -> tuple[Sums, _Centre]:
        """What the parts say of a point, and of their variables with those of the band, in one pass."""
        given: Any = [None] * len(self.fit.parts) if values is None else values
        found = self.fit.sum(self.fit.turn(stages.look, [(to.w, to.bias, own) for own in given]))
        total, total_of_sides, size, loss = found.totals[COUNT:].tolist()
        self.sums = found.columns[0], total, size
        self.rest = Beside(found.columns[1], total_of_sides)
        return found, to._replace(primal=0.5 * float(to.w @ to.w) + loss)

    def _found(self, to: _Centre, looked: Sums) -> ExactPoint:
        """The certificate of the exact point. Where the sums have drifted, a pass with w as it is now says more."""
        w, total, size = self.sums
        if float(np.abs(w - to.w).max(initial=0.0)) > DRIFT * (1.0 + float(np.abs(w).max(initial=0.0))):
            found = self.fit.measure(w, to.bias)
        else:
            found = ExactPoint(to.w, standing(looked, to.bias, self.fit.equality))
        return self.fit.unless_off(found, total, size)

    # ---- along a line ------------------------------------------------------------------------------------------------

    def _move(self, at: _Centre, to: _Centre, way: float) -> _Centre:
        """Go this share of the way."""
        w, bias = at.w + way * (to.w - at.w), at.bias + way * (to.bias - at.bias)
        moved = self.fit.turn_all(stages.move, way, bias)
        return _Centre(w, bias, 0.5 * float(w @ w) + float(moved.totals[0]), float(moved.high[0]))

    def _way(self, at: _Centre, to: _Centre) -> float:
        """The share of the way at which the objective is smallest."""
        step = to.w - at.w
        first = float(at.w @ step) + float(self.fit.total(stages.slope, at.bias, to.bias).totals[0])
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
            heaps = self.fit.total(stages.heap, what, (low, high), at.bias, to.bias).totals
            edges, sums = np.linspace(low, high, BINS + 1)[1:], np.cumsum(heaps)[1:]
            enough = missing(edges, sums) >= 0.0
            k = int(np.argmax(enough)) if enough.any() else BINS - 1
            low, high, below = float(edges[k - 1]) if k else low, float(edges[k]), float(sums[k])
        return high, below

"""What a linear machine asks of its parts: stages, whose answers are summed as a tree, and the measures of exact points.

Every part has a state, which a turn replaces and a question leaves. Squared losses end with Newton's steps on (w, bias).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from svmcore._control import Control
from svmcore._types import FloatArray
from svmcore.distributed import stages
from svmcore.distributed.engine import Serial
from svmcore.distributed.sums import Standing, Sums, bias_of, joined, standing
from svmcore.solvers.interior import FEASIBLE

_STILL = 1e-12  # relative change of (w, bias) at which Newton's steps end
_NO_PASS = (stages.census, stages.rooms, stages.spread, stages.heap, stages.slope, stages.move, stages.take)


class ExactPoint(NamedTuple):
    """An exact dual point and how good it is, both where the parts are; w and the bias are those of centred columns."""

    w: FloatArray
    at: Standing


class Turned(NamedTuple):
    """What a turn gives: the next state of a part, and its answer."""

    state: Any
    answer: Any


def _asked(stage: Callable[..., Any], part: Any, turned: Turned, *args: Any) -> Any:
    return stage(part, turned.state, *args)


def _turn(stage: Callable[..., Any], part: Any, turned: Turned, *args: Any) -> Turned:
    return Turned(*stage(part, turned.state, *args))


def _answer(turned: Turned) -> Any:
    return turned.answer


def _begun(part: Any) -> Turned:
    return Turned(stages.state_of(part), None)


class Linear:
    """One fit over `parts`, handles of an engine."""

    def __init__(self, engine: Serial, parts: list[Any], equality: bool, tol: float, control: Control) -> None:
        self.engine, self.parts, self.equality, self.tol, self.control = engine, parts, equality, tol, control
        self.turned = engine.run(_begun, [(part,) for part in parts])
        self.syncs = self.passes = self.steps = self.bytes_up = 0

    def stop(self) -> bool:
        """Whether somebody asks to end."""
        return self.control.check(self.steps, np.nan, np.nan) is not None

    # ---- stages of all parts -------------------------------------------------------------------------------------------

    def question(self, stage: Callable[..., Any], *args: Any) -> list[Any]:
        """Handles of the answers of all parts to a question."""
        self.passes += stage not in _NO_PASS
        tasks = [(stage, *pair, *args) for pair in zip(self.parts, self.turned, strict=True)]
        return self.engine.run(_asked, tasks, ask=False)

    def turn(self, stage: Callable[..., Any], args: Sequence[tuple[Any, ...]]) -> list[Any]:
        """All parts go on to their next states, each with arguments of its own: handles of their answers.

        Each old state is let go of as soon as its part has the next one.
        """
        self.passes += stage not in _NO_PASS
        old = self.turned
        tasks = ((stage, part, old.pop(0), *own) for part, own in zip(self.parts, args, strict=True))
        self.turned = self.engine.run(_turn, tasks, ask=False)
        return self.engine.run(_answer, [(turned,) for turned in self.turned], ask=False)

    def turn_all(self, stage: Callable[..., Any], *args: Any) -> Sums:
        """The same with the same arguments for all, and the sum of the answers."""
        return self.sum(self.turn(stage, [args] * len(self.parts)))

    def total(self, stage: Callable[..., Any], *args: Any) -> Sums:
        """The sum of all answers to a question."""
        return self.sum(self.question(stage, *args))

    def sum(self, handles: list[Any]) -> Sums:
        """The sum of answers."""
        found: Sums = self.engine.total(joined, handles)
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
        if self.equality and room > abs(total):
            self.turn(stages.spread, [(total / room,)] * len(self.parts))
        return self.exact()

    def exact(self) -> ExactPoint:
        """The certificate of the exact point."""
        at = self.total(stages.weight)
        return self.unless_off(self.measure(at.columns[0]), *at.totals.tolist())

    def _newton(self, sums: Sums, right: FloatArray, surplus: float) -> tuple[FloatArray, float]:
        """The step of (w, bias) by a normal matrix; none where it is singular to rounding."""
        d, bordered = len(right), int(self.equality)
        system = np.zeros((d + bordered, d + bordered))
        system[:d, :d] = sums.gram
        system.flat[: d * (d + bordered) : d + bordered + 1] += 1.0
        system[d:, :d] = sums.columns[0]
        system[d:, d:] = sums.totals[0]
        solution, failed = lapack.dposv(system, np.append(right, [surplus] * bordered), lower=1)[1:]
        if failed:
            return np.zeros(d), 0.0
        return solution[:d], float(solution[d:].sum())

    def polish(self, w: FloatArray, bias: float, most: int) -> ExactPoint:
        """Squared losses: Newton's steps on (w, bias) with the variables as these want them."""
        for _ in range(most):
            at = self.turn_all(stages.respond, w, bias)
            dw, db = self._newton(at, at.columns[1] - w, float(at.totals[1]))
            size = 1.0 + float(np.abs(w).max(initial=0.0)) + abs(bias)
            w, bias = w + dw, bias + db
            if max(float(np.abs(dw).max(initial=0.0)), abs(db)) <= _STILL * size or self.stop():
                break
        return self.measure(self.turn_all(stages.respond, w, bias).columns[1])


def _bytes(answer: Any) -> int:
    """How much a part has sent."""
    return sum(map(_bytes, answer)) if isinstance(answer, tuple) else int(getattr(answer, "nbytes", 8))

"""Where an interior point sets out, and the features it works with, in whole panels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from svmcore._control import Control
from svmcore._kernels import weighted_gram
from svmcore._types import LANES, NONZERO, DualQP, FloatArray, IntArray, Status
from svmcore.solvers import _ipm_jit as ipm
from svmcore.solvers._settle import LONG

# The start. A ridge fit of c comes first. Its ridge is the share STEEPEST of the trace of Z' Z. Newton's steps follow while
# the error of the margins is above FAR, in units of |c|: at most NEWTON_STEPS of them. One that leads too far is shortened,
# up to SHORTER times. The first barrier belongs to a mean margin error of at least FLATTEST, in the same units.
STEEPEST = 1e-8
FAR = 1e4
NEAR = 1.0  # the same where it sets out from a point near the end
NEWTON_STEPS = 20
SHORTER = 8
FLATTEST = 1e-6
IMMOVABLE = 1e300  # the diagonal of padding


class Beside(NamedTuple):
    """Other variables that stay where they are: what they add to Z' beta and to sum(beta), and a (w, bias) near the end."""

    w: Any = 0.0
    total: float = 0.0
    near: tuple[FloatArray, float] | None = None


class Poll:
    """Asks whether to stop, also within a step. Once the answer is yes, it stays yes."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.status: Status | None = None
        self.steps, self.dual = 0, np.inf

    def __call__(self) -> bool:
        if self.status is None:
            self.status = self.control.check(self.steps, self.dual, np.nan)
        return self.status is not None


class MachineData:
    """The features behind the variables, in whole panels. They are centred where sum(beta) = 0 makes that free."""

    def __init__(
        self, qp: DualQP, n: int, features: tuple[FloatArray, int], poll: Poll, embedded: float = 0.0,
        beside: Beside | None = None,
    ) -> None:  # fmt: skip
        self.poll = poll
        self.beside = beside or Beside()
        source, width = features
        self.m = len(qp.point)
        self.size = -(-self.m // LANES) * LANES
        self.d = d = width + (embedded != 0.0)
        centre = np.zeros((1, source.shape[1]))
        if qp.equality and beside is None:
            ipm.columns_times(source, np.ones((1, len(source) * LANES)), centre)
            centre /= n
        self.panels = np.empty((self.size // LANES, d, LANES))
        if qp.one_each(n):
            np.subtract(source[:, :width], centre[0, :width, None], out=self.panels[:, :width])
        else:
            rows = source.transpose(0, 2, 1).reshape(-1, source.shape[1])[np.resize(qp.point, self.size), :width]
            self.panels[:, :width] = (rows - centre[0, :width]).reshape(-1, LANES, width).transpose(0, 2, 1)
        self.panels[:, width:] = np.sqrt(embedded)
        if self.m < self.size:
            self.panels[-1, :, self.m - self.size :] = 0.0
        self._values = np.zeros((1, self.size))
        self._fitted = np.empty((1, self.size))

    def padded(self, values: FloatArray, filling: float = 0.0) -> FloatArray:
        """A vector over the variables in whole panels."""
        out = np.full(self.size, filling)
        out[: self.m] = values
        return out

    def columns(self, values: FloatArray) -> FloatArray:
        """Z' r for a vector over the variables."""
        out: FloatArray = np.empty((1, self.d))
        self._values[0, : self.m] = values
        ipm.columns_times(self.panels, self._values, out)
        return np.asarray(out[0])

    def weights(self, beta: FloatArray) -> FloatArray:
        """Z' beta of all variables."""
        return np.asarray(self.columns(beta) + self.beside.w)

    def surplus(self, beta: FloatArray) -> float:
        """The sum of all variables."""
        return float(beta.sum()) + self.beside.total

    def arrived(self, at: ipm.Arrival) -> ipm.Arrival:
        """Where a step has led, with all variables."""
        return at._replace(excess=at.excess + self.beside.total) if self.beside.total else at

    def product(self, weights: FloatArray) -> FloatArray:
        """Z w over the variables."""
        ipm.rows_times(self.panels, weights[None, :], self._fitted)
        return self._fitted[0, : self.m].copy()

    def gram(self, values: FloatArray) -> FloatArray:
        """The lower half of Z' diag(r) Z."""
        out = np.empty((self.d, self.d))
        self.add_gram(self.padded(values), out)
        return out

    @property
    def long(self) -> bool:
        """Whether a pass of d^2 operations a point takes longer than anybody should wait for an answer."""
        return float(self.size) * self.d**2 > LONG

    def add_gram(self, values: FloatArray, out: FloatArray) -> None:
        """`gram` of a padded vector, in blocks of rows where it takes long. A stop leaves it unfinished. In place: out."""
        if not self.long:
            weighted_gram(self.panels, values, self.d, out)
            return
        part = np.empty_like(out)
        out[:] = 0.0
        rows = max(1, int(LONG / (LANES * self.d**2)))
        for first in range(0, len(self.panels), rows):
            weighted_gram(
                self.panels[first : first + rows], values[first * LANES : (first + rows) * LANES], self.d, part
            )
            out += np.tril(part)
            if self.poll():
                return

    def features(self, index: IntArray) -> FloatArray:
        """Rows of Z."""
        return self.panels[index // LANES, :, index % LANES]


class Start:
    """Where the interior point sets out: weights w and a bias b, and the variables that suit their margins.

    A ridge fit of c gives w and b. A variable that solves ``z - t = Z w + b - c + diag beta`` and ``s z = u t = mu`` is
    centred. Then ``w - Z' beta`` is all that is wrong. For large C and many points that is a large error of the margins.
    Newton's steps on w and b make it small first. They minimise the primal of the barrier, which is smooth and convex.
    """

    def __init__(self, qp: DualQP, data: MachineData, unit: float) -> None:
        self.qp, self.data = qp, data
        energy = float(np.vdot(data.panels, data.panels))
        self.rises = (qp.lower >= 0.0) | np.isinf(qp.upper)
        self.sign, self.home = np.where(self.rises, 1.0, -1.0), np.where(self.rises, qp.lower, qp.upper)
        self.open = ~(np.isfinite(qp.lower) & np.isfinite(qp.upper))
        self.curvature = np.where(qp.diag > 0, qp.diag, energy / max(data.m, 1) + NONZERO)
        with np.errstate(invalid="ignore"):
            self.box = np.where(self.open, unit / self.curvature, qp.upper - qp.lower)
        near, far = data.beside.near, NEAR
        if near is None:
            inverse = 1.0 / (qp.diag + 4.0 * unit / self.box + STEEPEST * energy)
            near, far = self._newton(inverse, data.columns(inverse * qp.c), float(inverse @ qp.c)), FAR
        self.w, self.bias = near
        force = self._force()
        self.mu = float(np.mean(self.box * np.maximum(np.abs(force), FLATTEST * unit)))
        wrong = self._centre(force)
        for _ in range(NEWTON_STEPS):
            if data.poll.status is not None:
                break
            if not np.max(np.abs(data.product(wrong)), initial=0.0) > far * unit:
                break
            wrong = self._improve(wrong)

    def _force(self) -> FloatArray:
        """What pulls each variable towards the bound it starts from."""
        return self.sign * (self.data.product(self.w) + self.bias - self.qp.c)

    def _centre(self, force: FloatArray) -> FloatArray:
        """Set the distances from the near bound and from the far one. Returns what is wrong with w: Z' beta - w."""
        slope = self.box * force / self.mu
        root = np.sqrt(4.0 + slope * slope)
        self.near, self.far = self.box * (2.0 / (2.0 + slope + root)), self.box * (2.0 / (2.0 - slope + root))
        if self.open.any():
            root = np.sqrt(force * force + 4.0 * self.mu * self.curvature)
            self.near = np.where(self.open, 2.0 * self.mu / (force + root), self.near)
            self.far = np.where(self.open, np.inf, self.far)
        self.beta = self.home + self.sign * self.near
        return self.data.weights(self.beta) - self.w

    def _newton(self, inverse: FloatArray, right: FloatArray, surplus: float) -> tuple[FloatArray, float]:
        """The step of (w, b) for a right-hand side. It is zero where the matrix is singular to rounding."""
        d, bordered = self.data.d, int(self.qp.equality)
        system = np.zeros((d + bordered, d + bordered))
        system[:d, :d] = self.data.gram(inverse)
        system.flat[: d * (d + bordered) : d + bordered + 1] += 1.0
        system[d:, :d] = self.data.columns(inverse)
        system[d:, d:] = inverse.sum()
        solution, failed = lapack.dposv(system, np.append(right, [surplus] * bordered), lower=1)[1:]
        if failed:
            return np.zeros(d), 0.0
        return solution[:d], float(solution[d:].sum())

    def _improve(self, wrong: FloatArray) -> FloatArray:
        """One Newton step, shortened while it leads far beyond the minimum. Returns what is still wrong with w."""
        stiffness = np.where(self.open, self.curvature, self.qp.diag)
        inverse = 1.0 / (stiffness + self.mu / self.near**2 + self.mu / self.far**2)
        surplus, w, bias = self.data.surplus(self.beta), self.w, self.bias
        dw, db = self._newton(inverse, wrong, surplus)
        slope = float(dw @ wrong) + db * surplus
        share = 1.0
        for _ in range(SHORTER):
            self.w, self.bias = w + share * dw, bias + share * db
            wrong = self._centre(self._force())
            if float(dw @ wrong) + db * self.data.surplus(self.beta) >= -0.3 * slope:
                break
            share *= 0.4
        return wrong

    def bounds(self) -> tuple[FloatArray, ...]:
        """Slacks and multipliers of the lower and of the upper bounds."""
        far = np.where(self.open, 1.0, self.far)
        pull = np.where(self.open, 0.0, self.mu / self.far)
        push = self.mu / self.near
        s, u = np.where(self.rises, self.near, far), np.where(self.rises, far, self.near)
        return s, u, np.where(self.rises, push, pull), np.where(self.rises, pull, push)

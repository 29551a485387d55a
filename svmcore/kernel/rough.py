"""Products of kernel values with coefficients in single precision, each with a bound on its error that holds for certain.

Who asks where a value lies, and not what it is, has its answer from these for most points, in half of the time or less.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from svmcore._types import LANES, FloatArray, IntArray, Kernel, KernelKind
from svmcore.base.threads import split
from svmcore.kernel.points import Real, packed_rows, packed_weights
from svmcore.kernel.products import NEAR, NEAR_FEATURES, needs_pairs, shape_of
from svmcore.kernel.spare import lent
from svmcore.kernel.table import facts_of
from svmcore.simd import loops, packing, vector

ROUNDING = 2.0**-24
SUMMED = 9.0  # roundings of a term by its coefficient, and by the sum over the rows of a tile
_TINY = 1e-37  # less than this is lost of a kernel value where float32 underflows
SLACK = 1.01  # terms of second order are left out of the bounds
_WIDER, _FAR = 1.05, 1e3  # the same of small kernel values, where no norm is above _FAR
_PANELS = 16  # 64 targets each: so many at a time


def error_of_dots(kernel: Kernel, squares: FloatArray, terms: int) -> FloatArray:
    """Error factors of kernel values made of dot products of so many terms. `squares` are the squared norms.

    See `error_factors`.
    """
    degree = float(kernel.degree) if kernel.kind == KernelKind.POLY else 1.0
    return np.asarray(np.sqrt(ROUNDING * max(1.0, degree) * (terms + 16.0) * _largest_values(kernel, squares)))


def _largest_values(kernel: Kernel, squares: FloatArray) -> FloatArray:
    """v_i such that no |K_ij| is above the root of v_i v_j."""
    if facts_of(kernel).exponential:
        return np.ones(len(squares))
    shape = shape_of(kernel)
    size = abs(shape.scale) * squares + abs(shape.coef0)
    degree = float(shape.degree) if kernel.kind == KernelKind.POLY else 1.0
    if kernel.kind == KernelKind.SIGMOID:
        size = np.maximum(size, 1.0)
    return np.asarray(size**degree)


def _terms(width: int) -> int:
    """The most terms that one value passes through: those of a chunk, and then the chunks."""
    return min(width, vector.CHUNK) + -(-width // vector.CHUNK)


def exponential_error(width: int, largest: Any) -> Any:
    """How far a float32 value of an exponential kernel may be off, given the largest scaled norm. See `error_factors`.

    Of a number or an array.
    """
    return ROUNDING * ((_terms(width) + 2.0) / np.e + 1.5 * largest + 8.0)


def error_factors(kernel: Kernel, width: int, sizes: FloatArray, largest: float, *, near: bool) -> FloatArray:
    """Factors r_i, one per point: K_ij is off by at most r_i r_j in float32, and so is its share of a sum.

    `sizes` are the squared norms in units of the kernel, or the norms for the Laplacian kernel. `largest` is the largest of
    all points that they meet. With `near`, distances are computed from squares and a product.

    A rounding is a relative error of u = 2^-24. Let d be the most terms that one value passes through: those of a chunk,
    and then the chunks. Let R be the largest norm of a point.

    Distances. A sum of squares or of absolute values is off by d + 2 roundings. Rounded coordinates move a squared
    distance m by 4 R sqrt(m) u, and a city-block one by 2 R u. A distance from |x|^2 + |z|^2 and a product is off by
    d + 2 roundings of 2 |x| |z|, and by 2 roundings of the squares.

    Exponentials. K = 2^-m turns a relative error of m into at most 1 / e of it. It turns an error of sqrt(m) into at
    most 0.36, and one of 1 into at most 0.7, which is log 2. The exponential itself is off by less than 8 roundings.

    Products. A product x'z is off by d + 2 roundings of |x| |z|, and ``a = scale x'z + coef0`` by d + 4 roundings of
    ``A = |scale| |x| |z| + |coef0|``. A is at most the root of the product of its values at x and at z. A power is off by
    `degree` times as many roundings of the power of A.

    The sum over a few rows adds less than 8 roundings.
    """
    terms = _terms(width)
    if near:
        return np.asarray(
            np.sqrt(ROUNDING * (1.4 * (terms + 2.0) * sizes + 2.8 * largest + 1.5 * np.sqrt(largest) + 9.0))
        )
    if facts_of(kernel).exponential:
        norm = largest if kernel.kind == KernelKind.LAPLACIAN else float(np.sqrt(largest))
        return np.full(len(sizes), np.sqrt(exponential_error(width, norm)))
    return error_of_dots(kernel, sizes, terms)


class RoughProduct:
    """sum_s coef_s k(x, source_s) in float32 for the rows x of dense matrices, without the offset of the kernel.

    Features are in units of the kernel and coefficients in units of the largest one. So float32 holds whatever float64 does,
    but what is lost below _TINY.
    """

    def __init__(self, kernel: Kernel, sources: FloatArray, coef: FloatArray) -> None:
        self.width = sources.shape[1]
        self.wide = kernel.kind == KernelKind.RBF and self.width >= NEAR_FEATURES
        exponential, scale = facts_of(kernel).exponential, float(shape_of(kernel).scale)
        self.centre = sources.mean(axis=0) if exponential else np.zeros(self.width)
        self.factor = scale if kernel.kind == KernelKind.LAPLACIAN else float(np.sqrt(abs(scale)))
        self.kernel = kernel if exponential else kernel._replace(gamma=float(np.sign(scale)))
        panels, sizes = self._packed(sources, np.arange(len(sources)))
        self.sizes = sizes[: len(sources)]
        self.largest = float(self.sizes.max(initial=0.0))
        self.unit = float(np.abs(coef).max(initial=0.0)) or 1.0
        self.coef = np.abs(coef / self.unit)
        panels = self._sources(panels)
        self.sides = []  # row groups and weights, of positive coefficients and of negative ones
        for side in (np.flatnonzero(coef > 0.0), np.flatnonzero(coef < 0.0)):
            rows = packed_rows(panels, side)
            self.sides.append((rows, packed_weights(rows, self.coef[side])))

    def _sources(self, panels: Real) -> Real:
        """The sources as the tile reads them."""
        return panels

    @staticmethod
    def serves(kernel: Kernel, n_features: int, sources: int) -> bool:
        """Whether there is one for dense points, and is worth it."""
        return sources > 0 and needs_pairs(kernel, n_features, sources)

    @cached_property
    def far_sides(self) -> list[tuple[Real, Real]]:
        """The sources without their squares, for targets that are too far away for distances from squares."""
        return [(np.ascontiguousarray(rows[:, : self.width]), weights) for rows, weights in self.sides]

    def _packed(self, X: FloatArray, rows: IntArray) -> tuple[Real, FloatArray]:
        """Panels in single precision, in units of the kernel, with the squares where these are wanted, and the sizes."""
        count = -(-len(rows) // LANES)
        panels = lent("targets", (count, self.width + self.wide, LANES), np.float32)
        squares = np.empty(count * LANES)
        packing.pack_panels(X, rows, self.centre, self.factor, 0, count, panels, squares)
        if self.kernel.kind == KernelKind.LAPLACIAN:
            return panels, np.abs(panels).sum(axis=1, dtype=np.float64).ravel()
        return panels, squares

    def __call__(self, X: FloatArray, n_threads: int, rows: IntArray | None = None) -> tuple[FloatArray, FloatArray]:
        """The values of some rows of X, or of all, and a bound on the error of each. One that is not finite says nothing."""
        rows = np.arange(len(X)) if rows is None else rows
        n, size = len(rows), _PANELS * LANES
        count = -(-n // size)
        values, bounds = np.zeros(count * size), np.zeros(count * size)

        def run(first: int, last: int) -> None:
            for start in range(first * size, last * size, size):
                stop = start + size
                self._some(X, rows[start:stop], values[start:stop], bounds[start:stop])

        with np.errstate(over="ignore", invalid="ignore"):
            split(run, count, float(len(self.coef)) * self.width * n, n_threads)
        return values[:n], bounds[:n]

    def _some(self, X: FloatArray, points: IntArray, values: FloatArray, bounds: FloatArray) -> None:
        """The values of one slab of rows, and their bounds. In place: values, bounds."""
        panels, sizes = self._packed(X, points)
        sums, error = self._bounded(panels, sizes, max(self.largest, float(sizes[: len(points)].max())))
        own = slice(len(sizes))
        np.multiply(sums[0] - sums[1], self.unit, out=values[own])
        np.multiply(error, self.unit, out=bounds[own])
        bounds[~np.isfinite(values)] = np.inf

    def _bounded(self, panels: Real, sizes: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
        """Both sums for the points of some panels, and how far their difference may be off, in units of coefficients."""
        near = self.wide and largest <= NEAR
        shape, sides = shape_of(self.kernel), self.sides
        if near:
            shape = vector.NearRbf(*shape)
        elif self.wide:
            panels, sides = np.ascontiguousarray(panels[:, : self.width]), self.far_sides
        sums = self._sums(shape, sides, panels)
        error = SLACK * self._error(sizes, largest, near=near)
        if facts_of(self.kernel).exponential:
            error = self._sharper(error, sums.sum(axis=0), sizes, near=near)
        return sums, error + _TINY * float(self.coef.sum())

    def _sums(self, shape: vector.Shape, sides: list[tuple[Real, Real]], panels: Real) -> FloatArray:
        """The sums over sources of positive coefficients and over the others, for the points of some panels."""
        sums = np.zeros((2, len(panels) * LANES))
        for (rows, weights), out in zip(sides, sums, strict=True):
            loops.add_block(shape, rows, weights, panels, 0, len(panels), out)
        return sums

    def _sharper(self, error: FloatArray, sums: FloatArray, sizes: FloatArray, *, near: bool) -> FloatArray:
        """How far the value of each target of an exponential kernel may be off, given what sum |coef| K is up to an `error`.

        What a kernel value K is off by are at most (`error_factors`) ``a E(K) + b R(K) + c K`` roundings, where
        E(K) = -K log K comes from a relative error of its distance, and R(K) = K (-log K)^1/2 from rounded coordinates. Both
        are concave: so a weighted mean of such errors is at most the error at the mean K. Both grow up to a K of 1 / e or
        more, beyond which their largest value stands in their place. Where the norms are far from one, nothing is gained.
        """
        total, terms = float(self.coef.sum()), _terms(self.width)
        mean = np.clip((sums + error) / max(total, _TINY), _TINY, 1.0)
        low, half = np.minimum(mean, np.exp(-1.0)), np.minimum(mean, np.exp(-0.5))
        meets = np.maximum(sizes, self.largest)
        by_distance, by_rounding = -low * np.log(low), half * np.sqrt(-np.log(half))
        if self.kernel.kind == KernelKind.LAPLACIAN:
            norms, each = meets, (terms + 2.0) * by_distance + 1.4 * meets * mean
        else:
            norms = np.sqrt(meets)
            each = 3.4 * norms * by_rounding
            if near:
                each += (1.4 * (terms + 2.0) * np.sqrt(sizes * self.largest) + 2.8 * meets) * mean
            else:
                each += (terms + 2.0) * by_distance
        sharper = _WIDER * ROUNDING * total * (each + (8.0 + SUMMED) * mean)
        return np.where(norms <= _FAR, np.minimum(error, sharper), error)

    def _error(self, sizes: FloatArray, largest: float, *, near: bool) -> FloatArray:
        """How far the value of each target may be off, whatever its kernel values are."""

        def factors(sizes: FloatArray) -> FloatArray:
            each = error_factors(self.kernel, self.width, sizes, largest, near=near)
            return np.asarray(np.sqrt(each**2 + SUMMED * ROUNDING * _largest_values(self.kernel, sizes)))

        if near or not facts_of(self.kernel).exponential:
            return float(self.coef @ factors(self.sizes)) * factors(sizes)
        meets = np.maximum(sizes, self.largest)  # one far target spoils no bound but its own
        norms = meets if self.kernel.kind == KernelKind.LAPLACIAN else np.sqrt(meets)
        return np.asarray(float(self.coef.sum()) * (exponential_error(self.width, norms) + SUMMED * ROUNDING))

"""Parts of a data set: where their rows come from, what is checked as they are read, what a first pass learns of them.

A part is a block of rows with labels, and weights perhaps: arrays, a file, a piece of a file, a chunk of a collection. Rows
are addressed as (part, row) throughout: frames do not know their lengths, so nothing may need a global index beforehand.
Single precision stays single: a part of float32 rows takes, and sends, half of what float64 rows would.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import DualQP, FloatArray, IntArray, Kernel
from svmcore.base.door import entered
from svmcore.kernel.points import is_sparse
from svmcore.problem import border, formulations, labelling

BLOCK = 1 << 16  # rows that a pass looks at together, a multiple of LANES
_BLOCK, _LEAST_ROWS = 1 << 17, 1 << 10  # numbers of a block whose moments are taken, and rows at least
MOST_CLASSES = 1000  # more different labels than this are numbers
_SMALL = ("?", "b", "B", "h", "H", "e")  # types whose values float32 holds exactly

REGRESSION = "regression"
CLASSIFICATION = "classification"


class Piece(NamedTuple):
    """The rows of a part as they are read: features, labels or targets, weights or None."""

    X: Any
    y: Any
    weight: Any = None
    names: tuple[str, ...] | None = None  # of the columns, where X is no frame that has them


@dataclass(frozen=True)
class Held:
    """The source of a part that is in memory. `mapped`: the rows are read from a file when they are looked at."""

    name: str
    piece: Piece
    mapped: bool = False

    def read(self) -> Piece:
        """The rows."""
        return self.piece


class Assignment(NamedTuple):
    """What every part must know of the problem."""

    kind: str
    kernel: Kernel
    C: float
    loss: str
    epsilon: float
    equality: bool
    classes: Any  # of a classifier: the two labels, the second is the positive one; None as the first: all others
    labels: Any  # all labels that there are
    factors: tuple[float, ...]  # the weights of the labels
    n_features: int
    centre: FloatArray
    sparse: bool


def _real(X: Any, name: str) -> Any:
    """Features as float32, float64 or canonical CSR."""
    if is_sparse(X) or hasattr(X, "tocsr"):
        from scipy import sparse

        if X.shape[0] == 0:
            return sparse.csr_matrix(X.shape, dtype=np.float64)
        return border.features(X, name)
    array = entered(X, name)
    if array.ndim != 2:
        raise InputError(f"{name} has {array.ndim} dimension(s); it must have two, samples by features")
    if array.dtype.kind == "f" and array.dtype.itemsize in (4, 8):
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)
    if array.dtype.char in _SMALL:
        return array.astype(np.float32)
    return border.features(X, name) if len(array) else np.empty(array.shape)


def checked(source: Any, kind: str) -> Piece:
    """The rows of a source with labels or targets and weights that belong to them. Values are looked at by `summary`."""
    X, y, weight, names = source.read()
    name = f"part {source.name}"
    names = border.column_names(X) if names is None else names
    X = _real(X, name)
    n = X.shape[0]
    if y is None:
        raise InputError(f"{name} has no labels; give y, or the name of their column as label=")
    y = border.vector(y, f"y of {name}", n) if kind == REGRESSION else labelling.label_array(y, f"y of {name}")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.reshape(-1)
    if y.ndim != 1 or len(y) != n:
        raise InputError(f"{name} has {n} rows of X and y of shape {y.shape}; every part needs one label a row")
    if weight is not None:
        weight = border.vector(weight, f"sample_weight of {name}", n)
        if (weight < 0).any():
            raise InputError(f"sample_weight of {name} contains {weight.min():g}; weights must be at least 0")
    return Piece(X, y, weight, names)


def blocks(X: Any, rows: int = BLOCK) -> Iterator[tuple[int, Any]]:
    """Rows of a part by blocks: the first row, and a copy in memory."""
    for first in range(0, X.shape[0], rows):
        block = X[first : first + rows]
        yield first, block if is_sparse(block) else np.array(block)


class Summary(NamedTuple):
    """What a first pass learns of a part."""

    name: str
    rows: int
    features: int
    sparse: bool
    labels: NDArray[Any]  # the different labels, of a classifier
    counts: FloatArray  # the weight of each
    weight: float  # sum of the weights
    mean: FloatArray  # by column, weighted
    spread: FloatArray  # weighted sum of squares about it
    given: bool  # whether the part has weights
    checksum: int  # of labels and their places among them, or targets, and weights
    names: tuple[str, ...] | None  # of the columns


def _join(weight: float, mean: FloatArray, spread: FloatArray, more: tuple[float, FloatArray, FloatArray]) -> Any:
    """Moments of two sets of rows together."""
    w, m, s = more
    total = weight + w
    if total == 0.0:
        return weight, mean, spread
    step = m - mean
    return total, mean + step * (w / total), spread + s + step * step * (weight * w / total)


def _moments(block: Any, w: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    total = float(w.sum())
    if total == 0.0:
        return 0.0, np.zeros(block.shape[1]), np.zeros(block.shape[1])
    if is_sparse(block):
        mean = np.asarray(block.T @ w).ravel() / total
        spread = np.asarray(block.multiply(block).T @ w).ravel() - total * mean * mean
        return total, mean, np.maximum(spread, 0.0)
    block = block.astype(np.float64)
    mean = w @ block / total
    block -= mean
    return total, mean, w @ np.square(block)


def summary(source: Any, kind: str) -> Summary:
    """One pass over a part: sizes, labels, moments; refuses values that no machine can use."""
    X, y, weight, names = checked(source, kind)
    n, d = X.shape
    w = np.ones(n) if weight is None else weight
    moments = 0.0, np.zeros(d), np.zeros(d)
    rows = BLOCK if is_sparse(X) else max(_LEAST_ROWS, _BLOCK // max(d, 1))
    for first, block in blocks(X, rows):
        if not is_sparse(block):  # `_real` has looked at others
            strange = ~(np.abs(block) <= min(border.LARGEST, float(np.finfo(block.dtype).max)))
            if strange.any():
                row, column = np.argwhere(strange)[0]
                raise InputError(
                    f"part {source.name} contains {block[row, column]} at row {first + int(row)}, column {int(column)}; "
                    "remove or impute missing and infinite values first"
                )
        moments = _join(*moments, _moments(block, w[first : first + block.shape[0]]))
    labels: NDArray[Any] = np.empty(0)
    counts: FloatArray = np.zeros(0)
    order = y
    if kind == CLASSIFICATION and n:
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            bad = int(np.flatnonzero(~np.isfinite(y))[0])
            raise InputError(f"y of part {source.name} contains {y[bad]} at row {bad}; every sample needs a label")
        labels, codes = np.unique(y, return_inverse=True)
        if len(labels) > MOST_CLASSES:
            raise InputError(
                f"y of part {source.name} holds {len(labels)} different values, not classes; train_svr fits numbers"
            )
        counts = np.bincount(codes, weights=w, minlength=len(labels)).astype(np.float64)
        order = codes.astype(np.int32)
    checksum = zlib.crc32("\0".join(map(str, labels.tolist())).encode())
    checksum = zlib.crc32(w.tobytes(), zlib.crc32(order.tobytes(), checksum))
    return Summary(source.name, n, d, is_sparse(X), labels, counts, *moments, weight is not None, checksum, names)


class Whole(NamedTuple):
    """What the summaries of all parts say together."""

    parts: list[Summary]
    features: int
    sparse: bool
    labels: NDArray[Any]
    counts: FloatArray
    weight: float
    mean: FloatArray
    spread: FloatArray
    names: tuple[str, ...] | None  # of the columns, where every part has them

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def variance(self) -> float:
        """Of all entries, rows weighted: what gamma="scale" looks at."""
        if not self.weight:
            return 0.0
        step = self.mean - self.mean.mean()
        return float((self.spread.sum() / self.weight + step @ step) / self.features)


def together(parts: list[Summary]) -> Whole:
    """Join the summaries, in the order of the parts; refuses parts that do not fit together."""
    filled = [part for part in parts if part.rows]
    if not filled:
        raise InputError(f"all {len(parts)} parts are empty; give at least one row")
    first = filled[0]
    d = max(part.features for part in filled)
    if not d:
        raise InputError(
            f"X has 0 feature(s) (shape=({first.rows}, 0)) while a minimum of 1 is required; give at least one"
        )
    named = next((part for part in filled if part.names is not None), first)
    words = [part.labels.dtype.kind in "SU" for part in filled]
    for part, of_words in zip(filled, words, strict=True):
        if part.sparse != first.sparse:
            raise InputError(
                f"part {first.name} is {'sparse' if first.sparse else 'dense'} and part {part.name} is not; "
                "give all parts in one format"
            )
        if part.features != d and not part.sparse:  # svmlight text ends a row with its last entry
            raise InputError(
                f"part {part.name} has {part.features} columns and another part has {d}; give all the same columns"
            )
        if part.given != first.given:
            with_them, without = (part, first) if part.given else (first, part)
            raise InputError(
                f"part {with_them.name} has weights and part {without.name} has none; give weights to every part, ones "
                "where all rows are alike, or to none"
            )
        if of_words != words[0]:
            numbers, strings = (first, part) if of_words else (part, first)
            raise InputError(
                f"the labels of part {numbers.name} are numbers and those of part {strings.name} are strings; give labels of "
                "one type"
            )
        if part.names is not None and part.names != named.names:
            raise InputError(
                f"part {part.name} has the columns {part.names} and part {named.name} has {named.names}; "
                "give all parts the same columns in the same order"
            )
    moments = 0.0, np.zeros(d), np.zeros(d)
    for part in filled:
        wide = np.zeros((2, d))
        wide[0, : part.features], wide[1, : part.features] = part.mean, part.spread
        moments = _join(*moments, (part.weight, wide[0], wide[1]))
    if moments[0] == 0.0:
        raise InputError("sample_weight is zero everywhere; at least one sample needs a positive weight")
    try:
        labels = np.unique(np.concatenate([part.labels for part in filled]))
    except TypeError:
        raise InputError("y mixes labels of different types that cannot be sorted; use one type") from None
    counts = np.zeros(len(labels))
    for part in filled:
        counts[np.searchsorted(labels, part.labels)] += part.counts
    names = named.names if all(part.names is not None for part in filled) else None
    return Whole(parts, d, first.sparse, labels, counts, *moments, names)


def dual(piece: Piece, task: Assignment) -> DualQP:
    """The variables that a part's rows own. Rows without weight, and rows of other classes, own none."""
    n = piece.X.shape[0]
    share = np.ones(n) if piece.weight is None else piece.weight
    if task.kind == REGRESSION:
        costs = np.where(share > 0, task.C * share, 0.0)
        return formulations.svr(piece.y, costs, task.epsilon, task.loss, task.equality)
    minus, plus = task.classes
    up = piece.y == plus
    known = up | (piece.y == minus) if minus is not None else np.ones(n, bool)
    factor = np.array(task.factors)[np.searchsorted(task.labels, piece.y)] if n else np.zeros(0)
    share = share * np.where(known, factor, 0.0)
    costs = np.where(share > 0, task.C * share, 0.0)
    return formulations.svc(np.where(up, 1.0, -1.0), costs, task.loss, task.equality)


class Part:
    """A part with its variables. Rows that are mapped from a file travel as their source, never as their contents."""

    def __init__(self, number: int, source: Any, task: Assignment) -> None:
        piece = checked(source, task.kind)
        self.number, self.name, self.task = number, source.name, task
        self._source = source if source.mapped else None
        self._X = _widened(piece.X, task.n_features)
        self.n = piece.X.shape[0]
        self.qp = dual(piece, task)
        self.largest = self.diagonal = 0.0  # the largest scaled norm and kernel value of a row with itself: `scan.load`

    @property
    def X(self) -> Any:
        """The rows."""
        if self._X is None:
            self._X = rows_of(self._source, self.task)
        return self._X

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | ({"_X": None} if self._source is not None else {})

    def __sizeof__(self) -> int:
        """What schedulers should count: rows in memory and variables."""
        rows = 0 if self._source is not None or is_sparse(self.X) else self.X.nbytes
        return rows + sum(array.nbytes for array in self.qp[:5])


def coefficients_of(qp: DualQP, beta: FloatArray, n: int) -> tuple[IntArray, FloatArray]:
    """The rows with a signed coefficient, and these."""
    coef = formulations.to_coef(qp, beta, n)
    rows = np.flatnonzero(coef)
    return rows, coef[rows]


def rows_of(source: Any, task: Assignment) -> Any:
    """The rows of a source, as wide as all parts together."""
    return _widened(checked(source, task.kind).X, task.n_features)


def _widened(X: Any, width: int) -> Any:
    """Sparse rows with as many columns as all parts together have."""
    if not is_sparse(X) or X.shape[1] == width:
        return X
    from scipy import sparse

    return sparse.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], width))

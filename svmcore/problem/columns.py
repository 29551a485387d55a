"""What a machine knows of the columns of its features: their names, and the scaling it was trained with.

Users pass raw data everywhere. `Columns.apply` checks them, puts a data frame's columns in the order of the training data and
scales them; nothing below it sees a name or a raw unit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.kernel.points import is_sparse
from svmcore.problem import border
from svmcore.problem.categories import Category

_ROUNDING = 16.0 * np.finfo(np.float64).eps  # a spread below this share of the largest value is rounding
_WIDER = 10  # times as many columns as there are in the data
_SHOWN = 5  # names in a message


class Scaling(NamedTuple):
    """A scaled column is ``(x - mean) / scale``."""

    mean: FloatArray
    scale: FloatArray


@dataclass(frozen=True, eq=False)
class Columns:
    """`count` columns; their names, or None; what standardises them, or None. `unit` is what a message calls a column.

    `centre` is what they are moved by, for the sake of rounding alone, or None; then they are not standardised.
    `open` columns, of machines that other programs trained, take rows of any width: missing columns are zero, and one more
    column holds the length of all that lies beyond, which the distance to every support vector has in common.
    `categories` are columns of words that the command line made features of; predictions there do the same. `base` is the
    number that svmlight text gave to the first feature, or None: test data may not show it, and then they count as it does.
    `fill` is what the command line puts in the place of missing values, or None.
    """

    count: int
    names: tuple[str, ...] | None = None
    standardized: Scaling | None = None
    unit: str = "features"
    centre: FloatArray | None = None
    open: bool = False
    categories: tuple[Category, ...] = ()
    base: int | None = None
    fill: FloatArray | None = None

    @property
    def _scaling(self) -> Scaling | None:
        return self.standardized if self.centre is None else Scaling(self.centre, np.ones(self.count))

    def of(self, names: Iterable[str]) -> IntArray:
        """For every column of the training data its place among `names`, which must be the same names in any order."""
        given = tuple(names)
        if self.names is None or given == self.names:
            self._check_count(len(given))
            return np.arange(self.count)
        known = set(self.names)
        missing = [name for name in self.names if name not in set(given)]
        strange = [name for name in given if name not in known]
        if missing or strange:
            faults = [f"it lacks {_listed(missing)}"] if missing else []
            faults += [f"it has {_listed(strange)}, which the training data did not have"] if strange else []
            raise InputError(
                f"the columns of X are not those of the training data: {' and '.join(faults)}; "
                "give the same columns, in any order"
            )
        twice = [name for name, times in Counter(given).items() if times > 1]
        twice += [name for name, times in Counter(self.names).items() if times > 1 and name not in twice]
        if twice:
            raise InputError(
                f"more than one column is called {_listed(twice)}; give the columns in the order of the training data"
            )
        place = {name: k for k, name in enumerate(given)}
        return np.array([place[name] for name in self.names], dtype=np.int64)

    def _check_count(self, count: int, remedy: str = "") -> None:
        if count != self.count:
            raise InputError(f"X has {count} {self.unit} a row; this machine was trained with {self.count}{remedy}")

    def apply(self, X: Any) -> Any:
        """Raw data as the machine sees them: checked, in the order of the training data, scaled."""
        names = border.column_names(X) if self.names is not None else None
        order = None if names is None or names == self.names else self.of(names)
        X = border.features(X)
        if self.open and self.unit == Columns.unit:
            return _folded(X, self.count)
        if not (self.open and X.shape[1] >= self.count):
            narrow = is_sparse(X) and X.shape[1] < self.count
            self._check_count(X.shape[1], f"; load_data takes n_features={self.count}" if narrow else "")
        if order is not None:
            X = np.ascontiguousarray(X[:, order])
        return X if self._scaling is None else _scaled(X, self._scaling)

    def raw(self, X: Any) -> Any:
        """Scaled data in the units that users know."""
        if self._scaling is None:
            return X
        mean, scale = self._scaling
        if is_sparse(X):
            X = X.copy()
            X.data *= scale[X.indices]
            return X
        return X * scale + mean

    def weights(self, w: FloatArray, intercept: Any) -> tuple[FloatArray, Any]:
        """A linear function ``w'z + intercept`` of scaled data as one of raw data. Leading axes of both agree."""
        if self._scaling is None:
            return w, intercept
        w = w / self._scaling.scale
        return w, intercept - w @ self._scaling.mean


class OfColumns:
    """What answers say of the columns of their training data, which they have as `columns`."""

    if TYPE_CHECKING:

        @property
        def columns(self) -> Columns:
            """The description of these columns."""

    @property
    def n_features(self) -> int:
        """The number of columns that X must have."""
        return self.columns.count

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features, or None where the training data had none."""
        return self.columns.names

    @property
    def standardized(self) -> Scaling | None:
        """Mean and scale of every feature, where it was trained with ``standardize=True``; else None."""
        return self.columns.standardized

    def columns_of(self, names: Iterable[str]) -> IntArray:
        """For every feature of the training data its place among `names`. InputError if these are not the same names."""
        return self.columns.of(names)


def _folded(X: Any, count: int) -> Any:
    """Rows of any width as `count` columns and one more, the length of the rest."""
    from scipy import sparse

    if count > _WIDER * max(X.shape[1], 100):  # columns that are not there take no memory
        X = sparse.csr_matrix(X)
    inside, beyond = X[:, :count], X[:, count:]
    if is_sparse(X):
        rest = np.sqrt(np.asarray(beyond.multiply(beyond).sum(axis=1)).reshape(-1, 1))
        inside = inside.copy()
        inside.resize(X.shape[0], count)
        return sparse.csr_matrix(sparse.hstack([inside, rest]))
    out = np.zeros((X.shape[0], count + 1))
    out[:, : inside.shape[1]] = inside
    out[:, count] = np.sqrt(np.square(beyond).sum(axis=1))
    return out


def fitted(
    X: Any, weights: FloatArray | None, standardize: Any, names: tuple[str, ...] | None, kernel: Any
) -> tuple[Columns, Any]:
    """The columns of checked training data, and the data scaled by them. `weights` of the rows count in mean and spread."""
    if names is None and standardize is False:
        return plain(X.shape[1], isinstance(kernel, str) and kernel == "precomputed"), X
    precomputed = isinstance(kernel, str) and kernel == "precomputed"
    if names is not None and len(names) != X.shape[1]:
        raise InputError(f"feature_names holds {len(names)} names for {X.shape[1]} columns of X; give one for each")
    if border.flag("standardize", standardize):
        if precomputed:
            raise InputError(
                'standardize=True needs features, and kernel="precomputed" gives kernel values; '
                "scale the features before the kernel is computed"
            )
        if callable(kernel):
            raise InputError(
                "standardize=True cannot be used with a kernel function, which expects the data as they are; scale them "
                "first, or inside of the function"
            )
        scaling = _spread(X, weights)
        return Columns(X.shape[1], names, scaling), _scaled(X, scaling)
    return (plain(X.shape[1], True) if precomputed else Columns(X.shape[1], names)), X


_UNITS = "features", "kernel values"


@lru_cache(maxsize=64)
def plain(count: int, precomputed: bool = False) -> Columns:
    """So many columns of which nothing else is known."""
    return Columns(count, unit=_UNITS[precomputed])


def names_of(X: Any, given: Any) -> tuple[str, ...] | None:
    """The names of the columns of training data: those given, or a data frame's."""
    if given is None and type(X) is np.ndarray:
        return None
    own = border.column_names(X)
    if given is None:
        return own
    names = () if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"feature_names={given!r} are not names; give one string for every column of X")
    names = tuple(map(str, names))
    if own is not None and names != own:
        raise InputError(
            "feature_names differ from the names that the data frame X has; leave feature_names out, or rename its columns"
        )
    return names


def _scaled(X: Any, scaling: Scaling) -> Any:
    """The same dense or sparse format, except that sparse rows become dense when they have to be centred."""
    mean, scale = scaling
    with np.errstate(over="ignore"):
        if is_sparse(X) and not mean.any():
            X = X.copy()
            X.data /= scale[X.indices]
            values = X.data
        else:
            X = values = ((X.toarray() if is_sparse(X) else X) - mean) / scale
    if values.size and not (np.abs(values) <= border.LARGEST).all():
        raise InputError("X holds a value that is too large once it is standardised; look for a wrong value or unit")
    return X


def _spread(X: Any, weights: FloatArray | None) -> Scaling:
    """Mean and standard deviation of every column, rows weighted; the deviation of a constant column counts as 1.

    Zeros must stay zeros in sparse data, which are scaled only: their mean is given as 0.
    """
    if weights is not None and not weights.all():
        X, weights = X[weights > 0], weights[weights > 0]
    n, d = X.shape
    w = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    sparse = is_sparse(X)
    low, high = (np.asarray(ends.toarray()).ravel() if sparse else ends for ends in (X.min(axis=0), X.max(axis=0)))
    largest = np.maximum(np.abs(low), np.abs(high))
    unit = np.where(largest > 0, largest, 1.0)  # squares of values divided by it neither overflow nor vanish
    if sparse:
        row = np.repeat(w, np.diff(X.indptr))
        values = X.data / unit[X.indices]
        centre = np.bincount(X.indices, weights=row * values, minlength=d)
        filled = np.bincount(X.indices, weights=row, minlength=d)
        square = np.bincount(X.indices, weights=row * (values - centre[X.indices]) ** 2, minlength=d)
        deviation = np.sqrt(square + np.maximum(1.0 - filled, 0.0) * centre**2) * unit
        mean = np.zeros(d)
    else:
        mean = np.clip(w @ (X / unit) * unit, low, high)
        deviation = np.sqrt(w @ np.square((X - mean) / unit)) * unit
    return Scaling(mean, np.where((high > low) & (deviation > _ROUNDING * largest), deviation, 1.0))


def _listed(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(map(repr, names[:_SHOWN])) + (f" and {rest} more" if rest > 0 else "")


def stored(columns: Columns) -> dict[str, Any]:
    """The columns as arrays of a file."""
    parts: dict[str, Any] = {}
    if columns.names is not None:
        parts["feature_names"] = np.array(columns.names, dtype=str)
    if columns.standardized is not None:
        parts |= {"feature_mean": columns.standardized.mean, "feature_scale": columns.standardized.scale}
    if columns.centre is not None:
        parts["feature_centre"] = columns.centre
    if columns.open:
        parts["feature_open"] = np.array(True)
    if columns.categories:
        parts["categories"] = np.array(json.dumps(columns.categories))
    if columns.base is not None:
        parts["feature_base"] = np.array(columns.base)
    if columns.fill is not None:
        parts["feature_fill"] = columns.fill
    return parts


def read(parts: dict[str, Any], count: int, precomputed: bool) -> Columns:
    """The columns that `stored` wrote; a ValueError says what is wrong with them."""
    is_open = bool(parts.get("feature_open", False))
    if precomputed:
        return Columns(count, unit="kernel values", open=is_open)
    names = parts.get("feature_names")
    if names is not None and (names.shape != (count,) or names.dtype.kind != "U"):
        raise ValueError("the feature names do not belong to its features")
    scaling = None
    if "feature_mean" in parts or "feature_scale" in parts:
        scaling = Scaling(parts["feature_mean"].astype(np.float64), parts["feature_scale"].astype(np.float64))
        if not all(part.shape == (count,) and np.isfinite(part).all() for part in scaling) or scaling.scale.min() <= 0:
            raise ValueError("mean and scale do not belong to its features, or are not finite and positive")
    centre = parts.get("feature_centre")
    if centre is not None:
        centre = centre.astype(np.float64)
        if centre.shape != (count,) or not np.isfinite(centre).all() or scaling is not None:
            raise ValueError("the centre does not belong to its features, or is not finite")
    base = None if "feature_base" not in parts else int(parts["feature_base"])
    if base not in (None, 0, 1):
        raise ValueError(f"its features are numbered from {base}")
    fill = parts.get("feature_fill")
    if fill is not None and (fill.shape != (count,) or not np.isfinite(fill).all()):
        raise ValueError("what missing values are filled with does not belong to its features, or is not finite")
    return Columns(
        count,
        None if names is None else tuple(names.tolist()),
        scaling,
        centre=centre,
        open=is_open,
        categories=_categories(parts, count),
        base=base,
        fill=None if fill is None else fill.astype(np.float64),
    )


def _categories(parts: dict[str, Any], count: int) -> tuple[Category, ...]:
    """The categories of a file; a ValueError says what is wrong with them."""
    if "categories" not in parts:
        return ()
    found = tuple(
        Category(int(place), str(name), tuple(map(str, levels)))
        for place, name, levels in json.loads(str(parts["categories"]))
    )
    if sum(len(category.levels) for category in found) > count or not all(
        category.levels == tuple(sorted(set(category.levels))) and category.levels for category in found
    ):
        raise ValueError("the categories do not belong to its features")
    return found


def feature_fields(X: Any, sparse: str = "X_", dense: str = "X") -> dict[str, Any]:
    """Features as arrays, under the name `dense`, or under several that begin with `sparse`."""
    if is_sparse(X):
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
        return {sparse + name: part for name, part in parts.items()}
    return {dense: X}


def stored_features(parts: dict[str, Any]) -> Any:
    """What `feature_fields` wrote."""
    if "X_data" not in parts:
        return np.ascontiguousarray(parts["X"], dtype=np.float64)
    rows, width = (int(v) for v in parts["X_shape"])
    return border.stored_csr(parts["X_data"], parts["X_indices"], parts["X_indptr"], (rows, width))

"""The border: user input becomes checked float64 arrays, labels and numbers here, or a clear `InputError`.

Nobody below validates again. Every message says what was wrong, with the value, and what to do.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError, NotEnoughMemoryError
from svmcore._types import FloatArray, Kernel, KernelKind
from svmcore.base.door import entered
from svmcore.kernel.matrix import available_threads
from svmcore.kernel.points import is_sparse
from svmcore.kernel.products import unsymmetric
from svmcore.kernel.spare import lent
from svmcore.kernel.table import TABLE, name_of, parameters_of
from svmcore.problem.scales import LARGEST as LARGEST
from svmcore.problem.scales import Look, look_at
from svmcore.simd.rows import distinct

KERNELS = {kind.name.lower(): kind for kind in KernelKind if kind is not KernelKind.CALLABLE}
STOPPING = ("kkt", "gap", "objective")
DEFAULT_CACHE_MB = 512.0
SMALLEST_COST = 1e-150  # squares of smaller numbers underflow
_SYMMETRIC = 1e-8  # differences of a kernel matrix from its transpose, relative to its size, that are rounding
_CACHE_SHARE, _CACHE_LIMIT = 0.4, 4e9  # a cache takes at most this share of the free memory, and at most so many bytes
LARGEST_DEGREE = 1000
SMALL = 1e8  # bytes that are there
_NO_NUMBERS = (bool, np.bool_, np.timedelta64)  # though Python or numpy counts them among the integers


class KernelSpec(NamedTuple):
    """A kernel as the library carries it: numbers for compiled code, and the function behind a callable kernel."""

    kernel: Kernel
    function: Callable[[Any, Any], Any] | None
    name: str


class KernelWords(NamedTuple):
    """A kernel as far as it is given: `left` is "scale" or "auto" where its gamma is to be worked out on points."""

    spec: KernelSpec
    left: str

    def on(self, X: Any, weights: FloatArray | None = None, look: Look | None = None) -> KernelSpec:
        """The kernel on X, of which `look` may be known."""
        if not self.left:
            return self.spec
        value = 1.0 / X.shape[1]
        if self.left == "scale":
            variance = _variance(X, weights) if look is None or weights is not None else look.variance
            value = float(1.0 / (X.shape[1] * variance)) if variance > 0 and math.isfinite(variance) else 1.0
        kind, _, coef0, degree, offset = self.spec.kernel
        return KernelSpec(Kernel(kind, value, coef0, degree, offset), None, self.spec.name)


def number(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    strict: bool = False,
    infinite: bool = False,
) -> float:
    """A real number in range."""
    usual = type(value) is float or type(value) is int  # what else there is takes longer to look at
    if not usual and (isinstance(value, _NO_NUMBERS) or not isinstance(value, numbers.Real)):
        raise InputError(f"{name}={value!r} is not a number; give a real number")
    result = float(value)
    if math.isnan(result) or (math.isinf(result) and not infinite):
        raise InputError(f"{name}={value!r} is not finite; give a finite number")
    if result < low or result > high or (strict and result == low):
        bound = (
            f"greater than {low:g}"
            if strict
            else f"at least {low:g}"
            if high == math.inf
            else f"in [{low:g}, {high:g}]"
        )
        raise InputError(f"{name}={value!r} is out of range; it must be {bound}")
    return result


def share(name: str, value: Any) -> float:
    """A number above 0 and up to 1."""
    result = number(name, value, low=0.0, high=1.0)
    if result == 0.0:
        raise InputError(f"{name}={value!r} is out of range; it must be above 0 and at most 1")
    return result


def integer(name: str, value: Any, *, low: int, high: int = 2**62) -> int:
    """A whole number in range."""
    usual = type(value) is int
    if not usual and (isinstance(value, _NO_NUMBERS) or not isinstance(value, numbers.Integral)):
        raise InputError(f"{name}={value!r} is not a whole number; give an integer of at least {low}")
    if not low <= int(value) <= high:
        bound = f"at least {low}" if value < low else f"at most {high}"
        raise InputError(f"{name}={value!r} is out of range; it must be {bound}")
    return int(value)


def threads(n_threads: Any) -> int:
    """A number of threads; all processors by default."""
    if n_threads is None:
        return available_threads()
    try:
        return integer("n_threads", n_threads, low=1)
    except InputError as error:
        raise InputError(f"{error}; leave it out for all processors") from None


def time_limit(value: Any) -> float | None:
    """Seconds, or no limit."""
    return None if value is None else number("time_limit", value, low=0.0)


def callback(value: Any) -> Any:
    """A function of one progress report, or none."""
    if value is not None and not callable(value):
        raise InputError(f"callback={value!r} cannot be called; give a function of one progress report")
    return value


def verbosity(value: Any) -> int:
    """How much to say: a whole number, or a truth value."""
    return integer("verbose", int(value) if isinstance(value, bool) else value, low=0)


def cache_bytes(cache_mb: Any) -> int:
    """Memory for kernel rows, in bytes; `DEFAULT_CACHE_MB` by default."""
    if cache_mb is None:
        return int(DEFAULT_CACHE_MB * 1e6)
    wanted = 1e6 * number("cache_mb", cache_mb, low=0.0, strict=True)
    memory(wanted, f"cache_mb={cache_mb:g}", "give a smaller cache_mb")
    return int(wanted)


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name}={value!r} is not known; choose one of {', '.join(map(repr, allowed))}")
    return value


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name}={value!r} is neither True nor False")
    return bool(value)


def available_bytes() -> float:
    """Memory that can still be had, or infinity where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * float(line.split()[1])
    except OSError:
        pass
    return math.inf


def spare_bytes() -> float:
    """What kernel values may take where nobody has said: a share of the free memory."""
    return min(_CACHE_SHARE * available_bytes(), _CACHE_LIMIT)


def memory(n_bytes: float, what: str, remedy: str) -> None:
    """Refuse what cannot be had, with both figures. Small requests are not looked at."""
    if n_bytes > SMALL and n_bytes > (free := available_bytes()):
        raise NotEnoughMemoryError(
            f"{what} needs {n_bytes / 1e9:.2f} GB and {free / 1e9:.2f} GB are available; {remedy}"
        )


def _refuse(flat: FloatArray, name: str, locate: Callable[[int], tuple[int, Any]]) -> None:
    """Refuse NaN, infinity and what is too large, naming the first place."""
    bad = int(np.flatnonzero(~(np.abs(flat) <= LARGEST))[0])
    row, column = locate(bad)
    remedy = (
        "remove or impute missing and infinite values first" if not np.isfinite(flat[bad]) else "scale it down first"
    )
    raise InputError(f"{name} contains {flat[bad]} at row {row}, column {column}; {remedy}")


def column_names(X: Any) -> tuple[str, ...] | None:
    """The column names of a data frame of any library, when all of them are strings."""
    columns = None if type(X) is np.ndarray else getattr(X, "columns", None)
    if columns is None or callable(columns) or len(getattr(X, "shape", ())) != 2:
        return None
    names = tuple(columns)
    return tuple(map(str, names)) if len(names) == X.shape[1] and all(isinstance(k, str) for k in names) else None


def is_missing(value: Any) -> bool:
    """True for None, NaN, NaT and pandas.NA, the values that do not equal themselves."""
    if value is None:
        return True
    try:
        return not bool(value == value)
    except (TypeError, ValueError):  # pandas.NA has no truth; an array has too many
        return np.ndim(value) == 0


def _stranger(values: list[Any]) -> int | None:
    """The place of the first value that is not a number."""
    for k, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError):
            return k
    return None


def _unreadable(X: Any, name: str, error: Exception) -> InputError:
    """Which entry of a table is not a number: its row, its column and what is there."""
    table = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object) if hasattr(X, "columns") else np.empty(0)
    for k in range(table.shape[1] if table.ndim == 2 else 0):
        values = table[:, k].tolist()
        row = _stranger(values)
        if row is None:
            continue
        place = f"row {row}, column {_column(X, k)}"
        if is_missing(values[row]):
            return InputError(f"{name} has a missing value at {place}; remove or impute missing values first")
        return InputError(
            f"{name} holds {values[row]!r} at {place}, which is not a number; turn the column into numbers "
            "(pandas.get_dummies makes one column for each category), or leave it out"
        )
    if isinstance(error, InputError):
        return error
    if isinstance(X, str | os.PathLike):
        return InputError(
            f"{name}={X!r} is the name of a file; svmcore.load_data reads one, and svmcore.distributed trains over many"
        )
    return InputError(f"{name} cannot be read as numbers ({error}); give a two-dimensional numeric array")


def features(X: Any, name: str = "X", *, ordered: bool = True) -> Any:
    """A feature matrix: C-ordered float64, or canonical CSR with float64 values and int32 column indices.

    Unless `ordered`, the entries of its rows may come in any order.
    """
    return looked_at(X, name, ordered=ordered)[0]


def looked_at(X: Any, name: str = "X", *, ordered: bool = True) -> tuple[Any, Look | None]:
    """`features`, and what a look at dense ones tells."""
    if type(X) is not np.ndarray and (is_sparse(X) or hasattr(X, "tocsr")):
        return _sparse_features(X, name, ordered), None
    try:
        given = entered(X, name)
        array = _contiguous(given)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError) and not hasattr(X, "columns"):
            raise
        raise _unreadable(X, name, error) from None
    if given.ndim != 2:
        hint = "; one feature: X.reshape(-1, 1), one sample: X.reshape(1, -1)" if given.ndim == 1 else ""
        raise InputError(f"{name} has {given.ndim} dimension(s); it must have two, samples by features{hint}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise InputError(f"{name} is empty, with shape {array.shape}; give at least one sample and one feature")
    width, look = array.shape[1], look_at(array)
    if look.wrong:
        _refuse(array.reshape(-1), name, lambda k: (k // width, _column(X, k % width)))
    return array, look


def _contiguous(given: NDArray[Any]) -> FloatArray:
    """`given` as C-ordered float64: itself, or a copy in memory that fits hand on."""
    if given.dtype == np.float64 and given.flags.c_contiguous and given.ndim == 2:
        return given
    if given.ndim < 2 or given.dtype.kind not in "biuf":
        return np.ascontiguousarray(given, dtype=np.float64)
    array: FloatArray = lent("points", given.shape)
    array[...] = given
    return array


def _column(X: Any, k: int) -> Any:
    """What a message calls a column: its name, or its place."""
    names = column_names(X)
    return k if names is None else repr(names[k])


def _sparse_features(X: Any, name: str, ordered: bool) -> Any:
    from scipy import sparse

    if X.ndim != 2:
        raise InputError(f"{name} is a sparse array of {X.ndim} dimension(s); it must have two, samples by features")
    if 0 in X.shape:
        raise InputError(f"{name} is empty, with shape {X.shape}; give at least one sample and one feature")
    if X.dtype.kind not in "buif":
        raise InputError(f"{name} holds values of type {X.dtype}; give real numbers")
    if X.shape[1] > np.iinfo(np.int32).max:
        raise InputError(f"{name} has {X.shape[1]} columns; at most 2**31 - 1 are supported")
    whole(X, name)
    csr = sparse.csr_matrix(X, dtype=np.float64)
    if csr.indices.dtype != np.int32:
        csr = sparse.csr_matrix((csr.data, csr.indices.astype(np.int32), csr.indptr), shape=csr.shape)
    if not csr.has_canonical_format:
        csr = csr.copy()
        few = csr.shape[1] <= csr.nnz
        if ordered or not few or not distinct(csr.indptr, csr.indices, np.full(csr.shape[1], -1)):
            csr.sum_duplicates()
    data = csr.data
    if len(data) and not (np.minimum.reduce(data) >= -LARGEST and np.maximum.reduce(data) <= LARGEST):  # nor NaN
        _refuse(data, name, lambda k: (int(np.searchsorted(csr.indptr, k, side="right")) - 1, int(csr.indices[k])))
    return csr


def whole(X: Any, name: str) -> None:
    """Refuse a sparse matrix that contradicts itself: scipy's own conversions would write outside of arrays."""
    if wrong := _broken(X):
        raise InputError(f"{name} is a sparse matrix that contradicts itself: {wrong}; make it anew from its entries")


def _broken(X: Any) -> str:
    """Why compiled code would read outside of the arrays of a CSR or CSC matrix; an empty text where it would not.

    The starts are 64-bit numbers here: differences of 32-bit ones may wrap around and look right.
    """
    form = getattr(X, "format", None) if is_sparse(X) else None
    if not (isinstance(form, str) and form in ("csr", "csc")):
        return ""
    lines, width = X.shape if form == "csr" else X.shape[::-1]
    line, place = ("row", "column") if form == "csr" else ("column", "row")
    starts = np.asarray(X.indptr).astype(np.int64)
    if starts.shape != (lines + 1,) or starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] > np.size(X.data):
        return f"its {line}s do not follow each other"
    if np.shape(X.indices) != np.shape(X.data):
        return f"it has {np.size(X.data)} values and {np.size(X.indices)} {place} numbers"
    used = X.indices[: starts[-1]]
    low, high = used.min(initial=0), used.max(initial=-1)
    return (
        f"it has {width} {place}s, and one has the number {low if low < 0 else high}"
        if low < 0 or high >= width
        else ""
    )


def stored_csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """A sparse matrix from a file, or ValueError where compiled code would read outside of its arrays."""
    from scipy import sparse

    X = sparse.csr_matrix(shape)
    X.data, X.indices, X.indptr = data, indices, indptr
    if wrong := _broken(X):
        raise ValueError(f"a sparse matrix contradicts itself: {wrong}")
    return sparse.csr_matrix((data, indices, np.asarray(indptr).astype(np.int64)), shape=shape)


def gram(X: Any) -> FloatArray:
    """A precomputed training kernel: square, finite and symmetric."""
    if is_sparse(X) or hasattr(X, "tocsr"):
        raise InputError('kernel="precomputed" needs a dense matrix; convert with X.toarray()')
    K: FloatArray = features(X)
    n = K.shape[0]
    if K.shape != (n, n):
        raise InputError(f'kernel="precomputed" needs a square matrix of kernel values; X has shape {K.shape}')
    place = unsymmetric(K, _SYMMETRIC)
    if place is not None:
        i, j = place
        raise InputError(
            f"the precomputed kernel is not symmetric: K[{i}, {j}] = {K[i, j]:g} but K[{j}, {i}] = {K[j, i]:g}; "
            "symmetrise it with (K + K.T) / 2"
        )
    return K


def kernel(
    name: Any, X: Any, gamma: Any, degree: Any, coef0: Any, offset: float = 0.0, weights: FloatArray | None = None
) -> KernelSpec:
    """A kernel and its parameters, with gamma="scale" and "auto" worked out on X."""
    return kernel_words(name, gamma, degree, coef0, offset).on(X, weights)


def kernel_words(name: Any, gamma: Any, degree: Any, coef0: Any, offset: float = 0.0) -> KernelWords:
    """A kernel and its parameters, as far as they are given."""
    if callable(name):
        return KernelWords(KernelSpec(Kernel(int(KernelKind.CALLABLE), 1.0, 0.0, 1, offset), name, "callable"), "")
    if not isinstance(name, str) or name not in KERNELS:
        raise InputError(
            f"kernel={name!r} is not known; choose one of {', '.join(map(repr, KERNELS))}, or give a function"
        )
    kind = KERNELS[name]
    used = TABLE[kind].parameters
    value, left = _gamma(gamma) if "gamma" in used else (1.0, "")
    power = integer("degree", degree, low=0, high=LARGEST_DEGREE) if "degree" in used else 1
    constant = number("coef0", coef0) if "coef0" in used else 0.0
    return KernelWords(KernelSpec(Kernel(int(kind), value, constant, power, offset), None, name), left)


def kernel_params(kernel: Kernel, function: Callable[[Any, Any], Any] | None) -> dict[str, Any]:
    """A kernel in the words of `train_svc`: the parameters that apply to it."""
    params: dict[str, Any] = {"kernel": name_of(kernel) if function is None else function, **parameters_of(kernel)}
    if kernel.offset:
        params["intercept_scaling"] = math.sqrt(kernel.offset)
    return params


def _gamma(gamma: Any) -> tuple[float, str]:
    """A number, or 1 and the word for what is to be worked out."""
    if not isinstance(gamma, str):
        return number("gamma", gamma, low=0.0, strict=True), ""
    if gamma not in ("scale", "auto"):
        search = '; cv_path and SVCPathCV choose it, and take "search"' if gamma == "search" else ""
        raise InputError(f'gamma={gamma!r} is not known; give "scale", "auto" or a positive number{search}')
    return 1.0, str(gamma)


def _weighted(weights: FloatArray, values: Any) -> float:
    return float(np.einsum("i,i->", weights, np.asarray(values).ravel()))


def _variance(X: Any, weights: FloatArray | None) -> float:
    """Variance of all entries of X, rows weighted. Not by long sums of BLAS, which depend on the number of its threads."""
    if weights is None and not is_sparse(X):
        return look_at(np.ascontiguousarray(X)).variance if X.size else 0.0
    w = np.ones(X.shape[0]) if weights is None else weights
    total = float(w.sum() * X.shape[1])
    if total == 0:
        return 0.0
    if not is_sparse(X):
        mean = _weighted(w, X.sum(axis=1)) / total
        return _weighted(w, np.square(X - mean).sum(axis=1)) / total
    mean = _weighted(w, X.sum(axis=1)) / total
    square = _weighted(w, X.multiply(X).sum(axis=1)) / total
    return square - mean * mean


def vector(values: Any, name: str, n: int) -> FloatArray:
    """A finite float64 vector of n numbers."""
    try:
        array = np.ascontiguousarray(entered(values, name), dtype=np.float64)
    except (TypeError, ValueError) as failure:
        if isinstance(failure, InputError):
            raise
        reason = str(failure)
        entries = list(values) if np.iterable(values) else []
        row = _stranger(entries)
        if row is not None and np.ndim(entries[row]) == 0:
            if is_missing(entries[row]):
                raise InputError(f"{name} has a missing value at row {row}; give one number per sample") from None
            value = str(entries[row]) if isinstance(entries[row], str) else entries[row]  # not np.str_(...)
            reason = f"it holds {value!r} at row {row}"
        raise InputError(f"{name} cannot be read as numbers ({reason}); give one number per sample") from None
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1 or len(array) != n:
        raise InputError(f"{name} has shape {np.shape(values)} for {n} samples; give one number per sample")
    if not (np.abs(array) <= LARGEST).all():
        bad = int(np.flatnonzero(~(np.abs(array) <= LARGEST))[0])
        raise InputError(f"{name} contains {array[bad]} at row {bad}; give finite numbers of at most {LARGEST:g}")
    return array


def sample_weights(values: Any, n: int) -> FloatArray | None:
    """Non-negative weights, or None. Weights whose squares underflow count as zero."""
    if values is None:
        return None
    weights = vector(values, "sample_weight", n)
    if (weights < 0).any():
        bad = int(np.flatnonzero(weights < 0)[0])
        raise InputError(f"sample_weight contains {weights[bad]:g} at row {bad}; weights must be at least 0")
    if not weights.any():
        raise InputError("sample_weight is zero everywhere; at least one sample needs a positive weight")
    largest = float(weights.max())
    if largest < SMALLEST_COST:
        raise InputError(
            f"sample_weight is at most {largest:g} everywhere; weights below {SMALLEST_COST:g} count as zero. Scale "
            "the weights up, and C down"
        )
    return np.where(weights < SMALLEST_COST, 0.0, weights)


def cost(C: Any, name: str = "C", *, infinite: bool = True) -> float:
    """A penalty C > 0, infinity included."""
    value = number(name, C, low=0.0, strict=True, infinite=infinite)
    if value < SMALLEST_COST:
        raise InputError(f"{name}={C!r} is out of range; it must be at least {SMALLEST_COST:g}")
    return value

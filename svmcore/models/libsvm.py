"""Models of LIBSVM: its text files become machines, and machines become such files.

LIBSVM's value is ``dec(x) = sum_t sv_coef_t k(x_t, x) - rho``. Above zero it speaks for the first label of a pair, where ours
speaks for the second. So a file of two classes lists the larger label first, and values of several classes change sign.

Its files hold support vectors with 8 digits, and no C, epsilon or nu: whoever wants to know how good an answer is needs the
data, and `svmcore.verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray, Kernel, KernelKind, Status
from svmcore.base.drafts import write_whole
from svmcore.data.svmlight import read_rows
from svmcore.data.text import NUMBER, TextPiece, fail, pieces_of, shown
from svmcore.data.writing import entries

if TYPE_CHECKING:
    from svmcore.models.solution import Solution
    from svmcore.train.machines import Machines

MAGIC = b"svm_type"
TYPES = ("c_svc", "nu_svc", "one_class", "epsilon_svr", "nu_svr")
KERNELS = ("linear", "polynomial", "rbf", "sigmoid", "precomputed")
_KINDS = dict(
    zip(
        KERNELS,
        (KernelKind.LINEAR, KernelKind.POLY, KernelKind.RBF, KernelKind.SIGMOID, KernelKind.PRECOMPUTED),
        strict=True,
    )
)
_NUMBERS = ("rho", "label", "nr_sv", "probA", "probB", "prob_density_marks")  # lists
_ONE = ("degree", "gamma", "coef0", "nr_class", "total_sv")
_LONGEST_LINE = 1 << 24
_MOST_LINES = 50  # a header has at most so many lines
_MOST_CLASSES = 10_000
_DENSE = 0.3  # support vectors are kept as an array where at least this share of their values is not zero


class _Header(NamedTuple):
    """What stands above the support vectors, and how many lines that takes."""

    name: str
    svm_type: str
    kernel: Kernel
    fields: dict[str, list[float]]
    lines: int

    def wrong(self, what: str) -> NoReturn:
        raise InputError(f"{self.name} is a damaged model of LIBSVM: {what}")

    def whole(self, field: str, low: int, high: int) -> list[int]:
        """A list of whole numbers between limits."""
        values = self.fields.get(field)
        if values is None:
            self.wrong(f"{field} is missing")
        if not all(low <= value <= high and value == int(value) for value in values):
            self.wrong(f"{field} is out of range")
        return [int(value) for value in values]


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(name: str, stream: BinaryIO) -> Solution | Machines:
    """The machine, or the machines for several classes, of a text file."""
    header = _header(name, stream)
    classifies = header.svm_type in ("c_svc", "nu_svc")
    (n_classes,) = header.whole("nr_class", 1, _MOST_CLASSES)
    if (classifies and n_classes < 2) or (not classifies and n_classes != 2):
        header.wrong(f"nr_class is {n_classes} for {header.svm_type}")
    pairs = n_classes * (n_classes - 1) // 2
    rho = np.array(header.fields.get("rho", []))
    if rho.shape != (pairs,):
        header.wrong(f"rho has {rho.size} numbers, {n_classes} classes need {pairs}")
    coef, support = _support(header, stream, n_classes - 1)
    learned = _learned(header, pairs if classifies else 1, classifies)
    if not classifies:
        terms = {"loss": "one_class" if header.svm_type == "one_class" else "epsilon_insensitive"}
        classes = np.array([-1, 1]) if header.svm_type == "one_class" else None
        return _solution(header, support, np.arange(len(coef)), coef[:, 0], -float(rho[0]), classes, terms, learned[0])
    labels = np.array(header.whole("label", -(2**53), 2**53))
    counts = np.array(header.whole("nr_sv", 0, len(coef)))
    if len(set(labels.tolist())) != n_classes or labels.size != n_classes:
        header.wrong(f"label does not name {n_classes} different classes")
    if counts.shape != (n_classes,) or counts.sum() != len(coef):
        header.wrong("nr_sv does not add up to the number of support vectors")
    ends = np.cumsum(counts)
    rows = [np.arange(end - count, end) for count, end in zip(counts, ends, strict=True)]
    machines = []
    for k, (a, b) in enumerate(combinations(range(n_classes), 2)):
        own = np.concatenate([rows[a], rows[b]])
        values = -np.concatenate([coef[rows[a], b - 1], coef[rows[b], a]])
        used = (values != 0.0) | (n_classes == 2)
        sigmoid = (
            None if learned[k] is None else (learned[k][0], -learned[k][1])
        )  # LIBSVM's are those of the first class
        machines.append(
            _solution(
                header, support, own[used], values[used], float(rho[k]), labels[[a, b]], {"loss": "hinge"}, sigmoid
            )
        )
    if n_classes == 2:
        machine = machines[0] if labels[0] < labels[1] else _turned(machines[0])
        return replace(machine, stats={"labels": labels.tolist()})
    from svmcore.train.machines import Machines

    return Machines(labels, "ovo", tuple(machines))


def _learned(header: _Header, count: int, classifies: bool) -> list[Any]:
    """What every machine learned for probabilities: A and B of the first class, or of numbers the mean absolute error."""
    if header.svm_type == "one_class" or "probA" not in header.fields:
        return [None] * count
    names = ("probA", "probB") if classifies else ("probA",)
    columns = [header.fields.get(name, []) for name in names]
    if any(len(column) != count for column in columns):
        header.wrong(f"{' and '.join(names)} need {count} numbers each")
    return list(zip(*columns, strict=True))


def _header(name: str, stream: BinaryIO) -> _Header:
    """The lines down to "SV"."""
    words: dict[str, str] = {}
    fields: dict[str, list[float]] = {}
    for line in range(1, _MOST_LINES + 1):
        text = stream.readline(_LONGEST_LINE)
        key, *values = text.split() or [b""]
        field = key.decode("ascii", "replace")
        if field == "SV":
            break
        if field in ("svm_type", "kernel_type"):
            known = TYPES if field == "svm_type" else KERNELS
            word = b" ".join(values).decode("ascii", "replace")
            if word not in known:
                fail(name, line, None, f"{field} {shown(word.encode())} is none of {', '.join(known)}")
            words[field] = word
        elif field in _NUMBERS or (field in _ONE and len(values) == 1):
            bad = next((value for value in values if not NUMBER.match(value) or not np.isfinite(float(value))), None)
            if bad is not None:
                fail(name, line, None, f"{field} holds {shown(bad)}, which is not a finite number")
            fields[field] = [float(value) for value in values]
        else:
            fail(name, line, None, f"{shown(text.rstrip())} has no place in a model of LIBSVM")
    else:
        raise InputError(f"{name} is a damaged model of LIBSVM: no line says SV")
    if "svm_type" not in words or "kernel_type" not in words:
        raise InputError(f"{name} is a damaged model of LIBSVM: svm_type or kernel_type is missing")
    kind = _KINDS[words["kernel_type"]]
    header = _Header(name, words["svm_type"], Kernel(int(kind), 0.0, 0.0, 0, 0.0), fields, line)
    if kind is KernelKind.POLY:
        header = header._replace(kernel=header.kernel._replace(degree=header.whole("degree", 0, 2**31 - 1)[0]))
    needed = {KernelKind.RBF: ("gamma",), KernelKind.POLY: ("gamma", "coef0"), KernelKind.SIGMOID: ("gamma", "coef0")}
    for field in needed.get(kind, ()):
        if field not in fields:
            header.wrong(f"{field} is missing")
        header = header._replace(kernel=header.kernel._replace(**{field: fields[field][0]}))  # type: ignore[arg-type]
    return header


class _Support(NamedTuple):
    """Support vectors: rows of features, or for a precomputed kernel the places of training points, `width` in all.

    `base` is the number of the first feature.
    """

    vectors: Any
    places: IntArray | None
    width: int
    base: int | None = None


def _support(header: _Header, stream: BinaryIO, lead: int) -> tuple[FloatArray, _Support]:
    """Coefficients (n, lead) and support vectors."""
    from scipy import sparse

    (total,) = header.whole("total_sv", 0, 2**31 - 1)
    pieces = (TextPiece(piece.line + header.lines, piece.text) for piece in pieces_of(header.name, stream))
    rows = read_rows(header.name, pieces, lead)
    count = 0 if rows is None else len(rows.lead)
    if count != total:
        header.wrong(f"total_sv is {total}, and there are {count} support vectors")
    if rows is None:
        return np.empty((0, lead)), _Support(np.zeros((0, 2)), np.empty(0, dtype=np.int64), 1)
    if header.kernel.kind == KernelKind.PRECOMPUTED:
        serial = rows.value
        whole = (rows.length == 1).all() and not rows.feature.any()
        if not whole or (serial < 1).any() or (serial != np.floor(serial)).any() or serial.max() > 2**31 - 1:
            header.wrong("a support vector of a precomputed kernel is 0:NUMBER, the number of a training row from 1")
        places = serial.astype(np.int64) - 1
        if np.unique(places).size != places.size:
            header.wrong("a training row appears twice among the support vectors")
        return rows.lead, _Support(None, places, int(places.max()) + 1)
    base = int(rows.feature.min(initial=1))
    width = int(rows.feature.max(initial=1)) + 1 - base
    starts = np.concatenate([[0], np.cumsum(rows.length)])
    X = sparse.csr_matrix((rows.value, rows.feature - np.int32(base), starts), shape=(total, width + 1))
    dense = X.nnz > _DENSE * X.shape[0] * X.shape[1]
    return rows.lead, _Support(X.toarray() if dense else X, None, width, base)


def _solution(
    header: _Header, support: _Support, rows: IntArray, coef: FloatArray, intercept: float, classes: Any,
    terms: dict[str, Any], calibration: tuple[float, ...] | None = None,
) -> Solution:  # fmt: skip
    """A machine of some of the support vectors."""
    from svmcore.models.solution import Solution, Terms
    from svmcore.problem.certify import Certificate
    from svmcore.problem.columns import Columns

    unknown = float("nan")
    if support.places is not None and support.vectors is None:
        order = np.argsort(support.places[rows])
        rows, coef = rows[order], coef[order]
        places, n, vectors = support.places[rows], support.width, np.empty((0, 0))
        columns = Columns(support.width, unit="kernel values", open=True)
    else:
        places, n, vectors = rows, max(1, support.vectors.shape[0]), support.vectors[rows]
        columns = Columns(support.width, open=True, base=support.base)
    return Solution(
        n_points=n, intercept=intercept, support=places, dual_coef=np.ascontiguousarray(coef), kkt_violation=unknown,
        measured=Certificate(unknown, unknown, unknown, unknown, unknown, unknown, intercept), status=Status.UNKNOWN,
        converged=False, n_iter=0, n_kernel_evals=0, fit_seconds=0.0, solver="LIBSVM", classes=classes,
        kernel=header.kernel, support_vectors=vectors, columns=columns, terms=Terms(None, **terms),
        calibration=calibration,
    )  # fmt: skip


# ---- writing ---------------------------------------------------------------------------------------------------------


class _Text(NamedTuple):
    """A model as LIBSVM writes it; `rows` are features, or serial numbers for a precomputed kernel."""

    labels: list[int] | None
    counts: list[int] | None
    rho: list[float]
    coef: FloatArray
    rows: Any
    learned: tuple[tuple[float, ...], ...] = ()  # probA, and of classes probB


def write(file: Any, model: Solution | Machines) -> None:
    """Write a model of LIBSVM to a file of this name, or to a stream of bytes."""
    from svmcore.train.machines import Machines

    first = model.machines[0] if isinstance(model, Machines) else model
    _refuse(model, first)
    if isinstance(model, Machines) and len(model) > 1:
        text = _several(model)
    elif first.kind == "classification":
        assert first.classes is not None
        order = np.argsort(first.dual_coef <= 0.0, kind="stable")  # the points of the second class come first
        ahead = int((first.dual_coef > 0.0).sum())
        text = _Text(
            _labels(first.classes[::-1]), [ahead, len(order) - ahead], [-first.intercept],
            first.dual_coef[order, None], _rows(first)[order], tuple((value,) for value in first.calibration or ()),
        )  # fmt: skip
    else:
        learned = tuple((value,) for value in first.calibration or ())
        text = _Text(None, None, [-first.intercept], first.dual_coef[:, None], _rows(first), learned)
    write_whole(file, lambda stream: stream.writelines(line.encode("ascii") + b"\n" for line in _lines(first, text)))


def in_order(model: Any, places: IntArray) -> Any:
    """The same for classes in another order, which decides between classes with equally many votes, and what comes first in
    a file. Of two classes the first one is LIBSVM's, and our second one.
    """
    if not hasattr(model, "division"):
        return model if places[0] == 1 else _turned(model)
    of_pair = {
        (part.minus[0], part.plus[0]): one for part, one in zip(model.division.parts, model.machines, strict=True)
    }
    machines = []
    for a, b in combinations(places.tolist(), 2):
        machines.append(of_pair[a, b] if a < b else _turned(of_pair[b, a]))
    return replace(model, classes=model.classes[places], machines=tuple(machines))


def _turned(machine: Solution) -> Solution:
    """The machine that speaks for the first class where the given one speaks for the second."""
    assert machine.classes is not None
    factors, learned = machine.terms.factors, machine.calibration
    return replace(
        machine, dual_coef=-machine.dual_coef, intercept=-machine.intercept, classes=machine.classes[::-1],
        terms=machine.terms._replace(factors=None if factors is None else factors[::-1]),
        calibration=None if learned is None else (learned[0], -learned[1]),
    )  # fmt: skip


def _refuse(model: Any, first: Solution) -> None:
    """Say what a model of LIBSVM has no place for."""
    kinds = {int(kind) for kind in _KINDS.values()}
    if first.function is not None or first.kernel.kind not in kinds:
        raise InputError(
            f"LIBSVM has no kernel {first.kernel_name!r}; it knows linear, poly, rbf, sigmoid, precomputed"
        )
    if first.columns.categories:
        words = ", ".join(repr(category.name) for category in first.columns.categories)
        raise InputError(
            f"a model of LIBSVM has no place for columns of words, and this machine has made features of {words}; write "
            "it as .npz"
        )
    if first.columns.fill is not None:
        raise InputError(
            "a model of LIBSVM has no place for what missing values are filled with (--impute); write it as .npz"
        )
    if first.standardized is not None:
        raise InputError(
            "a model of LIBSVM has no place for the scaling of features that this machine does itself (standardize); scale "
            "the data first, and train without it"
        )
    if getattr(model, "strategy", "ovo") == "ovr" and len(model) > 1:
        raise InputError('LIBSVM tells classes apart in pairs; train with strategy="ovo" for it')


def _labels(classes: NDArray[Any]) -> list[int]:
    if classes.dtype.kind not in "biuf" or not np.array_equal(classes, np.rint(np.asarray(classes, dtype=np.float64))):
        raise InputError(
            f"labels of LIBSVM are whole numbers, and these are {', '.join(map(repr, classes.tolist()[:4]))}; number the "
            "classes before training"
        )
    return [int(label) for label in classes.tolist()]


def _rows(machine: Solution | Machines) -> Any:
    """The support vectors; for a precomputed kernel the places of training points."""
    if machine.kernel.kind == KernelKind.PRECOMPUTED:
        return machine.support
    return machine.columns.raw(machine.support_vectors)


def _several(model: Machines) -> _Text:
    """The machines of all pairs, in one table of coefficients: a class's vectors have one for every other class."""
    k = model.classes.size
    support = model.support
    owner = np.full(support.size, -1)
    pairs = list(combinations(range(k), 2))
    for (a, b), machine in zip(pairs, model.machines, strict=True):
        owner[np.searchsorted(support, machine.support)] = np.where(machine.dual_coef > 0.0, b, a)
    coef = np.zeros((support.size, k - 1))
    for (a, b), machine in zip(pairs, model.machines, strict=True):
        at = np.searchsorted(support, machine.support)
        coef[at, np.where(owner[at] == a, b - 1, a)] = -machine.dual_coef
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=k).tolist()
    rho = [machine.intercept for machine in model.machines]
    learned: Any = [machine.calibration for machine in model.machines]
    learned = () if None in learned else tuple(np.transpose([(a, -b) for a, b in learned]).tolist())
    return _Text(_labels(model.classes), counts, rho, coef[order], _rows(model)[order], learned)


def _lines(machine: Solution, text: _Text) -> Iterator[str]:
    kernel = machine.kernel
    name = next(name for name, kind in _KINDS.items() if kind == kernel.kind)
    nu = machine.nu is not None
    kind = {"classification": "nu_svc" if nu else "c_svc", "regression": "nu_svr" if nu else "epsilon_svr"}
    yield f"svm_type {kind.get(machine.kind, 'one_class')}"
    yield f"kernel_type {name}"
    if name == "polynomial":
        yield f"degree {kernel.degree}"
    if name in ("polynomial", "rbf", "sigmoid"):
        yield f"gamma {float(kernel.gamma)!r}"
    if name in ("polynomial", "sigmoid"):
        yield f"coef0 {float(kernel.coef0)!r}"
    yield f"nr_class {2 if text.labels is None else len(text.labels)}"
    yield f"total_sv {len(text.coef)}"
    yield "rho " + " ".join(repr(float(value)) for value in text.rho)
    if text.labels is not None and text.counts is not None:
        yield "label " + " ".join(map(str, text.labels))
    for name, values in zip(("probA", "probB"), text.learned, strict=False):
        yield f"{name} " + " ".join(repr(float(value)) for value in values)
    if text.labels is not None and text.counts is not None:
        yield "nr_sv " + " ".join(map(str, text.counts))
    yield "SV"
    base = 0 if machine.columns.base == 0 else 1
    for k, coef in enumerate(text.coef.tolist()):
        head = " ".join(map(repr, coef))
        if kernel.kind == KernelKind.PRECOMPUTED:
            yield f"{head} 0:{int(text.rows[k]) + 1}"
            continue
        pairs = {column: value for column, value in entries(text.rows, k).items() if value}
        if k == base == 0:
            pairs = {0: 0.0} | pairs  # it says from where the features are numbered
        yield " ".join([head, *(f"{column + base}:{value!r}" for column, value in pairs.items())])

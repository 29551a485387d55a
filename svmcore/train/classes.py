"""Several classes: `train_classes` trains a machine for every pair of classes, or for every class, with one kernel."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from svmcore._control import Control, new_control
from svmcore._errors import ConvergenceWarning, InputError, listening, warn
from svmcore._keywords import Gamma, KernelLike, SolverOptions, checked, remembered
from svmcore._types import FloatArray, KernelKind, Status
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.whole import whole_kernel
from svmcore.models.solution import Solution
from svmcore.problem import border, labelling
from svmcore.problem import intercept as intercepts
from svmcore.problem.advice import MEANS_LITTLE
from svmcore.problem.border import KernelWords
from svmcore.problem.division import STRATEGIES, Division, Sides, division
from svmcore.problem.intercept import Intercept
from svmcore.problem.scales import warn_of_scales
from svmcore.train.between import Common, Pending, pair_of, together, with_factors
from svmcore.train.forms import points_of
from svmcore.train.functions import train_svc
from svmcore.train.machines import Machines
from svmcore.train.solve import Run, checked_run

# A kernel matrix is computed for all machines at once if it has at most so many bytes, and takes at most this share of the
# free memory.
_SHARED, _SHARE = 1e9, 0.25
_PLAIN = {
    "loss": "hinge", "fit_intercept": True, "intercept_scaling": None, "fixed_intercept": None, "solver": "auto",
    "stopping": "kkt", "callback": None, "verbose": 0, "trace": False, "alpha0": None,
}  # fmt: skip
"""Words of `train_svc` with which a pair of classes can be had in one call."""

_FREE = {"tol", "cache_mb", "random_state", "max_iter"}
"""Words that may have any value then."""


@checked(train_svc, options=SolverOptions.__annotations__)
def train_classes(
    X: Any, y: Any, C: float = 1.0, *, strategy: Literal["ovo", "ovr"] = "ovo", kernel: KernelLike = "rbf",
    gamma: Gamma = "scale", degree: int = 3, coef0: float = 0.0, standardize: bool = False, feature_names: Any = None,
    sample_weight: Any = None, class_weight: Any = None, n_threads: int | None = None, time_limit: float | None = None,
    **options: Any,
) -> Machines:  # fmt: skip
    """Train support vector machines that tell two or more classes apart.

    Parameters
    ----------
    X, y : as in `train_svc`; y has two or more different labels.
    C : penalty, the same for all machines.
    strategy : "ovo", one machine for every pair of classes, as scikit-learn's and LIBSVM's `SVC`; or "ovr", one for every
        class against the rest. Two classes have one machine in either case.
    kernel, gamma, degree, coef0, standardize, feature_names, sample_weight : as in `train_svc`. "scale" and `standardize`
        look at all rows, not at those of one machine.
    class_weight : a mapping from labels to factors, or "balanced": n / (k n_class) for k classes.
    n_threads, time_limit : for all machines together. Further keywords are those of `train_svc`, but for `alpha0`.

    `C` and `nu` may also be sequences with a value for each machine.

    Returns
    -------
    Machines

    Examples
    --------
    >>> import svmcore
    >>> X = [[0.0, 0.0], [0.0, 1.0], [4.0, 0.0], [4.0, 1.0], [0.0, 5.0], [0.0, 6.0]]
    >>> machines = svmcore.train_classes(X, ["a", "a", "b", "b", "c", "c"], C=10.0, kernel="linear")
    >>> [str(label) for label in machines.predict([[0.1, 0.2], [3.0, 0.0], [0.0, 7.0]])]
    ['a', 'b', 'c']
    >>> machines.votes([[0.1, 0.2]]).tolist()
    [[2, 1, 0]]
    """
    border.choice("strategy", strategy, STRATEGIES)
    if options.get("alpha0") is not None:
        raise InputError("alpha0 belongs to one machine, and train_classes trains several; leave it out")
    threads, nus = border.threads(n_threads), options.pop("nu", None)
    limit = border.time_limit(time_limit)
    end = None if limit is None else time.perf_counter() + limit
    run, bias, words = remembered(_plan, tuple(options), threads, kernel, gamma, degree, coef0, *options.values())
    X, columns, spec, given, look = points_of(X, words, bias, sample_weight, standardize, feature_names)
    codes, classes = labelling.class_codes(y, X.shape[0], given)
    factors = None if class_weight is None else labelling.class_factors(class_weight, classes, codes, given)
    study = Common(X, codes, classes, given, factors, spec, columns, look)
    options |= intercepts.settled(options, spec.kernel)  # one tau for all machines
    which = division(classes.size, strategy)
    gram = _shared_gram(study, threads)
    each = _for_each("C", C, len(which.parts)), _for_each("nu", nus, len(which.parts))
    quick = together(study, gram, run) if run is not None and not which.single else None
    control = new_control("fit", _left(end), None, 0)
    known = [None] * len(which.parts) if quick is None else quick.machines(which, *each, control)
    machines, told = _completed(study, which, each, known, control, end, gram, options | {"n_threads": threads})
    if told:
        _speak(told, len(machines))
    found = Machines.of(classes, strategy, machines)
    by_scale = isinstance(gamma, str) and gamma == "scale"
    warn_of_scales(X, spec.kernel, by_scale, slow=not found.converged, names=columns.names, look=look)
    return found


def _completed(
    study: Common, which: Division, each: tuple[list[Any], list[Any]], known: list[Any], control: Control,
    end: float | None, gram: FloatArray | None, options: dict[str, Any],
) -> tuple[list[Any], list[tuple[str, str]]]:  # fmt: skip
    """All machines, those that are not known one by one, and what there is to say of which."""
    lost = {k for k, machine in enumerate(known) if machine is None}
    interrupted = (lost or {len(known) - 1}) if control.reason() is Status.INTERRUPTED else set()
    machines, stopped = [], False
    told: list[tuple[str, str]] = []
    for k, (part, cost, nu, machine) in enumerate(zip(which.parts, *each, known, strict=True)):
        if machine is not None and not interrupted:
            machines.append(machine)
            if isinstance(machine, Pending) and machine.said is not None:
                told.append((part.name(study.classes), machine.said))
            continue
        machine = machine.make() if isinstance(machine, Pending) else machine
        how = {**options, "nu": nu, "time_limit": 0.0 if stopped or interrupted else _left(end)}
        with listening() as heard:
            if machine is None:
                machine = _trained(study, part, cost, gram, how)
        if k in interrupted:
            machine = replace(machine, status=Status.INTERRUPTED, converged=False)
            heard = [(f"{Status.INTERRUPTED}.", ConvergenceWarning)]
        told += [(part.name(study.classes), message) for message, kind in heard if kind is ConvergenceWarning]
        machines.append(machine)
        stopped |= machine.status in (Status.INTERRUPTED, Status.CALLBACK)
    return machines, told


def _left(end: float | None) -> float | None:
    """The seconds until then."""
    return None if end is None else max(0.0, end - time.perf_counter())


def _for_each(name: str, value: Any, n_machines: int) -> list[Any]:
    """A word's value for every machine."""
    if value is None or isinstance(value, float) or np.ndim(value) == 0:
        return [value] * n_machines
    if len(value) != n_machines:
        raise InputError(
            f"{name} holds {len(value)} values for {n_machines} machines; give one number, or one for each machine"
        )
    return [float(one) for one in value]


def _shared_gram(study: Common, threads: int) -> FloatArray | None:
    """The kernel among all points, where it is given or a Python function: calls are dear.

    Compiled kernels are faster without: a fit looks at some rows only, and copying the others takes longer than they do.
    """
    n = study.codes.size
    if study.spec.kernel.kind == KernelKind.PRECOMPUTED:
        return np.asarray(study.X)
    if study.spec.function is None or 8.0 * n * n > min(_SHARED, _SHARE * border.available_bytes()):
        return None
    with one_blas_thread:
        return whole_kernel(study.X, study.spec.kernel, study.spec.function, threads)


def _trained(study: Common, part: Sides, C: Any, gram: FloatArray | None, options: dict[str, Any]) -> Solution:
    """One machine, in terms of all rows."""
    rows = np.flatnonzero(part.holds(study.codes))
    X = study.X[rows] if gram is None else gram[np.ix_(rows, rows)]
    form = study.kernel_form() if gram is None else {"kernel": "precomputed"}
    positive = part.positive(study.codes[rows])
    found = train_svc(X, positive, C, sample_weight=study.weights[rows], **form, **options)
    support = rows[found.support]
    given = study.spec.kernel.kind == KernelKind.PRECOMPUTED
    vectors = found.support_vectors if gram is None or given else study.X[support]
    pair = len(part.minus) == 1
    terms = with_factors(found.terms, study, part) if pair else found.terms
    return replace(
        found, n_points=study.codes.size, support=support, kernel=study.spec.kernel, function=study.spec.function,
        classes=pair_of(study, part) if pair else np.array([False, True]),
        support_vectors=vectors, columns=study.columns, terms=terms, training=None,
    )  # fmt: skip


def _plan(
    names: tuple[str, ...], threads: int, kernel: Any, gamma: Any, degree: Any, coef0: Any, *values: Any
) -> tuple[Run | None, Intercept, KernelWords]:
    """How several machines are trained together, with which intercept, and with which kernel.

    No run where something is asked for that only a solver does, or `train_svc` judges.
    """
    options = dict(zip(names, values, strict=True))
    words = (options.get("intercept_scaling"), options.get("fixed_intercept"))
    bias = intercepts.wanted(options.get("fit_intercept", True), *words)
    spec = border.kernel_words(kernel, gamma, degree, coef0)
    for name, value in options.items():
        plain = value if name in _FREE else _PLAIN.get(name, _FREE)
        if value is not plain and not (type(plain) in (int, str) and value == plain):
            return None, bias, spec
    cache, seed = options.get("cache_mb"), options.get("random_state")
    most = options.get("max_iter", -1)
    run = checked_run("auto", options.get("tol", 1e-3), "kkt", most, cache, threads, None, False, seed, {})
    return run, bias, spec


def _speak(told: list[tuple[str, str]], n_machines: int) -> None:
    """One warning for all machines."""
    if all(message == MEANS_LITTLE for _, message in told):
        warn(MEANS_LITTLE, ConvergenceWarning)
    else:
        name, message = told[0]
        count = len({name for name, _ in told})
        warn(f"{count} of {n_machines} machines; {name}: {message}", ConvergenceWarning)

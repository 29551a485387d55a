"""Several classes: `train_classes` trains a machine for every pair of classes, or for every class, with one kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import new_control
from svmcore._errors import ConvergenceWarning, InputError, listening, warn
from svmcore._keywords import Gamma, KernelLike, SolverOptions, checked
from svmcore._types import FloatArray, IntArray, Kernel, KernelKind, Status
from svmcore.base.html import html_table
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.points import is_sparse, mostly_empty, narrowed, stacked
from svmcore.kernel.whole import whole_kernel
from svmcore.models import archive, solution
from svmcore.models.sigmoid import probabilities
from svmcore.models.solution import FORMATS, Solution
from svmcore.problem import border
from svmcore.problem import columns as features
from svmcore.problem import intercept as intercepts
from svmcore.problem.advice import MEANS_LITTLE
from svmcore.problem.border import KernelSpec
from svmcore.problem.columns import Columns, OfColumns
from svmcore.problem.division import STRATEGIES, Division, Sides, division
from svmcore.problem.scales import warn_of_scales
from svmcore.train.ballot import Ballot, Team
from svmcore.train.between import Common, Pending, pair_of, together, with_factors
from svmcore.train.forms import checked_points
from svmcore.train.functions import train_svc
from svmcore.train.solve import Run, checked_run

FORMAT = "svmcore-classes-2"  # 1: kernels had numbers
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

_BLOCK = 1 << 20  # kernel values held in a prediction


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
    threads = border.threads(n_threads)
    limit = border.time_limit(time_limit)
    begin, stopped = time.perf_counter(), False
    study = _study(
        X, y, (kernel, gamma, degree, coef0), standardize, feature_names, sample_weight, class_weight, options
    )
    options |= intercepts.settled(options, study.spec.kernel)  # one tau for all machines
    which = division(study.classes.size, strategy)
    gram = _shared_gram(study, threads)
    machines, told = [], []
    each = [_for_each(name, value, len(which.parts)) for name, value in (("C", C), ("nu", options.pop("nu", None)))]
    run = _run_of(which, options, threads)
    quick = together(study, gram, run) if run is not None else None
    control = new_control("fit", None if limit is None else max(0.0, limit - (time.perf_counter() - begin)), None, 0)
    known = [None] * len(which.parts) if quick is None else quick.machines(which, each[0], each[1], control)
    lost = {k for k, machine in enumerate(known) if machine is None}
    interrupted = (lost or {len(known) - 1}) if control.reason() is Status.INTERRUPTED else set()
    for k, (part, cost, nu, machine) in enumerate(zip(which.parts, *each, known, strict=True)):
        if machine is not None and not interrupted:
            machines.append(machine)
            if isinstance(machine, Pending) and machine.said is not None:
                told.append((part.name(study.classes), machine.said))
            continue
        machine = machine.make() if isinstance(machine, Pending) else machine
        left = None if limit is None else max(0.0, limit - (time.perf_counter() - begin))
        how = {**options, "nu": nu, "n_threads": threads, "time_limit": 0.0 if stopped or interrupted else left}
        with listening() as heard:
            if machine is None:
                machine = _trained(study, part, cost, gram, how)
        if k in interrupted:
            machine = replace(machine, status=Status.INTERRUPTED, converged=False)
            heard = [(f"{Status.INTERRUPTED}.", ConvergenceWarning)]
        told += [(part.name(study.classes), message) for message, kind in heard if kind is ConvergenceWarning]
        machines.append(machine)
        stopped |= machine.status in (Status.INTERRUPTED, Status.CALLBACK)
    _speak(told, len(machines))
    by_scale = isinstance(gamma, str) and gamma == "scale"
    found = Machines.of(study.classes, strategy, machines)
    warn_of_scales(study.X, study.spec.kernel, by_scale, slow=not found.converged, names=study.columns.names)
    return found


def _for_each(name: str, value: Any, n_machines: int) -> list[Any]:
    """A word's value for every machine."""
    if value is None or isinstance(value, float) or np.ndim(value) == 0:
        return [value] * n_machines
    if len(value) != n_machines:
        raise InputError(
            f"{name} holds {len(value)} values for {n_machines} machines; give one number, or one for each machine"
        )
    return [float(one) for one in value]


def _study(
    X: Any, y: Any, kernel: tuple[Any, Any, Any, Any], standardize: Any, feature_names: Any, sample_weight: Any,
    class_weight: Any, options: dict[str, Any],
) -> Common:  # fmt: skip
    """Check everything that the machines share."""
    name, gamma, degree, coef0 = kernel
    names = features.names_of(X, feature_names)
    X = checked_points(X, name)
    given = border.sample_weights(sample_weight, X.shape[0])
    columns, X = features.fitted(X, given, standardize, names, name)
    codes, classes = border.class_codes(y, X.shape[0], given)
    words = (options.get("intercept_scaling"), options.get("fixed_intercept"))
    bias = intercepts.wanted(options.get("fit_intercept", True), *words)
    spec = bias.embedded(border.kernel(name, X, gamma, degree, coef0, 0.0, given), X, given)
    factors = border.class_factors(class_weight, classes, codes, given)
    weights = factors[codes] if given is None else factors[codes] * given
    return Common(X, codes, classes, weights, spec, columns, None if class_weight is None else factors)


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


def _run_of(which: Division, options: dict[str, Any], threads: int) -> Run | None:
    """How several machines are trained together, if nothing is asked for that only a solver does, or `train_svc` judges."""
    if which.single:
        return None
    for name, value in options.items():
        plain = value if name in _FREE else _PLAIN.get(name, _FREE)
        if value is not plain and not (type(plain) in (int, str) and value == plain):
            return None
    cache, seed = options.get("cache_mb"), options.get("random_state")
    most = options.get("max_iter", -1)
    return checked_run("auto", options.get("tol", 1e-3), "kkt", most, cache, threads, None, False, seed, {})


def _speak(told: list[tuple[str, str]], n_machines: int) -> None:
    """One warning for all machines."""
    if told and all(message == MEANS_LITTLE for _, message in told):
        warn(MEANS_LITTLE, ConvergenceWarning)
    elif told:
        name, message = told[0]
        count = len({name for name, _ in told})
        warn(f"{count} of {n_machines} machines; {name}: {message}", ConvergenceWarning)


@dataclass(frozen=True, eq=False, repr=False)
class Machines(OfColumns):
    """Machines that tell two or more classes apart. Made by `train_classes`; see there for an example.

    Attributes
    ----------
    classes : the labels, sorted.
    strategy : "ovo" or "ovr".
    machines : one `Solution` for every pair of classes in the order (0, 1), (0, 2), ..., (1, 2), ...; or for every class. The
        decision value is positive for the second class of a pair, or for the class. Indices are those of all training rows.
    """

    classes: NDArray[Any]
    strategy: str
    machines: tuple[Solution, ...]

    @classmethod
    def of(cls, classes: NDArray[Any], strategy: str, machines: Sequence[Pending | Solution]) -> Machines:
        """Machines that are put together when somebody asks for them, as far as they allow that."""
        made = cls(classes, strategy, ())
        vars(made).pop("machines")
        vars(made)["_later"] = tuple(machines)
        return made

    def __getattr__(self, name: str) -> Any:
        """The machines, when they are first asked for."""
        if name != "machines" or "_later" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        vars(self)["machines"] = tuple(one.make() if isinstance(one, Pending) else one for one in vars(self)["_later"])
        vars(self).pop("_later", None)
        return vars(self)["machines"]

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled."""
        self.machines  # noqa: B018  (puts them together)
        return vars(self)

    def __repr__(self) -> str:
        what = f"{self.classes.size} classes, {self.strategy}, {len(self.machines)} machines"
        if self.status is Status.UNKNOWN:
            return f"<Machines: {what}, {self.support.size} support vectors, {self.machines[0].solver}>"
        return (
            f"<Machines: {what}, {self.support.size} of {self.n_points} support vectors, largest KKT violation "
            f"{self.kkt_violation:.1e}, {'converged' if self.converged else 'not converged'}>"
        )

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        way = "every pair of classes" if self.strategy == "ovo" else "every class against the rest"
        rows = {
            "classes": ", ".join(str(label) for label in self.classes.tolist()),
            **self.machines[0].params,
            "machines": f"{len(self):,}, one for {way} ({self.strategy})",
            "support vectors": f"{self.support.size:,} of {self.n_points:,}",
            "features": f"{self.n_features:,}",
        }
        if self.status is not Status.UNKNOWN:
            rows |= {"seconds": f"{self.fit_seconds:.3g}", "largest KKT violation": f"{self.kkt_violation:.1e}"}
        return html_table("Machines", rows | {"status": self.status})

    def __len__(self) -> int:
        return len(self.machines)

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.machines)

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """For every machine the labels at most zero and above zero stand for; None is the rest."""
        labels = self.classes.tolist()
        return [
            (labels[part.minus[0]] if len(part.minus) == 1 else None, labels[part.plus[0]])
            for part in self.division.parts
        ]

    @cached_property
    def converged(self) -> bool:
        """Whether every machine met its tolerance."""
        known = vars(self).get("_later") or self.machines  # what is put together later has met it
        return all(isinstance(one, Pending) or one.converged for one in known)

    @property
    def n_iter(self) -> IntArray:
        """Iterations of each machine."""
        return np.array([one.n_iter for one in vars(self).get("_later") or self.machines], dtype=np.int64)

    @property
    def status(self) -> Status:
        """How the runs ended: the first that did not converge, if there is one."""
        return next((machine.status for machine in self.machines if not machine.converged), self.machines[0].status)

    @property
    def kkt_violation(self) -> float:
        """The largest of all machines."""
        return max(machine.kkt_violation for machine in self.machines)

    @property
    def relative_gap(self) -> float:
        """The largest of all machines."""
        return max(machine.relative_gap for machine in self.machines)

    @property
    def fit_seconds(self) -> float:
        """The time of all machines."""
        return sum(machine.fit_seconds for machine in self.machines)

    @property
    def kernel(self) -> Kernel:
        """The kernel of all machines."""
        return self.machines[0].kernel

    @property
    def n_points(self) -> int:
        """The number of training rows."""
        return self.machines[0].n_points

    @property
    def C(self) -> float | None:
        """The penalty."""
        return self.machines[0].C

    @property
    def gamma(self) -> float | None:
        """The kernel's gamma as a number; None for a kernel without one."""
        return self.machines[0].gamma

    @property
    def columns(self) -> Columns:
        """What the machines know of the columns of their features."""
        return self.machines[0].columns

    @cached_property
    def support(self) -> IntArray:
        """The training rows that are a support vector of any machine."""
        return np.unique(np.concatenate([machine.support for machine in self.machines]))

    @cached_property
    def division(self) -> Division:
        """Which classes each machine tells apart."""
        return division(self.classes.size, self.strategy)

    def _values(self, X: Any) -> FloatArray:
        """One column per machine. Kernel values are computed once for all of them."""
        first = self.machines[0]
        apart = len(self.machines) == 1 or first.kernel.kind in (KernelKind.LINEAR, KernelKind.PRECOMPUTED)
        if apart or not self.support.size:
            return np.stack([machine.decision_function(X) for machine in self.machines], axis=1)
        return self._values_of(first.columns.apply(X))

    def _values_of(self, X: Any) -> FloatArray:
        """The same of rows as the machines see them."""
        from svmcore.path.cross import Cross

        first, vectors = self.machines[0], self.support_vectors
        if is_sparse(vectors) and is_sparse(X) and mostly_empty(vectors, X):
            vectors, X = narrowed(vectors, X)
        cross = Cross(_ClassPoints(vectors, KernelSpec(first.kernel, first.function, first.kernel_name)), X)
        columns = cross.columns(np.concatenate([team.support for team in self._teams]))
        ends = np.cumsum([0, *(team.support.size for team in self._teams)])
        constant = np.array([machine.intercept for machine in self.machines])
        out = np.empty((cross.n, len(self.machines)))
        order = np.argsort(np.concatenate([team.machines for team in self._teams]), kind="stable")
        one, *others = order.reshape(len(self.machines), -1).T  # every machine has as many teams: one, or two
        step = max(1, _BLOCK // self.support.size)
        with one_blas_thread:
            for start in range(0, cross.n, step):
                stop = min(start + step, cross.n)
                K = cross.block(np.arange(start, stop), columns)
                sums = np.concatenate(
                    [K[:, a:b] @ team.coef for team, a, b in zip(self._teams, ends[:-1], ends[1:], strict=True)], axis=1
                )
                values = sums[:, one] + constant
                for other in others:
                    values += sums[:, other]
                out[start:stop] = values
        return out

    def _places(self, X: Any) -> IntArray:
        """The class of every row, as a place among the classes."""
        first = self.machines[0]
        has_points = first.function is None and first.kernel.kind != KernelKind.PRECOMPUTED
        if len(self.machines) > 1 and has_points and self.support.size:
            seen = first.columns.apply(X)
            if Ballot.serves(self.support_vectors, seen, first.kernel):
                return self._ballot.choose(seen, self._values_of, first.n_threads)
        return self.division.choose(self._values(X))

    @cached_property
    def _ballot(self) -> Ballot:
        constants = np.array([machine.intercept for machine in self.machines])
        return Ballot(self.support_vectors, self.kernel, self._teams, constants, self.division)

    @cached_property
    def _teams(self) -> list[Team]:
        """Support vectors by the machines that they are in: with a machine for every pair, those of their class."""
        parts, every = self.division.parts, np.arange(len(self.machines))
        coef = np.zeros((self.support.size, every.size))
        code = np.zeros(self.support.size, dtype=np.int64)
        for k, (machine, part) in enumerate(zip(self.machines, parts, strict=True)):
            place = np.searchsorted(self.support, machine.support)
            coef[place, k] = machine.dual_coef
            if self.strategy == "ovo":
                code[place] = np.where(machine.dual_coef > 0.0, part.plus[0], part.minus[0])
        teams = []
        for c in range(self.classes.size if self.strategy == "ovo" else 1):
            own = np.flatnonzero(code == c)
            of = (
                every if self.strategy != "ovo" else np.array([k for k in every if c in parts[k].minus + parts[k].plus])
            )
            teams.append(Team(own, of, np.ascontiguousarray(coef[np.ix_(own, of)])))
        return teams

    @cached_property
    def support_vectors(self) -> Any:
        """The support vectors of all machines, in the order of `support`."""
        blocks = [machine.support_vectors for machine in self.machines]
        _, first = np.unique(np.concatenate([machine.support for machine in self.machines]), return_index=True)
        return stacked(blocks)[first]

    def votes(self, X: Any) -> IntArray:
        """How many machines are for each class, one row for each of X ("ovr": 1 where the class's own machine is)."""
        return self.division.votes(self._values(X))

    def decision_function(self, X: Any) -> FloatArray:
        """A score for each row and class, shape (m, k); for two classes f(x), shape (m,).

        "ovr": the value of each machine. "ovo": the votes, and less than a third of a vote for the sum of the values of the
        machines, as scikit-learn's `SVC`. The values of the pairs are those of `machines`.
        """
        return self.division.scores(self._values(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every row: most votes, or the largest value. Of equals the first class wins, as in scikit-learn."""
        return np.asarray(self.classes[self._places(X)])

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of every class (columns), for machines that were trained with ``-b 1``, here or by LIBSVM.

        The most probable class may differ from the one that `predict` names.
        """
        sigmoids = np.stack([solution.demand_sigmoid(machine) for machine in self.machines], axis=1)
        return probabilities(sigmoids, self._values(X), self.division)

    def save(self, file: Any, *, format: Literal["npz", "libsvm"] = "npz") -> None:  # noqa: A002
        """Write all machines to an .npz file, or as a model of LIBSVM ("ovo" only); `svmcore.load` reads both.

        Nothing is pickled. `Solution.save` says what a model of LIBSVM holds.
        """
        if border.choice("format", format, FORMATS) == "libsvm":
            from svmcore.models import libsvm

            libsvm.write(file, self)
        else:
            archive.write(file, self.fields())

    def fields(self) -> dict[str, Any]:
        """All machines as the arrays of a file."""
        if self.classes.dtype.kind == "O":
            raise InputError("labels of Python object type cannot be saved; train with numbers or strings")
        fields: dict[str, Any] = {
            "format": np.array(FORMAT), "strategy": np.array(self.strategy), "classes": self.classes,
            "n_machines": np.array(len(self.machines)),
        }  # fmt: skip
        for k, machine in enumerate(self.machines):
            fields |= {f"machine{k}_{name}": value for name, value in machine.fields().items()}
        return fields


class _ClassPoints(NamedTuple):
    """What `Cross` needs to know of the points on one side."""

    X: Any
    spec: KernelSpec

    @property
    def groups(self) -> Any:
        """Every point for itself."""
        return _Alone(np.arange(self.X.shape[0]))


class _Alone(NamedTuple):
    first: IntArray


def assembled(parts: dict[str, Any]) -> Machines:
    """The machines from the arrays that `Machines.save` wrote."""
    strategy, classes = str(parts["strategy"]), parts["classes"]
    if strategy not in STRATEGIES or classes.ndim != 1 or classes.size < 2:
        raise ValueError(f"it names {classes.size} classes and the strategy {strategy!r}")
    count = len(division(classes.size, strategy).parts)
    if int(parts["n_machines"]) != count:
        raise ValueError(f"it holds {int(parts['n_machines'])} machines for {classes.size} classes")
    machines = []
    for k in range(count):
        prefix = f"machine{k}_"
        own = {name.removeprefix(prefix): value for name, value in parts.items() if name.startswith(prefix)}
        machines.append(solution.assembled(own))
    return Machines(classes, strategy, tuple(machines))

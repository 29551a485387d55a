"""Answers of several classes: a machine for every pair of them, or for every class, and what their values say together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._types import FloatArray, IntArray, Kernel, KernelKind, Status
from svmcore.base.html import html_table
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.points import is_sparse, mostly_empty, narrowed, stacked
from svmcore.models import archive, solution
from svmcore.models.sigmoid import probabilities
from svmcore.models.solution import FORMATS, Solution
from svmcore.problem import border
from svmcore.problem.border import KernelSpec
from svmcore.problem.columns import Columns, OfColumns
from svmcore.problem.division import STRATEGIES, Division, division
from svmcore.train.ballot import Ballot, Team
from svmcore.train.between import Pending

FORMAT = "svmcore-classes-2"  # 1: kernels had numbers
_BLOCK = 1 << 20  # kernel values held in a prediction


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
        archive.refuse("machine", None, self.classes)
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

"""``train -b 1``: what rows that were left out say about probabilities, for the file of the machine."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from svmcore._errors import InputError, listening
from svmcore.cli.files import problem_of
from svmcore.data import Table

_OUTLIER = 5.0  # an error of more than so many standard deviations does not count, as in LIBSVM


def refuse_probability(args: argparse.Namespace) -> None:
    """Say before the work where there are none."""
    if args.probability and args.one_class:
        raise InputError("-b 1 is for classes and numbers; a machine of one class has no probabilities, leave it out")
    if args.probability and args.folds is not None:
        raise InputError("-b 1 keeps probabilities with a machine, and -v trains none to keep; leave out one of them")
    if args.probability and args.loss not in (None, "hinge", "epsilon_insensitive"):
        raise InputError(f"-b 1 is for the usual losses, hinge and epsilon_insensitive; leave out --loss {args.loss}")


def with_probabilities(
    args: argparse.Namespace, table: Table, machine: Any, trained: Callable[[argparse.Namespace, Table], Any]
) -> Any:
    """The machine, or machines, with what folds say about them."""
    from svmcore.cv import left_out

    assert table.y is not None
    n = table.X.shape[0]
    codes = np.zeros(n, dtype=np.int64) if args.svr else np.searchsorted(machine.classes, table.y)
    owner = left_out.dealt(codes, np.arange(n), 0)
    if args.svr:
        errors = np.abs(_one_by_one(args, table, machine, owner, trained)[:, 0] - table.y)
        spread = math.sqrt(2.0) * float(errors.mean())  # the standard deviation of a Laplace distribution
        return replace(machine, calibration=(float(errors[errors <= _OUTLIER * spread].mean()),))
    from svmcore.problem.division import division

    machines = getattr(machine, "machines", (machine,))
    which = division(machine.classes.size, getattr(machine, "strategy", "ovo"))
    values = _together(args, table, machine, codes, owner, which)
    if values is None:
        values = _one_by_one(args, table, machine, owner, trained)
    alone = np.flatnonzero(owner == left_out.ALWAYS)
    if alone.size:  # the only row of its class cannot be left out
        values[alone] = _values(machine, table.X[alone])
    sigmoids = left_out.sigmoids(values, codes, np.ones(n), which, args.tol)
    each = tuple(replace(one, calibration=tuple(pair)) for one, pair in zip(machines, sigmoids.T.tolist(), strict=True))
    return replace(machine, machines=each) if hasattr(machine, "machines") else each[0]


def _values(machine: Any, X: Any) -> Any:
    """The values of the machines, a column for each."""
    return machine._values(X) if hasattr(machine, "machines") else machine.decision_function(X)[:, None]


def _together(args: argparse.Namespace, table: Table, machine: Any, codes: Any, owner: Any, which: Any) -> Any:
    """Values from machines that are solved at once, where nothing is asked for that only a solver or a clock can do."""
    if args.solver != "auto" or args.time_limit is not None or args.cache_mb is not None or not machine.converged:
        return None
    from svmcore.cv import left_out
    from svmcore.problem import border, labelling

    wanted = problem_of(args, table).get("class_weight")
    factors = labelling.class_factors(wanted, machine.classes, codes, None)
    rows = left_out.DealtRows(machine.columns.apply(table.X), codes, factors[codes], owner)
    costs = [border.cost(args.C)] * len(which.parts)
    nus = None if args.nu is None else [args.nu] * len(which.parts)
    return left_out.over_matrix(rows, machine.kernel, which, costs, nus, args.tol, 1)


def _one_by_one(
    args: argparse.Namespace,
    table: Table,
    machine: Any,
    owner: Any,
    trained: Callable[[argparse.Namespace, Table], Any],
) -> Any:
    """Values from machines that are trained one by one, with the gamma of the machine of all rows."""
    from svmcore.cv import left_out

    assert table.y is not None
    y, given = table.y, args.kernel == "precomputed"
    words = argparse.Namespace(**vars(args))
    words.gamma = args.gamma if machine.gamma is None else machine.gamma
    if args.time_limit is not None:
        words.time_limit = args.time_limit / left_out.N_FOLDS

    def train(_fold: int, X: Any, rows: Any) -> tuple[Callable[[Any], Any], bool]:
        with listening():  # the machine of all rows has said what there is to say
            part = trained(words, table._replace(X=X, y=y[rows]))
        return lambda new: _values(part, new), part.status.name == "INTERRUPTED"

    return left_out.one_by_one(table.X, owner, given, train)

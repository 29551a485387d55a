"""Every branch of the block solver on small problems: thresholds are lowered, and calls counted that prove the branch.

An answer that came through a rare branch is held to what any answer is held to: it is feasible, certified at the tolerance
by the oracle, and agrees with SMO's as far as the two duality gaps allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import strategies
from engines import REFERENCE, SEVERAL_SETS, Engine, Thresholds, patched
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import cases
from test_properties import TOL, agree, answer, is_certified, is_feasible

from svmcore.compiler.jit import DISABLED
from svmcore.kernel import grams, tiles
from svmcore.kernel.columns import ColumnStore
from svmcore.solvers import _block_jit as block_jit
from svmcore.solvers import _field, block

pytestmark = pytest.mark.home

RBF = ({"kernel": "rbf", "gamma": "scale"}, {"kernel": "rbf", "gamma": 3.0}, {"kernel": "laplacian", "gamma": 0.7})
NO_SUMS = (*RBF, {"kernel": "poly", "degree": 4, "gamma": 0.5, "coef0": 1.0})  # not summed as one polynomial
PLAIN = ("svc", "svr")
COSTS = st.sampled_from([1e-3, 0.1, 1.0, 10.0, 100.0, *([] if DISABLED else [1e4])])


class At(block._BlockRun):
    """A run that begins at some level of precision."""

    first_level = _field.SINGLE

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.level = max(self.level, self.first_level)


class Mixed(At):
    first_level = _field.MIXED


class Double(At):
    first_level = _field.DOUBLE


class Narrow(ColumnStore):
    """A store with room for few columns."""

    def __init__(self, n: int, room: int, *more: Any) -> None:
        super().__init__(n, room, *more)
        self.capacity = min(self.capacity, 5)


class Branch(NamedTuple):
    """Thresholds, and the witness: an attribute that the branch calls, with what tells such a call from others."""

    thresholds: Thresholds
    witness: tuple[Any, str]
    tells: Callable[..., bool] = lambda *_: True
    kernels: Any = strategies.PSD_KERNELS
    forms: tuple[str, ...] = strategies.FORMS
    free: bool = False  # needs an equality row


COLUMNS = ((grams, {"COSTLY": 0.0}), (block, {"CROWDED": 2.0}), *SEVERAL_SETS)
SHORT_PIECES = {"LEAST_PIECE": 4, "PIECE_PER_VARIABLE": 0}
AFTER_THREE_STEPS = (block._BlockRun, {"steps_allowed": lambda run, free: 3})
BRANCHES = {
    "several sets": Branch(SEVERAL_SETS, (block._BlockRun, "choose"), lambda found, run, gauge, size: size < len(run.beta)),
    "16 bits": Branch(
        ((block, {"LEAST_HALF": 1, "HALF_ERROR": 1e-9}),),
        (tiles.DenseTiles, "gram"),
        lambda found, *_, **__: found.dtype == np.uint16,
        RBF,
        PLAIN,
    ),
    "16 bits, several sets": Branch(
        ((block, {"LEAST_HALF": 1, "HALF_ERROR": 1e-9}), *SEVERAL_SETS),
        (tiles.DenseTiles, "gram"),
        lambda found, *_, **__: found.dtype == np.uint16,
        RBF,
        PLAIN,
    ),
    "K kept": Branch(((grams, {"COSTLY": 0.0}),), (tiles.DenseTiles, "_add_kept"), kernels=NO_SUMS),
    "K kept, several sets": Branch(
        ((grams, {"COSTLY": 0.0}), (block, {"CROWDED": 0.0}), *SEVERAL_SETS),
        (grams, "_gathered"),
        kernels=NO_SUMS,
    ),
    "columns": Branch(
        COLUMNS, (tiles.DenseTiles, "_gram_of_columns"), kernels=NO_SUMS
    ),
    "columns, little room": Branch(
        ((tiles, {"ColumnStore": Narrow}), *COLUMNS), (tiles.DenseTiles, "_add_columns"), kernels=NO_SUMS
    ),
    "columns, 16 bits": Branch(
        ((block, {"LEAST_HALF": 1, "HALF_ERROR": 1e-9}), *COLUMNS),
        (tiles.DenseTiles, "_gram_of_columns"),
        lambda found, *_, **__: found.dtype == np.uint16,
        RBF,
        PLAIN,
    ),
    "columns in float64": Branch(
        ((block, {"_BlockRun": Mixed}), *COLUMNS),
        (tiles.DenseTiles, "_gram_of_columns"),
        lambda found, tiles, store, *_: store.dtype == np.float64,
        kernels=NO_SUMS,
    ),
    "columns too coarse": Branch(
        ((_field, {"ROUNDING": 1.0}), *COLUMNS), (block._BlockRun, "refresh"), kernels=NO_SUMS
    ),
    "K kept, 16 bits": Branch(
        ((grams, {"COSTLY": 0.0}), (block, {"CROWDED": 0.0, "LEAST_HALF": 1, "HALF_ERROR": 1e-9}), *SEVERAL_SETS),
        (grams, "_gathered"),
        lambda found, *_: found.dtype == np.uint16,
        RBF,
        PLAIN,
    ),
    "conjugate steps": Branch(((block, SHORT_PIECES),), (block_jit, "conjugate_steps"), free=True),
    "face steps": Branch((AFTER_THREE_STEPS,), (block, "face_step")),
    "face steps, several sets": Branch((AFTER_THREE_STEPS, *SEVERAL_SETS), (block, "face_step")),
    "float64 products": Branch(
        ((block, {"_BlockRun": Mixed}),), (tiles.DenseTiles, "add_exactly")
    ),
    "float64 products, several sets": Branch(
        ((block, {"_BlockRun": Mixed}), *SEVERAL_SETS), (tiles.DenseTiles, "add_exactly")
    ),
    "float64 blocks": Branch(
        ((block, {"_BlockRun": Double}),),
        (tiles.DenseTiles, "gram"),
        lambda found, *_, **__: found.dtype == np.float64,
    ),
    "float64 blocks, several sets": Branch(
        ((block, {"_BlockRun": Double}), *SEVERAL_SETS),
        (tiles.DenseTiles, "gram"),
        lambda found, *_, **__: found.dtype == np.float64,
    ),
    "doubt": Branch(
        ((_field, {"ROUNDING": 1.0, "ROUNDING_64": 1.0}),), (block._BlockRun, "refresh"), kernels=NO_SUMS
    ),
    "sums of polynomials": Branch(
        (), (tiles, "add_form"), kernels=({"kernel": "poly", "degree": 3, "gamma": 0.5, "coef0": 1.0},)
    ),
}  # fmt: skip


RARE = "columns too coarse"  # in one of a hundred examples


@pytest.fixture
def branch(request: pytest.FixtureRequest) -> Iterator[Branch]:
    """A branch with its thresholds lowered for all examples of a property; it must have run in some of them."""
    chosen = BRANCHES[request.param]
    where, name = chosen.witness
    original, calls = getattr(where, name), []

    def counted(*arguments: Any, **more: Any) -> Any:
        found = original(*arguments, **more)
        calls.append(chosen.tells(found, *arguments, **more))
        return found

    with patched((*chosen.thresholds, (where, {name: counted}))):
        yield chosen
    assert any(calls) or settings.default.max_examples < 50  # a few examples may miss a rare branch


PAIRED = {name for name in BRANCHES if ", " in name}
"""Two branches at once: for the gate."""


@pytest.mark.parametrize(
    "branch",
    [pytest.param(name, marks=pytest.mark.ci if name in PAIRED else ()) for name in BRANCHES if name != RARE],
    indirect=True,
)
@given(data=st.data())
def test_answers_of_a_branch_are_certified(branch, data):
    answers_are_certified(branch, data)


@pytest.mark.ci
@pytest.mark.parametrize("branch", [RARE], indirect=True)
@settings(max_examples=10 * settings.default.max_examples)
@given(data=st.data())
def test_answers_of_a_rare_branch_are_certified(branch, data):
    answers_are_certified(branch, data)


def answers_are_certified(branch, data):
    case = data.draw(cases(branch.forms, branch.kernels, COSTS, n=(2, 14 if DISABLED else 60)))
    case = case.but(fit_intercept=True, intercept_scaling=None) if branch.free else case
    found = answer(case, Engine("block"), tol=TOL)
    is_certified(found, TOL)
    is_feasible(found)
    agree(found, answer(case, REFERENCE))

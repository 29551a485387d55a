"""One cross-validation on its way: rounds of paths side by side, and what is kept of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import CostWarning, StoppedError, warn
from svmcore._types import FloatArray
from svmcore.base.parallel import run_all
from svmcore.cv.estimate import SLOW, estimate
from svmcore.cv.folds import Fold
from svmcore.cv.gammas import Fixed
from svmcore.cv.goals import HINGE
from svmcore.cv.grams import Gram, Grams
from svmcore.cv.means import Curves, best_of, equals_of
from svmcore.cv.members import PathOfAll, PathTask, Result, Study, finish_fold, last_weight, run_task
from svmcore.cv.progress import SharedProgress
from svmcore.cv.scores import Score
from svmcore.kernel.matrix import available_threads

_WARN_GAP = 1e-6  # relative gap of a fold's path above which the fold counts as loose

_LARGE = 6000
"""Rows from which on the cost of exact paths is estimated first."""

Results = dict[float | None, list[Result]]


class FoundCurves(NamedTuple):
    """Curves by gamma, increasing; figures; and "done", or why it ended early."""

    curves: list[Curves]
    stats: dict[str, Any]
    ended: str


class Job(NamedTuple):
    """What is to be done, and by how many workers.

    `loo`: the folds leave out one row each, and the path of all rows is theirs, too, where that row has no weight.
    """

    study: Study
    folds: list[Fold]
    score: Score
    progress: SharedProgress
    n_jobs: int | None
    workers: int
    loo: bool

    def run(self, plan: Fixed) -> FoundCurves:
        """All rounds."""
        curves: dict[float | None, Curves] = {}
        gaps: list[float] = []
        wanted = plan.first()
        n_gammas = 0 if self.study.form["standardize"] else len(wanted)
        grams = Grams(self.study.X, max(1, available_threads() // self.workers), n_gammas, self.study.codes)
        with self.progress:
            while wanted and not self.progress.ended():
                results = self._round(wanted, grams)
                gaps += [r.max_gap for each in results.values() for r in each]
                codes = self.study.codes
                curves |= {
                    gamma: Curves(
                        gamma,
                        [self.score.curve(r.outcome, codes, r.member.test, r.C_range) for r in each],
                        [r.member for r in each],
                    )
                    for gamma, each in results.items()
                    if each
                }
                curves, least = _pruned(curves)
                wanted = plan.more(least) if least else []
        if not curves:
            self._nothing()
        stats = {"n_gammas": len(curves), "max_gap": max(gaps), "n_loose": sum(gap > _WARN_GAP for gap in gaps)}
        return self._found(curves, stats)

    def _found(self, curves: dict[float | None, Curves], stats: dict[str, Any]) -> FoundCurves:
        progress = self.progress
        stats |= {
            "n_paths": progress.n_done, "n_planned": progress.n_paths, "seconds": progress.control.seconds,
            "n_folds": max(len(each.scores) for each in curves.values()),
        }  # fmt: skip
        best = best_of({gamma: each.least for gamma, each in curves.items()})
        curves = {gamma: each if gamma == best else each.without_machines() for gamma, each in curves.items()}
        ordered = sorted(curves.values(), key=lambda each: -1.0 if each.gamma is None else each.gamma)
        return FoundCurves(ordered, stats, progress.reason or "done")

    def run_exact(self, plan: Fixed) -> FoundCurves:
        """The exact curves; where these will take long, a sentence says so first, and what would be quicker."""
        if self.study.n > _LARGE and not self.loo and self.study.goal.loss == HINGE:
            with self.progress:
                costs = estimate(self.study, plan.first()[0], self.folds)
            about = (
                f"the exact paths of {len(self.folds)} folds take about {costs.seconds:,.0f} s of one processor a gamma"
            )
            margin = f"with {costs.elbow:,.0f} points on the margin"
            if costs.too_large:
                warn(
                    f"{about}, {margin}, whose matrix may not fit into memory. Remedy: a smaller C_max, or a sample of the "
                    "rows.",
                    CostWarning,
                )
            elif costs.seconds > SLOW:
                warn(
                    f"{about}, or longer, {margin}. Remedy: a smaller C_max, a sample of the rows, fewer folds, or n_jobs. "
                    "Ctrl-C and time_limit keep the folds that are complete.",
                    CostWarning,
                )
        return self.run(plan)

    def _nothing(self) -> None:
        if self.progress.reason == "interrupted":
            raise KeyboardInterrupt
        raise StoppedError(
            f"the cross-validation ended ({self.progress.reason}) before the first of {len(self.folds)} folds was complete; "
            "raise time_limit, lower C_max, or use fewer rows"
        )

    def _round(self, gammas: list[float | None], grams: Grams) -> Results:
        """The complete folds of every gamma."""
        study, parts = self.study, self.study.division.parts
        users = (len(self.folds) + self.loo) * len(parts) + (0 if study.decides else len(self.folds))
        for gamma in gammas:
            grams.announce(gamma, users)
        tasks = self._tasks(gammas)
        if self.loo:
            tasks = self._completed(gammas, tasks, grams)
        kernels = {gamma: Gram(grams, gamma, study.spec(gamma)) for gamma in gammas}
        arguments = [(study, self.score, task, kernels[task.gamma], self.progress) for task in tasks]
        every = self.progress.gathered(run_task, arguments, self.n_jobs, [task.number for task in tasks])
        whole, gamma_of = [], []
        for first in range(0, len(tasks), len(parts)):
            machines = every[first : first + len(parts)]
            if all(machine is not None for machine in machines):
                gamma_of.append(tasks[first].gamma)
                whole.append((study, tasks[first].fold, machines, kernels[gamma_of[-1]]))
        found: Results = {gamma: [] for gamma in gammas}
        for gamma, result in zip(gamma_of, run_all(finish_fold, whole, self.n_jobs), strict=True):
            found[gamma].append(result)
        return found

    def _tasks(self, gammas: list[float | None]) -> list[PathTask]:
        study, parts = self.study, self.study.division.parts
        begin = self.progress.more(len(gammas) * len(self.folds) * len(parts))
        every = [(gamma, fold, part) for gamma in gammas for fold in self.folds for part in parts]
        return [
            PathTask(begin + j, gamma, fold, part, study.span.low / study.ratio(fold.train))
            for j, (gamma, fold, part) in enumerate(every)
        ]

    def _completed(self, gammas: list[float | None], tasks: list[PathTask], grams: Grams) -> list[PathTask]:
        """Leave one out: the paths of all rows say which rows matter, and up to which C."""
        study = self.study
        every = np.arange(study.n)
        low = min(task.low for task in tasks)
        rests: dict[Any, tuple[PathOfAll, FloatArray]] = {}
        for gamma in gammas:
            for part in study.division.parts:
                whole = PathTask(self.progress.more(1), gamma, Fold(every, every), part, low)
                kernel = Gram(grams, gamma, study.spec(gamma))
                result = run_task(study, self.score, whole, kernel, self.progress)
                if result is None:
                    return []
                rest = PathOfAll(result.strand.whole, result.strand.rows, result.outcome, 0.0)
                rests[gamma, part] = rest, last_weight(result.strand, study.n)
        out = []
        for task in tasks:
            rest, until = rests[task.gamma, task.part]
            at = float(until[task.fold.test[0]])
            at = at if at > rest.path.C_range[0] else 0.0
            low = max(task.low, 1.0 / at) if at > 0.0 else task.low
            out.append(task._replace(low=low, rest=rest._replace(until=at)))
        return out


def _pruned(curves: dict[float | None, Curves]) -> tuple[dict[float | None, Curves], dict[float | None, float]]:
    """Of several gammas those with most folds, with machines where the score is least; and the least score of each."""
    most = max((len(each.scores) for each in curves.values()), default=0)
    kept = {gamma: each for gamma, each in curves.items() if len(each.scores) == most}
    least = {gamma: each.least for gamma, each in kept.items()}
    equal = equals_of(least) if least else []
    return {gamma: each if gamma in equal else each.without_machines() for gamma, each in kept.items()}, least

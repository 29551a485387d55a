"""One cross-validation on its way: rounds of paths side by side, and what is kept of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import InputError
from svmcore.cv.band import band_of
from svmcore.cv.folds import Fold
from svmcore.cv.gammas import Fixed
from svmcore.cv.grams import Grams
from svmcore.cv.members import Rest, Result, Study, Task, last_weight, run_task
from svmcore.cv.progress import Progress
from svmcore.cv.result import Curves, best_of, equals_of
from svmcore.cv.scores import Score
from svmcore.kernel.matrix import available_threads
from svmcore.parallel import run_all

_WARN_GAP = 1e-6

Results = dict[float | None, list[Result]]


class Found(NamedTuple):
    """Curves by gamma, increasing; figures; and "done", or why it ended early."""

    curves: list[Curves]
    stats: dict[str, Any]
    ended: str


class Job(NamedTuple):
    """What is to be done, and by how many workers. `loo`: the folds leave out one row each."""

    study: Study
    folds: list[Fold]
    score: Score
    progress: Progress
    n_jobs: int | None
    workers: int
    loo: bool

    def run(self, plan: Fixed) -> Found:
        """All rounds."""
        curves: dict[float | None, Curves] = {}
        gaps: list[float] = []
        wanted = plan.first()
        n_gammas = 0 if self.study.form["standardize"] else len(wanted)
        grams = Grams(self.study.X, max(1, available_threads() // self.workers), self.workers, n_gammas)
        with self.progress.control:
            while wanted and not self.progress.ended():
                results = self._round(wanted, grams)
                gaps += [r.max_gap for each in results.values() for r in each]
                curves |= {gamma: self._curves(gamma, each) for gamma, each in results.items() if each}
                curves, least = _pruned(curves)
                wanted = plan.more(least)
        if not curves:
            self._nothing()
        stats = {"n_gammas": len(curves), "max_gap": max(gaps), "n_loose": sum(gap > _WARN_GAP for gap in gaps)}
        return self._found(curves, stats)

    def _found(self, curves: dict[float | None, Curves], stats: dict[str, Any]) -> Found:
        progress = self.progress
        stats |= {
            "n_paths": progress.n_done, "n_planned": progress.n_paths, "seconds": progress.control.seconds,
            "n_folds": max(len(each.scores) for each in curves.values()),
        }  # fmt: skip
        best = best_of({gamma: each.least for gamma, each in curves.items()})
        curves = {gamma: each if gamma == best else each._replace(members=None) for gamma, each in curves.items()}
        ordered = sorted(curves.values(), key=lambda each: -1.0 if each.gamma is None else each.gamma)
        return Found(ordered, stats, progress.reason or "done")

    def run_bands(self, plan: Fixed, eps: float) -> Found:
        """A certified band for every gamma."""
        curves: dict[float | None, Curves] = {}
        wanted, complete = plan.first(), True
        with self.progress.control:
            while wanted and not self.progress.ended():
                for gamma in wanted:
                    band, certain = band_of(self.study, self.score, gamma, self.folds, eps, self.progress)
                    complete &= certain
                    if band is not None:
                        bounds = band.lower, band.upper
                        curves[gamma] = Curves(gamma, list(band.scores), band.supports, band.members, bounds, band.Cs)
                curves, least = _pruned(curves)
                wanted = plan.more(least) if least else []
        if not curves:
            self._nothing()
        stats = {"n_gammas": len(curves), "n_fits": self.progress.n_done, "eps": eps, "certified": complete}
        return self._found(curves, stats | {"max_gap": 0.0, "n_loose": 0})

    def _nothing(self) -> None:
        if self.progress.reason == "interrupted":
            raise KeyboardInterrupt
        raise InputError(
            f"the cross-validation ended ({self.progress.reason}) before the first of {len(self.folds)} folds was complete; "
            "raise time_limit, lower C_max, or use fewer rows"
        )

    def _round(self, gammas: list[float | None], grams: Grams) -> Results:
        """The complete folds of every gamma."""
        k = len(self.folds)
        for gamma in gammas:
            grams.announce(gamma, k + self.loo)
        tasks = self._tasks(gammas)
        if self.loo:
            tasks = self._completed(gammas, tasks, grams)
        every = list(
            run_all(run_task, [(self.study, self.score, task, grams, self.progress) for task in tasks], self.n_jobs)
        )
        found: Results = {gamma: [] for gamma in gammas}
        for task, result in zip(tasks, every, strict=True):
            if result is not None:
                found[task.gamma].append(result)
        return found

    def _tasks(self, gammas: list[float | None]) -> list[Task]:
        study = self.study
        begin = self.progress.more(len(gammas) * len(self.folds))
        pairs = [(gamma, fold) for gamma in gammas for fold in self.folds]
        return [
            Task(begin + j, gamma, fold, study.span.low / study.ratio(fold.train))
            for j, (gamma, fold) in enumerate(pairs)
        ]

    def _completed(self, gammas: list[float | None], tasks: list[Task], grams: Grams) -> list[Task]:
        """Leave one out: the path of all rows says which rows matter, and up to which C."""
        every = np.arange(self.study.n)
        low = min(task.low for task in tasks)
        rests: dict[float | None, Rest] = {}
        for gamma in gammas:
            whole = Task(self.progress.more(1), gamma, Fold(every, every), low)
            result = run_task(self.study, self.score, whole, grams, self.progress)
            if result is None or result.member.path is None:
                return []
            rests[gamma] = Rest(result.member.path, result.outcome, 0.0)
        until = {gamma: last_weight(rest.path) for gamma, rest in rests.items()}
        out = []
        for task in tasks:
            rest = rests[task.gamma]
            at = float(until[task.gamma][task.fold.test[0]])
            at = at if at > rest.path.C_range[0] else 0.0
            low = max(task.low, 1.0 / at) if at > 0.0 else task.low
            out.append(task._replace(low=low, rest=rest._replace(until=at)))
        return out

    def _curves(self, gamma: float | None, results: list[Result]) -> Curves:
        codes = self.study.codes
        return Curves(
            gamma,
            [self.score.curve(r.outcome, codes, r.member.test, r.C_range) for r in results],
            [r.support for r in results],
            [r.member for r in results],
        )


def _pruned(curves: dict[float | None, Curves]) -> tuple[dict[float | None, Curves], dict[float | None, float]]:
    """Of several gammas those with most folds, with machines where the score is least; and the least score of each."""
    most = max((len(each.scores) for each in curves.values()), default=0)
    kept = {gamma: each for gamma, each in curves.items() if len(each.scores) == most}
    least = {gamma: each.least for gamma, each in kept.items()}
    equal = equals_of(least) if least else []
    return {gamma: each if gamma in equal else each._replace(members=None) for gamma, each in kept.items()}, least

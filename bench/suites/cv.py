"""Tuning C: five folds, by a grid of twenty values or for every C at once; judged by the errors they find."""

from __future__ import annotations

import warnings

import numpy as np

from bench import clock
from bench.contest import Context
from bench.peers.tuners import OursWarm, tuners
from bench.problems import Problem
from bench.suite import Suite

CASES = [Problem("clusters-500-10"), Problem("clusters-1000-20"), Problem("checkerboard", gamma=10.0)]
FOLDS = 5
COSTS = np.logspace(-2, 2, 20)


def run(context: Context) -> None:
    for problem in CASES:
        folds = 1 + np.random.default_rng(0).permutation(problem.n) % FOLDS
        works = {}
        with clock.threads(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for tuner in tuners():
                if not context.wants(tuner.name):
                    continue
                if why := tuner.missing():
                    context.skip("cv", tuner.name, why)
                    continue
                if problem.n > tuner.most_points:
                    context.skip("cv", tuner.name, f"more than {tuner.most_points} points", problem.name)
                    continue
                works[tuner.name] = tuner.prepare(problem, COSTS, folds, 1e-3)
            first = {name: clock.once(work) for name, work in works.items()}
            rounds = clock.rounds_for(20.0, sum(wall for _, wall, _ in first.values()), most=7)
            times, scores = clock.alternate(works, rounds)
        ours = np.sign(scores[OursWarm.name])
        for name, took in times.items():
            errors = np.mean(np.sign(scores[name]) != problem.y, axis=1)
            best = int(errors.argmin())
            measured = {
                "best_error": errors[best],
                "best_C": COSTS[best],
                "disagree": float(np.mean(np.sign(scores[name]) != ours)),
            }
            context.results.add(
                {
                    "kind": "row", "suite": "cv", "group": "", "problem": problem.described(), "solver": name,
                    "mode": "tol", "tol": 1e-3, "threads": 1, "asked": 1e-3, "score": measured,
                    "met": measured["disagree"] < 0.005, "wall": took.wall, "cpu": took.cpu,
                }
            )  # fmt: skip
        context.say(f"  {problem.name}: " + ", ".join(f"{name} {min(took.cpu):.3g} s" for name, took in times.items()))


SUITE = Suite("cv", "tuning C: 5 folds x 20 values", 6, run)

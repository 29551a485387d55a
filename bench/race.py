"""The one way in which suites time works that are not problems of `contest`: in turns, judged, a record for every side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from bench import clock
from bench.contest import Context

_ONCE = 3.0  # seconds of a call that is not repeated

Answers = Mapping[str, Any]
Judge = Callable[[str, Answers], tuple[bool, dict[str, Any]]]


def _nothing(who: str, answers: Answers) -> tuple[bool, dict[str, Any]]:
    return True, {}


def agreeing(ours: str, agree: Callable[[Any, Any], bool]) -> Judge:
    """A judge who asks whether somebody's answer says the same as ours."""
    return lambda who, answers: (ours not in answers or agree(answers[who], answers[ours]), {})


def race(
    context: Context, suite: str, group: str, problem: dict[str, Any], works: Mapping[str, Callable[[], Any]], *,
    judge: Judge = _nothing, seconds: float = 3.0, least: int = 2, threads: int = 1, calls: int = 1,
    each: float = 1.0, once: bool = False, tol: float = 1e-3,
) -> dict[str, float]:  # fmt: skip
    """Time the works that are wanted; return seconds by name.

    `judge` says whether somebody's answer is one, and what to keep of it. `calls` is how many calls a work makes; `each`
    multiplies its seconds. A first call is not timed, since it loads machine code, unless it is long or the only one: `once`.
    """
    name = ", ".join(dict.fromkeys(word for word in (group, problem["name"]) if word))
    if context.out_of_time():
        context.skip(suite, "everybody", "the suite's time was up", name)
        return {}
    works = {who: work for who, work in works.items() if context.wants(who)}
    with clock.threads(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = {}
        for who, work in list(works.items()):
            try:
                first[who] = clock.once(work)
            except Exception as error:  # a peer that fails is a result
                if who.startswith("svmcore"):
                    raise
                context.skip(suite, who, f"failed: {type(error).__name__}: {error}", name)
        short = {who: works[who] for who, (_, wall, _) in first.items() if wall < _ONCE and not (once or context.tiny)}
        one_round = sum(first[who][1] for who in short)
        times, answers = clock.alternate(short, clock.rounds_for(seconds, one_round, least=least))
        for who in first.keys() - short.keys():
            answers[who], wall, cpu = first[who]
            times[who] = clock.Times([wall], [cpu])
        judged = {who: judge(who, answers) for who in first}
    spent, said = {}, []
    for who in first:
        took = times[who].shared(calls / each)
        met, score = judged[who]
        context.record(suite, group, problem, who, took, met=met, score=score, threads=threads, tol=tol)
        spent[who] = min(took.cpu if threads == 1 else took.wall)
        said.append(f"{who} {spent[who]:.3g} s{'' if met else ' (another answer)'}")
    context.say(f"  {name}: {', '.join(said)}")
    return spent

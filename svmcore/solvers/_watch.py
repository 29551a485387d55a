"""What the block solver notices on its way: outer steps that have stopped helping, and those that do harm."""

from __future__ import annotations

from svmcore._types import NONZERO, FloatArray
from svmcore.simd.vector import BIG
from svmcore.solvers._contract import Crawl

# When to raise the precision: after PATIENCE outer steps in which the violation has not fallen by a tenth, nor the
# objective by the share PROGRESS. Rounding may raise the objective by the share RISE.
PATIENCE = 12
PROGRESS = 1e-6
RISE = 1e-6

# When a run crawls: the violation has not halved, and meanwhile the objective has not fallen by the share CRAWL. A face step
# follows. After MOST_CRAWLS of them in a row the run ends.
CRAWL = 1e-3
MOST_CRAWLS = 6


class Watch:
    """Notices when outer steps stop helping, and when they do harm."""

    def __init__(self, crawl: Crawl, n: int) -> None:
        self.crawl, self.n = crawl, n
        self.level = BIG
        self.crawled = 0
        self.begun = (0, 0)  # how many pair steps and outer steps there were before this stretch
        self.forget()

    def forget(self) -> None:
        """Start afresh. It is called after a change of method."""
        self.best = self.lowest = BIG
        self.idle = 0
        self.safe: FloatArray | None = None

    def harmed(self, objective: float, beta: FloatArray) -> bool:
        """Whether the objective has risen. The best point so far is kept."""
        if objective <= self.lowest:
            self.safe = beta.copy()
        return objective > self.lowest + RISE * abs(self.lowest) + NONZERO

    def idles(self, violation: float, objective: float) -> bool:
        """Whether neither the violation nor the objective has moved for a while."""
        moved = violation < 0.9 * self.best or objective < self.lowest - PROGRESS * abs(self.lowest)
        self.idle = 0 if moved else self.idle + 1
        self.best, self.lowest = min(self.best, violation), min(self.lowest, objective)
        return self.idle > PATIENCE

    def crawls(self, violation: float, objective: float, steps: int, outer: int) -> bool:
        """Whether the violation has not halved over many pair steps or outer steps.

        Thousands of variables may move to their bounds, working set by working set. Then the violation stays where it is, but
        the objective falls. That counts as progress.
        """
        if not self.crawl.seen(violation, steps + self.n * outer):
            return False
        moved = objective < self.level - CRAWL * abs(self.level)
        self.crawled = 0 if moved else self.crawled + 1
        self.level = min(self.level, objective)
        by_sets = self.n * (outer - self.begun[1]) > steps - self.begun[0]
        self.begun = steps, outer
        return not (moved and by_sets) or self.endless

    @property
    def endless(self) -> bool:
        """Whether the run has crawled for long without a change of the objective, or for too long in all."""
        return self.crawled > MOST_CRAWLS or self.crawl.endless

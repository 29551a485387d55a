"""Whether a path makes way. Every loop down a path asks here, so that every path ends.

Work is counted in events, those of repairs included. Way pays for it: the more the linear term falls, the more work there may
be. A place of the path may take some work that nothing has paid for yet, because many points may be tied there.
"""

from __future__ import annotations

import math

STALLED = "stalled"
"""Why a path ended that made no more way."""
_PER_POINT, _MORE = 40, 4000
"""At one place there may be so much work per variable, and so much more."""
PAID = 20.0
"""Where the linear term falls by a factor of e, it pays for so many times that work, unless somebody says another number."""
_WAY = 1e-6
"""A share of the linear term. A place that is nearer to another one is hardly another one."""
_TROUBLE = 0.2
"""What cannot be repaired at once counts as this share of the work that a place may take."""


class Headway:
    """The work that nothing has paid for yet. `size` is always the present size of the linear term."""

    def __init__(self, n: int, size: float, paid: float = PAID) -> None:
        self.paid = paid
        self.most = _PER_POINT * n + _MORE
        self.size = self.place = size
        self.work = 0.0

    def stalled(self, size: float, work: float, trouble: bool = False) -> bool:
        """Whether, with `work` more, too much of it is not paid for."""
        if size < self.size:
            self.work -= self.paid * self.most * (math.log(self.size / size) if size > 0.0 else math.inf)
            self.size = size
        self.work = max(self.work, 0.0) + work + _TROUBLE * self.most * trouble
        return self.work > self.most

    def moved(self, size: float) -> bool:
        """Whether this is another place than the last one for which the answer was yes."""
        if size < (1.0 - _WAY) * self.place:
            self.place = size
            return True
        return False

"""One test for many seeds: thousands of tests of a millisecond take longer to name and to set up than to run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def seeds(values: int | Iterable[int]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each of these seeds, or for so many of them; a failure says which one it was."""
    every = range(values) if isinstance(values, int) else tuple(values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def each(**others: Any) -> None:
            for seed in every:
                try:
                    test(seed=seed, **others)
                except BaseException as error:
                    error.add_note(f"seed = {seed}")
                    raise

        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name != "seed"]
        each.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return each

    return decorate

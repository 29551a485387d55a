"""One test for many values: thousands of tests of a millisecond take longer to name and to set up than to run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def each(name: str, values: Iterable[Any] | Callable[[Any], Iterable[Any]]) -> Callable[[Test], Test]:
    """Run a test for each value of an argument; a failure says which one it was. A function tells them from the others."""
    fixed = None if callable(values) else tuple(values)

    def decorate(test: Test) -> Test:
        def every(**others: Any) -> None:
            for value in values(*others.values()) if callable(values) else fixed or ():
                try:
                    test(**others, **{name: value})
                except BaseException as error:
                    error.add_note(f"{name} = {value!r}")
                    raise

        signature = inspect.signature(test)
        rest = [parameter for key, parameter in signature.parameters.items() if key != name]
        every.__name__, every.__doc__, every.__module__ = test.__name__, test.__doc__, test.__module__
        vars(every).update(vars(test), __signature__=signature.replace(parameters=rest))
        return every

    return decorate


def seeds(values: int | Iterable[int]) -> Callable[[Test], Test]:
    """Run a test for each of these seeds, or for so many of them."""
    assert not callable(values), "@seeds(6), say"
    return each("seed", range(values) if isinstance(values, int) else values)


def brief(value: Any) -> str:
    """The name of a parameter: the beginning of its words."""
    text = " ".join(str(value).split())
    return text if len(text) <= 50 else f"{text[:47]}..."

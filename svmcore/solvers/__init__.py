"""The solvers by name. A new solver is a file here and a line in `_MODULES`.

The package can be called: ``svmcore.solvers()`` maps every solver's name to what it can do.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

from svmcore._errors import InputError
from svmcore.problem import border
from svmcore.solvers._contract import Capabilities

_MODULES = {
    "small": "svmcore.solvers.small",
    "smo": "svmcore.solvers.smo",
    "block": "svmcore.solvers.block",
    "interior": "svmcore.solvers.interior",
    "newton": "svmcore.solvers.newton",
    "coordinate": "svmcore.solvers.coordinate",
    "adatron": "svmcore.solvers.adatron",
    "chunking": "svmcore.solvers.chunking",
    "decomposition": "svmcore.solvers.decomposition",
    "npa": "svmcore.solvers.npa",
    "rosen": "svmcore.solvers.rosen",
    "rosen-cg": "svmcore.solvers.rosen:Conjugate",
    "simple": "svmcore.solvers.simple",
}

AUTO = "auto"
AUTOMATIC = ("small", "newton", "interior", "block", "smo")
"""The solvers that "auto" may run (`svmcore.train.auto`)."""


def names() -> tuple[str, ...]:
    """Every solver's name."""
    return tuple(_MODULES)


def load(name: str) -> Any:
    """The module of a solver. A name may also stand for a class inside of a module."""
    if name not in _MODULES:
        raise InputError(f"solver={name!r} is not known; choose one of {', '.join(map(repr, (AUTO, *_MODULES)))}")
    module, _, part = _MODULES[name].partition(":")
    found = importlib.import_module(module)
    return getattr(found, part) if part else found


@functools.cache
def options(name: str) -> dict[str, inspect.Parameter]:
    """The options that only this solver has."""
    parameters = inspect.signature(load(name).run).parameters
    return {key: parameter for key, parameter in parameters.items() if key != "task"}


def accepted(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Those of the given options that the solver has. "auto" hands every option to the solvers that have it."""
    return {key: value for key, value in given.items() if key in options(name)} if given else given


def check_options(name: str, given: dict[str, Any]) -> None:
    """Refuse an option that the solver does not have, or a value that it cannot take. The message names it.

    The type of an option is its annotation in `run`. "auto" has the options of all solvers that it may run.
    """
    candidates = AUTOMATIC if name == AUTO else (name,)
    for key, value in given.items():
        owner = next((each for each in candidates if key in options(each)), None)
        if owner is None:
            raise _refusal(name, key)
        _check_value(owner, key, value)
    if name != AUTO:
        load(name)


def _refusal(name: str, key: str) -> InputError:
    known = [option for each in (AUTOMATIC if name == AUTO else (name,)) for option in options(each)]
    has = f"its options are {', '.join(known)}" if known else "it has no options of its own"
    owners = [repr(each) for each in _MODULES if key in options(each)]
    hint = f"; solver={' or '.join(owners)} has it" if owners else ""
    return InputError(f"solver {name!r} has no option {key!r}; {has}{hint}")


def _check_value(name: str, key: str, value: Any) -> None:
    """Refuse a value that an option of a solver cannot take."""
    known, values = options(name), getattr(load(name), "OPTION_VALUES", {})
    kind = str(known[key].annotation)
    if value is None and "None" in kind:
        return
    if key in values:
        if isinstance(values[key], tuple):
            border.choice(key, value, values[key])
        elif value not in values[key]:
            raise InputError(f"{key}={value!r} cannot be used by solver {name!r}; it must be {values[key]}")
    elif kind.startswith("bool"):
        border.flag(key, value)
    elif kind.startswith("int"):
        border.integer(key, value, low=0)
    elif kind.startswith("float"):
        border.number(key, value)


def check_lengths(name: str, given: dict[str, Any], n: int) -> None:
    """Refuse an option with one value for each point, if the number of training points is another."""
    values = getattr(load(name), "OPTION_VALUES", {})
    for key, value in given.items():
        if getattr(values.get(key), "per_point", False) and hasattr(value, "__len__") and len(value) != n:
            raise InputError(
                f"{key} holds {len(value)} values for {n} training points; give one for each, or one for all"
            )


def capabilities() -> dict[str, Capabilities]:
    """What every solver can do."""
    return {name: load(name).CAPABILITIES for name in _MODULES}


class CallablePackage(ModuleType):
    """Lets users type ``svmcore.solvers()``."""

    def __call__(self) -> dict[str, Capabilities]:
        """What each solver can do."""
        return capabilities()


sys.modules[__name__].__class__ = CallablePackage

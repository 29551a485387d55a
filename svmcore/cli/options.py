"""Options of the command line that are made from the library's own tables: those of solvers, and of the published path."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from svmcore._errors import InputError
from svmcore._keywords import SolverOptions
from svmcore.path.options import PublishedOptions

DEMO_PICTURE = "svmcore-demo.png"


def add_of_solvers(parser: argparse.ArgumentParser) -> None:
    """The options that solvers have of their own."""
    group = parser.add_argument_group(
        "options of solvers",
        "Which solver has which is in docs/solvers.md; one that lacks an option refuses it by name.",
    )
    _add(group, "solver", get_type_hints(SolverOptions))


def of_solvers(args: argparse.Namespace) -> dict[str, Any]:
    """Those of them that were given, as the library takes them."""
    return _given(args, "solver", SolverOptions.__annotations__)


def add_of_published_path(parser: argparse.ArgumentParser) -> None:
    """The options of the published path algorithm."""
    group = parser.add_argument_group(
        "options of the published path", "For --factorization svd, qr or update; their meaning is in docs/path.md."
    )
    _add(group, "published", get_type_hints(PublishedOptions), PublishedOptions._field_defaults)


def of_published_path(args: argparse.Namespace) -> PublishedOptions | None:
    """The options of the published path as the library takes them; None where none was given."""
    found = _given(args, "published", PublishedOptions._field_defaults)
    if found and args.factorization == "auto":
        raise InputError(
            f"{_flag(next(iter(found)))} is for --factorization svd, qr or update; add one, or leave it out"
        )
    return PublishedOptions(**found) if found else None


def typed(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of some options that were typed, as they are typed, with their values."""
    found = {_flag(name): getattr(args, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add(group: Any, kind: str, types: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
    """An option for every row of a table, by its type."""
    for name, hint in types.items():
        usual = None if defaults is None else defaults[name]
        usual = ("no", "yes")[usual] if isinstance(usual, bool) else usual
        text = None if defaults is None else f"default {usual}"
        if get_origin(hint) not in (None, Literal, tuple):  # a type or None
            hint = next(part for part in get_args(hint) if part is not type(None))
        taken: dict[str, Any] = {"type": int, "metavar": "N"} if hint is int else {"type": float, "metavar": "X"}
        if hint is bool:
            taken = {"action": argparse.BooleanOptionalAction}
        elif get_origin(hint) is Literal:
            taken = {"choices": get_args(hint)}
        elif get_origin(hint) is tuple:
            taken = {"nargs": len(get_args(hint)), "type": get_args(hint)[0], "metavar": "N"}
        group.add_argument(_flag(name), dest=f"{kind}:{name}", help=text, **taken)


def _given(args: argparse.Namespace, kind: str, names: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: getattr(args, f"{kind}:{name}") for name in names}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items() if value is not None
    }

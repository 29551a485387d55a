"""What the commands read and write."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path as File
from typing import Any

from svmcore._errors import InputError


def check_output(name: str | None) -> None:
    """Refuse before the work what could not be written after it."""
    if name is None:
        return
    if "\0" in name:
        raise InputError(f"{name!r} is no file name")
    folder = File(name).absolute().parent
    if os.path.isdir(name):
        raise InputError(f"{name} is a directory; give a file name")
    if not folder.is_dir():
        raise InputError(f"{name}: there is no directory {folder}")
    if not os.access(name if os.path.exists(name) else folder, os.W_OK):
        raise InputError(f"{name} cannot be written: permission denied")


def write(name: str, save: Callable[[Any], None]) -> None:
    """Write a file whole or not at all."""
    target = File(name)
    if target.exists() and not target.is_file():  # a device, a pipe
        with target.open("wb") as file:
            save(file)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            save(file)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def kernel_of(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of the kernel."""
    return {name: getattr(args, name) for name in ("kernel", "gamma", "degree", "coef0")}


def load(args: argparse.Namespace) -> tuple[Any, Any]:
    """The data, or a sample of them, as they are."""
    from svmcore.data import load_data

    X, y = load_data(args.data, label=args.label)
    limit = getattr(args, "sample_limit", None)
    if limit is not None:
        if limit < 2:
            raise InputError(f"--sample-limit {limit} is out of range; it must be at least 2")
        if limit < y.size:
            import numpy as np

            kept = np.sort(np.random.default_rng(0).permutation(y.size)[:limit])
            X, y = X[kept], y[kept]
    return X, y


def load_test(args: argparse.Namespace, X: Any, y: Any) -> tuple[Any, Any] | None:
    """The other data, which must be like the first."""
    if args.test is None:
        return None
    import numpy as np

    from svmcore.data import load_data

    Z, z = load_data(args.test, label=args.label)
    Z = fitting(Z, X.shape[1])
    if Z.shape[1] != X.shape[1]:
        raise InputError(f"{args.test} has {Z.shape[1]} features, {args.data} has {X.shape[1]}")
    strange = np.setdiff1d(z, y)
    if strange.size:
        raise InputError(f"{args.test} holds the label {strange.tolist()[0]!r}, which {args.data} does not")
    return Z, z


def standardized(X: Any, *others: Any) -> list[Any]:
    """X with mean 0 and variance 1 in every feature (sparse: mean square 1, since zeros must stay), others moved alike."""
    import numpy as np

    if hasattr(X, "tocsr"):
        spread = np.sqrt(np.asarray(X.multiply(X).mean(axis=0)).ravel())
        scale = 1.0 / np.where(spread > 0, spread, 1.0)
        return [Z.multiply(scale).tocsr() if hasattr(Z, "tocsr") else Z * scale for Z in (X, *others)]
    mean, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return [((Z.toarray() if hasattr(Z, "tocsr") else Z) - mean) / spread for Z in (X, *others)]


def write_picture(name: str, save: Callable[[str], None]) -> None:
    """Pictures are known by the ends of their names: drawn beside the target, then moved there."""
    target = File(name)
    if target.exists() and not target.is_file():
        save(name)
        return
    draft = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        save(str(draft))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def load_model(args: argparse.Namespace) -> Any:
    """What `train -o` or `path -o` wrote."""
    from svmcore.solution import load

    return load(args.model)


def fitting(X: Any, width: int) -> Any:
    """Sparse text does not say how many features there are: missing ones at the end are zero."""
    if hasattr(X, "tocsr") and X.shape[1] < width:
        X = X.copy()
        X.resize(X.shape[0], width)
    return X

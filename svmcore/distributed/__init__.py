"""Machines over parts of a data set: beyond one computer's memory, or beyond one computer.

>>> from svmcore.distributed import train_linear
>>> train_linear([([[0.0], [1.0]], [0, 0]), ([[3.0], [4.0]], [1, 1])], C=1.0).converged
True
"""

from __future__ import annotations

import typing as _typing

from svmcore.distributed.answer import PartsSolution
from svmcore.distributed.training import train_linear, train_svc, train_svr

if _typing.TYPE_CHECKING:
    from svmcore.distributed.estimators import DaskLinearSVC, DaskSVC, DaskSVR

__all__ = [
    "DaskLinearSVC",
    "DaskSVC",
    "DaskSVR",
    "PartsSolution",
    "train_linear",
    "train_svc",
    "train_svr",
]


def __getattr__(name: str) -> _typing.Any:
    if name in ("DaskLinearSVC", "DaskSVC", "DaskSVR"):  # they need scikit-learn
        from svmcore.distributed import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'svmcore.distributed' has no attribute {name!r}")

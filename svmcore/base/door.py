"""The door: whatever a user calls an array becomes one of numpy's here. What is no real number or label does not come in.

numpy turns complex numbers, dates and masked values into float64 without a word, or with a warning at most: it drops the
imaginary part, counts nanoseconds (of NaT -9.2e18), and looks under the mask.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray

_COMPLEX = "complex numbers"
_TIMES = "dates or times"
_INSTEAD = {_COMPLEX: "give real numbers", _TIMES: "turn them into numbers first, such as days since the first one"}
_PLAIN = "biufSUT"  # numpy's letters for the types that all may come in
_REFUSED = {"c": _COMPLEX, "m": _TIMES, "M": _TIMES}
_OF_OBJECTS = (
    ((complex, np.complexfloating), _COMPLEX),
    ((dt.date, dt.time, dt.timedelta, np.datetime64, np.timedelta64), _TIMES),
)


def entered(values: Any, name: str) -> NDArray[Any]:
    """`values` as an array of numbers, strings or objects. ValueError or TypeError where they are no array at all."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name} is a masked array with masked values; fill them in, or remove their rows, first")
    array = np.asarray(values)
    if array.dtype.kind not in _PLAIN:
        found = _of_objects(array) if array.dtype.kind == "O" else _REFUSED.get(array.dtype.kind)
        if found is not None:
            raise InputError(f"{name} holds {found}; {_INSTEAD[found]}")
    return array


def reals(values: Any, name: str) -> FloatArray:
    """`values` as float64, of any shape. They may be NaN or infinite."""
    try:
        return np.asarray(entered(values, name), dtype=np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} cannot be read as numbers ({error}); give real numbers") from None


def _of_objects(array: NDArray[Any]) -> str | None:
    """What objects are that cannot come in. NaT among numbers or labels is a missing value, whose place others name."""
    kinds = set(map(type, array.flat))
    for types, what in _OF_OBJECTS:
        suspects = tuple(kind for kind in kinds if issubclass(kind, types))
        if suspects and any(isinstance(value, suspects) and value == value for value in array.flat):
            return what
    return None

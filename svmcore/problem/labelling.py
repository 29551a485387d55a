"""Labels: what a user calls classes becomes signs, or places among the sorted classes, and a factor for each class."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.base.door import entered
from svmcore.problem.border import is_missing, number

MANY_CLASSES = 20  # more numbers than this are hardly classes
_SIGNS = np.array([-1.0, 1.0])
_FEW = 1000  # words that are sorted by Python in less time than all labels are by numpy


def _distinct(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """The values of an array in order, and their places where these are had without sorting: of few whole numbers, or two."""
    kind = array.dtype.kind
    if kind in "biuf" and len(array):
        low, high = array[array.argmin()], array[array.argmax()]
        if kind in "iu" and low >= 0 and high < len(array):  # somebody's numbers of classes
            places = array.astype(np.int64)
            counts = np.bincount(places)
            (classes,) = counts.nonzero()
            if len(classes) < len(counts):
                places = (np.cumsum(counts > 0) - 1)[places]
            return classes.astype(array.dtype, copy=False), places
        if low < high and ((array == low) | (array == high)).all():
            return np.array([low, high]), array == high
    if kind == "U" and len(array):
        values = array.tolist()
        names = sorted(set(values))
        if len(names) <= _FEW:
            place = {name: k for k, name in enumerate(names)}
            return np.array(names, array.dtype), np.array([place[value] for value in values])
    return np.unique(array), None


def label_array(y: Any, name: str = "y") -> np.ndarray[Any, Any]:
    """Labels as an array of strings or numbers where all of them are; object arrays of data frames become such."""
    array = entered(y, name)
    if array.dtype.kind == "T":  # numpy's strings of any length turn into nothing but objects
        array = array.astype(object)
    if array.dtype.kind != "O" or not array.size:
        return array
    kinds = set(map(type, array.flat))
    for base, plain in ((str, str), ((bool, np.bool_), bool), (numbers.Integral, np.int64), (numbers.Real, np.float64)):
        if all(issubclass(kind, base) for kind in kinds):
            try:
                return array.astype(plain)
            except OverflowError:
                return array
    for row, value in enumerate(array.flat):
        if is_missing(value):
            raise InputError(f"{name} has no label at row {row} ({value!r}); every sample needs a label")
    return array


def _several(classes: np.ndarray[Any, Any]) -> InputError:
    """What to do with more than two classes, or with numbers that are none."""
    shown = ", ".join(str(value) for value in classes[:5].tolist()) + (", ..." if len(classes) > 5 else "")
    if classes.dtype.kind == "f" and (classes != np.round(classes)).any():
        return InputError(
            f"y holds {len(classes)} different numbers ({shown}), not two classes; train_svr fits numbers"
        )
    numbers_too = (
        "; to fit numbers use train_svr" if classes.dtype.kind in "iuf" and len(classes) > MANY_CLASSES else ""
    )
    return InputError(
        f"y holds {len(classes)} classes ({shown}); this function separates two; train_classes and "
        f"cv_path take several{numbers_too}"
    )


class Coded(NamedTuple):
    """Labels that have been looked at: places among classes, each of which is there."""

    codes: IntArray
    classes: np.ndarray[Any, Any]


def label_codes(y: Any, n: int) -> tuple[IntArray, np.ndarray[Any, Any]]:
    """Labels of two or more classes as places among the sorted classes, and these."""
    if type(y) is Coded:
        return y
    array = y if type(y) is np.ndarray and y.dtype.kind in "biufU" else label_array(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array.reshape(-1)
    if array.ndim != 1 or len(array) != n:
        raise InputError(f"y has shape {np.shape(y)} for {n} samples; give one label per sample")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise InputError(f"y contains {array[bad]} at row {bad}; every sample needs a label")
    try:
        classes, codes = _distinct(array)
    except TypeError:
        raise InputError("y mixes labels of different types that cannot be sorted; use one type") from None
    if len(classes) < 2:
        raise InputError(f"y holds one class only ({', '.join(map(str, classes.tolist()))}); a classifier needs two")
    if codes is None:
        plain = len(classes) == 2 and array.dtype.kind != "O"  # an object may be a tuple, which == takes apart
        codes = array == classes[1] if plain else np.searchsorted(classes, array)
    return codes.astype(np.int64, copy=False), classes


def class_codes(y: Any, n: int, weights: FloatArray | None) -> tuple[IntArray, np.ndarray[Any, Any]]:
    """As `label_codes`, for functions that take any number of classes: every class has weight, and numbers are classes."""
    codes, classes = label_codes(y, n)
    if type(y) is Coded and weights is None:
        return codes, classes
    kind, count = classes.dtype.kind, len(classes)
    counted = kind in "iu" and (classes[0], classes[-1]) == (
        0,
        count - 1,
    )  # without a gap: somebody's numbers of classes
    if count > 2 and (
        (kind == "f" and (classes != np.round(classes)).any())
        or (kind in "iuf" and count > max(MANY_CLASSES, n // 2) and not counted)
    ):
        shown = ", ".join(str(value) for value in classes[:5].tolist())
        raise InputError(
            f"y holds {len(classes)} different numbers ({shown}, ...) in {n} rows, not classes; train_svr fits numbers. If "
            "they are classes, give them as strings"
        )
    present = np.bincount(codes, weights=weights, minlength=len(classes))
    if not present.all():
        if len(classes) == 2:
            raise InputError(
                "all samples of one class have weight zero; both classes need a sample with positive weight"
            )
        gone = classes.tolist()[int(np.argmin(present))]
        raise InputError(
            f"all samples of class {gone!r} have weight zero; every class needs a sample with positive weight"
        )
    return codes, classes


def labels(y: Any, n: int, kept: Any = None) -> tuple[FloatArray, np.ndarray[Any, Any]]:
    """Signs -1 and +1, and the two classes; the second of the sorted classes is +1. `kept` masks points with weight."""
    codes, classes = label_codes(y, n)
    if len(classes) > 2:
        raise _several(classes)
    if kept is not None and np.unique(codes[kept]).size < 2:
        raise InputError("all samples of one class have weight zero; both classes need a sample with positive weight")
    return _SIGNS.take(codes), classes


def class_factors(values: Any, classes: Any, codes: IntArray, weights: FloatArray | None) -> FloatArray:
    """One factor per class: from a mapping label -> weight, or "balanced" (n / (k n_class), weighted counts)."""
    k = len(classes)
    if values is None:
        return np.ones(k)
    if isinstance(values, str) and values == "balanced":
        count = np.bincount(
            codes, weights=weights, minlength=k
        )  # one by one: weights of zero do not change the rounding
        return np.asarray(count.sum() / (k * count), dtype=np.float64)
    if not isinstance(values, Mapping):
        raise InputError(f'class_weight={values!r} is not known; give "balanced" or a mapping from label to weight')
    known = list(classes.tolist())
    for label in values:
        if label not in known:
            shown = ", ".join(map(repr, known[:-1])) + f" and {known[-1]!r}"
            raise InputError(f"class_weight names the label {label!r}, but y holds {shown}")
    factors = [number(f"class_weight[{label!r}]", values.get(label, 1.0), low=0.0) for label in known]
    if 0.0 in factors:
        both = "both classes need" if k == 2 else "every class needs"
        raise InputError(f"class_weight is 0 for a class; {both} a positive weight")
    return np.array(factors)


def class_weights(values: Any, classes: Any, signs: FloatArray, weights: FloatArray | None) -> FloatArray:
    """One factor per sample of two classes."""
    codes = (signs > 0).astype(np.int64)
    return np.asarray(class_factors(values, classes, codes, weights)[codes])

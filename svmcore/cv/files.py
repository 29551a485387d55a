"""`PathCV.save` and its reading: curves, folds, machines and the training data in one file. Nothing is pickled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray
from svmcore.cv.members import Member, Span, Study, features_of, without_features
from svmcore.cv.result import Curves, PathCV
from svmcore.cv.scores import Curve, Score
from svmcore.cv.values import LineCurve
from svmcore.path.result import Path
from svmcore.path.solution import feature_fields, path_fields, restored, stored_features
from svmcore.step_curve import StepCurve

FORMAT = "svmcore-cv-1"


def save_cv(cv: PathCV, file: Any) -> None:
    """See `PathCV.save`."""
    study = cv._study
    if cv._means[cv._best].curves.band is not None:
        raise InputError("a certified band is not saved; save the machine, cv.refit().save(file)")
    if callable(study.form["kernel"]):
        raise InputError(
            "a cross-validation with a Python kernel function cannot be saved: a file holds data, not code"
        )
    if study.classes.dtype.kind == "O":
        raise InputError("labels of Python object type cannot be saved; use numbers or strings")
    factors = study.class_weight
    about = {
        "form": study.form, "span": study.span._asdict(), "names": study.names, "score": cv.score, "ended": cv.ended,
        "class_weight": factors.tolist() if isinstance(factors, np.ndarray) else factors,
        "stats": {name: value for name, value in cv.stats.items() if isinstance(value, (int, float))},
        "gammas": [mean.curves.gamma for mean in cv._means], "best": cv._best, "n_members": len(cv._members),
    }  # fmt: skip
    fields: dict[str, Any] = {
        "format": np.array(FORMAT), "about": np.array(json.dumps(about, default=_plain)), "codes": study.codes,
        "classes": study.classes, "cost": cv._score.cost,
    }  # fmt: skip
    optional = {"weights": study.weights, "score_weights": cv._score.weights, "score_shares": cv._score.shares}
    fields |= {name: value for name, value in optional.items() if value is not None} | feature_fields(study.X)
    for k, mean in enumerate(cv._means):
        fields |= _packed(f"scores{k}", mean.curves.scores) | _packed(f"supports{k}", mean.curves.supports)
    rest = None
    for k, member in enumerate(cv._members):
        rest = member.rest
        fields |= {
            f"member{k}_train": member.train,
            f"member{k}_test": member.test,
            f"member{k}_numbers": np.array([member.ratio, member.until, float(member.path is not None)]),
        }
        fields |= _named(f"member{k}_", member.path)
    fields |= _named("rest_", rest)
    # given a name, numpy would append a suffix to it
    with nullcontext(file) if hasattr(file, "write") else open(file, "wb") as stream:
        np.savez_compressed(stream, **fields)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def _named(prefix: str, path: Path | None) -> dict[str, Any]:
    return {} if path is None else {prefix + name: value for name, value in path_fields(path).items()}


def _packed(name: str, curves: Sequence[Curve]) -> dict[str, FloatArray]:
    """Several curves, one after the other."""
    if isinstance(curves[0], LineCurve):
        curves = [
            StepCurve(curve.C[1:], curve.levels, curve.C_min, np.inf)
            for curve in curves
            if isinstance(curve, LineCurve)
        ]
    return {
        f"{name}_size": np.array([curve.breakpoints.size for curve in curves], dtype=np.float64),
        f"{name}_breakpoints": np.concatenate([curve.breakpoints for curve in curves]),
        f"{name}_values": np.concatenate([curve.values for curve in curves]),
        f"{name}_ends": np.array([[curve.C_min, curve.C_max] for curve in curves]),
    }


def _unpacked(name: str, parts: dict[str, Any], lines: bool = False) -> list[Any]:
    size = parts[f"{name}_size"].astype(np.int64)
    if (size < 0).any() or parts[f"{name}_breakpoints"].size != size.sum():
        raise ValueError("curves and their sizes do not belong together")
    breakpoints = np.split(parts[f"{name}_breakpoints"], np.cumsum(size)[:-1])
    values = np.split(parts[f"{name}_values"], np.cumsum(size + 1)[:-1])
    ends = parts[f"{name}_ends"].tolist()
    if lines:
        return [LineCurve(np.append(low, b), v) for b, v, (low, _) in zip(breakpoints, values, ends, strict=True)]
    return [StepCurve(b, v, low, high) for b, v, (low, high) in zip(breakpoints, values, ends, strict=True)]


def assemble_cv(file: Any, parts: dict[str, Any]) -> PathCV:
    """The cross-validation from the arrays that `PathCV.save` wrote to `file`."""
    if str(parts.get("format")) != FORMAT:
        raise InputError(f"{file} is not a cross-validation that this version of svmcore reads; it needs {FORMAT!r}")
    try:
        return _assemble(parts)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{file} is damaged: {error}") from None


def _assemble(parts: dict[str, Any]) -> PathCV:
    about = json.loads(str(parts["about"]))
    factors = about["class_weight"]
    names = about["names"]
    study = Study(
        stored_features(parts), parts["codes"].astype(np.int64), parts["classes"], parts.get("weights"),
        np.array(factors) if isinstance(factors, list) else factors, about["form"], Span(**about["span"]),
        None if names is None else tuple(names),
    )  # fmt: skip
    if study.codes.shape != (study.X.shape[0],) or study.codes.min() < 0 or study.codes.max() >= study.classes.size:
        raise ValueError("labels and features do not belong together")
    score = Score(about["score"], parts["cost"], parts.get("score_weights"), parts.get("score_shares"))
    rest = _path("rest_", parts, study, np.arange(study.n)) if "rest_kernel" in parts else None
    members = []
    for k in range(int(about["n_members"])):
        train, test = (parts[f"member{k}_{name}"].astype(np.int64) for name in ("train", "test"))
        ratio, until, own = parts[f"member{k}_numbers"].tolist()
        if test.size == 0 or min(train.min(), test.min()) < 0 or max(train.max(), test.max()) >= study.n:
            raise ValueError("a fold names rows that are not there")
        path = _path(f"member{k}_", parts, study, train) if own else None
        members.append(Member(train, test, path, ratio, until, rest))
    curves = [
        Curves(
            gamma,
            _unpacked(f"scores{k}", parts, about["score"] == "hinge"),
            _unpacked(f"supports{k}", parts),
            members if k == about["best"] else None,
        )
        for k, gamma in enumerate(about["gammas"])
    ]
    return PathCV(study, score, curves, about["stats"], about["ended"])


def _path(prefix: str, parts: dict[str, Any], study: Study, rows: Any) -> Path:
    """A member's path, without its features."""
    own = {name.removeprefix(prefix): value for name, value in parts.items() if name.startswith(prefix)}
    return without_features(restored(own, features_of(study, rows)))

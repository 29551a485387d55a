"""`PathCV.save` and its reading: curves, folds, machines and the training data in one file. Nothing is pickled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from svmcore._types import FloatArray
from svmcore.cv.goals import Goal, divided
from svmcore.cv.means import Curves
from svmcore.cv.members import Member, Span, Strand, Study, features_of
from svmcore.cv.result import PathCV
from svmcore.cv.scores import Curve, Score
from svmcore.models import archive
from svmcore.models.loss_curve import LossCurve
from svmcore.models.step_curve import StepCurve
from svmcore.path.result import Path
from svmcore.path.solution import path_fields, restored
from svmcore.problem.columns import feature_fields, stored_features
from svmcore.problem.division import Sides

FORMAT = "svmcore-cv-3"  # 2: kernels had numbers, and curves no bends


def save_cv(cv: PathCV, file: Any) -> None:
    """See `PathCV.save`."""
    archive.write(file, cv_fields(cv))


def cv_fields(cv: PathCV) -> dict[str, Any]:
    """The cross-validation as the arrays of a file."""
    study = cv._study
    archive.refuse("cross-validation", study.form["kernel"], study.classes)
    factors = study.class_weight
    about = {
        "form": study.form, "span": study.span._asdict(), "names": study.names, "score": cv.score, "ended": cv.ended,
        "class_weight": factors.tolist() if isinstance(factors, np.ndarray) else factors,
        "stats": {name: value for name, value in cv.stats.items() if isinstance(value, (int, float))},
        "gammas": [mean.curves.gamma for mean in cv._means], "best": cv._best, "n_members": len(cv._members),
        "strategy": study.division.strategy, "loss": study.goal.loss, "epsilon": study.goal.epsilon, "tau": study.goal.tau,
    }  # fmt: skip
    fields: dict[str, Any] = {
        "format": np.array(FORMAT), "about": np.array(json.dumps(about, default=_plain)), "codes": study.codes,
        "classes": study.classes, "cost": cv._score.cost,
    }  # fmt: skip
    optional = {
        "weights": study.weights, "score_weights": cv._score.weights, "score_shares": cv._score.shares,
        "target": study.goal.target, "score_target": cv._score.target,
    }  # fmt: skip
    fields |= {name: value for name, value in optional.items() if value is not None} | feature_fields(study.X)
    for k, mean in enumerate(cv._means):
        fields |= _packed(f"scores{k}", mean.curves.scores) | _packed(f"supports{k}", mean.curves.supports)
    rests: dict[str, Path | None] = {}
    for k, member in enumerate(cv._members):
        fields |= {f"member{k}_train": member.train, f"member{k}_test": member.test}
        for j, strand in enumerate(member.strands):
            name = f"member{k}_{j}_"
            fields |= {name + "until": np.array(strand.until)} | _named(name, strand.path)
            rests[f"rest{j}_"] = strand.rest
    for name, rest in rests.items():
        fields |= _named(name, rest)
    return fields


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def _named(prefix: str, path: Path | None) -> dict[str, Any]:
    return {} if path is None else {prefix + name: value for name, value in path_fields(path).items()}


def _packed(name: str, curves: Sequence[Curve]) -> dict[str, FloatArray]:
    """Several curves, one after the other."""
    out = {
        f"{name}_size": np.array([curve.edges.size for curve in curves], dtype=np.float64),
        f"{name}_edges": np.concatenate([curve.edges for curve in curves]),
        f"{name}_values": np.concatenate([curve.values for curve in curves]),
    }
    bends = [curve.bends for curve in curves if isinstance(curve, LossCurve) and curve.bends is not None]
    return out | ({f"{name}_bends": np.concatenate(bends)} if bends else {})


def _unpacked(name: str, parts: dict[str, Any]) -> list[Any]:
    size = parts[f"{name}_size"].astype(np.int64)
    edges, values = parts[f"{name}_edges"], parts[f"{name}_values"]
    smooth = values.size == edges.size  # one value at every edge, or one between two
    if (size < 2 - smooth).any() or edges.size != size.sum() or (not smooth and values.size != (size - 1).sum()):
        raise ValueError("curves and their sizes do not belong together")
    every = np.split(edges, np.cumsum(size)[:-1])
    if not smooth:
        parted = np.split(values, np.cumsum(size - 1)[:-1])
        return [StepCurve(e[1:-1], v, float(e[0]), float(e[-1])) for e, v in zip(every, parted, strict=True)]
    parted, bends = np.split(values, np.cumsum(size)[:-1]), parts.get(f"{name}_bends")
    bent = [None] * size.size if bends is None else np.split(bends, np.cumsum(size - 1)[:-1])
    return [LossCurve("C", e, v, b) for e, v, b in zip(every, parted, bent, strict=True)]


def assembled(parts: dict[str, Any]) -> PathCV:
    """The cross-validation from the arrays that `PathCV.save` wrote."""
    about = json.loads(str(parts["about"]))
    factors = about["class_weight"]
    names = about["names"]
    goal = Goal(about["loss"], about["epsilon"], about["tau"], parts.get("target"))
    study = Study(
        stored_features(parts), parts["codes"].astype(np.int64), parts["classes"], parts.get("weights"),
        np.array(factors) if isinstance(factors, list) else factors, about["form"], Span(**about["span"]),
        None if names is None else tuple(names), divided(goal, parts["classes"].size, about["strategy"]), goal,
    )  # fmt: skip
    if study.codes.shape != (study.X.shape[0],) or study.codes.min() < 0 or study.codes.max() >= study.classes.size:
        raise ValueError("labels and features do not belong together")
    score = Score(
        about["score"],
        parts["cost"],
        parts.get("score_weights"),
        parts["score_target"],
        parts.get("score_shares"),
        goal,
    )
    if "fits0" in parts:
        raise ValueError("it holds a certified band, which only svmcore 0.2 has")
    members = [_member(k, parts, study) for k in range(int(about["n_members"]))]
    curves = []
    for k, gamma in enumerate(about["gammas"]):
        scores = _unpacked(f"scores{k}", parts)
        own = members if k == about["best"] else None
        curves.append(Curves(gamma, scores, own, _unpacked(f"supports{k}", parts)))
    return PathCV(study, score, curves, about["stats"], about["ended"])


def _member(k: int, parts: dict[str, Any], study: Study) -> Member:
    """A fold's machines."""
    train, test = (parts[f"member{k}_{name}"].astype(np.int64) for name in ("train", "test"))
    if test.size == 0 or min(train.min(), test.min()) < 0 or max(train.max(), test.max()) >= study.n:
        raise ValueError("a fold names rows that are not there")
    strands = []
    for j, part in enumerate(study.division.parts):
        name, rows = f"member{k}_{j}_", train[part.holds(study.codes[train])]
        rest, rest_rows = None, None
        if f"rest{j}_kernel" in parts:
            rest_rows = np.flatnonzero(part.holds(study.codes))
            rest = _path(f"rest{j}_", parts, study, rest_rows, part)
        path = _path(name, parts, study, rows, part) if name + "kernel" in parts else None
        strands.append(Strand(rows, path, float(parts[name + "until"]), rest, rest_rows))
    return Member(train, test, study.ratio(train), tuple(strands))


def _path(prefix: str, parts: dict[str, Any], study: Study, rows: Any, part: Sides) -> Path:
    """A machine's path, without its features."""
    own = {name.removeprefix(prefix): value for name, value in parts.items() if name.startswith(prefix)}
    path = restored(own, features_of(study, rows))
    alive = path._data.weights > 0.0
    if ((path._data.signs > 0) != part.positive(study.codes[rows]))[alive].any():
        raise ValueError("a machine's labels are not those of its rows")
    path._data = path._data._replace(X=None)
    return path

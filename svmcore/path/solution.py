"""The methods of a `Path` that need the rest of the library: certified solutions at one C, certificates, and files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from svmcore._control import Control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._types import KernelKind, Status
from svmcore.base.door import reals
from svmcore.models import archive
from svmcore.models.solution import Solution, Terms
from svmcore.path import measure
from svmcore.path.data import kernel_of
from svmcore.path.one_class import OneClassPath
from svmcore.path.problem import Data, Form, Groups, dual_at
from svmcore.path.record import Track
from svmcore.path.result import Path, PathCertificate
from svmcore.path.values import hat
from svmcore.problem import columns as _columns
from svmcore.problem.border import KernelSpec
from svmcore.problem.certify import certificate

FORMAT = (
    "svmcore-path-4"  # 1: without names and scaling; 2, 3: kernels had numbers; 3: with a form, where no classifier's
)
_SCALARS = ("open_top", "found_top", "bias_slope", "phi_end")
_KINDS = {
    "side0": np.int8, "event_index": np.int64, "event_move": np.int8, "knot_events": np.int64, "offset": np.int64,
    "index": np.int32, "value": np.float64,
}  # fmt: skip
"""The types of a track's arrays, which compiled code plays."""
_DEFAULT_VALUES = 20


def certify_path(path: Path, Cs: Any, control: Control) -> PathCertificate:
    """See `Path.certify`."""
    if Cs is None:
        first, last = path._values[[0, -1]]
        spread = np.geomspace if min(first, last) > 0.0 else np.linspace
        values = spread(first, last, _DEFAULT_VALUES) if first != last else np.array([last])
    else:
        values = np.atleast_1d(reals(Cs, "Cs"))
        if values.size == 0:
            raise InputError("Cs is empty; give at least one value of C")
    order = np.roll(np.arange(values.size), 1)  # the last one comes first, because rounding adds up along the path
    with control:
        found, status = measure.certify(path, values[order], control)
    if status is not None:
        warn(
            f"certify ended early ({status.name.lower()}): the certificate is about {found.gap.size} of {values.size} "
            f"values of {path.parameter}. Remedy: a larger time_limit, or fewer values.",
            ConvergenceWarning,
        )
    return PathCertificate(float(found.violation.max()), float(found.gap.max()), found.gap.size)


def null_dim_of(path: Path, control: Control) -> int:
    """See `Path.null_dim_max`."""
    stats, ours = path.stats, path.stats.get("factorization", "auto") == "auto"
    if ours and stats["null_dim_exact"]:
        return int(stats["null_dim_max"])
    with control:
        looked = measure.check_path(path, go_on=lambda: control.reason() is None, knots=False)
    if not looked.complete:
        warn(
            "null_dim_max ended early: there are stretches that it has not looked at. Remedy: a larger time_limit.",
            ConvergenceWarning,
        )
    if not ours:  # the published modes keep the null dimension of their own elbows
        return looked.null_dim
    stats |= {"null_dim_max": max(looked.null_dim, int(stats["null_dim_max"])), "null_dim_exact": looked.complete}
    return int(stats["null_dim_max"])


def solution_at(path: Path, C: float) -> Solution:
    """See `Path.at`."""
    if np.ndim(C) != 0:
        raise InputError(f"C={C!r} is not one number; `alpha`, `intercept` and `decision_function` take arrays")
    C = float(C)
    data = path._data
    K = kernel_of(data, 0)
    lam, value, _ = path._lambdas_of(np.array([C]))
    # Merged duplicates are one variable with a wider box.
    beta, qp = hat(path, lam)[0][0] * value[0], dual_at(path._problem, data, C)
    measured = certificate(qp, K, beta, path._bias(C))
    coef = path.dual_coef(C)
    support = np.flatnonzero(coef)
    precomputed = data.spec.kernel.kind == KernelKind.PRECOMPUTED
    return Solution(
        n_points=len(coef), intercept=path.intercept(C), support=support, dual_coef=coef[support],
        kkt_violation=measured.kkt_violation, measured=measured, status=Status.CONVERGED,
        converged=True, n_iter=int(path.stats["n_events"]), n_kernel_evals=K.computed[0], fit_seconds=0.0, solver="path",
        classes=data.classes, kernel=data.spec.kernel,
        support_vectors=np.empty((0, 0)) if precomputed else data.X[support],
        columns=replace(data.columns, centre=None), terms=_terms(data, C), function=data.spec.function,
        n_threads=data.n_threads,
    )  # fmt: skip


def _terms(data: Data, value: float) -> Terms:
    """The terms of one machine of a path."""
    form = data.form
    if form.kind == "epsilon":
        return Terms(form.C, form.loss, value)
    return Terms(value, form.loss, form.epsilon if form.kind == "svr" else None)


def save_path(path: Path, file: Any) -> None:
    """See `Path.save`."""
    archive.write(file, file_fields(path))


def file_fields(path: Path) -> dict[str, Any]:
    """The path as the arrays of a file."""
    return {"format": np.array(FORMAT), **path_fields(path), **_columns.feature_fields(path._data.X)}


def path_fields(path: Path) -> dict[str, Any]:
    """A path as arrays, without its features."""
    data, track = path._data, path._track
    archive.refuse("path", data.spec.function, data.classes)
    numbers = {k: v for k, v in path.stats.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    fields: dict[str, Any] = {
        **archive.kernel_fields(data.spec.kernel),
        "ended": np.array(path.ended),
        "signs": data.signs,
        "weights": data.weights,
        "flags": np.array(
            [float(data.equality), float(track.open_top), float(track.found_top), track.bias_slope, track.phi_end]
        ),
        "stat_names": np.array(list(numbers), dtype=str),
        "stat_values": np.array([float(v) for v in numbers.values()]),
    }
    if data.classes is not None:
        fields["classes"] = data.classes
    fields |= _columns.stored(data.columns)
    if data.form.kind != "svc":
        fields |= {f"form_{name}": np.asarray(value) for name, value in data.form._asdict().items()}
    fields |= {f"group_{name}": value for name, value in data.groups._asdict().items()}
    fields |= {f"track_{name}": np.asarray(value) for name, value in track._asdict().items() if name not in _SCALARS}
    return fields


def assembled(parts: dict[str, Any]) -> Path:
    """The path from the arrays that `Path.save` wrote."""
    return restored(parts, _columns.stored_features(parts))


def _check_ranges(track: Track, groups: Groups, n: int, size: int) -> None:
    """Refuse indices that point outside of the training set, its variables, or the events."""
    for values, low, high, what in [
        (groups.first, 0, n, "a variable points outside of the training set"),
        (groups.of, -1, size, "a point belongs to no variable"),
        (track.side0, 0, 3, "a variable starts on no side"),
        (track.event_index, 0, size, "an event is of no variable"),
        (track.event_move[:, :2], 0, 3, "an event leads to no side"),
        (track.index, 0, size, "an elbow value is of no variable"),
        (np.diff(track.offset, prepend=0), 0, track.index.size + 1, "elbow values are out of order"),
        (np.diff(track.knot_events, prepend=0), 0, track.event_index.size + 1, "events are out of order"),
    ]:
        if values.size and not (low <= values.min() and values.max() < high):
            raise ValueError(what)
    if track.side0.shape != (size,) or len(track.event_move) != track.event_index.size:
        raise ValueError("variables and sides do not belong together")


def _stored_form(parts: dict[str, Any], n: int) -> Form:
    """The form that `path_fields` wrote. If it wrote none, it is that of a classifier."""
    if "form_kind" not in parts:
        return Form()
    numbers = {name: float(parts[f"form_{name}"]) for name in ("level", "epsilon", "C", "tau")}
    form = Form(str(parts["form_kind"]), np.asarray(parts["form_target"], dtype=np.float64), **numbers)
    regression = form.kind in ("svr", "epsilon", "quantile")
    if form.target.shape != ((n,) if regression else (0,)) or not (regression or form.kind == "one_class"):
        raise ValueError(f"it is no path of the kind {form.kind!r}")
    return form


def restored(parts: dict[str, Any], X: Any) -> Path:
    """The path that `path_fields` wrote, over these features."""
    kernel = archive.read_kernel(parts)
    spec = KernelSpec(kernel, None, KernelKind(kernel.kind).name.lower())
    equality, open_top, found, slope, phi = parts["flags"].tolist()
    groups = Groups(*(parts[f"group_{name}"] for name in Groups._fields))
    names = [name for name in Track._fields if name not in _SCALARS]
    if "track_chord" not in parts:  # the file is older than chords
        parts = parts | {"track_chord": np.zeros(parts["track_knot"].shape)}
    track = Track(
        **{name: parts[f"track_{name}"] for name in names},
        open_top=bool(open_top),
        found_top=bool(found),
        bias_slope=slope,
        phi_end=phi,
    )
    for values in (*groups, *(getattr(track, name) for name in names), parts["signs"], parts["weights"]):
        if values.dtype.kind not in "iuf":
            raise ValueError(f"it holds {values.dtype} where numbers must be")
    n, size = X.shape[0], groups.first.size
    if parts["signs"].shape != (n,) or groups.of.shape != (n,) or track.offset.size != track.knot.shape[0] + 1:
        raise ValueError("the arrays do not belong together")
    if track.chord.shape != track.knot.shape or not (track.chord >= 0.0).all():
        raise ValueError("chords and knots do not belong together")
    if track.index.shape != track.value.shape or track.offset[-1] != track.index.size:
        raise ValueError("elbow values and indices do not belong together")
    _check_ranges(track, groups, n, size)
    arrays: dict[str, Any] = {name: np.asarray(getattr(track, name), kind) for name, kind in _KINDS.items()}
    track = track._replace(**arrays)
    columns = _columns.read(parts, X.shape[1], kernel.kind == KernelKind.PRECOMPUTED)
    form = _stored_form(parts, n)
    data = Data(
        X, parts["signs"], parts["weights"], spec, None if form.target.size else parts["classes"], bool(equality), groups,
        1, columns, form,
    )  # fmt: skip
    if form.twins and (size % 2 or (groups.of >= size // 2).any()):
        raise ValueError("the arrays do not belong together")
    stats: dict[str, Any] = dict(zip(parts["stat_names"].tolist(), parts["stat_values"].tolist(), strict=True))
    for name, value in stats.items():
        if name.startswith("n_") or (name.endswith("_max") and float(value).is_integer()):
            stats[name] = int(value)
    kind = OneClassPath if form.kind == "one_class" else Path
    return kind(data, track, stats, str(parts["ended"]))

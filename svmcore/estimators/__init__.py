"""scikit-learn's interface: estimators over the functions of this library. Needs scikit-learn.

| file | what it is |
|---|---|
| `_sklearn` | the only importer of scikit-learn |
| `_base` | check -> form -> solve -> store; the formulations |
| `_fitted` | what was found, in the layout of scikit-learn and LIBSVM |
| `_machine` | how forms are solved and kept; certificates |
| `_kernel` | estimators with a kernel: what they take and show |
| `_proba` | `probability=True` |
| `_svm` | SVC, NuSVC, SVR, NuSVR, QuantileSVR, OneClassSVM |
| `_linear` | LinearSVC, LinearSVR |
| `_paths` | SVCPath, SVCPathCV, SVRPathCV |
| `_gp` | GPRegressor |
| `_convert` | to scikit-learn's estimators and from them |
| `_update` | rows added and removed |
| `_permute` | `permutation_test_score` |
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from svmcore.estimators._gp import GPRegressor
    from svmcore.estimators._linear import LinearSVC, LinearSVR
    from svmcore.estimators._paths import SVCPath, SVCPathCV, SVRPathCV
    from svmcore.estimators._permute import permutation_test_score as permutation_test_score
    from svmcore.estimators._svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM, QuantileSVR

# loaded on first use: one machine needs neither paths nor cross-validation
_FILES = {
    "_gp": ("GPRegressor",),
    "_linear": ("LinearSVC", "LinearSVR"),
    "_paths": ("SVCPath", "SVCPathCV", "SVRPathCV"),
    "_svm": ("SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM", "QuantileSVR"),
}

__all__ = [
    "SVC", "SVR", "GPRegressor", "LinearSVC", "LinearSVR", "NuSVC", "NuSVR", "OneClassSVM", "QuantileSVR", "SVCPath",
    "SVCPathCV", "SVRPathCV",
]  # fmt: skip


def __getattr__(name: str) -> _typing.Any:
    if name == "permutation_test_score":  # no estimator: it stays where it is
        return _importlib.import_module("svmcore.estimators._permute").permutation_test_score
    for file, names in _FILES.items():
        if name in names:
            module = _importlib.import_module(f"svmcore.estimators.{file}")
            for other in names:  # shown, and pickled, under the name by which users know them
                globals()[other] = getattr(module, other)
                globals()[other].__module__ = "svmcore"
            return globals()[name]
    raise AttributeError(f"module 'svmcore.estimators' has no attribute {name!r}")

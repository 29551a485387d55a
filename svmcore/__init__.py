"""Kernel support vector machines, fast on a CPU, with a certificate for every answer.

>>> import svmcore
>>> solution = svmcore.train_svc([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1], kernel="linear")
>>> solution.converged
True

| you want | call |
|---|---|
| one machine | `train_svc` (two classes), `train_classes`, `train_svr` (numbers, quantiles), `train_one_class` |
| the machine for every C | `svm_path`, `svr_path`; for every epsilon `epsilon_path`; `quantile_path`, `one_class_path` |
| the best C and gamma | `cv_path`, then `refit`; probabilities: `calibrate` |
| rows added, removed, left out | `Solution.add`, `Solution.remove`, `leave_one_out` |
| many labels, targets or weights of the same rows | `train_many`; cross-validated: `cross_val_many` |
| a machine for every query, against the same negatives | `exemplars` |
| a p-value | `permutation_test`; for many groups of features `searchlight` |
| scikit-learn's interface | `SVC`, `SVR`, `NuSVC`, `NuSVR`, `OneClassSVM`, ... |
| rows in parts, on several machines | `svmcore.distributed` |
| how good an answer is, whoever found it | `certificate` |
| data and files | `load_data`, `load`, and `save` of every result |
| no waiting for the compiler | `warmup` |

`help(svmcore.train_svc)` explains a function. On the command line: `svmcore --help`.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing
from importlib.util import find_spec as _find_spec

from svmcore._errors import (
    ConvergenceWarning,
    CostWarning,
    InputError,
    MissingExtraError,
    NotEnoughMemoryError,
    ScaleWarning,
    StoppedError,
    SVMError,
)

if _typing.TYPE_CHECKING:
    from svmcore._control import WorkProgress
    from svmcore.compiler.warm import warmup
    from svmcore.cv import PathCV, cv_path
    from svmcore.data import load_data, save_data
    from svmcore.estimators import SVC as SVC
    from svmcore.estimators import SVR as SVR
    from svmcore.estimators import GPRegressor as GPRegressor
    from svmcore.estimators import LinearSVC as LinearSVC
    from svmcore.estimators import LinearSVR as LinearSVR
    from svmcore.estimators import NuSVC as NuSVC
    from svmcore.estimators import NuSVR as NuSVR
    from svmcore.estimators import OneClassSVM as OneClassSVM
    from svmcore.estimators import QuantileSVR as QuantileSVR
    from svmcore.estimators import SVCPath as SVCPath
    from svmcore.estimators import SVCPathCV as SVCPathCV
    from svmcore.estimators import SVRPathCV as SVRPathCV
    from svmcore.kernel.spare import release_memory
    from svmcore.models.audit import Audit, verify
    from svmcore.models.files import load
    from svmcore.models.leave_out import LeaveOneOut, leave_one_out
    from svmcore.models.loss_curve import LossCurve
    from svmcore.models.solution import Solution
    from svmcore.path.driver import svm_path
    from svmcore.path.family import epsilon_path, one_class_path, quantile_path, svr_path
    from svmcore.path.one_class import OneClassPath
    from svmcore.path.options import PublishedOptions
    from svmcore.path.result import Path, StepCurve
    from svmcore.solvers import CallablePackage
    from svmcore.train.certificates import certificate, duality_gap, kkt_violation
    from svmcore.train.classes import train_classes
    from svmcore.train.functions import train_one_class, train_svc, train_svr
    from svmcore.train.gp import GPSolution, gp_regression
    from svmcore.train.machines import Machines
    from svmcore.train.many import train_many
    from svmcore.trials.exemplars import Exemplars, exemplars
    from svmcore.trials.folded import ManyFolds, cross_val_many
    from svmcore.trials.permutations import PermutationTest, permutation_test
    from svmcore.trials.spheres import Searchlight, searchlight

    solvers: CallablePackage

__version__ = "0.2.0"

# loaded on first use, so that `import svmcore` does not wait for the compiler
_NAMES = {
    "svmcore._control": "WorkProgress",
    "svmcore.models.audit": "Audit verify",
    "svmcore.train.certificates": "certificate duality_gap kkt_violation",
    "svmcore.train.classes": "train_classes",
    "svmcore.train.machines": "Machines",
    "svmcore.cv": "PathCV cv_path",
    "svmcore.data": "load_data save_data",
    "svmcore.models.files": "load",
    "svmcore.trials.exemplars": "Exemplars exemplars",
    "svmcore.trials.folded": "ManyFolds cross_val_many",
    "svmcore.train.gp": "GPSolution gp_regression",
    "svmcore.kernel.spare": "release_memory",
    "svmcore.models.loss_curve": "LossCurve",
    "svmcore.train.many": "train_many",
    "svmcore.models.leave_out": "LeaveOneOut leave_one_out",
    "svmcore.models.solution": "Solution",
    "svmcore.path.driver": "svm_path",
    "svmcore.path.family": "epsilon_path one_class_path quantile_path svr_path",
    "svmcore.path.one_class": "OneClassPath",
    "svmcore.path.options": "PublishedOptions",
    "svmcore.path.result": "Path StepCurve",
    "svmcore.trials.permutations": "PermutationTest permutation_test",
    "svmcore.trials.spheres": "Searchlight searchlight",
    "svmcore.train.functions": "train_one_class train_svc train_svr",
    "svmcore.compiler.warm": "warmup",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

# scikit-learn's interface, which needs scikit-learn
_ESTIMATORS = (
    "SVC", "SVR", "GPRegressor", "LinearSVC", "LinearSVR", "NuSVC", "NuSVR", "OneClassSVM", "QuantileSVR", "SVCPath",
    "SVCPathCV", "SVRPathCV",
)  # fmt: skip
_HOMES |= dict.fromkeys(_ESTIMATORS, "svmcore.estimators")

__all__ = [
    "Audit", "ConvergenceWarning", "CostWarning", "Exemplars", "GPSolution", "InputError", "LeaveOneOut", "LossCurve",
    "Machines", "ManyFolds", "MissingExtraError", "NotEnoughMemoryError", "OneClassPath", "Path", "PathCV",
    "PermutationTest", "PublishedOptions", "SVMError", "ScaleWarning", "Searchlight", "Solution", "StepCurve",
    "StoppedError", "WorkProgress", "certificate", "cross_val_many", "cv_path", "duality_gap", "epsilon_path",
    "exemplars", "gp_regression", "kkt_violation", "leave_one_out", "load", "load_data", "one_class_path",
    "permutation_test", "quantile_path", "release_memory", "save_data", "searchlight", "solvers", "svm_path",
    "svr_path", "train_classes", "train_many", "train_one_class", "train_svc", "train_svr", "verify", "warmup",
]  # fmt: skip
if _find_spec("sklearn") is not None:  # without it `from svmcore import *` brings the rest
    __all__ += list(_ESTIMATORS)

_SLIPS = {
    "train_svm": "train_svc",
    "load_model": "load",
    "cross_validate": "cv_path",
    "cross_val_score": "cv_path",
    "permutation_test_score": "permutation_test",
}
"""Names that others have for what is here."""


def __getattr__(name: str) -> _typing.Any:
    if name == "solvers":
        return _importlib.import_module("svmcore.solvers")
    if name not in _HOMES:
        raise AttributeError(f"module 'svmcore' has no attribute {name!r}{_hint(name)}")
    value = getattr(_importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def _hint(name: str) -> str:
    """What may have been meant."""
    if name.startswith("_"):
        return ""
    import difflib

    known = {other.lower(): other for other in __dir__()} | _SLIPS
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    return f"; did you mean {known[close[0]]!r}?" if close else ""


def __dir__() -> list[str]:
    return [*dict.fromkeys([*__all__, *_ESTIMATORS]), "__version__"]

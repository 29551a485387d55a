"""scikit-learn's interface: estimators over the functions of this library. Needs scikit-learn.

| file | what it is |
|---|---|
| `_sklearn` | the only importer of scikit-learn |
| `_base` | check -> form -> solve -> store; the formulations |
| `_fitted` | what was found, in the layout of scikit-learn and LIBSVM |
| `_machine` | how forms are solved and kept; certificates |
| `_kernel` | estimators with a kernel: what they take and show |
| `_svm` | SVC, NuSVC, SVR, NuSVR, QuantileSVR, OneClassSVM |
| `_linear` | LinearSVC, LinearSVR |
| `_update` | rows added and removed |
"""

from __future__ import annotations

from svmcore.estimators._linear import LinearSVC, LinearSVR
from svmcore.estimators._svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM, QuantileSVR

__all__ = ["SVC", "SVR", "LinearSVC", "LinearSVR", "NuSVC", "NuSVR", "OneClassSVM", "QuantileSVR"]

for _name in __all__:  # shown, and pickled, under the name by which users know them
    globals()[_name].__module__ = "svmcore"

"""GPRegressor: Gaussian-process regression, with bounds on what its solver left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from svmcore._errors import InputError
from svmcore._keywords import Gamma, KernelLike
from svmcore.estimators import _sklearn as sk
from svmcore.estimators._base import Estimator, TrainingData
from svmcore.estimators._fitted import own
from svmcore.train.gp import GPSolution, assembled, gp_regression

_DENSE = 2000  # rows up to which a factor of the kernel matrix is the quickest


@dataclass(kw_only=True, eq=False, repr=False)
class GPRegressor(sk.RegressorMixin, Estimator):  # type: ignore[misc]
    """Gaussian-process regression: the mean, and with ``return_std=True`` the standard deviation of the function.

    `noise` is the variance of the noise, in the units of the targets, or of the scaled ones with ``normalize_y=True``. "auto"
    takes a factor of the kernel matrix ("cholesky") up to 2,000 rows, and conjugate gradients ("cg") beyond.

    Examples
    --------
    >>> import numpy as np
    >>> from svmcore import GPRegressor
    >>> X = np.linspace(0.0, 6.0, 30).reshape(-1, 1)
    >>> mean, deviation = GPRegressor(noise=1e-4, gamma=0.5).fit(X, np.sin(X).ravel()).predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01), bool(deviation[0] < 0.01)
    (True, True)
    """

    noise: float = 1e-2
    kernel: KernelLike = "rbf"
    gamma: Gamma = "scale"
    degree: int = 3
    coef0: float = 0.0
    normalize_y: bool = False
    solver: Literal["auto", "cg", "cholesky"] = "auto"
    tol: float = 1e-6
    n_threads: int | None = None
    time_limit: float | None = None
    verbose: bool | int = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    def _check_points(self, X: Any, y: Any) -> tuple[Any, Any]:
        try:
            return super()._check_points(X, y)
        except TypeError as error:
            if not callable(self.kernel):
                raise
            raise InputError(
                f"X cannot be read as numbers ({error}); for other objects give their kernel values, kernel='precomputed'"
            ) from None

    def fit(self, X: Any, y: Any) -> Any:  # type: ignore[override]
        """Solve ``(K + noise I) alpha = y``.

        Parameters
        ----------
        X, y : n rows and their numbers.

        Returns
        -------
        self
        """
        return self._told(self._run(X, y, None))

    def _solve(self, data: TrainingData, callback: Callable[[Any], Any] | None) -> None:
        names = (
            "noise",
            "kernel",
            "gamma",
            "degree",
            "coef0",
            "normalize_y",
            "tol",
            "n_threads",
            "time_limit",
            "verbose",
        )
        words = {name: getattr(self, name) for name in names} | {"callback": callback}
        data = data._replace(X=own(data.X), y=np.array(data.y))
        dense = data.X.shape[0] <= _DENSE
        solver = ("cholesky" if dense else "cg") if self.solver == "auto" else self.solver
        found: GPSolution = gp_regression(data.X, data.y, solver=solver, **words)
        self._fitted = found
        self.X_train_, self.y_train_ = data.X, data.y
        self.alpha_ = found.alpha
        self.n_iter_ = max(1, found.n_iter)

    def _flat(self, state: dict[str, Any]) -> dict[str, Any]:
        known = state.get("_fitted")
        if isinstance(known, GPSolution) and known.function is None:
            state["_fitted"] = {"process": known.fields(), "threads": known.n_threads, "cache": known.cache_bytes}
        return state

    def _revived(self, state: dict[str, Any]) -> dict[str, Any]:
        known = state.get("_fitted")
        if isinstance(known, dict):
            state["_fitted"] = replace(
                assembled(known["process"]), n_threads=known["threads"], cache_bytes=known["cache"]
            )
        return state

    @property
    def gp_(self) -> GPSolution:
        """What `gp_regression` found: the residual, and bounds on ``y' (K + noise I)^-1 y``."""
        return self._known  # type: ignore[no-any-return]

    @property
    def converged_(self) -> bool:
        """Whether the tolerance was met."""
        return bool(self._known.converged)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean at every row of X; with `return_std` also the standard deviation of the function, without noise."""
        known = self._known
        X = self._new_points(X)
        try:
            return known.predict(X, return_std)
        except InputError:
            sk.validate_data(self, X, accept_sparse=True, dtype=np.float64, reset=False)
            raise

"""
Probabilities
=============

Out-of-fold scores of a cross-validation become probabilities, in three ways.
"""

import matplotlib.pyplot as plt
import numpy as np

import svmcore

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 2))
truth = 1.0 / (1.0 + np.exp(-2.0 * (X[:, 0] + X[:, 1] ** 2 - 1.0)))
y = (rng.uniform(size=500) < truth).astype(int)

cv = svmcore.cv_path(X, y, gamma=0.3, C_max=100.0)
figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
for method, ax in zip(["sigmoid", "isotonic", "venn-abers"], axes, strict=True):
    calibrator = cv.calibrate(method)
    calibrator.plot(ax)
    error = np.abs(calibrator.predict_proba(X)[:, 1] - truth).mean()
    print(f"{method:10}  mean distance to the true probability {error:.3f}")

# %%
# Venn-Abers gives an interval for every point. It is wide where the data know little.
honest = cv.calibrate("venn-abers")
at = np.column_stack([np.linspace(-3.0, 3.0, 200), np.zeros(200)])
low, high = honest.intervals(at).T
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.fill_between(at[:, 0], low, high, color="#56B4E9", alpha=0.5, step="mid", label="Venn-Abers interval")
ax.plot(at[:, 0], 1.0 / (1.0 + np.exp(-2.0 * (at[:, 0] - 1.0))), color="#222222", label="truth")
ax.set(xlabel="first feature (the second is 0)", ylabel="probability of class 1")
ax.legend()
plt.show()

"""
One class: what is unusual?
===========================

No labels. The machine encloses the points and leaves a share nu outside. One path knows the machine for every nu.
"""

import matplotlib.pyplot as plt
import numpy as np

import svmcore

rng = np.random.default_rng(0)
angle = rng.uniform(0.0, np.pi, 300)
X = np.column_stack([np.cos(angle), np.sin(angle)]) * 2.0 + rng.normal(0.0, 0.2, (300, 2))
X = np.vstack([X, rng.uniform(-3.0, 3.0, (15, 2))])

across, up = np.meshgrid(np.linspace(-3.5, 3.5, 120), np.linspace(-3.5, 3.5, 120))
grid = np.column_stack([across.ravel(), up.ravel()])
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for nu, ax in zip([0.02, 0.1, 0.4], axes, strict=True):
    machine = svmcore.train_one_class(X, nu=nu, gamma=1.0)
    value = machine.decision_function(grid).reshape(across.shape)
    outside = machine.predict(X) == -1
    ax.contourf(across, up, value, levels=[0.0, value.max()], colors=["#D9F0E6"])
    ax.contour(across, up, value, levels=[0.0], colors="#009E73")
    ax.plot(*X[~outside].T, ".", color="#0072B2", ms=4)
    ax.plot(*X[outside].T, "x", color="#D55E00", ms=5)
    ax.set(title=f"nu = {nu}: {outside.mean():.0%} outside", xticks=[], yticks=[])
plt.show()

"""
A kernel of your own
====================

Points on a line whose class repeats. The rbf kernel knows nothing about what lies outside of the data; a
periodic kernel does.
"""

import matplotlib.pyplot as plt
import numpy as np

import svmcore


def periodic(X, Z):
    return np.exp(-2.0 * (np.sin(np.pi * (X[:, None, :] - Z[None, :, :])) ** 2).sum(axis=2))


rng = np.random.default_rng(0)
X = rng.uniform(0.0, 4.0, size=(120, 1))
y = np.where(np.sin(2.0 * np.pi * X[:, 0]) + 0.3 * rng.normal(size=120) > 0, 1, -1)
at = np.linspace(-1.0, 7.0, 800)[:, None]

figure, axes = plt.subplots(2, 1, figsize=(9, 4.6), sharex=True, layout="constrained")
for ax, kernel in zip(axes, ["rbf", periodic], strict=True):
    machine = svmcore.train_svc(X, y, C=10.0, kernel=kernel, gamma=8.0)
    ax.plot(at, machine.decision_function(at), color="#0072B2")
    ax.plot(X[:, 0], y, "|", color="#D55E00", ms=8)
    ax.axhline(0.0, color="#8C8C8C", lw=0.8)
    ax.axvspan(0.0, 4.0, color="#ECECEC", zorder=0)
    ax.set(title=kernel if kernel == "rbf" else "periodic", ylabel="decision value")
plt.show()

"""
The path, explained in pictures
===============================

A support vector machine has a penalty C. What happens while C grows from nothing to a large number? This page
follows one small problem all the way: two clouds of points that overlap.
"""

import matplotlib.pyplot as plt
import numpy as np

import svmcore

rng = np.random.default_rng(3)
X = np.vstack([rng.normal([-1.0, 0.0], 0.9, (40, 2)), rng.normal([1.0, 0.5], 0.9, (40, 2))])
y = np.repeat(["blue", "orange"], 40)
path = svmcore.svm_path(X, y, gamma=0.5, C_max=100.0)
print(path)

# %%
# Every point has a weight
# ------------------------
#
# A machine is a sum: each training point adds its kernel, times a weight alpha between 0 and C. The picture
# shows all weights over C, divided by C. Every line begins at 1: where C is tiny, all points count alike. A
# line leaves 1 when its point gets on the right side of its margin, and arrives at 0 when the point is far on
# the right side. In between the point lies exactly *on* the margin.
#
# The kinks are the events of the path. Between two of them lambda = 1 / C and alpha / C are on a straight
# line, which is why the path can be followed exactly: only the kinks need work.
path.plot("alphas")

# %%
# Three sets
# ----------
#
# At every C each point is in one of three sets: on the wrong side of its margin (weight C), on the margin, or
# beyond it (weight 0). The machine is simple where the first set is large, and close to the data where it is
# small.
path.plot("sets")

# %%
# The first five events
# ---------------------
#
# An event says where a point came from and where it goes to.
for event in path.events[:5]:
    print({name: event[name].item() for name in path.events.dtype.names})

# %%
# Four machines of one path
# -------------------------
#
# Nothing is trained here: each boundary is read off the path. Squares and circles with a ring are support vectors.
figure, axes = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
for C, ax in zip([0.05, 0.5, 5.0, 100.0], axes.flat, strict=True):
    path.plot("boundary", ax=ax, C=C, title=f"C = {C:g}")

# %%
# The boundary along C
# --------------------
#
# The same as an animation. Background: the decision value. Lines: the boundary, and the margin on both sides.
from matplotlib.animation import FuncAnimation  # noqa: E402

low, high = X.min(axis=0) - 0.7, X.max(axis=0) + 0.7
across, up = np.meshgrid(np.linspace(low[0], high[0], 80), np.linspace(low[1], high[1], 80))
Cs = np.geomspace(0.05, 100.0, 36)
values = path.decision_function(np.column_stack([across.ravel(), up.ravel()]), Cs)
weights = path.alpha(Cs) / Cs[:, None]

figure, ax = plt.subplots(figsize=(5, 4.4), dpi=80, layout="constrained")
colours = np.where(y == "blue", "#0072B2", "#D55E00")


def draw(k):
    ax.clear()
    field = values[k].reshape(across.shape)
    ax.contourf(across, up, field, levels=[-9e9, 0.0, 9e9], colors=["#E3EFF7", "#FBEADF"])
    ax.contour(across, up, field, levels=[-1.0, 0.0, 1.0], colors="#444444", linewidths=[0.8, 1.8, 0.8])
    ax.scatter(*X.T, c=colours, s=10 + 50 * weights[k], edgecolors="white", linewidths=0.6)
    ax.set(title=f"C = {Cs[k]:.3g}: the size of a point is its weight / C", xticks=[], yticks=[])


animation = FuncAnimation(figure, draw, frames=len(Cs), interval=180)

# %%
# What it is good for
# -------------------
#
# The machines of all C together cost as much as a grid of some tens of values. Cross-validation uses that: it follows
# one path for each fold, and knows the error at every C.
svmcore.cv_path(X, y, gamma=0.5, C_max=100.0).plot()
plt.show()

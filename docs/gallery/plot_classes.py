"""
Several classes
===============

Three kinds of wine, two of thirteen measurements. "ovo" trains a machine for every pair of classes, "ovr" one
for every class.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import svmcore

data = load_wine(as_frame=True)
X = data.data[["alcohol", "color_intensity"]]
y = data.target_names[data.target]

low, high = X.to_numpy().min(axis=0) - 0.5, X.to_numpy().max(axis=0) + 0.5
across, up = np.meshgrid(np.linspace(low[0], high[0], 150), np.linspace(low[1], high[1], 150))
grid = np.column_stack([across.ravel(), up.ravel()])

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for strategy, ax in zip(["ovo", "ovr"], axes, strict=True):
    machines = svmcore.train_classes(X, y, C=10.0, strategy=strategy, standardize=True)
    regions = np.searchsorted(data.target_names, machines.predict(grid)).reshape(across.shape)
    ax.contourf(across, up, regions, levels=[-0.5, 0.5, 1.5, 2.5], colors=["#CFE3F1", "#FBEADF", "#D9F0E6"])
    for name, colour in zip(data.target_names, ["#0072B2", "#D55E00", "#009E73"], strict=True):
        ax.scatter(*X[y == name].to_numpy().T, c=colour, s=14, label=name)
    ax.set(title=f"{strategy}: {len(machines)} machines", xlabel="alcohol", ylabel="colour intensity")
    print(machines)
axes[0].legend()
plt.show()

"""
Where is the difference?
========================

A searchlight scores every group of features, here every pixel with its neighbours, and tests all groups by the same
permutations. The digits 3 and 8 differ where the eight is closed and the three is open. 160,000 machines
take a few seconds.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import svmcore

images, digit = load_digits(return_X_y=True)
rows = np.concatenate([np.flatnonzero(digit == k)[:24] for k in (3, 8)])
X, y = images[rows], digit[rows]

pixel = np.indices((8, 8)).reshape(2, 64).T
near = np.abs(pixel[:, None] - pixel).max(axis=2) <= 1  # (groups, features)
found = svmcore.searchlight(X, y, near, n_permutations=500, C=0.01)

figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained", width_ratios=(1, 1, 1.6))
axes[0].imshow(X[y == 3].mean(axis=0).reshape(8, 8) - X[y == 8].mean(axis=0).reshape(8, 8), cmap="PuOr")
axes[0].set_title("mean three minus mean eight", loc="left")
shown = axes[1].imshow(found.scores.reshape(8, 8), cmap="cividis")
axes[1].contour(found.corrected.reshape(8, 8) <= 0.05, levels=[0.5], colors="#D55E00")
axes[1].set_title("accuracy; inside: p <= 0.05 for all", loc="left")
figure.colorbar(shown, ax=axes[1])
found.plot(axes[2])
plt.show()

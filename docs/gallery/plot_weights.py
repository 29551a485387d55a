"""
A rare class
============

Six in a hundred points are of the rare class. Without weights the machine gives it up. Weights of the
classes, or another threshold, bring it back, and both have a price.
"""

import matplotlib.pyplot as plt
import numpy as np

import svmcore

rng = np.random.default_rng(1)
X = np.vstack([rng.normal(0.0, 1.0, (470, 2)), rng.normal(1.6, 0.7, (30, 2))])
y = np.repeat(["common", "rare"], [470, 30])

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for weight, ax in zip([1.0, 470 / 30], axes, strict=True):
    path = svmcore.svm_path(X, y, gamma=0.5, class_weight={"rare": weight}, C_min=0.1, C_max=10.0)
    predicted = path.predict(X, C=1.0)
    found = (predicted[y == "rare"] == "rare").mean()
    alarms = (predicted[y == "common"] == "rare").mean()
    print(f"weight {weight:4.1f}: {found:.0%} of the rare class found, false alarms {alarms:.1%}")
    path.plot("boundary", ax=ax, C=1.0, title=f"weight {weight:.3g}")

# %%
# Cross-validation can ask for the mean of the two errors in place of the share of wrong rows.
cv = svmcore.cv_path(X, y, gamma=0.5, score="balanced_error", class_weight="balanced", C_max=100.0)
cv.plot()
plt.show()

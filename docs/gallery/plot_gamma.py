"""
What gamma does
===============

Gamma says how near two points must be to be alike. Too small, and the boundary is stiff. Too large, and every
point is an island.
"""

import matplotlib.pyplot as plt

import svmcore

X, y = svmcore.load_data("demo:spirals")
figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
for gamma, ax in zip([0.005, 0.15, 5.0], axes, strict=True):
    path = svmcore.svm_path(X, y, gamma=gamma, C_min=1.0, C_max=10.0)
    path.plot("boundary", ax=ax, C=10.0, title=f"gamma = {gamma:g}")

# %%
# The search over gamma looks at several of them, and at every C for each. The map shows the least error that
# each one reaches.
cv = svmcore.cv_path(X, y, gamma="search", C_max=100.0)
print(cv)
cv.plot("map")
plt.show()

"""
Two spirals: from data to a tuned machine
=========================================

Choose the penalty C by cross-validation over every C, and look at the boundary.
"""

import matplotlib.pyplot as plt

import svmcore

X, y = svmcore.load_data("demo:spirals")
cv = svmcore.cv_path(X, y, gamma=0.15, C_max=1000.0)
print(cv)

# %%
# The cross-validated error is an exact step function of C. No grid is behind the curve.
cv.plot()

# %%
# The path of all data knows the machine for every C. This is its boundary at the best one.
path = svmcore.svm_path(X, y, gamma=0.15, C_max=1000.0)
path.plot("boundary", C=cv.best_C)
plt.show()

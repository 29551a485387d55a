"""
What a tolerance leaves
=======================

The same tolerance of 0.001 on the optimality conditions, at larger and larger C: the objective gets worse and
worse, and only the duality gap says so.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import svmcore

X, y = svmcore.load_data("demo:spirals")
Cs = np.geomspace(1.0, 1e5, 26)
path = svmcore.svm_path(X, y, gamma=0.15, C_max=1e5)
kkt, gap = [], []
for C in Cs:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", svmcore.ConvergenceWarning)  # they say what this picture shows
        machine = svmcore.train_svc(X, y, C=C, gamma=0.15, solver="smo", tol=1e-3)
    kkt.append(machine.kkt_violation)
    gap.append(machine.primal_objective / -path.objective(C) - 1.0)

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.loglog(Cs, kkt, color="#0072B2", label="KKT violation: the tolerance is met")
ax.loglog(Cs, gap, color="#D55E00", label="objective above the exact one, as a share")
ax.axhline(1e-3, color="#8C8C8C", lw=0.8)
ax.set(xlabel="C", title="tol = 0.001 means less and less")
ax.legend()
plt.show()
